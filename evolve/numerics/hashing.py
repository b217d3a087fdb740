"""Fingerprints: 64-bit hashes that compare the observations and actions of two runs without storing them.

The *fold* of a row of k 32-bit words w is Σ c_i w_i mod 2**64, with fixed odd c_i (multilinear hashing; Lemire and
Kaser, 2014). Sums of integers do not depend on their order. Rows that differ in one word have different folds.

An episode has two fingerprints h, of its observations and of its actions. Each step updates h by the fold of one row:
h ← mix((h ⊕ fold) · M). M is `MULTIPLIER`, and mix(h) = h ⊕ (h >> 32). Each update is a bijection of h, so equal rows
after a difference cannot undo the difference. The step hashes of an episode are the top bytes of both h after each
step. They show the first step in which two episodes differ.
"""

import ctypes
import hashlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

from evolve.numerics import native
from evolve.numerics.native import ADDRESS, INT64
from evolve.shapes import Bool, Float32, Int32, Slots, UInt8, UInt64

MAX_HASHED_STEPS = 4096
"""The largest number of step hashes of an episode. Its fingerprints cover all steps."""
MULTIPLIER = 0x9E3779B97F4A7C15
QUIET_NAN = 0x7FC00000
"""The word that replaces every NaN, because CPUs differ in the sign of a NaN."""
_ABSENT = np.uint32(0xFFFFFFFF)  # the word of an absent value; as a float32 it is a NaN that no network computes
_BLOCK = 2**18  # the number of values that are folded at a time, to limit memory
_FIRST_CAPACITY = 256  # the initial capacity of step hashes, in steps
# From this number of rows on, `sha256` calls the native kernel instead of hashlib. On a CPU without instructions for
# SHA-256, the kernel hashes 8 rows in the time of one.
_FEWEST_ROWS = 8


@cache
def coefficients(n: int) -> UInt64:
    """Return [n]: the odd numbers c_i, by SplitMix64 (Steele, Lea and Flood, 2014)."""
    z = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(MULTIPLIER)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    odd: UInt64 = (z ^ (z >> np.uint64(31))) | np.uint64(1)
    odd.flags.writeable = False
    return odd


def fold(words: NDArray[np.uint32]) -> UInt64:
    """Return [n]: the fold of each row of words [n, k]."""
    return (words * coefficients(words.shape[1])).sum(axis=1, dtype=np.uint64)


