"""Inference: the outputs of B slots' networks in each tick, on the host or on a device.

On a device one launch per tick normalizes observations, steps the networks, and takes fingerprints.
"""

import ctypes
from typing import Literal, Protocol

import numpy as np

from evolve.networks import Batch, Network
from evolve.networks.slot_arrays import SlotArrays
from evolve.numerics import Backend, native
from evolve.numerics.device import DeviceArrays, DeviceStep
from evolve.numerics.device_protocol import UnannouncedCopyError
from evolve.numerics.hashing import MAX_HASHED_STEPS, FingerprintsStructure, StepHashes, coefficients, end_to_end
from evolve.rollouts.normalization import NormalizationStructure, ObservationNormalizer
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, Slots, UInt8, UInt64


class Inference(Protocol):
    """The networks of B slots, and what is kept of the episodes in them; k slots are named by their numbers [k].

    Attributes:
        observations: [B, O]; whoever begins a step has written what the slots see there, and leaves it until the step
            is finished.
    """

    observations: Float32

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64, normalizers: Float32) -> None:
        """Begin episodes: genomes [k, W], environment seeds [k], normalizers [k, 2, O] (O = 0 without them)."""

    def begin(self, n: int) -> None:
        """Begin a step of the first n slots."""

    def finish(self) -> Float32:
        """Return [n, A]: the outputs of the step that was begun, valid until the next begins."""

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy all that is known of slots onto others."""

    def hashes(self, slots: Slots, lengths: Int32) -> tuple[UInt64, UInt8]:
        """Return the fingerprints [k, 2] and step hashes of slots, see `StepHashes.of`."""

    def moments(self, slots: Slots) -> Float64:
        """Return [k, 2, O]: those of the observations of slots' episodes; O = 0 without normalization."""

    def traces(self, slots: Slots) -> Float32:
        """Return [k, T]: what the slots' episodes leave for the strategy."""


class HostInference:
    """An `Inference` on the host."""

    def __init__(
        self, batch: Batch, sizes: tuple[int, int, int], backend: Literal["numpy", "native"], normalize: bool
    ) -> None:
        slots, O, action_size = sizes
        self.observations = np.zeros((slots, O), np.float32)
        self._batch = batch
        self._hashes = StepHashes(self.observations, action_size, backend)
        self._normalizer = ObservationNormalizer(self.observations, backend) if normalize else None
        self._n = 0
        self._outputs = np.zeros((0, action_size), np.float32)
        whole = getattr(type(batch), "step", None) is SlotArrays.step  # the kernel does all of a step
        kernel = batch.kernel if whole and isinstance(batch, SlotArrays) else None
        self._attached = isinstance(kernel, native.NativeStep)
        if isinstance(kernel, native.NativeStep):
            seen = self.observations if self._normalizer is None else self._normalizer.normalized
            self._outputs, self._step = kernel.attach(seen)
            self._hash = self._hashes.attach(self._outputs)

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64, normalizers: Float32) -> None:
        """Begin episodes in slots [k]."""
        self._batch.load(slots, weights, mask, seeds)
        self._hashes.begin(slots)
        if self._normalizer is not None:
            self._normalizer.begin(slots, normalizers)

    def begin(self, n: int) -> None:
        """Do a step of the first n slots."""
        self._n = n
        if self._attached:
            if self._normalizer is not None:
                self._normalizer.normalize(n)
            self._step(n)
            self._hash(n)
            return
        seen = self.observations[:n] if self._normalizer is None else self._normalizer.normalize(n)
        self._outputs = self._batch.step(seen)
        self._hashes.update(self._outputs)

    def finish(self) -> Float32:
        """Return [n, A]: the outputs of the step."""
        return self._outputs[: self._n]

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy all that is known of slots onto others."""
        for part in (self._batch, self._hashes, self._normalizer):
            if part is not None:
                part.move(sources, targets)

    def hashes(self, slots: Slots, lengths: Int32) -> tuple[UInt64, UInt8]:
        """Return the fingerprints [k, 2] and step hashes of slots [k]."""
        return self._hashes.of(slots, lengths)

    def moments(self, slots: Slots) -> Float64:
        """Return [k, 2, O]: the moments of the observations of slots' episodes."""
        return np.zeros((len(slots), 2, 0)) if self._normalizer is None else self._normalizer.moments(slots)

    def traces(self, slots: Slots) -> Float32:
        """Return [k, T]: what the slots' episodes leave for the strategy."""
        return self._batch.traces(slots)


def make_inference(
    network: Network, slots: int, action_size: int, backend: Backend, normalize: bool, check: bool
) -> Inference:
    """Return the inference of B = `slots` slots by a back end.

    A network that has no device step, one from outside, runs on the host. check: whether a device's copies are watched.
    """
    batch = network.batch(slots, backend)
    sizes = slots, network.observation_size, action_size
    if backend != "cupy":
        return HostInference(batch, sizes, backend, normalize)

    step = device_step(batch)
    if step is None:
        return HostInference(batch, sizes, "native" if native.available() else "numpy", normalize)
    return DeviceInference(batch, step, normalize, check)


