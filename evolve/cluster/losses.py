"""Lost workers and failed episodes: notice them, report them, and go on without them."""

import logging
import time
from collections.abc import Collection

import numpy as np

from evolve.cluster import messages
from evolve.cluster.messages import Kill
from evolve.cluster.start import SILENCE, silence_seconds
from evolve.cluster.transport import Transport
from evolve.cluster.watchdog import kill, patience
from evolve.cluster.work_queue import Fate, Scheduler
from evolve.errors import EpisodeError, HostLost, RunError
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, EpisodeFailure, EpisodeResults, ResultsCollector, RolloutSpec
from evolve.shapes import Int64

_LOG = logging.getLogger("evolve")
_MAX_DESCRIBED = 3  # failed episodes of an evaluation
_LONGEST_SETUP = 600.0  # seconds until a worker has made its environments
_MOST_PASSED = 0.5  # seconds between two looks, at most: we may have slept
_KILLS = "it was there whenever a worker died"


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


def check_silence(transport: Transport) -> None:
    """After hosts have fallen silent, raise HostLost if MPI cannot go on, or if this host may be what is cut off."""
    elsewhere = {host for rank, host in enumerate(transport.hosts) if rank not in transport.gone} - {transport.host}
    if not (transport.tolerant and elsewhere):
        raise HostLost(f"the silence of {', '.join(sorted(transport.silent))}, for {silence_seconds():g} s ({SILENCE})")


class LossHandler:
    """Notices lost workers during the evaluation of a batch, and gives what they were to do to the others.

    Args:
        transport: To the workers.
        workers: Their ranks; modified: lost workers are removed.
        ready: Those that have sent a message; the others may still be making their environments.
        batch: What is evaluated.
        max_episode_seconds: How long an episode may take.
        scheduler: Who keeps the books.
        collector: Where episodes that are given up count as failed.
        reporter: Who says so.
    """

    def __init__(
        self,
        transport: Transport,
        workers: list[int],
        ready: Collection[int],
        batch: EpisodeBatch,
        max_episode_seconds: float,
        scheduler: Scheduler,
        collector: ResultsCollector,
        reporter: FailureReporter,
    ) -> None:
        self._transport = transport
        self._workers = workers
        self._ready = ready
        self._batch = batch
        self._max_episode_seconds = max_episode_seconds
        self._scheduler = scheduler
        self._collector = collector
        self._reporter = reporter
        self._looked = time.monotonic()

    def look(self) -> None:
        """Look once for dead and for silent workers. Raises HostLost; and RunError when only hanging ones are left."""
        now = time.monotonic()
        passed = min(now - self._looked, _MOST_PASSED)
        self._looked = now
        lost = self._transport.lost()
        if self._transport.silent:
            check_silence(self._transport)
        for worker in lost:
            if worker in self._workers:
                self._do_without_dead(worker)
        for worker in self._scheduler.add_silence(passed, self._patience):
            self._do_without_silent(worker)

    def _do_without_dead(self, worker: int) -> None:
        silent = self._transport.hosts[worker] in self._transport.silent
        again, blamed = self._scheduler.remove(worker, Fate.CUT_OFF if silent else Fate.DEATH)
        self._say_lost(worker, "was lost: its host is silent" if silent else "was lost", again)
        self._mark_failed(blamed, worker, _KILLS)
        if not self._workers:
            indices = self._scheduler.lost_last
            last = (
                f", at last those that workers died with: {self._reporter.name_some(indices)}" if len(indices) else ""
            )
            _LOG.warning("no worker is left: rank 0 evaluates the rest by itself%s", last)

    def _do_without_silent(self, worker: int) -> None:
        self._transport.abandon(worker)
        self._kill(worker)
        again, blamed = self._scheduler.remove(worker, Fate.HANG)
        self._say_lost(worker, "no longer answers, and is given up", again)
        hangs = f"it hangs in native code, for longer than {self._max_episode_seconds:g} s"
        self._mark_failed(blamed, worker, f"{hangs} (env.max_episode_seconds)")
        if self._scheduler.unfinished and not self._workers:
            left = self._scheduler.unfinished
            raise RunError(f"no worker is left but hanging ones, and {left} episodes; rank 0 must not hang")

    def _patience(self, worker: int) -> float:
        usual = patience(self._max_episode_seconds) + 1.0  # it says where it hangs before
        return usual if worker in self._ready else max(usual, _LONGEST_SETUP)

    def _kill(self, worker: int) -> None:
        """End a worker that hangs, where its death ends nobody else."""
        transport = self._transport
        if not transport.tolerant:
            return
        host = transport.hosts[worker]
        beside = [other for other in self._workers if other != worker and transport.hosts[other] == host]
        if host == transport.host:
            kill(transport.pids[worker])
        elif beside:
            transport.send(beside[0], messages.encode(Kill(transport.pids[worker])))

    def _say_lost(self, worker: int, how: str, again: int) -> None:
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        host = self._transport.hosts[worker]
        _LOG.warning("%s: rank %d on %s %s; its %d episodes are evaluated by others", when, worker, host, how, again)

    def _mark_failed(self, indices: Int64, worker: int, why: str) -> None:
        """Count episodes [n] that hang or kill workers as failed."""
        for index in indices.tolist():
            genome = int(self._batch.rows[index])
            episode = int(self._batch.episodes[index])
            self._reporter.report(EpisodeFailure(genome, episode, -1, -1, why), worker)
            self._collector.add_failure(genome, episode, self._batch.normalizers.shape[2])
