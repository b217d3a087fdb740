"""The records that describe a rigid-body world and its model, shared by the array reference and the kernels.

A world is one structured record per slot, a model one record per task; `kernels/bodies.h` declares the same structures
in C. All numbers have 4 bytes, except the generator and the shaping, which come first.
"""

import numpy as np

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

_F = np.float32
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
