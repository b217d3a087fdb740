"""The cores of this process: those that it may use, and its share of them among the workers of its host."""

import math
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_ROUNDING = 1e-9
_share: list[int] = []  # of this process among the workers of its host; empty without other ranks


class Cores(NamedTuple):
    """The cores that a process may use.

    Attributes:
        bound: The numbers of the cores, by the affinity of the process; empty if the system does not tell.
        most: The number of cores' worth of time that the process may use, which a control group may limit further.
    """

    bound: Sequence[int]
    most: int


def own_cores() -> Cores:
    """Return the cores that this process may use, by its affinity and the quota of its control group."""
    try:
        bound = sorted(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        bound = []
    cores = len(bound) or os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return Cores(bound, max(1, min(cores, round(int(quota) / int(period)))))
    except (OSError, ValueError):  # no such file, or "max"
        return Cores(bound, cores)


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return own_cores().most


def playing_cores() -> int:
    """Return the number of cores on which this process may play: all, or its share among the workers of its host.

    Rank 0 plays only if all workers are lost. There it is the largest share of a worker.
    """
    return _share[0] if _share else available_cores()


def set_share(cores: int | None) -> None:
    """Set the result of `playing_cores`, once all ranks know each other; None: this process may use all its cores."""
    _share[:] = [] if cores is None else [cores]


def shares(hosts: Sequence[str], cores: Mapping[int, Cores]) -> dict[int, int]:
    """Return the number of cores of each worker: the workers of a host divide each core by the workers that may use it.

    Ranks that MPI has bound to cores of their own thus keep all of them. The coordinator, rank 0, needs no core.

    Args:
        hosts: The host of each rank.
        cores: The cores of each worker that takes part.
    """
    users: defaultdict[str, Counter[int]] = defaultdict(Counter)
    workers = Counter(hosts[rank] for rank in cores)
    for rank, (bound, _) in cores.items():
        users[hosts[rank]].update(bound)
    found = {}
    for rank, (bound, most) in cores.items():
        if bound:
            # A control group limits the time of all cores together.
            fair = sum(1 / users[hosts[rank]][core] for core in bound) * most / len(bound)
        else:
            fair = most / workers[hosts[rank]]
        found[rank] = max(1, math.floor(fair + _ROUNDING))
    return found
