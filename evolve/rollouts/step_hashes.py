"""Fingerprints and step hashes of the episodes that run in B slots: of their observations and network outputs."""

import ctypes

import numpy as np
from numpy.typing import NDArray

from evolve.numerics import native
from evolve.numerics.hashing import MAX_HASHED_STEPS, QUIET_NAN, coefficients, fold, update
from evolve.numerics.native import ADDRESS, INT64
from evolve.shapes import Float32, Int32, Slots, UInt8, UInt64

_FIRST_CAPACITY = 256  # steps


class _Structure(ctypes.Structure):
    """`fingerprints` of numerics/kernels/fingerprints.h; it keeps none of the arrays that it points to alive."""

    _fields_ = (
        ("sizes", INT64 * 2), ("room", INT64), ("observations", ADDRESS), ("coefficients", ADDRESS),
        ("states", ADDRESS), ("steps", ADDRESS), ("step_hashes", ADDRESS),
    )  # fmt: skip


class StepHashes:
    """The two fingerprints of each of B slots, and a byte of both after each step; every back end gives the same bits.

    observations: [B, O], C-contiguous, the array that `update` reads. action_size: A.
    """

    def __init__(self, observations: Float32, action_size: int, backend: native.Backend) -> None:
        slots = len(observations)
        self._observations = observations
        self._action_size = action_size
        self._native = backend == "native"
        self._states = np.zeros((slots, 2), np.uint64)
        self._steps = np.zeros(slots, np.int32)
        self._coefficients = coefficients(max(observations.shape[1], action_size))
        self._longest = 0  # at least the steps of every slot
        self._hashes: UInt8 = np.zeros((slots, _FIRST_CAPACITY, 2), np.uint8)
        if self._native:
            self._kernel = native.bind("fingerprint", [ADDRESS, ADDRESS, INT64])
        self._bind()

    def begin(self, slots: Slots) -> None:
        """Begin episodes in slots [k]."""
        self._states[slots] = 0
        self._steps[slots] = 0

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy slots onto others."""
        for array in (self._states, self._steps, self._hashes):
            array[targets] = array[sources]

    def update(self, outputs: Float32) -> None:
        """Take in one step of the first n slots: their observations, and network outputs [n, A]."""
        if self._longest == self._hashes.shape[1]:
            self._grow()
        self._longest += 1
        n = len(outputs)
        if self._native:
            self._kernel(self._address, native.address(np.ascontiguousarray(outputs)), n)
            return
        for which, rows in enumerate((self._observations[:n], outputs)):
            self._states[:n, which] = update(self._states[:n, which], fold(_words(rows)))
        at = np.flatnonzero(self._steps[:n] < self._hashes.shape[1])
        self._hashes[at, self._steps[at]] = self._states[at] >> np.uint64(56)
        self._steps[:n] += 1

    def of(self, slots: Slots, lengths: Int32) -> tuple[UInt64, UInt8]:
        """Return fingerprints [k, 2] and step hashes [Σ min(length, MAX_HASHED_STEPS), 2], end to end, of slots [k]."""
        kept = np.minimum(lengths, MAX_HASHED_STEPS)
        longest = int(kept.max(initial=0))
        pairs = self._hashes.view(np.uint16)[slots, :longest, 0][np.arange(longest) < kept[:, None]]
        return self._states[slots], pairs.view(np.uint8).reshape(-1, 2)

    def _grow(self) -> None:
        """Double the capacity, unless no episode has reached it yet, or it is large enough."""
        self._longest = int(self._steps.max())
        capacity = self._hashes.shape[1]
        if self._longest < capacity:
            return
        if capacity < MAX_HASHED_STEPS:
            self._hashes = np.concatenate([self._hashes, np.zeros_like(self._hashes)], axis=1)
            self._bind()
        else:
            self._longest = -(2**62)  # never again

    def _bind(self) -> None:
        if self._native:
            arrays = self._observations, self._coefficients, self._states, self._steps, self._hashes
            addresses = (array.ctypes.data for array in arrays)
            sizes = (INT64 * 2)(self._observations.shape[1], self._action_size)
            self._arguments = _Structure(sizes, self._hashes.shape[1], *addresses)
            self._address = ctypes.addressof(self._arguments)


def _words(rows: Float32) -> NDArray[np.uint32]:
    words = np.ascontiguousarray(rows).view(np.uint32)
    missing = np.isnan(rows)
    return np.where(missing, np.uint32(QUIET_NAN), words) if missing.any() else words
