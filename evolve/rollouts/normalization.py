"""Observation normalization: networks see (observation − mean) / deviation, over all earlier generations.

As in Mania, Guy and Recht (2018, ARS V2) and Salimans et al. (2017), but the same for everybody: the moments of a
generation's observations are merged in the order of their keys, and the next generation is evaluated with them. Nothing
depends on who evaluated what, or when.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.numerics import native, ordered_sum
from evolve.numerics.native import ADDRESS, INT64
from evolve.shapes import Float32, Float64, Int32, Slots, check_shape

_LEAST_DEVIATION = 1e-2  # so that what hardly changes is not blown up
_LIMIT = np.float32(5)  # normalized observations are clipped to ± this
_NAMES = ("observations_count", "observations_moments")


@dataclass(frozen=True)
class Moments:
    """The number of all observations so far, and their sums and sums of squares, [2, O]."""

    count: int
    sums: Float64

    @classmethod
    def none(cls, observation_size: int) -> "Moments":
        """Return the moments of no observation."""
        return cls(0, np.zeros((2, observation_size)))

    def merged(self, lengths: Int32, moments: Float64) -> "Moments":
        """Return these moments and those of a generation together; NaN, of failed episodes, is left out.

        lengths: [P, E]; moments: [P, E, 2, O], sums and sums of squares.
        """
        flat = np.where(np.isfinite(moments), moments, 0.0).reshape(lengths.size, -1)
        total = ordered_sum(np.ascontiguousarray(flat.T)).reshape(self.sums.shape)
        return Moments(self.count + int(lengths.sum(dtype=np.int64)), self.sums + total)

    def normalizer(self) -> Float32:
        """Return [2, O]: what is subtracted from an observation, and what the difference is multiplied by."""
        if not self.count:
            return np.stack([np.zeros(self.sums.shape[1], np.float32), np.ones(self.sums.shape[1], np.float32)])
        mean = self.sums[0] / self.count
        variance = np.maximum(self.sums[1] / self.count - mean * mean, _LEAST_DEVIATION * _LEAST_DEVIATION)
        normalizer: Float32 = np.stack([mean, 1 / np.sqrt(variance)]).astype(np.float32)
        return normalizer

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return them as named arrays, for a checkpoint."""
        return dict(zip(_NAMES, (np.array([self.count]), self.sums), strict=True))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], observation_size: int) -> "Moments":
        """Return the moments of those arrays. Raises ValueError when one is missing or has another shape."""
        for name in _NAMES:
            if name not in arrays:
                raise ValueError(f"checkpoint: {name} is missing")
        count, sums = (np.asarray(arrays[name]) for name in _NAMES)
        check_shape(count, _NAMES[0], "1", np.int64)
        check_shape(sums, _NAMES[1], "2 O", np.float64, O=observation_size)
        return cls(int(count[0]), sums)


class NormalizationStructure(ctypes.Structure):
    """`normalization` of numerics/kernels/normalization.h; it keeps none of the arrays that it points to alive."""

    _fields_ = (
        ("size", INT64), ("observations", ADDRESS), ("normalizers", ADDRESS), ("moments", ADDRESS), ("seen", ADDRESS),
    )  # fmt: skip


class ObservationNormalizer:
    """Normalizes the observations of B slots and adds up their moments; every back end gives the same bits.

    observations: [B, O], C-contiguous, the array that `normalize` reads. Attribute `normalized`: [B, O], the array into
    which it writes natively.
    """

    def __init__(self, observations: Float32, backend: native.Backend) -> None:
        slots, O = observations.shape
        self._observations = observations
        self.normalized = np.zeros_like(observations)
        self._normalizers = np.zeros((slots, 2, O), np.float32)
        self._moments = np.zeros((slots, 2, O))
        self._native = backend == "native"
        if self._native:
            arrays = (observations, self._normalizers, self._moments, self.normalized)
            self._arguments = NormalizationStructure(O, *(array.ctypes.data for array in arrays))
            self._address = ctypes.addressof(self._arguments)
            self._kernel = native.bind("normalize", [ADDRESS, INT64])

    def begin(self, slots: Slots, normalizers: Float32) -> None:
        """Begin episodes in slots [k], with their normalizers [k, 2, O]."""
        self._normalizers[slots] = normalizers
        self._moments[slots] = 0

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy slots onto others."""
        for array in (self._normalizers, self._moments):
            array[targets] = array[sources]

    def normalize(self, n: int) -> Float32:
        """Return [n, O]: the observations of the first n slots, normalized; valid until the next call."""
        if self._native:
            self._kernel(self._address, n)
            return self.normalized[:n]
        x = self._observations[:n]
        normalizers = self._normalizers[:n]
        moments = self._moments[:n]
        wide = x.astype(np.float64)
        moments[:, 0] += wide
        moments[:, 1] += wide * wide  # exact: 24 bits by 24
        with np.errstate(over="ignore"):
            normalized = (x - normalizers[:, 0]) * normalizers[:, 1]
        clipped: Float32 = np.minimum(np.maximum(normalized, -_LIMIT), _LIMIT)
        return clipped

    def moments(self, slots: Slots) -> Float64:
        """Return [k, 2, O]: the sums, and the sums of squares, of the observations of slots' episodes."""
        return self._moments[slots]
