"""Box2D's constants, the records of worlds, and frames: two-dimensional vectors, rotations and positions."""

from typing import Any, NamedTuple

import numpy as np

from evolve.shapes import Float32

_F = np.float32

SLOP = _F(0.005)
"""How far bodies may sink into each other."""
SKIN = _F(2.0) * SLOP
"""The thickness of the skin around every polygon and edge."""
PI = _F(3.14159265359)
ANGULAR_SLOP = _F(2.0) / _F(180.0) * PI
MOST_CORRECTION = _F(0.2)
"""The largest change of a position in one iteration."""
MOST_ANGULAR_CORRECTION = _F(8.0) / _F(180.0) * PI
MOST_TURN = _F(0.5) * PI
"""The largest rotation of a body in one step."""
MARGIN = _F(0.1)
"""How much the boxes of the broad phase are larger than what they contain."""
SLOWEST, SLOWEST_TURN = _F(0.01), ANGULAR_SLOP
"""A body that is slower than both rests."""
SECONDS_TO_SLEEP = _F(0.5)
VELOCITY_ITERATIONS = 180
POSITION_ITERATIONS = 60
TIME_STEP = _F(1.0 / 50)
LARGEST = np.finfo(np.float32).max
SMALLEST = np.finfo(np.float32).eps
"""FLT_EPSILON. A vector that is shorter has no direction."""

# Continuous collision: two shapes touch at the distance TARGET, give or take TOLERANCE.
TARGET = max(SLOP, _F(2.0) * SKIN - _F(3.0) * SLOP)
TOLERANCE = _F(0.25) * SLOP


MAX_BODIES = 5
MAX_JOINTS = 4
MAX_CORNERS = 6  # of a body
MAX_CONTACTS = 64
"""A contact is a pair of a body and a piece of ground whose boxes overlap. Worlds never come near this number."""
MAX_TOUCHING = 8
"""Contacts of one body that the solver sees; the newest count."""
MAX_BLOCKS = 40
"""Rectangles on the ground: the obstacles of BipedalWalkerHardcore."""
MAX_HEIGHTS = 200

_I = np.int32

GENERATOR = np.dtype(
    [("high", np.uint64), ("low", np.uint64), ("increment_high", np.uint64), ("increment_low", np.uint64),
     ("has_half", np.uint32), ("half", np.uint32)]
)  # fmt: skip
"""NumPy's PCG64, see `pcg64.py`."""

BODY = np.dtype([
    ("c", _F, 2), ("c0", _F, 2),         # center of mass: now, and at `alpha0`
    ("v", _F, 2), ("force", _F, 2),
    ("low", _F, 2), ("high", _F, 2),     # the box of the broad phase, larger than the body
    ("p", _F, 2), ("sine", _F), ("cosine", _F),  # the frame: position of the origin, rotation
    ("a", _F), ("a0", _F), ("alpha0", _F),       # angle: now, at `alpha0`; alpha0 is a share of the time step
    ("w", _F), ("torque", _F),
    ("rested", _F),                      # seconds without motion
    ("awake", _I), ("moved", _I), ("grounded", _I),
])  # fmt: skip
"""`moved`: the broad phase has to look for new contacts. `grounded`: the last begin or end of a contact was a begin."""

JOINT = np.dtype([
    ("impulse", _F, 2), ("limit_impulse", _F), ("motor_impulse", _F), ("speed", _F), ("torque", _F),
    ("limit", _I),                       # -1 at the lower limit, 1 at the upper limit, else 0
])  # fmt: skip

POINT = np.dtype([("local", _F, 2), ("normal_impulse", _F), ("tangent_impulse", _F), ("id", np.uint32)])

CONTACT = np.dtype([
    ("piece", _I), ("body", _I), ("touching", _I), ("enabled", _I),
    ("impact_known", _I), ("impacts", _I), ("impact", _F),   # continuous collision, within a step
    ("by_body", _I), ("count", _I),      # the manifold: whether the reference face is the body's; its points
    ("normal", _F, 2), ("local", _F, 2), ("points", POINT, 2),
])  # fmt: skip

BLOCK = np.dtype([("corner", _F, (4, 2)), ("normal", _F, (4, 2)), ("centroid", _F, 2)])

WORLD = np.dtype(
    [
        ("generator", GENERATOR),
        ("shaping", np.float64),
        ("running", _I), ("fresh", _I), ("crashed", _I), ("num_contacts", _I), ("num_blocks", _I),
        ("wind", _I), ("turbulence", _I), ("unused", _I),
        ("body", BODY, MAX_BODIES),
        ("joint", JOINT, MAX_JOINTS),
        ("height", _F, MAX_HEIGHTS),
        ("contact", CONTACT, MAX_CONTACTS),
        ("block", BLOCK, MAX_BLOCKS),
    ],
    align=True,
)  # fmt: skip
"""`fresh`: no step was made yet. `contact`: the oldest first, while Box2D's lists begin with the newest.

Pieces of ground are numbered as Gymnasium creates them: blocks, then edges from left to right.
"""

HULL = np.dtype([
    ("count", _I), ("inverse_mass", _F), ("inverse_inertia", _F),
    ("friction", _F, 2),                 # with the ground; with the first `base` pieces of it
    ("reach", _F),                       # of the corner that is farthest from the center of mass
    ("center", _F, 2), ("centroid", _F, 2), ("corner", _F, (MAX_CORNERS, 2)), ("normal", _F, (MAX_CORNERS, 2)),
    ("p", _F, 2), ("a", _F),             # where the body begins
])  # fmt: skip
"""The convex polygon of a body, counterclockwise, in the frame of the body."""

HINGE = np.dtype([
    ("a", _I), ("b", _I), ("anchor_a", _F, 2), ("anchor_b", _F, 2),  # from the centers of mass
    ("reference", _F), ("lower", _F), ("upper", _F), ("motor_mass", _F), ("speed", _F), ("torque", _F),
])  # fmt: skip

MODEL = np.dtype(
    [
        ("option", np.float64, 4),
        ("num_bodies", _I), ("num_joints", _I), ("num_edges", _I),
        ("base", _I),                    # edges apart from the chain of the others: edge `base` begins at vertex 2 base
        ("body_order", _I, MAX_BODIES), ("joint_order", _I, MAX_JOINTS),  # of Box2D's island
        ("spacing", _F),                 # between the vertices of the ground; 0: every edge may be anywhere
        ("gravity", _F), ("flag", _I),
        ("hull", HULL, MAX_BODIES),
        ("hinge", HINGE, MAX_JOINTS),
        ("x", _F, MAX_HEIGHTS),          # of the vertices of the ground
    ],
    align=True,
)  # fmt: skip
"""What does not change in an episode. `option` and `flag` are the task's own."""


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
