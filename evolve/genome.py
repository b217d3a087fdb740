"""Genomes: the numbers that evolve, their layout, and the digest that proves two populations equal.

A genome consists of W numbers and a mask. Most often the numbers are the weights of a network, laid end to end. The
mask is True for numbers that are present. A strategy makes `Genomes`. It knows their `GenomeLayout`, but neither the
network nor the task.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError, check_whole
from evolve.numerics.hashing import count_present, fold_present, sha256
from evolve.numerics.perturbation import Factors
from evolve.numerics.streams import AnyStream, Stream
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64, check_shape, read_only

DIGEST_START = bytes(32)
"""The digest before generation 0."""


@dataclass(frozen=True, eq=False)
class Genomes:
    """The genomes of P candidates.

    weights: [P, W] float32, all layers laid end to end; exactly zero where the mask is False.
    mask: [P, W] bool, True where a connection is present.
    """

    weights: Float32
    mask: Bool

    def __post_init__(self) -> None:
        check_shape(self.weights, "weights", "P W", np.float32)
        P, W = self.weights.shape
        check_shape(self.mask, "mask", "P W", np.bool_, P=P, W=W)

    def __len__(self) -> int:
        return len(self.weights)

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same weights and masks."""
        if not isinstance(other, Genomes):
            return NotImplemented
        return np.array_equal(self.weights, other.weights) and np.array_equal(self.mask, other.mask)

    # Equality compares the values of arrays, and arrays have no hash.
    __hash__ = None  # type: ignore[assignment]

    @property
    def num_weights(self) -> int:
        """W, the number of weights of a genome."""
        return int(self.weights.shape[1])

    def take(self, candidates: Int64 | slice) -> "Genomes":
        """Return copies of the given candidates, in the given order; views if they are a slice."""
        return Genomes(self.weights[candidates], self.mask[candidates])

    def connections(self) -> Int32:
        """Return [P] int32: the number of each candidate's connections."""
        return count_present(self.mask)

    def fingerprints(self) -> UInt64:
        """Return [P]: a 64-bit hash of each candidate's connections and weights."""
        return fold_present(self.weights, self.mask)


@dataclass(frozen=True, eq=False)
class FactoredGenomes(Genomes):
    """Genomes with perturbations of low rank around one centre. They also have the factors of these perturbations.

    All connections are present. A kernel may compute the weights from the factors, with the same bits.
    """

    factors: Factors

    def take(self, candidates: Int64 | slice) -> "FactoredGenomes":
        """Return copies of the given candidates, in the given order; views if they are a slice."""
        return FactoredGenomes(self.weights[candidates], self.mask[candidates], self.factors.take(candidates))


class GenomeSource(Protocol):
    """P numbered genomes: `Genomes` in memory, or a lazy source, whose `take` computes genomes."""

    def __len__(self) -> int:
        """P, the number of genomes."""

    @property
    def num_weights(self) -> int:
        """W, the number of weights of a genome."""

    def take(self, candidates: Int64) -> Genomes:
        """Return the given candidates, in the given order."""


@dataclass(frozen=True)
class SelectedGenomes:
    """A selection of P genomes of a lazy source. candidates: [P], the numbers of the genomes in the source."""

    source: GenomeSource
    candidates: Int64

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def num_weights(self) -> int:
        """W, the number of weights of a genome."""
        return self.source.num_weights

    def take(self, candidates: Int64) -> Genomes:
        """Return the given candidates, by their numbers in this selection, in the given order."""
        return self.source.take(self.candidates[candidates])


def select(source: GenomeSource, candidates: Int64) -> GenomeSource:
    """Return some genomes of a source: `Genomes` if the source has them in memory, otherwise a lazy source."""
    if isinstance(source, Genomes):
        return source.take(candidates)
    if isinstance(source, SelectedGenomes):
        # The new selection refers to the source itself, so that selections of selections form no chain.
        return SelectedGenomes(source.source, source.candidates[candidates])
    return SelectedGenomes(source, candidates)


def no_genomes(W: int) -> Genomes:
    """Return P = 0 genomes of W weights."""
    return Genomes(np.zeros((0, W), np.float32), np.zeros((0, W), np.bool_))


NO_GENOMES = no_genomes(0)
"""No genomes, for a message to a rank that computes the genomes itself."""


