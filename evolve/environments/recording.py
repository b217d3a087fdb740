"""Recording episodes as they go through an engine: to play them again bare, to film them, to compare them by step."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from evolve.environments.contract import Engine, Trace
from evolve.shapes import Bool, Float32, Float64, Int64, Slots, UInt8


@dataclass
class Recording:
    """One episode: its environment seed, and of each step the network outputs [A] and the reward.

    observations: what the network was shown in each step, [O] each, and at last what it no longer was; empty where
    nobody asked for them.
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
    """An engine that writes down its episodes; `observations`: these too, which takes more memory.

    finished: the episodes that ended; running: [B], the newest episode of each slot.
    """

    def __init__(self, engine: Engine, slots: int, observations: bool) -> None:
        self._engine, self._keep = engine, observations
        self.running, self.finished = [Recording(0) for _ in range(slots)], list[Recording]()
        self.id, self.refill, self.reuses, self.faults = engine.id, engine.refill, engine.reuses, engine.faults
        self.fps = engine.fps
        self.observation_size, self.action_size = engine.observation_size, engine.action_size

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin recordings with the episodes."""
        for slot, seed in zip(slots.tolist(), seeds.tolist(), strict=True):
            self.running[slot] = Recording(seed)
        self._engine.reset(slots, seeds, observations)
        self._see(slots, observations)

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step, and write it down."""
        rewards, ended = self._engine.step(slots, outputs, observations)
        for slot, row, reward in zip(slots.tolist(), outputs, rewards.tolist(), strict=True):
            self.running[slot].outputs.append(row.copy())
            self.running[slot].rewards.append(reward)
        self._see(slots, observations)
        self.finished += [self.running[slot] for slot in slots[ended].tolist()]
        return rewards, ended

    def _see(self, slots: Slots, observations: Float32) -> None:
        if self._keep:
            for slot in slots.tolist():
                self.running[slot].observations.append(observations[slot].copy())

    def suggested_slots(self) -> int:
        """Return what the engine does."""
        return self._engine.suggested_slots()

    def frame(self, slot: int) -> UInt8:
        """Return what the engine draws."""
        return self._engine.frame(slot)

    def move(self, sources: Slots, targets: Slots) -> None:
        """Let slots go on with the episodes of others."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self.running[target] = self.running[source]
        self._engine.move(sources, targets)

    def trial(self, seed: int, outputs: Float32, used: bool) -> Iterator[Trace]:
        """Play an episode that is not recorded."""
        return self._engine.trial(seed, outputs, used)

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()
