"""Timed generations of the training loop: seconds, processor time of rank 0, bytes moved, and busy workers."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from evolve.cli.app import App
from evolve.cluster import Coordinator
from evolve.rollouts import EpisodeBatch, EpisodeResults, RolloutSpec
from evolve.shapes import Float64
from evolve.store import Record
from evolve.training import make_rollout


class TimedCoordinator(Coordinator):
    """A coordinator that adds up the seconds spent in episodes."""

    playing = 0.0
    """In seconds."""

    def evaluate(
        self, spec: RolloutSpec, batch: EpisodeBatch, meanwhile: Callable[[], None] | None = None
    ) -> EpisodeResults:
        """Play a batch of episodes; return their results."""
        begin = time.perf_counter()
        results = super().evaluate(spec, batch, meanwhile)
        self.playing += time.perf_counter() - begin
        return results


@dataclass(frozen=True)
class TimedGeneration:
    """A generation and its cost.

    Attributes:
        record: The record that the training loop wrote to the run file.
        seconds: Wall time of the generation.
        serial_seconds: Wall time outside episodes: ask, tell, digest and file, including the wait for workers' sums.
        cpu_seconds: Processor time of rank 0.
        bytes: Bytes that rank 0 sent and received.
        busy: [N], the share of the time that each worker was busy; of this process if there are no workers.
    """

    record: Record
    seconds: float
    serial_seconds: float
    cpu_seconds: float
    bytes: int
    busy: Float64


def coordinator_of(app: App) -> TimedCoordinator:
    """Return a timed coordinator of the workers."""
    return TimedCoordinator(app.transport, make_rollout, app.stop.reason)


def timed(records: Iterator[Record], app: App, coordinator: TimedCoordinator) -> Iterator[TimedGeneration]:
    """Yield the generations of `training.iterate`, run with this coordinator, and the cost of each."""
    transport = app.transport
    while True:
        coordinator.playing = 0.0
        begin, cpu, sent = time.perf_counter(), time.process_time(), transport.bytes_moved
        record = next(records, None)
        if record is None:
            return
        seconds = time.perf_counter() - begin
        yield TimedGeneration(
            record=record,
            seconds=seconds,
            serial_seconds=seconds - coordinator.playing,
            cpu_seconds=time.process_time() - cpu,
            bytes=transport.bytes_moved - sent,
            busy=record.busy_seconds[int(transport.size > 1) :] / seconds,
        )
