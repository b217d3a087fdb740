"""Times of impact have the bits of Box2D's, and the bound that saves the search is right."""

import numpy as np
import pytest
from rigid_bodies import blocks, bodies, box2d_shape, edges, hulls, random

from evolve.environments.physics.distance import Simplex, Sweep, distance, stays_clear, time_of_impact
from evolve.environments.physics.frames import TARGET, TOLERANCE

N = 250


def motions(key, records):
    """Return motions of N bodies towards the origin, from both sides of the ground; some bodies only turn."""
    generator = random(key)
    start = generator.normal(0, 1, (2, N))
    way = -start * generator.uniform(0, 2, N) + generator.normal(0, 0.2, (2, N))
    way[:, ::4] *= 0.02
    a0 = generator.uniform(-4, 4, N)
    a = a0 + generator.normal(0, 0.6, N)
    center = records["center"].T
    return Sweep(*(x.astype(np.float32) for x in (start, start + way, center, a0, a)))


def one(sweep, i):
    return Sweep(*(field[..., i] for field in sweep))


def corners(hull):
    return hull["corner"][: hull["count"]].T


@pytest.mark.parametrize("kind", ["edges", "blocks"])
def test_impacts_are_those_of_box2d(kind):
    box2d = pytest.importorskip("Box2D")
    generator, all_hulls = random(8), hulls()
    records = all_hulls[generator.integers(0, len(all_hulls), N)]
    sweep = motions(9, records)
    x, y, high = generator.uniform(0.1, 0.6, (3, N))
    if kind == "edges":
        points = np.array([(-x, y - 0.3), (x, high - 0.3)]).transpose(2, 0, 1)
        ground = edges(points)
    else:
        points = np.array([(-x, y), (x, y), (x, -high), (-x, -high)]).transpose(2, 0, 1)
        ground = blocks(points)
    with np.errstate(all="ignore"):
        clear = stays_clear(ground, bodies(records), sweep, records["reach"])
    times = []
    for i in range(N):
        ours = ground.corner[:, : ground.size[i], i]
        with np.errstate(all="ignore"):
            found = time_of_impact(ours, corners(records[i]), one(sweep, i))
        shape = box2d.b2EdgeShape if kind == "edges" else box2d.b2PolygonShape
        still, moving = box2d.b2Sweep(), box2d.b2Sweep()
        moving.localCenter, moving.c0, moving.c = (
            tuple(map(float, vector[:, i])) for vector in (sweep.center, sweep.c0, sweep.c)
        )
        moving.a0, moving.a = float(sweep.a0[i]), float(sweep.a[i])
        state, theirs = box2d.b2TimeOfImpact(
            shapeA=shape(vertices=points[i].tolist()), idxA=0, sweepA=still,
            shapeB=box2d_shape(records[i]), idxB=0, sweepB=moving, tMax=1.0,
        )  # fmt: skip
        touching = state == box2d.b2TOIOutput.e_touching
        assert found == (np.float32(theirs) if touching else 1), i
        assert not (clear[i] and touching)
        times.append(found)
        if 0 < found < 1:
            with np.errstate(all="ignore"):
                apart, _ = distance(ours, corners(records[i]), one(sweep, i).frame(found), Simplex())
            assert abs(apart - TARGET) < 2 * TOLERANCE
    assert 30 < clear.sum() < N - 30
    assert sum(0 < time < 1 for time in times) > 30
