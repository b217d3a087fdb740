"""Convex polygons: corners, normals, centroid, mass and moment of inertia, in float32 and in Box2D's order.

The formulas are those of Box2D 2.3 (b2PolygonShape, b2Body::ResetMassData; Erin Catto, zlib licence).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evolve.environments.physics.frames import cross, dot, right_of, unit
from evolve.environments.physics.layout import BLOCK, HULL
from evolve.shapes import Float32

_F = np.float32
_HALF, _THIRD, _QUARTER = _F(0.5), _F(1.0) / _F(3.0), _F(0.25)


def convex(points: Float32) -> Float32:
    """Return the corners [n, 2] of a convex hull, counterclockwise from the lowest of the rightmost (gift wrapping)."""
    start = max(range(len(points)), key=lambda i: (points[i, 0], -points[i, 1]))
    corners, last = [start], start
    while True:
        following = 0
        for other in range(1, len(points)):
            if following == last:
                following = other
                continue
            one, two = points[following] - points[last], points[other] - points[last]
            turn = cross(one, two)
            if turn < 0 or (turn == 0 and dot(two, two) > dot(one, one)):  # on a line, the farthest point
                following = other
        if following == start:
            return points[corners]
        corners.append(following)
        last = following


def normals(corners: Float32) -> Float32:
    """Return the outer normals [n, 2] of the edges of a polygon."""
    edges = np.roll(corners, -1, axis=0) - corners
    return np.array([unit(right_of(edge)) for edge in edges])


def centroid(corners: Float32) -> Float32:
    """Return the centroid [2] of a polygon."""
    area = _F(0)
    total = np.zeros(2, _F)
    for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        triangle = _HALF * cross(a, b)
        area += triangle
        total += (triangle * _THIRD) * (a + b)
    return total * (_F(1.0) / area)


def block(points: Sequence[tuple[float, float]]) -> Any:
    """Return a rectangle on the ground as a record of BLOCK."""
    corners = convex(np.array(points, _F))
    record = np.zeros((), BLOCK)
    record["corner"], record["normal"], record["centroid"] = corners, normals(corners), centroid(corners)
    return record


def hull(corners: Float32, density: float, friction: Sequence[float]) -> Any:
    """Return a body as a record of HULL.

    Args:
        corners: [n, 2], counterclockwise; in the order of `convex`, or those of a box.
        density: Its mass per area.
        friction: Coefficients with the ground, and with its first pieces.
    """
    n = len(corners)
    record = np.zeros((), HULL)
    record["count"] = n
    record["corner"][:n] = corners
    record["friction"] = friction
    record["normal"][:n], record["centroid"] = normals(corners), centroid(corners)
    middle = np.zeros(2, _F)
    for corner in corners:
        middle += corner
    middle *= _F(1.0) / _F(n)
    area, inertia, center = _F(0), _F(0), np.zeros(2, _F)
    for a, b in zip(corners - middle, np.roll(corners, -1, axis=0) - middle, strict=True):
        D = cross(a, b)
        triangle = _HALF * D
        area += triangle
        center += (triangle * _THIRD) * (a + b)
        squares = a * a + b * a + b * b
        inertia += (_QUARTER * _THIRD * D) * (squares[0] + squares[1])
    mass = _F(density) * area
    center *= _F(1.0) / area
    whole = center + middle
    inertia = _F(density) * inertia + mass * (dot(whole, whole) - dot(center, center))
    inverse = _F(1.0) / mass
    balanced = (mass * whole) * inverse
    record["inverse_mass"] = inverse
    record["center"] = balanced
    record["inverse_inertia"] = _F(1.0) / (inertia - mass * dot(balanced, balanced))
    arms = corners - balanced
    record["reach"] = np.sqrt(arms[:, 0] * arms[:, 0] + arms[:, 1] * arms[:, 1]).max() * _F(1.001)
    return record


def box(half_width: float, half_height: float, density: float, friction: Sequence[float]) -> Any:
    """Return a rectangle around the origin as a record of HULL; its normals and centroid are exact."""
    x, y = _F(half_width), _F(half_height)
    record = hull(np.array([(-x, -y), (x, -y), (x, y), (-x, y)]), density, friction)
    record["normal"][:4] = (0, -1), (1, 0), (0, 1), (-1, 0)
    record["centroid"] = 0
    return record


def finish_hinges(model: Any) -> None:
    """Let the anchors of a model's joints be relative to centers of mass, and set what follows from its bodies."""
    hulls = model["hull"]
    for hinge in model["hinge"][: model["num_joints"]]:
        a, b = hulls[hinge["a"]], hulls[hinge["b"]]
        hinge["anchor_a"] -= a["center"]
        hinge["anchor_b"] -= b["center"]
        hinge["reference"] = b["a"] - a["a"]
        hinge["motor_mass"] = _F(1.0) / (a["inverse_inertia"] + b["inverse_inertia"])


def mixed(one: float, other: float) -> float:
    """Return the friction of two surfaces."""
    return float(np.sqrt(_F(one) * _F(other)))
