"""Nanoseconds per step of one network with many slots: on the host, and on a device with and without its copies."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from evolve.genome import Genomes
from evolve.networks import Batch, Network
from evolve.numerics import Backend
from evolve.numerics.device import DeviceStep
from evolve.numerics.streams import Purpose, Stream
from evolve.rollouts.inference import device_step
from evolve.shapes import Float32
from evolve.strategies import initial_genomes

_MOST_GENOMES = 64
_MOST_NUMBERS = 2**22  # of different genomes together; further slots repeat them
_CYCLE = 8  # ticks: work that is postponed for several ticks, such as updates of traces, is included
_MOST_ROUNDS = 20


@dataclass(frozen=True)
class Effort:
    """The effort of a measurement: the minimum over `rounds` of about `seconds` each, after a warm-up."""

    rounds: int = 4
    seconds: float = 0.03

    def least(self, repeat: Callable[[int], None]) -> float:
        """Return the seconds of one tick; `repeat(n)` makes n ticks.

        A tick that takes longer than a round is measured once.
        """
        repeat(_CYCLE)
        begin = time.perf_counter()
        repeat(_CYCLE)
        best = (time.perf_counter() - begin) / _CYCLE
        if best * _CYCLE > _MOST_ROUNDS * self.seconds:
            return best
        ticks = _CYCLE * max(1, int(self.seconds / best / _CYCLE))
        for _ in range(self.rounds):
            begin = time.perf_counter()
            repeat(ticks)
            best = min(best, (time.perf_counter() - begin) / ticks)
        return best


def some_genomes(network: Network, most: int) -> Genomes:
    """Return initial genomes for at most this number of slots."""
    return initial_genomes(network, 0, 0, range(max(1, min(most, _MOST_GENOMES, _MOST_NUMBERS // network.num_weights))))


def host_step(network: Network, genomes: Genomes, slots: int, backend: Backend, effort: Effort) -> float:
    """Return nanoseconds per step on one core of the host."""
    step = partial(_loaded(network, genomes, slots, backend).step, _observations(network, slots))

    def repeat(ticks: int) -> None:
        for _ in range(ticks):
            step()

    return effort.least(repeat) / slots * 1e9


def device_steps(network: Network, genomes: Genomes, slots: int, effort: Effort, parts: int = 2) -> tuple[float, float]:
    """Return nanoseconds per step on a device: of its kernel alone, and with copies in both directions.

    The slots are halved as in a rollout: while one half is copied, the kernel may work on the other half.

    Raises:
        DeviceMemoryError: The device has too little memory.
    """
    steps = _in_parts(network, genomes, slots, parts)

    def launch(ticks: int) -> None:
        for _ in range(ticks):
            for step, n in steps:
                step.launch(n)
        for step, _ in steps:
            step.arrays.wait()

    with_copies = effort.least(partial(_tick, steps))  # first, because it copies the observations to the device
    return effort.least(launch) / slots * 1e9, with_copies / slots * 1e9


def device_ticks(network: Network, genomes: Genomes, slots: int) -> Callable[[int], None]:
    """Return a function that makes a number of ticks of all slots on a device, with copies, in two halves."""
    return partial(_tick, _in_parts(network, genomes, slots, 2))


def _tick(steps: list[tuple[DeviceStep, int]], ticks: int) -> None:
    for step, n in steps:
        step.begin(n)
    for _ in range(ticks - 1):
        for step, n in steps:
            step.finish(n)
            step.begin(n)
    for step, n in steps:
        step.finish(n)


def _in_parts(network: Network, genomes: Genomes, slots: int, parts: int) -> list[tuple[DeviceStep, int]]:
    return [_on_device(network, genomes, n) for n in _shares(slots, min(slots, parts))]


def _shares(slots: int, parts: int) -> list[int]:
    return [slots * (n + 1) // parts - slots * n // parts for n in range(parts)]


def _on_device(network: Network, genomes: Genomes, slots: int) -> tuple[DeviceStep, int]:
    step = device_step(_loaded(network, genomes, slots, "cupy"))
    assert step is not None, "every network in here has a device step"
    step.observations[:] = _observations(network, slots)
    return step, slots


def _loaded(network: Network, genomes: Genomes, slots: int, backend: Backend) -> Batch:
    """Return a batch whose slots all hold a genome, copied from a few genomes within the batch."""
    batch = network.batch(slots, backend)
    filled = min(slots, len(genomes))
    first = np.arange(filled)
    batch.load(first, genomes.weights[:filled], genomes.mask[:filled], first)
    while filled < slots:
        n = min(filled, slots - filled)
        batch.move(np.arange(n), np.arange(filled, filled + n))
        filled += n
    return batch


def _observations(network: Network, slots: int) -> Float32:
    """Return an observation for each slot, [slots, O] in [-1, 1]."""
    uniform = Stream(0, Purpose.EPISODE).uniform(slots, network.observation_size)
    return (2 * uniform - 1).astype(np.float32)
