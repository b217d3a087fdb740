"""Displays of the progress of a run (`ProgressReporter`) and of a report (`ReportProgress`).

On a terminal and in a notebook, the progress is a bar of `evolve.display` with lines below it. Elsewhere it is printed
as lines.
"""

import math
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from evolve.analysis.statistics import mean, number
from evolve.config.settings import EarlyStopOptions
from evolve.errors import pluralize, sanitize
from evolve.numerics.streams import Purpose
from evolve.shapes import Float64
from evolve.store import Record

if TYPE_CHECKING:
    from evolve.display import Display


MIN_REFRESH = 0.2
"""The least number of seconds between two changes of the display by a method `update`."""

_EPISODES_INTERVAL = {Purpose.HELD_OUT: 5.0, Purpose.EPISODE: 30.0}
"""Without a display: the seconds between two lines about the current episodes. Other purposes have no lines."""


def on_terminal(stream: TextIO | None = None) -> bool:
    """Return whether a stream, by default stdout, is a terminal."""
    stream = stream or sys.stdout
    if not getattr(stream, "isatty", lambda: False)():  # a script may replace its streams by objects that only write
        return False
    if "OMPI_COMM_WORLD_SIZE" not in os.environ:
        return True
    # Open MPI gives every rank a pseudo-terminal as its stream. So open the same stream of mpirun, the parent process,
    # and return whether that stream is a terminal. O_NOCTTY keeps the opened terminal from becoming the controlling
    # terminal of this process.
    try:
        path = f"/proc/{os.getppid()}/fd/{stream.fileno()}"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_NOCTTY), "wb", buffering=0) as stream_of_mpirun:
            return stream_of_mpirun.isatty()
    except OSError:
        return False


def width() -> int | None:
    """Return the width of the terminal in characters; None without a terminal, or if its width is unknown."""
    if not on_terminal():
        return None
    return shutil.get_terminal_size((0, 0)).columns or None


def load_of_workers(record: Record) -> tuple[float, float]:
    """Return the share of the working time that environments take, and the mean number of idle workers.

    A worker without any working time does not count as idle, because it may be a lost worker.
    """
    # Of several ranks, rank 0 is the coordinator and not a worker.
    busy = record.busy_seconds[1:] if len(record.busy_seconds) > 1 else record.busy_seconds
    active = busy[np.isfinite(busy) & (busy > 0)]
    total = float(active.sum())
    in_environments = float(np.nansum(record.environment_seconds))
    share = min(1.0, in_environments / total) if total else 0.0
    idle = float(np.maximum(0, 1 - active / record.seconds).sum()) if record.seconds else 0.0
    return share, idle


def heading(path: Path, place: int, runs: int) -> str:
    """Return the line above the output of one of several runs; empty for a single run.

    path: The path of the run file. The line has the name of its directory, which in a sweep names the experiment.
    place: The place of the run among the runs, counted from 1.
    """
    name = sanitize(f"{path.parent.resolve().name}/{path.name}")
    return f"run {place} of {runs}: {name}\n" if runs > 1 else ""


class RunsClock:
    """Estimates the time until all of several runs have ended, from the mean time of the episodes so far.

    episodes: For each run, the number of episodes that this process has to play.
    """

    def __init__(self, episodes: Sequence[int]) -> None:
        self._episodes = episodes
        self._begin = time.monotonic()
        self._current = 0

    def start(self, index: int) -> None:
        """Begin the run of this index, counted from 0. All earlier runs have ended."""
        self._current = index

    def remaining(self, share: float, eta: float) -> str:
        """Return the remaining time of all runs as a text; "" for a single run.

        share: The share of the current run's episodes that have been played, above 0.
        eta: The remaining seconds of the current run.
        """
        if len(self._episodes) < 2:
            return ""
        done = sum(self._episodes[: self._current]) + share * self._episodes[self._current]
        seconds_per_episode = (time.monotonic() - self._begin) / done if done else 0.0
        seconds = eta + seconds_per_episode * sum(self._episodes[self._current + 1 :])
        return f"all {len(self._episodes)} runs {_hours(seconds)}"


