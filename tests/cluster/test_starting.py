"""A start that ends: missing ranks are named, no rank waits for longer than the limit, and all are introduced."""

import contextlib
import ctypes
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import LONG, environment

from evolve.cluster import Transport, start, transport
from evolve.cluster.cores import set_share, share_of_cores
from evolve.cluster.start import LaunchedRank, StartWatch, launched_ranks
from evolve.cluster.supervision import connect_seconds
from evolve.errors import InputError, RunError

HERE, THERE = "node1", "node2"


class EndedError(Exception):
    """In place of the end of the process."""


def rank(number, host=HERE, has_come=True, has_ended=False, has_ended_job=False):
    return LaunchedRank(number, host, has_come, has_ended, has_ended_job)


@pytest.fixture
def watch(monkeypatch):
    """A function that runs the watch of a rank for a number of seconds, with ranks as a launcher knows them."""

    def end(code):
        raise EndedError(code)

    def look(number, known, after, missing=None):
        clock = [0.0]
        ticks = iter(range(int(after)))

        class Event(threading.Event):
            """An event that is set after so many waits of a second, without waiting."""

            def wait(self, _=None):
                clock[0] += 1.0
                return next(ticks, None) is None

        class Thread(threading.Thread):
            """A thread that runs within `start`."""

            def start(self):
                self.run()

            def join(self):
                pass

        monkeypatch.setattr(start, "threading", SimpleNamespace(Event=Event, Thread=Thread))
        monkeypatch.setattr(start.time, "monotonic", lambda: clock[0])
        monkeypatch.setattr(start.os, "_exit", end)
        monkeypatch.setattr(start, "launched_ranks", lambda _: known)
        monkeypatch.setattr(start, "end_job", lambda _: None)
        watch = StartWatch(number, 4, HERE, ctypes.CDLL(None))
        watch.missing = missing
        with watch:
            pass

    return look


KILLED = [rank(0), rank(1), rank(2, THERE, has_ended=True), rank(3, THERE)]


def test_a_rank_that_died_is_named_at_once(watch, capsys):
    with pytest.raises(EndedError, match="1"):
        watch(0, KILLED, 2)
    assert "rank 2 on node2 ended (1 s after rank 0 on node1 came; " in capsys.readouterr().err


def test_others_wait_for_the_message_of_rank_0(watch, capsys):
    watch(1, KILLED, 4)
    with pytest.raises(EndedError):
        watch(1, KILLED, 9)
    assert capsys.readouterr().err.count("rank 2 on node2") == 1


def test_a_rank_that_hears_that_the_job_ends_says_nothing(watch, capsys):
    with pytest.raises(EndedError):
        watch(1, [rank(0, has_ended=True, has_ended_job=True), rank(1)], 2)
    assert capsys.readouterr().err == ""


def test_a_rank_that_has_not_come_is_named_after_the_limit(watch, capsys, monkeypatch):
    monkeypatch.setenv(start.CONNECT, "20")
    late = [rank(0), rank(1), *(rank(2 + i, THERE, has_come=False) for i in range(7))]
    watch(0, late, 19)
    with pytest.raises(EndedError):
        watch(0, late, 30)
    said = capsys.readouterr().err
    assert "rank 2 on node2, rank 3 on node2" in said
    assert "and 2 more did not come" in said
    assert "EVOLVE_CONNECT_SECONDS=20" in said


def test_ranks_that_know_all_ranks_go_before_others(watch, capsys, monkeypatch):
    """If rank 0 has not come, ranks of two hosts would otherwise print at the same time."""
    monkeypatch.setenv(start.CONNECT, "5")
    watch(1, [rank(0, THERE, has_come=None), rank(1)], 11)
    with pytest.raises(EndedError):
        watch(1, [rank(0, THERE, has_come=False), rank(1)], 11)
    assert ": rank 0 on node2 did not come" in capsys.readouterr().err


def test_a_launcher_that_knows_nothing_names_no_rank(watch, capsys, monkeypatch):
    monkeypatch.setenv(start.CONNECT, "5")
    with pytest.raises(EndedError):
        watch(0, [], 9)
    assert "not all of the 4 ranks came, and the launcher does not say which" in capsys.readouterr().err
    with pytest.raises(EndedError):
        watch(0, [], 9, missing=lambda: [3])
    assert ": rank 3 did not come" in capsys.readouterr().err


