"""Stopped, killed or extended: a resumed run ends with the digests of one that was never interrupted."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import pytest
from conftest import environment

from evolve import store
from evolve.config import Config
from evolve.divergence import retold
from evolve.errors import InputError
from evolve.experiment import load_config, reload
from evolve.run import load

# Each generation takes its time, whatever the machine: there is always something to interrupt.
RUN = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.003", "-p", 8, "-r", 2, "-g", 8, "-d", 4, "-s", 5,
       "--set", "held_out_episodes=3", "-o", "out")  # fmt: skip


def told(tmp_path):
    try:
        return len(store.read(store.path_of(tmp_path / "out", 5)).records)
    except Exception:  # not there yet
        return 0


def wait_until_told(process, tmp_path, generations):
    deadline = time.monotonic() + 40
    while told(tmp_path) < generations:
        assert time.monotonic() < deadline, process.output()
        assert process.popen.poll() is None, process.output()
        time.sleep(0.02)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    where = tmp_path_factory.mktemp("uninterrupted")
    subprocess.run(
        [sys.executable, "-m", "evolve.run", *map(str, RUN)],
        env=environment(),
        cwd=where,
        check=True,
        timeout=100,
        capture_output=True,
    )
    return store.read(store.path_of(where / "out", 5))


def same(tmp_path, expected):
    run = store.read(store.path_of(tmp_path / "out", 5))
    assert [r.digest for r in run.records] == [r.digest for r in expected.records]
    assert run.complete
    assert run.held_out.returns.tolist() == expected.held_out.returns.tolist()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize(("ranks", "mpi", "then"), [(None, "openmpi", 3), (3, "mpich", None), (3, "openmpi", 2)])
def test_signals_end_with_75_and_a_whole_file(start, command, tmp_path, uninterrupted, number, ranks, mpi, then):
    process = start("run", *RUN, ranks=ranks, mpi=mpi)
    wait_until_told(process, tmp_path, 2)
    if mpi == "openmpi" and ranks:
        # Open MPI's mpirun ends with 1, whatever its ranks do, when it is signalled itself (but forwards SIGUSR1).
        process.ranks()[1 if number == signal.SIGTERM else 0].send_signal(number)
    else:
        process.popen.send_signal(number)
    done = process.wait(20)
    assert done.code == 75, done.err + done.out
    message = done.err + done.out
    assert message.count("continue with --resume") == 1
    assert "Traceback" not in message
    assert 2 <= told(tmp_path) < 8
    with h5py.File(tmp_path / "out" / "seed-5.h5") as file:
        assert not file.attrs["complete"]
    assert command("run", *RUN, "--resume", ranks=then).code == 0
    same(tmp_path, uninterrupted)


def test_open_mpis_own_mpirun_signalled_leaves_a_whole_file(start, command, tmp_path, uninterrupted):
    process = start("run", *RUN, ranks=3)
    wait_until_told(process, tmp_path, 1)
    process.popen.send_signal(signal.SIGTERM)
    done = process.wait(20)
    assert done.code != 0
    assert "Ctrl-C and the loss of a worker end this run" in done.err  # said at the start: now mpirun lets nobody speak
    assert command("run", *RUN, "--resume", ranks=3).code == 0
    same(tmp_path, uninterrupted)


@pytest.mark.parametrize("ranks", [None, 3])
def test_killed_outright_after_any_generation(start, command, tmp_path, uninterrupted, ranks):
    for generations in (1, 3, 6):
        process = start("run", *RUN, "--resume", ranks=ranks)
        wait_until_told(process, tmp_path, generations)
        process.kill()
        process.popen.wait(10)
    assert command("run", *RUN, "--resume", ranks=None if ranks else 4).code == 0
    same(tmp_path, uninterrupted)


def test_a_killed_worker_ends_the_job_and_resume_continues(start, command, tmp_path, uninterrupted):
    process = start("run", *RUN, ranks=3)
    wait_until_told(process, tmp_path, 1)
    process.ranks()[2].kill()
    assert process.wait(20).code != 0
    assert command("run", *RUN, "--resume").code == 0
    same(tmp_path, uninterrupted)


def test_the_time_limit_ends_with_75(command, tmp_path, uninterrupted):
    done = command("run", *RUN, "--time-limit", "1s")
    assert done.code == 75
    assert "the time limit" in done.err
    assert command("run", *RUN, "--resume").code == 0
    same(tmp_path, uninterrupted)


def test_a_run_file_is_all_that_resuming_needs(command, tmp_path, uninterrupted):
    short = [*RUN]
    short[short.index("-g") + 1] = 3
    assert command("run", *short, "--set", "compute.slots=3", "--time-limit", "1h").code == 0
    path = (tmp_path / "out" / "seed-5.h5").rename(tmp_path / "of another name.h5")
    assert command("run", path.name, "-g", 5, "--resume").code == 0
    done = command("run", "--resume", path, "-g", 8, ranks=3)
    assert (done.code, f"{path}: last generation (7): best" in done.out) == (0, True), done.err
    assert [p.name for p in tmp_path.glob("**/*.h5")] == [path.name]
    config = load_config(store.read(path).header.config)
    assert (config.generations, config.compute.time_limit) == (8, None)
    (tmp_path / "out" / "seed-5.h5").write_bytes(path.read_bytes())
    same(tmp_path, uninterrupted)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("a.h5",),
            "expected a TOML file, got a.h5, by its name a run file. To continue it: python -m evolve.run --resu",
        ),
        (
            ("a.h5", "--resume", "-s", "4"),
            "seeds (-s/--seed), resuming a.h5: expected (3,), for that very file goes on",
        ),
        (("a.h5", "--resume", "-o", "there"), "output.directory (-o/--output), resuming a.h5: expected '.', for"),
        (("a.h5", "--resume", "-a", "mlp"), "network.name (-a/--agent), resuming a.h5: expected 'hebbian-dag', for"),
        (("a.h5", "--resume", "--set", "sweep.episodes=[2]"), "resuming a.h5"),
        (("b.h5", "--resume"), "b.h5: expected a readable run file, got a truncated or foreign file"),
        (("c.h5", "--resume"), "c.h5: expected a run file, got no such file"),
    ],
)
def test_a_run_file_in_the_place_of_an_experiment(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    header = store.Header(Config().to_toml(), {}, 3, "CartPole-v1")
    store.create(Path("a.h5"), header).close()
    Path("b.h5").write_text("no run file")
    with pytest.raises(InputError) as wrong:
        load(list(words))
    assert message in str(wrong.value)
    (config,), file = load(["a.h5", "--resume", "-g", "7", "-o", "./"])
    assert (config.generations, config.seeds, file) == (7, (3,), Path("a.h5"))


def test_a_finished_run_can_be_extended(command, tmp_path, uninterrupted):
    short = [*RUN]
    short[short.index("-g") + 1] = 3
    assert command("run", *short).code == 0
    again = command("run", *short, "--resume")
    assert (again.code, "already complete" in again.out) == (0, True)
    assert command("run", *RUN, "--resume", ranks=3).code == 0
    same(tmp_path, uninterrupted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("-p", 17), "population, resuming"),
        (("-d", 5), "network.hidden, resuming"),
        (("-a", "elman"), "network.name, resuming out/seed-0.h5: expected 'hebbian-dag' as in the run file, got elman"),
        (("--strategy", "ga"), "strategy.name, resuming"),
        (("--set", "strategy.weight_noise=0.5"), "strategy.weight_noise, resuming"),
        (("-e", "Pendulum-v1"), "env.id, resuming"),
        (("-g", 1), "the generations already told"),
    ],
)
def test_resuming_something_else_is_refused(command, tmp_path, change, message):
    quick = ("-p", 4, "-r", 1, "-g", 2, "-d", 3, "--set", "held_out_episodes=0", "-o", "out")
    assert command("run", *quick).code == 0
    before = (tmp_path / "out" / "seed-0.h5").read_bytes()
    done = command("run", *quick, *change, "--resume")
    assert done.code == 2
    assert message in done.err
    assert (tmp_path / "out" / "seed-0.h5").read_bytes() == before


def test_a_task_that_was_changed_meanwhile_is_refused(command, tmp_path):
    task = ("-e", "toys:Elsewhere-v0", "-p", 4, "-r", 2, "-d", 3, "--set", "held_out_episodes=0", "-o", "out")
    assert command("run", *task, "-g", 2).code == 0
    before = (tmp_path / "out" / "seed-0.h5").read_bytes()
    longer = (*task, "-g", 3, "--resume")
    done = command("run", *longer, "-s", 9, 0, TOY_GRAVITY="12")
    assert (done.code, done.err.count("\n"), done.out) == (2, 1, ""), done.err
    assert re.search(
        r"generation 1, candidate \d, episode 0, which goes on here after step \d+ \(in the log ", done.err
    )
    for words in ("code or version", "python -m evolve.verify out/seed-0.h5", "--set compute.check=false"):
        assert words in done.err
    assert (tmp_path / "out" / "seed-0.h5").read_bytes() == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["seed-0.h5"]
    assert command("run", *task, "-g", 2, "--resume", TOY_GRAVITY="12").code == 0  # it is complete: nothing is played
    assert command("run", *longer, "--set", "compute.check=false", TOY_GRAVITY="12").code == 0


def test_used_environments_need_not_repeat_themselves(command, tmp_path):
    walk = ("-e", "BipedalWalker-v3", "-p", 4, "-r", 2, "-d", 2, "--set", "held_out_episodes=0", "-o", "out")
    used = ("--set", "env.reuse=true", "--set", "env.max_episode_steps=60")
    assert command("run", *walk, *used, "-g", 2).code == 0
    done = command("run", *walk, *used, "-g", 3, "--resume")
    assert done.code == 0, done.err


def test_a_stop_is_heeded_before_any_episode_is_played_again(command, tmp_path):
    task = ("-e", "toys:Elsewhere-v0", "-p", 4, "-r", 1, "-d", 3, "--set", "held_out_episodes=0", "-o", "out")
    assert command("run", *task, "-g", 1).code == 0
    done = command("run", *task, "-g", 2, "--resume", "--time-limit", "0s", TOY_GRAVITY="12")
    assert (done.code, "stopped by the time limit" in done.err) == (75, True), done.err


def test_it_is_said_that_other_code_has_written_what_is_there(command, tmp_path):
    task = ("-p", 4, "-r", 1, "-g", 1, "-d", 3, "--set", "held_out_episodes=0", "-o", "out")
    assert command("run", *task).code == 0
    with h5py.File(tmp_path / "out" / "seed-0.h5", "r+") as file:
        told = json.loads(file.attrs["manifest"])
        file.attrs["manifest"] = json.dumps(told | {"evolve": "0.0.9"})
    done = command("run", *task[:4], "-g", 2, *task[6:], "--resume")
    assert (done.code, done.err.count("\n")) == (0, 1), done.err
    assert "out/seed-0.h5 was written by evolve 0.0.9" in done.err
    assert "python -m evolve.verify --full out/seed-0.h5" in done.err


@pytest.mark.parametrize(
    ("was", "words"), [("raise", None), ("nothing", "fails here: RuntimeError: the motor burnt out")]
)
def test_an_episode_that_failed_may_fail_again(command, tmp_path, was, words):
    task = ("-e", "toys:Faulty-v0", "--set", "env.kwargs.share=1.0", "--set", "env.on_failure=worst", "-p", 4, "-r", 1)
    small = ("-d", 2, "-g", 1, "--set", "held_out_episodes=0", "-o", "out")
    assert command("run", *task, *small, "--set", f"env.kwargs.how={was}").code == 0
    run = store.read(store.path_of(tmp_path / "out", 0))
    now = replace(run, header=replace(run.header, config=run.header.config.replace('"nothing"', '"raise"')))
    apart = retold(now, reload(now), lambda: None)
    assert (apart is None) if words is None else (words in apart)


def test_another_seeds_file_is_refused(command, tmp_path):
    quick = ("-p", 4, "-r", 1, "-g", 2, "-d", 3, "--set", "held_out_episodes=0", "-o", "out")
    assert command("run", *quick, "-s", 1).code == 0
    shutil.copy(tmp_path / "out" / "seed-1.h5", tmp_path / "out" / "seed-7.h5")
    done = command("run", *quick, "-s", 7, "-g", 3, "--resume")
    assert done.code == 2
    assert "seed (-s/--seed), resuming out/seed-7.h5: expected 1 as in the run file, got 7" in done.err


def test_a_damaged_checkpoint_is_refused(command, tmp_path):
    quick = ("-p", 4, "-r", 1, "-g", 2, "-d", 3, "--set", "held_out_episodes=0", "-o", "out")
    assert command("run", *quick).code == 0
    with h5py.File(tmp_path / "out" / "seed-0.h5", "r+") as file:
        del file["checkpoint/leaderboard_total"]
    done = command("run", *quick, "-g", 3, "--resume")
    assert done.code == 2
    assert "expected a whole checkpoint" in done.err


def test_more_held_out_episodes_may_be_asked_for_later(command, tmp_path):
    quick = ("-p", 4, "-r", 1, "-g", 2, "-d", 3, "-o", "out")
    anew = command("run", *quick, "--set", "held_out_episodes=2", "--resume")
    assert (anew.code, anew.err) == (0, "evolve.run: nothing to resume, a new run begins: out/seed-0.h5\n")
    again = command("run", *quick, "--set", "held_out_episodes=7", "--resume")
    assert (again.code, again.err) == (0, "")
    assert len(store.read(store.path_of(tmp_path / "out", 0)).held_out.returns) == 7


def test_what_cannot_reach_a_fitness_may_change(command):
    quick = ("-p", 4, "-r", 1, "-g", 2, "-d", 3, "-o", "out")
    assert command("run", *quick, "--set", "held_out_episodes=0").code == 0
    assert (
        command("run", *quick, "-g", 3, "--resume", "--set", "compute.slots=2", "--set", "held_out_episodes=5").code
        == 0
    )


def test_the_second_signal_kills(start):
    process = start("run", "-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=30", "-p", 4, "-r", 1)
    time.sleep(2)
    for _ in range(2):
        os.kill(process.popen.pid, signal.SIGTERM)
        time.sleep(0.5)
    assert process.wait(5).code == -signal.SIGTERM


@pytest.mark.parametrize("section", ["network", "strategy"])
def test_settings_that_are_younger_than_a_file_have_their_defaults(command, tmp_path, section):
    small = ("-p", 4, "-r", 1, "-d", 2, "--strategy", "openai-es", "--set", "held_out_episodes=0", "-o", "out")
    assert command("run", *small, "-g", 1).code == 0
    with h5py.File(tmp_path / "out" / "seed-0.h5", "r+") as file:
        young = {"network": "birth_scale = 1.0\n", "strategy": "constant_generations = 0\n"}[section]
        assert young in file.attrs["config"]
        file.attrs["config"] = file.attrs["config"].replace(young, "")
    done = command("verify", "out/seed-0.h5")
    assert (done.code, done.out) == (0, "equal: the champions of 1 generation, 1 episode evaluated again\n")
    done = command("run", *small, "-g", 2, "--resume")
    assert done.code == 0, done.err
