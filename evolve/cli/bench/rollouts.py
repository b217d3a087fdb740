"""Compare generations over MPI with bare processes on the same episodes, or with the sum of sleeping episodes.

`timed` measures generations of the training loop: seconds, processor time of rank 0, bytes moved, and busy workers.
"""

import gc
import heapq
import json
import multiprocessing
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np

from evolve import environments
from evolve.cli.app import App, StopFlag
from evolve.cluster import Coordinator, Transport
from evolve.cluster.mpirun import mpirun_environment, mpirun_words
from evolve.environments import Recorder, Recording
from evolve.errors import RunError, Stopped
from evolve.genome import Genomes
from evolve.numerics import backend
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, EpisodeResults, Rollout, RolloutSpec, generation_keys
from evolve.shapes import Float64
from evolve.store import Header, Record, create, read, reopen
from evolve.training import Experiment, iterate, make_rollout, restore

MEASURE = "--measure"
"""The hidden option with which the bench starts itself under mpirun; its value is a run file."""
_WARM_UP_SEED = 1  # of a first generation, not timed, in which workers make their environments


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


def begin(experiment: Experiment, generation: int, path: Path) -> Genomes:
    """Write a run file with the generations before the measured one; return the candidates of the measured one.

    This process plays all of them, with seed 0.
    """
    with closing(create(path, _header(experiment, 0))) as log:
        with closing(iterate(experiment, Coordinator(Transport(), make_rollout), log)) as records:
            for _ in range(generation):
                next(records)
        strategy, state = restore(experiment, log)
        return strategy.ask(state, generation)


def _header(experiment: Experiment, seed: int) -> Header:
    config = experiment.config
    return Header(config.to_toml(), {}, seed, config.env.id)


def measure(experiment: Experiment, app: App, path: str) -> int:
    """Inside mpirun: continue a run by one generation of the training loop, and print its cost.

    A generation of another run comes first, as a warm-up.
    """
    coordinator = coordinator_of(app)
    # A run freezes the garbage collector, too: otherwise scanning all modules takes a tenth of the time.
    gc.freeze()
    with tempfile.TemporaryDirectory() as folder:
        with (
            closing(create(Path(folder) / "other.h5", _header(experiment, _WARM_UP_SEED))) as other,
            closing(iterate(experiment, coordinator, other)) as records,
        ):
            next(records)
        continued = shutil.copy(path, folder)
        with (
            closing(reopen(Path(continued))) as log,
            closing(iterate(experiment, coordinator, log)) as records,
        ):
            found = next(timed(records, app, coordinator))
    figures = {"ranks": app.transport.size, "steps": found.record.steps, "seconds": found.seconds,
               "cpu_seconds": found.cpu_seconds, "serial_seconds": found.serial_seconds, "bytes": found.bytes,
               "idle": (1 - found.busy).round(4).tolist(), "returns": found.record.returns.ravel().tolist(),
               "backend": backend(experiment.config.compute.backend)}  # fmt: skip
    print(json.dumps(figures), flush=True)
    return 0


