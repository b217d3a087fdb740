"""Keyed random streams: every random number is a function of (seed, purpose, generation, candidate, episode).

No stream depends on the order in which others are read, so any rank can draw the numbers of any candidate. NumPy's
`SeedSequence` and PCG64 are the definition; the words of many seed sequences are computed at once by array operations.
"""

import hashlib
import math
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.numerics import native
from evolve.numerics.native import ADDRESS, INT64
from evolve.numerics.portable import normal_quantile
from evolve.shapes import Bool, Float32, Float64, Int64, UInt64

POOL = 4
"""The words of a pool."""


_PART_LIMIT = 2**32


def seed_words(entropy: NDArray[np.uint32], keys: Int64, count: int) -> NDArray[np.uint32]:
    """Return [N, count]: the first words (at most 4) of the seed sequence of each key.

    Args:
        entropy: [1 or N, m], the seed of all or of each; m is at least 4.
        keys: [N, 4], each part in [0, 2**32): the spawn key of each sequence.
        count: How many words.
    """
    words = [*entropy.T, *keys.T.astype(np.uint32)]
    constant = _Constant(0x43B0D7E5, 0x931E8875)
    pool = [_hash(word, constant) for word in words[:POOL]]
    for source in range(POOL):
        for target in range(POOL):
            if source != target:
                pool[target] = _mix(pool[target], _hash(pool[source], constant))
    for word in words[POOL:]:
        pool = [_mix(part, _hash(word, constant)) for part in pool]
    last = _Constant(0x8B51F9DD, 0x58F38DED)
    return np.stack([_hash(part, last) for part in pool[:count]], axis=1)


class _Constant:
    """The running constant of the hash: a multiplicative sequence of 32-bit words."""

    def __init__(self, first: int, factor: int) -> None:
        self.value = first
        self._factor = factor

    def advance(self) -> int:
        self.value = self.value * self._factor & 0xFFFFFFFF
        return self.value


def _hash(words: NDArray[np.uint32], constant: _Constant) -> NDArray[np.uint32]:
    mixed = words ^ np.uint32(constant.value)
    mixed *= np.uint32(constant.advance())
    mixed ^= mixed >> np.uint32(16)
    return mixed


def _mix(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> NDArray[np.uint32]:
    mixed = one * np.uint32(0xCA01F9DD) - other * np.uint32(0x4973F715)
    mixed ^= mixed >> np.uint32(16)
    return mixed


class Purpose(IntEnum):
    """First part of a stream's key. Every published digest depends on these numbers: add some, never renumber."""

    INIT = 0
    EPISODE = 1
    HELD_OUT = 2
    PARENTS = 3
    SWAPS = 4
    TRACE_PRUNING = 5
    UNIFORM_PRUNING = 6
    WEIGHT_NOISE = 7
    REGROWTH = 8
    CHECK = 9
    INITIAL_WEIGHTS = 10
    MASKS = 11
    VALIDATION = 12

    @property
    def title(self) -> str:
        """Its name in words, and as an option: held-out."""
        return self.name.lower().replace("_", "-")


def purpose_number(purpose: Purpose | str) -> int:
    """Return the number of a purpose; of a name, the first 32 bits of its sha256 (UTF-8, big-endian) | 2**31.

    So all names have numbers in [2**31, 2**32), far above those of `Purpose`.
    """
    if isinstance(purpose, str):
        return int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:4], "big") | 2**31
    return int(purpose)


def seed_sequence(
    seed: int, purpose: Purpose | str, generation: int = 0, candidate: int = 0, episode: int = 0
) -> np.random.SeedSequence:
    """Return the `SeedSequence` of a key.

    Args:
        seed: That of the experiment.
        purpose: What the random numbers are for: a `Purpose`, or the name of a purpose from outside the package.
        generation: In [0, 2**32), as the following.
        candidate: That of the population.
        episode: That of the candidate.

    Raises:
        ValueError: A part of the key is out of range.
    """
    key = (purpose_number(purpose), generation, candidate, episode)
    if not all(0 <= part < _PART_LIMIT for part in key):
        raise ValueError(f"stream key: expected every part in [0, 2**32), got {key}")
    return np.random.SeedSequence(seed, spawn_key=key)


