"""Keyed random streams: every random number is a function of (seed, purpose, generation, candidate, episode).

No stream depends on another, so any rank can draw the numbers of any candidate. NumPy's `SeedSequence` and Philox
define the numbers. `Stream` reads one stream. `Streams` reads many side by side, such as one for each candidate.
"""

import copy
import hashlib
import math
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from evolve.numerics import native
from evolve.numerics.native import ADDRESS
from evolve.numerics.portable import normal_quantile
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt64

POOL_SIZE = 4
"""The number of 32-bit words in the pool of a seed sequence."""
DRAWS_KEY = int.from_bytes(b"evolve", "big")
"""The second word of the Philox keys of `draws`. The keys of other streams are hashes, so a collision is unlikely."""

# The constants of Philox4x64 (Salmon et al., 2011).
_MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
_WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B  # what each round adds to the two words of the key
_LOWER_HALF = np.uint64(0xFFFFFFFF)
_HALF_WORD = np.uint64(32)  # bits
_KEY_LIMIT = 2**32  # each part of a spawn key is one 32-bit word
_EXPECTED_KEY = "random stream: expected a purpose, generation, candidate and episode in [0, 2**32)"


class Purpose(IntEnum):
    """The use of random numbers, a part of their stream's key. Published digests depend on these numbers."""

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
        """The lower-case name with hyphens, as command-line options spell it: held-out."""
        return self.name.lower().replace("_", "-")


def purpose_number(purpose: Purpose | str) -> int:
    """Return the number of a purpose.

    The number of a name is the first 32 bits of its sha256, big-endian, with the top bit set. So it is at least 2**31,
    and no number of `Purpose`.
    """
    if isinstance(purpose, str):
        digest = hashlib.sha256(purpose.encode()).digest()
        return int.from_bytes(digest[:4], "big") | 2**31
    return int(purpose)


def seed_sequence(
    seed: int, purpose: Purpose | str, generation: int = 0, candidate: int = 0, episode: int = 0
) -> np.random.SeedSequence:
    """Return the `SeedSequence` of a key.

    Args:
        seed: The seed of the experiment.
        purpose: The purpose of the random numbers: a `Purpose`, or the name of a purpose from outside the package.
        generation: The number of the generation.
        candidate: The number of the candidate in its population.
        episode: The number of the episode of the candidate.

    Raises:
        ValueError: A part of the key is outside [0, 2**32).
    """
    key = (purpose_number(purpose), generation, candidate, episode)
    if not all(0 <= part < _KEY_LIMIT for part in key):
        raise ValueError(f"{_EXPECTED_KEY}, got {key}")
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

    def uniform(self, *shape: int) -> Float64:
        """Return `[*shape] float64`, uniform on the open interval (0, 1). Each number takes one raw word."""
        return to_open_interval(self.bits(math.prod(shape))).reshape(shape)

    def normal(self, *shape: int) -> Float32:
        """Return `[*shape] float32`, standard normal, with the bits of `normal_quantile(uniform(*shape))`."""
        words = self.bits(math.prod(shape))
        deviates = native.normal(words) if native.available() else normal_quantile(to_open_interval(words))
        return deviates.reshape(shape)

    def below(self, bound: int, *shape: int) -> Int64:
        """Return `[*shape] int64`, uniform on {0, …, bound - 1}, with a bias below bound / 2**52."""
        return np.floor(self.uniform(*shape) * bound).astype(np.int64)

    def normal_rows(self, size: int) -> Float32:
        """Return `normal(1, size)`. `Streams` has the same method."""
        return self.normal(1, size)

    def at_least(self, threshold: Float64 | float, size: int) -> Bool:
        """Return `uniform(1, size) >= threshold`. `Streams` has the same method."""
        return self.uniform(1, size) >= threshold