def test_a_start_in_time_ends_the_watch():
    before = threading.active_count()
    with StartWatch(0, 4, HERE, ctypes.CDLL(None)):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_the_limit_grows_with_the_ranks(monkeypatch):
    assert connect_seconds(4096) > connect_seconds(64) > connect_seconds(2) >= 60
    monkeypatch.setenv(start.SILENCE, "soon")
    with pytest.raises(
        InputError, match=r"EVOLVE_SILENCE_SECONDS: expected seconds, from 1 to less than a million, got soon"
    ):
        start.silence_seconds()


def test_without_pmix_nothing_is_known(monkeypatch):
    assert launched_ranks(ctypes.CDLL(None)) == []
    monkeypatch.setenv("PMIX_NAMESPACE", "prterun-node1-1@1")
    assert launched_ranks(ctypes.CDLL(None)) == []


class Silent(Transport):
    """A rank of three that hears nothing, of an MPI that survives deaths and has missed one."""

    def __init__(self, rank, introduced=()):
        super().__init__()
        self.rank, self.size, self.tolerant = rank, 3, True
        facts = {"host": self.host, "pid": 7, "cores": [[0, 1, 2], 3], "arguments": ["-s", "1 2"]}
        content = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        self._introductions = [(rank, content) for rank in introduced]

    def send(self, rank, _):
        pass

    def probe(self):
        return self._introductions.pop() if self._introductions else None

    def find_lost(self):
        pass


@pytest.fixture
def introduced(monkeypatch):
    """A function that introduces a rank while the launcher knows that another has ended."""
    monkeypatch.setattr(start, "WATCH_EVERY", 0.0)

    def introduce(rank_of_three, ended):
        monkeypatch.setattr(start, "launched_ranks", lambda _: [rank(ended, has_ended=True)])
        start.introduce(rank_of_three, StartWatch(rank_of_three.rank, 3, HERE, ctypes.CDLL(None)))
        return rank_of_three

    yield introduce
    set_share(None)


@pytest.mark.parametrize("others", [[2], [1, 2]], ids=["before its introduction", "after that"])
def test_rank_0_goes_on_without_a_rank_if_only_the_launcher_knows_of_its_death(introduced, others):
    found = introduced(Silent(0, others), 1)
    assert found.gone == {1}
    assert found.abandoned == set()
    assert share_of_cores() == 3  # all cores of the other worker


def test_arguments_that_only_one_rank_has_are_refused(introduced, monkeypatch):
    """As by srun -n 20 bash -c 'evolve run -s $SLURM_PROCID': all ranks would work on the seed of rank 0."""
    found = introduced(Silent(0, [2]), 1)
    monkeypatch.setattr(start.sys, "argv", ["evolve", "-s", "1 2"])
    start.check_arguments(found)
    start.sys.argv[2] = "1"
    with pytest.raises(InputError, match=r"rank 2: expected the arguments of rank 0, .*, got -s '1 2'\. Give one"):
        start.check_arguments(found)


def test_a_rank_hears_from_the_launcher_that_rank_0_is_lost(introduced):
    with pytest.raises(RunError, match="rank 0 was lost"):
        introduced(Silent(1), 0)


def test_if_a_death_ends_the_job_the_launcher_is_not_asked(introduced):
    plain = Silent(0, [1, 2])
    plain.tolerant = False
    assert introduced(plain, 1).gone == set()


