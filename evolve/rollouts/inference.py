"""Inference: in each tick of a rollout, the networks of B slots make a step from observations to outputs.

A slot plays one episode at a time. A step also normalizes observations, and updates the fingerprints of observations
and outputs. On a device, one launch of a kernel does all three. `make_inference` returns a `HostInference` or a
`DeviceInference`.

With normalization, a network sees (observation − mean) / deviation, clipped to ±5. Mean and deviation come from
earlier generations, by default from all (ARS V2, Mania et al., 2018; Salimans et al., 2017). Every rank uses the same
mean and deviation. Rank 0 adds up the moments of a generation, in the order of candidates and episodes, for the next
generation. So the normalization does not depend on the rank that evaluated an episode, or on the time.
"""

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.networks import NETWORKS, Batch, Network
from evolve.networks.network import SlotArrays
from evolve.numerics import Backend, native, ordered_sum
from evolve.numerics.device import DeviceStep
from evolve.numerics.hashing import MAX_HASHED_STEPS, FingerprintsStructure, StepHashes, coefficients, end_to_end
from evolve.numerics.native import ADDRESS, INT64
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, Slots, UInt8, UInt64, read_only, stored_array

_LEAST_DEVIATION = 1e-2  # an observation that hardly changes is magnified at most 100 times
CLIP = np.float32(5)  # normalized observations are clipped to ±CLIP


