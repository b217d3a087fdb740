"""The digest of runs before it was defined by candidate, to find the digests of earlier versions again."""

import hashlib

import numpy as np

from evolve import store
from evolve.genome import DIGEST_START


def old_chain_digest(previous, genomes, returns_pe, lengths_pe):
    """Return sha256(previous ‖ all weights ‖ all masks ‖ returns ‖ lengths), 32 bytes.

    Arrays enter as little-endian C-order bytes: float32, one byte per mask entry, float64 (any NaN as the one quiet
    NaN), int32.
    """
    returns_pe = np.where(np.isnan(returns_pe), np.nan, returns_pe)
    arrays = ((genomes.weights, "<f4"), (genomes.mask, "u1"), (returns_pe, "<f8"), (lengths_pe, "<i4"))
    whole = b"".join(np.ascontiguousarray(array, dtype).tobytes() for array, dtype in arrays)
    return hashlib.sha256(previous + whole).digest()


def old_digests(path):
    """Return the digests of earlier versions, in hexadecimal, of a run file that has all genomes."""
    found, previous = [], DIGEST_START
    for generation, record in enumerate(store.read(path).records):
        genomes = store.population(path, generation)
        previous = old_chain_digest(previous, genomes, record.returns, record.lengths)
        found.append(previous.hex())
    return found
