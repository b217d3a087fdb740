"""The constants of Box2D, the records that make up a world, and the arithmetic of vectors, rotations and frames.

The constants have the values of b2Settings.h of Box2D 2.3, in meters, seconds and radians. Kernels (kernels/bodies.h)
have the same constants, records and functions. Vectors are arrays [2, ...], numbers are scalars or arrays [...].

Fields have the names of Box2D: c is a center of mass, v its velocity, a an angle, w the angular velocity, p the origin
of a frame, and q a rotation.
"""

from typing import Any, NamedTuple

import numpy as np

from evolve.numerics.portable import ROUND
from evolve.shapes import Float32

_F = np.float32

SLOP = _F(0.005)
"""The depth to which bodies may overlap (b2_linearSlop)."""
SKIN = _F(2.0) * SLOP
"""The thickness of the skin around every polygon and edge (b2_polygonRadius)."""
PI = _F(3.14159265359)
ANGULAR_SLOP = _F(2.0) / _F(180.0) * PI
"""The angle by which a joint may exceed its limits (b2_angularSlop)."""
MAX_CORRECTION = _F(0.2)
"""The largest correction of a position in one iteration of the solver."""
MAX_ANGULAR_CORRECTION = _F(8.0) / _F(180.0) * PI
"""The largest correction of an angle in one iteration of the solver."""
MAX_TURN = _F(0.5) * PI
"""The largest rotation of a body in one step."""
MARGIN = _F(0.1)
"""The distance between a body and the sides of its box in the broad phase (b2_aabbExtension)."""
SLEEP_SPEED, SLEEP_TURN_RATE = _F(0.01), ANGULAR_SLOP
"""A body is at rest if its speed and its rate of rotation do not exceed these."""
SECONDS_TO_SLEEP = _F(0.5)
# The arguments with which Gymnasium's walker and lander call b2World::Step.
VELOCITY_ITERATIONS = 180
POSITION_ITERATIONS = 60
TIME_STEP = _F(1.0 / 50)
LARGEST = np.finfo(np.float32).max
"""FLT_MAX."""
SMALLEST = np.finfo(np.float32).eps
"""FLT_EPSILON. `unit` does not normalize shorter vectors."""

# Continuous collision: two shapes touch if their distance is within TOLERANCE of TARGET.
TARGET = max(SLOP, _F(2.0) * SKIN - _F(3.0) * SLOP)
TOLERANCE = _F(0.25) * SLOP

MAX_BODIES = 5
MAX_JOINTS = 4
MAX_CORNERS = 6  # of a body
MAX_CONTACTS = 64
"""A contact is a pair of a body and a piece of ground with overlapping boxes. Tasks need far fewer contacts."""
MAX_TOUCHING = 8
"""The largest number of contacts of one body that the solver uses. Older contacts are left out."""
MAX_BLOCKS = 40
"""Rectangles on the ground: the obstacles of BipedalWalkerHardcore."""
MAX_HEIGHTS = 200
"""Vertices of the ground."""
MAX_PARAMETERS = 10
"""Numbers of a task that may differ between its episodes."""

_I = np.int32

GENERATOR = np.dtype(
    [("high", np.uint64), ("low", np.uint64), ("increment_high", np.uint64), ("increment_low", np.uint64),
     ("has_half", np.uint32), ("half", np.uint32)]
)  # fmt: skip
"""NumPy's PCG64, see `exact.task.Pcg64`."""

# `alpha0` is the time of `c0` and `a0`, as a share of the step. Only kernels use this field. In Python,
# `world._Impacts` has this time.
BODY = np.dtype([
    ("c", _F, 2), ("c0", _F, 2),         # center of mass: now, and at `alpha0`
    ("v", _F, 2), ("force", _F, 2),
    ("low", _F, 2), ("high", _F, 2),     # the box of the broad phase, larger than the body
    ("p", _F, 2), ("sine", _F), ("cosine", _F),  # the frame: position of the origin, rotation
    ("a", _F), ("a0", _F), ("alpha0", _F),       # angle: now, and at `alpha0`
    ("w", _F), ("torque", _F),
    ("rested", _F),                      # seconds at rest
    ("friction", _F, 2),                 # number 1 on the first MODEL.base edges, number 0 on all other ground
    ("awake", _I), ("moved", _I), ("grounded", _I),
])  # fmt: skip
"""The state of a body.

`moved`: 1 if the body has a new box, so that the broad phase has to look for new contacts. `grounded`: 1 if the last
event of the body's contacts was a beginning; 0 if it was an end, or if there was none. Gymnasium's listeners set it so.
"""

JOINT = np.dtype([
    ("impulse", _F, 2), ("limit_impulse", _F), ("motor_impulse", _F), ("speed", _F), ("torque", _F),
    ("limit", _I),                       # -1 at the lower limit, 1 at the upper limit, else 0
])  # fmt: skip
"""The state of a joint: the impulses of the last step, and the speed and the largest torque of the motor."""

