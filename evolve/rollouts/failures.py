"""Noticing that an episode has failed: numbers that are none, and episodes that take too long."""

import math
import time

import numpy as np

from evolve.environments import Engine
from evolve.shapes import Float32, Float64, Slots

_FIRST = np.zeros(1, np.intp)
_SHORT = 64  # numbers that Python adds up more quickly than NumPy looks at them


class FailureDetector:
    """Notes in `engine.faults` which of B slots have failed, beside what the engine has noted itself.

    observations: [B, O], the array in which slots see. max_episode_seconds: how long an episode may take.
    """

    def __init__(self, engine: Engine, observations: Float32, max_episode_seconds: float) -> None:
        self._engine = engine
        self._observations = observations
        self._max_episode_seconds = max_episode_seconds
        self._clock = 0.0
        self._looked = time.perf_counter()
        self._begun = np.zeros(len(observations))
        self._deadline = math.inf

    def begin(self, slots: Slots) -> None:
        """Note that episodes begin in slots [k]."""
        self.advance(time.perf_counter())
        self._begun[slots] = self._clock
        self._deadline = min(self._deadline, self._clock + self._max_episode_seconds)

    def move(self, sources: Slots, targets: Slots) -> None:
        """Let slots `targets` go on with the episodes of slots `sources`."""
        self._begun[targets] = self._begun[sources]

    def advance(self, now: float) -> None:
        """Let the clock of episodes go on; it hardly sees that the process was suspended, or a neighbour hung."""
        self._clock += min(now - self._looked, self._max_episode_seconds / 10)
        self._looked = now

    def resume(self, now: float) -> None:
        """Let the clock of episodes go on from here: since it was last advanced, genomes were made for new ones."""
        self._looked = now

    def after_reset(self, slots: Slots) -> None:
        """Look at the first observations of slots [k]."""
        if not np.isfinite(self._observations[slots]).all():
            for slot in slots.tolist():
                self._check_observation(slot)

    def after_step(self, live: Slots, span: int, rewards: Float64) -> None:
        """Look at what live slots [k] have seen, all of them below `span`, at their rewards [k], and at the time."""
        if not (np.isfinite(self._observations[:span]).all() and np.isfinite(rewards).all()):
            for slot, reward in zip(live.tolist(), rewards.tolist(), strict=True):
                if not math.isfinite(reward):
                    self._engine.faults.setdefault(slot, f"reward: expected a finite number, got {reward}")
                self._check_observation(slot)
        if self._clock > self._deadline:
            self._check_time(live)

    def after_one_step(self, reward: float) -> None:
        """Do what `after_step` does, where slot 0 is the only live one."""
        # In float64 no sum of float32 overflows; the sum is finite where all numbers are.
        row = self._observations[0]
        whole = math.isfinite(sum(row.tolist())) if len(row) <= _SHORT else np.isfinite(row).all()
        if not (whole and math.isfinite(reward)) or self._clock > self._deadline:
            self.after_step(_FIRST, 1, np.array([reward]))

    def _check_observation(self, slot: int) -> None:
        strange = np.flatnonzero(~np.isfinite(self._observations[slot]))
        if len(strange):
            which = f"observation: expected finite numbers, got {self._observations[slot, strange[0]]}"
            self._engine.faults.setdefault(slot, f"{which} at position {strange[0]} of {self._observations.shape[1]}")
            self._observations[slot] = 0

    def _check_time(self, live: Slots) -> None:
        latest = self._clock - self._max_episode_seconds
        for slot in live[self._begun[live] < latest].tolist():
            taken = f"it has taken {self._max_episode_seconds:g} s (env.max_episode_seconds)"
            self._engine.faults.setdefault(slot, taken)
        begun = self._begun[live]
        self._deadline = float(begun[begun >= latest].min(initial=math.inf)) + self._max_episode_seconds