@dataclass(frozen=True)
class Moments:
    """The number of all observations so far (`count`), and their sums and sums of squares (`sums`, [2, O]).

    origin: The normalizer [2, O] from which `of_normalizer` computed the moments, otherwise None. It is kept, because a
        normalizer computed from the moments could differ in the last bit.
    """

    count: int
    sums: Float64
    origin: Float32 | None = None

    @classmethod
    def none(cls, observation_size: int) -> "Moments":
        """Return the moments before the first observation."""
        return cls(0, np.zeros((2, observation_size)))

    @classmethod
    def of_normalizer(cls, normalizer: Float32, count: int) -> "Moments":
        """Return the moments of `count` observations, computed from their normalizer [2, O]."""
        # The inverse of `normalizer()`: 1 / factor² is the variance, and the mean square is variance + mean².
        mean, factor = normalizer.astype(np.float64)
        return cls(count, np.stack([mean, 1 / (factor * factor) + mean * mean]) * count, normalizer)

    def merged(self, lengths: Int32, moments: Float64) -> "Moments":
        """Return the sum of these moments and the moments of a generation. NaN and infinite moments count as 0.

        lengths: [P, E]. moments: [P, E, 2, O], sums and sums of squares.
        """
        # Each of the 2 · O sums runs over all episodes, in an order that depends only on their number.
        flat = np.where(np.isfinite(moments), moments, 0.0).reshape(lengths.size, -1)
        total = ordered_sum(np.ascontiguousarray(flat.T)).reshape(self.sums.shape)
        return Moments(self.count + int(lengths.sum(dtype=np.int64)), self.sums + total)

    def normalizer(self) -> Float32:
        """Return [2, O]: the mean to subtract from an observation, and the factor for the difference."""
        if self.origin is not None:
            return self.origin
        if not self.count:
            return np.stack([np.zeros(self.sums.shape[1], np.float32), np.ones(self.sums.shape[1], np.float32)])
        mean = self.sums[0] / self.count
        # Rounding can make the computed variance negative. The maximum replaces a negative variance, too.
        variance = np.maximum(self.sums[1] / self.count - mean * mean, _LEAST_DEVIATION * _LEAST_DEVIATION)
        return np.stack([mean, 1 / np.sqrt(variance)]).astype(np.float32)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the moments as named arrays, for a checkpoint, without `origin`: a run takes it from its start."""
        return {"observations_count": np.array([self.count]), "observations_moments": self.sums}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], observation_size: int) -> "Moments":
        """Return the moments of `to_arrays`. Raises ValueError if an array is missing, or has another shape or type."""
        count = stored_array(arrays, "observations_count", "1", np.int64)
        sums = stored_array(arrays, "observations_moments", "2 O", np.float64, O=observation_size)
        return cls(int(count[0]), sums)


class NormalizationStructure(ctypes.Structure):
    """The C structure `normalization` of numerics/kernels/normalization.h. The caller keeps its arrays alive.

    size: O. seen: The array to which the kernel writes the normalized observations, which networks see.
    """

    _fields_ = (
        ("size", INT64), ("observations", ADDRESS), ("normalizers", ADDRESS), ("moments", ADDRESS), ("seen", ADDRESS),
    )  # fmt: skip


class ObservationNormalizer:
    """Normalizes the observations of B slots, and adds up their moments. Every back end gives the same bits.

    Args:
        observations: [B, O]. `normalize` reads this C-contiguous array.
        backend: The back end. For "native" a kernel does the work.

    Attributes:
        normalized: [B, O]. `normalize` writes to this C-contiguous array.
    """

    def __init__(self, observations: Float32, backend: Backend) -> None:
        slots, O = observations.shape
        self._observations = observations
        self.normalized = np.zeros_like(observations)
        self._normalizers = np.zeros((slots, 2, O), np.float32)
        self._moments = np.zeros((slots, 2, O))
        self._native = backend == "native"
        if self._native:
            # The kernel keeps the addresses of these arrays, so they must not be replaced by other arrays.
            arrays = (observations, self._normalizers, self._moments, self.normalized)
            self._arguments = NormalizationStructure(O, *(array.ctypes.data for array in arrays))
            self._address = ctypes.addressof(self._arguments)
            self._kernel = native.bind("normalize", [ADDRESS, INT64])

    def begin(self, slots: Slots, normalizers: Float32) -> None:
        """Begin episodes in slots [k], with their normalizers [k, 2, O]."""
        self._normalizers[slots] = normalizers
        self._moments[slots] = 0

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy slots `sources` to slots `targets`. The sources keep their content."""
        for array in (self._normalizers, self._moments):
            array[targets] = array[sources]

    def normalize(self, n: int) -> Float32:
        """Return [n, O]: the normalized observations of the first n slots, valid until the next call."""
        if self._native:
            self._kernel(self._address, n)
            return self.normalized[:n]
        x = self._observations[:n]
        normalizers = self._normalizers[:n]
        moments = self._moments[:n]
        wide = x.astype(np.float64)
        moments[:, 0] += wide
        moments[:, 1] += wide * wide  # exact: a float32 has 24 bits, and its square at most 48
        # A result that overflows is infinite, and is clipped below.
        with np.errstate(over="ignore"):
            normalized = (x - normalizers[:, 0]) * normalizers[:, 1]
        return np.minimum(np.maximum(normalized, -CLIP), CLIP, out=self.normalized[:n])

    def moments(self, slots: Slots) -> Float64:
        """Return [k, 2, O]: sums and sums of squares of the observations in slots [k]."""
        return self._moments[slots]


