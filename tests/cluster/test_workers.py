"""The workers as rank 0 sees them: which are left, and which are lost, dead, silent, or on a silent host."""

from collections import deque
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from wire import Wire

from evolve.cluster import Transport, dismiss, messages, script, workers
from evolve.cluster.coordinator import all_have_left
from evolve.cluster.messages import Dismiss, Ended, Heartbeat, Kill, Setup, Update, WorkerError
from evolve.cluster.workers import Fate, Loss, Workers, check_silence
from evolve.errors import HostLost, RunError, Stopped


class Ranks(Wire):
    """Rank 0 of four, whose workers die when a test says so."""

    def __init__(self):
        super().__init__(0, [deque() for _ in range(4)])
        self.dead = []

    def find_lost(self):
        dead, self.dead = self.dead, []
        self.mark_dead(dead)

    def sent(self, rank):
        return [messages.decode(frame) for _, frame in self._boxes[rank]]

    def say(self, rank, *said):
        self._boxes[0].extend((rank, messages.encode(message)) for message in said or [Heartbeat()])


@pytest.fixture
def scene(monkeypatch):
    """Ranks, the workers among them, and a clock that stands still."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: clock.now))
    ranks = Ranks()
    return ranks, Workers(ranks), clock


def silence(found, clock, seconds, busy=(1, 2, 3), patience=5.0):
    """Let time pass in steps of half a second; return the first losses."""
    for _ in range(int(2 * seconds)):
        clock.now += 0.5
        losses = found.remove_lost(busy, patience)
        if losses:
            return losses
    return []


def test_a_message_goes_to_all_but_one(scene):
    ranks, found, _ = scene
    found.send_all(Update(np.zeros(1, np.uint8)), skip=2)
    assert [len(ranks.sent(rank)) for rank in (1, 2, 3)] == [1, 0, 1]


def test_a_dead_worker_is_lost_once_and_no_longer_heard(scene):
    ranks, found, _ = scene
    ranks.dead = [2]
    ranks.say(2)
    ranks.say(3)
    (loss,) = found.remove_lost((), 5.0)
    assert (loss.worker, loss.fate) == (2, Fate.DEATH)
    assert found.ranks == (1, 3)
    assert found.receive() == (3, Heartbeat())
    assert found.receive() is None
    assert found.remove_lost((), 5.0) == []


def test_a_worker_whose_script_ended_before_the_job_is_lost(scene):
    """Its farewell may come while all ranks are dismissed, for example after rank 0 has refused a setting."""
    ranks, found, _ = scene
    ranks.say(2, Ended())
    ranks.say(1, Dismiss(np.zeros(0, np.uint8)))
    assert not dismiss(ranks, patience=-1.0)
    assert not all_have_left(ranks)
    assert ranks.leaving == {3}
    losses = found.remove_lost((1, 2), 5.0)
    assert losses == [Loss(2, Fate.CUT_OFF, "has ended its script")]
    assert Workers(ranks).ranks == found.ranks == (1, 3)


def test_a_worker_that_is_still_leaving_is_not_heard(scene):
    """Its messages belong to an earlier job of the script: an error would end the next job."""
    ranks, found, _ = scene
    ranks.leaving.add(2)
    ranks.say(2, WorkerError("late"), Dismiss(np.zeros(0, np.uint8)), Heartbeat())
    ranks.say(1)
    assert [found.receive(), found.receive(), found.receive()] == [(2, Heartbeat()), (1, Heartbeat()), None]
    assert not ranks.leaving


class AbortError(Exception):
    """The exit code with which a job ends."""


@pytest.mark.parametrize("hangs", ["leaving", "abandoned", ""])
def test_a_script_does_not_end_without_its_hanging_ranks(scene, monkeypatch, hangs):
    """MPI_Finalize would wait for them forever."""
    ranks, _, _ = scene

    def abort(code):
        raise AbortError(code)

    monkeypatch.setattr(ranks, "abort", abort)
    for rank in (1, 3) if hangs else (1, 2, 3):
        ranks.say(rank, Ended())
    if hangs:
        getattr(ranks, hangs).add(2)
        ranks.gone.update(ranks.abandoned)
    error = RunError("on all ranks")
    setattr(error, script.ON_ALL_RANKS, True)
    ends = {0: lambda: script.announce_end(ranks), 1: lambda: script.end_all(ranks, print, RunError, error, None)}
    for code, end in ends.items():
        with pytest.raises(AbortError, match=str(code)) if hangs else nullcontext():
            end()


def test_ranks_that_end_together_receive_all_messages():
    """Some versions of MPI warn of messages that no rank has received."""
    boxes = deque((1, messages.encode(said)) for said in (Heartbeat(), Ended())), deque()
    for rank in (0, 1):  # rank 1 has said that it ends, and receives the same from rank 0
        script.announce_end(Wire(rank, boxes))
    assert [[messages.decode(frame) for _, frame in box] for box in boxes] == [[Ended()], []]


def test_only_busy_workers_that_are_silent_for_too_long_are_lost(scene):
    ranks, found, clock = scene
    for rank in (1, 2, 3):
        ranks.say(rank)
        found.receive()
    assert silence(found, clock, 4.0) == []
    ranks.say(2)
    found.receive()
    losses = silence(found, clock, 2.0, busy=(1, 2))
    assert [(loss.worker, loss.fate) for loss in losses] == [(1, Fate.HANG)]
    assert ranks.abandoned == {1}
    assert found.ranks == (2, 3)


def test_a_worker_may_take_long_to_make_its_environments(scene):
    ranks, found, clock = scene
    for rank in (1, 2, 3):
        ranks.say(rank)
        found.receive()
    found.set_up(Setup(""))
    assert silence(found, clock, 100.0) == []
    ranks.say(1)
    found.receive()
    assert [loss.worker for loss in silence(found, clock, 6.0)] == [1]
    assert {loss.worker for loss in silence(found, clock, 1000.0)} == {2, 3}


def test_a_pause_of_rank_0_and_an_earlier_job_are_no_silence(scene):
    ranks, found, clock = scene
    ranks.say(1)
    found.receive()
    clock.now += 1000.0
    assert found.remove_lost((1,), 5.0) == []
    assert silence(found, clock, 4.0, busy=(1,)) == []
    found.reset_silence()
    assert silence(found, clock, 4.0, busy=(1,)) == []


def test_a_worker_that_hangs_is_killed_by_a_neighbour_if_mpi_survives_that(scene):
    ranks, found, clock = scene
    ranks.hosts, ranks.pids = ["here", "there", "elsewhere", "there"], [10, 11, 12, 13]
    ranks.host, ranks.tolerant = "here", True
    silence(found, clock, 1000.0, busy=(1,))
    assert ranks.sent(3) == [Kill(11)]
    assert ranks.sent(2) == []


def test_a_worker_that_hangs_itself_kills_no_other(scene):
    ranks, found, clock = scene
    ranks.hosts, ranks.tolerant = ["here", "there", "there", "there"], True
    ranks.host, ranks.pids = "here", [10, 11, 12, 13]
    silence(found, clock, 1000.0, busy=(1, 2))
    assert [ranks.sent(rank) for rank in (1, 2, 3)] == [[], [], [Kill(11), Kill(12)]]


class SomeSilent:
    """In place of the watch over other hosts: ranks that are silent once."""

    def __init__(self, *ranks):
        self._ranks = ranks
        self.ended = set()

    def find_silent(self):
        ranks, self._ranks = self._ranks, ()
        return list(ranks)


def hosts(*silent, tolerant=True):
    no_ranks = SimpleNamespace(Get_size=lambda: 0)
    transport = Transport(SimpleNamespace(Get_rank=lambda: 0, Get_size=lambda: 6, Get_failed=lambda: no_ranks))
    transport.hosts = [f"node{1 + rank // 2}" for rank in range(6)]
    transport.host, transport.tolerant = "node1", tolerant
    transport.host_watch = SomeSilent(*silent)
    return transport


def test_all_ranks_of_a_silent_host_are_lost_with_it():
    transport = hosts(5)
    found = Workers(transport)
    losses = found.remove_lost((), 5.0)
    assert [(loss.worker, loss.fate) for loss in losses] == [(4, Fate.CUT_OFF), (5, Fate.CUT_OFF)]
    assert transport.silent == {"node3"}
    assert transport.abandoned == {4, 5}
    assert found.ranks == (1, 2, 3)
    check_silence(transport)


def test_if_mpi_cannot_go_on_the_run_stops():
    transport = hosts(4, tolerant=False)
    transport.find_lost()
    assert transport.gone == {4, 5}
    with pytest.raises(HostLost, match=r"the silence of node3, for 30 s \(EVOLVE_SILENCE_SECONDS\)"):
        check_silence(transport)
    assert issubclass(HostLost, Stopped)


def test_a_host_that_hears_no_other_may_itself_be_cut_off():
    transport = hosts(2, 4)
    transport.find_lost()
    assert transport.gone == {2, 3, 4, 5}
    with pytest.raises(HostLost, match="node2, node3"):
        check_silence(transport)
