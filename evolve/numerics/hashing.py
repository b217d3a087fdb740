"""Fingerprints: 64 bits in place of many, so that two runs can be compared without storing all that happened in them.

A row of k 32-bit words w is folded into Σ c_i w_i mod 2**64 with fixed odd c_i (multilinear hashing; Lemire and Kaser,
2014): integer sums have no order, and rows that differ in one word never fold alike. An episode's fingerprint
h ← mix((h ⊕ fold) · M) takes in one row per step; each update is a bijection of h, so a difference is never lost. The
step hashes of an episode are the top bytes of h after each step, which show in which step two episodes first differ.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from evolve.shapes import Bool, Float32, UInt64

MAX_HASHED_STEPS = 4096
"""Steps of an episode that have a step hash; the fingerprint takes in all of them."""
MULTIPLIER = 0x9E3779B97F4A7C15
QUIET_NAN = 0x7FC00000
"""What every NaN counts as: CPUs differ in its sign."""
_ABSENT = np.uint32(0xFFFFFFFF)  # the bits of no number
_AT_ONCE = 2**18  # numbers, so that little memory is taken


@cache
def coefficients(n: int) -> UInt64:
    """Return [n]: the odd c_i, by SplitMix64 (Steele, Lea and Flood, 2014)."""
    z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(MULTIPLIER)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    odd: UInt64 = (z ^ (z >> np.uint64(31))) | np.uint64(1)
    odd.flags.writeable = False
    return odd


def fold(words: NDArray[np.uint32]) -> UInt64:
    """Return [n]: the fold of each row of words [n, k]."""
    products: UInt64 = words * coefficients(words.shape[1])
    folded: UInt64 = products.sum(axis=1, dtype=np.uint64)
    return folded


def fold_present(values: Float32, present: Bool) -> UInt64:
    """Return [n]: the fold of each row of values [n, k]; those that are not present [n, k] count as the same word."""
    rows = max(1, _AT_ONCE // max(1, values.shape[1]))
    parts = [slice(n, n + rows) for n in range(0, len(values), rows)]
    words = (np.where(present[part], values[part].view(np.uint32), _ABSENT) for part in parts)
    return np.concatenate([fold(part) for part in words])


def update(states: UInt64, folds: UInt64) -> UInt64:
    """Return the fingerprints [n] after one more row each."""
    h = (states ^ folds) * np.uint64(MULTIPLIER)
    mixed: UInt64 = h ^ (h >> np.uint64(32))
    return mixed