@dataclass(eq=False)
class Inference(ABC):
    """The networks of B slots, with the fingerprints of the episodes and, with normalization, the moments."""

    observations: Float32
    """[B, O]. The caller writes observations here before a step begins, and leaves them unchanged until it ends."""
    _batch: Batch
    _hashes: "StepHashes | _DeviceHashes"
    _normalizer: "ObservationNormalizer | _DeviceNormalizer | None"  # None without normalization
    _n = 0  # the number of slots of the last step

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64, normalizers: Float32) -> None:
        """Begin episodes in slots [k], with their genomes [k, W], seeds [k] and normalizers [k, 2, O].

        O = 0 without normalization.
        """
        # Later episodes of a genome load the same arrays, so not even a network of another package may change them.
        self._batch.load(slots, read_only(weights), read_only(mask), seeds)
        self._hashes.begin(slots)
        if self._normalizer is not None:
            self._normalizer.begin(slots, normalizers)

    @abstractmethod
    def begin(self, n: int) -> None:
        """Begin a step of the first n slots."""

    @abstractmethod
    def finish(self) -> Float32:
        """Return [n, A]: the outputs of the step that was begun, valid until the next step begins."""

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy slots `sources` to slots `targets`, except `observations`, which the caller copies."""
        for part in (self._batch, self._hashes, self._normalizer):
            if part is not None:
                part.move(sources, targets)

    def hashes(self, slots: Slots, lengths: Int32) -> tuple[UInt64, UInt8]:
        """Return the fingerprints [k, 2] and step hashes of slots, see `hashing.StepHashes.of`."""
        return self._hashes.of(slots, lengths)

    def moments(self, slots: Slots) -> Float64:
        """Return [k, 2, O]: the moments of the observations in slots [k]; O = 0 without normalization."""
        return np.zeros((len(slots), 2, 0)) if self._normalizer is None else self._normalizer.moments(slots)

    def traces(self, slots: Slots) -> Float32:
        """Return [k, T]: the traces of the episodes in slots [k], numbers for the strategy, such as Hebbian traces."""
        return self._batch.traces(slots)


class _CheckedBatch:
    """A batch of another package, with checks: its errors, and actions of a wrong shape, become InputErrors.

    network: The name of the network, for the errors.
    """

    def __init__(self, batch: Batch, action_size: int, network: str) -> None:
        self._batch = batch
        self._A = action_size
        # `with self._input_error(method)` turns any error into an InputError. The dict stands for the section
        # [network].
        self._input_error = partial(NETWORKS.as_input_error, {"name": network})

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64) -> None:
        with self._input_error("load"):
            self._batch.load(slots, weights, mask, seeds)

    def move(self, sources: Slots, targets: Slots) -> None:
        with self._input_error("move"):
            self._batch.move(sources, targets)

    def step(self, observations: Float32) -> Float32:
        with self._input_error("step"):
            actions = np.asarray(self._batch.step(observations))
            if actions.shape != (len(observations), self._A):  # NumPy would repeat a single action for all slots
                expected = f"actions of shape {[len(observations), self._A]}"
                raise ValueError(f"expected {expected}, got {list(actions.shape)}")
            if np.isnan(actions).any():  # `argmax`, which chooses a Discrete action, would choose the NaN
                raise ValueError("expected numbers, got NaN")
        return actions

    def traces(self, slots: Slots) -> Float32:
        with self._input_error("traces"):
            return self._batch.traces(slots)


class HostInference(Inference):
    """The inference on the host. network: The name of the network, for errors."""

    _hashes: StepHashes
    _normalizer: ObservationNormalizer | None

    def __init__(
        self, batch: Batch, observations: Float32, action_size: int, backend: Backend, normalize: bool, network: str
    ) -> None:
        normalizer = ObservationNormalizer(observations, backend) if normalize else None
        self._seen = observations if normalizer is None else normalizer.normalized
        self._outputs = np.zeros((len(observations), action_size), np.float32)
        # Built-in batches, which inherit from `SlotArrays`, need no checks.
        checked = batch if isinstance(batch, SlotArrays) else _CheckedBatch(batch, action_size, network)
        # The fingerprints are of the observations as environments give them, before normalization.
        super().__init__(observations, checked, StepHashes(observations, self._outputs, backend), normalizer)
        # A batch that overrides `step` does more than its kernel. Otherwise call the kernel directly, which is faster.
        kernel = batch.kernel if isinstance(batch, SlotArrays) and type(batch).step is SlotArrays.step else None
        self._step: Callable[[int], None] = self._step_of_batch
        if isinstance(kernel, native.NativeStep):
            self._step = kernel.attach(self._seen, self._outputs)

    def begin(self, n: int) -> None:
        """Make a step of the first n slots."""
        self._n = n
        if self._normalizer is not None:
            self._normalizer.normalize(n)
        self._step(n)
        self._hashes.update(n)

    def _step_of_batch(self, n: int) -> None:
        # A copy, because a network of another package may change the observations, or keep them for its next step.
        self._outputs[:n] = self._batch.step(self._seen[:n].copy())

    def finish(self) -> Float32:
        """Return [n, A]: the outputs of the step."""
        return self._outputs[: self._n]


def make_inference(network: Network, slots: int, action_size: int, backend: Backend, normalize: bool) -> Inference:
    """Return the inference of B = `slots` slots by a back end.

    A network without a device step, such as a network of another package, runs on the host.
    """
    batch = network.batch(slots, backend)
    if backend == "cupy":
        step = device_step(batch)
        if step is not None:
            return DeviceInference(batch, step, normalize)
        backend = "native" if native.available() else "numpy"
    observations = np.zeros((slots, network.observation_size), np.float32)
    return HostInference(batch, observations, action_size, backend, normalize, NETWORKS.name_of(network))


def device_step(batch: Batch) -> DeviceStep | None:
    """Return the device step of a batch; None if it has none."""
    kernel = getattr(batch, "kernel", None)
    return kernel if isinstance(kernel, DeviceStep) else None


class DeviceInference(Inference):
    """The inference on the device of this process.

    Args:
        batch: A batch of B slots on the device.
        step: The device step of that batch.
        normalize: Whether networks see normalized observations.

    Raises:
        DeviceMemoryError: The device has too little memory.
    """

    def __init__(self, batch: Batch, step: DeviceStep, normalize: bool) -> None:
        hashes = _DeviceHashes(step)
        normalizer = _DeviceNormalizer(step) if normalize else None
        super().__init__(step.observations, batch, hashes, normalizer)
        self.device_step = step
        self._addresses = (0 if normalizer is None else normalizer.address), hashes.address

    def begin(self, n: int) -> None:
        """Begin a step of the first n slots."""
        self._n = n
        self.device_step.begin(n, *self._addresses)

    def finish(self) -> Float32:
        """Return [n, A]: the outputs of the step that was begun."""
        return self.device_step.finish(self._n)


class _DeviceHashes:
    """The fingerprints and step hashes of B slots on a device. It has the methods of `StepHashes` except `update`."""

    def __init__(self, step: DeviceStep) -> None:
        arrays = step.arrays
        O, A = step.observations.shape[1], step.actions.shape[1]
        self._states = arrays.columns(2, np.uint64)
        self._steps = arrays.columns(1, np.int32)
        self._hashes = arrays.columns(MAX_HASHED_STEPS, np.uint16)
        self.address = arrays.structure(
            FingerprintsStructure(
                sizes=(ctypes.c_int64 * 2)(O, A),
                max_hashes=MAX_HASHED_STEPS,
                observations=step.input,
                coefficients=arrays.constant(coefficients(max(O, A))),
                states=self._states.address,
                steps=self._steps.address,
                step_hashes=self._hashes.address,
            )
        )

    def begin(self, slots: Slots) -> None:
        # The step hashes of the last episode need not be cleared: `of` returns only hashes of the new episode.
        self._states.clear(slots)
        self._steps.clear(slots)

    def move(self, sources: Slots, targets: Slots) -> None:
        for columns in (self._states, self._steps, self._hashes):
            columns.move(sources, targets)

    def of(self, slots: Slots, lengths: Int32) -> tuple[UInt64, UInt8]:
        num_hashes = np.minimum(lengths, MAX_HASHED_STEPS)
        # Copy only as many rows as the longest of these episodes has steps. A uint16 is the pair of bytes of a step.
        pairs = self._hashes.take(slots, int(num_hashes.max(initial=0)))
        return self._states.take(slots), end_to_end(pairs, num_hashes)


class _DeviceNormalizer:
    """The normalizers of B slots, and the moments of their observations, on a device."""

    def __init__(self, step: DeviceStep) -> None:
        arrays = step.arrays
        self._O = step.observations.shape[1]
        self._normalizers = arrays.columns(2 * self._O)
        self._moments = arrays.columns(2 * self._O, np.float64)
        self.address = arrays.structure(
            NormalizationStructure(
                size=self._O,
                observations=step.input,
                normalizers=self._normalizers.address,
                moments=self._moments.address,
                seen=arrays.zeros(self._O),
            )
        )

    def begin(self, slots: Slots, normalizers: Float32) -> None:
        self._normalizers.put(slots, normalizers.reshape(len(slots), -1))
        self._moments.clear(slots)

    def move(self, sources: Slots, targets: Slots) -> None:
        self._normalizers.move(sources, targets)
        self._moments.move(sources, targets)

    def moments(self, slots: Slots) -> Float64:
        return self._moments.take(slots).reshape(len(slots), 2, self._O)
