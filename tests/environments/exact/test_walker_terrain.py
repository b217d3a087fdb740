"""The ground of a walker is Gymnasium's."""

import gymnasium
import numpy as np
import pytest

from evolve.environments.exact.bipedal_walker import VERTICES, draw_terrain, skip_clouds
from evolve.environments.exact.task import Pcg64


@pytest.mark.parametrize("hardcore", [False, True])
def test_the_ground_of_a_seed_is_gymnasiums(hardcore):
    pytest.importorskip("Box2D")
    kinds = set()
    for seed in range(12):
        generator = Pcg64.seeded(seed)
        terrain = draw_terrain(generator, hardcore)
        env = gymnasium.make("BipedalWalker-v3", hardcore=hardcore).unwrapped
        env.reset(seed=seed)
        assert terrain.heights == env.terrain_y
        theirs = [body.fixtures[0].shape for body in env.terrain[::-1]]
        assert len(theirs) == VERTICES - 1 + len(terrain.blocks)
        for shape, corners in zip(theirs, terrain.blocks, strict=False):
            assert {tuple(np.float32(corner)) for corner in corners} == set(shape.vertices)
        skip_clouds(generator)
        generator.uniform(-5, 5)
        assert generator.state == env.np_random.bit_generator.state["state"]["state"]
        kinds |= {round(abs(corners[1][0] - corners[0][0]) * 30 / 14) for corners in terrain.blocks}
    assert kinds == ({1, 2, 4} if hardcore else set())


@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_lower_obstacles_stand_where_high_ones_stand(share):
    """Their heights and depths are a share of Gymnasium's; the random numbers and the widths are the same."""
    for seed in range(12):
        high, low = Pcg64.seeded(seed), Pcg64.seeded(seed)
        expected, found = draw_terrain(high, True), draw_terrain(low, True, share)
        assert low.state == high.state
        for theirs, ours in zip(expected.blocks, found.blocks, strict=True):
            (left, _), (right, _) = ours[:2]
            assert [left, right] == [theirs[0][0], theirs[1][0]]
            assert ours[2][1] - ours[1][1] == pytest.approx(share * (theirs[2][1] - theirs[1][1]))
