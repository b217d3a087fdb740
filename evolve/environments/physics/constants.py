"""Box2D's settings in float32: lengths in meters, angles in radians, times in seconds."""

import numpy as np

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
