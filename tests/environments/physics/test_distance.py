"""The distance of two polygons has the bits of Box2D's distance, and equals a search over all sides."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rigid_bodies import box2d_shape, hulls

from evolve.environments.physics.distance import Simplex, distance, support
from evolve.environments.physics.frames import Frame, placed, rotation_of

box2d = pytest.importorskip("Box2D")
HULLS = hulls()
numbers = st.floats(-3, 3, width=32).map(np.float32)
points = st.tuples(numbers, numbers).map(np.array)
frames = st.builds(lambda p, a: Frame(p, rotation_of(a)), points, numbers)
records = st.sampled_from(range(len(HULLS))).map(lambda i: HULLS[i])


def corners(hull):
    return hull["corner"][: hull["count"]].T


def searched(ground, body):
    """Return the least distance of a corner of one polygon from a side of the other."""
    least = np.inf
    for one, other in ((ground, body), (body, ground)):
        for a, b in zip(one.T, np.roll(one.T, -1, axis=0), strict=True):
            e = (b - a).astype(float)
            for p in other.T:
                share = np.clip(((p - a) * e).sum() / max((e * e).sum(), 1e-30), 0, 1)
                least = min(least, np.hypot(*(a + share * e - p)))
    return least


@given(points, points, records, frames)
def test_the_distance_from_an_edge(one, other, hull, frame):
    if np.hypot(*(other - one)) < 0.05:
        return
    ground = np.array((one, other)).T
    with np.errstate(all="ignore"):
        found, simplex = distance(ground, corners(hull), frame, Simplex())
        again, _ = distance(ground, corners(hull), frame, simplex)
    assert found.dtype == np.float32
    still, moved = box2d.b2Transform(), box2d.b2Transform()
    still.SetIdentity()
    moved.position = tuple(map(float, frame.p))
    moved.q.s, moved.q.c = map(float, frame.q)
    edge = box2d.b2EdgeShape(vertices=ground.T.tolist())
    theirs = box2d.b2Distance(
        shapeA=edge, idxA=0, shapeB=box2d_shape(hull), idxB=0, transformA=still, transformB=moved, useRadii=False
    )
    assert found == np.float32(theirs.distance)
    assert again == pytest.approx(found, abs=1e-5)
    if found > 1e-4:
        assert found == pytest.approx(
            searched(ground, placed(Frame(frame.p[:, None], frame.q), corners(hull))), abs=1e-4
        )


def test_the_first_of_equal_corners_is_the_support():
    square = np.array([(0, 1, 1, 0), (0, 0, 1, 1)], np.float32)
    assert support(square, np.array([1, 0], np.float32)) == 1
    assert support(square, np.array([0, 0], np.float32)) == 0
    assert support(square, np.array([-1, 1], np.float32)) == 3
