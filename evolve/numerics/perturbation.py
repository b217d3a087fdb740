"""Perturbations: strategies make candidates by adding normal random numbers (deviates) to the weights of a centre.

Stream number c of a key (seed, purpose, generation) is `Stream(seed, purpose, generation, c)`. Each function has a
native kernel, which reads and writes each number only once. Array operations define the result; the kernel gives the
same bits.

For sums over all candidates, each rank computes its own columns, a range of the W weights of a genome. The range begins
at weight number `first`, so the rank skips the deviates of earlier columns.

A perturbation of low rank is a product of two small matrices. The idea is from Sarkar et al., "Evolution Strategies at
the Hyperscale" (2025). r(m + n) deviates then perturb the m n weights of a matrix, see `PerturbedMatrix`.
"""

import math
from dataclasses import dataclass

import numpy as np

from evolve.numerics import native
from evolve.numerics.native import ADDRESS
from evolve.numerics.streams import Purpose, normal_rows, philox_keys
from evolve.shapes import Bool, Float32, Float64, Int64, ceil_div

StreamsKey = tuple[int, Purpose | str, int]
"""Seed, purpose and generation of streams."""


def perturbed(
    centre: Float64, mask: Bool, steps: Float64, key: StreamsKey, streams: Int64, scale: Float64 | None = None
) -> Float32:
    """Return [n, W]: row i is centre + steps[i] · scale · deviates of stream streams[i]; 0 where the mask is False.

    The rows are computed in float64, and then rounded.

    Args:
        centre: [W].
        mask: [W].
        steps: [n], the factor of the deviates of each row, such as σ and -σ for an antithetic pair.
        key: The key of the streams.
        streams: [n], the number of the stream of each row. If consecutive rows use one stream, such as an antithetic
            pair, the kernel reads the stream only once.
        scale: [W], by default 1.
    """
    rows = np.empty((len(streams), len(centre)), np.float32)
    if native.available():
        native.call("perturbed", centre, mask, philox_keys(*key, streams), steps, rows, *rows.shape, scale)
        return rows
    for row, step, stream in zip(rows, steps, streams, strict=True):
        row[:] = centre + step * _scaled_deviates(key, stream, scale, 0, len(centre))
    rows[:, ~mask] = 0
    return rows


def moments_about_centre(
    centre: Float64, scale: Float64, steps: Float64, key: StreamsKey, streams: Int64, coefficients: Float64, first: int
) -> Float64:
    """Return [n, 2]: the first and second moments of candidates about the centre, in n columns of the genome.

    The moments are Σ coefficients[i] · d and Σ coefficients[i] · d² over all candidates i, in ascending order. d is the
    difference between the float32 weights of candidate i and the centre:

        d = float32(centre + steps[i] · scale · deviates) - centre

    Args:
        centre: [n], these columns of the centre.
        scale: [n], these columns of the scale.
        steps: The factor of the deviates of each candidate.
        key: The key of the streams.
        streams: The number of the stream of each candidate. If consecutive candidates use one stream, the kernel reads
            the stream only once.
        coefficients: One for each candidate.
        first: The number of the first column in the genome.
    """
    if native.available():
        moments = np.empty((len(centre), 2))
        arrays = centre, scale, philox_keys(*key, streams), steps, coefficients, moments
        native.call("moments_about_centre", *arrays, first, len(centre), len(streams))
        return moments
    sums = np.zeros((2, len(centre)))
    for step, stream, coefficient in zip(steps, streams, coefficients, strict=True):
        weights = (centre + step * _scaled_deviates(key, stream, scale, first, len(centre))).astype(np.float32)
        d = weights.astype(np.float64) - centre
        sums[0] += coefficient * d
        sums[1] += coefficient * (d * d)
    return np.ascontiguousarray(sums.T)


def antithetic_sums(centre: Float64, step: float, key: StreamsKey, coefficients: Float64, first: int) -> Float64:
    """Return [n]: Σ coefficients[i] · (a - b) over all antithetic pairs i, in ascending order, in n columns.

    a and b are the float32 weights of the two candidates of pair i, with the deviates d of stream number i:

        a = float32(centre + step · d)
        b = float32(centre - step · d)

    Args:
        centre: [n], these columns of the centre.
        step: The factor of the deviates of every pair, at least 0.
        key: The key of the streams.
        coefficients: One for each pair.
        first: The number of the first column in the genome.
    """
    sums = np.zeros(len(centre))
    streams = np.arange(len(coefficients))
    if native.available():
        arrays = centre, philox_keys(*key, streams), coefficients, sums
        native.call("antithetic_sums", *arrays, float(step), first, len(centre), len(coefficients))
        return sums
    for coefficient, stream in zip(coefficients, streams, strict=True):
        perturbation = step * _scaled_deviates(key, stream, None, first, len(centre))
        a, b = (centre + perturbation).astype(np.float32), (centre - perturbation).astype(np.float32)
        sums += coefficient * np.subtract(a, b, dtype=np.float64)
    return sums


