"""The coordinator: hands batches out in shrinking chunks, and collects the results by key."""

import itertools
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np

from evolve.cluster import messages
from evolve.cluster.losses import FailureReporter, LossHandler, check_silence
from evolve.cluster.messages import ChunkResults, FailedEpisode, Message, Note, Setup, Stop, StopRequest, WorkerError
from evolve.cluster.transport import Buffer, Transport
from evolve.cluster.watchdog import Watchdog
from evolve.cluster.work_queue import ChunkSizes, Questions, Scheduler, suitable_sizes
from evolve.cluster.worker import MakeRollout, error_report
from evolve.errors import FAILURES, RunError, Stopped
from evolve.numerics.streams import Purpose
from evolve.rollouts import AnyRollout, EpisodeBatch, EpisodeResults, ResultsCollector, RolloutSpec
from evolve.shapes import Float64, Int64

_LONGEST_ANSWER = 600.0  # seconds until a worker that does not answer a question is done without
_SERIALS = itertools.count(1)  # of all coordinators of this process: workers may still answer the last one
_SETUPS = itertools.count(1)


class Coordinator:
    """Evaluates batches of episodes over the ranks of a transport, or in this process when it is the only one.

    Args:
        transport: To the workers, if there are any.
        make_rollout: From the experiment's text in a `RolloutSpec`; every rank has the same.
        stop_reason: Called often; returns why to stop early, or None. Its answer becomes `Stopped`.
        chunk_sizes: Of the chunks; by default they shrink as the batch ends.
        exit_on_hang: Whether this process ends when it plays an episode itself that hangs in native code.
    """

    def __init__(
        self,
        transport: Transport,
        make_rollout: MakeRollout,
        stop_reason: Callable[[], str | None] = lambda: None,
        chunk_sizes: ChunkSizes | None = None,
        exit_on_hang: bool = True,
    ) -> None:
        self._transport = transport
        self._make_rollout = make_rollout
        self._stop_reason = stop_reason
        self._chunk_sizes = chunk_sizes or self._shrinking_sizes
        self._exit_on_hang = exit_on_hang
        self._workers = [rank for rank in range(1, transport.size) if rank not in transport.gone]
        self._ready: set[int] = set()
        self._spec: RolloutSpec | None = None
        self._setup = 0
        self._serial = 0
        self._episode_seconds = 0.0  # of the last batch, each
        self._own_rollout: AnyRollout | None = None
        self._report: FailureReporter | None = None
        self._seconds = np.zeros((2, transport.size))
        self.noted: Hashable = None
        """What workers have taken note of, the key that was last passed to `note`."""
        self.progress: Callable[[Purpose, int, int, int], None] = _ignore
        """Called often: what the batch is for, how many episodes are done, of how many, how many workers are idle."""

    def prepare(self, spec: RolloutSpec) -> None:
        """Have every worker make a rollout, while this process goes on; unless it was the last one they made."""
        if spec == self._spec:
            return
        self._spec = spec
        self._setup = next(_SETUPS)
        self._ready.clear()  # to make environments may take longer than an episode
        self._own_rollout = None
        for worker in self._workers:
            self._transport.send(worker, messages.encode(Setup(self._setup, spec.experiment)))

    def forget(self) -> None:
        """Have workers make their rollouts anew before the next batch: they have left `serve` meanwhile.

        What they have taken note of outlives that.
        """
        self._spec = None

    @property
    def workers(self) -> tuple[int, ...]:
        """The ranks that work, in ascending order."""
        return tuple(self._workers)

    def note(self, contents: Iterable[tuple[Buffer, int]], noted: Hashable) -> None:
        """Have workers take note of something before all that they are asked for next.

        contents: What, and the rank of who knows it already, 0 for nobody. noted: What all know then, to compare with.
        """
        for content, knowing in contents:
            message = messages.encode(Note(content))
            for worker in self._workers:
                if worker != knowing:
                    self._transport.send(worker, message)
        self.noted = noted

    def ask(self, questions: Sequence[Buffer]) -> list[tuple[int, Buffer] | None]:
        """Have workers answer questions; return who answered each, and what; None where no worker was left to.

        Raises Stopped and RunError as `evaluate` does.
        """
        patience = _LONGEST_ANSWER if self._spec is None else max(_LONGEST_ANSWER, self._spec.max_episode_seconds)
        asking = Questions(self._transport, self._workers, questions, next(_SERIALS), patience)
        while asking.unanswered:
            self._check_stop()
            received = self._transport.probe()
            if received is None:
                asking.look()
                self._transport.backoff()
                continue
            worker, frame = received
            message = messages.decode(frame)
            if not asking.take(worker, message):
                self._handle_message(message, worker, None)
        return asking.answers

    def take_seconds(self) -> tuple[Float64, Float64]:
        """Return [R] each: how long every rank was at work, and in environments, since this was last asked."""
        busy, environments = self._seconds
        self._seconds = np.zeros_like(self._seconds)
        return busy, environments

    def evaluate(
        self, spec: RolloutSpec, batch: EpisodeBatch, meanwhile: Callable[[], None] | None = None
    ) -> EpisodeResults:
        """Play a batch of N episodes; return their results, by key, in any order.

        meanwhile: Called once, when workers have something to do.

        A worker that dies, where MPI survives it, or no longer answers is done without; when none is left, this process
        does the rest.

        Raises:
            Stopped: Somebody asked for it.
            EpisodeError: An episode failed, and `spec.on_failure` is "stop".
            RunError: A worker cannot go on.
        """
        self.prepare(spec)
        self._serial = next(_SERIALS)
        self._report = None
        before = float(self._seconds[0].sum())
        collector = ResultsCollector(len(batch.genomes), spec.num_traces, batch.traces)
        left = self._serve_workers(spec, batch, collector, meanwhile) if self._workers else np.arange(len(batch))
        if len(left):
            self._work_alone(spec, batch, left, collector)
        self._episode_seconds = (float(self._seconds[0].sum()) - before) / len(batch)
        results = collector.collect()
        if self._report is not None:
            self._report.finish(results)
        return results

    def _serve_workers(
        self,
        spec: RolloutSpec,
        batch: EpisodeBatch,
        collector: ResultsCollector,
        meanwhile: Callable[[], None] | None,
    ) -> Int64:
        """Evaluate on the workers, until all is done; return the episodes [n] that are left when no worker is."""
        scheduler = Scheduler(self._transport, self._workers, batch, self._serial, self._setup, self._chunk_sizes)
        self._report = FailureReporter(spec, batch, self._transport)
        losses = LossHandler(self._transport, self._workers, self._ready, batch, spec.max_episode_seconds,
                             scheduler, collector, self._report)  # fmt: skip
        scheduler.start()
        if meanwhile is not None:
            meanwhile()
        while self._workers and scheduler.unfinished:
            self._check_stop()
            received = self._transport.probe()
            if received is None:
                losses.look()
                self._transport.backoff()
                continue
            worker, frame = received
            if worker in self._transport.gone:  # its episodes were given to others
                continue
            self._ready.add(worker)
            scheduler.reset_silence(worker)
            message = messages.decode(frame)
            if isinstance(message, ChunkResults) and message.serial == self._serial:
                if scheduler.mark_done(message.results):
                    collector.add(message.results)
                self._seconds[:, worker] += message.busy_seconds, message.environment_seconds
                scheduler.refill(worker, len(message.results))
                self.progress(Purpose(batch.purpose), len(batch) - scheduler.unfinished, len(batch), scheduler.idle)
            else:
                self._handle_message(message, worker, self._report)
        return scheduler.pending.take_all()

    def _work_alone(self, spec: RolloutSpec, batch: EpisodeBatch, indices: Int64, collector: ResultsCollector) -> None:
        """Play some episodes [n] of a batch in this process."""
        if self._own_rollout is None:
            self._own_rollout = self._make_rollout(spec.experiment)
        rollout = self._own_rollout
        rollout.clear()
        rollout.environment_seconds = 0.0
        begin = time.perf_counter()
        submitted = 0
        done = 0
        with Watchdog(spec.max_episode_seconds, fatal=self._exit_on_hang) as watchdog:
            rollout.make_genomes_within(watchdog.paused)
            while done < len(indices):
                self._check_stop()
                watchdog.pat()
                try:
                    if submitted < len(indices) and rollout.pending <= spec.slots:
                        rollout.submit(batch.take(indices[submitted : submitted + spec.slots]))
                        submitted += spec.slots
                    results = rollout.tick()
                except FAILURES as error:
                    raise RunError(error_report(self._transport)) from error
                for failure in rollout.take_failures():
                    self._report = self._report or FailureReporter(spec, batch, self._transport)
                    self._report.report(failure, 0)
                if results is not None:
                    collector.add(results)
                    done += len(results)
                    self.progress(Purpose(batch.purpose), len(batch) - len(indices) + done, len(batch), 0)
        self._seconds[:, 0] += time.perf_counter() - begin, rollout.environment_seconds

    def _shrinking_sizes(self, episodes: int, workers: int) -> Iterator[int]:
        assert self._spec is not None
        spec = self._spec
        return suitable_sizes(
            episodes, workers, spec.slots, spec.chunk_seconds, self._episode_seconds, spec.least_chunk
        )

    def _handle_message(self, message: Message, worker: int, reporter: FailureReporter | None) -> None:
        match message:
            case FailedEpisode(serial, failure) if serial == self._serial and reporter is not None:
                reporter.report(failure, worker)
            case WorkerError(report):
                raise RunError(report)
            case StopRequest(signal):
                raise Stopped(self._stop_reason() or f"signal {signal} at a worker")

    def _check_stop(self) -> None:
        why = self._stop_reason()
        if why is not None:
            raise Stopped(why)
        if self._transport.silent:
            check_silence(self._transport)


def _ignore(*_progress: object) -> None:
    pass


def dismiss(transport: Transport, answer: bytes = b"", patience: float = 5.0) -> bool:
    """Have every worker leave `serve` with an answer; return whether all said so before patience ran out.

    patience: in seconds, for a few ranks; many on few cores take turns, so they have more.
    """
    patience += 0.05 * transport.size
    deadline = time.monotonic() + patience
    present = set(range(1, transport.size)) - transport.gone
    stop = messages.encode(Stop(np.frombuffer(answer, np.uint8)))
    for worker in present:
        transport.send(worker, stop)
    while (present or (transport.tolerant and transport.abandoned)) and time.monotonic() < deadline:
        received = transport.probe()
        if received is None:
            present -= set(transport.lost())
            transport.backoff()
        elif isinstance(messages.decode(received[1]), Stop):
            present.discard(received[0])
    return not present and transport.flush(patience)
