"""The cores of a process, and its share among the workers of its host."""

import math
import os

import pytest

from evolve.cluster import cores
from evolve.cluster.cores import (
    Cores,
    memory_of,
    number_of_cores,
    quota_of,
    set_share,
    share_of_cores,
    shares,
    usable_memory,
)


def test_cores_are_those_this_process_may_use(monkeypatch):
    assert 1 <= number_of_cores() <= os.cpu_count()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert number_of_cores() == 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    for quota, number in ((1.5, 2), (math.inf, 64), (0.1, 1)):
        monkeypatch.setattr(cores, "quota_of", lambda *_, quota=quota: quota)
        assert number_of_cores() == number


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000"}, math.inf),
        ("0::/user.slice/run-1.scope\n", {"user.slice/cpu.max": "300000 100000"}, 3),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "50000 100000"}, 0.5),
        ("0::/../other\n", {"cpu.max": "max 100000"}, math.inf),
        ("7:cpuset:/\n4:cpu,cpuacct:/docker/1\n0::/\n", {"cpu/cpu.cfs_quota_us": "200000"}, 2),
        ("4:cpu,cpuacct:/slurm/2\n", {"cpu/slurm/2/cpu.cfs_quota_us": "400000"}, 4),
        ("4:cpu,cpuacct:/slurm/2\n", {"cpu/slurm/2/cpu.cfs_quota_us": "-1"}, math.inf),
    ],
)
def test_the_quota_of_control_groups_of_both_versions(tmp_path, groups, files, quota):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        path.with_name("cpu.cfs_period_us").write_text("100000\n")
    assert quota_of(groups, tmp_path) == quota


@pytest.mark.parametrize(
    ("groups", "files", "memory"),
    [
        ("0::/\n", {"memory.max": "8000000000"}, 8e9),
        ("0::/\n", {"memory.max": "max"}, math.inf),
        ("0::/a/b\n", {"a/memory.max": "4000000000", "a/b/memory.max": "max"}, 4e9),
        ("4:memory:/docker/1\n0::/\n", {"memory/memory.limit_in_bytes": "2000000000"}, 2e9),
        ("4:cpu:/slurm/2\n", {"memory/slurm/2/memory.limit_in_bytes": "2000000000"}, math.inf),
    ],
)
def test_the_memory_of_control_groups_of_both_versions(tmp_path, monkeypatch, groups, files, memory):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert memory_of(groups, tmp_path) == memory
    monkeypatch.setattr(cores, "memory_of", lambda *_: memory)
    monkeypatch.setattr(os, "sysconf", lambda name: 1_000_000)  # a page of 1 MB, a million times
    assert usable_memory() == min(memory, 1e12)


def test_the_memory_of_a_system_that_does_not_tell_it_is_no_limit(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: -1 if name == "SC_PAGE_SIZE" else int("none"))
    monkeypatch.setattr(cores, "memory_of", lambda *_: math.inf)
    assert usable_memory() == math.inf


def test_without_other_ranks_a_process_plays_on_all_its_cores():
    assert share_of_cores() == number_of_cores()
    set_share(number_of_cores() + 1)
    assert share_of_cores() == number_of_cores() + 1
    set_share(None)
    assert share_of_cores() == number_of_cores()


HALVES = (range(4), range(4, 8))


@pytest.mark.parametrize(
    ("hosts", "bound", "expected"),
    [
        ("aa", [range(8)], [8]),  # one worker, and the coordinator beside it
        ("aaa", [range(8)] * 2, [4, 4]),
        ("aaaa", [range(8)] * 3, [2, 2, 2]),
        ("aabc", [range(8), range(8), range(2)], [8, 8, 2]),  # a worker for each host
        ("aaa", HALVES, [4, 4]),  # bound to sockets
        ("aaaaa", [*HALVES, *HALVES], [2, 2, 2, 2]),
        ("aaa", [[0], [0]], [1, 1]),  # more ranks than cores
        ("aaa", [range(8), range(4)], [6, 2]),
        ("abb", [[], []], [4, 4]),  # a system that does not tell, with 8 cores
    ],
)
def test_the_workers_of_a_host_share_its_cores(hosts, bound, expected):
    known = {rank: Cores(list(own), len(own) or 8) for rank, own in enumerate(bound, 1)}
    assert list(shares(hosts, known).values()) == expected


def test_the_quota_of_a_container_is_shared_too():
    known = dict.fromkeys((1, 2), Cores(range(64), 6))
    assert shares("aaa", known) == {1: 3, 2: 3}


def test_workers_that_did_not_come_need_no_core():
    assert shares(["a", "?", "a"], {2: Cores(range(8), 8)}) == {2: 8}
