"""Rollouts: networks × environments × keyed episodes → returns. No MPI, no files.

A rollout owns B slots. Units wait in a queue until there is a free slot; a slot whose episode has ended stands idle
until the next begins there. Every tick is one batched network call over the slots up to the last live one, and one
environment step of each live slot. When the queue has run dry, live slots move together.
"""

import math
import time
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from evolve.environments import Engine
from evolve.evaluation import Outcomes
from evolve.genome import Genomes
from evolve.networks import Network
from evolve.numerics import Backend, EpisodeFingerprints, Normalizing
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, Slots


@dataclass(frozen=True)
class Units:
    """N units of work, each one episode of one candidate.

    candidates, episodes: [N], what each unit is; seeds: [N], of their environments; rows: [N], which of `genomes` each
    candidate has, and which of `normalizers` [C, 2, O] (O = 0 where observations are not normalized).
    """

    candidates: Int32
    episodes: Int32
    seeds: Int64
    rows: Int32
    genomes: Genomes
    normalizers: Float32 = field(default_factory=lambda: np.zeros((0, 2, 0), np.float32))

    def __len__(self) -> int:
        return len(self.candidates)

    def cut(self, begin: int, end: int | None = None) -> "Units":
        """Return the units from `begin` up to `end`."""
        span = slice(begin, end)
        numbers = self.candidates[span], self.episodes[span], self.seeds[span], self.rows[span]
        return Units(*numbers, self.genomes, self.normalizers)


@dataclass(frozen=True)
class Fault:
    """An episode that could not be played to its end: what happened, in words, in which step, and its seed.

    Its outcome has a return of NaN, and `step` as its length; step 0 is reset.
    """

    candidate: int
    episode: int
    seed: int
    step: int
    told: str


