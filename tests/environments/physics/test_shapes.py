"""Polygons and masses have the bits of Box2D's bodies."""

import numpy as np
import pytest
from rigid_bodies import box2d_shape, hulls, random

from evolve.environments.physics import polygons
from evolve.environments.physics.frames import dot


@pytest.mark.parametrize("number", range(4), ids=("hull", "thigh", "shin", "lander"))
def test_a_body_is_as_heavy_as_in_box2d(number):
    box2d = pytest.importorskip("Box2D")
    hull = hulls()[number]
    density = 5.0 if hull["count"] > 4 else 1.0
    world = box2d.b2World()  # which has to live as long as its bodies
    fixture = box2d.b2FixtureDef(shape=box2d_shape(hull), density=density)
    body = world.CreateDynamicBody(position=(0, 0), fixtures=fixture)
    shape = body.fixtures[0].shape
    n = hull["count"]
    assert np.array(shape.vertices, np.float32).tobytes() == hull["corner"][:n].tobytes()
    assert np.array(shape.normals, np.float32).tobytes() == hull["normal"][:n].tobytes()
    assert np.array(shape.centroid, np.float32).tobytes() == hull["centroid"].tobytes()
    assert np.array(body.localCenter, np.float32).tobytes() == hull["center"].tobytes()
    assert np.float32(1) / np.float32(body.mass) == hull["inverse_mass"]
    # b2Body::GetInertia refers to the origin of the body.
    inertia = 1 / hull["inverse_inertia"] + dot(hull["center"], hull["center"]) / hull["inverse_mass"]
    assert inertia == pytest.approx(body.inertia, rel=1e-6)
    assert hull["reach"] >= np.hypot(*(hull["corner"][:n] - hull["center"]).T).max()


def test_a_block_has_the_corners_that_box2d_gives_it():
    box2d = pytest.importorskip("Box2D")
    for x, y, width, height in random(1).uniform((0, 0, 0.2, 0.2), (80, 8, 2, 2), (50, 4)):
        points = [(x, y), (x + width, y), (x + width, y - height), (x, y - height)]
        shape, block = box2d.b2PolygonShape(vertices=points), polygons.block(points)
        assert np.array(shape.vertices, np.float32).tobytes() == block["corner"].tobytes()
        assert np.array(shape.normals, np.float32).tobytes() == block["normal"].tobytes()
        assert np.array(shape.centroid, np.float32).tobytes() == block["centroid"].tobytes()
