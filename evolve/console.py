"""What a run shows while it goes on: a display on a terminal, a line per generation elsewhere."""

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from evolve.shapes import Float64
from evolve.store import Record


def on_terminal() -> bool:
    """Whether a person watches. Open MPI gives every rank a pseudo-terminal, so there mpirun's own output is asked."""
    if not sys.stdout.isatty():
        return False
    if "OMPI_COMM_WORLD_SIZE" not in os.environ:
        return True
    try:
        descriptor = os.open(f"/proc/{os.getppid()}/fd/1", os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.isatty(descriptor)
    finally:
        os.close(descriptor)


def best_and_mean(record: Record) -> tuple[float, float]:
    """Return the best fitness and the mean over the candidates that have one."""
    finite = record.fitness[~np.isnan(record.fitness)]
    return record.champion_fitness, float(finite.mean()) if len(finite) else float("nan")


def interval(returns: Float64) -> tuple[float, float]:
    """Return the mean and the half-width of its normal 95 % interval."""
    with np.errstate(invalid="ignore"):
        half = 1.96 * returns.std(ddof=1) / len(returns) ** 0.5 if len(returns) > 1 else float("nan")
        return float(returns.mean()), float(half)


class Watch:
    """Shows the generations of one seed as they are told; used as a context manager."""

    def __init__(self, seed: int, told: int, generations: int) -> None:
        self._seed, self._told, self._generations = seed, told, generations
        self._begin, self._first = time.monotonic(), told
        self._progress = _progress() if on_terminal() else None

    def __enter__(self) -> Callable[[Record], None]:
        if self._progress is not None:
            self._progress.start()
            self._bar = self._progress.add_task(
                f"seed {self._seed}", total=self._generations, completed=self._told, best="", mean="", left="", rate=""
            )
        return self._show

    def __exit__(self, kind: type[BaseException] | None, wrong: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _show(self, record: Record) -> None:
        self._told += 1
        best, mean = best_and_mean(record)
        connections, rate = int(np.median(record.connections)), record.steps / record.seconds
        if self._progress is not None:
            self._progress.update(
                self._bar,
                completed=self._told,
                best=f"{best:.2f}",
                mean=f"{mean:.2f}",
                left=f"{connections:,}",
                rate=f"{rate:,.0f}",
            )
        else:
            left = (time.monotonic() - self._begin) / (self._told - self._first) * (self._generations - self._told)
            print(
                f"seed {self._seed}  generation {self._told}/{self._generations}  best {best:.2f}  mean {mean:.2f}  "
                f"connections {connections:,}  {rate:,.0f} steps/s  ETA {_clock(left)}",
                flush=True,
            )


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("best [bold]{task.fields[best]}[/]  mean {task.fields[mean]}"),
        TextColumn("connections {task.fields[left]}  {task.fields[rate]} steps/s"),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        console=Console(force_terminal=True),
        expand=True,
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
