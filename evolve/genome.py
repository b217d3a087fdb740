"""Genomes: the heritable part of a population, and the digest that proves two populations equal."""

import hashlib
from dataclasses import dataclass

import numpy as np

from evolve.fingerprint import fold_present
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt64, expect

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
        expect(self.weights, "weights", "P W", np.float32)
        P, W = self.weights.shape
        expect(self.mask, "mask", "P W", np.bool_, P=P, W=W)

    def __len__(self) -> int:
        return len(self.weights)

    def take(self, candidates: Int64) -> "Genomes":
        """Return copies of the given candidates, in that order."""
        return Genomes(self.weights[candidates], self.mask[candidates])

    def connections(self) -> Int32:
        """Return [P] int32: the connections each candidate has left."""
        left: Int32 = np.count_nonzero(self.mask, axis=1).astype(np.int32)
        return left

    def fingerprints(self) -> UInt64:
        """Return [P]: 64 bits that stand for each candidate's connections and weights."""
        return fold_present(self.weights, self.mask)


def pruned(weights: Float32, mask: Bool) -> Genomes:
    """Return genomes whose absent connections weigh exactly (positive) zero, so that equal networks have equal bits."""
    return Genomes(np.where(mask, weights, np.float32(0)), mask)


def concatenate(*parts: Genomes) -> Genomes:
    """Return the genomes of all parts, end to end."""
    return Genomes(np.concatenate([p.weights for p in parts]), np.concatenate([p.mask for p in parts]))


def chain_digest(previous: bytes, genomes: Genomes, returns_pe: Float64, lengths_pe: Int32) -> bytes:
    """Return sha256(previous ‖ weights ‖ masks ‖ returns ‖ lengths), 32 bytes.

    Arrays enter as little-endian C-order bytes: float32, one byte (0 or 1) per mask entry, float64 (any NaN as the
    one quiet NaN, since CPUs differ in the sign of theirs), int32.
    """
    returns_pe = np.where(np.isnan(returns_pe), np.nan, returns_pe)
    state = hashlib.sha256(previous)
    for array, dtype in ((genomes.weights, "<f4"), (genomes.mask, "u1"), (returns_pe, "<f8"), (lengths_pe, "<i4")):
        state.update(np.ascontiguousarray(array, dtype=dtype).tobytes())
    return state.digest()
