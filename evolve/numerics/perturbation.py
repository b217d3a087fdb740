"""Weights perturbed by the normal deviates of keyed streams, from which strategies make candidates.

Stream number c of a key (seed, purpose, generation) is `Stream(seed, purpose, generation, c)`. Native kernels compute
rows in one pass over memory. The array operations here define them, and give the same bits.
"""

from typing import Any

import numpy as np

from evolve.numerics import native
from evolve.numerics.native import ADDRESS, DOUBLE, FLOAT, INT64
from evolve.numerics.streams import Purpose, normal_rows, philox_keys
from evolve.shapes import Bool, Float32, Float64, Int64

StreamsKey = tuple[int, Purpose | str, int]


def around(
    centre: Float64, mask: Bool, steps: Float64, key: StreamsKey, streams: Int64, scale: Float64 | None = None
) -> Float32:
    """Return [n, W]: row i is centre + steps[i] · scale · the deviates of stream streams[i]; 0 where the mask is False.

    Args:
        centre: [W].
        mask: [W].
        steps: [n].
        key: The key of the streams.
        streams: [n], their numbers. Neighbours with the same number, such as an antithetic pair, share the deviates.
        scale: [W], by default 1.
    """
    rows = np.empty((len(streams), len(centre)), np.float32)
    if native.available():
        arrays = *map(np.ascontiguousarray, (centre, mask, philox_keys(*key, streams), steps)), rows
        scales = None if scale is None else np.ascontiguousarray(scale)
        addresses = (array.ctypes.data for array in arrays)
        fill = native.bind("around", [ADDRESS] * 5 + [INT64] * 2 + [ADDRESS])
        fill(*addresses, *rows.shape, None if scales is None else scales.ctypes.data)
        return rows
    for row, step, stream in zip(rows, steps, streams, strict=True):
        row[:] = centre + step * _scaled(key, stream, scale, 0, len(centre))
    rows[:, ~mask] = 0
    return rows


def moments_around(
    centre: Float64, scale: Float64, steps: Float64, key: StreamsKey, streams: Int64, shares: Float64, first: int
) -> Float64:
    """Return [n, 2]: the sums over all rows i, in their order, of shares[i] · d and of shares[i] · d².

    d is the distance of row i of `around` from the centre: (centre + steps[i] · scale · deviates, as float32) - centre.

    Args:
        centre: [n].
        scale: [n].
        steps: One for each row.
        key: The key of the streams.
        streams: Their numbers, one for each row. Neighbours with the same number share the deviates.
        shares: One for each row.
        first: The place in each stream of the first deviate.
    """
    if native.available():
        moments = np.empty((len(centre), 2))
        arrays = *map(np.ascontiguousarray, (centre, scale, philox_keys(*key, streams), steps, shares)), moments
        add_up = native.bind("moments_around", [ADDRESS] * 6 + [INT64] * 3)
        add_up(*(array.ctypes.data for array in arrays), first, len(centre), len(streams))
        return moments
    sums = np.zeros((2, len(centre)))
    for step, stream, share in zip(steps, streams, shares, strict=True):
        moved = (centre + step * _scaled(key, stream, scale, first, len(centre))).astype(np.float32)
        d = moved.astype(np.float64) - centre
        sums[0] += share * d
        sums[1] += share * (d * d)
    return np.ascontiguousarray(sums.T)


def difference_sums(centre: Float64, step: float, key: StreamsKey, shares: Float64, first: int) -> Float64:
    """Return [n]: the sum over all streams i, in their order, of shares[i] · (a - b).

    a and b are the float32 numbers centre + step · d and centre - step · d, d the deviates of the stream.

    Args:
        centre: [n].
        step: At least 0.
        key: The key of the streams.
        shares: One for each stream, 0 …
        first: The place in each stream of the first deviate.
    """
    sums = np.zeros(len(centre))
    streams: Int64 = np.arange(len(shares))
    if native.available():
        arrays = *map(np.ascontiguousarray, (centre, philox_keys(*key, streams), shares)), sums
        add_up = native.bind("difference_sums", [ADDRESS] * 4 + [DOUBLE] + [INT64] * 3)
        add_up(*(array.ctypes.data for array in arrays), step, first, len(centre), len(shares))
        return sums
    for share, stream in zip(shares, streams, strict=True):
        moved = step * normal_rows(*key, stream[None], first + len(centre), first)[0].astype(np.float64)
        one, other = (centre + moved).astype(np.float32), (centre - moved).astype(np.float32)
        sums += share * np.subtract(one, other, dtype=np.float64)
    return sums


def add_noise(weights: Float32, mask: Bool, scale: float, key: StreamsKey, streams: Int64) -> None:
    """Add scale · the deviates of stream streams[i] to row i of weights [n, W]; write 0 where the mask [n, W] is False.

    All arithmetic is float32, also the scale. Both arrays are C-contiguous.
    """
    if native.available():
        arrays = (
            weights,
            mask,
            np.ascontiguousarray(philox_keys(*key, streams)),
        )  # alive during the call
        add = native.bind("add_noise", [ADDRESS] * 3 + [FLOAT] + [INT64] * 2)
        add(*(array.ctypes.data for array in arrays), scale, *weights.shape)
        return
    weights += np.float32(scale) * normal_rows(*key, streams, weights.shape[1])
    weights[~mask] = 0


def _scaled(key: StreamsKey, stream: Any, scale: Float64 | None, first: int, n: int) -> Float64:
    """Return [n]: the deviates of a stream from number `first` on, times their scale [n]."""
    noise = normal_rows(*key, stream[None], first + n, first)[0].astype(np.float64)
    scaled: Float64 = noise if scale is None else scale * noise
    return scaled
