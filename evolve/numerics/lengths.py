"""The Euclidean length of large vectors, in an order that depends on their size alone."""

import math

import numpy as np

from evolve.numerics.portable import ordered_sum
from evolve.shapes import Float64

_AT_ONCE = 2**16  # numbers, so that they stay in a cache


def squared_length(x: Float64) -> float:
    """Return the sum of the squares of [n]: ordered sums of 2¹⁶ at a time, and the ordered sum of these."""
    parts = (x[start : start + _AT_ONCE] for start in range(0, len(x), _AT_ONCE))
    return float(ordered_sum(np.array([ordered_sum(part * part) for part in parts])))


def length(x: Float64) -> float:
    """Return ‖x‖ of [n]."""
    return math.sqrt(squared_length(x))
