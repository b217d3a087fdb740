"""Normalizing what the episodes in B slots see, and adding up the moments of it."""

import ctypes

import numpy as np

from evolve.numerics import native
from evolve.shapes import Float32, Float64, Slots

MOST = np.float32(5)
"""Normalized observations are clipped to ± this."""


class Normalizing:
    """B slots, each with the normalizer of its episode; every back end gives the same bits.

    observations: [B, O], C-contiguous, the array in which `see` finds what slots see.
    """

    def __init__(self, observations: Float32, backend: native.Backend) -> None:
        slots, O = observations.shape
        self._observations, self._seen = observations, np.zeros_like(observations)
        self._normalizers, self._moments = np.zeros((slots, 2, O), np.float32), np.zeros((slots, 2, O))
        self._native = backend == "native"
        if self._native:
            arrays = observations, self._normalizers, self._moments, self._seen
            self._kernel, self._arguments = native.normalize(*arrays)
            self._address = ctypes.addressof(self._arguments)

    def begin(self, slots: Slots, normalizers: Float32) -> None:
        """Put normalizers [k, 2, O] into slots [k], and forget what these have seen."""
        self._normalizers[slots], self._moments[slots] = normalizers, 0

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy slots onto others."""
        for array in (self._normalizers, self._moments):
            array[targets] = array[sources]

    def see(self, n: int) -> Float32:
        """Return [n, O]: what the first n slots see, normalized; valid until this is asked again."""
        if self._native:
            self._kernel(self._address, n)
            return self._seen[:n]
        x, normalizers, moments = self._observations[:n], self._normalizers[:n], self._moments[:n]
        wide = x.astype(np.float64)
        moments[:, 0] += wide
        moments[:, 1] += wide * wide  # exact: 24 bits by 24
        with np.errstate(over="ignore"):
            seen = (x - normalizers[:, 0]) * normalizers[:, 1]
        clipped: Float32 = np.minimum(np.maximum(seen, -MOST), MOST)
        return clipped

    def of(self, slots: Slots) -> Float64:
        """Return [k, 2, O]: the sums, and the sums of squares, of what slots have seen."""
        return self._moments[slots]