def pruned(weights: Float32, mask: Bool) -> Genomes:
    """Return genomes whose absent connections have the weight +0.0, so that equal networks have equal bits."""
    return Genomes(np.where(mask, weights, np.float32(0)), mask)


def check_genomes(genomes: Any, P: int, W: int) -> Genomes:
    """Check genomes that code of another package has made, and return them with read-only arrays.

    Raises:
        TypeError: `genomes` are not `Genomes`.
        ValueError: The genomes are not [P, W], a weight is not finite, or the weight of an absent connection is not 0.
    """
    if not isinstance(genomes, Genomes):
        raise TypeError(f"expected evolve.genome.Genomes, got {type(genomes).__name__}")
    check_shape(genomes.weights, "weights", "P W", np.float32, P=P, W=W)
    if genomes.weights[~genomes.mask].any():
        raise ValueError("expected the weight 0 at each absent connection; return evolve.genome.pruned(…)")
    if not np.isfinite(genomes.weights).all():
        raise ValueError("expected finite weights, got NaN or infinity")
    return Genomes(read_only(genomes.weights), read_only(genomes.mask))


def concatenate(*parts: Genomes) -> Genomes:
    """Return the genomes of all parts, end to end."""
    return Genomes(np.concatenate([p.weights for p in parts]), np.concatenate([p.mask for p in parts]))


def one_genome(values: Any, argument: str) -> Genomes:
    """Return `values` if they are one genome (P = 1), otherwise a genome with these weights, [W] or [1, W].

    A genome of weights has all connections. Raises InputError for several genomes, and for weights that are not finite
    float32 numbers. argument: The name of `values` in errors.
    """
    if isinstance(values, Genomes):
        if len(values) != 1:
            raise InputError(argument, "one genome", f"{len(values)} of them")
        return values
    try:
        array = np.asarray(values)
        if array.dtype.kind in "cSU":  # complex numbers, bytes and strings, which `astype` would convert
            raise TypeError
        with np.errstate(over="ignore"):  # infinity is refused below
            weights = array.astype(np.float32)
    except (TypeError, ValueError, OverflowError):
        raise InputError(argument, "numbers, or a genome", repr(values)) from None
    if weights.ndim == 2 and len(weights) == 1:  # [1, W], as in `Genomes`
        weights = weights[0]
    if weights.ndim != 1 or not weights.size:
        raise InputError(argument, "a vector of numbers", f"an array of shape {list(weights.shape)}")
    is_finite = np.isfinite(weights)
    if not is_finite.all():
        first = int(np.argmin(is_finite))  # the first one that is not finite
        raise InputError(argument, "finite float32 numbers", f"{weights[first]} in place {first}")
    return Genomes(weights[None], np.ones((1, len(weights)), np.bool_))


@dataclass(frozen=True)
class Block:
    """One matrix inside a genome: weights[start:stop] is [rows, columns], row-major.

    layer: The layer that the matrix feeds. The blocks of one layer are contiguous, so a strategy can swap whole layers.
    source: The number of the vector that the matrix multiplies. Source 0 is the observation, and source l + 1 is the
        output of layer l. If l ≥ layer, the connections are recurrent: they read the output of the previous step. If
        the matrix has one row more than the source has nodes, the last row holds the biases.
    span: None if the numbers are weights. If they are coefficients of learning rules, the shape [rows, columns] of the
        connections that learn by these rules. If the block has only one row, all rows of connections share this row. If
        it has only one column, all columns share this column.
    name: The name of the matrix in the formulas of its network; "" if it has none, see `title`.
    """

    layer: int
    source: int
    start: int
    rows: int
    columns: int
    span: tuple[int, int] | None = None
    name: str = ""

    @property
    def title(self) -> str:
        """The name, or "W_0_1" for the matrix from source 1 to layer 0."""
        return self.name or f"W_{self.layer}_{self.source}"

    @property
    def stop(self) -> int:
        """The end of the block in a genome."""
        return self.start + self.rows * self.columns

    @property
    def shape(self) -> tuple[int, int]:
        """The shape [rows, columns] of the connections: the span, or the shape of the matrix if there is no span."""
        return self.span or (self.rows, self.columns)


