"""Arrays of convex polygons: their shapes and masses, their boxes, and rays that hit them.

Arrays have `MAX_CORNERS` corners for bodies, and four for ground. Copies of the first corner and face pad a polygon
with fewer corners. The copies change neither a minimum over corners nor the index of the first minimum, so most
formulas need not know the number of corners.

A task makes the hulls of its bodies by `hull` and `box`, and obstacles by `block`. The pieces of ground of a world are
numbered: first its blocks, then the edges (`ground_polygons`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evolve.environments.physics.frames import BLOCK, HULL, MARGIN, MAX_CORNERS, SKIN, cross, dot, right_of, unit
from evolve.shapes import Bool, Float32, Int64

_F = np.float32
_ONE, _HALF, _THIRD, _QUARTER = _F(1.0), _F(0.5), _F(1.0) / _F(3.0), _F(0.25)


def normals(corners: Float32) -> Float32:
    """Return the outer normals [n, 2] of the sides of a polygon. corners: [n, 2], counterclockwise."""
    edges = np.roll(corners, -1, axis=0) - corners
    return np.array([unit(right_of(edge)) for edge in edges])


def _area_and_centroid(corners: Float32) -> tuple[Any, Float32]:
    """Return the area and the centroid [2] of a polygon. corners: [n, 2], counterclockwise."""
    area, total = _F(0), np.zeros(2, _F)
    for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        # The triangle of the origin and one side. Its centroid is (0 + a + b) / 3.
        triangle = _HALF * cross(a, b)
        area += triangle
        total += (triangle * _THIRD) * (a + b)
    return area, total * (_F(1.0) / area)


def block(points: Sequence[tuple[float, float]]) -> Any:
    """Return a rectangle on the ground as a record of BLOCK. points: its corners, in any order."""
    (left, low), (right, high) = np.min(points, axis=0), np.max(points, axis=0)
    corners = np.array([(right, low), (right, high), (left, high), (left, low)], _F)  # in the order of Box2D
    record = np.zeros((), BLOCK)
    record["corner"], record["normal"], record["centroid"] = corners, normals(corners), _area_and_centroid(corners)[1]
    return record


def hull(corners: Float32, density: float, friction: Sequence[float]) -> Any:
    """Return a body as a record of HULL.

    Args:
        corners: [n, 2], counterclockwise. As in Box2D, the rightmost corner comes first, of several the lowest. A box
            has another order.
        density: The mass per area.
        friction: Two coefficients, see `frames.BODY`.
    """
    n = len(corners)
    record = np.zeros((), HULL)
    padded = [*range(n), *[0] * (MAX_CORNERS - n)]
    record["count"], record["friction"] = n, friction
    record["corner"], record["normal"] = corners[padded], normals(corners)[padded]
    record["centroid"] = _area_and_centroid(corners)[1]
    # For the mass, b2PolygonShape::ComputeMass sums triangles around the mean of the corners, not around the origin. So
    # `center` and `centroid` may differ in their last bits.
    middle = np.zeros(2, _F)
    for corner in corners:
        middle += corner
    middle *= _F(1.0) / _F(n)
    relative = corners - middle
    area, center = _area_and_centroid(relative)
    inertia = _F(0)
    for a, b in zip(relative, np.roll(relative, -1, axis=0), strict=True):
        squares = a * a + b * a + b * b
        inertia += (_QUARTER * _THIRD * cross(a, b)) * (squares[0] + squares[1])
    mass = _F(density) * area
    center_of_shape = center + middle
    # Parallel axis theorem: move the axis from the mean of the corners to the origin of the frame. Below, the axis
    # moves to the center of mass.
    inertia = _F(density) * inertia + mass * (dot(center_of_shape, center_of_shape) - dot(center, center))
    inverse = _F(1.0) / mass
    # The same center, but rounded as in Box2D, which computes a mean over the shapes of a body.
    center_of_body = (mass * center_of_shape) * inverse
    record["inverse_mass"] = inverse
    record["center"] = center_of_body
    record["inverse_inertia"] = _F(1.0) / (inertia - mass * dot(center_of_body, center_of_body))
    arms = corners - center_of_body
    # `distance.stays_clear` needs an upper bound. The factor is larger than any rounding error.
    record["reach"] = np.sqrt(arms[:, 0] * arms[:, 0] + arms[:, 1] * arms[:, 1]).max() * _F(1.001)
    return record


def box(half_width: float, half_height: float, density: float, friction: Sequence[float]) -> Any:
    """Return a rectangle around the origin as a record of HULL; its normals and centroid are exact."""
    x, y = _F(half_width), _F(half_height)
    record = hull(np.array([(-x, -y), (x, -y), (x, y), (-x, y)]), density, friction)
    record["normal"] = (0, -1)  # of the first face, and of the padding
    record["normal"][1:4] = (1, 0), (0, 1), (-1, 0)
    record["centroid"] = 0
    return record


def finish_hinges(model: Any) -> None:
    """Make the anchors of a model's joints relative to centers of mass, and set their reference angles and masses."""
    hulls = model["hull"]
    for hinge in model["hinge"][: model["num_joints"]]:
        one, other = hulls[hinge["a"]], hulls[hinge["b"]]
        hinge["anchor_a"] -= one["center"]
        hinge["anchor_b"] -= other["center"]
        hinge["reference"] = other["a"] - one["a"]  # angles
        hinge["motor_mass"] = _F(1.0) / (one["inverse_inertia"] + other["inverse_inertia"])


