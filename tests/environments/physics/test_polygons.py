"""Polygons side by side: padding, the numbers of the ground, and boxes."""

import numpy as np
import pytest
from rigid_bodies import blocks, hulls, model_of, random

from evolve.environments.physics.frames import MARGIN, SKIN, WORLD
from evolve.environments.physics.polygons import (
    Boxes,
    boxes,
    first_vertices,
    ground_polygons,
    hull_polygons,
    overlap,
    widened,
)


def test_a_polygon_is_padded_by_its_first_corner():
    records = hulls()
    polygons = hull_polygons(records)
    assert polygons.size.tolist() == [5, 4, 4, 6]
    for i, record in enumerate(records):
        n = record["count"]
        for field, name in ((polygons.corner, "corner"), (polygons.normal, "normal")):
            assert (record[name][:n] == field[:, :n, i].T).all()
            assert (field[:, n:, i] == field[:, :1, i]).all()
    assert polygons.select(np.array([True, False, False, True])).size.tolist() == [5, 6]


def test_blocks_are_the_first_pieces_of_ground_and_then_edges():
    model, states = model_of(), np.zeros(2, WORLD)
    states["height"] = random(1).uniform(0, 4, states["height"].shape)
    states["num_blocks"] = 0, 2
    points = np.array([[(x, 1), (x + 1, 1), (x + 1, 0), (x, 0)] for x in (3.0, 7.0)])
    expected = blocks(points)
    for number in range(2):
        states["block"]["corner"][1, number] = expected.corner[..., number].T
        states["block"]["normal"][1, number] = expected.normal[..., number].T
        states["block"]["centroid"][1, number] = expected.centroid[..., number]
    found = ground_polygons(states, model, np.array([0, 1, 1, 1]), np.array([5, 1, 2, 200]))
    assert found.size.tolist() == [2, 4, 2, 2]
    for field, wanted in zip(found[1:], expected[1:], strict=True):
        assert (field[..., 1] == wanted[..., 1]).all()
    for place, world, vertex in ((0, 0, 5), (2, 1, 0), (3, 1, 198)):
        for end in range(2):
            assert found.corner[0, end, place] == model["x"][vertex + end]
            assert found.corner[1, end, place] == states["height"][world, vertex + end]


def test_edges_of_the_base_lie_apart_from_the_chain():
    assert first_vertices(model_of("LunarLander-v3"), np.arange(4)).tolist() == [0, 2, 3, 4]
    assert first_vertices(model_of(), np.arange(4)).tolist() == [0, 1, 2, 3]


def test_boxes_hold_polygons_and_their_skins():
    corner = random(2).uniform(-1, 1, (2, 4, 50)).astype(np.float32)
    box = boxes(corner)
    assert box.low + SKIN == pytest.approx(corner.min(axis=1), abs=1e-6)
    wide = widened(box)
    assert wide.high - box.high == pytest.approx(np.full((2, 50), MARGIN), abs=1e-6)


def test_boxes_overlap_if_they_touch():
    one = Boxes(np.zeros((2, 1), np.float32), np.ones((2, 1), np.float32))
    low = np.array([(1, 1.01, 0.5, -2, 0.2), (1, 0, -1, 0, 0.2)], np.float32)
    assert overlap(one, Boxes(low, low + 1)).tolist() == [True, False, True, False, True]