class GenomeLayout(Protocol):
    """The size of a genome, the groups of its numbers, and the distribution of initial genomes.

    A layout may also have these attributes:

    - `evolves_weights`: False if the weights have no effect and only the mask evolves. The default is True.
    - `batched_init`: True if `init` also takes `Streams`, and returns a genome for each stream, with the same bits as
      for that stream alone (`Stream`). The default is False.
    """

    @property
    def num_weights(self) -> int:
        """W, the number of weights of a genome."""

    @property
    def num_traces(self) -> int:
        """T, the number of traces after an episode: W if the connections keep Hebbian traces, else 0."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The matrices of the genome, end to end."""

    def init(self, stream: Stream) -> Genomes:
        """Return one initial genome, P = 1."""


@dataclass(frozen=True)
class VectorLayout:
    """The layout of genomes without a network: vectors of `size` numbers, all present, in one block.

    init_scale: The standard deviation of the initial numbers, which are normally distributed with mean 0.
    """

    size: int
    init_scale: float = 1.0

    # Annotations would make these two fields of the data class.
    num_traces = 0  # without a network there are no traces
    batched_init = True  # see `GenomeLayout`

    def __post_init__(self) -> None:
        check_whole("genome_size", self.size, 1)

    @property
    def num_weights(self) -> int:
        """W, the size of the vector."""
        return self.size

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The vector, as the only column of a matrix."""
        return (Block(layer=0, source=0, start=0, rows=self.size, columns=1),)

    def init(self, stream: AnyStream) -> Genomes:
        """Return one initial genome for each stream."""
        weights = np.float32(self.init_scale) * stream.normal_rows(self.size)
        return Genomes(weights, np.ones(weights.shape, np.bool_))


@dataclass(frozen=True)
class GenomeDescriptions:
    """Descriptions of n genomes, which a rank keeps or sends instead of the genomes themselves.

    digests: [n, 32] uint8, see `candidate_digests`.
    connections: [n] int32, the number of connections.
    genome_fingerprints: [n], see `Genomes.fingerprints`.
    """

    digests: UInt8
    connections: Int32
    genome_fingerprints: UInt64


def describe(genomes: Genomes) -> GenomeDescriptions:
    """Return the descriptions of genomes."""
    return GenomeDescriptions(candidate_digests(genomes), genomes.connections(), genomes.fingerprints())


def candidate_digests(genomes: Genomes) -> UInt8:
    """Return [P, 32]: sha256(weights ‖ mask) of each candidate.

    The weights [W] are little-endian float32. The mask [W] has one byte, 0 or 1, for each weight.
    """
    return sha256(genomes.weights, genomes.mask)


def chain_digest(
    previous: bytes, digests: UInt8, returns: Float64, lengths: Int32, metrics: Mapping[str, NDArray[Any]] | None = None
) -> bytes:
    """Return the digest of a generation, which proves this generation and all earlier ones.

    The digest is sha256(previous ‖ digest of candidate 0 ‖ … ‖ digest of candidate P - 1 ‖ returns ‖ lengths ‖
    metrics). Arrays are hashed in C order.

    Args:
        previous: The digest of the previous generation; `DIGEST_START` for generation 0.
        digests: [P, 32], the result of `candidate_digests`.
        returns: [P, E], hashed as little-endian float64. One quiet NaN replaces every NaN, because CPUs differ in the
            sign of NaN.
        lengths: [P, E], hashed as little-endian int32.
        metrics: The metrics by name, [P, E] each, hashed in the order of their names. A metric is its name in UTF-8, a
            zero byte, and its values as float64. The values of failed episodes count as 0.

    Returns:
        32 bytes.
    """
    state = hashlib.sha256(previous)
    state.update(digests.tobytes())
    failed = np.isnan(returns)
    state.update(_canonical(returns))
    state.update(np.asarray(lengths, "<i4").tobytes())
    # Convert all metrics to float64, because a run file may store a metric in a wider type than the run had.
    for name, values in sorted((metrics or {}).items()):
        numbers = np.where(failed, 0.0, values.astype(np.float64))
        state.update(name.encode() + b"\0")
        state.update(_canonical(numbers))
    return state.digest()


def _canonical(numbers: Float64) -> bytes:
    """Return the bytes of numbers as little-endian float64, with one quiet NaN."""
    canonical = np.where(np.isnan(numbers), np.nan, numbers)
    return canonical.astype("<f8").tobytes()
