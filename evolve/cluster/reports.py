"""Saying which episode has failed, and where: as the error that ends an evaluation, or as a warning."""

import logging

import numpy as np

from evolve.cluster.transport import Transport
from evolve.errors import EpisodeError
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, EpisodeFailure, EpisodeResults, RolloutSpec
from evolve.shapes import Int64

_LOG = logging.getLogger("evolve")
_MAX_DESCRIBED = 3  # failed episodes of an evaluation


class FailureReporter:
    """Reports the failed episodes of one batch."""

    def __init__(self, spec: RolloutSpec, batch: EpisodeBatch, transport: Transport) -> None:
        self._spec = spec
        self._batch = batch
        self._transport = transport
        self._failed = 0

    def report(self, failure: EpisodeFailure, rank: int) -> None:
        """Raise EpisodeError, or say that the episode counts as the worst, as the batch wants it."""
        which, key = self._name(failure.genome, failure.episode)
        where = f"on rank {rank} ({self._transport.hosts[rank]})"
        if failure.seed >= 0:
            step = f"step {failure.step}" if failure.step else "reset"
            where = f"in {step}, environment seed {failure.seed}, {where}"
        message = failure.message.rstrip()
        if self._spec.on_failure == "stop":
            raise EpisodeError(which, f"{where}:\n{message}", key)
        self._failed += 1
        if self._failed <= _MAX_DESCRIBED:
            _LOG.warning("%s failed and counts as the worst, %s: %s", which, where, message.splitlines()[-1])

    def finish(self, results: EpisodeResults) -> None:
        """Say how many more there were than were described. Workers do not report all of many: those are counted."""
        failed = int(np.count_nonzero(np.isnan(results.returns)))
        if failed > _MAX_DESCRIBED:
            _LOG.warning("… and %d more", failed - _MAX_DESCRIBED)

    def name_some(self, indices: Int64) -> str:
        """Return the names of the first of some episodes [n], by their indices in the batch."""
        rows, episodes = self._batch.rows[indices], self._batch.episodes[indices]
        some = zip(rows[:_MAX_DESCRIBED].tolist(), episodes[:_MAX_DESCRIBED].tolist(), strict=True)
        return "; ".join(self._name(row, episode)[0] for row, episode in some) + " …" * (len(indices) > _MAX_DESCRIBED)

    def _name(self, genome: int, episode: int) -> tuple[str, tuple[int, int, int, int]]:
        """Return an episode in words, and as (purpose, generation, candidate, episode)."""
        purpose = Purpose(self._batch.purpose)
        generation = int(self._batch.keys[genome, 0])
        candidate = int(self._batch.candidates[genome])
        key = int(purpose), generation, candidate, episode
        if purpose is Purpose.EPISODE:
            return f"generation {generation}, candidate {candidate}, episode {episode}", key
        return f"{purpose.title} episode {episode} of the champion", key
