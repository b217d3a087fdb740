"""Finds the cores and the memory that this process may use, and the number of workers that suits the cores.

The workers of a host share its cores (`shares`). So a worker may play in fewer threads than its host has cores.
"""

import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from evolve.cluster.supervision import started_by
from evolve.errors import InputError, pluralize

# A sum of shares, such as six times 1/3, may be a little less than the whole number.
_ROUNDING = 1e-9
_CGROUP_ROOT = Path("/sys/fs/cgroup")  # the directory of all control groups
_share: list[int] = []  # has the one number that `set_share` has set; empty without a share
_FEW_STEPS = 100_000
"""A process plays this number of steps of a quick environment in a second or two, the time that MPI takes to start."""
_MAX_WORKERS, _MAX_PER_CORE = 256, 16
"""A command may start `_MAX_WORKERS` workers on a machine, or `_MAX_PER_CORE` for each core if that is more."""


class Cores(NamedTuple):
    """The cores that a process may use.

    Attributes:
        bound: The numbers of the cores in the affinity of the process; empty if unknown.
        limit: The largest number of cores that the process may keep busy. It may be less than the number of bound
            cores, if the control groups of the process have a quota.
    """

    bound: Sequence[int]
    limit: int


def usable_cores() -> Cores:
    """Return the cores that this process may use, by its affinity and the quota of its control groups."""
    bound = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []  # only Linux has it
    cores = len(bound) or os.cpu_count() or 1
    limit = min(cores, quota_of(_groups(), _CGROUP_ROOT))
    # A quota of half a core would be rounded to 0, but a process needs a core.
    return Cores(bound, max(1, round(limit)))


def usable_memory() -> float:
    """Return the bytes of memory that the machine and its control groups let this process use; infinity if unknown."""
    machine_bytes = math.inf
    with suppress(AttributeError, ValueError, OSError):  # the system does not know
        machine_bytes = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(machine_bytes, memory_of(_groups(), _CGROUP_ROOT))


def quota_of(groups: str, root: Path) -> float:
    """Return the number of cores that the control groups of a process let it keep busy; infinity without a limit.

    Args:
        groups: The text of /proc/self/cgroup. It has a line for each hierarchy of control groups, version 1 or 2.
        root: The directory of all control groups. In a container, this directory is the container's own group. The
            paths in the lines then need not exist below the directory.
    """
    limits = _limits(groups, root, "cpu", v1=("cpu.cfs_quota_us", "cpu.cfs_period_us"), v2=("cpu.max",))
    # In version 1 the quota is -1 if there is no limit. `_limits` leaves out the "max" of version 2.
    return min((quota / period for quota, period in limits if quota > 0), default=math.inf)


def memory_of(groups: str, root: Path) -> float:
    """Return the bytes that control groups allow. Without a limit the number is infinite or, in version 1, huge.

    For the arguments see `quota_of`.
    """
    limits = _limits(groups, root, "memory", v1=("memory.limit_in_bytes",), v2=("memory.max",))
    return min((float(limit) for (limit,) in limits), default=math.inf)


def _groups() -> str:
    """Return the text of /proc/self/cgroup; "" if there is no such file."""
    with suppress(OSError):
        return Path("/proc/self/cgroup").read_text()
    return ""


def _limits(groups: str, root: Path, controller: str, v1: Sequence[str], v2: Sequence[str]) -> Iterator[list[int]]:
    """Yield the limits of a controller: a list of numbers for each group of a process, and for each parent group.

    v1, v2: The names of the files with these numbers, in version 1 and in version 2 of control groups. Version 1 has a
        directory for each controller. In version 2 all controllers have one directory.
    """
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        is_v2 = controllers == ""
        if not is_v2 and controller not in controllers.split(","):
            continue
        folder, files = (root, v2) if is_v2 else (root / controller, v1)
        # Begin at the root. In a container, the other directories may be missing, see `quota_of`.
        for name in ("", *path.strip("/").split("/")):
            folder /= name
            with suppress(OSError, ValueError):  # no such file, or "max"
                texts = [(folder / file).read_text() for file in files]
                yield [int(number) for number in " ".join(texts).split()]


def number_of_cores() -> int:
    """Return the number of cores that this process may use."""
    return usable_cores().limit


def share_of_cores() -> int:
    """Return the number of cores on which this process plays: the share of `set_share`, or all without a share."""
    return _share[0] if _share else number_of_cores()


def set_share(cores: int | None) -> None:
    """Set the result of `share_of_cores`. With None, `share_of_cores` returns `number_of_cores()`."""
    _share[:] = [] if cores is None else [cores]


