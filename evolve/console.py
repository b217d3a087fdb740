"""What a run shows while it goes on: a display on a terminal, a line per generation elsewhere."""

import math
import os
import shutil
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from evolve.shapes import Float64
from evolve.store import Record

if TYPE_CHECKING:
    from evolve.display import Display

_OFTEN = 0.2  # seconds between looks at a generation


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


def width() -> int | None:
    """Return how many characters a line of the terminal has; None where nobody watches, or it does not say."""
    return (shutil.get_terminal_size((0, 0)).columns or None) if on_terminal() else None


def best_and_mean(record: Record) -> tuple[float, float]:
    """Return the best fitness and the mean over the candidates that have one."""
    finite = record.fitness[~np.isnan(record.fitness)]
    return record.champion_fitness, float(finite.mean()) if len(finite) else float("nan")


def interval(returns: Float64) -> tuple[float, float]:
    """Return the mean and the half-width of its normal 95 % interval."""
    with np.errstate(invalid="ignore"):
        half = 1.96 * returns.std(ddof=1) / len(returns) ** 0.5 if len(returns) > 1 else float("nan")
        return float(returns.mean()), float(half)


def shares(record: Record) -> tuple[float, float]:
    """Return the share of the work that was spent in environments, and how many workers had nothing to do, in the mean.

    Rank 0 works only where there is nobody else; ranks that were lost are not counted.
    """
    busy = record.busy_seconds[1:] if len(record.busy_seconds) > 1 else record.busy_seconds
    there = np.isfinite(busy) & (busy > 0)
    total = float(busy[there].sum())
    environments = float(np.nansum(record.environment_seconds))
    idle = float(np.maximum(0, 1 - busy[there] / record.seconds).sum()) if record.seconds else 0.0
    return (min(1.0, environments / total) if total else 0.0), idle


class Watch:
    """Shows the generations of one seed as they are told; used as a context manager.

    They are numbered from 0, as in the run file. quiet: shows nothing. steps: how many environment steps are left,
    where these end a run too.
    """

    def __init__(self, seed: int, told: int, generations: int, quiet: bool = False, steps: float = math.inf) -> None:
        self._seed, self._told, self._generations, self._quiet = seed, told, generations, quiet
        self._steps, self._taken, self._last = steps, 0, generations
        self._begin, self._first, self._looked = time.monotonic(), told, 0.0
        self._progress = _display() if on_terminal() and not quiet else None

    def __enter__(self) -> "Watch":
        if self._progress is not None:
            self._progress.start()
            name, total = f"seed {self._seed}", self._last
            self._bar = self._progress.add_task(
                name, total=total, completed=self._told, fitness="", work="", now="", left=""
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, wrong: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.update(self._bar, now="", left="")
            self._progress.stop()

    def __call__(self, record: Record) -> None:
        """Show a generation that has been told."""
        self._told, self._taken = self._told + 1, self._taken + record.steps
        self._last = self._foresee()
        fitness, work = _words(record)
        generation, left = f"generation {self._told - 1}", f"ETA {_clock(self._eta(self._told))}"
        if self._progress is not None:
            self._progress.update(
                self._bar, completed=self._told, total=self._last, fitness=f"{generation}: {fitness}", work=work,
                now=generation, left=left,
            )  # fmt: skip
        elif not self._quiet:
            about = "" if self._last == self._generations else "about "
            count = f"({self._told} of {about}{self._last})"
            print(f"seed {self._seed}  {generation} {count}  {fitness}  {work}  {left}", flush=True)

    def within(self, done: int, units: int, idle: int) -> None:
        """Show how far the generation is that is being evaluated, and how many workers wait; may be called often."""
        if self._progress is None or time.monotonic() - self._looked < _OFTEN:
            return
        self._looked = time.monotonic()
        waiting = f", {idle} idle" if idle else ""
        held_out = self._told >= self._last  # nothing else is evaluated after the last generation
        completed = self._last if held_out else self._told + done / units
        left = f"ETA {_clock(self._eta(completed))}" if completed > self._first and not held_out else ""
        what = "held-out" if held_out else f"generation {self._told}"
        self._progress.update(self._bar, completed=completed, now=f"{what}: {done / units:.0%}{waiting}", left=left)

    def _eta(self, completed: float) -> float:
        """Return the seconds that are left when so many generations are done, as far as the past tells."""
        return (time.monotonic() - self._begin) / (completed - self._first) * (self._last - completed)

    def _foresee(self) -> int:
        """Return how many generations there will be, as far as the past tells."""
        each = self._taken / (self._told - self._first)
        if math.isinf(self._steps) or not each:
            return self._generations
        return min(self._generations, self._told + math.ceil(max(0, self._steps - self._taken) / each))


def _words(record: Record) -> tuple[str, str]:
    best, mean = best_and_mean(record)
    connections, rate = int(np.median(record.connections)), record.steps / record.seconds
    environments, idle = shares(record)
    fitness = f"best {best:.2f}  mean {mean:.2f}  connections {connections:,}"
    waiting = f", {idle:.1f} of {len(record.busy_seconds) - 1} workers idle" if len(record.busy_seconds) > 1 else ""
    played = np.count_nonzero(record.lengths) / record.lengths.size
    race = f", {played:.0%} of the episodes played" if played < 1 else ""
    return fitness, f"{rate:,.0f} steps/s, {environments:.0%} in environments{waiting}{race}"


def _display() -> "Display":
    """Return a display; its library takes a tenth of a second to import, which no other rank and no log needs."""
    from evolve.display import display  # noqa: PLC0415

    return display()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
