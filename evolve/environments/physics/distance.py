"""The distance of two convex polygons, and the time at which a moving body touches the ground.

`distance` is the algorithm of Gilbert, Johnson and Keerthi (1988): b2Distance of Box2D 2.3 (Erin Catto, zlib licence).
The Minkowski difference of two polygons is the convex set of all differences of their points. Its distance from the
origin is the distance of the polygons. The algorithm moves a simplex, one to three corners of the difference, towards
the origin. Corners are [2, C], without padding.

`time_of_impact` is conservative advancement (Catto, 2013): b2TimeOfImpact. While the polygons are apart, there is an
axis along which they are separated. A root finder gives the time at which they touch along this axis. At that time the
algorithm looks for another axis, and so on until the distance itself is small.

The limits of iterations, 20, 16 and 50, are Box2D's; 16 is b2_maxPolygonVertices of the Box2D that Gymnasium uses.
`world` calls `stays_clear`, a cheap bound, before it calls `time_of_impact`.
"""

from typing import Any, NamedTuple

import numpy as np

from evolve.environments.physics import frames
from evolve.environments.physics.frames import Frame, cross, dot, left_of, length, placed, right_of, turned
from evolve.environments.physics.polygons import Polygons
from evolve.shapes import Bool, Float32

_F = np.float32
_ZERO, _EIGHTH, _HALF, _ONE, _TWO = _F(0.0), _F(0.125), _F(0.5), _F(1.0), _F(2.0)
_CLEARANCE = _F(0.00635)
"""Beyond this distance there is no impact. It is slightly above TARGET + TOLERANCE, because of rounding errors."""


class Simplex(NamedTuple):
    """A simplex with which a search has ended, and the next search can begin (b2SimplexCache).

    metric: the size of the simplex, see `_metric`. corners: for each corner of the simplex, the numbers of a corner of
    the ground and of a corner of the body.
    """

    metric: np.float32 = _ZERO
    corners: tuple[tuple[int, int], ...] = ()


class _Difference(NamedTuple):
    """A corner of the Minkowski difference: w = b - a, for a corner a of the ground and a corner b of the body.

    numbers: the numbers of a and b in the two polygons.
    """

    a: Float32
    b: Float32
    w: Float32
    numbers: tuple[int, int]


_WeightedCorner = tuple[_Difference, np.float32]
"""A corner, and its weight in the convex combination that is the simplex's nearest point to the origin."""


def support(corners: Float32, d: Float32) -> int:
    """Return the number of the corner that is farthest in direction d; of several, the first one."""
    return int(dot(corners, d).argmax())


def distance(ground: Float32, body: Float32, frame: Frame, cached: Simplex) -> tuple[np.float32, Simplex]:
    """Return the distance of a piece of ground and a body in a frame, 0 if they overlap, and the last simplex.

    cached: The simplex that the previous call returned, or `Simplex()`. The search begins with this simplex.
    """

    def difference(numbers: tuple[int, int]) -> _Difference:
        a, b = ground[:, numbers[0]], placed(frame, body[:, numbers[1]])
        return _Difference(a, b, b - a, numbers)

    # Begin with the cached simplex, unless the motion since then has changed its size much.
    simplex = [difference(numbers) for numbers in cached.corners]
    if len(simplex) > 1:
        metric = _metric(simplex)
        if metric < _HALF * cached.metric or _TWO * cached.metric < metric or metric < frames.SMALLEST:
            simplex = []
    simplex = simplex or [difference((0, 0))]
    for _ in range(20):
        # Include the corners that `_nearest` drops: the search would cycle if it took such a corner again.
        known = [corner.numbers for corner in simplex]
        weighted = _nearest(simplex)
        simplex = [corner for corner, _ in weighted]
        if len(simplex) == 3:
            break  # the origin is inside the triangle: the polygons overlap
        d = _towards_origin(simplex)
        if dot(d, d) < frames.SMALLEST * frames.SMALLEST:
            break  # the origin is on the simplex
        new = support(ground, -d), support(body, frames.turned_back(frame.q, d))
        if new in known:
            break  # no corner is nearer to the origin
        simplex.append(difference(new))
    last = Simplex(_metric(simplex), tuple(corner.numbers for corner in simplex))
    if len(simplex) == 3:  # an overlap; as in Box2D, also if the search has ended at its limit with a third corner
        return _ZERO, last
    if len(weighted) == 1:
        return length(simplex[0].a - simplex[0].b), last
    # The nearest point of each polygon is a convex combination of its corners, with the same weights in both polygons.
    (one, s1), (other, s2) = weighted
    return length((s1 * one.a + s2 * other.a) - (s1 * one.b + s2 * other.b)), last