def fold_present(values: Float32, present: Bool) -> UInt64:
    """Return [n]: the fold of each row of values [n, k]. A value that is not `present` [n, k] counts as `_ABSENT`."""
    n, k = values.shape
    folds = np.empty(n, np.uint64)
    if native.available():
        native.call("fold_present", values, present, coefficients(k), folds, n, k)
        return folds
    rows_at_once = max(1, _BLOCK // max(1, k))
    for first in range(0, n, rows_at_once):
        rows = slice(first, first + rows_at_once)
        folds[rows] = fold(np.where(present[rows], values[rows].view(np.uint32), _ABSENT))
    return folds


def sha256(values: Float32, present: Bool) -> UInt8:
    """Return [n, 32]: SHA-256 of each row of values [n, k] as little-endian float32, followed by its row of `present`.

    present: [n, k], one byte for each value, 1 or 0.
    """
    n, k = values.shape
    rows, present = np.asarray(values, "<f4", order="C"), np.ascontiguousarray(present)
    digests = np.empty((n, 32), np.uint8)
    if n >= _FEWEST_ROWS and native.available():
        native.call("sha256", rows, 4 * k, present, k, digests, n)
        return digests
    for row, mask, digest in zip(rows, present.view(np.uint8), digests, strict=True):
        state = hashlib.sha256(row)
        state.update(mask)
        digest[:] = np.frombuffer(state.digest(), np.uint8)
    return digests


def count_present(present: Bool) -> Int32:
    """Return [n]: the number of True values in each row of `present` [n, k]."""
    if not native.available():
        return np.count_nonzero(present, axis=1).astype(np.int32)
    counts = np.empty(len(present), np.int32)
    native.call("count_present", present, counts, *present.shape)
    return counts


def updated(fingerprints: UInt64, folds: UInt64) -> UInt64:
    """Return the fingerprints [n] after a step: the earlier fingerprints [n], updated by the folds [n] of its rows."""
    h = (fingerprints ^ folds) * np.uint64(MULTIPLIER)
    return h ^ (h >> np.uint64(32))


class FingerprintsStructure(ctypes.Structure):
    """The C structure `fingerprints` of kernels/fingerprints.h. The caller keeps its arrays alive."""

    _fields_ = (
        ("sizes", INT64 * 2), ("max_hashes", INT64), ("observations", ADDRESS), ("coefficients", ADDRESS),
        ("states", ADDRESS), ("steps", ADDRESS), ("step_hashes", ADDRESS),
    )  # fmt: skip


class StepHashes:
    """The fingerprints of the observations and of the actions of B slots, and the step hashes of both.

    Every back end gives the same bits.

    Args:
        observations: [B, O], C-contiguous. `update` reads this array.
        outputs: [B, A], C-contiguous, the outputs of the networks. `update` reads this array, too.
        backend: The back end.
    """

    def __init__(self, observations: Float32, outputs: Float32, backend: native.Backend) -> None:
        slots = len(observations)
        self.observations, self.outputs = observations, outputs
        self._outputs_address = ADDRESS(outputs.ctypes.data)
        self._native = backend == "native"
        self._states = np.zeros((slots, 2), np.uint64)  # the fingerprints
        self._steps = np.zeros(slots, np.int32)  # the number of steps of each episode so far
        # Longer arrays of coefficients begin with the shorter ones, so observations and outputs share one array.
        self._coefficients = coefficients(max(observations.shape[1], outputs.shape[1]))
        # An upper bound on `_steps`, because computing the maximum in each `update` would be slow.
        self._most_steps = 0
        self._hashes: UInt8 = np.zeros((slots, _FIRST_CAPACITY, 2), np.uint8)
        if self._native:
            self._kernel = native.bind("fingerprint", [ADDRESS, ADDRESS, INT64])
        self._fill_structure()

    def begin(self, slots: Slots) -> None:
        """Begin episodes in slots [k]."""
        self._states[slots] = 0
        self._steps[slots] = 0

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy slots `sources` to slots `targets`."""
        for array in (self._states, self._steps, self._hashes):
            array[targets] = array[sources]

    def update(self, n: int) -> None:
        """Hash one step of the first n slots: their observations and outputs."""
        if self._most_steps == self._hashes.shape[1]:
            self._grow()
        self._most_steps += 1
        if self._native:
            self._kernel(self._address, self._outputs_address, n)
            return
        for column, rows in enumerate((self.observations, self.outputs)):
            self._states[:n, column] = updated(self._states[:n, column], fold(_words(rows[:n])))
        # Only slots beyond `MAX_HASHED_STEPS` steps are left out: until then `_grow` keeps the capacity above `_steps`.
        slots = np.flatnonzero(self._steps[:n] < self._hashes.shape[1])
        self._hashes[slots, self._steps[slots]] = self._states[slots] >> np.uint64(56)  # the top byte
        self._steps[:n] += 1

    def of(self, slots: Slots, lengths: Int32) -> tuple[UInt64, UInt8]:
        """Return the fingerprints [k, 2] and the step hashes of slots [k], after episodes of `lengths` [k] steps.

        The step hashes of all episodes are end to end, [Σ min(length, MAX_HASHED_STEPS), 2].
        """
        num_hashes = np.minimum(lengths, MAX_HASHED_STEPS)
        longest = int(num_hashes.max(initial=0))
        # As a uint16 the two bytes of a step are one number, so the last axis has length 1.
        pairs = self._hashes.view(np.uint16)[slots, :longest, 0]
        return self._states[slots], end_to_end(pairs, num_hashes)

    def _grow(self) -> None:
        """Double the capacity if an episode has reached it, up to `MAX_HASHED_STEPS`."""
        # The longest episodes may have ended since, so compute the bound anew.
        self._most_steps = int(self._steps.max())
        capacity = self._hashes.shape[1]
        if self._most_steps < capacity:
            return
        if capacity < MAX_HASHED_STEPS:
            self._hashes = np.concatenate([self._hashes, np.zeros_like(self._hashes)], axis=1)
            self._fill_structure()
        else:
            # Later steps have no hash. The bound stays below the capacity, so `update` never calls `_grow` again.
            self._most_steps = -(2**62)

    def _fill_structure(self) -> None:
        """Write the addresses of the arrays into the structure of the native kernel, if there is one."""
        if self._native:
            arrays = self.observations, self._coefficients, self._states, self._steps, self._hashes
            addresses = (array.ctypes.data for array in arrays)
            sizes = (INT64 * 2)(self.observations.shape[1], self.outputs.shape[1])
            # The kernel has only the address of the structure, so the attribute keeps the structure alive.
            self._arguments = FingerprintsStructure(sizes, self._hashes.shape[1], *addresses)
            self._address = ctypes.addressof(self._arguments)


def end_to_end(pairs: NDArray[np.uint16], counts: Int32) -> UInt8:
    """Return [Σ counts, 2]: the first counts[i] pairs of bytes of each row i of `pairs` [k, longest], end to end.

    A pair of bytes is one uint16.
    """
    return pairs[np.arange(pairs.shape[1]) < counts[:, None]].view(np.uint8).reshape(-1, 2)


def _words(rows: Float32) -> NDArray[np.uint32]:
    """Return the bits of rows as words, with `QUIET_NAN` for every NaN."""
    words = np.ascontiguousarray(rows).view(np.uint32)
    is_nan = np.isnan(rows)
    return np.where(is_nan, np.uint32(QUIET_NAN), words) if is_nan.any() else words
