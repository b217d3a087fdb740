"""The coordinator is rank 0. It gives jobs to the workers, receives their results, and goes on without lost workers.

`jobs` defines the two kinds of jobs, and `workers` the queue that hands out the items of a job.
"""

import itertools
import json
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from functools import partial

import numpy as np

from evolve.cluster import messages
from evolve.cluster.jobs import Evaluation, Inquiry, Job, Progress
from evolve.cluster.messages import JobMessage, StopRequest, WorkerError
from evolve.cluster.transport import LONGEST_SLEEP, Buffer, Transport
from evolve.cluster.watchdog import Watchdog
from evolve.cluster.worker import MakeRollout, error_report, loaded_versions
from evolve.cluster.workers import Workers, WorkQueue, check_silence, note_farewell, suitable_sizes
from evolve.environments import keeping_directory
from evolve.errors import FAILURES, Interrupted, RunError, Stopped, pluralize
from evolve.numerics import restore_ieee
from evolve.rollouts import AnyRollout, EpisodeBatch, PopulationResults, RolloutSpec
from evolve.rollouts.exact_rollout import ThreadedRollout
from evolve.shapes import Float64, Int64

# Numbers of jobs are unique in this process: a worker may still answer a job of an earlier coordinator.
_SERIALS = itertools.count(1)
_SLEEP_SHARE = 0.05  # rank 0 may sleep for this share of the time for which each worker has work in advance
_LOG = logging.getLogger("evolve")