def device_step(batch: Batch) -> DeviceStep | None:
    """Return the device step of a batch that has one."""
    kernel = getattr(batch, "kernel", None)
    return kernel if isinstance(kernel, DeviceStep) else None


class DeviceInference:
    """An `Inference` on the device of this process.

    Args:
        batch: Of B slots on the device.
        step: Of that batch.
        normalize: Whether networks see normalized observations.
        check: Whether each tick is refused copies that it has not announced.

    Raises:
        DeviceMemoryError: There is too little memory.
    """

    def __init__(self, batch: Batch, step: DeviceStep, normalize: bool, check: bool) -> None:
        self._batch = batch
        self._step = step
        self._arrays = step.arrays
        self._check = check
        self._n = 0
        self.observations: Float32 = self._step.observations
        self._fingerprints = _Fingerprints(self._arrays, self._step)
        self._normalization = _Normalization(self._arrays, self._step) if normalize else None

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64, normalizers: Float32) -> None:
        """Begin episodes in slots [k]."""
        self._batch.load(slots, weights, mask, seeds)
        self._fingerprints.begin(slots)
        if self._normalization is not None:
            self._normalization.begin(slots, normalizers)

    def begin(self, n: int) -> None:
        """Begin a step of the first n slots."""
        self._n = n
        normalization = 0 if self._normalization is None else self._normalization.address
        if not self._check:
            self._step.begin(n, normalization, self._fingerprints.address)
            return
        up, down = (n * array.shape[1] * array.itemsize for array in (self.observations, self._step.actions))
        transfers = self._arrays.queue.transfers
        expected = transfers.up + up, transfers.down + down
        with transfers.announced(up, down):
            self._step.begin(n, normalization, self._fingerprints.address)
        if (transfers.up, transfers.down) != expected:
            raise UnannouncedCopyError("a tick that has copied less than it announced")

    def finish(self) -> Float32:
        """Return [n, A]: the outputs of the step that was begun."""
        return self._step.finish(self._n)

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy all that is known of slots onto others."""
        for part in (self._batch, self._fingerprints, self._normalization):
            if part is not None:
                part.move(sources, targets)

    def hashes(self, slots: Slots, lengths: Int32) -> tuple[UInt64, UInt8]:
        """Return the fingerprints [k, 2] and step hashes of slots [k]."""
        return self._fingerprints.of(slots, lengths)

    def moments(self, slots: Slots) -> Float64:
        """Return [k, 2, O]: the moments of the observations of slots' episodes."""
        return np.zeros((len(slots), 2, 0)) if self._normalization is None else self._normalization.moments(slots)

    def traces(self, slots: Slots) -> Float32:
        """Return [k, T]: what the slots' episodes leave for the strategy."""
        return self._batch.traces(slots)


class _Fingerprints:
    """The fingerprints and step hashes of B slots."""

    def __init__(self, arrays: DeviceArrays, step: DeviceStep) -> None:
        O, A = step.observations.shape[1], step.actions.shape[1]
        self._states = arrays.columns(2, np.uint64)
        self._steps = arrays.columns(1, np.int32)
        self._hashes = arrays.columns(MAX_HASHED_STEPS, np.uint16)
        self.address = arrays.structure(
            FingerprintsStructure(
                sizes=(ctypes.c_int64 * 2)(O, A),
                room=MAX_HASHED_STEPS,
                observations=step.input,
                coefficients=arrays.constant(coefficients(max(O, A))),
                states=self._states.address,
                steps=self._steps.address,
                step_hashes=self._hashes.address,
            ),
        )

    def begin(self, slots: Slots) -> None:
        self._states.clear(slots)
        self._steps.clear(slots)

    def move(self, sources: Slots, targets: Slots) -> None:
        for columns in (self._states, self._steps, self._hashes):
            columns.move(sources, targets)

    def of(self, slots: Slots, lengths: Int32) -> tuple[UInt64, UInt8]:
        kept = np.minimum(lengths, MAX_HASHED_STEPS)
        pairs = self._hashes.take(slots, int(kept.max(initial=0)))
        return self._states.take(slots), end_to_end(pairs, kept)


class _Normalization:
    """The normalizers of B slots, and the moments of what they have seen."""

    def __init__(self, arrays: DeviceArrays, step: DeviceStep) -> None:
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
            ),
        )

    def begin(self, slots: Slots, normalizers: Float32) -> None:
        self._normalizers.put(slots, normalizers.reshape(len(slots), -1))
        self._moments.clear(slots)

    def move(self, sources: Slots, targets: Slots) -> None:
        self._normalizers.move(sources, targets)
        self._moments.move(sources, targets)

    def moments(self, slots: Slots) -> Float64:
        taken: Float64 = self._moments.take(slots).reshape(len(slots), 2, self._O)
        return taken
