"""The distance of two convex polygons, by the algorithm of Gilbert, Johnson and Keerthi (1988).

The differences of all points of one polygon and all points of the other are a convex set. Its distance from the origin
is the distance of the polygons. The algorithm moves a simplex, up to three corners of the set, towards the origin.
This is b2Distance of Box2D 2.3 (Erin Catto, zlib licence), for one pair of polygons. Corners are [2, C], without
padding.
"""

from typing import NamedTuple

import numpy as np

from evolve.environments.physics.constants import SMALLEST
from evolve.environments.physics.frames import Frame, cross, dot, left_of, length, placed, right_of, turned_back
from evolve.shapes import Float32

_ZERO, _HALF, _ONE, _TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)


class Simplex(NamedTuple):
    """The corners of the two polygons that make a simplex, and its size: the next search begins there."""

    metric: np.float32 = _ZERO
    corners: tuple[tuple[int, int], ...] = ()


class _Difference(NamedTuple):
    """A corner of the set of differences: b - a for a corner of the ground and one of the body."""

    a: Float32
    b: Float32
    w: Float32
    corners: tuple[int, int]


_Share = tuple[_Difference, np.float32]
"""A corner, and its share of the point that is nearest to the origin."""


def support(corners: Float32, d: Float32) -> int:
    """Return the number of the corner that is farthest in a direction, the first of equals."""
    return int(dot(corners, d).argmax())


def distance(ground: Float32, body: Float32, frame: Frame, begin: Simplex) -> tuple[np.float32, Simplex]:
    """Return the distance of a piece of ground and a body in a frame, 0 if they overlap, and the last simplex."""

    def difference(corners: tuple[int, int]) -> _Difference:
        a, b = ground[:, corners[0]], placed(frame, body[:, corners[1]])
        return _Difference(a, b, b - a, corners)

    simplex = [difference(corners) for corners in begin.corners]
    if len(simplex) > 1:
        metric = _metric(simplex)
        if metric < _HALF * begin.metric or _TWO * begin.metric < metric or metric < SMALLEST:
            simplex = []
    simplex = simplex or [difference((0, 0))]
    shares: list[_Share] = [(simplex[0], _ONE)]
    for _ in range(20):
        before = [corner.corners for corner in simplex]
        shares = _nearest(simplex)
        simplex = [corner for corner, _ in shares]
        if len(simplex) == 3:
            break  # the origin is inside
        d = _towards_origin(simplex)
        if dot(d, d) < SMALLEST * SMALLEST:
            break
        new = support(ground, -d), support(body, turned_back(frame.q, d))
        if new in before:
            break
        simplex.append(difference(new))
    kept = Simplex(_metric(simplex), tuple(corner.corners for corner in simplex))
    if len(simplex) == 3:
        return _ZERO, kept
    if len(shares) == 1:
        ((only, _),) = shares
        return length(only.a - only.b), kept
    (one, s1), (other, s2) = shares
    return length((s1 * one.a + s2 * other.a) - (s1 * one.b + s2 * other.b)), kept


def _metric(simplex: list[_Difference]) -> np.float32:
    if len(simplex) == 2:
        size: np.float32 = length(simplex[0].w - simplex[1].w)
        return size
    if len(simplex) == 3:
        area: np.float32 = cross(simplex[1].w - simplex[0].w, simplex[2].w - simplex[0].w)
        return area
    return _ZERO


def _towards_origin(simplex: list[_Difference]) -> Float32:
    """Return the direction from a corner, or from a line, to the origin."""
    first = simplex[0].w
    if len(simplex) == 1:
        return -first
    e = simplex[1].w - first
    return left_of(e) if cross(e, -first) > 0 else right_of(e)


def _nearest(simplex: list[_Difference]) -> list[_Share]:
    """Return the corners between which the nearest point lies, with their shares."""
    if len(simplex) == 1:
        return [(simplex[0], _ONE)]
    return _nearest_of_line(*simplex) if len(simplex) == 2 else _nearest_of_triangle(*simplex)


def _nearest_of_line(one: _Difference, two: _Difference) -> list[_Share]:
    e = two.w - one.w
    d2, d1 = -dot(one.w, e), dot(two.w, e)
    if d2 <= 0:
        return [(one, _ONE)]
    if d1 <= 0:
        return [(two, _ONE)]
    return _between(one, two, d1, d2)


def _between(one: _Difference, two: _Difference, d1: np.float32, d2: np.float32) -> list[_Share]:
    inverse = _ONE / (d1 + d2)
    return [(one, d1 * inverse), (two, d2 * inverse)]


def _nearest_of_triangle(one: _Difference, two: _Difference, three: _Difference) -> list[_Share]:  # noqa: PLR0911
    w1, w2, w3 = one.w, two.w, three.w
    e12, e13, e23 = w2 - w1, w3 - w1, w3 - w2
    d12_1, d12_2 = dot(w2, e12), -dot(w1, e12)
    d13_1, d13_2 = dot(w3, e13), -dot(w1, e13)
    d23_1, d23_2 = dot(w3, e23), -dot(w2, e23)
    area = cross(e12, e13)
    t1, t2, t3 = area * cross(w2, w3), area * cross(w3, w1), area * cross(w1, w2)
    if d12_2 <= 0 and d13_2 <= 0:
        return [(one, _ONE)]
    if d12_1 > 0 and d12_2 > 0 and t3 <= 0:
        return _between(one, two, d12_1, d12_2)
    if d13_1 > 0 and d13_2 > 0 and t2 <= 0:
        return _between(one, three, d13_1, d13_2)
    if d12_1 <= 0 and d23_2 <= 0:
        return [(two, _ONE)]
    if d13_1 <= 0 and d23_1 <= 0:
        return [(three, _ONE)]
    if d23_1 > 0 and d23_2 > 0 and t1 <= 0:
        return _between(two, three, d23_1, d23_2)[::-1]  # Box2D puts the third corner in the place of the first
    inverse = _ONE / (t1 + t2 + t3)
    return [(one, t1 * inverse), (two, t2 * inverse), (three, t3 * inverse)]