class Coordinator:
    """Evaluates batches of episodes over the ranks of a transport, or in this process if there are no workers.

    `Worker.handle` handles the messages that `set_up`, `evaluate`, `update` and `ask` send.

    Args:
        transport: Connects the ranks. Ranks other than 0 are workers; there may be no worker.
        make_rollout: Makes a rollout from a TOML text, `RolloutSpec.experiment`. Every rank has the same function.
        stop_reason: Called often. Returns None, or a reason to stop early, which is then raised as `Stopped`.
        exit_on_hang: Whether this process exits if an episode hangs in native code while this process plays it.
    """

    def __init__(
        self,
        transport: Transport,
        make_rollout: MakeRollout,
        stop_reason: Callable[[], str | None] = lambda: None,
        exit_on_hang: bool = True,
    ) -> None:
        self._transport = transport
        self._make_rollout = make_rollout
        self._stop_reason = stop_reason
        self._exit_on_hang = exit_on_hang
        self._workers = Workers(transport)
        self._spec: RolloutSpec | None = None
        self._episode_seconds = 0.0  # the busy seconds of all ranks per episode of the last batch; 0 before it
        self._own_rollout: AnyRollout | None = None
        # [2, R]: the seconds of each rank at work, and in environments, since the last `take_seconds`.
        self._seconds = np.zeros((2, transport.size))
        self.shared_version: Hashable = None
        """The version of the `worker.SharedState` of all workers, as last passed to `update`."""
        self.progress: Progress = lambda *_: None
        """Called often during `evaluate`, with the arguments of `jobs.Progress`."""

    @property
    def workers(self) -> tuple[int, ...]:
        """The ranks of the workers, in ascending order."""
        return self._workers.ranks

    @property
    def plays_elsewhere(self) -> bool:
        """Whether workers or other threads play, so that this thread can do other work meanwhile."""
        return bool(self._workers) or isinstance(self._own_rollout, ThreadedRollout)

    def set_up(self, spec: RolloutSpec) -> None:
        """Tell all workers to make the rollout of an experiment, unless they have it. Do not wait for them."""
        if spec == self._spec:
            return
        self._spec = spec
        self._own_rollout = None
        if self._workers:  # without workers, the versions are not needed
            versions = json.dumps(loaded_versions(spec.experiment))
            self._workers.set_up(messages.Setup(spec.experiment, versions, json.dumps(spec.trial)))

    def forget_setup(self) -> None:
        """Let the next `evaluate` set workers up again, as after `dismiss`. The workers keep their shared state."""
        self._spec = None

    def update(self, updates: Iterable[tuple[Buffer, int]], version: Hashable) -> None:
        """Update the shared state of all workers. They apply an update before they handle any later message.

        Args:
            updates: Pairs (update, skip). The worker of rank `skip` has the update already; 0 skips no worker.
            version: The version of the shared state afterwards.
        """
        for content, skip in updates:
            self._workers.send_all(messages.Update(content), skip)
        self.shared_version = version

    def ask(self, questions: Sequence[Buffer]) -> list[tuple[int, Buffer] | None]:
        """Send questions to workers, which answer by `SharedState.answer`, in any order.

        Returns for each question the rank of a worker and its answer; None if there is no answer, because all workers
        are lost or the question has hung or killed several workers. Raises Stopped as `evaluate` does, and RunError if
        a worker failed.
        """
        inquiry = Inquiry(next(_SERIALS), questions, 0.0 if self._spec is None else self._spec.max_episode_seconds)
        self._run(inquiry)
        return inquiry.answers

    def evaluate(
        self,
        spec: RolloutSpec,
        batch: EpisodeBatch,
        meanwhile: Callable[[], None] | None = None,
        tables: PopulationResults | None = None,
    ) -> PopulationResults:
        """Play a batch of N episodes; return the results of its C genomes.

        The coordinator goes on without workers that hang. If MPI survives the death of a rank, it also goes on without
        workers that die. If no worker is left, this process plays the other episodes, unless the last worker hangs.

        Args:
            spec: The experiment to which the batch belongs.
            batch: The episodes.
            meanwhile: Called once, as soon as workers or other threads have work. Not called if this thread plays
                alone.
            tables: The tables that collect the results; by default new ones. Batches with the same genomes may share
                them.

        Raises:
            Stopped: `stop_reason` gave a reason, or a worker received a signal.
            EpisodeError: An episode failed, and `spec.on_failure` is "stop".
            RunError: A worker failed, or all remaining workers hang.
        """
        self.set_up(spec)
        # The time of an episode in the last batch predicts its time in this one.
        chunk_sizes = partial(suitable_sizes, spec=spec, episode_seconds=self._episode_seconds)
        if tables is None:
            tables = PopulationResults.of(batch, spec.num_traces)
        evaluation = Evaluation(spec, batch, self._transport.hosts, next(_SERIALS), chunk_sizes, self.progress, tables)
        had_workers = bool(self._workers)
        unplayed = self._run(evaluation, meanwhile)
        if len(unplayed):  # if there were workers at first, `_run` has called `meanwhile` already
            self._play_alone(evaluation, unplayed, None if had_workers else meanwhile)
        self._seconds += evaluation.seconds
        self._episode_seconds = float(evaluation.seconds[0].sum()) / len(batch)
        restore_ieee()  # an environment in this process may have loaded a library that changed the arithmetic
        return evaluation.finish()

    def take_seconds(self) -> tuple[Float64, Float64]:
        """Return two arrays [R]: the seconds of each rank at work, and in environments, since the last call."""
        busy, environments = self._seconds
        self._seconds = np.zeros_like(self._seconds)
        return busy, environments

    def _run(self, job: Job, meanwhile: Callable[[], None] | None = None) -> Int64:
        """Let the workers do a job; return the items [n] that are left because there are no workers any more."""
        workers = self._workers
        if not workers:
            return np.arange(len(job))

        # The queue knows only the numbers of items. The job makes the messages.
        def send(worker: int, items: Int64) -> None:
            workers.send(worker, job.message(items))

        queue = WorkQueue(len(job), workers.ranks, job.chunk_sizes, send, job.uneven)
        workers.reset_silence()
        queue.hand_out()
        if meanwhile is not None:
            meanwhile()
        while workers and queue.unfinished:
            self._check_stop()
            received = workers.receive()
            # Look for losses only when no message waits: a waiting message may come from a worker that seems silent.
            if received is None:
                self._check_losses(job, queue)
                self._transport.backoff(idle_sleep(queue.items_ahead * self._episode_seconds))
                continue
            worker, message = received
            match message:
                case WorkerError(report):
                    raise RunError(report)
                case StopRequest(signal):
                    # A launcher may send one signal to all ranks, so rank 0 may have a reason of its own.
                    reason = self._stop_reason() or f"signal {signal} at a worker"
                    raise Stopped(f"stopped by {reason}")
            # A worker may still send results of an earlier job, which was stopped.
            if isinstance(message, JobMessage) and message.serial == job.serial:
                job.handle(message, worker, queue)
        return queue.pending.items

    def _check_losses(self, job: Job, queue: WorkQueue) -> None:
        """Give the items of lost workers to other ranks. An item that kills or hangs several workers counts as failed.

        All lost workers are removed before any item is handed out, so that no item goes to another lost worker.
        """
        losses = self._workers.remove_lost(queue.busy, job.patience)
        for loss in losses:
            pending, failed = queue.remove(loss.worker, loss.fate)
            when = time.strftime("%Y-%m-%d %H:%M:%S")
            host = self._transport.hosts[loss.worker]
            _LOG.warning("%s: rank %d on %s %s; other ranks take over its %s",
                         when, loss.worker, host, loss.description, pluralize(pending, job.item_noun))  # fmt: skip
            job.fail(failed, loss, queue.num_idle)
        if losses and self._workers:
            queue.hand_out()
        elif losses and queue.unfinished:
            job.announce_takeover(queue, losses[-1])

    @keeping_directory()
    def _play_alone(self, evaluation: Evaluation, items: Int64, meanwhile: Callable[[], None] | None) -> None:
        """Play some episodes [n] of a batch in this process.

        meanwhile: Called once after the first tick, if other threads play the episodes. None if it was called already.
        """
        spec = evaluation.spec
        if self._own_rollout is None:
            self._own_rollout = self._make_rollout(spec.experiment)
        rollout = self._own_rollout
        # An earlier batch may have been stopped, and have left episodes in the rollout.
        rollout.clear()
        rollout.environment_seconds = 0.0
        begin = time.perf_counter()
        # Exact tasks cannot fail, so submit all their episodes at once. Other environments may fail and stop the run,
        # so submit at most one of their episodes per slot in advance.
        at_once = len(items) if rollout.whole_episodes else spec.slots
        num_submitted = num_finished = 0
        with Watchdog(spec.max_episode_seconds, fatal=self._exit_on_hang) as watchdog:
            rollout.queue.generating = watchdog.paused  # generating genomes may take long, which is not a hang
            rollout.call_on_fault(watchdog.pat)  # within a tick, several episodes may hang one after another
            while num_finished < len(items):
                self._check_stop()
                # The watchdog holds back an alarm (SIGALRM) of the user's program. The handler may raise, so call it
                # here, where no environment runs.
                watchdog.deliver_alarm()
                watchdog.pat()
                try:
                    if num_submitted < len(items) and rollout.pending <= at_once:
                        rollout.submit(evaluation.batch.take(items[num_submitted : num_submitted + at_once]))
                        num_submitted += at_once
                    results = rollout.tick()
                except FAILURES as error:
                    raise RunError(error_report(self._transport)) from error
                except Interrupted:
                    # A signal has interrupted the environment. If the signal asks to stop, raise `Stopped` instead.
                    self._check_stop()
                    raise
                if meanwhile is not None and self.plays_elsewhere:
                    meanwhile()
                meanwhile = None
                for failure in rollout.take_failures():
                    evaluation.report(failure, 0)
                if results is not None:
                    evaluation.collect(results, num_idle=0)
                    num_finished += len(results)
        evaluation.seconds[:, 0] += time.perf_counter() - begin, rollout.environment_seconds

    def _check_stop(self) -> None:
        """Raise Stopped if there is a reason to stop, or HostLost if the job cannot go on without lost hosts."""
        reason = self._stop_reason()
        if reason is not None:
            raise Stopped(f"stopped by {reason}")
        check_silence(self._transport)


