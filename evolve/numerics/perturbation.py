"""Perturbations: strategies make candidates by adding normal deviates of keyed streams to weights.

Stream number c of a key (seed, purpose, generation) is `Stream(seed, purpose, generation, c)`. Each function has a
native kernel, which passes over memory once. Array operations define the result, and the kernel gives the same bits.

Sums over all candidates are divided among ranks by columns of the genome. A rank that computes the sums of some columns
skips the deviates of the columns before them: `first` is the number of its first column.
"""

import numpy as np

from evolve.numerics import native
from evolve.numerics.native import ADDRESS, DOUBLE, FLOAT, INT64
from evolve.numerics.streams import Purpose, normal_rows, philox_keys
from evolve.shapes import Bool, Float32, Float64, Int64

StreamsKey = tuple[int, Purpose | str, int]
"""Seed, purpose and generation of streams."""


def perturbed(
    centre: Float64, mask: Bool, steps: Float64, key: StreamsKey, streams: Int64, scale: Float64 | None = None
) -> Float32:
    """Return [n, W]: row i is centre + steps[i] · scale · the deviates of stream streams[i]; 0 where the mask is False.

    Args:
        centre: [W].
        mask: [W].
        steps: [n].
        key: The key of the streams.
        streams: [n], the number of the stream of each row. The kernel reads a stream once for consecutive rows that
            use it, such as an antithetic pair.
        scale: [W], by default 1.
    """
    rows = np.empty((len(streams), len(centre)), np.float32)
    if native.available():
        # The kernel receives addresses, so the arrays must stay alive during the call.
        arrays = [*map(np.ascontiguousarray, (centre, mask, philox_keys(*key, streams), steps)), rows]
        scales = None if scale is None else np.ascontiguousarray(scale)
        addresses = (array.ctypes.data for array in arrays)
        fill = native.bind("perturbed", [ADDRESS] * 5 + [INT64] * 2 + [ADDRESS])
        fill(*addresses, *rows.shape, None if scales is None else scales.ctypes.data)
        return rows
    for row, step, stream in zip(rows, steps, streams, strict=True):
        row[:] = centre + step * _scaled_deviates(key, stream, scale, 0, len(centre))
    rows[:, ~mask] = 0
    return rows


def moments_about_centre(
    centre: Float64, scale: Float64, steps: Float64, key: StreamsKey, streams: Int64, coefficients: Float64, first: int
) -> Float64:
    """Return [n, 2]: the first and second moments of candidates about the centre, in n columns of the genome.

    They are Σ coefficients[i] · d and Σ coefficients[i] · d² over all candidates i, added in their order. d is the
    deviation of candidate i from the centre, after its weights are rounded to float32:
    float32(centre + steps[i] · scale · deviates) - centre.

    Args:
        centre: [n], these columns of the centre.
        scale: [n], these columns of the scale.
        steps: One for each candidate.
        key: The key of the streams.
        streams: The number of the stream of each candidate. The kernel reads a stream once for consecutive candidates.
        coefficients: One for each candidate.
        first: The number of the first column in the genome.
    """
    if native.available():
        moments = np.empty((len(centre), 2))
        inputs = centre, scale, philox_keys(*key, streams), steps, coefficients
        arrays = [*map(np.ascontiguousarray, inputs), moments]
        add_up = native.bind("moments_about_centre", [ADDRESS] * 6 + [INT64] * 3)
        add_up(*(array.ctypes.data for array in arrays), first, len(centre), len(streams))
        return moments
    sums = np.zeros((2, len(centre)))
    for step, stream, coefficient in zip(steps, streams, coefficients, strict=True):
        weights = (centre + step * _scaled_deviates(key, stream, scale, first, len(centre))).astype(np.float32)
        d = weights.astype(np.float64) - centre
        sums[0] += coefficient * d
        sums[1] += coefficient * (d * d)
    return np.ascontiguousarray(sums.T)


def antithetic_sums(centre: Float64, step: float, key: StreamsKey, coefficients: Float64, first: int) -> Float64:
    """Return [n]: Σ coefficients[i] · (a - b) over all antithetic pairs i, added in their order.

    a and b are the weights of the two candidates of pair i, in n columns of the genome: centre + step · d and
    centre - step · d, rounded to float32. d are the deviates of stream number i.

    Args:
        centre: [n], these columns of the centre.
        step: At least 0.
        key: The key of the streams.
        coefficients: One for each pair.
        first: The number of the first column in the genome.
    """
    sums = np.zeros(len(centre))
    streams: Int64 = np.arange(len(coefficients))
    if native.available():
        arrays = [*map(np.ascontiguousarray, (centre, philox_keys(*key, streams), coefficients)), sums]
        add_up = native.bind("antithetic_sums", [ADDRESS] * 4 + [DOUBLE] + [INT64] * 3)
        add_up(*(array.ctypes.data for array in arrays), step, first, len(centre), len(coefficients))
        return sums
    for coefficient, stream in zip(coefficients, streams, strict=True):
        perturbation = step * _scaled_deviates(key, stream, None, first, len(centre))
        a, b = (centre + perturbation).astype(np.float32), (centre - perturbation).astype(np.float32)
        sums += coefficient * np.subtract(a, b, dtype=np.float64)
    return sums


def add_noise(weights: Float32, mask: Bool, scale: float, key: StreamsKey, streams: Int64) -> None:
    """Add scale · the deviates of stream streams[i] to row i of weights [n, W]; write 0 where the mask [n, W] is False.

    The scale is rounded to float32, and all arithmetic is float32. Both arrays must be C-contiguous.
    """
    if native.available():
        arrays = [weights, mask, np.ascontiguousarray(philox_keys(*key, streams))]
        add = native.bind("add_noise", [ADDRESS] * 3 + [FLOAT] + [INT64] * 2)
        add(*(array.ctypes.data for array in arrays), scale, *weights.shape)
        return
    weights += np.float32(scale) * normal_rows(*key, streams, weights.shape[1])
    weights[~mask] = 0


def _scaled_deviates(key: StreamsKey, stream: np.int64, scale: Float64 | None, first: int, n: int) -> Float64:
    """Return [n]: deviates number `first` to first + n - 1 of a stream, times their scale [n] if it is given."""
    deviates = normal_rows(*key, np.array([stream]), first + n, first)[0].astype(np.float64)
    scaled: Float64 = deviates if scale is None else scale * deviates
    return scaled