@dataclass
class ProgressReporter:
    """Shows the generations of one seed as they are completed; a context manager.

    Generations are numbered from 0, as in the run file.

    Attributes:
        seed: The seed of the run.
        completed: The number of complete generations.
        generations: The number of generations of the whole run.
        quiet: Whether to show nothing.
        steps_left: The environment steps that were left at the start until `early_stop.steps` ends the run; infinite
            without that limit.
        clock: The clock of all runs of the command.
        validations: The validation returns [N] by the number of complete generations. The caller adds later ones.
        line_interval: Without a display: the least number of seconds between the lines of two generations. The last
            generation always has a line.
        stream: The stream of the progress; by default stdout.
        plays_whole_episodes: Whether kernels play environments and networks together. The time of environments is then
            not known, only the time of whole episodes.
    """

    seed: int
    completed: int
    generations: int
    quiet: bool = False
    steps_left: float = math.inf
    clock: RunsClock = field(default_factory=lambda: RunsClock([1]))
    validations: Mapping[int, Float64] = field(default_factory=dict)
    line_interval: float = 0.0
    stream: TextIO | None = None
    plays_whole_episodes: bool = False

    def __post_init__(self) -> None:
        self._line, self._printed_at = "", -math.inf  # a line that is not printed yet, and the time of the last one
        self._steps_taken = 0
        self._expected, self._completed_before = self.generations, self.completed  # numbers of generations
        self._begin, self._refreshed_at = time.monotonic(), 0.0
        self.display = None if self.quiet else _make_display(stream=self.stream)
        """The bar on a terminal or in a notebook; None if lines are printed instead, or nothing (`quiet`)."""

    def __enter__(self) -> "ProgressReporter":
        if self.display is not None:
            self.display.start()
            empty: dict[str, Any] = dict.fromkeys(("fitness", "work", "now", "eta", "eta_of_runs"), "")
            title = f"seed {self.seed}"
            self._bar = self.display.add_task(title, total=self._expected, completed=self.completed, **empty)
        return self

    def __exit__(self, *error: object) -> None:
        self._print_line()
        if self.display is not None:
            self.display.update(self._bar, now="", eta="", eta_of_runs="")
            self.display.stop()

    def __call__(self, record: Record) -> None:
        """Show a generation that has been completed."""
        if self.quiet:
            return
        self.completed += 1
        self._steps_taken += record.steps
        # A limit of steps may end the run before its last generation.
        self._expected = self._estimate_generations()
        generation = f"generation {self.completed - 1}"
        etas = self._etas(self.completed)
        fitness, work = _describe_fitness(record), _describe_work(record, self.plays_whole_episodes)
        if self.validations:
            fitness += f"  validation {number(newest_validation(self.validations))}"
        if self.display is not None:
            lines: dict[str, Any] = {"fitness": f"{generation}: {fitness}", "work": work, **etas}
            self.display.update(self._bar, completed=self.completed, total=self._expected, now=generation, **lines)
        else:
            about = "" if self._expected == self.generations else "about "
            count = f"({self.completed} of {about}{self._expected})"
            times = ", ".join(filter(None, etas.values()))
            self._line = f"seed {self.seed}  {generation} {count}  {fitness}  {work}  {times}"
            # A line that comes too soon is not printed. `__exit__` prints it if no other line has replaced it.
            if time.monotonic() - self._printed_at >= self.line_interval:
                self._print_line()

    def update(self, purpose: Purpose, done: int, episodes: int, idle: int) -> None:
        """Show the progress of the current evaluation and the number of idle workers. It may be called often."""
        now = time.monotonic()
        trains = purpose is Purpose.EPISODE
        evaluation = f"generation {self.completed}" if trains else purpose.title
        text = f"{evaluation}: {done / episodes:.0%}"
        if self.display is None:
            # Without these lines, a reader of the log would think that the run is over, or that it hangs. If no
            # line was printed yet, a line about training waits from the start of the run; other lines do not wait.
            last_line_at = max(self._printed_at, self._begin) if trains else self._printed_at
            if not self.quiet and now - last_line_at >= _EPISODES_INTERVAL.get(purpose, math.inf):
                self._print_line()  # the line of the last generation, if it was not printed
                self._line = f"seed {self.seed}  {text}"
                self._print_line()
            return
        if now - self._refreshed_at < MIN_REFRESH:
            return
        self._refreshed_at = now
        if idle:
            text += f", {idle} idle"
        completed = self.completed + (done / episodes if trains else 0)
        is_under_way = self._completed_before < completed < self._expected
        etas = self._etas(completed) if is_under_way else {"eta": "", "eta_of_runs": ""}
        self.display.update(self._bar, completed=completed, now=text, **etas)

    def _print_line(self) -> None:
        """Print the line that waits, if there is one."""
        if self._line:
            print(self._line, file=self.stream, flush=True)
            self._line, self._printed_at = "", time.monotonic()

    def _etas(self, completed: float) -> dict[str, Any]:
        """Return the remaining times of this run and of all runs, by the fields of the bar.

        completed: The number of complete generations. It may be a fraction, but must be more than at the start.
        """
        done = completed - self._completed_before
        seconds = (time.monotonic() - self._begin) / done * (self._expected - completed)
        share = done / (self._expected - self._completed_before)
        return {"eta": f"ETA {_hours(seconds)}", "eta_of_runs": self.clock.remaining(share, seconds)}

    def _estimate_generations(self) -> int:
        """Return the expected number of generations of the run, from the steps of the past generations."""
        steps_per_generation = self._steps_taken / (self.completed - self._completed_before)
        if math.isinf(self.steps_left) or not steps_per_generation:
            return self.generations
        further = math.ceil(max(0, self.steps_left - self._steps_taken) / steps_per_generation)
        return min(self.generations, self.completed + further)


