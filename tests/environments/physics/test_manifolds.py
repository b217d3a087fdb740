"""Manifolds have the bits of Box2D's."""

import numpy as np
import pytest
from rigid_bodies import blocks, bodies, box2d_shape, edges, hulls, random

from evolve.environments.physics.contacts import touch_blocks, touch_edges
from evolve.environments.physics.frames import Frame, rotation_of

box2d = pytest.importorskip("Box2D")
N = 1500


def poses(key, records, ends):
    """Return frames in which most of N bodies touch ground between ends [N, 2, 2]."""
    generator = random(key)
    at = generator.uniform(0, 1, (N, 1))
    place = ends[:, 0] * (1 - at) + ends[:, 1] * at
    away = generator.uniform(-1, 1, (N, 1)) * records["reach"][:, None]
    angle = generator.uniform(-np.pi, np.pi, N)
    angle[::3] = np.round(angle[::3] * 2 / np.pi) * np.pi / 2 + generator.normal(0, 0.02, len(angle[::3]))  # flat
    place[:, 1] += np.abs(away[:, 0])
    return Frame(place.T.astype(np.float32), rotation_of(angle.astype(np.float32)))


def transform(frame, i):
    found = box2d.b2Transform()
    found.position = tuple(map(float, frame.p[:, i]))
    found.q.s, found.q.c = float(frame.q.s[i]), float(frame.q.c[i])
    return found


def check(manifolds, i, theirs):
    """Compare a manifold with Box2D's; return its number of points."""
    count = theirs.pointCount
    assert manifolds["count"][i] == count
    if count == 0:
        return 0
    assert manifolds["by_body"][i] == (theirs.type_ == box2d.b2Manifold.e_faceB)
    for name, other in (("normal", theirs.localNormal), ("local", theirs.localPoint)):
        assert manifolds[name][i].tobytes() == np.array(tuple(other), np.float32).tobytes()
    for place in range(count):
        point = manifolds["points"][i, place]
        assert point["local"].tobytes() == np.array(tuple(theirs.points[place].localPoint), np.float32).tobytes()
        assert point["id"] == theirs.points[place].id.key
    return count


def drawn_hulls(key):
    records = hulls()
    return records[random(key).integers(0, len(records), N)]


def test_bodies_touch_edges_as_in_box2d():
    generator, records = random(2), drawn_hulls(3)
    ends = np.stack([generator.uniform(0, 90, (N, 2)), np.zeros((N, 2))], axis=1).astype(np.float32)
    ends[:, 1] = ends[:, 0] + (14 / 30, 0) + generator.normal(0, (0.01, 0.2), (N, 2))
    frame = poses(4, records, ends)
    with np.errstate(all="ignore"):
        found = touch_edges(edges(ends), bodies(records), frame)
    counts = [0, 0, 0]
    for i in range(N):
        theirs, still = box2d.b2Manifold(), box2d.b2Transform()
        still.SetIdentity()
        edge = box2d.b2EdgeShape(vertices=ends[i].tolist())
        box2d.b2CollideEdgeAndPolygon(theirs, edge, still, box2d_shape(records[i]), transform(frame, i))
        counts[check(found, i, theirs)] += 1
    assert min(counts) > 100
    assert 100 < (found["by_body"] & (found["count"] > 0)).sum() < (found["count"] > 0).sum() - 100


def test_bodies_touch_blocks_as_in_box2d():
    generator, records = random(5), drawn_hulls(6)
    corner, (width, height) = generator.uniform(0, 90, (N, 2)), generator.uniform(0.3, 2, (2, N))
    x, y = corner.T
    points = np.array([(x, y), (x + width, y), (x + width, y - height), (x, y - height)]).transpose(2, 0, 1)
    frame = poses(7, records, points[:, :2])
    with np.errstate(all="ignore"):
        found = touch_blocks(blocks(points), bodies(records), frame)
    counts = [0, 0, 0]
    for i in range(N):
        theirs, still = box2d.b2Manifold(), box2d.b2Transform()
        still.SetIdentity()
        block = box2d.b2PolygonShape(vertices=points[i].tolist())
        box2d.b2CollidePolygons(theirs, block, still, box2d_shape(records[i]), transform(frame, i))
        counts[check(found, i, theirs)] += 1
    assert min(counts) > 50
    assert 50 < (found["by_body"] & (found["count"] > 0)).sum() < (found["count"] > 0).sum() - 50
