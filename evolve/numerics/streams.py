"""Keyed random streams: every random number is a function of (seed, purpose, generation, candidate, episode).

No stream depends on the order in which other streams are read, so any rank can draw the numbers of any candidate.
NumPy's `SeedSequence` and Philox are the definition. `Stream` reads one stream, and `Streams` reads many side by side,
such as the streams of all candidates of a generation.
"""

import hashlib
import math
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.numerics import native
from evolve.numerics.native import ADDRESS, INT64
from evolve.numerics.portable import normal_quantile
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt64

POOL = 4
"""The words of a seed sequence's pool."""
KEY = int.from_bytes(b"evolve", "big")
"""The second word of the keys of `draws`. Other streams have hashes as keys, so no key is likely to be used twice."""

_MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_PART_LIMIT = 2**32


def seed_words(entropy: NDArray[np.uint32], keys: Int64, count: int) -> NDArray[np.uint32]:
    """Return [N, count]: the first words (at most 4) of the seed sequence of each key.

    Args:
        entropy: [1 or N, m], one seed for all sequences or one for each; m is at least 4.
        keys: [N, 4], the spawn key of each sequence; each part is in [0, 2**32).
        count: The number of words.
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
    """The first part of a stream's key. Published digests depend on these numbers: add new ones, never renumber."""

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
        """The name in words, also used as an option: held-out."""
        return self.name.lower().replace("_", "-")


def purpose_number(purpose: Purpose | str) -> int:
    """Return the number of a purpose; for a name, the first 32 bits of its sha256 (UTF-8, big-endian) | 2**31.

    So the numbers of names lie in [2**31, 2**32), far above the numbers of `Purpose`.
    """
    if isinstance(purpose, str):
        return int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:4], "big") | 2**31
    return int(purpose)


def seed_sequence(
    seed: int, purpose: Purpose | str, generation: int = 0, candidate: int = 0, episode: int = 0
) -> np.random.SeedSequence:
    """Return the `SeedSequence` of a key.

    Args:
        seed: The seed of the experiment.
        purpose: The purpose of the random numbers: a `Purpose`, or the name of a purpose from outside the package.
        generation: In [0, 2**32), as the following.
        candidate: The number of the candidate in its population.
        episode: The number of the episode of the candidate.

    Raises:
        ValueError: A part of the key is out of range.
    """
    key = (purpose_number(purpose), generation, candidate, episode)
    if not all(0 <= part < _PART_LIMIT for part in key):
        raise ValueError(f"stream key: expected every part in [0, 2**32), got {key}")
    return np.random.SeedSequence(seed, spawn_key=key)


class Stream:
    """The random stream of one key, read from its beginning; see `seed_sequence` for the key."""

    def __init__(
        self, seed: int, purpose: Purpose | str, generation: int = 0, candidate: int = 0, episode: int = 0
    ) -> None:
        self._philox = np.random.Philox(seed_sequence(seed, purpose, generation, candidate, episode))

    def bits(self, n: int) -> UInt64:
        """Return `[n] uint64`: the next raw words of the Philox generator."""
        return self._philox.random_raw(n)

    def skip(self, n: int) -> "Stream":
        """Skip the first n words of a stream that was not read yet; return the stream."""
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
        """Return `normal(1, size)`, as `Streams` does for this stream alone."""
        return self.normal(1, size)

    def at_least(self, threshold: Float64 | float, size: int) -> Bool:
        """Return `uniform(1, size) >= threshold`, as `Streams` does for this stream alone."""
        reached: Bool = self.uniform(1, size) >= threshold
        return reached


