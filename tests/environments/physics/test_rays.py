"""Rays meet edges and blocks where Box2D's do, to the bit."""

import itertools

import numpy as np
import pytest
from rigid_bodies import blocks, model_of, random

from evolve.environments.physics.frames import WORLD
from evolve.environments.physics.polygons import ray_to_blocks, ray_to_edges

K, RAYS = 6, 10


def cast(shape, p, d):
    """Return Box2D's fraction of a ray, 1 if it meets nothing."""
    from Box2D import b2RayCastInput, b2RayCastOutput, b2Transform

    begin, still = b2RayCastInput(), b2Transform()
    still.SetIdentity()
    begin.p1, begin.p2, begin.maxFraction = tuple(map(float, p)), tuple(map(float, p + d)), 1.0
    output = b2RayCastOutput()
    return np.float32(output.fraction if shape.RayCast(output, begin, still, 0) else 1)


@pytest.fixture
def rays():
    """Return worlds with rough ground and two blocks, and rays: p [2, K], d [2, RAYS, K]."""
    generator, states = random(4), np.zeros(K, WORLD)
    states["height"] = generator.uniform(2, 4, states["height"].shape)
    states["num_blocks"] = [*range(3)] * 2
    p = np.array((generator.uniform(10, 80, K), generator.uniform(3, 6, K)), np.float32)
    points = []
    for world in range(K):
        for number in range(2):
            x, y = float(p[0, world]) + 1 + 1.5 * number, float(p[1, world]) + generator.uniform(-2, 1)
            points.append([(x, y), (x + 1, y), (x + 1, y - 1), (x, y - 1)])
            block = blocks([points[-1]])
            states["block"]["corner"][world, number] = block.corner[..., 0].T
            states["block"]["normal"][world, number] = block.normal[..., 0].T
    ends = p[:, None] + generator.normal((2, -1), 2, (RAYS, K, 2)).transpose(2, 0, 1).astype(np.float32)
    return states, p, ends - p[:, None], points


def test_rays_end_at_the_first_edge_they_meet(rays):
    box2d = pytest.importorskip("Box2D")
    states, p, d, _ = rays
    model = model_of()
    found = ray_to_edges(states, model, p, d)
    for world in range(K):
        vertices = np.array((model["x"], states["height"][world])).T.tolist()
        shapes = [box2d.b2EdgeShape(vertices=[a, b]) for a, b in itertools.pairwise(vertices)]
        for ray in range(RAYS):
            expected = min(cast(shape, p[:, world], d[:, ray, world]) for shape in shapes)
            assert found[ray, world] == pytest.approx(expected, abs=0)
    assert 10 < (found < 1).sum() < K * RAYS


def test_rays_end_at_blocks_before_the_edge(rays):
    box2d = pytest.importorskip("Box2D")
    states, p, d, points = rays
    nearest = random(5).uniform(0.2, 1, (RAYS, K)).astype(np.float32)
    found = ray_to_blocks(states, p, d, nearest)
    hits = 0
    for world in range(K):
        shapes = [box2d.b2PolygonShape(vertices=points[2 * world + i]) for i in range(states["num_blocks"][world])]
        for ray in range(RAYS):
            fractions = [cast(shape, p[:, world], d[:, ray, world]) for shape in shapes]
            expected = min([nearest[ray, world], *fractions])
            assert found[ray, world] == expected
            hits += expected < nearest[ray, world]
    assert hits > 5