def _metric(simplex: list[_Difference]) -> np.float32:
    """Return the size of a simplex: the length of a line, twice the signed area of a triangle, or 0 for a point."""
    if len(simplex) == 2:
        return length(simplex[0].w - simplex[1].w)
    if len(simplex) == 3:
        return cross(simplex[1].w - simplex[0].w, simplex[2].w - simplex[0].w)
    return _ZERO


def _towards_origin(simplex: list[_Difference]) -> Float32:
    """Return a direction to the origin: from a point, or perpendicular to a line."""
    first = simplex[0].w
    if len(simplex) == 1:
        return -first
    e = simplex[1].w - first
    return left_of(e) if cross(e, -first) > 0 else right_of(e)


def _nearest(simplex: list[_Difference]) -> list[_WeightedCorner]:
    """Return the simplex's nearest point to the origin as a convex combination: corners with their weights."""
    if len(simplex) == 1:
        return [(simplex[0], _ONE)]
    return _nearest_of_line(*simplex) if len(simplex) == 2 else _nearest_of_triangle(*simplex)


def _nearest_of_line(one: _Difference, two: _Difference) -> list[_WeightedCorner]:
    # d1 and d2 are the barycentric coordinates of the origin's projection on the line, not yet divided by their sum. If
    # the coordinate of a corner is not positive, the origin projects beyond the other corner.
    e = two.w - one.w
    d2, d1 = -dot(one.w, e), dot(two.w, e)
    if d2 <= 0:
        return [(one, _ONE)]
    if d1 <= 0:
        return [(two, _ONE)]
    return _between(one, two, d1, d2)


def _between(one: _Difference, two: _Difference, d1: np.float32, d2: np.float32) -> list[_WeightedCorner]:
    """Return a point between two corners, with weights proportional to d1 and d2."""
    inverse = _ONE / (d1 + d2)
    return [(one, d1 * inverse), (two, d2 * inverse)]


def _nearest_of_triangle(one: _Difference, two: _Difference, three: _Difference) -> list[_WeightedCorner]:  # noqa: PLR0911
    # Find the Voronoi region that contains the origin: the region of a corner, of an edge, or the inside. On the edge
    # from corner i to corner j, dij_i and dij_j are coordinates as in `_nearest_of_line`.
    w1, w2, w3 = one.w, two.w, three.w
    e12, e13, e23 = w2 - w1, w3 - w1, w3 - w2
    d12_1, d12_2 = dot(w2, e12), -dot(w1, e12)
    d13_1, d13_2 = dot(w3, e13), -dot(w1, e13)
    d23_1, d23_2 = dot(w3, e23), -dot(w2, e23)
    # t1, t2 and t3 are the barycentric coordinates in the triangle, not yet divided by their sum. The factor `area`
    # makes all three positive inside, for both orientations.
    area = cross(e12, e13)
    t1, t2, t3 = area * cross(w2, w3), area * cross(w3, w1), area * cross(w1, w2)
    # One return for each of the seven regions, in the order of Box2D's tests.
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
        return _between(two, three, d23_1, d23_2)[::-1]  # Box2D moves the third corner to the first place
    inverse = _ONE / (t1 + t2 + t3)
    return [(one, t1 * inverse), (two, t2 * inverse), (three, t3 * inverse)]


class Sweep(NamedTuple):
    """A motion of bodies.

    c0, c: [2, ...], the centers of mass in the world, before and after the motion. center: [2, ...], the centers of
    mass in the frames of the bodies. a0, a: the angles before and after the motion.
    """

    c0: Float32
    c: Float32
    center: Float32
    a0: frames.Number
    a: frames.Number

    def frame(self, t: np.float32) -> Frame:
        """Return the frame at a time from 0 (before the motion) to 1 (after it)."""
        c, a = (_ONE - t) * self.c0 + t * self.c, (_ONE - t) * self.a0 + t * self.a
        return frames.frame_around(c, a, self.center)


