"""Generations of the training loop, timed: what each costs rank 0, the network and the workers."""

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
    """A coordinator that adds up how long episodes are played."""

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
    """A generation, and what it cost.

    Attributes:
        record: What the training loop has put into the run file.
        seconds: Of all of it.
        serial_seconds: Of what is not episodes: ask, tell, digest and file. The wait for sums of workers is in here.
        cpu_seconds: Of rank 0's processor.
        bytes: That rank 0 sent and received.
        busy: [N], the share of the time in which each worker was at work; of this process, where it is alone.
    """

    record: Record
    seconds: float
    serial_seconds: float
    cpu_seconds: float
    bytes: int
    busy: Float64


def coordinator_of(app: App) -> TimedCoordinator:
    """Return a coordinator of the workers, which is timed."""
    return TimedCoordinator(app.transport, make_rollout, app.stop.reason)


def timed(records: Iterator[Record], app: App, coordinator: TimedCoordinator) -> Iterator[TimedGeneration]:
    """Yield the generations of `training.iterate`, which has this coordinator, with what each cost."""
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
