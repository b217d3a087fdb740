"""A `Rollout` plays episodes side by side in B slots, and a `FailureDetector` finds the episodes that fail.

The caller submits `EpisodeBatch`es, and calls `tick` until no episode is pending. In a tick, networks act in all slots
(`inference`), environments take a step (`Engine`), and slots whose episodes have ended get episodes from the `queue`.
"""

import math
import sys
import time
from collections.abc import Callable

import numpy as np

from evolve.environments import Engine
from evolve.networks import Network
from evolve.numerics import Backend, restore_ieee
from evolve.rollouts.episodes import EpisodeBatch, EpisodeFailure, EpisodeResults
from evolve.rollouts.inference import make_inference
from evolve.rollouts.queue import EpisodeQueue
from evolve.rollouts.results import genomes_of_traces, quantize_traces
from evolve.shapes import Bool, Float32, Float64, Int64, Slots

_LARGEST_REWARD = 1e100  # so that no return, mean or variance overflows
_FEW = 64  # up to this size, a sum in Python is faster than a check in NumPy


class FailureDetector:
    """Finds episodes with invalid numbers, or over the time limit, and adds them to `engine.faults`.

    Args:
        engine: Runs the environments.
        observations: [B, O], the observations of the slots.
        max_episode_seconds: The time limit of an episode, by `clock`.
    """

    def __init__(self, engine: Engine, observations: Float32, max_episode_seconds: float) -> None:
        self._engine = engine
        self._observations = observations
        self._max_episode_seconds = max_episode_seconds
        self.clock = 0.0
        """The seconds that count for the time limit, without the generation of genomes and most of a long pause."""
        self._advanced_at = time.perf_counter()
        self._begun_at = np.zeros(len(observations))  # by `clock`
        # The earliest time on `clock` at which an episode may exceed its time limit.
        self._deadline = math.inf

    def begin(self, slots: Slots) -> None:
        """Start the clocks of episodes that begin in slots [k]."""
        self.advance(time.perf_counter())
        self._begun_at[slots] = self.clock
        self._deadline = min(self._deadline, self.clock + self._max_episode_seconds)

    def move(self, sources: Slots, targets: Slots) -> None:
        """Continue the episodes of slots `sources` in slots `targets`."""
        self._begun_at[targets] = self._begun_at[sources]

    def advance(self, now: float) -> None:
        """Advance `clock` by the time from `_advanced_at` to `now`, both in seconds of `time.perf_counter`."""
        # At most a tenth of the limit at once, so that one long pause does not end all episodes. The process may have
        # been suspended, or one episode may have hung.
        self.clock += min(now - self._advanced_at, self._max_episode_seconds / 10)
        self._advanced_at = now

    def resume(self, now: float) -> None:
        """Continue `clock` at `now`, so that the time since the last `advance` does not count."""
        self._advanced_at = now

    def after_reset(self, slots: Slots) -> None:
        """Check the first observations of slots [k]."""
        if not np.isfinite(self._observations[slots]).all():
            for slot in slots.tolist():
                self._check_observation(slot)

    def after_step(self, live: Slots, span: int, rewards: Float64) -> None:
        """Check the observations and rewards [k] of live slots [k], and the time. span: The last live slot plus 1."""
        # One test of all numbers is fast. Only if it fails, look at the slots one by one.
        observations = self._observations[:span]
        if observations.size <= _FEW:
            # A sum of float32 numbers does not overflow in float64, so it is finite if and only if all numbers are.
            are_valid = math.isfinite(sum(observations.ravel().tolist()))
            are_valid = are_valid and all(abs(reward) <= _LARGEST_REWARD for reward in rewards.tolist())
        else:
            are_valid = bool(np.isfinite(observations).all() and (np.abs(rewards) <= _LARGEST_REWARD).all())
        if not are_valid:
            for slot, reward in zip(live.tolist(), rewards.tolist(), strict=True):
                if not abs(reward) <= _LARGEST_REWARD:  # also if it is NaN
                    limited = f" from {-_LARGEST_REWARD:g} to {_LARGEST_REWARD:g}" if math.isfinite(reward) else ""
                    fault = f"reward: expected a finite number{limited}, got {reward}"
                    self._engine.faults.setdefault(slot, fault)
                self._check_observation(slot)
        if self.clock > self._deadline:
            self._check_time(live)

    def _check_observation(self, slot: int) -> None:
        """Report an observation with a NaN or an infinity, and replace it by zeros."""
        invalid = np.flatnonzero(~np.isfinite(self._observations[slot]))
        if len(invalid):
            fault = f"observation: expected finite numbers, got {self._observations[slot, invalid[0]]}"
            self._engine.faults.setdefault(slot, f"{fault} at position {invalid[0]} of {self._observations.shape[1]}")
            self._observations[slot] = 0

    def _check_time(self, live: Slots) -> None:
        """Report episodes of live slots [k] over the time limit, and compute the deadline of the others."""
        earliest = self.clock - self._max_episode_seconds  # an episode that began before it is over the limit
        for slot in live[self._begun_at[live] < earliest].tolist():
            fault = f"it has taken {self._max_episode_seconds:g} s (env.max_episode_seconds)"
            self._engine.faults.setdefault(slot, fault)
        begun = self._begun_at[live]
        self._deadline = float(begun[begun >= earliest].min(initial=math.inf)) + self._max_episode_seconds