class _Separator:
    """An axis along which a piece of ground and a body are separated (b2SeparationFunction).

    A simplex gives the axis. If the simplex has one corner, the axis is the line from a corner of the ground to a
    corner of the body. If the simplex has two corners, the axis is the normal of a face: of the ground if the two have
    different corners of the ground, otherwise of the body. The axis of a face of the body is in the body's frame.
    """

    def __init__(self, ground: Float32, body: Float32, frame: Frame, simplex: Simplex) -> None:
        self._ground, self._body = ground, body
        # The simplex has at most two corners: with three, the polygons overlap, and `time_of_impact` needs no axis.
        ground_1, body_1 = simplex.corners[0]
        ground_2, body_2 = simplex.corners[-1]
        a, b = ground[:, ground_1], body[:, body_1]
        has_face = len(simplex.corners) > 1
        self._of_body = has_face and ground_1 == ground_2
        self._of_ground = has_face and ground_1 != ground_2
        if not has_face:
            self._axis = frames.unit(placed(frame, b) - a)
            return
        begin, end = (b, body[:, body_2]) if self._of_body else (a, ground[:, ground_2])
        self._axis = frames.unit(right_of(end - begin))
        self._middle = _HALF * (begin + end)  # a point on the face, in the frame of its polygon
        # The axis has to point from the polygon with the face to the other polygon.
        if self.separation(frame, simplex.corners[0]) < 0:
            self._axis = -self._axis

    def separation(self, frame: Frame, corners: tuple[int, int]) -> np.float32:
        """Return the separation of a corner of the ground and a corner of the body along the axis.

        If the axis belongs to a face, the corner of the polygon with this face is ignored: the face takes its place.
        """
        a, b = self._ground[:, corners[0]], self._body[:, corners[1]]
        separation: np.float32
        if self._of_body:
            separation = dot(a - placed(frame, self._middle), turned(frame.q, self._axis))
        else:
            separation = dot(placed(frame, b) - (self._middle if self._of_ground else a), self._axis)
        return separation

    def deepest(self, frame: Frame) -> tuple[int, int]:
        """Return the numbers of the corners of ground and body that are deepest along the axis.

        If the axis belongs to a face, the polygon with this face gets the number 0, which `separation` ignores.
        """
        if self._of_body:
            return support(self._ground, -turned(frame.q, self._axis)), 0
        corner = support(self._body, frames.turned_back(frame.q, -self._axis))
        return 0 if self._of_ground else support(self._ground, self._axis), corner


def time_of_impact(ground: Float32, body: Float32, sweep: Sweep) -> np.float32:
    """Return the time from 0 to 1 at which a body touches a piece of ground; 1 also means that they do not touch.

    Args:
        ground: [2, C], the corners of the ground.
        body: [2, C], the corners of the body, in its frame.
        sweep: The motion of the body.
    """
    # Box2D subtracts whole turns, because large angles lose precision.
    whole_turns = _TWO * frames.PI * np.floor(sweep.a0 / (_TWO * frames.PI))
    sweep = sweep._replace(a0=sweep.a0 - whole_turns, a=sweep.a - whole_turns)
    t1, simplex = _ZERO, Simplex()
    for _ in range(20):
        frame = sweep.frame(t1)
        gap, simplex = distance(ground, body, frame, simplex)
        if gap <= 0:
            return _ONE  # ground and body overlap already: the position solver will separate them
        if gap < frames.TARGET + frames.TOLERANCE:
            return t1
        separator = _Separator(ground, body, frame, simplex)
        t1, is_final = _advance(separator, sweep, t1)
        if is_final:
            return t1
    return _ONE


def _advance(separator: _Separator, sweep: Sweep, t1: np.float32) -> tuple[np.float32, bool]:
    """Return the first time after t1 at which the polygons touch along an axis, and whether this time is final.

    A final time is the result of `time_of_impact`. From any other time the search goes on with another axis.

    The search goes backwards from t2, at first the end of the motion. The corners that are deepest at t2 may not be the
    first to touch. So the time at which these corners touch is the next t2, and has its own deepest corners.
    """
    t2 = _ONE
    for _ in range(16):
        frame = sweep.frame(t2)
        corners = separator.deepest(frame)
        s2 = separator.separation(frame, corners)
        if s2 > frames.TARGET + frames.TOLERANCE:
            return _ONE, True  # separated at the end of the motion: no impact
        if s2 > frames.TARGET - frames.TOLERANCE:
            return t2, False
        s1 = separator.separation(sweep.frame(t1), corners)
        if s1 < frames.TARGET - frames.TOLERANCE:
            return _ONE, True  # the search has failed
        if s1 <= frames.TARGET + frames.TOLERANCE:
            return t1, True
        t2 = _root(separator, sweep, corners, (t1, s1), (t2, s2))
    # After 16 rounds, go on from t1 with another axis, as Box2D does.
    return t1, False