class Streams:
    """The streams of n keys, read side by side: row c equals `Stream(seed, purpose, generation, c)` to the bit.

    Args:
        seed: The seed of the experiment; or [n], one for each stream.
        purpose: The purpose of the random numbers.
        generation: In [0, 2**32), as candidates.
        candidates: [n].

    Raises ValueError for a part of a key that is out of range.
    """

    def __init__(self, seed: int | Int64, purpose: Purpose | str, generation: int, candidates: Int64) -> None:
        self._keys = philox_keys(seed, purpose, generation, candidates)
        self._at = 0

    def __len__(self) -> int:
        return len(self._keys)

    def take(self, which: Slots | Bool) -> "Streams":
        """Return some of the streams, [k] by number or [n] by mask, at the current position of these streams."""
        taken = object.__new__(Streams)
        taken._keys = self._keys[which]
        taken._at = self._at
        return taken

    def skip(self, size: int) -> "Streams":
        """Skip the next `size` numbers of all streams; return the streams."""
        self._at += size
        return self

    def uniform(self, size: int) -> Float64:
        """Return [n, size], uniform on the open interval (0, 1)."""
        first, stop = self._next(size)
        if not native.available():
            return open_interval(_raw_rows(self._keys, first, stop))
        numbers = np.empty((len(self), size))
        fill = native.bind("uniform_rows", [ADDRESS, INT64, INT64, ADDRESS, INT64])
        fill(self._keys.ctypes.data, first, stop, numbers.ctypes.data, len(self))
        return numbers

    def at_least(self, threshold: Float64 | float, size: int) -> Bool:
        """Return [n, size]: whether uniform numbers reach a threshold: one number, [size] or [n, size]."""
        if not native.available():
            reached: Bool = self.uniform(size) >= threshold
            return reached
        first, stop = self._next(size)
        thresholds = np.broadcast_to(np.asarray(threshold, np.float64), (len(self), size))
        steps = (stride // thresholds.itemsize for stride in thresholds.strides)
        reached = np.empty(thresholds.shape, np.bool_)
        fill = native.bind("at_least_rows", [ADDRESS, INT64, INT64, ADDRESS, INT64, INT64, ADDRESS, INT64])
        at = self._keys.ctypes.data, first, stop, thresholds.ctypes.data
        fill(*at, *steps, reached.ctypes.data, len(self))
        return reached

    def normal_rows(self, size: int) -> Float32:
        """Return [n, size], standard normal."""
        first, stop = self._next(size)
        if not native.available():
            return normal_quantile(open_interval(_raw_rows(self._keys, first, stop)))
        deviates = np.empty((len(self), size), np.float32)
        fill = native.bind("normal_rows", [ADDRESS, INT64, INT64, ADDRESS, INT64])
        fill(self._keys.ctypes.data, first, stop, deviates.ctypes.data, len(self))
        return deviates

    def _next(self, size: int) -> tuple[int, int]:
        """Skip `size` numbers; return the number of the first one, and of the one after the last."""
        first = self._at
        self._at += size
        return first, self._at


AnyStream = Stream | Streams
"""The stream of one key, or the streams of many keys: both have `normal_rows` and `at_least`."""


def normal_rows(
    seed: int, purpose: Purpose | str, generation: int, candidates: Int64, stop: int, first: int = 0
) -> Float32:
    """Return [n, stop - first]: for each candidate c `Stream(seed, purpose, generation, c).normal(stop)[first:]`.

    A Philox stream is a function of a counter, so numbers in the middle of a stream cost no more than the first ones.

    Raises:
        ValueError: A part of a key is out of range.
    """
    return Streams(seed, purpose, generation, candidates).skip(first).normal_rows(stop - first)


def philox_keys(seed: int | Int64, purpose: Purpose | str, generation: int, candidates: Int64) -> UInt64:
    """Return [n, 2]: the keys of the Philox counters of `Stream(seed, purpose, generation, c)`, for each candidate c.

    Raises:
        ValueError: A part of a key is out of range.
    """
    keys = np.zeros((len(candidates), 4), np.int64)
    keys[:, 0] = purpose_number(purpose)
    keys[:, 1] = generation
    keys[:, 2] = candidates
    return first_words(seed, keys, 4).astype("<u4", copy=False).view("<u8")


def _raw_rows(keys: UInt64, first: int, stop: int) -> UInt64:
    """Return [n, stop - first]: words `first` to `stop` - 1 of the Philox counters of keys [n, 2]."""
    philox = np.random.Philox(0)
    state: Any = philox.state
    rows = np.empty((len(keys), stop - first), np.uint64)
    for row, key in zip(rows, keys, strict=True):
        state["state"] = {"counter": np.array([first // 4, 0, 0, 0], np.uint64), "key": key}
        philox.state = state
        row[:] = philox.random_raw(first % 4 + len(row))[first % 4 :]
    return rows


def open_interval(words: UInt64) -> Float64:
    """Return uniform numbers on (0, 1) from the upper 52 bits of raw words."""
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def draws(seeds: Int64, numbers: Int64) -> Float64:
    """Return [k]: random numbers of episodes, uniform on the open interval (0, 1).

    Args:
        seeds: [k], the seeds of the episodes' environments.
        numbers: [k], the index of the random number in each episode.
    """
    blocks = _philox((numbers // 4 + 1).astype(np.uint64), seeds.astype(np.uint64))
    return open_interval(np.choose(numbers % 4, blocks))


def _philox(counters: UInt64, keys: UInt64) -> list[UInt64]:
    """Return the four words [k] of Philox4x64-10 for counters and keys [k]."""
    c = [counters, *(np.zeros_like(counters) for _ in range(3))]
    key = [keys, np.full_like(keys, KEY)]
    for _ in range(10):
        (high0, low0), (high1, low1) = (_product(x, m) for x, m in zip(c[::2], _MULTIPLIERS, strict=True))
        c = [high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0]
        key = [k + np.uint64(w) for k, w in zip(key, _WEYL, strict=True)]
    return c


def _product(x: UInt64, multiplier: int) -> tuple[UInt64, UInt64]:
    """Return the upper and the lower 64 bits of x times a constant."""
    a, b = x >> _32, x & _LOW
    c, d = np.uint64(multiplier >> 32), np.uint64(multiplier & 0xFFFFFFFF)
    cross = b * c + (b * d >> _32)  # cannot overflow: (2^32 - 1)^2 + 2^32 - 1 < 2^64
    middle = (cross & _LOW) + a * d
    return a * c + (cross >> _32) + (middle >> _32), x * np.uint64(multiplier)


def environment_seeds(
    seed: int, purpose: Purpose | str, generations: Int64, candidates: Int64, episodes: Int64
) -> Int64:
    """Return [N]: the 31-bit seed of each episode's environment (EnvPool's seeds are signed 32-bit).

    Args:
        seed: The seed of the experiment.
        purpose: The purpose of the episodes.
        generations: [N], like `candidates` and `episodes` a part of the keys.
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
        seed: Not negative; one seed for all rows, or [N], one for each.
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
    fill = native.bind("seed_words", [ADDRESS, INT64, INT64, ADDRESS, ADDRESS, INT64, INT64])
    fill(*at, words.ctypes.data, count, len(keys))
    return words


def _entropy(seed: int | Int64) -> NDArray[np.uint32]:
    """Return [1 or N, m]: the words of a seed; at least 4, so that no part of a key is taken for a part of the seed."""
    if isinstance(seed, int):
        words = [seed >> shift & 0xFFFFFFFF for shift in range(0, max(seed.bit_length(), 1), 32)]
        return np.array([words + [0] * (POOL - len(words))], np.uint32)
    entropy = np.zeros((len(seed), POOL), np.uint32)
    entropy[:, 0], entropy[:, 1] = seed & 0xFFFFFFFF, seed >> 32
    return entropy
