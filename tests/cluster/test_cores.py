"""The cores of a process, its share among the workers of its host, and the number of workers to start."""

import math
import os

import pytest

from evolve.cluster import cores
from evolve.cluster.cores import (
    Cores,
    Work,
    WorkerCount,
    count_workers,
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


CORES = 4
QUICK = "quick steps at most take no longer than MPI takes to start"


@pytest.mark.parametrize(
    ("asked", "work", "expected"),
    [
        ("auto", Work(), WorkerCount(4, CORES)),
        ("auto", Work(100, 10**6), WorkerCount(4, CORES)),
        ("auto", Work(3, 10**6), WorkerCount(3, CORES, "there are only 3 episodes at a time")),
        ("auto", Work(100, 10**4), WorkerCount(1, CORES, f"10,000 {QUICK}")),
        ("auto", Work(3, threads=4), WorkerCount(1, CORES, threads=4)),
        ("auto", Work(100, threads=3), WorkerCount(1, CORES, threads=3)),
        ("auto", Work(100, threads=2), WorkerCount(2, CORES, threads=2)),
        (1, Work(3, threads=4), WorkerCount(1, CORES, threads=4)),
        (2, Work(3), WorkerCount(2, CORES)),
        (2, Work(100, threads=4), WorkerCount(2, CORES, threads=4)),
        (1, Work(), WorkerCount(1, CORES, "MPI is useful only with two or more workers")),
        (2, Work(100, 10**6), WorkerCount(2, CORES)),
        (2, Work(100, 10), WorkerCount(2, CORES, f"10 {QUICK}")),
        (6, Work(100, None), WorkerCount(6, CORES, "more workers than cores are no faster")),
        (6, Work(5, None), WorkerCount(6, CORES, "there are only 5 episodes at a time")),
    ],
)  # fmt: skip
def test_the_number_of_workers_and_the_remark_on_it(monkeypatch, asked, work, expected):
    monkeypatch.setattr(cores, "number_of_cores", lambda: CORES)
    assert count_workers(asked, work) == expected
    assert "4 cores" in expected.describe()
    assert expected.describe().endswith(expected.remark)
    if expected.workers == 1 < expected.threads:
        threads = expected.threads
        assert expected.describe() == f"one process with {threads} threads on {threads} of 4 cores, without MPI"
    if expected.workers == 2 <= expected.threads:
        assert expected.describe() == "2 workers on 4 of 4 cores, and a coordinator that mostly sleeps"
