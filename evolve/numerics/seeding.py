"""The words of many seed sequences at once: what NumPy's `SeedSequence` gives one by one.

The algorithm is O'Neill's `seed_seq_fe` as NumPy documents it (and promises to keep).
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.numerics import native
from evolve.numerics.native import ADDRESS, INT64
from evolve.shapes import Int64

PART_LIMIT = 2**32
"""Above all parts of a key."""
_WORDS = 4  # in a pool, and in a key


def seed_words(seed: int, keys: Int64, count: int) -> NDArray[np.uint32]:
    """Return [N, count]: `SeedSequence(seed, spawn_key=key).generate_state(count)` for each row of keys [N, 4].

    Args:
        seed: Not negative.
        keys: The spawn key of each sequence.
        count: At most 4.

    Raises:
        ValueError: A part of a key is outside [0, 2**32).
    """
    if keys.min(initial=0) < 0 or keys.max(initial=0) >= PART_LIMIT:
        raise ValueError(f"stream key: expected every part in [0, 2**32), got {keys.min()} to {keys.max()}")
    entropy = [seed >> shift & 0xFFFFFFFF for shift in range(0, max(seed.bit_length(), 1), 32)]
    entropy += [0] * (_WORDS - len(entropy))  # so that no key is taken for a part of the seed
    if not native.available():
        return _reference(entropy, keys, count)
    words = np.empty((len(keys), count), np.uint32)
    keys = np.ascontiguousarray(keys)
    start = np.array(entropy, np.uint32)
    _kernel()(start.ctypes.data, len(start), keys.ctypes.data, words.ctypes.data, count, len(keys))
    return words


@cache
def _kernel() -> Any:
    return native.bind("seed_words", [ADDRESS, INT64, ADDRESS, ADDRESS, INT64, INT64])


def _reference(entropy: list[int], keys: Int64, count: int) -> NDArray[np.uint32]:
    words = [np.full(len(keys), word, np.uint32) for word in entropy] + list(keys.T.astype(np.uint32))
    constant = _Constant(0x43B0D7E5, 0x931E8875)
    pool = [_hash(word, constant) for word in words[:_WORDS]]
    for source in range(_WORDS):
        for target in range(_WORDS):
            if source != target:
                pool[target] = _mix(pool[target], _hash(pool[source], constant))
    for word in words[_WORDS:]:
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
