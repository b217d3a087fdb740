"""Keyed random streams: every random number is a function of (seed, purpose, generation, candidate, episode).

There is no generator state to carry, save or share: whoever needs randomness opens the stream of its key. Only
the raw 64-bit words of Philox are taken from NumPy, because their stability is guaranteed across versions
and CPUs, while the distributions of `numpy.random.Generator` may change and call libm.
"""

import math
from enum import IntEnum

import numpy as np

from evolve.shapes import Float64, Int64, UInt64

_PART_LIMIT = 2**32


class Purpose(IntEnum):
    """First part of a stream's key. Numbers are part of every published digest: add, never renumber."""

    BIRTH = 0
    EPISODE = 1
    HELD_OUT = 2
    PARENTS = 3
    SWAPS = 4
    TRACE_PRUNING = 5
    UNIFORM_PRUNING = 6
    WEIGHT_NOISE = 7
    REGROWTH = 8


def seed_sequence(
    seed: int, purpose: Purpose, generation: int = 0, candidate: int = 0, episode: int = 0
) -> np.random.SeedSequence:
    """Return the `SeedSequence` of a key. Raises ValueError for a part outside [0, 2**32)."""
    key = (int(purpose), generation, candidate, episode)
    if not all(0 <= part < _PART_LIMIT for part in key):
        raise ValueError(f"stream key: expected every part in [0, 2**32), got {key}")
    return np.random.SeedSequence(seed, spawn_key=key)


class Stream:
    """The random stream of one key, read from its beginning and owned by one user."""

    def __init__(self, seed: int, purpose: Purpose, generation: int = 0, candidate: int = 0, episode: int = 0) -> None:
        self._philox = np.random.Philox(seed_sequence(seed, purpose, generation, candidate, episode))

    def bits(self, n: int) -> UInt64:
        """Return `[n] uint64`: the next raw words of the Philox counter."""
        return self._philox.random_raw(n)

    def uniform(self, *shape: int) -> Float64:
        """Return `[*shape] float64`, uniform on the open interval (0, 1): one raw word each, 52 bits kept."""
        words = self.bits(math.prod(shape)) >> np.uint64(12)
        return ((words.astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)

    def below(self, bound: int, *shape: int) -> Int64:
        """Return `[*shape] int64`, uniform on {0, …, bound - 1} (bias under bound / 2**52)."""
        return np.floor(self.uniform(*shape) * bound).astype(np.int64)


def environment_seed(seed: int, purpose: Purpose, generation: int, candidate: int, episode: int) -> int:
    """Return the 31-bit seed of one episode's environment (EnvPool's seeds are signed 32-bit)."""
    word = seed_sequence(seed, purpose, generation, candidate, episode).generate_state(1, np.uint32)[0]
    return int(word) >> 1