def newest_validation(validations: Mapping[int, Float64]) -> float:
    """Return the mean return of the last validation.

    validations: The returns [N] of the champion by the number of complete generations.
    """
    return mean(validations[max(validations)])


def why_early(stop: EarlyStopOptions, steps: int, validations: Mapping[int, Float64]) -> str:
    """Return in words why a run ended before its last generation; empty if no condition of `stop` can be the reason.

    Args:
        stop: The conditions of the run.
        steps: The environment steps of the run.
        validations: The validation returns [N] by the number of complete generations.
    """
    if stop.steps is not None and steps >= stop.steps:
        return "early_stop.steps is reached"
    if stop.mean_return is None or not validations:
        return ""
    result = f"{number(newest_validation(validations))} in {pluralize(stop.episodes, 'validation episode')}"
    return f"the champion's mean of {result} reaches early_stop.mean_return"


def _describe_fitness(record: Record) -> str:
    """Return the fitness of a generation, and the median number of connections of its candidates, as one text."""
    connections = int(np.median(record.connections))
    fitness = f"best fitness {number(record.champion_fitness)}  mean {number(mean(record.fitness))}"
    return f"{fitness}  median connections {connections:,}"


def _describe_work(record: Record, plays_whole_episodes: bool) -> str:
    """Return the throughput of a generation, and the load of its workers, as one text."""
    place = "episodes" if plays_whole_episodes else "environments"
    rate = record.steps / record.seconds
    share, idle = load_of_workers(record)
    workers = len(record.busy_seconds) - 1
    waiting = f", {idle:.1f} of {workers} workers idle" if workers else ""
    played = np.count_nonzero(record.lengths) / record.lengths.size  # below 1 in a race, or while the population grows
    not_all = f", {played:.0%} of the episodes played" if played < 1 else ""
    return f"{rate:,.0f} steps/s, {share:.0%} in {place}{waiting}{not_all}"


def _make_display(unit: str = "generations", stream: TextIO | None = None) -> "Display | None":
    """Return a display on a terminal or in a notebook; None elsewhere."""
    is_terminal = on_terminal(stream)
    # Do not import the library of the display if there is no display: the import takes a tenth of a second.
    if not is_terminal and "IPython" not in sys.modules:
        return None
    from evolve.display import make_display  # noqa: PLC0415

    return make_display(unit, stream, is_terminal)


def _hours(seconds: float) -> str:
    """Return a time in hours, minutes and seconds: "1:02:03"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class ReportProgress:
    """Shows the progress of a report on a number of runs; a context manager."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._done = -1  # the number of finished runs; 0 after the first call of `ReportProgress.start`
        self._name = ""
        self._refreshed_at = 0.0
        self.display = _make_display("runs")
        """The bar on a terminal or in a notebook. If None, `start` prints a line for each of several runs."""

    def __enter__(self) -> "ReportProgress":
        if self.display is not None:
            self.display.start()
            self._bar = self.display.add_task("report", total=self._runs, now="", eta="")
        return self

    def __exit__(self, *error: object) -> None:
        if self.display is not None:
            if not any(error):
                self.display.update(self._bar, completed=self._runs, now="")
            self.display.stop()

    def start(self, path: Path) -> None:
        """Show that work on the next run begins."""
        self._done += 1
        self._name = sanitize(f"{path.resolve().parent.name}/{path.name}")
        if self.display is not None:
            self.display.update(self._bar, completed=self._done, now=self._name)
        elif self._runs > 1:
            print(f"evolve.report: run {self._done + 1} of {self._runs}: {self._name}", file=sys.stderr, flush=True)

    def update(self, purpose: Purpose, done: int, episodes: int, idle: int) -> None:
        """Show the kind and the progress of the repeated episodes. It may be called often."""
        # The end of an evaluation is always shown.
        if self.display is None or (time.monotonic() - self._refreshed_at < MIN_REFRESH and done < episodes):
            return
        self._refreshed_at = time.monotonic()
        kind = "held-out episodes" if purpose is Purpose.HELD_OUT else "champions' episodes"
        now = f"{self._name}: {kind} {done / episodes:.0%}"
        # A run is 1 on the scale of the bar. Each evaluation of the run moves the bar from 0 to 0.5. The other half is
        # left for the film, which shows no progress.
        self.display.update(self._bar, completed=self._done + 0.5 * done / episodes, now=now)
