"""The fingerprints and trails of the episodes that run in B slots: of what networks see, and of what they do."""

import ctypes

import numpy as np
from numpy.typing import NDArray

from evolve.fingerprint import LONGEST_TRAIL, QUIET_NAN, coefficients, fold, update
from evolve.numerics import native
from evolve.shapes import Float32, Int32, Slots, UInt8, UInt64

_FIRST_ROOM = 256  # steps


class EpisodeFingerprints:
    """B slots, each with the two fingerprints of its episode and their trails; every back end gives the same bits.

    observations: [B, O], C-contiguous, the array in which `note` finds what slots see. action_size: A.
    """

    def __init__(self, observations: Float32, action_size: int, backend: native.Backend) -> None:
        slots = len(observations)
        self._observations, self._action_size, self._native = observations, action_size, backend == "native"
        self._states, self._steps = np.zeros((slots, 2), np.uint64), np.zeros(slots, np.int32)
        self._coefficients = coefficients(max(observations.shape[1], action_size))
        self._longest = 0  # at least the steps of every slot
        self._trails: UInt8 = np.zeros((slots, _FIRST_ROOM, 2), np.uint8)
        self._bind()

    def begin(self, slots: Slots) -> None:
        """Forget what slots [k] have done."""
        self._states[slots], self._steps[slots] = 0, 0

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy slots onto others."""
        for array in (self._states, self._steps, self._trails):
            array[targets] = array[sources]

    def note(self, outputs: Float32) -> None:
        """Take in one step of the first n slots: what they see, and network outputs [n, A]."""
        if self._longest == self._trails.shape[1]:
            self._make_room()
        self._longest += 1
        n = len(outputs)
        if self._native:
            self._kernel(self._address, native.address(np.ascontiguousarray(outputs)), n)
            return
        for which, rows in enumerate((self._observations[:n], outputs)):
            self._states[:n, which] = update(self._states[:n, which], fold(_words(rows)))
        at = np.flatnonzero(self._steps[:n] < self._trails.shape[1])
        self._trails[at, self._steps[at]] = self._states[at] >> np.uint64(56)
        self._steps[:n] += 1

    def of(self, slots: Slots, lengths: Int32) -> tuple[UInt64, UInt8]:
        """Return fingerprints [k, 2] and, end to end, the trails [Σ min(length, LONGEST_TRAIL), 2] of slots [k]."""
        kept = np.minimum(lengths, LONGEST_TRAIL)
        longest = int(kept.max(initial=0))
        pairs = self._trails.view(np.uint16)[slots, :longest, 0][np.arange(longest) < kept[:, None]]
        return self._states[slots], pairs.view(np.uint8).reshape(-1, 2)

    def _make_room(self) -> None:
        """Double the trails, unless no episode has come to their end yet, or they are long enough."""
        self._longest = int(self._steps.max())
        room = self._trails.shape[1]
        if self._longest < room:
            return
        if room < LONGEST_TRAIL:
            self._trails = np.concatenate([self._trails, np.zeros_like(self._trails)], axis=1)
            self._bind()
        else:
            self._longest = -(2**62)  # never again

    def _bind(self) -> None:
        if self._native:
            arrays = self._observations, self._coefficients, self._states, self._steps, self._trails
            self._kernel, self._arguments = native.fingerprint(self._action_size, *arrays)
            self._address = ctypes.addressof(self._arguments)


def _words(rows: Float32) -> NDArray[np.uint32]:
    words = np.ascontiguousarray(rows).view(np.uint32)
    strange = np.isnan(rows)
    return np.where(strange, np.uint32(QUIET_NAN), words) if strange.any() else words
