"""Constraints: revolute joints with motor and limit, and contacts with friction, solved by impulses.

`Joint` is b2RevoluteJoint of Box2D 2.3. Contacts are solved as in b2ContactSolver: `VelocityRow` changes velocities,
and `push_out` changes positions. `world` calls them. `frames` explains vectors, frames and records.

In formulas, v and w are velocity and angular velocity, p is an impulse, and r = (rx, ry) is an arm, the vector from the
center of mass to the point at which an impulse acts. The turn cross(r, p) is the angular impulse. All masses and all
moments of inertia are inverse: `mass` and `inertia`, for joints ma, mb, ia and ib. At the end of a name, the letters a
and b stand for the two bodies of a joint.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evolve.environments.physics import frames
from evolve.environments.physics.contacts import touching_rows
from evolve.environments.physics.frames import Number, choose, cross, dot, left_of, placed, right_of, turned, within
from evolve.environments.physics.polygons import vectors
from evolve.shapes import Bool, Float32, Int64

_Vector3 = tuple[Number, Number, Number]

_F = np.float32
_ZERO, _HALF, _ONE = _F(0.0), _F(0.5), _F(1.0)
_MAX_CONDITION = _F(1000.0)  # limits the condition number of the matrix of two points (k_maxConditionNumber)
# Box2D also has a velocity bias for bounces. No body of the tasks has restitution, so the bias would be 0.
CONSTRAINT = np.dtype([
    ("two", np.bool_),                   # two points are solved at once
    ("friction", _F), ("normal", _F, 2),
    ("arm", _F, (2, 2)),                 # of each point, from the center of mass
    ("normal_mass", _F, 2), ("tangent_mass", _F, 2), ("normal_impulse", _F, 2), ("tangent_impulse", _F, 2),
    ("k", _F, 3), ("inverse", _F, 3),    # two points: 11, 12, 22 of a symmetric matrix, and of its inverse
])  # fmt: skip
"""A constraint on velocities."""


class Motion(NamedTuple):
    """The motion of B bodies in each of k worlds.

    c, v: [2, B, k], centers of mass and their velocities. a, w: [B, k], angles and angular velocities.
    """

    c: Float32
    v: Float32
    a: Float32
    w: Float32


class Joint:
    """One joint of the model, in k worlds. It keeps a point of body a and a point of body b together.

    Args:
        joints: Records of `frames.JOINT` [k].
        hinge: A record of `frames.HINGE`.
        hulls: Records of `frames.HULL`, the bodies.

    Attributes:
        impulse: [2, k], accumulated at the point.
        limit_impulse: [k], the accumulated angular impulse of the limit.
        motor_impulse: [k], the accumulated angular impulse of the motor.
        limit: [k], -1 at the lower limit, 1 at the upper limit, else 0.
    """

    def __init__(self, joints: Any, hinge: Any, hulls: Any) -> None:
        self.impulse = joints["impulse"].T.copy()
        self.limit_impulse, self.motor_impulse = joints["limit_impulse"].copy(), joints["motor_impulse"].copy()
        self.limit = joints["limit"].copy()
        self._speed, self._max_motor_impulse = joints["speed"].copy(), frames.TIME_STEP * joints["torque"]
        self._reference, self._lower, self._upper = (hinge[name] for name in ("reference", "lower", "upper"))
        self._motor_mass = np.full(len(joints), hinge["motor_mass"])
        self._both = [int(hinge["a"]), int(hinge["b"])]
        # Inverse masses of a and b, and their inverse moments of inertia. Arrays [k], because NumPy multiplies by them
        # faster than by scalars.
        hulls_ab = hulls[self._both]
        self._masses = [np.full(len(joints), x) for x in (*hulls_ab["inverse_mass"], *hulls_ab["inverse_inertia"])]
        # [2, 2, 1]: x and y, of bodies a and b, for all worlds.
        self._anchors = np.array((hinge["anchor_a"], hinge["anchor_b"])).T[..., None]

    def start(self, bodies: Motion) -> None:
        """Prepare the step, and begin with the impulses of the previous step: change the velocities of the bodies."""
        a, b = self._both
        ma, mb, ia, ib = self._masses
        self._arms = turned(frames.rotation_of(bodies.a[self._both]), self._anchors)
        # At the end of an arm, a body that turns with w has the velocity w · left_of(arm).
        self._left_of_arms = left_of(self._arms)
        (rax, rbx), (ray, rby) = self._arms
        # The symmetric 3 × 3 matrix K maps impulses at the point (x, y) and at the limit to the change of the relative
        # velocity (x, y, angular). Its upper left 2 × 2 block is for the point alone. Cramer's rule inverts both.
        k11, k12 = ma + mb + ray * ray * ia + rby * rby * ib, -ray * rax * ia - rby * rbx * ib
        k22 = ma + mb + rax * rax * ia + rbx * rbx * ib
        k13, k23, k33 = -ray * ia - rby * ib, rax * ia + rbx * ib, ia + ib
        self._columns = (k11, k12, k13), (k12, k22, k23), (k13, k23, k33)
        self._cofactors = _cross(self._columns[1], self._columns[2])
        self._inverse_det3 = _inverse(_dot(self._columns[0], self._cofactors))
        self._inverse_det2 = _inverse(k11 * k22 - k12 * k12)
        self._swapped_diagonal, self._k12, self._k13_k23 = np.array((k22, k11)), k12, np.array((k13, k23))
        # Box2D has a third case, equal limits, but no hinge of the tasks has equal limits.
        angle = bodies.a[b] - bodies.a[a] - self._reference
        limit = np.where(angle <= self._lower, -1, np.where(angle >= self._upper, 1, 0))
        # The impulse of the previous step only helps if the joint is still at the same limit.
        self.limit_impulse = np.where((limit == self.limit) & (limit != 0), self.limit_impulse, _ZERO)
        self.limit, self._limited = limit, bool((limit != 0).any())
        # Warm start: body b gets the impulses, and body a the opposite impulses.
        turn_a, turn_b = cross(self._arms, self.impulse[:, None]) + self.motor_impulse + self.limit_impulse
        bodies.v[:, a] -= ma * self.impulse
        bodies.v[:, b] += mb * self.impulse
        bodies.w[a] -= ia * turn_a
        bodies.w[b] += ib * turn_b

    def solve(self, bodies: Motion) -> None:
        """Make one iteration, the motor first, then limit and point: change impulses, and velocities of the bodies."""
        a, b = self._both
        ma, mb, ia, ib = self._masses
        va, vb, wa, wb = bodies.v[:, a], bodies.v[:, b], bodies.w[a], bodies.w[b]
        # The motor. Its strength limits its accumulated impulse, not the change in one iteration.
        old, limit = self.motor_impulse, self._max_motor_impulse
        self.motor_impulse = within(old - self._motor_mass * (wb - wa - self._speed), -limit, limit)
        change = self.motor_impulse - old
        wa, wb = wa - ia * change, wb + ib * change
        # Limit and point, against the motion of body b relative to body a at the point.
        left_a, left_b = self._left_of_arms[:, 0], self._left_of_arms[:, 1]
        p, limit_turn = self._point_and_limit(((vb + wb * left_b) - va) - wa * left_a, wb - wa)
        self.impulse += p
        turn_a, turn_b = cross(self._arms, p[:, None]) + limit_turn
        bodies.v[:, a], bodies.v[:, b] = va - ma * p, vb + mb * p
        bodies.w[a], bodies.w[b] = wa - ia * turn_a, wb + ib * turn_b

    def _point_and_limit(self, v: Float32, w: Float32) -> tuple[Float32, Number]:
        """Return the impulses at the point [2, k] and at the limit [k] that stop a relative motion v [2, k], w [k].

        Update the accumulated impulse of the limit.
        """
        if not self._limited:
            return self._point(-v), _ZERO
        # Solve for point and limit at once, by Cramer's rule. If the joint is at no limit in a world, `holds` is False
        # there and `before` is 0, so the point is solved alone.
        before, motion = self.limit_impulse, (v[0], v[1], w)
        ex, ey, ez = self._columns
        x = -(self._inverse_det3 * _dot(motion, self._cofactors))
        y = -(self._inverse_det3 * _dot(ex, _cross(motion, ez)))
        z = -(self._inverse_det3 * _dot(ex, _cross(ey, motion)))
        after = before + z
        holds = ((self.limit < 0) & (after >= 0)) | ((self.limit > 0) & (after <= 0))
        # A limit only pushes. If it would pull (not `holds`), take its impulse back and solve for the point alone.
        point = self._point(-v + before * self._k13_k23)
        self.limit_impulse = np.where(holds, after, _ZERO)
        return np.where(holds, np.array((x, y)), point), np.where(holds, z, -before)

    def _point(self, change: Float32) -> Float32:
        """Return the impulses [2, k] at the point that change the relative velocity there by `change` [2, k]."""
        # Cramer's rule. `[::-1]` swaps x and y.
        return self._inverse_det2 * (self._swapped_diagonal * change - self._k12 * change[::-1])

    def pull(self, bodies: Motion, moving: Bool) -> Bool:
        """Correct angles and positions of the bodies once, in the worlds that are `moving` [k].

        Returns:
            Whether the errors were small enough before the correction, [k].
        """
        a, b = self._both
        ma, mb, ia, ib = self._masses
        aa, ab = bodies.a[a], bodies.a[b]
        angle = ab - aa - self._reference
        # First correct an angle beyond a limit, except for a small error. `self.limit` is the limit at the beginning of
        # the step, as in Box2D.
        under, over = angle - self._lower, angle - self._upper
        lower_correction = within(under + frames.ANGULAR_SLOP, -frames.MAX_ANGULAR_CORRECTION, _ZERO)
        upper_correction = within(over - frames.ANGULAR_SLOP, _ZERO, frames.MAX_ANGULAR_CORRECTION)
        at_limit, at_lower = self.limit != 0, self.limit < 0
        correction = np.where(at_limit, np.where(at_lower, lower_correction, upper_correction), _ZERO)
        impulse = -self._motor_mass * correction
        angular_error = np.where(at_limit, np.where(at_lower, -under, over), _ZERO)
        aa, ab = aa - ia * impulse, ab + ib * impulse
        # Then bring the points of both bodies together, with the corrected angles.
        arms = turned(frames.rotation_of(np.array((aa, ab))), self._anchors)
        (rax, rbx), (ray, rby) = arms
        offset = ((bodies.c[:, b] + arms[:, 1]) - bodies.c[:, a]) - arms[:, 0]
        k11, k12 = ma + mb + ia * ray * ray + ib * rby * rby, -ia * rax * ray - ib * rbx * rby
        k22 = ma + mb + ia * rax * rax + ib * rbx * rbx
        inverse = _inverse(k11 * k22 - k12 * k12)
        p = -(inverse * (np.array((k22, k11)) * offset - k12 * offset[::-1]))
        turn_a, turn_b = cross(arms, p[:, None])
        bodies.c[:, a] = np.where(moving, bodies.c[:, a] - ma * p, bodies.c[:, a])
        bodies.c[:, b] = np.where(moving, bodies.c[:, b] + mb * p, bodies.c[:, b])
        bodies.a[a] = np.where(moving, aa - ia * turn_a, bodies.a[a])
        bodies.a[b] = np.where(moving, ab + ib * turn_b, bodies.a[b])
        return (frames.length(offset) <= frames.SLOP) & (angular_error <= frames.ANGULAR_SLOP)


def _dot(a: _Vector3, b: _Vector3) -> Number:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross(a: _Vector3, b: _Vector3) -> _Vector3:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def _inverse(x: Float32) -> Float32:
    """Return 1 / x, but 0 for 0."""
    return np.where(x != 0, _ONE / x, x)


def velocity_constraints(contacts: Any, hulls: Any, c: Float32, a: Float32, friction: Float32, warm: bool) -> Any:
    """Return the constraints of N contacts that touch, records of CONSTRAINT [N].

    Args:
        contacts: Records of `frames.CONTACT` [N].
        hulls: Records of `frames.HULL` [N], the bodies of the contacts.
        c: [2, N], the centers of mass of the bodies.
        a: [N], the angles of the bodies.
        friction: [N], the coefficients of friction.
        warm: Whether to begin with the impulses of the previous step; otherwise impulses begin at 0.
    """
    mass, inertia = hulls["inverse_mass"], hulls["inverse_inertia"]
    positions = PositionRow(contacts)
    frame = frames.frame_around(c, a, vectors(hulls["center"]))
    face, origin = positions.face(frame)
    constraints = np.zeros(len(contacts), CONSTRAINT)
    # The normal points from the ground to the body, whichever has the reference face.
    normal = np.where(positions.by_body, -face, face)
    tangent = right_of(normal)
    turns = []  # for each point cross(arm, normal) [N]
    for i, has_point in enumerate((positions.count > 0, positions.count > 1)):
        at = positions.point(i, frame)
        # The contact lies halfway between the skins of the two polygons (b2WorldManifold).
        on_plane, on_point = at + (frames.SKIN - dot(at - origin, face)) * face, at - frames.SKIN * face
        arm = _HALF * (on_plane + on_point) - c
        turn, tangent_turn = cross(arm, normal), cross(arm, tangent)
        turns.append(turn)
        constraints["arm"][has_point, i] = arm.T[has_point]
        constraints["normal_mass"][has_point, i] = _inverse(mass + inertia * turn * turn)[has_point]
        constraints["tangent_mass"][has_point, i] = _inverse(mass + inertia * tangent_turn * tangent_turn)[has_point]
        if warm:
            for name in ("normal_impulse", "tangent_impulse"):
                constraints[name][has_point, i] = contacts["points"][name][has_point, i]
    turn_1, turn_2 = turns
    k11, k22 = mass + inertia * turn_1 * turn_1, mass + inertia * turn_2 * turn_2
    k12 = mass + inertia * turn_1 * turn_2
    determinant = k11 * k22 - k12 * k12
    inverse = _inverse(determinant)
    # The matrix of two points that nearly coincide cannot be inverted well. Then only the first point counts.
    two = (positions.count > 1) & (k11 * k11 < _MAX_CONDITION * determinant)
    for name in ("arm", "normal_mass", "tangent_mass", "normal_impulse", "tangent_impulse"):
        constraints[name][~two, 1] = 0
    constraints["two"], constraints["friction"], constraints["normal"] = two, friction, normal.T
    constraints["k"][two] = np.array((k11, k12, k22)).T[two]
    constraints["inverse"][two] = np.array((inverse * k22, -inverse * k12, inverse * k11)).T[two]
    return constraints


class PositionRow:
    """Contacts as constraints on positions: a single contact, or a row of `TouchingContacts`.

    Args:
        contacts: One record of `frames.CONTACT`, or an array of records, of any shape.

    Attributes:
        count: The number of points of each contact.
        by_body: Whether the reference face is a face of the body.
    """

    def __init__(self, contacts: Any) -> None:
        self.count = contacts["count"]
        self.by_body = contacts["by_body"] != 0
        self._normal, self._local = (vectors(contacts[name]).copy() for name in ("normal", "local"))
        self._points = [vectors(contacts["points"]["local"][..., i, :]).copy() for i in range(2)]

    def face(self, frame: frames.Frame) -> tuple[Float32, Float32]:
        """Return the normal of the reference face, and a point on the face, in world coordinates.

        frame: The frames of the bodies.
        """
        normal = choose(self.by_body, turned(frame.q, self._normal), self._normal)
        return normal, choose(self.by_body, placed(frame, self._local), self._local)

    def point(self, number: int, frame: frames.Frame) -> Float32:
        """Return point number 0 or 1 of each contact in world coordinates. frame: The frames of the bodies."""
        local = self._points[number]
        return choose(self.by_body, local, placed(frame, local))


class VelocityRow:
    """Contacts as constraints on velocities: a single contact, or a row of `TouchingContacts`.

    The methods take the inverse masses and the inverse moments of inertia of the bodies. `solve` changes the impulses.

    Args:
        constraints: One record of CONSTRAINT, or an array of records, of any shape.

    Attributes:
        normal_impulse: The normal impulses of both points.
        tangent_impulse: The tangential impulses of both points.
    """

    def __init__(self, constraints: Any) -> None:
        self.two = constraints["two"]
        self.any_two = bool(np.any(self.two))
        self.friction = _number(constraints["friction"])
        self.nx, self.ny = self._numbers(constraints["normal"])
        self.arms = [self._numbers(constraints["arm"][..., i, :]) for i in range(2)]
        self.normal_mass, self.tangent_mass, self.normal_impulse, self.tangent_impulse, self.k, self.inverse = (
            self._numbers(constraints[name])
            for name in ("normal_mass", "tangent_mass", "normal_impulse", "tangent_impulse", "k", "inverse")
        )

    @staticmethod
    def _numbers(field: Any) -> list[Number]:
        return [_number(field[..., i]) for i in range(field.shape[-1])]

    def start(self, mass: Number, inertia: Number, motion: Sequence[Number]) -> list[Number]:
        """Return the motion vx, vy, w of the bodies after the impulses of the previous step."""
        vx, vy, w = motion
        # n and t are the impulses along the normal and along the tangent.
        for (rx, ry), n, t in zip(self.arms, self.normal_impulse, self.tangent_impulse, strict=True):
            px, py = n * self.nx + t * self.ny, n * self.ny + t * -self.nx
            w = w + inertia * (rx * py - ry * px)
            vx, vy = vx + mass * px, vy + mass * py
        return [vx, vy, w]

    def solve(self, mass: Number, inertia: Number, motion: Sequence[Number]) -> list[Number]:
        """Return the motion vx, vy, w of the bodies after one iteration."""
        vx, vy, w = motion
        nx, ny, tx, ty = self.nx, self.ny, self.ny, -self.nx
        # Friction first, limited by the normal impulses of the previous iteration. If a contact has only one point, its
        # second point has zeros as masses, so its impulses stay 0.
        for i in range(2 if self.any_two else 1):
            rx, ry = self.arms[i]
            old, limit = self.tangent_impulse[i], self.friction * self.normal_impulse[i]
            tangent_velocity = (vx - w * ry) * tx + (vy + w * rx) * ty
            new = within(old - self.tangent_mass[i] * tangent_velocity, -limit, limit)
            px, py = (new - old) * tx, (new - old) * ty
            self.tangent_impulse[i] = new
            vx, vy, w = vx + mass * px, vy + mass * py, w + inertia * (rx * py - ry * px)
        # Then the normal impulses, of the first point alone or of two points at once: n1 and n2 replace a1 and a2. The
        # arms of the points are r and s, and the changes of their impulses p and q.
        (rx, ry), (sx, sy) = self.arms
        a1, a2 = self.normal_impulse
        v1 = (vx - w * ry) * nx + (vy + w * rx) * ny
        n1 = frames.greater(a1 - self.normal_mass[0] * v1, _ZERO)
        if not self.any_two:
            self.normal_impulse[0] = n1
            px, py = (n1 - a1) * nx, (n1 - a1) * ny
            return [vx + mass * px, vy + mass * py, w + inertia * (rx * py - ry * px)]
        v2 = (vx - w * sy) * nx + (vy + w * sx) * ny
        two_1, two_2 = self._two_points(v1, v2)
        n1, n2 = choose(self.two, two_1, n1), choose(self.two, two_2, a2)
        self.normal_impulse = [n1, n2]
        px, py, qx, qy = (n1 - a1) * nx, (n1 - a1) * ny, (n2 - a2) * nx, (n2 - a2) * ny
        turn = (rx * py - ry * px) + (sx * qy - sy * qx)
        return [vx + mass * (px + qx), vy + mass * (py + qy), w + inertia * turn]

    def _two_points(self, v1: Number, v2: Number) -> tuple[Number, Number]:
        """Return the normal impulses of two points with the normal velocities v1 and v2.

        They solve a linear complementarity problem: no impulse and no velocity is negative, and at each point the
        impulse or the velocity is 0. So there are four cases: impulses at both points, at the first, at the second, or
        at neither. The first case that is a solution counts. If no case is a solution, the impulses do not change.
        """
        a1, a2 = self.normal_impulse
        k11, k12, k22 = self.k
        i11, i12, i22 = self.inverse
        # b1, b2: the normal velocities without the present impulses. x1, x2, y1 and z2: the impulses of the first three
        # cases.
        b1, b2 = v1 - (k11 * a1 + k12 * a2), v2 - (k12 * a1 + k22 * a2)
        x1, x2 = -(i11 * b1 + i12 * b2), -(i12 * b1 + i22 * b2)
        y1, z2 = -self.normal_mass[0] * b1, -self.normal_mass[1] * b2
        both, neither = (x1 >= 0) & (x2 >= 0), (b1 >= 0) & (b2 >= 0)
        first, second = (y1 >= 0) & (k12 * y1 + b2 >= 0), (z2 >= 0) & (k12 * z2 + b1 >= 0)
        # A later choice replaces an earlier one, so the cases come in reverse order.
        n1, n2 = choose(neither, _ZERO, a1), choose(neither, _ZERO, a2)
        n1, n2 = choose(second, _ZERO, n1), choose(second, z2, n2)
        n1, n2 = choose(first, y1, n1), choose(first, _ZERO, n2)
        return choose(both, x1, n1), choose(both, x2, n2)


def _number(field: Any) -> Number:
    """Return a field of records as an array of its own, or as a scalar."""
    return field.copy()[()]


def push_out(
    row: PositionRow, point: int, c: Float32, a: Number, mass: Number, inertia: Number, center: Float32, share: Number
) -> tuple[Float32, Number, Number]:
    """Push bodies out of the ground at one point of each contact.

    Args:
        row: Contacts of different bodies.
        point: The number of the point.
        c: [2, ...], the centers of mass of the bodies.
        a: The angles of the bodies.
        mass: Their inverse masses.
        inertia: Their inverse moments of inertia.
        center: [2, ...], the centers of mass in the frames of the bodies.
        share: The share of the error that is corrected.

    Returns:
        The new centers of mass and angles, and the separations before the push, which are negative in an overlap.
    """
    frame = frames.frame_around(c, a, center)
    face, origin = row.face(frame)
    at = row.point(point, frame)
    # Two subtractions, as in Box2D: one subtraction of 2 · SKIN may round differently.
    separation = dot(at - origin, face) - frames.SKIN - frames.SKIN
    normal, arm = choose(row.by_body, -face, face), at - c
    error = within(share * (separation + frames.SLOP), -frames.MAX_CORRECTION, _ZERO)
    turn = cross(arm, normal)
    p = (-error / (mass + inertia * turn * turn)) * normal
    return c + mass * p, a + inertia * cross(arm, p), separation


class TouchingContacts:
    """The touching contacts of k worlds, in rows [B, k]: contact number r of each of B bodies is in row r.

    Attributes:
        velocity_rows: A `VelocityRow` for each row.
        position_rows: A `PositionRow` for each row.
    """

    def __init__(self, states: Any, model: Any) -> None:
        self._states = states
        worlds, places, rows = touching_rows(states)
        contacts = states["contact"][worlds, places]
        bodies = contacts["body"]
        hulls, records = model["hull"][bodies], states["body"][worlds, bodies]
        friction = frictions(states, model, worlds, contacts)
        touching = velocity_constraints(contacts, hulls, vectors(records["c"]), records["a"], friction, warm=True)
        shape = max(rows, default=-1) + 1, int(model["num_bodies"]), len(states)
        # A body without contact number r has zeros in row r: no points, and masses of 0, which change no velocity.
        constraints, positions = np.zeros(shape, CONSTRAINT), np.zeros(shape, frames.CONTACT)
        constraints[rows, bodies, worlds], positions[rows, bodies, worlds] = touching, contacts
        self._indices, self._two = (rows, bodies, worlds, places), touching["two"]
        self.velocity_rows = [VelocityRow(row) for row in constraints]
        self.position_rows = [PositionRow(row) for row in positions]

    def keep_impulses(self) -> None:
        """Store the impulses in the contacts of the worlds; the next step begins with them."""
        for name in ("normal_impulse", "tangent_impulse"):
            solved = np.array([getattr(row, name) for row in self.velocity_rows])
            # All contacts have a first point, and some also a second one.
            for point, has_point in ((0, np.ones_like(self._two)), (1, self._two)):
                rows, bodies, worlds, places = (index[has_point] for index in self._indices)
                # Without any contact, `solved` lacks the axes that are indexed here.
                if len(rows):
                    self._states["contact"]["points"][name][worlds, places, point] = solved[rows, point, bodies, worlds]


def frictions(states: Any, model: Any, worlds: Int64, contacts: Any) -> Float32:
    """Return the coefficients of friction [N] of contacts [N].

    A body has two coefficients: number 1 is for the first `model["base"]` edges of the ground, number 0 for the rest.
    """
    edge = contacts["piece"] - states["num_blocks"][worlds]
    of_base = (edge >= 0) & (edge < model["base"])
    return states["body"]["friction"][worlds, contacts["body"], of_base.astype(np.intp)]
