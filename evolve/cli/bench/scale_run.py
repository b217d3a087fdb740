"""One cell of `--scale`: real generations, in a job of its own that prints what rank 0 has seen."""

import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evolve.cli.app import App
from evolve.cli.bench.rollouts import engine_figures
from evolve.cli.bench.scale_grid import Cell
from evolve.cluster import Coordinator, Transport
from evolve.rollouts import EpisodeBatch, EpisodeResults, RolloutSpec
from evolve.store import Header, Record, create
from evolve.training import iterate, make_rollout

_ENOUGH, _MOST = 0.5, 20  # seconds of later generations, and how many of them

Row = dict[str, Any]


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


def measure(cell: Cell, app: App, folder: str) -> int:
    """Inside mpirun: evolve a few generations and print their figures; the run file goes into a folder.

    The first generation, in which workers make what they need, is left out. The later ones are averaged: one that takes
    long is enough.
    """
    before, _ = memory()
    experiment = cell.experiment(1 + _MOST)
    gc.freeze()  # as in a run, a collector that looks at all modules each time would cost a tenth of it
    coordinator = TimedCoordinator(app.transport, make_rollout, app.stop.reason)
    config = experiment.config
    log = create(Path(folder) / "seed-0.h5", Header(config.to_toml(), {}, 0, config.env.id))
    generations = _generations(iterate(experiment, coordinator, log), app.transport, coordinator)
    try:
        first, later = next(generations), [next(generations)]
        while sum(row["seconds"] for row in later) < _ENOUGH and len(later) < _MOST:
            later.append(next(generations))
        _, peak = memory()
    finally:
        log.close()
    figures: Row = {name: statistics.fmean(row[name] for row in later) for name in first}
    figures |= {"first_seconds": first["seconds"], "steps": cell.candidates}
    figures |= {"weights": experiment.network.num_weights, "candidates": cell.candidates, "ranks": app.transport.size}
    figures |= {"generations": 1 + len(later), "memory": None if before is None or peak is None else peak - before}
    print(json.dumps(figures), flush=True)
    return 0


def _generations(records: Iterator[Record], transport: Transport, coordinator: TimedCoordinator) -> Iterator[Row]:
    """Yield what each generation cost: seconds of it, of what is not episodes, of rank 0's processor, bytes, and
    the share of the workers' time in which they play."""
    while True:
        coordinator.playing = 0.0
        begin, cpu, sent = time.perf_counter(), time.process_time(), transport.bytes_moved
        busy = next(records).busy_seconds
        seconds = time.perf_counter() - begin
        workers = busy[1:] if transport.size > 1 else busy
        yield {
            "seconds": seconds,
            "serial_seconds": seconds - coordinator.playing,
            "cpu_seconds": time.process_time() - cpu,
            "bytes": transport.bytes_moved - sent,
            "busy": float(workers.mean() / seconds),
        }


def memory() -> tuple[int, int] | tuple[None, None]:
    """Return the bytes that this process has in memory, and the most that it ever had; None if no kernel says so."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None, None
    said = dict(line.split(":", 1) for line in lines)
    return 1024 * int(said["VmRSS"].split()[0]), 1024 * int(said["VmHWM"].split()[0])


def measured(cell: Cell) -> Row:
    """Start the measurement of a cell on its ranks; return its figures. Raises RunError."""
    words = ["--scale", "--weights", str(cell.weights), "--candidates", str(cell.candidates)]
    with tempfile.TemporaryDirectory() as folder:
        return engine_figures(words, cell.ranks, Path(folder))
