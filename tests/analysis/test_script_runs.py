"""Runs of a script on workers that it starts itself; progress, time limits, and callbacks that stop a run."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import psutil
import pytest
from conftest import LONG, OPENMPI, environment, wait_for

import evolve
from evolve import store
from evolve.analysis import script_runs
from evolve.cluster import script
from evolve.cluster.script import StartedRanks
from evolve.errors import Stopped

pytestmark = pytest.mark.usefixtures("warm_ranks")

SMALL = {
    "env": {"id": "CartPole-v1", "engine": "exact", "max_episode_steps": 20},
    "network": "mlp",
    "population": 6,
    "episodes": 2,
    "generations": 4,
    "held_out_episodes": 3,
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A script in a new folder, with the environment variables of a command under test."""
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The run of `alone`, which no test may change."""
    return evolve.train(**SMALL, output=tmp_path_factory.mktemp("alone")).path


@pytest.fixture
def alone(here, made):
    """The same run by this process."""
    Path("alone").mkdir()
    return evolve.load(shutil.copy(made, "alone"))


def test_workers_change_nothing_but_the_manifest(here, capfd, caplog):
    some_fail = {"id": "toys:Faulty-v0", "kwargs": {"share": 0.2}, "on_failure": "worst"}
    alone = evolve.train(**SMALL | {"env": some_fail}, output="alone")
    caplog.clear()
    seen = []
    capfd.readouterr()
    with caplog.at_level(logging.WARNING, "evolve"):
        run = evolve.train(
            **SMALL | {"env": some_fail}, output="many", workers=2, callbacks=[seen.append], progress=True
        )
    said = capfd.readouterr()
    assert "failed and counts as the worst" in caplog.text
    assert run.complete
    assert [generation.digest for generation in seen] == [generation.digest for generation in alone.generations]
    assert run.held_out.returns.tolist() == alone.held_out.returns.tolist()
    manifest = store.read(run.path).header.manifest
    assert (manifest["ranks"], manifest["command"]) == (3, sys.orig_argv)
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0].startswith("seed 0  generation 0 (1 of 4)  best fitness ")
    assert lines[-1].startswith("seed 0  generation 3 (4 of 4)  best fitness ")
    assert " of 2 workers idle" in lines[0]


@pytest.mark.parametrize("workers", [None, 2])
def test_a_callback_stops_the_run_by_false_alone(alone, workers):
    seen = []

    def callback(generation):
        seen.append(generation.number)
        return (None, 0, False, True)[generation.number]

    run = evolve.train(**SMALL, output="many", workers=workers, callbacks=[callback, lambda _: None])
    assert (seen, len(run.generations), run.complete) == ([0, 1, 2], 3, False)
    assert evolve.train(**SMALL, output="many", resume=True, workers=workers).digest == alone.digest


def test_a_loop_over_generations_of_workers_may_be_left(alone):
    generations = evolve.iterate(**SMALL, output="many", workers=2)
    seen = [next(generations), next(generations)]
    generations.close()
    assert [each.digest for each in seen] == [each.digest for each in evolve.load("many/seed-0.h5").generations]
    # A complete run starts no ranks, so this works without a launcher.
    assert list(evolve.iterate(**SMALL, output="alone", workers=2, resume=True)) == []


def test_errors_of_workers_are_raised_as_they_are(here):
    faulty = {"env": {"id": "toys:Faulty-v0", "kwargs": {"share": 0.2}}, "held_out_episodes": 0, "seed": 3}
    found = []
    for workers in (None, 2):
        with pytest.raises(evolve.EpisodeError, match="the motor burnt out") as caught:
            evolve.train(**SMALL | faulty, output=f"of {workers}", workers=workers)
        found.append(caught.value)
    assert isinstance(found[1].key, tuple)
    for workers, error in zip((None, 2), found, strict=True):
        alone = f"Play it alone: python -m evolve.replay 'of {workers}/seed-3.h5' --generation "
        assert alone in str(error)
        assert str(error).endswith('\nLet such episodes count as the worst: env.on_failure="worst" (in a new run)')
    # The file is still the one to be replaced, so it has no such episode.
    evolve.train(**SMALL | {"generations": 1, "seed": 3}, output="replaced")
    with pytest.raises(evolve.EpisodeError) as caught:
        evolve.train(**SMALL | faulty, output="replaced", overwrite=True)
    assert "Play it alone" not in str(caught.value)
    assert found[1].which.startswith("generation ")


def test_the_death_of_rank_0_is_an_error_and_the_run_can_be_resumed(alone):
    def callback(_):
        for process in psutil.Process().children(recursive=True):
            if process.environ().get("OMPI_COMM_WORLD_RANK") == "0":
                process.kill()

    with pytest.raises(evolve.RunError, match=r"^the ranks ended with code 137; .* continue with resume=True\.$"):
        evolve.train(**SMALL, output="many", workers=2, callbacks=[callback])
    assert psutil.Process().children(recursive=True) == []
    assert evolve.train(**SMALL, output="many", resume=True).digest == alone.digest


ONLY_HERE = (
    "^workers: new processes do not know OnlyHere-v0, because only the script registers it: "
    'register it in a module, and write env.id="module:OnlyHere-v0".$'
)


def test_workers_do_not_know_the_tasks_of_this_process(here):
    gymnasium.register("OnlyHere-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=9)
    try:
        only_here = SMALL | {"env": "OnlyHere-v0", "generations": 1}
        with pytest.raises(evolve.InputError, match=ONLY_HERE) as caught:
            evolve.train(**only_here, workers=2)
    finally:
        del gymnasium.registry["OnlyHere-v0"]
    assert caught.value.argument == "workers"


def test_workers_evaluate_and_verify_as_this_process_does(alone):
    changed = {"env": {"max_episode_steps": 90}, "network": {}, "generation": 2, "threads": 1}
    ours, theirs = (alone.evaluate(7, **changed, workers=workers) for workers in (None, 2))
    assert (ours.returns.tolist(), ours.seeds.tolist()) == (theirs.returns.tolist(), theirs.seeds.tolist())
    assert ours.returns.tolist() != alone.evaluate(7, generation=2).returns.tolist()
    assert alone.verify(full=True, workers=2) == alone.verify(full=True)
    champion = evolve.load(alone.export("pole.champion"))
    assert champion.verify(workers=2).equal


def test_workers_that_cannot_evaluate_a_file_say_why(alone):
    with pytest.raises(evolve.InputError, match=r"^workers: expected a number of workers, at least 1"):
        alone.verify(workers=0)
    gymnasium.register("OnlyHere-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=9)
    try:
        assert alone.evaluate(3, env="OnlyHere-v0", engine="gymnasium").returns.size == 3
        with pytest.raises(evolve.InputError, match=ONLY_HERE):
            alone.evaluate(3, env="OnlyHere-v0", engine="gymnasium", workers=2)
    finally:
        del gymnasium.registry["OnlyHere-v0"]
    evolve.train(**SMALL | {"generations": 1}, output="alone", overwrite=True)
    with pytest.raises(evolve.InputError, match=r"^workers: expected the file .* changed .* Load it again: evolve"):
        alone.evaluate(3, workers=2)


def test_another_experiment_that_workers_cannot_prepare_is_one_message():
    error = script_runs.error_outside_script(evolve.InputError("network.name", "a known network", "mine"))
    said = (
        "workers: new processes cannot prepare the experiment of the script. network.name: expected a known network, "
    )
    assert str(error) == f"{said}got mine."


HANGING = """
import pathlib, signal, sys
import evolve