def mixed_friction(one: float, other: float) -> float:
    """Return the friction of two surfaces: the geometric mean of their coefficients, as in Box2D."""
    return float(np.sqrt(_F(one) * _F(other)))


class Polygons(NamedTuple):
    """N convex polygons, counterclockwise.

    size: [N], the number of corners. corner, normal: [2, C, N]; face i begins at corner i. centroid: [2, N].
    """

    size: Int64
    corner: Float32
    normal: Float32
    centroid: Float32

    def select(self, which: Bool) -> "Polygons":
        """Return some of the polygons."""
        return Polygons._make(field[..., which] for field in self)


class Boxes(NamedTuple):
    """Rectangles along the axes: the lower left corners and the upper right ones, [2, ...]."""

    low: Float32
    high: Float32


def vectors(field: Float32) -> Float32:
    """Return vectors [..., 2], a field of records, as an array [2, ...]."""
    return np.moveaxis(field, -1, 0)


def hull_polygons(hulls: Any) -> Polygons:
    """Return the shapes of bodies, records of `frames.HULL` [N], in the frames of the bodies."""
    corner, normal = (hulls[name].transpose(2, 1, 0) for name in ("corner", "normal"))
    return Polygons(hulls["count"].astype(np.int64), corner, normal, vectors(hulls["centroid"]))


def ground_polygons(states: Any, model: Any, worlds: Int64, pieces: Int64) -> Polygons:
    """Return N pieces of ground: blocks, and edges, which have two corners and zeros as normals.

    Args:
        states: Records of `frames.WORLD` [k].
        model: A record of `frames.MODEL`.
        worlds: [N], the worlds of the pieces.
        pieces: [N], the numbers of the pieces.
    """
    blocks = states["num_blocks"][worlds]
    edge = pieces - blocks
    is_edge = edge >= 0
    # For a block, `edge` is negative. The block gets vertex 0 here, which its own corners replace below.
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
    """Return the numbers of the vertices at which edges begin.

    The first `base` edges of the ground are separate, with two vertices each. All other edges form a chain.
    """
    base = int(model["base"])
    return np.where(edges < base, 2 * edges, edges + base)


def boxes(corner: Float32) -> Boxes:
    """Return the boxes [2, ...] around polygons with corners [2, C, ...] and their skins."""
    return Boxes(corner.min(axis=1) - SKIN, corner.max(axis=1) + SKIN)


def widened(box: Boxes) -> Boxes:
    """Return larger boxes for the broad phase: small motions do not change them."""
    return Boxes(box.low - MARGIN, box.high + MARGIN)


