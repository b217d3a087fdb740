"""Convex polygons side by side: the shapes of N bodies and N pieces of ground, as arrays.

A polygon with fewer corners than the array has places is padded by its first corner and face. That changes no minimum
and no first of equals, so most formulas need not know how many corners there are.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from evolve.environments.physics.constants import MARGIN, SKIN
from evolve.environments.physics.layout import MAX_CORNERS
from evolve.shapes import Bool, Float32, Int64


class Polygons(NamedTuple):
    """N convex polygons, counterclockwise.

    size: [N], the number of corners. corner, normal: [2, C, N]; face i begins at corner i. centroid: [2, N].
    """

    size: Int64
    corner: Float32
    normal: Float32
    centroid: Float32

    def those(self, which: Bool) -> "Polygons":
        """Return some of the polygons."""
        fields: Iterable[Any] = (field[..., which] for field in self)
        return Polygons(*fields)


class Boxes(NamedTuple):
    """Rectangles along the axes: the lower left corners and the upper right ones, [2, ...]."""

    low: Float32
    high: Float32


def vectors(field: Float32) -> Float32:
    """Return vectors [..., 2] of a record as an array [2, ...]."""
    return np.moveaxis(field, -1, 0)


def hull_polygons(hulls: Any) -> Polygons:
    """Return the shapes of bodies, records of `layout.HULL` [N], in the frames of the bodies."""
    count = hulls["count"].astype(np.int64)
    place = np.arange(MAX_CORNERS)[:, None]
    place = np.where(place < count, place, 0)
    corner, normal = (
        np.take_along_axis(hulls[name].transpose(2, 1, 0), place[None], axis=1) for name in ("corner", "normal")
    )
    return Polygons(count, corner, normal, vectors(hulls["centroid"]))


def ground_polygons(states: Any, model: Any, worlds: Int64, pieces: Int64) -> Polygons:
    """Return N pieces of ground: blocks, and edges, which have two corners and no normals.

    Args:
        states: Records of `layout.WORLD` [k].
        model: A record of `layout.MODEL`.
        worlds: [N], the worlds of the pieces.
        pieces: [N], the numbers of the pieces.
    """
    blocks = states["num_blocks"][worlds]
    edge = pieces - blocks
    is_edge = edge >= 0
    first = np.where(is_edge, first_vertices(model, edge), 0)
    ends = [np.array((model["x"][vertex], states["height"][worlds, vertex])) for vertex in (first, first + 1)]
    corner = np.stack([*ends, ends[0], ends[0]], axis=1)
    normal, centroid = np.zeros_like(corner), np.zeros_like(ends[0])
    if not is_edge.all():
        block = states["block"][worlds, np.where(is_edge, 0, pieces)]
        corner = np.where(is_edge, corner, block["corner"].transpose(2, 1, 0))
        normal = np.where(is_edge, normal, block["normal"].transpose(2, 1, 0))
        centroid = np.where(is_edge, centroid, vectors(block["centroid"]))
    return Polygons(np.where(is_edge, 2, 4), corner, normal, centroid)


def first_vertices(model: Any, edges: Int64) -> Int64:
    """Return the vertices at which edges begin: the first `base` edges lie apart, the others are a chain."""
    base = int(model["base"])
    return np.where(edges < base, 2 * edges, edges + base)


def boxes(corner: Float32) -> Boxes:
    """Return the boxes [2, ...] around polygons with corners [2, C, ...] and their skins."""
    return Boxes(corner.min(axis=1) - SKIN, corner.max(axis=1) + SKIN)


def widened(box: Boxes) -> Boxes:
    """Return the boxes of the broad phase, which are larger so that small motions do not change them."""
    return Boxes(box.low - MARGIN, box.high + MARGIN)


def overlap(one: Boxes, other: Boxes) -> Bool:
    """Return whether boxes overlap or touch."""
    apart = (one.low - other.high > 0) | (other.low - one.high > 0)
    either: Bool = apart[0] | apart[1]
    return ~either
