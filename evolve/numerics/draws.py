"""The random numbers of an episode by their numbers, so that no episode carries a generator.

Number n of the episode with environment seed s is word n of the stream `numpy.random.Philox(key=[s, KEY])`, made a
uniform number as everywhere (`streams`). Philox is a function of a counter (Salmon et al., 2011): any number costs the
same, and episodes that lie side by side draw different numbers of theirs at once.
"""

import numpy as np

from evolve.shapes import Float64, Int64, UInt64

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