# A point of contact (b2ManifoldPoint). local: its position in the frame of the other polygon, not the one with the
# reference face. id: the two features that meet at the point, see `contacts`.
POINT = np.dtype([("local", _F, 2), ("normal_impulse", _F), ("tangent_impulse", _F), ("id", np.uint32)])

CONTACT = np.dtype([
    ("piece", _I), ("body", _I), ("touching", _I), ("enabled", _I),
    # Continuous collision. impact: the time of impact, a share of the step; 1 if there is no impact. impacts: the
    # number of impacts in this step. Only kernels use these three fields. In Python, `world._Impacts` has their values.
    ("impact_known", _I), ("impacts", _I), ("impact", _F),
    # The manifold, see `contacts`. by_body: 1 if the reference face is the body's, 0 if it is the ground's. count: the
    # number of points. normal, local: the normal of the reference face and a point on it, in the frame of its polygon.
    ("by_body", _I), ("count", _I), ("normal", _F, 2), ("local", _F, 2), ("points", POINT, 2),
])  # fmt: skip
"""A contact of a body and a piece of ground.

`touching`: 1 if the manifold has a point. `enabled`: 0 if continuous collision ignores the contact until its next
update.
"""

# A rectangle on the ground: its corners, the normals of its sides, and its centre, in world coordinates.
BLOCK = np.dtype([("corner", _F, (4, 2)), ("normal", _F, (4, 2)), ("centroid", _F, 2)])

# `align` gives a record the layout of the structure in C. The other records need no padding in C.
WORLD = np.dtype(
    [
        ("generator", GENERATOR),
        ("shaping", np.float64),
        ("parameter", np.float64, MAX_PARAMETERS),
        ("fresh", _I), ("crashed", _I), ("num_contacts", _I), ("num_blocks", _I), ("wind", _I), ("turbulence", _I),
        ("gravity", _F),
        ("body", BODY, MAX_BODIES),
        ("joint", JOINT, MAX_JOINTS),
        ("height", _F, MAX_HEIGHTS),
        ("contact", CONTACT, MAX_CONTACTS),
        ("block", BLOCK, MAX_BLOCKS),
    ],
    align=True,
)  # fmt: skip
"""The state of one episode. `generator`, `shaping`, `parameter`, `wind` and `turbulence` belong to the task.

`fresh`: 1 before the first step. `crashed`: 1 once body 0 has touched the ground. `contact`: oldest first, whereas
Box2D's lists begin with the newest. Pieces of ground are numbered in the order in which Gymnasium creates them: blocks,
then the separate edges (MODEL.base), then the chain of edges from left to right.
"""

HULL = np.dtype([
    ("count", _I), ("inverse_mass", _F), ("inverse_inertia", _F),
    ("friction", _F, 2),                 # as in BODY, at the beginning of an episode
    ("reach", _F),                       # an upper bound of the corners' distances from the center of mass
    ("center", _F, 2), ("centroid", _F, 2), ("corner", _F, (MAX_CORNERS, 2)), ("normal", _F, (MAX_CORNERS, 2)),
    ("p", _F, 2), ("a", _F),             # position and angle at the beginning of an episode
])  # fmt: skip
"""The convex polygon of a body, counterclockwise, in the frame of the body. Its corners are padded, see `polygons`."""

HINGE = np.dtype([
    ("a", _I), ("b", _I), ("anchor_a", _F, 2), ("anchor_b", _F, 2),  # two bodies; anchors from the centers of mass
    ("reference", _F), ("lower", _F), ("upper", _F), ("motor_mass", _F), ("speed", _F), ("torque", _F),
])  # fmt: skip
"""A revolute joint (b2RevoluteJoint). reference: the angle between the bodies at which the angle of the joint is 0.

motor_mass: the inverse of the sum of the inverse moments of inertia. speed, torque: the initial speed of the motor and
its largest torque.
"""

MODEL = np.dtype(
    [
        ("option", np.float64, 4),
        ("num_bodies", _I), ("num_joints", _I), ("num_edges", _I),
        # The first `base` edges are separate, with two vertices each. All other edges form a chain, which begins with
        # vertex 2 · base.
        ("base", _I),
        ("body_order", _I, MAX_BODIES), ("joint_order", _I, MAX_JOINTS),  # the orders of Box2D's island solver
        ("spacing", _F),                 # the distance of neighbouring vertices of the ground; 0 if it is not constant
        ("gravity", _F),                 # at the beginning of an episode
        ("flag", _I),
        ("hull", HULL, MAX_BODIES),
        ("hinge", HINGE, MAX_JOINTS),
        ("x", _F, MAX_HEIGHTS),          # the vertices of the ground; WORLD has their heights
    ],
    align=True,
)  # fmt: skip
"""The constants of a task. `option` and `flag` have a meaning only in the task; the physics does not use them."""

Number = Any
"""A float32 scalar, or an array."""