def overlap(one: Boxes, other: Boxes) -> Bool:
    """Return whether boxes overlap or touch."""
    separated = (one.low - other.high > 0) | (other.low - one.high > 0)
    return ~(separated[0] | separated[1])


def ray_to_edges(states: Any, model: Any, p: Float32, d: Float32) -> Float32:
    """Return [rays, k]: the share of each ray after which it meets an edge; 1 if it meets no edge.

    Args:
        states: Records of `frames.WORLD` [k].
        model: A record of `frames.MODEL` in which all edges form one chain (`base` is 0).
        p: [2, k], the point from which the rays of each world begin.
        d: [2, rays, k], the vector from there to the end of each ray.
    """
    height = states["height"].T[: model["num_edges"] + 1]
    vertices = np.array((np.broadcast_to(model["x"][: len(height), None], height.shape), height))
    v1 = vertices[:, :-1]
    e = vertices[:, 1:] - v1
    normal = right_of(unit(e))
    numerator = dot(normal, v1 - p[:, None])
    nearest = np.ones(d.shape[1:], np.float32)
    for ray in range(len(nearest)):
        # A ray meets the line of an edge after `share` of the ray and `along` of the edge. Both are 0 to 1 if it hits.
        with np.errstate(divide="ignore", invalid="ignore"):
            denominator = dot(normal, d[:, ray, None])
            share = numerator / denominator
            along = dot((p[:, None] + share * d[:, ray, None]) - v1, e) / dot(e, e)
            hit = (denominator != 0) & (share >= 0) & (share <= 1) & (along >= 0) & (along <= 1)
        # The nearest edge counts, because Gymnasium's callback shortens a ray at each hit.
        nearest[ray] = np.where(hit, share, _ONE).min(axis=0)
    return nearest


def ray_to_blocks(states: Any, p: Float32, d: Float32, nearest: Float32) -> Float32:
    """Return [rays, k]: the share of each ray after which it meets a block, or other ground (`nearest`).

    Args:
        states: Records of `frames.WORLD` [k].
        p: [2, k], the point from which the rays of each world begin.
        d: [2, rays, k], the vector from there to the end of each ray.
        nearest: [rays, k], the shares after which the rays meet other ground.
    """
    for number in range(states["num_blocks"].max(initial=0)):
        block = states["block"][:, number]
        corner, normal = (block[name].transpose(2, 1, 0) for name in ("corner", "normal"))
        with_block = _ray_to_block(corner - p[:, None], normal, d, nearest)
        nearest = np.where(number < states["num_blocks"], with_block, nearest)
    return nearest


def _ray_to_block(corner: Float32, normal: Float32, d: Float32, nearest: Float32) -> Float32:
    """Return [rays, k]: the share after which each ray meets one block of its world; `nearest` if it does not.

    The faces of the block clip the ray: the part from `lower` to `upper` is left.

    Args:
        corner: [2, 4, k], the corners of the block, relative to the point from which the rays begin.
        normal: [2, 4, k], the normals of its faces.
        d: [2, rays, k], the rays.
        nearest: [rays, k], the shares after which the rays meet other ground.
    """
    lower, upper = np.zeros_like(nearest), nearest
    enters = np.zeros(nearest.shape, np.bool_)
    misses = enters.copy()
    for face in range(4):
        numerator, denominator = dot(normal[:, face], corner[:, face]), dot(normal[:, face, None], d)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = numerator / denominator
        # A ray that is parallel to the face, and outside, misses the block.
        misses |= (denominator == 0) & (numerator < 0)
        # `into`: the ray enters the block at this face, later than `lower`. `out`: it leaves the block at this face,
        # earlier than `upper`. As in Box2D, compare products: a quotient may be rounded to the other side of the bound.
        into = (denominator < 0) & (numerator < lower * denominator)
        out = (denominator > 0) & (numerator < upper * denominator)
        lower, upper = np.where(into, share, lower), np.where(out, share, upper)
        enters |= into
        misses |= upper < lower
    # A ray that begins inside a block enters through no face, so it does not meet the block (b2PolygonShape::RayCast).
    return np.where(enters & ~misses, lower, nearest)
