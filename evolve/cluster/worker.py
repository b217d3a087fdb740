"""A worker rank: it waits for chunks, steps all its slots together, and sends results home in small parcels."""

import math
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import numpy as np

from evolve.cluster import messages
from evolve.cluster.messages import (
    Alive,
    Answer,
    Chunk,
    ChunkResults,
    FailedEpisode,
    Kill,
    Message,
    Note,
    Question,
    Setup,
    Stop,
    StopRequest,
    WorkerError,
)
from evolve.cluster.transport import Buffer, Transport
from evolve.cluster.watchdog import Watchdog, kill
from evolve.errors import RunError
from evolve.genome import GenomeSource, select
from evolve.rollouts import AnyRollout, EpisodeBatch, EpisodeResults, join, sum_traces

_MOST = 2


COORDINATOR = 0
_LOOK_EVERY = 0.01  # seconds between looks for messages while there is work; each costs as much as several steps
_LONGEST_KEPT = 2.0  # seconds that results wait for others which are to travel with them
_MOST_FAILURES = 100  # described to the coordinator in one evaluation; all are counted, by their NaN


class KeptRollouts:
    """Makes rollouts, keeps the two that were last asked for, and closes the others: only the newest is at work.

    make_rollout: From an experiment's TOML text.
    """

    def __init__(self, make_rollout: Callable[[str], AnyRollout]) -> None:
        self._make_rollout = make_rollout
        self._kept: dict[str, AnyRollout] = {}

    def __call__(self, text: str) -> AnyRollout:
        """Return the rollout of an experiment."""
        rollout = self._kept.pop(text, None)
        if rollout is None:
            self._close(_MOST - 1)
            rollout = self._make_rollout(text)
        self._kept[text] = rollout
        return rollout

    def close(self) -> None:
        """Release every environment."""
        self._close(0)

    def _close(self, most: int) -> None:
        """Close the oldest, until only so many are left."""
        while len(self._kept) > most:
            self._kept.pop(next(iter(self._kept))).close()


MakeRollout = Callable[[str], AnyRollout]
"""Makes a rollout from an experiment's TOML text."""


def error_report(transport: Transport) -> str:
    """Return where and how the exception being handled was raised."""
    return f"an evaluation failed on rank {transport.rank} ({transport.host}):\n{traceback.format_exc().rstrip()}"


class NoteTaker(Protocol):
    """What a worker has taken note of, answers from, and makes genomes of; it belongs to whoever has the work done."""

    def note(self, content: Buffer) -> None:
        """Take note of something."""

    def answer(self, content: Buffer) -> Buffer:
        """Return the answer to a question."""

    def genomes(self) -> GenomeSource:
        """Return what makes the genomes that a chunk names only."""

    def forget(self) -> None:
        """Forget what was taken note of: something has failed, and notes were missed."""


