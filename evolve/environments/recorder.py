"""Recording episodes as they go through an engine: to play them again bare, to film them, to compare them by step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from evolve.environments.engine import Engine, Transition
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt8


@dataclass
class Recording:
    """One episode.

    Attributes:
        seed: Of its environment.
        outputs: [A] of each step, what the network did.
        rewards: Of each step.
        observations: [O] of each step, what the network was shown; then the last one, which it was not shown. Empty
            where nobody asked for them.
    """

    seed: int
    outputs: list[Float32] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    observations: list[Float32] = field(default_factory=list)

    @property
    def returned(self) -> float:
        """The return so far."""
        return float(sum(self.rewards))


class Recorder:
    """An engine that records the episodes of another one.

    Args:
        engine: The engine that runs them.
        slots: B, of that engine.
        observations: Whether to record observations too, which takes more memory.

    Attributes:
        running: [B], the newest episode of each slot.
        finished: The episodes that ended.
    """

    def __init__(self, engine: Engine, slots: int, observations: bool) -> None:
        self._engine = engine
        self._with_observations = observations
        self.running = [Recording(0) for _ in range(slots)]
        self.finished: list[Recording] = []
        self.id = engine.id
        self.refill = engine.refill
        self.reuses = engine.reuses
        self.faults = engine.faults
        self.fps = engine.fps
        self.observation_size = engine.observation_size
        self.action_size = engine.action_size

    @property
    def on_fault(self) -> Callable[[], None]:
        """What the engine calls for each fault."""
        return self._engine.on_fault

    @on_fault.setter
    def on_fault(self, callback: Callable[[], None]) -> None:
        self._engine.on_fault = callback

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin episodes, and a recording of each."""
        for slot, seed in zip(slots.tolist(), seeds.tolist(), strict=True):
            self.running[slot] = Recording(seed)
        self._engine.reset(slots, seeds, observations)
        self._note(slots, observations)

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step, and record it."""
        rewards, ended = self._engine.step(slots, outputs, observations)
        for slot, row, reward in zip(slots.tolist(), outputs, rewards.tolist(), strict=True):
            self.running[slot].outputs.append(row.copy())
            self.running[slot].rewards.append(reward)
        self._note(slots, observations)
        self.finished += [self.running[slot] for slot in slots[ended].tolist()]
        return rewards, ended

    def _note(self, slots: Slots, observations: Float32) -> None:
        if self._with_observations:
            for slot in slots.tolist():
                self.running[slot].observations.append(observations[slot].copy())

    def suggested_slots(self) -> int:
        """Return what the engine suggests."""
        return self._engine.suggested_slots()

    def encode(self, observation: Any) -> Float32:
        """Return what the engine does."""
        return self._engine.encode(observation)

    def decode(self, outputs: Float32) -> Any:
        """Return what the engine does."""
        return self._engine.decode(outputs)

    def frame(self, slot: int) -> UInt8:
        """Return what the engine draws."""
        return self._engine.frame(slot)

    def move(self, sources: Slots, targets: Slots) -> None:
        """Let slots `targets` go on with the episodes of slots `sources`, and with their recordings."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self.running[target] = self.running[source]
        self._engine.move(sources, targets)

    def trial(self, seed: int, outputs: Float32, used: bool) -> Iterator[Transition]:
        """Play an episode that is not recorded."""
        return self._engine.trial(seed, outputs, used)

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()
