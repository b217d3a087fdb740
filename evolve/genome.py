"""Genomes: what evolves, how its numbers are laid out, and the digest that proves two populations equal.

The genome of a candidate is W numbers, most often the weights of a network laid end to end, and a mask that says which
of them are present. `GenomeLayout` is all that a strategy knows of what the genomes are for.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from evolve.numerics.hashing import fold_present
from evolve.numerics.streams import Stream
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64, check_shape

DIGEST_START = bytes(32)
"""What the digest of generation 0 is chained to."""


@dataclass(frozen=True)
class Genomes:
    """The genomes of P candidates.

    weights: [P, W] float32, all layers laid end to end; exactly zero where the mask is False.
    mask: [P, W] bool, True where a connection is left.
    """

    weights: Float32
    mask: Bool

    def __post_init__(self) -> None:
        check_shape(self.weights, "weights", "P W", np.float32)
        P, W = self.weights.shape
        check_shape(self.mask, "mask", "P W", np.bool_, P=P, W=W)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def num_weights(self) -> int:
        """W."""
        return int(self.weights.shape[1])

    def take(self, candidates: Int64) -> "Genomes":
        """Return copies of the given candidates, in that order."""
        return Genomes(self.weights[candidates], self.mask[candidates])

    def connections(self) -> Int32:
        """Return [P] int32: the connections each candidate has left."""
        return np.array([np.count_nonzero(row) for row in self.mask], np.int32)  # fast, which along an axis it is not

    def fingerprints(self) -> UInt64:
        """Return [P]: 64 bits that stand for each candidate's connections and weights."""
        return fold_present(self.weights, self.mask)


class GenomeSource(Protocol):
    """P genomes by number: `Genomes` in memory, or what makes them anew whenever some are taken."""

    def __len__(self) -> int:
        """P."""

    @property
    def num_weights(self) -> int:
        """W."""

    def take(self, candidates: Int64) -> Genomes:
        """Return the given candidates, in that order."""


@dataclass(frozen=True)
class SelectedGenomes:
    """Some genomes of a source, by their numbers there [P]; they are made when some are taken."""

    source: GenomeSource
    candidates: Int64

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def num_weights(self) -> int:
        """W."""
        return self.source.num_weights

    def take(self, candidates: Int64) -> Genomes:
        """Return the given candidates, by their numbers here, in that order."""
        return self.source.take(self.candidates[candidates])


def select(source: GenomeSource, candidates: Int64) -> GenomeSource:
    """Return some genomes of a source: in memory where those of the source are."""
    if isinstance(source, Genomes):
        return source.take(candidates)
    if isinstance(source, SelectedGenomes):
        return SelectedGenomes(source.source, source.candidates[candidates])
    return SelectedGenomes(source, candidates)


NO_GENOMES = Genomes(np.zeros((0, 0), np.float32), np.zeros((0, 0), np.bool_))
"""What travels in place of genomes that are made where they are played."""


def pruned(weights: Float32, mask: Bool) -> Genomes:
    """Return genomes whose absent connections weigh exactly (positive) zero, so that equal networks have equal bits."""
    return Genomes(np.where(mask, weights, np.float32(0)), mask)


def concatenate(*parts: Genomes) -> Genomes:
    """Return the genomes of all parts, end to end."""
    return Genomes(np.concatenate([p.weights for p in parts]), np.concatenate([p.mask for p in parts]))


@dataclass(frozen=True)
class Block:
    """One matrix inside a genome: weights[start:stop] is [rows, columns], row-major.

    layer: the layer that the matrix feeds. The blocks of one layer are contiguous, so they can be swapped together.
    source: the layer that the matrix reads. Layer 0 is fed by the observation, which is source 0. Source l + 1 is the
        output of layer l; where l is not an earlier layer, its output of the step before. One row more than the
        source has nodes holds its biases.
    span: only where the numbers are coefficients of learning rules instead of weights: the [rows, columns] of the
        connections that the rules apply to. A block of a single row (or column) applies to all rows (or columns).
    """

    layer: int
    source: int
    start: int
    rows: int
    columns: int
    span: tuple[int, int] | None = None

    @property
    def stop(self) -> int:
        """End of the block inside a genome."""
        return self.start + self.rows * self.columns


class GenomeLayout(Protocol):
    """How large a genome is, how its numbers are grouped, and how the first ones are drawn.

    A layout may also have an attribute

    - `evolves_weights`, True by default; it is False where the weights have no effect and only the mask evolves;
    - `inits_many`, False by default: whether `init` takes the streams of many candidates too, as
      `evolve.numerics.streams.Streams`, and returns a genome for each, equal to that of its stream alone.
    """

    @property
    def num_weights(self) -> int:
        """W, the weights of one genome."""

    @property
    def num_traces(self) -> int:
        """T, the trace values that one episode leaves: W, one for each connection, or 0."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The matrices, in genome order; they tile the genome."""

    def init(self, stream: Stream) -> Genomes:
        """Return one initial genome, P = 1."""


@dataclass(frozen=True)
class GenomeDescriptions:
    """What is kept of n genomes where they themselves are not.

    digests: [n, 32] uint8, see `candidate_digests`. connections: [n] int32, how many are left. fingerprints: [n].
    """

    digests: UInt8
    connections: Int32
    fingerprints: UInt64


def describe(genomes: Genomes) -> GenomeDescriptions:
    """Return the descriptions of genomes."""
    digests = np.frombuffer(b"".join(candidate_digests(genomes)), np.uint8).reshape(len(genomes), 32)
    return GenomeDescriptions(digests, genomes.connections(), genomes.fingerprints())


def candidate_digests(genomes: Genomes) -> list[bytes]:
    """Return sha256(weights ‖ mask) of each candidate, 32 bytes each.

    weights: its row [W] as little-endian float32; mask: its row [W] as one byte (0 or 1) per entry.
    """
    present: UInt8 = np.ascontiguousarray(genomes.mask).view(np.uint8)
    rows = zip(np.asarray(genomes.weights, "<f4", order="C"), present, strict=True)
    digests = []
    for weights, mask in rows:
        state = hashlib.sha256(weights)
        state.update(mask)
        digests.append(state.digest())
    return digests


def chain_digest(previous: bytes, digests: Sequence[bytes] | UInt8, returns_pe: Float64, lengths_pe: Int32) -> bytes:
    """Return the digest of a generation, which stands for all generations up to it.

    It is sha256(previous ‖ digest of candidate 0 ‖ … ‖ digest of candidate P - 1 ‖ returns ‖ lengths). Arrays enter
    as C-order bytes.

    Args:
        previous: The digest of the generation before; `DIGEST_START` for generation 0.
        digests: P of 32 bytes each, as `candidate_digests` returns them; or [P, 32].
        returns_pe: [P, E], entered as little-endian float64, any NaN as the one quiet NaN: CPUs differ in its sign.
        lengths_pe: [P, E], entered as little-endian int32.

    Returns:
        32 bytes.
    """
    state = hashlib.sha256(previous)
    state.update(digests.tobytes() if isinstance(digests, np.ndarray) else b"".join(digests))
    returns_pe = np.where(np.isnan(returns_pe), np.nan, returns_pe)
    state.update(np.asarray(returns_pe, "<f8").tobytes())
    state.update(np.asarray(lengths_pe, "<i4").tobytes())
    return state.digest()