@dataclass(frozen=True)
class PerturbedMatrix:
    """A matrix [m, n] = [rows, columns] of the genome, and the deviates that perturb it with a step σ.

    A perturbation of rank r is the product of two matrices of deviates, left [r, m] and right [r, n]. The weight in row
    j and column l moves by σ/√r · Σ_k left_kj right_kl. The move has variance σ², like σ times a deviate. In the
    stream, left comes before right. With rank 0 every weight has its own deviate.

    All arithmetic is float32, except that σ/√r · left is computed in float64 and then rounded. A weight is the centre,
    rounded to float32, plus the perturbation. Sums run over k in ascending order.

    start: The number of the first weight of the matrix in the genome.
    first_deviate: The number of the first deviate of the matrix in a stream.
    """

    start: int
    rows: int
    columns: int
    rank: int
    first_deviate: int

    @property
    def stop(self) -> int:
        """The end of the matrix in the genome."""
        return self.start + self.rows * self.columns

    @property
    def num_deviates(self) -> int:
        """The number of deviates of the matrix in a stream."""
        return self.rank * (self.rows + self.columns) if self.rank else self.rows * self.columns

    @property
    def product_shape(self) -> tuple[int, int, int]:
        """m, n and r of the product of the factors. For rank 0, left is only σ, and right one row of all deviates."""
        return (self.rows, self.columns, self.rank) if self.rank else (1, self.rows * self.columns, 1)

    @property
    def factors_size(self) -> int:
        """The number of elements of both factors together, r(m + n)."""
        m, n, r = self.product_shape
        return r * (m + n)

    def factors(self, key: StreamsKey, streams: Int64, steps: Float64, rows: slice) -> tuple[Float32, Float32]:
        """Return the factors of k rows of the matrix, for N streams: σ/√r · left [N, r, k], and right [N, r, n].

        With rank 0 the factors are σ [N, 1, 1], and the deviates of the k rows end to end [N, 1, k n].

        Args:
            key: The key of the streams.
            streams: [N], the numbers of the streams.
            steps: [N], σ of each stream.
            rows: The k rows, a slice of range(m).
        """
        n, r = self.columns, max(self.rank, 1)
        scales = steps / math.sqrt(r)
        if not self.rank:
            begin, end = self.first_deviate + rows.start * n, self.first_deviate + rows.stop * n
            left = np.ones((len(streams), 1, 1), np.float32)
            right = normal_rows(*key, streams, stop=end, first=begin)[:, None]
        else:
            # In a stream, left is r rows of m deviates, and right follows. Of each row of left, compute only the k
            # deviates for these k rows of the matrix.
            end_of_left = self.first_deviate + r * self.rows
            starts = range(self.first_deviate, end_of_left, self.rows)  # of the rows of left in the stream
            parts = [normal_rows(*key, streams, stop=at + rows.stop, first=at + rows.start) for at in starts]
            left = np.stack(parts, axis=1)
            right = normal_rows(*key, streams, stop=end_of_left + r * n, first=end_of_left)
            right = right.reshape(len(streams), r, n)
        return (scales[:, None, None] * left).astype(np.float32), right


Matrices = tuple[PerturbedMatrix, ...]
"""The matrices of a genome, end to end."""