class WorkerState:
    """What a worker knows between two messages."""

    def __init__(self, transport: Transport, make_rollout: MakeRollout, notes: NoteTaker | None = None) -> None:
        self._transport = transport
        self._make_rollout = make_rollout
        self._notes = notes
        self._rollout: AnyRollout | None = None
        self._watchdog: Watchdog | None = None
        self._serial = -1
        self._failures = 0
        self._busy = 0.0
        self._finished: list[EpisodeResults] = []
        self._sent = 0.0  # when the last message was
        self._silence = math.inf  # seconds after which to say that this worker is alive

    @property
    def idle(self) -> bool:
        """Whether there is nothing to play."""
        return self._rollout is None or self._rollout.pending == 0

    def receive(self, message: Message) -> None:
        """Do what a message asks for."""
        match message:
            case Setup(_, experiment):
                self._set_up(self._make_rollout(experiment))
            case Kill(pid):
                kill(pid)
            case Chunk(serial, _, batch) if self._rollout is not None:
                if serial != self._serial:  # what is left of an abandoned evaluation would never be waited for
                    self._begin(serial)
                begin = time.perf_counter()
                self._rollout.submit(self._with_genomes(batch))
                self._busy += time.perf_counter() - begin
            case Note(content) if self._notes is not None:
                begin = time.perf_counter()
                self._notes.note(content)
                self._busy += time.perf_counter() - begin
            case Question(serial, number, content) if self._notes is not None:
                begin = time.perf_counter()
                answer = self._notes.answer(content)
                self._busy += time.perf_counter() - begin
                self._send(Answer(serial, number, answer))

    def _with_genomes(self, batch: EpisodeBatch) -> EpisodeBatch:
        if len(batch.genomes) or self._notes is None:
            return batch
        return replace(batch, genomes=select(self._notes.genomes(), batch.genome_ids.astype(np.int64)))

    def rest(self) -> None:
        """Let nobody watch this process: what it does next is not the work of a worker."""
        if self._watchdog is not None:
            self._watchdog.rest()

    def _set_up(self, rollout: AnyRollout) -> None:
        self.rest()
        self._rollout = rollout
        self._begin(-1)
        self._busy = 0.0
        self._watchdog = Watchdog(rollout.max_episode_seconds, fatal=False)
        self._silence = rollout.max_episode_seconds / 4
        # Several episodes that hang are interrupted one after another, with nothing else in between.
        rollout.call_on_fault(self.show_life)
        rollout.make_genomes_within(self._making)
        self.show_life()

    @contextmanager
    def _making(self) -> Iterator[None]:
        """Let genomes be made, which is no episode's time; then show that this worker is well."""
        assert self._watchdog is not None
        with self._watchdog.paused():
            yield
        self.look_up()

    def _begin(self, serial: int) -> None:
        assert self._rollout is not None
        self._serial = serial
        self._finished = []
        self._failures = 0
        self._rollout.clear()

    def tick(self) -> None:
        """Advance all episodes by one step, and send what has ended."""
        assert self._rollout is not None
        begin = time.perf_counter()
        results = self._rollout.tick()
        self._busy += time.perf_counter() - begin
        for failure in self._rollout.take_failures():
            self._failures += 1
            if self._failures <= _MOST_FAILURES:
                self._send(FailedEpisode(self._serial, failure))
        if results is not None:
            self._finished.append(results)
            # Half of the work in hand: more would be too late for the next chunk, less only costs the coordinator time.
            # These parcels shrink, so that it learns of the last episodes at once.
            done = sum(map(len, self._finished))
            if done >= self._rollout.pending or time.perf_counter() - self._sent > _LONGEST_KEPT:
                self._send_results()

    def look_up(self) -> None:
        """Show that this worker does not hang, neither to its watchdog nor to the coordinator."""
        if self._watchdog is not None:
            self._watchdog.rest() if self.idle else self._watchdog.pat()
        if not self.idle and time.perf_counter() - self._sent > self._silence:
            self.show_life()

    def show_life(self) -> None:
        """Tell the coordinator that this worker is well."""
        self._send(Alive())

    def _send(self, message: Message) -> None:
        self._sent = time.perf_counter()
        self._transport.send(COORDINATOR, messages.encode(message))

    def _send_results(self) -> None:
        assert self._rollout is not None
        results = sum_traces(join(self._finished))
        self._send(ChunkResults(self._serial, self._busy, self._rollout.environment_seconds, results))
        self._finished = []
        self._busy = 0.0
        self._rollout.environment_seconds = 0.0


def serve(
    transport: Transport,
    make_rollout: MakeRollout,
    signalled: Callable[[], int | None],
    notes: NoteTaker | None = None,
) -> bytes:
    """Work until the coordinator says stop; return its answer.

    A failure is reported with its traceback, and then the worker waits to be stopped.

    Args:
        transport: To the coordinator.
        make_rollout: From the experiment's TOML text.
        signalled: The signal this process has had, None for none; it is passed on once.
        notes: What takes the coordinator's notes.
    """
    state = WorkerState(transport, make_rollout, notes)
    failed = False
    passed_on = False
    looked = 0.0
    while True:
        message = None
        if failed or state.idle or time.perf_counter() - looked > _LOOK_EVERY:
            state.look_up()
            looked = time.perf_counter()
            message = _receive(transport)
        if isinstance(message, Stop):
            state.rest()
            break
        signal = signalled()
        if signal is not None and not passed_on:
            passed_on = True
            transport.send(COORDINATOR, messages.encode(StopRequest(signal)))
        failed = failed and not isinstance(message, Setup)  # another coordinator begins anew
        try:
            if message is not None and not failed:
                state.receive(message)
                state.look_up()
            if not failed and not state.idle:
                state.tick()
            elif message is None:
                transport.backoff()
        except BaseException:  # whatever an environment raises, SystemExit too, belongs to the coordinator
            failed = True
            if notes is not None:
                notes.forget()
            transport.send(COORDINATOR, messages.encode(WorkerError(error_report(transport))))
    transport.send(COORDINATOR, messages.encode(Stop(np.zeros(0, np.uint8))))
    transport.flush(patience=5.0)
    return message.answer.tobytes()


def _receive(transport: Transport) -> Message | None:
    received = transport.probe()
    if COORDINATOR in transport.lost():
        raise RunError("rank 0 was lost: nobody is left to work for")
    return None if received is None else messages.decode(received[1])
