"""Doing without workers that have died, or no longer answer."""

import logging
import time
from collections.abc import Collection

from evolve.cluster import messages
from evolve.cluster.limits import SILENCE, silence_seconds
from evolve.cluster.messages import Kill
from evolve.cluster.reports import FailureReporter
from evolve.cluster.scheduler import Fate, Scheduler
from evolve.cluster.transport import Transport
from evolve.cluster.watchdog import kill, patience
from evolve.errors import HostLost, RunError
from evolve.rollouts import EpisodeBatch, EpisodeFailure, ResultsCollector
from evolve.shapes import Int64

_LOG = logging.getLogger("evolve")
_LONGEST_SETUP = 600.0  # seconds until a worker has made its environments
_MOST_PASSED = 0.5  # seconds between two looks, at most: we may have slept
_KILLS = "it was there whenever a worker died"


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
