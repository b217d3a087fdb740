"""The words of many seed sequences at once, by array operations: what NumPy's `SeedSequence` gives one by one.

The algorithm is O'Neill's `seed_seq_fe` as NumPy documents it (and promises to keep). `philox.h` is the same natively.
"""

import numpy as np
from numpy.typing import NDArray

from evolve.shapes import Int64

POOL = 4
"""The words of a pool."""


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
