"""Many keyed streams read side by side: the numbers of all candidates of a generation, or of all episodes."""

from functools import cache
from typing import Any

import numpy as np

from evolve.numerics import native
from evolve.numerics.native import ADDRESS, INT64
from evolve.numerics.portable import normal_quantile
from evolve.numerics.streams import Purpose, Stream, first_words, open_interval, purpose_number
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt64

KEY = int.from_bytes(b"evolve", "big")
"""The second word of the keys; streams (`streams.Stream`) are keyed by hashes, and so far away."""

_MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def draws(seeds: Int64, numbers: Int64) -> Float64:
    """Return [k], uniform on the open interval (0, 1).

    Args:
        seeds: [k], of the episodes' environments.
        numbers: [k], which of each episode's random numbers.
    """
    blocks = _philox((numbers // 4 + 1).astype(np.uint64), seeds.astype(np.uint64))
    words = np.choose(numbers % 4, blocks)
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


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


class Streams:
    """The streams of n keys, read side by side: row c is what `Stream(seed, purpose, generation, c)` gives, to the bit.

    Args:
        seed: That of the experiment; or [n], one for each stream.
        purpose: What the random numbers are for.
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
        """Return some of the streams, [k] by number or [n] by mask, to be read from where all of these are now."""
        taken = object.__new__(Streams)
        taken._keys = self._keys[which]
        taken._at = self._at
        return taken

    def skip(self, size: int) -> "Streams":
        """Pass over the next numbers of all streams; return these."""
        self._at += size
        return self

    def uniform(self, size: int) -> Float64:
        """Return [n, size], uniform on the open interval (0, 1)."""
        first, stop = self._next(size)
        if not native.available():
            return open_interval(_raw_rows(self._keys, first, stop))
        numbers = np.empty((len(self), size))
        _uniform_rows()(self._keys.ctypes.data, first, stop, numbers.ctypes.data, len(self))
        return numbers

    def at_least(self, threshold: Float64 | float, size: int) -> Bool:
        """Return [n, size]: whether uniform numbers are at least a threshold: of all, [size] or [n, size]."""
        if not native.available():
            reached: Bool = self.uniform(size) >= threshold
            return reached
        first, stop = self._next(size)
        thresholds = np.broadcast_to(np.asarray(threshold, np.float64), (len(self), size))
        steps = (stride // thresholds.itemsize for stride in thresholds.strides)
        reached = np.empty(thresholds.shape, np.bool_)
        at = self._keys.ctypes.data, first, stop, thresholds.ctypes.data
        _at_least_rows()(*at, *steps, reached.ctypes.data, len(self))
        return reached

    def normal_rows(self, size: int) -> Float32:
        """Return [n, size], standard normal."""
        first, stop = self._next(size)
        if not native.available():
            return normal_quantile(open_interval(_raw_rows(self._keys, first, stop)))
        deviates = np.empty((len(self), size), np.float32)
        _normal_rows()(self._keys.ctypes.data, first, stop, deviates.ctypes.data, len(self))
        return deviates

    def _next(self, size: int) -> tuple[int, int]:
        """Return the first of the next numbers, and the one behind them."""
        first = self._at
        self._at += size
        return first, self._at


AnyStream = Stream | Streams
"""Of one key or of many: both have `normal_rows` and `at_least`."""


def normal_rows(
    seed: int, purpose: Purpose | str, generation: int, candidates: Int64, stop: int, first: int = 0
) -> Float32:
    """Return [n, stop - first]: for each candidate c `Stream(seed, purpose, generation, c).normal(stop)[first:]`.

    A Philox stream is a function of a counter, so that numbers from the middle of one cost no more than the first.

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
    """Return [n, stop - first]: those words of the Philox counters of keys [n, 2]."""
    philox = np.random.Philox(0)
    state: Any = philox.state
    rows = np.empty((len(keys), stop - first), np.uint64)
    for row, key in zip(rows, keys, strict=True):
        state["state"] = {"counter": np.array([first // 4, 0, 0, 0], np.uint64), "key": key}
        philox.state = state
        row[:] = philox.random_raw(first % 4 + len(row))[first % 4 :]
    return rows


@cache
def _uniform_rows() -> Any:
    return native.bind("uniform_rows", [ADDRESS, INT64, INT64, ADDRESS, INT64])


@cache
def _normal_rows() -> Any:
    return native.bind("normal_rows", [ADDRESS, INT64, INT64, ADDRESS, INT64])


@cache
def _at_least_rows() -> Any:
    return native.bind("at_least_rows", [ADDRESS, INT64, INT64, ADDRESS, INT64, INT64, ADDRESS, INT64])