# The coefficients of sine and cosine in the GNU C library's sinf and cosf, lowest power first.
_SINE = [*map(float.fromhex, ("-0x1.555545995a603p-3", "0x1.1107605230bc4p-7", "-0x1.994eb3774cf24p-13"))]
_COSINE = [
    *map(float.fromhex, ("-0x1.ffffffd0c621cp-2", "0x1.55553e1068f19p-5")),
    *map(float.fromhex, ("-0x1.6c087e89a359dp-10", "0x1.99343027bf8c3p-16")),
]
_QUARTER_TURN = float.fromhex("0x1.921fb54442d18p0")
_SCALED_QUARTERS_PER_RADIAN = float.fromhex("0x1.45f306dc9c883p+23")
"""Quarter turns per radian, times 2^24. An angle times this number is in units of 2^-24 of a quarter turn."""


class Rotation(NamedTuple):
    """Sine and cosine of an angle."""

    s: Number
    c: Number


class Frame(NamedTuple):
    """Frames: the position p of the origin, [2, ...], and the rotation q."""

    p: Float32
    q: Rotation

    def per_corner(self) -> "Frame":
        """Return the frames with a new axis before the batch, so that they broadcast over corners [2, C, ...]."""
        return Frame(self.p[:, None], self.q)

    def select(self, which: Any) -> "Frame":
        """Return the frames at an index or mask `which` of the last axis."""
        return Frame(self.p[..., which], Rotation(self.q.s[..., which], self.q.c[..., which]))


def choose(condition: Any, one: Any, other: Any) -> Any:
    """Return np.where(condition, one, other). It is faster than np.where if the condition is a scalar."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, one, other)
    return one if condition else other


def lesser(a: Number, b: Number) -> Number:
    """Return the lesser number, or b if they are equal. Not np.minimum: of 0.0 and -0.0, processors return either."""
    return choose(a < b, a, b)


def greater(a: Number, b: Number) -> Number:
    """Return the greater number, or b if they are equal."""
    return choose(a > b, a, b)


def within(a: Number, low: Number, high: Number) -> Number:
    """Return a number clipped to bounds."""
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
    """Return a vector scaled to length 1; a vector shorter than SMALLEST is returned unchanged."""
    size = length(a)
    # Multiply by the inverse, as in b2Vec2::Normalize: a division may round differently.
    return choose(size < SMALLEST, a, (np.float32(1.0) / size) * a)


def turned(q: Rotation, v: Float32) -> Float32:
    """Return a vector rotated by q (b2Mul)."""
    # A negation is exact, so c · x + s · (-y) has the bits of Box2D's c · x - s · y.
    return q.c * v + q.s * left_of(v)


def turned_back(q: Rotation, v: Float32) -> Float32:
    """Return a vector rotated by the inverse of q (b2MulT)."""
    return q.c * v - q.s * left_of(v)


def placed(f: Frame, v: Float32) -> Float32:
    """Return a point of a frame in world coordinates (b2Mul)."""
    return turned(f.q, v) + f.p


def placed_back(f: Frame, v: Float32) -> Float32:
    """Return a point of the world in the coordinates of a frame (b2MulT)."""
    return turned_back(f.q, v - f.p)


def frame_around(c: Float32, a: Number, center: Float32) -> Frame:
    """Return the frame of a body.

    Args:
        c: [2, ...], the center of mass in the world.
        a: The angle.
        center: [2, ...], the center of mass in the frame of the body.
    """
    q = rotation_of(a)
    return Frame(c - turned(q, center), q)


def rotation_of(a: Number) -> Rotation:
    """Return the sine and the cosine of an angle.

    Box2D calls sinf and cosf. For |a| < 187 the result has the bits of these functions in the GNU C library since
    version 2.28: they compute short polynomials in float64 and round once. For larger angles the last bit may differ.
    Beyond 1e9, which no body reaches, the result is the same on every machine, but it is no rotation.
    """
    x = np.float64(a)
    scaled = x * _SCALED_QUARTERS_PER_RADIAN
    # `units` below must fit in 32 bits, so whole turns are subtracted from 187 on. A number plus ROUND, minus ROUND, is
    # the number rounded to a whole one.
    turns = np.where(np.abs(x) < 187, 0.0, (scaled * 2.0**-26 + ROUND) - ROUND)
    units = scaled - turns * 2.0**26
    fits = np.where(np.abs(units) < 2e9, units, 0.0)  # 0 for a NaN, too
    n = (fits.astype(np.int32) + 0x800000) >> 24  # quarter turns, rounded: units are 2^-24 of a quarter turn
    r = x - (n + 4.0 * turns) * _QUARTER_TURN
    y = r * (1 - ((n + 1) & 2))  # -r in quarters 1 and 2, where `sine` below has to be -sin(r)
    z = r * r
    cube, square = y * z, z * z
    sine = (y + cube * _SINE[0]) + (cube * z) * (_SINE[1] + z * _SINE[2])
    cosine = ((1.0 + z * _COSINE[0]) + square * _COSINE[1]) + (square * z) * (_COSINE[2] + z * _COSINE[3])
    cosine = cosine * (1 - (n & 2))
    # In quarters 0 to 3, (sine, cosine) of the angle are (s, c), (c, -s), (-s, -c) and (-c, s), for s and c of r.
    swapped = (n & 1) == 1
    return Rotation(np.float32(choose(swapped, cosine, sine)), np.float32(choose(swapped, sine, cosine)))
