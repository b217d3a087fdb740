"""What a rollout asks for in each tick: the outputs of B slots' networks, and what is kept of their episodes.

An `Inference` is begun and finished: on the host both are one call, on a device (`device_inference`) the host has the
time between them for something else. Besides the networks it has the observation normalization, the fingerprints and
the step hashes of the slots' episodes.
"""

from typing import Literal, Protocol

import numpy as np

from evolve.networks import Batch, Network
from evolve.networks.slot_arrays import SlotArrays
from evolve.numerics import Backend, native
from evolve.numerics.hashing import StepHashes
from evolve.rollouts.normalization import ObservationNormalizer
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
    from evolve.rollouts.device_inference import DeviceInference, device_step  # noqa: PLC0415 - needs a device

    step = device_step(batch)
    if step is None:
        return HostInference(batch, sizes, "native" if native.available() else "numpy", normalize)
    return DeviceInference(batch, step, normalize, check)