class Stream:
    """The random stream of one key, read from its beginning and owned by one user; see `seed_sequence` for the key."""

    def __init__(
        self, seed: int, purpose: Purpose | str, generation: int = 0, candidate: int = 0, episode: int = 0
    ) -> None:
        self._philox = np.random.Philox(seed_sequence(seed, purpose, generation, candidate, episode))

    def bits(self, n: int) -> UInt64:
        """Return `[n] uint64`: the next raw words of the Philox counter."""
        return self._philox.random_raw(n)

    def skip(self, n: int) -> "Stream":
        """Pass over the next n words of a stream of which nothing was read yet; return it."""
        self._philox.advance(n // 4)
        self.bits(n % 4)
        return self

    def uniform(self, *shape: int) -> Float64:
        """Return `[*shape] float64`, uniform on the open interval (0, 1): one raw word each, 52 bits kept."""
        return open_interval(self.bits(math.prod(shape))).reshape(shape)

    def normal(self, *shape: int) -> Float32:
        """Return `[*shape] float32`, standard normal: `normal_quantile(uniform(*shape))`, to the bit."""
        words = self.bits(math.prod(shape))
        deviates = native.normal(words) if native.available() else normal_quantile(open_interval(words))
        return deviates.reshape(shape)

    def below(self, bound: int, *shape: int) -> Int64:
        """Return `[*shape] int64`, uniform on {0, …, bound - 1} (bias under bound / 2**52)."""
        return np.floor(self.uniform(*shape) * bound).astype(np.int64)

    def normal_rows(self, size: int) -> Float32:
        """Return `normal(1, size)`: what `Streams` returns for this stream alone."""
        return self.normal(1, size)

    def at_least(self, threshold: Float64 | float, size: int) -> Bool:
        """Return `uniform(1, size) >= threshold`: what `Streams` returns for this stream alone."""
        reached: Bool = self.uniform(1, size) >= threshold
        return reached


def open_interval(words: UInt64) -> Float64:
    """Return the uniform numbers that raw words stand for."""
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def environment_seeds(
    seed: int, purpose: Purpose | str, generations: Int64, candidates: Int64, episodes: Int64
) -> Int64:
    """Return [N]: the 31-bit seed of each episode's environment (EnvPool's seeds are signed 32-bit).

    Args:
        seed: That of the experiment.
        purpose: What the episodes are for.
        generations: [N], as the following; the rest of the keys.
        candidates: [N].
        episodes: [N].

    Raises:
        ValueError: A part of a key is outside [0, 2**32).
    """
    keys = np.stack([np.full_like(candidates, purpose_number(purpose)), generations, candidates, episodes], axis=1)
    return first_words(seed, keys, 1)[:, 0].astype(np.int64) >> 1


def first_words(seed: int | Int64, keys: Int64, count: int) -> NDArray[np.uint32]:
    """Return [N, count]: `SeedSequence(seed, spawn_key=key).generate_state(count)` for each row of keys [N, 4].

    Args:
        seed: Not negative; that of all, or [N], one for each.
        keys: The spawn keys.
        count: At most 4.

    Raises:
        ValueError: A part of a key is outside [0, 2**32).
    """
    if keys.min(initial=0) < 0 or keys.max(initial=0) >= _PART_LIMIT:
        raise ValueError(f"stream key: expected every part in [0, 2**32), got {keys.min()} to {keys.max()}")
    entropy = _entropy(seed)
    if not native.available():
        return seed_words(entropy, keys, count)
    words = np.empty((len(keys), count), np.uint32)
    keys = np.ascontiguousarray(keys)
    of_each = entropy.shape[1] if len(entropy) > 1 else 0
    at = entropy.ctypes.data, entropy.shape[1], of_each, keys.ctypes.data
    _seed_words()(*at, words.ctypes.data, count, len(keys))
    return words


def _entropy(seed: int | Int64) -> NDArray[np.uint32]:
    """Return [1 or N, m]: the words of a seed, so many (at least 4) that no key is taken for a part of it."""
    if isinstance(seed, int):
        words = [seed >> shift & 0xFFFFFFFF for shift in range(0, max(seed.bit_length(), 1), 32)]
        return np.array([words + [0] * (POOL - len(words))], np.uint32)
    entropy = np.zeros((len(seed), POOL), np.uint32)
    entropy[:, 0], entropy[:, 1] = seed & 0xFFFFFFFF, seed >> 32
    return entropy


@cache
def _seed_words() -> Any:
    return native.bind("seed_words", [ADDRESS, INT64, INT64, ADDRESS, ADDRESS, INT64, INT64])
