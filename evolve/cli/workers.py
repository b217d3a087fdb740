"""`--workers N|auto`: a command that starts its own ranks with mpirun, and says if more workers help."""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evolve.cli.mpirun import mpirun_environment, mpirun_words, supervise
from evolve.cli.parser import Parser
from evolve.cluster import check_mpi4py, started_by
from evolve.errors import InputError, pluralize

_FEW_STEPS = 100_000
"""One process plays as many steps of a quick environment in the second or two that MPI takes to start."""
_MAX_WORKERS, _MAX_PER_CORE = 256, 16
"""The largest numbers of workers on one machine: always allowed, and allowed per core."""
_NO_WORK = {"-h", "--help", "--version", "--settings", "--dry-run"}
"""Options with which a command plays no episode, so that it needs no workers."""


@dataclass(frozen=True)
class Work:
    """The largest amount of work, as far as it is known.

    Attributes:
        episodes_at_once: The number of episodes that are played at a time.
        quick_steps: The number of all environment steps, if the environments are known to be quick.
    """

    episodes_at_once: int | None = None
    quick_steps: int | None = None


@dataclass(frozen=True)
class Crew:
    """The number of workers and of cores, with a remark on why no more are used, or why more do not help."""

    workers: int
    cores: int
    remark: str = ""

    def describe(self) -> str:
        """Return the sentence that is printed at the start."""
        on = f"on {min(self.workers, self.cores)} of {pluralize(self.cores, 'core')}"
        if self.workers == 1:
            processes = f"one process {on}, without MPI"
        else:
            processes = f"{self.workers} workers {on}, and a coordinator that mostly sleeps"
        return f"{processes}{f': {self.remark}' if self.remark else ''}"


def add_workers_option(parser: argparse.ArgumentParser) -> None:
    """Add `--workers` to the options of a command."""
    words = "start N workers and a coordinator with mpirun; auto: one worker per core of this machine"
    parser.add_argument("--workers", type=_number, metavar="N", help=words)


def _number(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdecimal() or not 1 <= int(text) < 2**20:
        raise argparse.ArgumentTypeError(f"invalid workers value: {text!r}")
    return int(text)


def run_in_ranks(command: str, argv: list[str], work: Callable[[list[str]], Work]) -> int | None:
    """Run a command in new ranks if `--workers` asks for them; return the exit code, None if no rank was started.

    Args:
        command: The name of the command, such as "run".
        argv: The arguments of the command.
        work: Returns the amount of work for the arguments without `--workers`; may raise InputError.

    Raises:
        InputError: A launcher has started this process, or mpirun or mpi4py is missing, or `work` raised it.
    """
    asked, rest = _split(argv)
    if asked is None or _NO_WORK & set(argv):
        return None
    launcher = started_by()
    if launcher is not None:
        cure = "Leave out --workers, or mpirun."
        raise InputError("--workers", "a command that no launcher has started", f"one under {launcher}", cure)
    _check_number(asked)
    found = crew(asked, work(rest))
    _say(command, found.describe())
    if found.workers == 1:
        return None
    check_mpi4py("--workers")
    words = [*mpirun_words(found.workers + 1), sys.executable, "-m", f"evolve.{command}", *rest]
    return supervise(words, mpirun_environment(), found.workers, lambda text: _say(command, text))


def _check_number(asked: int | str) -> None:
    """Raise InputError for a mistaken number of workers, whose start would keep the machine busy for minutes."""
    most = max(_MAX_WORKERS, _MAX_PER_CORE * available_cores())
    if asked != "auto" and int(asked) > most:
        cure = "More than cores are no faster; evolve launch starts ranks on several machines."
        raise InputError("--workers", f"at most {most:,} on this machine", f"{asked:,}", cure)


def _say(command: str, text: str) -> None:
    print(f"evolve.{command}: {text}", file=sys.stderr, flush=True)


def _split(argv: list[str]) -> tuple[int | str | None, list[str]]:
    """Return the value of `--workers`, None if it is not given, and the other arguments."""
    parser = Parser("evolve", "", add_help=False)
    add_workers_option(parser)
    found, rest = parser.parse_known_args(argv)
    return found.workers, rest


def crew(asked: int | str, work: Work) -> Crew:
    """Return the workers to start. asked: their number, or "auto"."""
    cores = available_cores()
    few = work.quick_steps is not None and work.quick_steps <= _FEW_STEPS
    too_few = f"{work.quick_steps:,} quick steps at most take no longer than MPI takes to start" if few else ""
    if asked == "auto":
        most = min(cores, work.episodes_at_once or cores)
        limit = f"there are only {pluralize(most, 'episode')} at a time" if most < cores else ""
        return Crew(1, cores, too_few) if few else Crew(most, cores, limit)
    workers = int(asked)
    if workers == 1:
        return Crew(1, cores, "MPI pays from two workers on")
    if few:
        return Crew(workers, cores, too_few)
    if work.episodes_at_once is not None and workers > work.episodes_at_once:
        return Crew(workers, cores, f"there are only {pluralize(work.episodes_at_once, 'episode')} at a time")
    return Crew(workers, cores, "more workers than cores are no faster" if workers > cores else "")


def available_cores() -> int:
    """Return the number of cores that this process may use, by its affinity and the quota of its control group."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or "max"
        return cores