class Streams:
    """The streams of n keys, read side by side. Row i equals `Stream(seed, purpose, generation, candidates[i])`.

    Args:
        seed: The seed of the experiment; or [n], one for each stream.
        purpose: The purpose of the random numbers.
        generation: The number of the generation.
        candidates: [n], the numbers of the candidates.

    Raises:
        ValueError: A part of a key is outside [0, 2**32).
    """

    def __init__(self, seed: int | Int64, purpose: Purpose | str, generation: int, candidates: Int64) -> None:
        self._keys = philox_keys(seed, purpose, generation, candidates)
        self._position = 0

    def __len__(self) -> int:
        return len(self._keys)

    def take(self, which: Slots | Bool) -> "Streams":
        """Return some of the streams, each at its current position. which: indexes [k], or a mask [n]."""
        selected = copy.copy(self)  # `Streams(…)` would compute the keys again
        selected._keys = self._keys[which]
        return selected

    def skip(self, size: int) -> "Streams":
        """Skip the next `size` numbers of all streams; return the streams."""
        self._position += size
        return self

    def uniform(self, size: int) -> Float64:
        """Return [n, size], uniform on the open interval (0, 1)."""
        first, stop = self._advance(size)
        if not native.available():
            return to_open_interval(_raw_rows(self._keys, first, stop))
        numbers = np.empty((len(self), size))
        native.call("uniform_rows", self._keys, first, stop, numbers, len(self))
        return numbers

    def at_least(self, threshold: Float64 | float, size: int) -> Bool:
        """Return [n, size]: `uniform(size) >= threshold`. threshold: One number, or an array [size] or [n, size]."""
        if not native.available():
            return self.uniform(size) >= threshold
        first, stop = self._advance(size)
        thresholds = np.broadcast_to(np.asarray(threshold, np.float64), (len(self), size))
        strides = (stride // thresholds.itemsize for stride in thresholds.strides)  # 0 along an axis of equal values
        reached = np.empty(thresholds.shape, np.bool_)
        address = ADDRESS(thresholds.ctypes.data)  # `call` would copy the broadcast array, and change the strides
        native.call("at_least_rows", self._keys, first, stop, address, *strides, reached, len(self))
        return reached

    def normal_rows(self, size: int) -> Float32:
        """Return [n, size], standard normal."""
        if not native.available():
            return normal_quantile(self.uniform(size))
        first, stop = self._advance(size)
        deviates = np.empty((len(self), size), np.float32)
        native.call("normal_rows", self._keys, first, stop, deviates, len(self))
        return deviates

    def _advance(self, size: int) -> tuple[int, int]:
        """Advance all streams by `size` numbers; return the positions before and after."""
        self.skip(size)
        return self._position - size, self._position


AnyStream = Stream | Streams
"""The stream of one key, or the streams of many keys: both have `normal_rows` and `at_least`."""


def normal_rows(
    seed: int, purpose: Purpose | str, generation: int, candidates: Int64, stop: int, first: int = 0
) -> Float32:
    """Return [n, stop - first]: for each candidate c `Stream(seed, purpose, generation, c).normal(stop)[first:]`.

    Philox computes each number from a counter, so the numbers before `first` cost nothing.

    Raises:
        ValueError: A part of a key is outside [0, 2**32).
    """
    return Streams(seed, purpose, generation, candidates).skip(first).normal_rows(stop - first)


def philox_keys(seed: int | Int64, purpose: Purpose | str, generation: int, candidates: Int64) -> UInt64:
    """Return [n, 2]: the Philox key of `Stream(seed, purpose, generation, c)`, for each candidate c.

    Raises:
        ValueError: A part of a key is outside [0, 2**32).
    """
    spawn_keys = np.zeros((len(candidates), 4), np.int64)  # the last part is episode 0
    spawn_keys[:, 0] = purpose_number(purpose)
    spawn_keys[:, 1] = generation
    spawn_keys[:, 2] = candidates
    # A Philox key has two words of 64 bits. NumPy joins two words of 32 bits to one, the lower half first.
    return first_words(seed, spawn_keys, 4).astype("<u4", copy=False).view("<u8")


def _raw_rows(keys: UInt64, first: int, stop: int) -> UInt64:
    """Return [n, stop - first]: words `first` to `stop` - 1 of the Philox streams with keys [n, 2]."""
    rows = np.empty((len(keys), stop - first), np.uint64)
    for row, key in zip(rows, keys, strict=True):
        # Each value of the counter gives four words. So begin at most three words early, and drop these.
        philox = np.random.Philox(counter=first // 4, key=key)
        row[:] = philox.random_raw(first % 4 + len(row))[first % 4 :]
    return rows


def to_open_interval(words: UInt64) -> Float64:
    """Return a uniform number in (0, 1) for each raw word: (the upper 52 bits of the word + 1/2) / 2**52."""
    # Not 53 bits: adding 1/2 to a number of 53 bits needs 54, so a float64 would round the largest number to 1.
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def draws(seeds: Int64, positions: Int64) -> Float64:
    """Return [k]: one random number for each of k episodes, uniform on the open interval (0, 1).

    Exact tasks take their random numbers from this function. A number depends only on the seed and the position, so a
    kernel can compute the numbers in any order.

    Args:
        seeds: [k], the seeds of the episodes' environments.
        positions: [k], the position of each random number in the stream of its episode.
    """
    # The stream is `np.random.Philox(key=[seed, DRAWS_KEY])`. Each value of its counter, from 1 on, gives four words.
    words = _philox((positions // 4 + 1).astype(np.uint64), seeds.astype(np.uint64))
    return to_open_interval(np.choose(positions % 4, words))


def _philox(counters: UInt64, seeds: UInt64) -> list[UInt64]:
    """Return the four words [k] of Philox4x64-10 (Salmon et al., 2011) for counters [k] and keys (seeds, DRAWS_KEY)."""
    c = [counters, *(np.zeros_like(counters) for _ in range(3))]
    key = [seeds, np.full_like(seeds, DRAWS_KEY)]
    for _ in range(10):
        high0, low0 = _wide_product(c[0], _MULTIPLIERS[0])
        high1, low1 = _wide_product(c[2], _MULTIPLIERS[1])
        c = [high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0]
        key = [key[0] + np.uint64(_WEYL[0]), key[1] + np.uint64(_WEYL[1])]
    return c


def _wide_product(x: UInt64, multiplier: int) -> tuple[UInt64, UInt64]:
    """Return the upper and the lower 64 bits of the 128 bits of x · multiplier."""
    # Long multiplication, as NumPy has no product of 128 bits: x = 2^32 a + b, multiplier = 2^32 c + d.
    a, b = x >> _HALF_WORD, x & _LOWER_HALF
    c, d = np.uint64(multiplier >> 32), np.uint64(multiplier & 0xFFFFFFFF)
    cross = b * c + (b * d >> _HALF_WORD)  # cannot overflow: (2^32 - 1)^2 + 2^32 - 1 < 2^64
    middle = (cross & _LOWER_HALF) + a * d
    return a * c + (cross >> _HALF_WORD) + (middle >> _HALF_WORD), x * np.uint64(multiplier)


def environment_seeds(
    seed: int, purpose: Purpose | str, generations: Int64, candidates: Int64, episodes: Int64
) -> Int64:
    """Return [N]: the seed of each episode's environment. It has 31 bits, because EnvPool's seeds are signed 32-bit.

    Args:
        seed: The seed of the experiment.
        purpose: The purpose of the episodes.
        generations: [N], the numbers of the generations.
        candidates: [N], the numbers of the candidates in their populations.
        episodes: [N], the numbers of the episodes of the candidates.

    Raises:
        ValueError: A part of a key is outside [0, 2**32).
    """
    keys = np.stack([np.full_like(episodes, purpose_number(purpose)), generations, candidates, episodes], axis=1)
    return first_words(seed, keys, 1)[:, 0].astype(np.int64) >> 1  # the upper 31 of 32 bits


def first_words(seed: int | Int64, keys: Int64, count: int) -> NDArray[np.uint32]:
    """Return [N, count]: `SeedSequence(seed, spawn_key=key).generate_state(count)` for each row of keys [N, 4].

    Args:
        seed: One seed for all rows, or [N], a seed for each row; not negative.
        keys: The spawn keys.
        count: The number of words, at most 4.

    Raises:
        ValueError: A part of a key is outside [0, 2**32).
    """
    if keys.min(initial=0) < 0 or keys.max(initial=0) >= _KEY_LIMIT:
        raise ValueError(f"{_EXPECTED_KEY}, got {keys.min()} to {keys.max()}")
    words = np.empty((len(keys), count), np.uint32)
    if not native.available():
        seeds = [seed] * len(keys) if isinstance(seed, int) else seed.tolist()
        for row, one_seed, key in zip(words, seeds, keys.tolist(), strict=True):
            row[:] = np.random.SeedSequence(one_seed, spawn_key=key).generate_state(count)
        return words
    entropy = _entropy(seed)
    row_stride = entropy.shape[1] if len(entropy) > 1 else 0  # 0: all keys have the same seed
    native.call("seed_words", entropy, entropy.shape[1], row_stride, keys, words, count, len(keys))
    return words


def _entropy(seed: int | Int64) -> NDArray[np.uint32]:
    """Return [1 or N, m]: the 32-bit words of seeds, lowest first, padded with zeros to at least 4."""
    # `SeedSequence` appends the spawn key to these words. Without the padding, a short seed and the first part of its
    # key would look like a longer seed.
    if isinstance(seed, int):
        words = [seed >> shift & 0xFFFFFFFF for shift in range(0, max(seed.bit_length(), 1), 32)]
        return np.array([words + [0] * (POOL_SIZE - len(words))], np.uint32)
    entropy = np.zeros((len(seed), POOL_SIZE), np.uint32)
    entropy[:, 0], entropy[:, 1] = seed & 0xFFFFFFFF, seed >> 32
    return entropy