def shares(hosts: Sequence[str], cores: Mapping[int, Cores]) -> dict[int, int]:
    """Return the number of cores of each worker. Workers of a host that may use the same core share it equally.

    If MPI has bound a rank to cores that no other rank may use, the rank keeps all of them. A share is rounded down,
    and is at least 1. The coordinator, rank 0, needs no core.

    Args:
        hosts: The host of each rank.
        cores: By rank, the cores of each worker that takes part. The result has the same ranks.
    """
    # By host: the number of workers that may use each core, and the number of all workers.
    users: defaultdict[str, Counter[int]] = defaultdict(Counter)
    num_workers = Counter(hosts[rank] for rank in cores)
    for rank, (bound, _) in cores.items():
        users[hosts[rank]].update(bound)
    share_of = {}
    for rank, (bound, limit) in cores.items():
        if bound:
            # The control groups of a worker let it use the part `limit / len(bound)` of its bound cores.
            share = sum(1 / users[hosts[rank]][core] for core in bound) * limit / len(bound)
        else:
            # The affinity is unknown, so the workers of the host share all its cores.
            share = limit / num_workers[hosts[rank]]
        share_of[rank] = max(1, math.floor(share + _ROUNDING))
    return share_of


@dataclass(frozen=True)
class Work:
    """The work of a command.

    Attributes:
        episodes_at_once: The largest number of episodes that are played at a time; None if unknown.
        quick_steps: The largest number of all environment steps, if the environments are quick; None if unknown.
        threads: The number of threads in which a process plays if it is the only one.
    """

    episodes_at_once: int | None = None
    quick_steps: int | None = None
    threads: int = 1


@dataclass(frozen=True)
class WorkerCount:
    """The number of workers that a command uses, and the reason.

    Attributes:
        workers: The number of workers.
        cores: The number of cores that this process may use.
        remark: The reason why more workers are not used or would not help; "" if there is no such reason.
        threads: The number of threads in which a process plays if it is the only one. Several workers divide the cores.
    """

    workers: int
    cores: int
    remark: str = ""
    threads: int = 1

    def describe(self) -> str:
        """Return the sentence that is printed at the start."""
        used = min(self.workers * self.threads, self.cores)
        place = f"on {used} of {pluralize(self.cores, 'core')}"
        if self.workers == 1:
            threads = f" with {pluralize(self.threads, 'thread')}" if self.threads > 1 else ""
            processes = f"one process{threads} {place}, without MPI"
        else:
            processes = f"{self.workers} workers {place}, and a coordinator that mostly sleeps"
        return f"{processes}: {self.remark}" if self.remark else processes


def count_workers_to_start(asked: int | str, work: Callable[[], Work], argument: str, caller: str) -> WorkerCount:
    """Return the number of workers that this process starts with mpirun.

    Args:
        asked: The number of workers, or "auto".
        work: Returns the work of the command; may raise InputError.
        argument: The name of `asked` in errors, such as "workers".
        caller: The kind of this process in errors, such as "a script".

    Raises:
        InputError: A launcher has started this process, or the number is too large.
    """
    launcher = started_by()
    if launcher is not None:
        cure = f"Leave out {argument}, or mpirun."
        raise InputError(argument, f"{caller} that no launcher has started", f"one under {launcher}", cure)
    if asked != "auto":
        check_not_too_many(argument, int(asked))
    return count_workers(asked, work())


def check_not_too_many(argument: str, processes: int) -> None:
    """Raise InputError if the start of this number of processes would keep this machine busy for minutes."""
    most = max(_MAX_WORKERS, _MAX_PER_CORE * number_of_cores())
    if processes > most:
        cure = "More workers than cores are no faster. To use several machines: evolve launch --hostfile."
        raise InputError(argument, f"at most {most:,} on this machine", f"{processes:,}", cure)


def count_workers(asked: int | str, work: Work) -> WorkerCount:
    """Return the number of workers to start. asked: the number, or "auto"."""
    cores = number_of_cores()
    is_auto = asked == "auto"
    workers = max(1, cores // work.threads) if is_auto else int(asked)  # with "auto", each thread has a core
    if workers == 1 and work.threads > 1:
        return WorkerCount(1, cores, threads=work.threads)  # threads use the cores, so no remark below applies
    # Find the number of workers that suits the work, and a remark for the user.
    remark, suitable = "", workers
    if workers == 1 and not is_auto:
        remark = "MPI is useful only with two or more workers"
    elif work.quick_steps is not None and work.quick_steps <= _FEW_STEPS:
        suitable = 1
        remark = f"{work.quick_steps:,} quick steps at most take no longer than MPI takes to start"
    elif work.episodes_at_once is not None and workers > work.episodes_at_once:
        suitable = work.episodes_at_once
        remark = f"there are only {pluralize(suitable, 'episode')} at a time"
    elif workers > cores:
        remark = "more workers than cores are no faster"
    # If the user gives a number, it is used even if it is not suitable.
    return WorkerCount(suitable if is_auto else workers, cores, remark, work.threads)
