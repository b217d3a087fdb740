"""The crew: how many workers are started for an amount of work, and why more would not help."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evolve.cluster.start import started_by
from evolve.errors import InputError, pluralize

_FEW_STEPS = 100_000
"""One process plays as many steps of a quick environment in the second or two that MPI takes to start."""
_MAX_WORKERS, _MAX_PER_CORE = 256, 16
"""The largest numbers of workers on one machine: always allowed, and allowed per core."""


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


def crew_to_start(asked: int | str, work: Callable[[], Work], argument: str, caller: str) -> Crew:
    """Return the crew that this process may start with mpirun.

    Args:
        asked: The number of workers, or "auto".
        work: Returns the amount of work; may raise InputError.
        argument: The name of the number in errors: "workers".
        caller: What must not run under a launcher already, in words: "a script".

    Raises:
        InputError: A launcher has started this process, or the number is too large.
    """
    launcher = started_by()
    if launcher is not None:
        cure = f"Leave out {argument}, or mpirun."
        raise InputError(argument, f"{caller} that no launcher has started", f"one under {launcher}", cure)
    # The start of too many processes would keep the machine busy for minutes.
    most = max(_MAX_WORKERS, _MAX_PER_CORE * available_cores())
    if asked != "auto" and int(asked) > most:
        cure = "More than cores are no faster; evolve launch starts ranks on several machines."
        raise InputError(argument, f"at most {most:,} on this machine", f"{asked:,}", cure)
    return crew(asked, work())


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
