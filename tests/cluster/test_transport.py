"""A rank without a message sleeps; each sleep grows with the time that it has waited. An abort ends the process."""

from types import SimpleNamespace

import numpy as np
import pytest

from evolve.cluster import transport
from evolve.cluster.transport import Transport


def test_a_message_to_a_dead_rank_is_not_waited_for():
    """As the last messages of a job: MPI raises when it is asked whether the first has left."""
    mpi = pytest.importorskip("mpi4py.MPI")

    def send(_, dest, tag):
        def has_left():
            if dest == 1:
                raise mpi.Exception(mpi.ERR_OTHER)
            return True

        return SimpleNamespace(Test=has_left)

    dead = SimpleNamespace(Get_size=lambda: 1, Translate_ranks=lambda *_: [1], Free=lambda: None)
    ranks = SimpleNamespace(Get_rank=lambda: 0, Get_size=lambda: 3, Get_failed=lambda: dead, Get_group=lambda: dead,
                            Ack_failed=lambda _: None, Isend=send)  # fmt: skip
    sending = Transport(ranks)
    sending.tolerant = True
    for rank in (1, 2):
        sending.send(rank, np.zeros(1, np.uint8))
    assert sending.flush(patience=1.0)
    assert sending.gone == {1}


@pytest.mark.parametrize("parts", [{}, {"Get_failed": None}])
def test_an_mpi4py_that_reports_no_failed_ranks_survives_no_death(monkeypatch, parts):
    monkeypatch.setenv("OMPI_MCA_mpi_ft_enable", "true")
    communicator = SimpleNamespace(Get_rank=lambda: 0, Get_size=lambda: 3, **parts)
    assert Transport(communicator).tolerant == bool(parts)
    monkeypatch.setattr(Transport, "library", "Open MPI v5.0.8")
    monkeypatch.delenv("OMPI_MCA_mpi_ft_enable")
    assert Transport(communicator).could_tolerate == bool(parts)


@pytest.fixture
def slept(monkeypatch):
    """A function that lets rank 0 of `size` ranks wait for `seconds`; it returns the duration of each sleep."""

    def wait(size, seconds, least=0.0):
        now, sleeps = [100.0], []

        def sleep(duration):
            sleeps.append(duration)
            now[0] += duration

        monkeypatch.setattr(transport, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
        waiting = Transport(SimpleNamespace(Get_rank=lambda: 0, Get_size=lambda: size))
        while now[0] < 100.0 + seconds:
            waiting.backoff(least)
        return sleeps

    return wait


def test_an_abort_ends_this_process_even_if_no_launcher_answers(monkeypatch):
    done = []
    monkeypatch.setattr(transport.os, "_exit", lambda code: done.append(("exit", code)))
    abort = lambda code: done.append(("abort", code))  # noqa: E731
    Transport(SimpleNamespace(Get_rank=lambda: 1, Get_size=lambda: 2, Abort=abort)).abort(3)
    assert done == [("abort", 3), ("exit", 3)]


def test_few_ranks_notice_messages_sooner_than_many(slept):
    first = [slept(size, 1.0)[0] for size in (2, 3, 9, 64, 1024)]
    assert first == sorted(first)
    assert 0 < first[0] < first[1] < first[2] < first[3] == first[-1]


def test_a_rank_whose_answers_are_not_urgent_sleeps_for_longer(slept):
    assert min(slept(3, 1.0, least=0.01)) == 0.01
    assert max(slept(3, 1.0, least=1.0)) == transport.LONGEST_SLEEP


@pytest.mark.parametrize("size", [2, 64])
def test_a_rank_that_waits_for_long_probes_rarely(slept, size):
    sleeps = slept(size, 10.0)
    assert sleeps == sorted(sleeps)
    assert sleeps[-1] == transport.LONGEST_SLEEP
    assert len(sleeps) < 400


def test_a_message_that_comes_late_is_noticed_soon_after(slept):
    for seconds in (0.1, 0.5, 1.0):
        assert slept(3, seconds)[-1] <= 0.05 * seconds
