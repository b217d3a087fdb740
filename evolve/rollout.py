"""Rollouts: networks × environments × keyed episodes → returns. No MPI, no files.

A rollout owns B slots. Units wait in a queue; when an episode ends, the last live slot moves into the gap, so that the
live slots are always the first n and every tick is one batched network call and n environment steps. Free slots are
refilled as soon as the engine thinks it worth while: at once, or several together.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from evolve.environments import Engine
from evolve.networks import Network
from evolve.numerics import Backend
from evolve.shapes import Bool, Float32


@dataclass(frozen=True)
class Unit:
    """The unit of work: one episode of one candidate. weights: [W] float32; mask: [W] bool."""

    candidate: int
    episode: int
    environment_seed: int
    weights: Float32
    mask: Bool


@dataclass(frozen=True)
class Outcome:
    """What one episode came to: its return, its length in environment steps, and its trace [T] float32."""

    candidate: int
    episode: int
    episode_return: float
    length: int
    trace: Float32


class Rollout:
    """B slots that work through a queue of units."""

    def __init__(self, engine: Engine, network: Network, slots: int, backend: Backend) -> None:
        self._engine, self._batch = engine, network.batch(slots, backend)
        self._slots, self._live = slots, 0
        self._queue: deque[Unit] = deque()
        self._running: list[Unit | None] = [None] * slots
        self._observations = np.zeros((slots, engine.observation_size), np.float32)
        self._returns, self._lengths = np.zeros(slots), np.zeros(slots, np.int32)

    @property
    def pending(self) -> int:
        """Units that are queued or running."""
        return len(self._queue) + self._live

    def submit(self, units: Iterable[Unit]) -> None:
        """Queue units and begin as many as there are free slots."""
        self._queue.extend(units)
        self._fill()

    def clear(self) -> None:
        """Forget every unit."""
        self._queue.clear()
        self._live = 0

    def tick(self) -> list[Outcome]:
        """Advance every live slot by one step; return the episodes that ended."""
        n = self._live
        observations = self._observations[:n]
        rewards, ended = self._engine.step(self._batch.step(observations), observations)
        self._returns[:n] += rewards
        self._lengths[:n] += 1
        if not ended.any():
            return []
        # From the last slot down, so that a move never brings an ended slot into a gap.
        outcomes = [self._finish(slot) for slot in np.flatnonzero(ended)[::-1].tolist()]
        self._fill()
        return outcomes

    def _fill(self) -> None:
        """Begin queued units in the free slots, if there are enough of either or nothing else to do."""
        first = self._live
        n = min(self._slots - first, len(self._queue))
        if n == 0 or (first > 0 and self._slots - first < self._engine.refill):
            return
        units = [self._queue.popleft() for _ in range(n)]
        for slot, unit in enumerate(units, first):
            self._running[slot] = unit
            self._batch.load(slot, unit.weights, unit.mask)
        self._live += n
        begun = slice(first, self._live)
        self._returns[begun], self._lengths[begun] = 0.0, 0
        self._engine.reset(first, [unit.environment_seed for unit in units], self._observations[begun])

    def _finish(self, slot: int) -> Outcome:
        unit = self._running[slot]
        assert unit is not None  # a live slot has a unit
        episode_return, length = float(self._returns[slot]), int(self._lengths[slot])
        outcome = Outcome(unit.candidate, unit.episode, episode_return, length, self._batch.trace(slot))
        self._live -= 1
        self._move(self._live, slot)
        return outcome

    def _move(self, source: int, target: int) -> None:
        if source == target:
            return
        self._batch.move(source, target)
        self._engine.move(source, target)
        self._running[target] = self._running[source]
        for array in (self._observations, self._returns, self._lengths):
            array[target] = array[source]
