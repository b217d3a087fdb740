"""Observation normalization: networks see (observation − mean) / deviation, over all earlier generations.

As in Mania, Guy and Recht (2018, ARS V2) and Salimans et al. (2017), but the same for everybody: the moments of a
generation's observations are merged in the order of their keys when it is told, and the next generation is evaluated
with them. Nothing depends on who evaluated what, or when.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.numerics import ordered_sum
from evolve.shapes import Float32, Float64, Int32, expect

_LEAST_DEVIATION = 1e-2  # so that what hardly changes is not blown up
_NAMES = ("observations_count", "observations_moments")


@dataclass(frozen=True)
class Moments:
    """Of all observations so far: how many, and their sums and sums of squares, [2, O]."""

    count: int
    sums: Float64

    @classmethod
    def none(cls, observation_size: int) -> "Moments":
        """Return the moments before anything has been seen."""
        return cls(0, np.zeros((2, observation_size)))

    def merged(self, lengths: Int32, moments: Float64) -> "Moments":
        """Return them with those of a generation: lengths [P, E], moments [P, E, 2, O]; NaN, of failures, left out."""
        flat = np.where(np.isfinite(moments), moments, 0.0).reshape(lengths.size, -1)
        total = ordered_sum(np.ascontiguousarray(flat.T)).reshape(self.sums.shape)
        return Moments(self.count + int(lengths.sum(dtype=np.int64)), self.sums + total)

    def normalizer(self) -> Float32:
        """Return [2, O]: what is subtracted from an observation, and what the rest is multiplied by."""
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
        expect(count, _NAMES[0], "1", np.int64)
        expect(sums, _NAMES[1], "2 O", np.float64, O=observation_size)
        return cls(int(count[0]), sums)
