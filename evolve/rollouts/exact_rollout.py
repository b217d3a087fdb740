"""A rollout of an exact task by the native kernels: one call plays many episodes to their end.

Network, environment, normalization, fingerprints and the next episodes of free slots are all in that call, which plays
one tile of slots: all that it works on stays in the first cache. It keeps the interface of `Rollout`, and its bits.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

from evolve.networks.slot_arrays import SlotArrays
from evolve.rollouts.episodes import EpisodeBatch, EpisodeFailure, EpisodeResults
from evolve.rollouts.feeds import Feed, Play
from evolve.rollouts.queue import EpisodeQueue
from evolve.rollouts.results import join_descriptions
from evolve.shapes import Int64

_CALL_SECONDS = 0.004
"""How long a call should take, so that a worker looks for messages often enough."""
_RESULTS_SECONDS = 0.1
"""How long results may be held back, so that many come together: handing over few takes as long as playing them."""
_MOST_STEPS = 2**20
"""How many steps a call makes at most: where episodes are over soon, the clock sets no limit."""
_KEY = np.int64(2**32)


class ExactRollout:
    """Plays episodes of an exact task. None of them can fail, or take for ever.

    Args:
        play: The slots, of the task and the batch.
        batch: Of the network's slots.
        waiting: How many episodes are prepared at a time.
        max_episode_seconds: What messages of this rollout's workers say; no episode takes that long.
    """

    def __init__(self, play: Play, batch: SlotArrays, waiting: int, max_episode_seconds: float) -> None:
        self.max_episode_seconds = max_episode_seconds
        self.environment_seconds = 0.0
        """How long episodes were played: environments and networks, which nothing tells apart."""
        self._batch = batch
        self._waiting = waiting
        self._play = play
        self._queue = EpisodeQueue()
        self._traces = "none"
        self._steps = 64  # of a call
        self._made = 0  # steps of episodes since results were last returned
        self._seconds = 0.0  # that they took

    @property
    def pending(self) -> int:
        """Episodes that are queued or running."""
        return len(self._queue) + self._play.waiting + self._play.running

    @property
    def ticking(self) -> int:
        """How many episodes the next tick steps, at least."""
        return self._play.running or min(self.pending, 1)

    def submit(self, batch: EpisodeBatch) -> None:
        """Queue episodes."""
        self._queue.append(batch)

    def tick(self) -> EpisodeResults | None:
        """Play on for some milliseconds; return the results of all episodes that ended, None for none, or for now."""
        if self._play.ready and len(self._queue):
            self._feed()
        begin = time.perf_counter()
        self._made += self._play.run(self._steps, more=len(self._queue) > 0)
        seconds = time.perf_counter() - begin
        self._seconds += seconds
        self.environment_seconds += seconds
        wanted = int(self._steps * _CALL_SECONDS / max(seconds, 1e-6))
        self._steps = max(16, min(2 * self._steps, wanted, _MOST_STEPS))
        due = not self._play.waiting or self._seconds > _RESULTS_SECONDS
        return self._results() if due and self._play.over else None

    def take_failures(self) -> list[EpisodeFailure]:
        """Return the episodes that have failed: none."""
        return []

    def clear(self) -> None:
        """Forget every episode."""
        self._queue.clear()
        self._play.clear()
        self._made, self._seconds = 0, 0.0

    def close(self) -> None:
        """Do nothing: there are no environments."""

    def call_on_fault(self, callback: Callable[[], None]) -> None:
        """Do nothing: no environment fails."""

    def make_genomes_within(self, context: Callable[[], AbstractContextManager[object]]) -> None:
        """Have a context entered while genomes are made: that is no episode's time."""
        self._queue.making = context

    def _feed(self) -> None:
        """Prepare the next episodes."""
        episodes = self._queue.take(self._waiting)
        genomes = episodes.genomes
        self._traces = episodes.traces
        keys: Int64 = episodes.genome_ids * _KEY + episodes.episodes
        columns = self._batch.initial(genomes.weights, genomes.mask, episodes.seeds)
        mask = genomes.mask if self._traces != "none" else genomes.mask[:, :0]
        self._play.feed(Feed(columns, episodes.seeds, keys, episodes.normalizers, mask))

    def _results(self) -> EpisodeResults:
        seconds_per_step = self._seconds / max(self._made, 1)
        self._made, self._seconds = 0, 0.0
        played = self._play.take()
        genomes = (played.keys >> 32).astype(np.int32)
        described, descriptions = join_descriptions(self._queue.take_descriptions())
        traced = {"each": genomes, "mean": np.zeros_like(genomes), "none": genomes[:0]}[self._traces]
        return EpisodeResults(
            genomes=genomes,
            episodes=(played.keys & (_KEY - 1)).astype(np.int32),
            returns=played.returns,
            lengths=played.lengths,
            fingerprints=played.fingerprints,
            moments=played.moments,
            episode_seconds=(played.lengths * seconds_per_step).astype(np.float32),
            step_hashes=played.step_hashes,
            traced=traced,
            traces=played.traces[: len(traced)],
            described=described,
            digests=descriptions.digests,
            connections=descriptions.connections,
            genome_fingerprints=descriptions.fingerprints,
        )