def idle_sleep(seconds: float) -> float:
    """Return the seconds that rank 0 may sleep between two probes.

    seconds: The time for which each worker has work in advance.
    """
    return min(_SLEEP_SHARE * seconds, LONGEST_SLEEP)


def dismiss(transport: Transport, answer: bytes = b"", patience: float = 5.0) -> bool:
    """Make `serve` return `answer` at every worker; return whether all workers that are not lost confirmed in time.

    This function waits at most `patience` seconds for the confirmations, and then as long again until all messages are
    sent. If a message cannot be sent, the result is False, too.

    patience: In seconds. Each rank adds 0.05 s, because many ranks on few cores take turns.
    """
    patience += 0.05 * transport.size
    deadline = time.monotonic() + patience
    transport.leaving = set(range(1, transport.size)) - transport.gone
    frame = messages.encode(messages.Dismiss(np.frombuffer(answer, np.uint8)))
    for worker in transport.leaving:
        transport.send(worker, frame)
    # If MPI survives deaths, MPI_Finalize may wait for an abandoned rank. So this loop also waits for its death.
    while (transport.leaving or (transport.tolerant and transport.abandoned)) and time.monotonic() < deadline:
        if not _receive_farewell(transport):
            transport.find_lost()
            transport.leaving -= transport.gone
            transport.backoff()
    return not transport.leaving and transport.flush(patience)


def all_have_left(transport: Transport) -> bool:
    """Return False if a rank may never end by itself: it was abandoned, or has not confirmed its dismissal."""
    while _receive_farewell(transport):
        pass
    return not (transport.leaving or transport.abandoned)


def await_ends(transport: Transport, ranks: Set[int], patience: float) -> None:
    """Receive messages for at most `patience` seconds, until the scripts of all `ranks` have ended.

    Do not wait for lost ranks, nor for ranks that have not confirmed their dismissal.
    """
    deadline = time.monotonic() + patience
    while ranks - transport.gone - transport.leaving and time.monotonic() < deadline:
        if not _receive_farewell(transport):
            transport.find_lost()
            transport.backoff()


def _receive_farewell(transport: Transport) -> bool:
    """Receive a message, and drop it unless it is `Dismiss` or `Ended`. Return whether there was a message."""
    received = transport.probe()
    if received is None:
        return False
    worker, frame = received
    note_farewell(transport, worker, messages.decode(frame))
    return True
