"""Joints: two bodies share a point; a motor turns them, and limits bound the angle between them.

This is b2RevoluteJoint of Box2D 2.3, by sequential impulses (Catto, 2006; zlib licence).
"""

from typing import Any, NamedTuple

import numpy as np

from evolve.environments.physics.constants import ANGULAR_SLOP, MOST_ANGULAR_CORRECTION, SLOP, TIME_STEP
from evolve.environments.physics.frames import Number, cross, left_of, length, rotation_of, turned, within
from evolve.shapes import Bool, Float32

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_Vector3 = tuple[Number, Number, Number]


class Motion(NamedTuple):
    """The motion of the bodies of k worlds.

    c, v: [2, B, k], centers of mass and their velocities. a, w: [B, k], angles and angular velocities.
    """

    c: Float32
    v: Float32
    a: Float32
    w: Float32


class Joint:
    """One joint of the model, in k worlds.

    Args:
        joints: Records of `layout.JOINT` [k].
        hinge: A record of `layout.HINGE`.
        hulls: Records of `layout.HULL`, the bodies.

    Attributes:
        impulse: [2, k], at the point.
        limit_impulse: [k].
        motor_impulse: [k].
        limit: [k], -1 at the lower limit, 1 at the upper limit, else 0.
    """

    def __init__(self, joints: Any, hinge: Any, hulls: Any) -> None:
        self.impulse = joints["impulse"].T.copy()
        self.limit_impulse, self.motor_impulse = joints["limit_impulse"].copy(), joints["motor_impulse"].copy()
        self.limit = joints["limit"].copy()
        self._speed, self._most = joints["speed"].copy(), TIME_STEP * joints["torque"]
        self._reference, self._lower, self._upper = (hinge[name] for name in ("reference", "lower", "upper"))
        self._motor_mass = np.full(len(joints), hinge["motor_mass"])
        self._both = a, b = [int(hinge["a"]), int(hinge["b"])]
        self._masses = [  # arrays, which NumPy multiplies by faster than by scalars
            np.full(len(joints), hulls[name][body]) for name in ("inverse_mass", "inverse_inertia") for body in (a, b)
        ]
        self._anchors = np.array((hinge["anchor_a"], hinge["anchor_b"])).T[..., None]

    def start(self, bodies: Motion) -> None:
        """Begin with the impulses of the step before: change the velocities of the bodies."""
        a, b = self._both
        ma, mb, ia, ib = self._masses
        self._arms = turned(rotation_of(bodies.a[self._both]), self._anchors)
        self._lefts = left_of(self._arms)
        (rax, rbx), (ray, rby) = self._arms
        k11, k12 = ma + mb + ray * ray * ia + rby * rby * ib, -ray * rax * ia - rby * rbx * ib
        k22 = ma + mb + rax * rax * ia + rbx * rbx * ib
        k13, k23, k33 = -ray * ia - rby * ib, rax * ia + rbx * ib, ia + ib
        self._columns = (k11, k12, k13), (k12, k22, k23), (k13, k23, k33)
        self._normal = _cross(self._columns[1], self._columns[2])
        self._inverse3 = _inverse(_dot(self._columns[0], self._normal))
        self._inverse2 = _inverse(k11 * k22 - k12 * k12)
        self._swapped, self._k12, self._k3 = np.array((k22, k11)), k12, np.array((k13, k23))
        angle = bodies.a[b] - bodies.a[a] - self._reference
        limit = np.where(angle <= self._lower, -1, np.where(angle >= self._upper, 1, 0))
        self.limit_impulse = np.where((limit == self.limit) & (limit != 0), self.limit_impulse, _ZERO)
        self.limit, self._limited = limit, bool((limit != 0).any())
        turn_a, turn_b = cross(self._arms, self.impulse[:, None]) + self.motor_impulse + self.limit_impulse
        bodies.v[:, a] -= ma * self.impulse
        bodies.v[:, b] += mb * self.impulse
        bodies.w[a] -= ia * turn_a
        bodies.w[b] += ib * turn_b

    def solve(self, bodies: Motion) -> None:
        """Make one iteration, the motor first, then limit and point: change the velocities of the bodies."""
        a, b = self._both
        ma, mb, ia, ib = self._masses
        va, vb, wa, wb = bodies.v[:, a], bodies.v[:, b], bodies.w[a], bodies.w[b]
        old = self.motor_impulse
        self.motor_impulse = within(old - self._motor_mass * (wb - wa - self._speed), -self._most, self._most)
        pushed = self.motor_impulse - old
        wa, wb = wa - ia * pushed, wb + ib * pushed
        left_a, left_b = self._lefts[:, 0], self._lefts[:, 1]
        p, z = self._point_and_limit(((vb + wb * left_b) - va) - wa * left_a, wb - wa)
        self.impulse += p
        turn_a, turn_b = cross(self._arms, p[:, None]) + z
        bodies.v[:, a], bodies.v[:, b] = va - ma * p, vb + mb * p
        bodies.w[a], bodies.w[b] = wa - ia * turn_a, wb + ib * turn_b

    def _point_and_limit(self, d: Float32, turn: Float32) -> tuple[Float32, Number]:
        """Return the impulses at the point [2, k] and at the limit [k] against a relative motion d [2, k], turn [k]."""
        if not self._limited:
            return self._point(-d), _ZERO
        # At a limit, solve for both at once.
        before, motion = self.limit_impulse, (d[0], d[1], turn)
        ex, ey, ez = self._columns
        x, y, z = (
            -(self._inverse3 * _dot(one, other))
            for one, other in ((motion, self._normal), (ex, _cross(motion, ez)), (ex, _cross(ey, motion)))
        )
        now = before + z
        holds = ((self.limit < 0) & (now >= 0)) | ((self.limit > 0) & (now <= 0))
        # A limit must not pull. If it would, take its impulse back and solve for the point alone.
        point = self._point(-d + before * self._k3)
        self.limit_impulse = np.where(holds, now, _ZERO)
        return np.where(holds, np.array((x, y)), point), np.where(holds, z, -before)

    def _point(self, wanted: Float32) -> Float32:
        p: Float32 = self._inverse2 * (self._swapped * wanted - self._k12 * wanted[::-1])
        return p

    def pull(self, bodies: Motion, moving: Bool) -> Bool:
        """Correct the positions of the bodies once, in the worlds that are `moving` [k].

        Returns:
            Whether the errors were small enough, [k].
        """
        a, b = self._both
        ma, mb, ia, ib = self._masses
        aa, ab = bodies.a[a], bodies.a[b]
        angle = ab - aa - self._reference
        under, over = angle - self._lower, angle - self._upper
        low = within(under + ANGULAR_SLOP, -MOST_ANGULAR_CORRECTION, _ZERO)
        high = within(over - ANGULAR_SLOP, _ZERO, MOST_ANGULAR_CORRECTION)
        limited, lower = self.limit != 0, self.limit < 0
        impulse = -self._motor_mass * np.where(limited, np.where(lower, low, high), _ZERO)
        angular_error = np.where(limited, np.where(lower, -under, over), _ZERO)
        aa, ab = aa - ia * impulse, ab + ib * impulse
        arms = turned(rotation_of(np.array((aa, ab))), self._anchors)
        (rax, rbx), (ray, rby) = arms
        apart = ((bodies.c[:, b] + arms[:, 1]) - bodies.c[:, a]) - arms[:, 0]
        k11, k12 = ma + mb + ia * ray * ray + ib * rby * rby, -ia * rax * ray - ib * rbx * rby
        k22 = ma + mb + ia * rax * rax + ib * rbx * rbx
        inverse = _inverse(k11 * k22 - k12 * k12)
        p = -(inverse * (np.array((k22, k11)) * apart - k12 * apart[::-1]))
        turn_a, turn_b = cross(arms, p[:, None])
        bodies.c[:, a] = np.where(moving, bodies.c[:, a] - ma * p, bodies.c[:, a])
        bodies.c[:, b] = np.where(moving, bodies.c[:, b] + mb * p, bodies.c[:, b])
        bodies.a[a] = np.where(moving, aa - ia * turn_a, bodies.a[a])
        bodies.a[b] = np.where(moving, ab + ib * turn_b, bodies.a[b])
        near: Bool = (length(apart) <= SLOP) & (angular_error <= ANGULAR_SLOP)
        return near


def _dot(a: _Vector3, b: _Vector3) -> Number:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross(a: _Vector3, b: _Vector3) -> _Vector3:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def _inverse(x: Float32) -> Float32:
    return np.where(x != 0, _ONE / x, x)