class Rollout:
    """B slots that work through a queue of units.

    episode_seconds: how long an episode may take. normalize: whether networks see normalized observations.
    """

    def __init__(
        self,
        engine: Engine,
        network: Network,
        slots: int,
        backend: Backend,
        episode_seconds: float = math.inf,
        normalize: bool = False,
    ) -> None:
        self._engine, self._batch = engine, network.batch(slots, backend)
        self._faults: list[Fault] = []
        self.episode_seconds, self._deadline = episode_seconds, math.inf
        self._clock, self._looked = 0.0, time.perf_counter()
        self.environment_seconds = 0.0
        """How long environments have been at work."""
        self._begun, self._seeds = np.zeros(slots), np.zeros(slots, np.int64)
        self._queue: deque[Units] = deque()
        self._queued = 0
        self._free = np.ones(slots, np.bool_)
        self._look()
        self._candidates, self._episodes = np.zeros(slots, np.int32), np.zeros(slots, np.int32)
        self._observations = np.zeros((slots, engine.observation_size), np.float32)
        self._returns, self._lengths = np.zeros(slots), np.zeros(slots, np.int32)
        self._fingerprints = EpisodeFingerprints(self._observations, engine.action_size, backend)
        self._normalizing = Normalizing(self._observations, backend) if normalize else None

    @property
    def pending(self) -> int:
        """Units that are queued or running."""
        return self._queued + len(self._live)

    def submit(self, units: Units) -> None:
        """Queue units and begin as many as there are free slots."""
        self._queue.append(units)
        self._queued += len(units)
        self._fill()

    def clear(self) -> None:
        """Forget every unit."""
        self._queue.clear()
        self._faults.clear()
        self._engine.faults.clear()
        self._queued = 0
        self._free[:] = True
        self._look()

    def so_far(self, slot: int) -> tuple[int, float]:
        """Return the steps and the return of a slot's newest episode."""
        return int(self._lengths[slot]), float(self._returns[slot])

    def tick(self) -> Outcomes | None:
        """Advance every live slot by one step; return the episodes that ended, None for none."""
        rows = self._rows
        normalizing, n = self._normalizing, self._span
        outputs = self._batch.step(self._observations[:n] if normalizing is None else normalizing.see(n))
        self._fingerprints.note(outputs)
        begin = time.perf_counter()
        rewards, ended = self._engine.step(self._live, outputs[rows], self._observations)
        self._advance_clock(begin)
        self._lengths[rows] += 1
        if not (np.isfinite(self._observations[: self._span]).all() and np.isfinite(rewards).all()):
            self._notice_numbers(rewards)
        if self._clock > self._deadline:
            self._notice_time()
        if self._engine.faults:
            self._fail(rewards, ended)
        self._returns[rows] += rewards
        if not ended.any():
            return None
        outcomes = self._finish(self._live[ended])
        self._fill()
        return outcomes

    def _notice_numbers(self, rewards: Float64) -> None:
        """Note the live slots whose reward [k] or observation is no finite number."""
        for slot, reward in zip(self._live.tolist(), rewards.tolist(), strict=True):
            if not math.isfinite(reward):
                self._engine.faults.setdefault(slot, f"reward: expected a finite number, got {reward}")
            self._notice_observation(slot)

    def _notice_observation(self, slot: int) -> None:
        strange = np.flatnonzero(~np.isfinite(self._observations[slot]))
        if len(strange):
            which = f"observation: expected finite numbers, got {self._observations[slot, strange[0]]}"
            self._engine.faults.setdefault(slot, f"{which} at position {strange[0]} of {self._observations.shape[1]}")
            self._observations[slot] = 0

    def _advance_clock(self, begin: float) -> None:
        """Let the clock of episodes go on; it hardly sees that the process was suspended, or a neighbour hung.

        begin: when environments were last set to work.
        """
        now = time.perf_counter()
        self.environment_seconds += now - begin
        self._clock += min(now - self._looked, self.episode_seconds / 10)
        self._looked = now

    def _notice_time(self) -> None:
        """Note the live slots whose episodes have taken too long."""
        latest = self._clock - self.episode_seconds
        for slot in self._live[self._begun[self._live] < latest].tolist():
            self._engine.faults.setdefault(slot, f"it has taken {self.episode_seconds:g} s (env.max_episode_seconds)")
        begun = self._begun[self._live]
        self._deadline = float(begun[begun >= latest].min(initial=math.inf)) + self.episode_seconds

    def _fail(self, rewards: Float64, ended: Bool) -> None:
        """End the episodes in which something went wrong."""
        for slot, told in self._engine.faults.items():
            if not self._free[slot]:
                at = int(np.searchsorted(self._live, slot))
                rewards[at], ended[at] = np.nan, True
                candidate, episode = int(self._candidates[slot]), int(self._episodes[slot])
                step = int(self._lengths[slot])
                self._faults.append(Fault(candidate, episode, int(self._seeds[slot]), step, told))
        self._engine.faults.clear()

    def take_faults(self) -> list[Fault]:
        """Return the episodes that have failed since this was last asked."""
        if not self._faults:
            return self._faults
        faults, self._faults = self._faults, []
        return faults

    def _finish(self, slots: Slots) -> Outcomes:
        self._free[slots] = True
        self._look()
        came_to = self._candidates[slots], self._episodes[slots], self._returns[slots], self._lengths[slots]
        left = self._batch.traces(slots), *self._fingerprints.of(slots, self._lengths[slots])
        moments = np.zeros((len(slots), 2, 0)) if self._normalizing is None else self._normalizing.of(slots)
        return Outcomes(*came_to, *left, moments)

    def _fill(self) -> None:
        """Begin queued units in free slots, if there are enough of these or nothing else to do; else close up."""
        free = len(self._free) - len(self._live)
        n = min(free, self._queued)
        if n and (not len(self._live) or free >= self._engine.refill):
            self._begin(np.flatnonzero(self._free)[:n])
        elif len(self._live) and 2 * len(self._live) <= self._span:
            self._close_up()

    def _begin(self, slots: Slots) -> None:
        seeds: Int64 = np.empty(len(slots), np.int64)
        done = 0
        while done < len(slots):
            units = self._dequeue(len(slots) - done)
            part = slice(done, done + len(units))
            at, genomes = slots[part], units.genomes
            self._batch.load(at, genomes.weights[units.rows], genomes.mask[units.rows], units.seeds)
            if self._normalizing is not None:
                self._normalizing.begin(at, units.normalizers[units.rows])
            self._candidates[at], self._episodes[at], seeds[part] = units.candidates, units.episodes, units.seeds
            done += len(units)
        self._returns[slots], self._lengths[slots], self._free[slots] = 0.0, 0, False
        self._fingerprints.begin(slots)
        begin = time.perf_counter()
        self._advance_clock(begin)
        self._seeds[slots], self._begun[slots] = seeds, self._clock
        self._deadline = min(self._deadline, self._clock + self.episode_seconds)
        self._look()
        self._engine.reset(slots, seeds, self._observations)
        self.environment_seconds += time.perf_counter() - begin
        if not np.isfinite(self._observations[slots]).all():
            for slot in slots.tolist():
                self._notice_observation(slot)
        self._lengths[list(self._engine.faults)] = -1  # the next tick ends them, with no step taken

    def _dequeue(self, n: int) -> Units:
        """Take up to n units, all of one submission, from the head of the queue."""
        head = self._queue.popleft()
        if len(head) > n:
            self._queue.appendleft(head.cut(n))
            head = head.cut(0, n)
        self._queued -= len(head)
        return head

    def _close_up(self) -> None:
        """Move the last live slots into the first free ones, until the live slots are the first n."""
        n = len(self._live)
        targets = np.flatnonzero(self._free[:n])
        sources = self._live[n - len(targets) :]
        self._batch.move(sources, targets)
        self._engine.move(sources, targets)
        self._fingerprints.move(sources, targets)
        if self._normalizing is not None:
            self._normalizing.move(sources, targets)
        for array in (self._observations, self._returns, self._lengths, self._candidates, self._episodes,
                      self._seeds, self._begun):  # fmt: skip
            array[targets] = array[sources]
        self._free[sources], self._free[targets] = True, False
        self._look()

    def _look(self) -> None:
        """Note which slots are live, in ascending order; how far they reach; and how best to index them."""
        self._live: Slots = np.flatnonzero(~self._free)
        n = len(self._live)
        self._span = int(self._live[-1]) + 1 if n else 0
        self._rows = slice(0, n) if self._span == n else self._live
