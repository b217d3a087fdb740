"""Finds the number of cores and the memory that this process may use.

The workers of a host share its cores, so a worker may use fewer cores than its host has.
"""

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# A sum of shares, such as six times 1/3, may be a little less than the whole number.
_ROUNDING = 1e-9
_ROOT = Path("/sys/fs/cgroup")  # the directory of all control groups
_share: list[int] = []  # the number of cores that `set_share` has set; empty if it has set none


class Cores(NamedTuple):
    """The cores that a process may use.

    Attributes:
        bound: The numbers of the cores in the affinity of the process; empty if unknown.
        most: The number of cores that the process may keep busy. A quota of its control groups may limit it.
    """

    bound: Sequence[int]
    most: int


def usable_cores() -> Cores:
    """Return the cores that this process may use, by its affinity and the quota of its control groups."""
    bound = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []  # only Linux has it
    cores = len(bound) or os.cpu_count() or 1
    most = min(cores, quota_of(_groups(), _ROOT))
    # A quota of half a core would be rounded to 0, but a process needs a core.
    return Cores(bound, max(1, round(most)))


def usable_memory() -> float:
    """Return the bytes of memory that the machine and its control groups let this process use; infinity if unknown."""
    try:
        machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        machine = math.inf
    return min(machine, memory_of(_groups(), _ROOT))


def quota_of(groups: str, root: Path) -> float:
    """Return the number of cores that the control groups of a process let it keep busy; infinity without a limit.

    Args:
        groups: The text of /proc/self/cgroup. It has a line for each hierarchy of control groups, version 1 or 2.
        root: The directory of all control groups. In a container, this directory is the container's own group. The
            paths in the lines then need not exist below the directory.
    """
    found = _limits(groups, root, "cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us"), "cpu.max")
    # Version 1 writes -1 if there is no limit. `_limits` has left out the "max" of version 2.
    return min((limit / period for limit, period in found if limit > 0), default=math.inf)


def memory_of(groups: str, root: Path) -> float:
    """Return the bytes of memory that control groups allow; infinite or huge without a limit. Arguments: `quota_of`."""
    found = _limits(groups, root, "memory", ("memory.limit_in_bytes",), "memory.max")
    return min((float(limit) for (limit,) in found), default=math.inf)


def _groups() -> str:
    with suppress(OSError):  # not Linux
        return Path("/proc/self/cgroup").read_text()
    return ""


def _limits(groups: str, root: Path, controller: str, files_v1: Sequence[str], file_v2: str) -> Iterator[list[int]]:
    """Yield the limits of a controller: a list of numbers for each group of a process, and for each parent group.

    Version 1 of control groups has a file for each number, version 2 one file with all numbers.
    """
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)  # version 2 names no controllers
        if controllers and controller not in controllers.split(","):
            continue
        parts = path.strip("/").split("/")
        # Depth 0 is `root` itself. In a container, the other directories may be missing, see `quota_of`.
        for depth in range(len(parts) + 1):
            folder = Path(root, controller if controllers else "", *parts[:depth])
            with suppress(OSError, ValueError):  # no such file, or "max"
                texts = [(folder / file).read_text() for file in (files_v1 if controllers else (file_v2,))]
                yield [int(number) for number in " ".join(texts).split()]


def number_of_cores() -> int:
    """Return the number of cores that this process may use."""
    return usable_cores().most


def share_of_cores() -> int:
    """Return the number of cores on which this process plays: the share of `set_share`, or all without a share."""
    return _share[0] if _share else number_of_cores()


def set_share(cores: int | None) -> None:
    """Set the result of `share_of_cores`. With None, `share_of_cores` returns `number_of_cores()`."""
    _share[:] = [] if cores is None else [cores]


def shares(hosts: Sequence[str], cores: Mapping[int, Cores]) -> dict[int, int]:
    """Return the number of cores of each worker. Workers of a host that may use the same core share it equally.

    So a rank that MPI has bound to cores of its own keeps all of them. A share is rounded down, and is at least 1. The
    coordinator, rank 0, needs no core.

    Args:
        hosts: The host of each rank.
        cores: By rank, the cores of each worker that takes part. The result has the same ranks.
    """
    # For each host: the number of workers that may use each core, and the number of all workers.
    users: defaultdict[str, Counter[int]] = defaultdict(Counter)
    workers = Counter(hosts[rank] for rank in cores)
    for rank, (bound, _) in cores.items():
        users[hosts[rank]].update(bound)
    found = {}
    for rank, (bound, most) in cores.items():
        if bound:
            # `most / len(bound)` is the part of all bound cores that the quota of the control groups lets a worker use.
            fair = sum(1 / users[hosts[rank]][core] for core in bound) * most / len(bound)
        else:
            # The affinity is unknown, so the workers of the host share all its cores.
            fair = most / workers[hosts[rank]]
        found[rank] = max(1, math.floor(fair + _ROUNDING))
    return found