class Rollout:
    """B slots that play the episodes of a queue side by side.

    Args:
        engine: Runs the environments of B slots.
        network: The network, without weights.
        slots: B.
        backend: The back end of the network; all back ends give the same bits.
        max_episode_seconds: The time limit of an episode, see `FailureDetector`.
        normalize: Whether networks see normalized observations.
        queue: The queue of episodes, which rollouts may share. By default the rollout has its own.
        max_steps: The number of steps after which an episode ends. By default only its environment ends an episode.

    Raises:
        DeviceMemoryError: A device has too little memory for B slots.
    """

    whole_episodes = False
    """Whether a kernel plays whole episodes of an exact task. Then a tick plays many steps, and no episode can fail."""

    def __init__(
        self,
        engine: Engine,
        network: Network,
        slots: int,
        backend: Backend,
        max_episode_seconds: float = math.inf,
        normalize: bool = False,
        queue: EpisodeQueue | None = None,
        max_steps: int | None = None,
    ) -> None:
        self.max_episode_seconds = max_episode_seconds
        self.environment_seconds = 0.0
        """The seconds that environments have worked."""
        self.engine = engine
        self._max_steps = max_steps
        self.inference = make_inference(network, slots, engine.action_size, backend, normalize)
        self._observations = self.inference.observations
        self.detector = FailureDetector(engine, self._observations, max_episode_seconds)
        self._failures: list[EpisodeFailure] = []
        self.queue = EpisodeQueue() if queue is None else queue
        """The episodes that wait for a slot."""
        self.begun = False
        """Whether a tick was begun but not finished."""
        # An element for each slot. All except `_free` belong to the last episode that began in the slot.
        self._free = np.ones(slots, np.bool_)
        self._genomes = np.zeros(slots, np.int32)
        self._episodes = np.zeros(slots, np.int32)
        self._seeds = np.zeros(slots, np.int64)
        self._returns = np.zeros(slots)
        self._lengths = np.zeros(slots, np.int32)
        self._seconds = np.zeros(slots, np.float32)
        self._metrics = np.zeros((slots, 2, len(engine.metric_names)), np.int64)
        self._traces = "none"  # the traces that the results need, see `EpisodeBatch.traces`
        self._num_traces = network.num_traces
        self._masks = np.zeros((slots, 0), np.bool_)  # [B, T] once the results need traces
        self._update_live()

    @property
    def pending(self) -> int:
        """The number of episodes that are queued or running."""
        return len(self.queue) + len(self._live)

    @property
    def running(self) -> int:
        """The number of episodes that are running."""
        return len(self._live)

    def submit(self, batch: EpisodeBatch) -> None:
        """Queue episodes, and begin some, see `fill`."""
        self.queue.append(batch)
        self.fill()

    def clear(self) -> None:
        """Drop all episodes."""
        # A device may still compute the step of a tick that was begun.
        if self.begun:
            self.inference.finish()
            self.begun = False
        self.queue.clear()
        self._failures.clear()
        self.engine.faults.clear()
        self._free[:] = True
        self._update_live()

    def close(self) -> None:
        """Release every environment."""
        self.engine.close()

    def call_on_fault(self, callback: Callable[[], None]) -> None:
        """Set a function to be called at every failure or interruption of an environment."""
        self.engine.on_fault = callback

    def newest(self) -> tuple[int, float]:
        """Return the steps and the return of the last episode that began in slot 0, up to now."""
        return int(self._lengths[0]), float(self._returns[0])

    def tick(self) -> EpisodeResults | None:
        """Advance every live slot by one step; return the results of the episodes that ended, if any did."""
        self.begin()
        return self.finish()

    def begin(self) -> None:
        """Begin a tick: networks compute outputs for the observations. Only `finish` or `clear` may follow."""
        restore_ieee()  # an environment may have loaded a library that changed how this thread computes
        self.inference.begin(self._span)
        self.begun = True

    def finish(self) -> EpisodeResults | None:
        """Finish a tick: environments take a step. Return the results of the episodes that ended, if any did."""
        outputs = self.inference.finish()[self._rows]
        self.begun = False
        # If only slot 0 is live, use the index 0 and numbers, which are faster than a slice and arrays of one element.
        alone = self._span == 1
        rows = 0 if alone else self._rows
        began_at = time.perf_counter()
        rewards, ended = self.engine.step(self._live, outputs, self._observations)
        now = time.perf_counter()
        self.environment_seconds += now - began_at
        self.detector.advance(now)
        self._seconds[rows] += (now - began_at) / len(self._live)
        self._lengths[rows] += 1
        if self._max_steps is not None:
            ended = ended | (self._lengths[rows] >= self._max_steps)
        # Read metrics before `_fail`, because `engine.metrics` reports a missing metric as a fault.
        if self.engine.metric_names and ended.any():
            slots = self._live[ended]
            self._metrics[slots] = self.engine.metrics(slots)
        self.detector.after_step(self._live, self._span, rewards)
        if self.engine.faults:
            self._fail(rewards, ended, outputs)
        self._returns[rows] += rewards.item() if alone else rewards
        if not (ended.item() if alone else ended.any()):
            return None
        results = self._results(self._live[ended])
        self.fill()
        return results

    def _fail(self, rewards: Float64, ended: Bool, outputs: Float32) -> None:
        """Record the episodes that failed. Write NaN into their rewards [k], and True into `ended` [k].

        outputs: [k, A], the outputs of the networks. The message names outputs that are not finite.
        """
        for slot, fault in self.engine.faults.items():
            # A fault in a free slot belongs to no episode.
            if not self._free[slot]:
                row = int(np.searchsorted(self._live, slot))  # the place of the slot among the live ones
                rewards[row] = np.nan
                ended[row] = True
                self._metrics[slot] = 0
                genome, episode, seed = int(self._genomes[slot]), int(self._episodes[slot]), int(self._seeds[slot])
                message = _fault_of_outputs(outputs[row]) + fault
                self._failures.append(EpisodeFailure(genome, episode, seed, int(self._lengths[slot]), message))
        self.engine.faults.clear()

    def take_failures(self) -> list[EpisodeFailure]:
        """Return the episodes that failed since the last call."""
        failures, self._failures = self._failures, []
        return failures

    def _results(self, slots: Slots) -> EpisodeResults:
        """Free slots [k], and return the results of their episodes."""
        self._free[slots] = True
        self._update_live()
        genomes = self._genomes[slots]
        lengths = self._lengths[slots]
        fingerprints, step_hashes = self.inference.hashes(slots, lengths)
        return EpisodeResults(
            genomes=genomes,
            episodes=self._episodes[slots],
            returns=self._returns[slots],
            lengths=lengths,
            fingerprints=fingerprints,
            moments=self.inference.moments(slots),
            episode_seconds=self._seconds[slots],
            encoded_metrics=self._metrics[slots],
            hashed=np.ones(len(slots), np.bool_),
            step_hashes=step_hashes,
            traced=genomes_of_traces(genomes, self._traces),
            traces=self._quantized_traces(slots),
            **self.queue.take_descriptions(),
        )

    def _quantized_traces(self, slots: Slots) -> Int64:
        """Return [k, T]: the traces in units of `TRACE_UNIT`, 0 for a pruned connection; no rows for "none"."""
        if self._traces == "none":
            return np.zeros((0, 0), np.int64)
        return quantize_traces(np.where(self._masks[slots], self.inference.traces(slots), np.float32(0)))

    def fill(self, most: int = sys.maxsize) -> None:
        """Begin at most `most` queued episodes if enough slots are free, or if no episode runs.

        Otherwise close the gaps between live slots if at least half of the slots up to the last live one are free.
        """
        # Some engines reset many environments in one call, so episodes wait for `engine.min_free_slots` free slots.
        num_free = len(self._free) - len(self._live)
        n = min(num_free, len(self.queue), most)
        if n and (not len(self._live) or num_free >= self.engine.min_free_slots):
            self._begin(np.flatnonzero(self._free)[:n])
        elif len(self._live) and 2 * len(self._live) <= self._span:
            self._compact()

    def _begin(self, slots: Slots) -> None:
        """Begin queued episodes in free slots [k]."""
        restore_ieee()
        # `_load` may generate genomes. This takes long, and must not count for running episodes.
        self.detector.advance(time.perf_counter())
        num_loaded = 0
        # Each call of `_load` takes episodes of only one batch, with genomes in one `GenomeWindow`.
        while num_loaded < len(slots):
            num_loaded += self._load(slots[num_loaded:])
        self.detector.resume(time.perf_counter())
        self._returns[slots] = 0.0
        self._lengths[slots] = 0
        self._free[slots] = False
        self._update_live()
        self.detector.begin(slots)
        began_at = time.perf_counter()
        self.engine.reset(slots, self._seeds[slots], self._observations)
        seconds = time.perf_counter() - began_at
        self.environment_seconds += seconds
        self._seconds[slots] = seconds / len(slots)
        self.detector.after_reset(slots)
        # The next tick ends episodes whose reset failed. It also adds 1 to their length, which becomes 0.
        self._lengths[list(self.engine.faults)] = -1

    def _load(self, slots: Slots) -> int:
        """Put queued episodes of one batch into the first of these slots; return their number."""
        episodes = self.queue.take(len(slots))
        assert episodes is not None  # `fill` begins at most as many as are queued
        at = slots[: len(episodes)]
        genomes = episodes.genome_of_each()
        self.inference.load(at, genomes.weights, genomes.mask, episodes.seeds, episodes.normalizers)
        self._genomes[at] = episodes.genome_ids
        self._episodes[at] = episodes.episodes
        self._seeds[at] = episodes.seeds
        self._traces = episodes.traces
        if self._traces != "none" and self._num_traces:
            # Masks need memory only if the results have traces.
            if not self._masks.size:
                self._masks = np.zeros((len(self._free), self._num_traces), np.bool_)
            self._masks[at] = genomes.mask
        return len(episodes)

    def _compact(self) -> None:
        """Move the episodes of the last live slots to free slots, so that the n live slots are the first n."""
        # Networks compute all slots up to the last live one, so gaps cost time. Metrics do not move: they are read when
        # an episode ends.
        n = len(self._live)
        targets = np.flatnonzero(self._free[:n])
        sources = self._live[n - len(targets) :]  # as many live slots as there are targets
        for part in (self.inference, self.engine, self.detector):
            part.move(sources, targets)
        for array in (self._observations, self._genomes, self._episodes, self._seeds, self._returns, self._lengths,
                      self._seconds, self._masks):  # fmt: skip
            array[targets] = array[sources]
        self._free[sources] = True
        self._free[targets] = False
        self._update_live()

    def _update_live(self) -> None:
        """Compute what follows from `_free`: the live slots in ascending order, and the last live slot plus 1."""
        self._live: Slots = np.flatnonzero(~self._free)
        n = len(self._live)
        self._span = int(self._live[-1]) + 1 if n else 0
        # `_rows` selects the live slots. Without gaps it is a slice, which gives views; indices would give copies.
        self._rows = slice(0, n) if self._span == n else self._live


def _fault_of_outputs(outputs: Float32) -> str:
    """Return the beginning of the message of a failed episode, about outputs [A] of its network that are not finite.

    It is "" if all are finite. After a NaN as action, most environments return a NaN or raise an exception.
    """
    invalid = np.flatnonzero(~np.isfinite(outputs))
    if not len(invalid):
        return ""
    got = f"{outputs[invalid[0]]} at position {invalid[0]} of {len(outputs)}"
    return f"outputs of the network: expected finite numbers, got {got}; then "
