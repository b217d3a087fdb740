"""Vectors, rotations and frames in the plane, in float32 and in Box2D's order of operations.

A vector is an array [2, ...] whose other axes are a batch, so one formula serves a single vector and many. A number is
a float32 scalar or an array of the shape of the batch.

The formulas are those of Box2D 2.3 (b2Math; Erin Catto, zlib licence).
"""

from typing import Any, NamedTuple

import numpy as np

from evolve.environments.physics.constants import SMALLEST
from evolve.shapes import Float32

Number = Any
"""A float32 scalar, or an array."""

# The polynomials of sine and cosine, lowest power first.
_SINE = [*map(float.fromhex, ("-0x1.555545995a603p-3", "0x1.1107605230bc4p-7", "-0x1.994eb3774cf24p-13"))]
_COSINE = [
    *map(float.fromhex, ("-0x1.ffffffd0c621cp-2", "0x1.55553e1068f19p-5")),
    *map(float.fromhex, ("-0x1.6c087e89a359dp-10", "0x1.99343027bf8c3p-16")),
]
_QUARTER = float.fromhex("0x1.921fb54442d18p0")
_QUARTERS = float.fromhex("0x1.45f306dc9c883p+23")
"""2^24 / a quarter turn."""


class Rotation(NamedTuple):
    """Sine and cosine of an angle."""

    s: Number
    c: Number


class Frame(NamedTuple):
    """Position of the origin [2, ...], and rotation."""

    p: Float32
    q: Rotation

    def spread(self) -> "Frame":
        """Return the frames with an axis for corners in front of the batch."""
        return Frame(self.p[:, None], self.q)

    def those(self, which: Any) -> "Frame":
        """Return some of the frames."""
        return Frame(self.p[..., which], Rotation(self.q.s[..., which], self.q.c[..., which]))


def choose(condition: Any, one: Any, other: Any) -> Any:
    """Return np.where(condition, one, other); this is faster for scalars."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, one, other)
    return one if condition else other


def lesser(a: Number, b: Number) -> Number:
    """Return the lesser number, b of equals. np.minimum leaves the sign of zero to the processor."""
    return choose(a < b, a, b)


def greater(a: Number, b: Number) -> Number:
    """Return the greater number, b of equals."""
    return choose(a > b, a, b)


def within(a: Number, low: Number, high: Number) -> Number:
    """Return a number within bounds."""
    return greater(low, lesser(a, high))


def dot(a: Float32, b: Float32) -> Number:
    """Return the scalar product of two vectors."""
    return a[0] * b[0] + a[1] * b[1]


def cross(a: Float32, b: Float32) -> Number:
    """Return the cross product of two vectors."""
    return a[0] * b[1] - a[1] * b[0]


def left_of(a: Float32) -> Float32:
    """Return a vector, rotated by a quarter turn counterclockwise."""
    return np.array((-a[1], a[0]))


def right_of(a: Float32) -> Float32:
    """Return a vector, rotated by a quarter turn clockwise."""
    return np.array((a[1], -a[0]))


def length(a: Float32) -> Number:
    """Return the length of a vector."""
    return np.sqrt(dot(a, a))


def unit(a: Float32) -> Float32:
    """Return a vector of length 1; one that is too short stays as it is."""
    size = length(a)
    direction: Float32 = choose(size < SMALLEST, a, (np.float32(1.0) / size) * a)
    return direction


def turned(q: Rotation, v: Float32) -> Float32:
    """Return a vector, rotated."""
    rotated: Float32 = q.c * v + q.s * left_of(v)
    return rotated


def turned_back(q: Rotation, v: Float32) -> Float32:
    """Return a vector, rotated the other way."""
    rotated: Float32 = q.c * v - q.s * left_of(v)
    return rotated


def placed(f: Frame, v: Float32) -> Float32:
    """Return the position in the world of a point of a frame."""
    return turned(f.q, v) + f.p


def placed_back(f: Frame, v: Float32) -> Float32:
    """Return the position in a frame of a point of the world."""
    return turned_back(f.q, v - f.p)


def frame_around(c: Float32, a: Number, center: Float32) -> Frame:
    """Return the frame of a body.

    Args:
        c: [2, ...], the center of mass in the world.
        a: The angle.
        center: [2, ...], the center of mass in the frame.
    """
    q = rotation_of(a)
    return Frame(c - turned(q, center), q)


def rotation_of(a: Number) -> Rotation:
    """Return the sine and the cosine of an angle, for |a| < 187.

    Box2D calls sinf and cosf. The result has their bits in the GNU C library since version 2.28, which computes short
    polynomials in float64 and rounds once.
    """
    x = np.float64(a)
    bounded = np.minimum(np.maximum(x * _QUARTERS, -2e9), 2e9)  # an angle too large is wrong, but defined
    n = (bounded.astype(np.int32) + 0x800000) >> 24  # quarter turns, rounded
    r = x - n * _QUARTER
    y = r * (1 - ((n + 1) & 2))  # the sine changes its sign in quarters 1 and 2
    z = r * r
    cube, square = y * z, z * z
    sine = (y + cube * _SINE[0]) + (cube * z) * (_SINE[1] + z * _SINE[2])
    cosine = ((1.0 + z * _COSINE[0]) + square * _COSINE[1]) + (square * z) * (_COSINE[2] + z * _COSINE[3])
    cosine = cosine * (1 - (n & 2))
    swapped = (n & 1) == 1
    return Rotation(np.float32(choose(swapped, cosine, sine)), np.float32(choose(swapped, sine, cosine)))