sys.executable = sys.argv[1]  # of the ranks
signal.signal(signal.SIGINT, signal.default_int_handler)
kwargs = {"seconds": 300.0, "mark": "mark", "brake": "brake"}

def callback(_):
    pathlib.Path("mark").unlink()
    pathlib.Path("brake").touch()

evolve.train(env={"id": "toys:Slow-v0", "kwargs": kwargs}, population=6, episodes=2, seed=0, output="out",
             workers=2, callbacks=[callback])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_rank_outlives_a_script_that_ends_while_workers_hang(tmp_path, number):
    python = OPENMPI.with_name("python")
    # Without their script, the ranks end the launcher, which is no parent of a forked process.
    words = [python, "-c", HANGING, sys.executable if number == signal.SIGINT else python]
    with subprocess.Popen(words, env=environment(), cwd=tmp_path, stderr=subprocess.PIPE, text=True) as script:
        wait_for((tmp_path / "brake").exists)
        wait_for((tmp_path / "mark").exists)
        ranks = psutil.Process(script.pid).children(recursive=True)
        script.send_signal(number)
        assert len(ranks) >= 4  # mpirun and three ranks
        assert psutil.wait_procs(ranks, timeout=LONG)[1] == []
        assert script.wait(LONG) == -number
        assert ("KeyboardInterrupt" in script.stderr.read()) == (number == signal.SIGINT)
    assert len(evolve.load(tmp_path / "out" / "seed-0.h5").generations) == 1


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        (0, r"^workers: expected a number of workers, at least 1, or \"auto\", got 0\."),
        ("many", r"^workers: .* got 'many'\."),
        (np.array([1, 2]), r"^workers: .* got array\(\[1, 2\]\)\."),
        (10**6, r"^workers: expected at most .* on this machine, got 1,000,000\."),
    ],
)
def test_a_wrong_number_of_workers_is_refused(here, workers, said):
    with pytest.raises(evolve.InputError, match=said):
        evolve.train(**SMALL, workers=workers)
    assert list(here.iterdir()) == []


