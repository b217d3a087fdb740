"""The cores of a process, and its share among the workers of its host."""

import os
from pathlib import Path

import pytest

from evolve.cluster.cores import Cores, available_cores, playing_cores, set_share, shares


def test_cores_are_those_this_process_may_use(monkeypatch):
    assert 1 <= available_cores() <= os.cpu_count()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert available_cores() == 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    for quota, number in (("150000 100000", 2), ("max 100000", 64), ("10000 100000", 1)):
        monkeypatch.setattr(Path, "read_text", lambda _, quota=quota: f"{quota}\n")
        assert available_cores() == number


def test_without_other_ranks_a_process_plays_on_all_its_cores():
    assert playing_cores() == available_cores()
    set_share(available_cores() + 1)
    assert playing_cores() == available_cores() + 1
    set_share(None)
    assert playing_cores() == available_cores()


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