@pytest.mark.parametrize(
    ("here", "more", "spared"),
    [
        ("3", {}, True),
        ("2", {}, False),
        ("3", {"OMPI_MCA_btl": "tcp,self"}, False),
        ("3", {"OMPI_MCA_pml": "cm"}, False),
    ],
)
def test_the_ranks_of_one_machine_look_for_no_fabric(monkeypatch, here, more, spared):
    for name in ("btl", "mtl", "pml"):
        monkeypatch.setenv(f"OMPI_MCA_{name}", "so that it is restored")
        monkeypatch.delenv(f"OMPI_MCA_{name}")
    for name, value in {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": here, **more}.items():
        monkeypatch.setenv(name, value)
    transport.skip_fabric_search()
    assert ({"OMPI_MCA_mtl": "^ofi"}.items() <= os.environ.items()) == spared
    assert more.items() <= os.environ.items()


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_killed_before_all_have_come_ends_the_start(command, victim):
    done = command("run", "killed", victim, ranks=3, mpi="ulfm", module="toy_start")
    assert done.code == 1
    said = re.findall(r"evolve: the ranks did not come together: rank (\d) on \S+ ended", done.err)
    assert said == [str(victim)]


def test_a_start_goes_on_without_a_worker_killed_right_after_mpi_started(command):
    command("run", "introduced", 2, ranks=3, mpi="ulfm", module="toy_start").ok()


@pytest.mark.parametrize("mpi", ["openmpi", pytest.param("mpich", marks=pytest.mark.slow)])
def test_a_rank_that_never_comes_ends_the_start_after_the_limit(command, mpi):
    done = command("run", "late", 1, ranks=3, mpi=mpi, module="toy_start", EVOLVE_CONNECT_SECONDS="2")
    assert done.code != 0
    assert ("rank 1 on " if mpi == "openmpi" else "not all of the 3 ranks came") in done.err
    assert done.err.count("did not come together") == 1


@pytest.mark.parametrize("variable", ["EVOLVE_CONNECT_SECONDS", "EVOLVE_SILENCE_SECONDS"])
def test_a_limit_that_is_no_duration_is_refused_once(command, variable):
    done = command("run", "", -1, ranks=2, module="toy_start", **{variable: "never"})
    assert done.code != 0
    assert done.err.count(f"{variable}: expected seconds") == 1
    assert done.seconds < 60.0  # for so long the other ranks would wait for rank 0


@pytest.mark.parametrize(
    ("variable", "launcher", "cure"),
    [("OMPI_COMM_WORLD_SIZE", "mpirun -n 3", "Use the mpirun"), ("SLURM_STEP_NUM_TASKS", "srun -n 3", "--mpi=pmix")],
)
def test_a_launcher_that_does_not_tell_mpi_of_the_ranks_is_refused(monkeypatch, variable, launcher, cure):
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "3")
    alone = SimpleNamespace(Get_size=lambda: 1)
    mpi = SimpleNamespace(COMM_WORLD=alone, Get_library_version=lambda: "Some MPI v1, package")
    with pytest.raises(InputError, match=rf"^{launcher}: expected .* Some MPI v1.*{cure}"):
        start.check_ranks(mpi, 3)


@pytest.mark.parametrize("waits", [True, False])
def test_a_launcher_that_stays_is_killed_with_its_ranks(tmp_path, waits):
    """As Open MPI's did once, after an abort."""
    soon = "t.PATIENCE = t.LONG_PATIENCE = 1"
    code = f"from evolve.cluster import transport as t; {soon}; t.kill_launcher_later({waits})"
    launcher = tmp_path / "mpirun"
    launcher.write_text(f"#!/bin/sh\nsleep 3600 &\n{sys.executable} -c '{code}'\nwait\n")
    launcher.chmod(0o755)
    done = subprocess.run([launcher], capture_output=True, timeout=LONG, check=False)  # until its rank has gone, too
    assert done.returncode == -signal.SIGKILL


def test_a_parent_that_is_no_launcher_is_not_killed(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    transport.kill_launcher_later()


COUNT = """
from evolve.cluster.supervision import launched, started_by
print(launched().size, started_by())
"""


def test_commands_in_the_interactive_shell_of_srun_are_no_ranks():
    """`srun -n 4 --pty bash` gives the shell a terminal of its own, and the variables of one task of four."""
    told = environment() | {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0", "SLURM_PTY_PORT": "12345"}
    pid, terminal = pty.fork()
    if pid == 0:  # the child has the terminal, as the shell has
        os.execve(sys.executable, [sys.executable, "-c", COUNT], told)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal ends with the child
        while part := os.read(terminal, 1000):
            shown += part
    os.waitpid(pid, 0)
    os.close(terminal)
    assert shown.split() == [b"1", b"None"]
    # A rank that srun starts from this shell inherits the variables, but has no terminal.
    ranks = subprocess.run(
        [sys.executable, "-c", COUNT], env=told, capture_output=True, check=True, start_new_session=True
    )
    assert ranks.stdout.split() == [b"4", b"srun", b"-n", b"4"]