def test_under_a_launcher_no_other_ranks_are_started(here, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    with pytest.raises(evolve.InputError, match=r"^workers: expected a script that no launcher .* mpirun -n 4.* Leave"):
        evolve.train(**SMALL, workers=2)


def test_auto_starts_no_ranks_for_a_short_run(alone, monkeypatch):
    monkeypatch.setattr("evolve.analysis.script_runs.StartedRanks", lambda *_: pytest.fail("ranks were started"))
    assert evolve.train(**SMALL, output="auto", workers="auto").digest == alone.digest
    assert evolve.train(**SMALL, output="one", workers=1).digest == alone.digest
    assert alone.evaluate(3, workers="auto").returns.size == alone.evaluate(3, workers=1).returns.size == 3


def test_without_mpi4py_the_cure_is_its_installation(here, absent):
    absent("mpi4py")
    with pytest.raises(evolve.InputError, match=r"^workers: expected mpi4py, .* pip install"):
        evolve.train(**SMALL, workers=2)


def test_ranks_that_find_no_mpi_report_it(here, monkeypatch):
    (here / "libmpi.so").write_text("no library")
    monkeypatch.setenv("MPI4PY_LIBMPI", str(here / "libmpi.so"))
    said = r"^mpirun -n 3: .* a working mpi4py, .* cannot load MPI .* MPI4PY_LIBMPI names this library: unset it, "
    with pytest.raises(evolve.InputError, match=said):
        evolve.train(**SMALL, workers=2)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux lists the children of a process")
def test_the_ranks_of_a_launcher_that_hangs_are_killed(here, monkeypatch):
    """MPICH's launcher starts a process that starts the ranks."""
    # A command that an earlier test has called in this process may have left its own handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt():
        wait_for(lambda: Path("rank").exists() and Path("rank").read_text())
        os.kill(os.getpid(), signal.SIGINT)

    launcher = "trap '' TERM; sh -c 'sleep 600 & echo $! > rank; wait'; wait"
    monkeypatch.setattr(script, "mpirun_words", lambda _: ["sh", "-c", launcher])
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        StartedRanks(1, "nowhere:nothing")
    rank = int(Path("rank").read_text())
    wait_for(lambda: not psutil.pid_exists(rank) or psutil.Process(rank).status() == psutil.STATUS_ZOMBIE)


def test_a_launcher_that_never_starts_its_ranks_is_killed(here, monkeypatch):
    monkeypatch.setattr(script, "begin_seconds", lambda _: 0.3)
    monkeypatch.setattr(script, "mpirun_words", lambda _: ["sh", "-c", "exec sleep 600"])
    with pytest.raises(evolve.RunError, match=r"did not begin within 0.3 s: .* Set EVOLVE_CONNECT_SECONDS if"):
        StartedRanks(1, "nowhere:nothing")


def test_ranks_that_end_before_a_run_begins_leave_nothing_to_resume(here, monkeypatch):
    monkeypatch.setattr(script, "mpirun_words", lambda _: ["sh", "-c", "exit 3"])
    with pytest.raises(evolve.RunError, match="ended with code 3") as caught:
        StartedRanks(1, "nowhere:nothing")
    assert "resume" not in str(caught.value)


def test_a_time_limit_stops_a_run_that_can_be_resumed(alone):
    limited = SMALL | {"compute": {"time_limit": "0s"}}
    run = evolve.train(**limited, output="limited")
    assert (run.generations, run.complete) == ([], False)
    assert list(evolve.iterate(**limited, output="limited", resume=True)) == []
    assert evolve.train(**SMALL, output="limited", resume=True).digest == alone.digest
    with pytest.raises(Stopped, match=r"the time limit: no new generation is complete, so .* is unchanged"):
        evolve.train(**limited, output="limited", overwrite=True)
    assert evolve.load("limited/seed-0.h5").digest == alone.digest


def test_a_time_limit_keeps_the_generations_before_it(alone, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("evolve.analysis.script_runs.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def callback(_):
        clock[0] += 60

    run = evolve.train(**SMALL, output="limited", compute={"time_limit": "90s"}, callbacks=[callback])
    assert [each.digest for each in run.generations] == [each.digest for each in alone.generations[:2]]


def test_progress_is_a_line_now_and_then(alone, capsys, monkeypatch):
    again = evolve.train(**SMALL, output="again", progress=True)
    said = capsys.readouterr()
    assert (said.out, again.digest) == ("", alone.digest)
    assert [line.split()[3] for line in said.err.splitlines()] == ["0", "3"]