@dataclass(frozen=True)
class Factors:
    """The factors of candidates around one centre.

    centre: [W], rounded to float32.
    matrices: The matrices that are perturbed.
    values: [P, F], the two factors of each matrix (`PerturbedMatrix.factors` for all rows), end to end.
    """

    centre: Float32
    matrices: Matrices
    values: Float32

    @classmethod
    def of(cls, centre: Float32, matrices: Matrices, steps: Float64, key: StreamsKey, streams: Int64) -> "Factors":
        """Return the factors of n candidates: candidate i has stream number streams[i], and its σ is steps[i]."""
        values: list[Float32] = []
        for matrix in matrices:
            left_and_right = matrix.factors(key, streams, steps, slice(0, matrix.rows))
            values += [factor.reshape(len(streams), -1) for factor in left_and_right]
        return cls(centre, matrices, np.concatenate(values, axis=1))

    def take(self, candidates: Int64 | slice) -> "Factors":
        """Return copies of the factors of the given candidates, in the given order; views if they are a slice."""
        return Factors(self.centre, self.matrices, self.values[candidates])

    def weights(self, mask: Bool) -> Float32:
        """Return the weights [P, W] of the candidates; 0 where the mask [W] is False."""
        rows = np.empty((len(self.values), len(self.centre)), np.float32)
        first = 0  # the column of `values` at which the factors of a matrix begin
        for matrix in self.matrices:
            place = slice(matrix.start, matrix.stop)  # of the matrix in the genome
            factors = self.values[:, first : first + matrix.factors_size]
            first += matrix.factors_size
            m, n, r = matrix.product_shape
            if native.available():
                # Pass addresses, because `call` would copy slices of columns. The kernel knows the strides.
                addresses = (ADDRESS(array.ctypes.data) for array in (factors, rows[:, place]))
                sizes = *rows.shape, self.values.shape[1], m, n, r
                native.call("add_products", self.centre[place], mask[place], *addresses, *sizes)
                continue
            for row, left_and_right in zip(rows[:, place], factors, strict=True):
                left, right = np.split(left_and_right, [r * m])
                moves = _product(left.reshape(r, m), right.reshape(r, n)).reshape(-1)
                row[:] = np.where(mask[place], self.centre[place] + moves, np.float32(0))
        return rows


def antithetic_matrix_sums(
    centre: Float64, step: float, key: StreamsKey, coefficients: Float64, matrices: Matrices, columns: slice
) -> Float64:
    """Return [n]: `antithetic_sums` in n columns of the genome, with the perturbations of `PerturbedMatrix`.

    Args:
        centre: [W], the whole centre.
        step: σ of every pair, at least 0.
        key: The key of the streams.
        coefficients: One for each pair.
        matrices: The matrices of the genome, end to end.
        columns: A slice of range(W).
    """
    sums = np.zeros(columns.stop - columns.start)
    streams = np.arange(len(coefficients))
    steps = np.full(len(coefficients), step)
    for matrix in matrices:
        # The part of the columns in this matrix, from `begin` to `end` in the genome.
        begin, end = max(columns.start, matrix.start), min(columns.stop, matrix.stop)
        if begin >= end:
            continue
        # The part may begin and end within a row of the matrix, so compute m whole rows.
        stop_row = ceil_div(end - matrix.start, matrix.columns)
        rows = slice((begin - matrix.start) // matrix.columns, stop_row)
        left, right = matrix.factors(key, streams, steps, rows)
        # With rank 0, m is 1, and n covers the deviates of all rows.
        r, m, n = *left.shape[1:], right.shape[2]
        first = begin - matrix.start - rows.start * matrix.columns  # where the part begins in these rows
        rounded = centre[begin:end].astype(np.float32)
        # A view: both ways below add to `sums` through `total`.
        total = sums[begin - columns.start : end - columns.start]
        if native.available():
            last = first + end - begin - (m - 1) * n  # where the part ends in the last row
            arrays = rounded, left, right, coefficients, total
            native.call("product_sums", *arrays, first, last, m, n, r, len(coefficients))
            continue
        for coefficient, a, b in zip(coefficients, left, right, strict=True):
            moves = _product(a, b).reshape(-1)[first : first + end - begin]
            total += coefficient * np.subtract(rounded + moves, rounded - moves, dtype=np.float64)
    return sums


def add_noise(weights: Float32, mask: Bool, scale: float, key: StreamsKey, streams: Int64) -> None:
    """Add scale · deviates of stream streams[i] to row i of weights [n, W]; write 0 where the mask [n, W] is False.

    The scale is rounded to float32, and all arithmetic is float32. The weights must be C-contiguous.
    """
    if native.available():
        native.call("add_noise", weights, mask, philox_keys(*key, streams), np.float32(scale), *weights.shape)
        return
    weights += np.float32(scale) * normal_rows(*key, streams, weights.shape[1])
    weights[~mask] = 0


def _scaled_deviates(key: StreamsKey, stream: np.int64, scale: Float64 | None, first: int, n: int) -> Float64:
    """Return [n]: deviates `first` to `first` + n - 1 of a stream, multiplied by the scale [n] if there is one."""
    deviates = normal_rows(*key, np.array([stream]), stop=first + n, first=first)[0].astype(np.float64)
    return deviates if scale is None else scale * deviates


def _product(left: Float32, right: Float32) -> Float32:
    """Return [m, n]: Σ_k left[k] ⊗ right[k] in ascending order. left: [r, m]. right: [r, n]."""
    moves: Float32 = left[0, :, None] * right[0]
    for a, b in zip(left[1:], right[1:], strict=True):
        moves = moves + a[:, None] * b
    return moves