def _root(
    separator: _Separator,
    sweep: Sweep,
    corners: tuple[int, int],
    low: tuple[np.float32, np.float32],
    high: tuple[np.float32, np.float32],
) -> np.float32:
    """Return the time at which the separation of two corners is TARGET, by bisection and the secant method in turns.

    Args:
        separator: The axis.
        sweep: The motion of the body.
        corners: The numbers of the corners of ground and body.
        low: The earliest time, and the separation at this time, above TARGET.
        high: The latest time, and the separation at this time, below TARGET.
    """
    (t1, s1), (t2, s2) = low, high
    for iteration in range(50):
        t = t1 + (frames.TARGET - s1) * (t2 - t1) / (s2 - s1) if iteration % 2 else _HALF * (t1 + t2)
        s = separator.separation(sweep.frame(t), corners)
        if abs(s - frames.TARGET) < frames.TOLERANCE:
            return t
        if s > frames.TARGET:
            t1, s1 = t, s
        else:
            t2, s2 = t, s
    # As in Box2D, the latest time stays if the search does not converge.
    return high[0]


def stays_clear(ground: Polygons, bodies: Polygons, sweep: Sweep, reach: Any) -> Bool:
    """Return [N]: whether a simple bound proves that bodies do not touch pieces of ground.

    The bound: a line separates body and ground at the beginning and at the end of the motion, and the distance of the
    line from the body is larger than the deviation of any corner's path from a straight line. The deviation is at most
    r turn² / 8, for a corner at distance r from the center of mass. If the bound holds, `time_of_impact` would return 1
    after a longer computation.

    Args:
        ground: N pieces of ground.
        bodies: N bodies, in their frames.
        sweep: The motions of the bodies, [N].
        reach: [N], the largest distance of a corner from the center of mass.
    """
    ends = [frames.frame_around(c, a, sweep.center).per_corner() for c, a in ((sweep.c0, sweep.a0), (sweep.c, sweep.a))]
    corner = np.concatenate([placed(frame, bodies.corner) for frame in ends], axis=1)
    # The angle by which each body turns, and the distance by which its center of mass moves.
    turn, path = np.abs(sweep.a - sweep.a0), length(sweep.c - sweep.c0)
    deviation = reach * turn * turn * _EIGHTH + _CLEARANCE

    # Vertical lines on the left and on the right of the ground.
    left, right = ground.corner[0].min(axis=0), ground.corner[0].max(axis=0)
    clear: Bool = (corner[0].min(axis=0) - deviation > right) | (corner[0].max(axis=0) + deviation < left)

    # Lines along faces of the ground. An edge (a polygon of two corners) has only its upper face, number 0. A block has
    # four.
    is_edge = ground.size == 2
    for i in range(4):
        v1, v2 = ground.corner[:, i], ground.corner[:, (i + 1) % 4]
        # Outside is the left side of an edge, because edges go from left to right. Outside is the right side of a face
        # of a block, because faces go counterclockwise.
        e = v2 - v1
        beyond = np.where(is_edge, _ONE, -_ONE) * cross(e[:, None], corner - v1[:, None])
        clear |= (beyond > deviation * length(e)).all(axis=0) & ((i == 0) | ~is_edge)

    # Lines along faces of the body. In the frame of the body the ground moves, on a path that also deviates from a
    # straight line: by its distance times turn² / 8, plus a term for the body's own path.
    offset = np.abs(ground.corner - sweep.c[:, None])
    ground_reach = (offset[0] + offset[1]).max(axis=0)  # an upper bound of the distance
    ground_deviation = ((ground_reach + path) * turn * turn + _TWO * turn * path) * _EIGHTH + _CLEARANCE
    separated = np.ones(bodies.normal.shape[1:], np.bool_)
    for frame in ends:
        normal, origin = turned(frame.q, bodies.normal), placed(frame, bodies.corner)
        separation = dot(normal[:, :, None], ground.corner[:, None] - origin[:, :, None])
        separated &= (separation > ground_deviation).all(axis=1)
    return clear | separated.any(axis=0)