def figures_of_job(words: Sequence[str], ranks: int) -> dict[str, Any]:
    """Start a measurement on some ranks; return the figures that it prints as JSON.

    Raises RunError.
    """
    command = [*(mpirun_words(ranks) if ranks > 1 else []), sys.executable, *words]
    done = subprocess.run(command, env=mpirun_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"the measurement under mpirun failed: {done.stderr or done.stdout}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures | {"rate": figures["steps"] / figures["seconds"]}


def _figures(argv: Sequence[str], ranks: int, run: Path) -> dict[str, Any]:
    return figures_of_job(["-m", "evolve.bench", *argv, MEASURE, str(run)], ranks)


def record(experiment: Experiment, genomes: Genomes, candidates: range, generation: int) -> list[Recording]:
    """Play all episodes of some candidates of a generation; return their seeds and network outputs."""
    config = experiment.config
    slots = config.compute.slots or 1
    recorder = Recorder(environments.make(config.env, slots), slots, observations=False)
    rollout = Rollout(recorder, experiment.network, slots, backend("auto"))
    keys = generation_keys(generation, len(genomes), config.common_random_numbers)
    batch = EpisodeBatch.of(0, Purpose.EPISODE, genomes, keys, range(config.episodes), rows=np.array(candidates))
    rollout.submit(batch)
    while rollout.pending:
        rollout.tick()
    recorder.close()
    return recorder.finished


def _bare_process(experiment: Experiment, run: Path, share: range, orders: Any, ready: Barrier, results: Any) -> None:
    begun = read(run)
    strategy, state = restore(experiment, begun)
    genomes = strategy.ask(state, begun.num_generations)
    episodes = record(experiment, genomes, share, begun.num_generations)
    results.put(None)
    while orders.get():
        ready.wait()
        results.put(environments.replay(experiment.config.env, episodes))


class Bare:
    """N processes that each play their share of the generation in bare environments, on demand."""

    def __init__(self, experiment: Experiment, run: Path, processes: int, stop: StopFlag) -> None:
        self._stop = stop
        context = multiprocessing.get_context("spawn")
        self._orders, self._results, ready = context.Queue(), context.Queue(), context.Barrier(processes)
        P = experiment.config.population
        self._processes = [
            context.Process(
                target=_bare_process,
                args=(experiment, run, range(n, P, processes), self._orders, ready, self._results),
                daemon=True,
            )
            for n in range(processes)
        ]
        for process in self._processes:
            process.start()
        try:
            self._gather()
        except BaseException:
            self.close()
            raise

    def _gather(self) -> list[Any]:
        gathered: list[Any] = []
        while len(gathered) < len(self._processes):
            try:
                gathered.append(self._results.get(timeout=0.5))
            except queue.Empty:
                if any(process.exitcode is not None for process in self._processes):
                    raise RunError("a bare process has ended early; its traceback is above") from None
                if self._stop.reason() is not None:
                    raise Stopped(f"stopped by {self._stop.reason()}") from None
        return gathered

    def rate(self) -> float:
        """Play everything once; return the rate of all processes together in environment steps per second."""
        for _ in self._processes:
            self._orders.put(True)
        return float(sum(steps / seconds for steps, seconds in self._gather()))

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
            process.join()


def compare(
    experiment: Experiment, argv: list[str], run: Path, ranks: int, pairs: int, stop: StopFlag
) -> list[dict[str, Any]]:
    """Measure bare environments, as many as workers, and the engine in turn; return a row per pair.

    Raises RunError and Stopped.
    """
    bare, rows = Bare(experiment, run, max(ranks - 1, 1), stop), []
    try:
        for _ in range(pairs):
            bare_rate = bare.rate()
            figures = _figures(argv, ranks, run)
            del figures["returns"]
            rows.append(figures | {"bare_rate": bare_rate, "ratio": figures["rate"] / bare_rate})
    finally:
        bare.close()
    return rows


def schedule(argv: list[str], run: Path, ranks: int, pairs: int) -> list[dict[str, Any]]:
    """Measure the engine on environments that only sleep; the ratio is to workers that never wait.

    They are paid for their sleep, so a return is the work in seconds. Even a scheduler that costs nothing waits for the
    last episodes to end: `list_seconds` is what Graham's list scheduling (1966) of the same episodes would take.
    """
    rows = []
    for _ in range(pairs):
        row, workers = _figures(argv, ranks, run), max(ranks - 1, 1)
        slept = row.pop("returns")
        ideal = sum(slept) / workers
        rows.append(row | {"ideal_seconds": ideal, "list_seconds": list_schedule(slept, workers),
                           "ratio": ideal / row["seconds"]})  # fmt: skip
    return rows


def list_schedule(durations: list[float], workers: int) -> float:
    """Return when the last of some tasks ends if each goes, in turn and at no cost, to the worker free first."""
    free = [0.0] * workers
    for duration in durations:
        heapq.heapreplace(free, free[0] + duration)
    return max(free)
