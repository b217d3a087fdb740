"""`--workers`: ranks that a command starts itself; signals, exit codes and no process left over."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from conftest import LONG, MPICH, ROOT, environment, wait_for, without

from evolve import store
from evolve.cli.run import load
from evolve.cluster import hosts, supervision
from evolve.cluster.cores import Work
from evolve.cluster.hosts import Launcher, mpirun_environment, mpirun_words
from evolve.errors import InputError
from evolve.training.plan import work_of

TINY = ("-p", 6, "-r", 2, "-g", 2, "-d", 3,
        "--set", "env.max_episode_steps=60", "--set", "held_out_episodes=2", "-o", "out")  # fmt: skip
SLOW = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.004", "--set", "env.kwargs.brake=brake", *TINY, "-g", 40)
NOT_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": None, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": None}


NO_MPICH = pytest.mark.skipif(not (MPICH / "bin" / "mpirun").exists(), reason="no mpich")
MPIS = ["openmpi", pytest.param("mpich", marks=[NO_MPICH, pytest.mark.slow])]


@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_are_started_for_anybody_on_any_number_of_cores(call, command, tmp_path, mpi):
    workers = 2 if mpi == "mpich" else os.cpu_count() + 1
    done = command("run", *TINY, "--workers", workers, mpi=mpi, **NOT_ROOT).ok()
    assert done.err.startswith(f"evolve.run: {workers} workers on ")
    assert re.search(" cores?, and a coordinator that mostly sleeps", done.err)
    remark = "evolve.run: 1,560 quick steps at most take no longer than MPI takes to start"
    assert done.err.splitlines()[1:] == [remark]  # by rank 0, as the process that starts the ranks reads no experiment
    run = store.read(tmp_path / "out" / "seed-0.h5")
    assert run.header.manifest["ranks"] == workers + 1
    call("run", *TINY, "-o", "alone").ok()
    alone = store.read(tmp_path / "alone" / "seed-0.h5")
    assert [record.digest for record in run.records] == [record.digest for record in alone.records]


@pytest.mark.cold
def test_ranks_import_the_evolve_that_starts_them(tmp_path):
    """Not the one in the current directory, where `python -m` looks first; but tasks are found there."""
    (tmp_path / "evolve").mkdir()
    (tmp_path / "evolve" / "__init__.py").write_text("raise ImportError('another evolve')")
    (tmp_path / "mine.py").write_text("from gymnasium.envs.classic_control import CartPoleEnv as Mine")
    words = [sys.executable, "-P", "-m", "evolve", "run", "-e", "mine:Mine", *map(str, TINY), "--workers", "2"]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=LONG, check=False
    )
    assert done.returncode == 0, done.stderr
    assert store.read(tmp_path / "out" / "seed-0.h5").header.manifest["ranks"] == 3


def test_the_other_commands_have_workers_too(call, command, monkeypatch):
    call("run", *TINY).ok()
    done = command("verify", "out", "--workers", 2)
    assert (done.code, done.out) == (
        0,
        "equal: the champions of 2 generations, 4 episodes evaluated again, and 2 held-out ones\n",
    )
    started = []
    monkeypatch.setattr(supervision, "supervise", lambda words, *_: started.append(words) or 5)
    for name in ("verify", "evaluate", "report"):
        assert call(name, "out", "--workers", 2).code == 5  # the code of its ranks
        assert started.pop()[-3:] == ["-m", f"evolve.{name}", "out"]
        call(name, "nowhere.h5", "--workers", "many").refused("--workers: ", "many")
        call(name, "--workers", "auto").refused()  # before any rank is started


def test_an_error_of_the_ranks_is_one_line_and_exit_code_2(command):
    done = command("run", *TINY, "-e", "Bipedal-v3", "--workers", 2)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 2)
    assert "Did you mean BipedalWalker-v3" in done.err


def wait_for_generations(process, tmp_path, number):
    path = store.path_of(tmp_path / "out", 0)

    def ready():
        assert process.popen.poll() is None, process.output()
        return path.exists() and store.read_progress(path)[0] >= number

    wait_for(ready, process.output)


SUPERVISED = '''
import os, signal, sys, time
from evolve.cluster.supervision import supervise
child = """
import os, signal, sys, time
print('on')
time.sleep(float(sys.argv[1]))
exit_code = open(os.environ["EVOLVE_EXIT_CODE"], "w")
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(not exit_code.write("75")))
print('begun')
time.sleep(200)
"""
words = [sys.executable, "-uc", child, sys.argv[1]]
sys.exit(supervise(words, dict(os.environ), 2, lambda text: print(text, flush=True)))
'''


def supervised(seconds):
    """Start a process that supervises one which takes some seconds to begin."""
    words = [sys.executable, "-c", SUPERVISED, str(seconds)]
    return subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True)


def catches_all(process):
    """Whether a process catches the last signal that a supervisor asks for."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) & 1 << (signal.SIGUSR1 - 1))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_any_of_the_signals_asks_the_supervised_ranks_to_stop(number):
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("nohup ignores this signal, also in all processes that this one starts")
    with supervised(0) as process:
        assert process.stdout.readline() == "on\n"
        assert process.stdout.readline() == "begun\n"
        wait_for(lambda: catches_all(process))
        process.send_signal(number)
        said = f"{number.name}: the ranks are asked to stop; a second signal ends them at once\n"
        assert (process.communicate(timeout=LONG)[0], process.returncode) == (said, 75)


def test_ranks_that_are_starting_are_asked_when_they_have_started():
    with supervised(3) as process:
        assert process.stdout.readline() == "on\n"
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=LONG)[0].splitlines()
        assert said[0].startswith("SIGINT: the ranks are asked to stop as soon as they have started; a second signal")
        assert (said[1:], process.returncode) == (["begun"], 75)


def test_a_second_signal_ends_ranks_that_are_starting():
    with supervised(200) as process:
        assert process.stdout.readline() == "on\n"
        process.send_signal(signal.SIGTERM)
        assert "as soon as they have started" in process.stdout.readline()
        time.sleep(2 * supervision.ONE_SIGNAL)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 1


@pytest.mark.parametrize("mpi", MPIS)
def test_signals_are_passed_on_and_the_last_line_says_how_to_resume(start, tmp_path, brake, mpi):
    number = {"openmpi": signal.SIGINT, "mpich": signal.SIGTERM}[mpi]  # the others do the same, see above
    process = start("run", *SLOW, "--workers", 2, mpi=mpi)
    wait_for_generations(process, tmp_path, 1)
    process.popen.send_signal(number)
    done = process.wait()
    assert done.code == 75, done.err + done.out
    said = done.err.splitlines()
    assert f"evolve.run: {number.name}: the ranks are asked to stop; a second signal ends them at once" in said
    last = next(line for line in said if "stopped by " in line)
    assert " complete in out/seed-0.h5; continue with --resume: " in last
    assert last.endswith("--resume out/seed-0.h5 --workers 2")
    assert "Traceback" not in done.err
    assert not store.read(tmp_path / "out" / "seed-0.h5").complete


def test_workers_start_without_a_home(start, monkeypatch):
    """Open MPI looks for HOME, which a service of the system may lack."""
    monkeypatch.delenv("HOME")
    process = start("run", "-e", "CartPole-v1", *TINY, "-g", 1, "--workers", 2)
    assert process.wait().code == 0, process.output()


def test_a_second_signal_ends_all(start, tmp_path):
    endless = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=300", "--set", f"env.kwargs.mark='{tmp_path}/now'")
    process = start("run", *endless, *TINY, "--set", "compute.check=false", "--workers", 2)
    wait_for((tmp_path / "now").exists, process.output)
    for _ in range(2):
        process.popen.send_signal(signal.SIGTERM)
        wait_for(lambda: "asked to stop" in process.output()[1], process.output)
        time.sleep(2 * supervision.ONE_SIGNAL)
    # Ranks may stop in time, because they take signals within two seconds for one request.
    assert process.wait(60).code != 0


@pytest.mark.cold
@pytest.mark.parametrize("killed", ["command", pytest.param("mpirun", marks=pytest.mark.slow)])
def test_ranks_do_not_outlive_the_process_that_started_them(start, tmp_path, brake, killed):
    process = start("run", *SLOW, "--workers", 2)
    wait_for_generations(process, tmp_path, 1)
    family = process.family()
    assert len(family) >= 5  # this command, mpirun, three ranks
    (process.popen if killed == "command" else family[0].children()[0]).kill()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive


def test_processes_of_the_script_that_becomes_evolve_live_on(tmp_path):
    """After `exec`, the background processes of a job script are children of evolve."""
    run = " ".join(map(str, (sys.executable, "-m", "evolve", "run", *TINY, "--workers", 2, "--engine", "exact")))
    script = f"sleep 300 >&- 2>&- & echo $!; exec {run} -e CartPole-v1 --threads 1"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    monitor = psutil.Process(int(done.stdout.split()[0]))
    try:
        assert done.returncode == 0, done.stderr
        assert (monitor.name(), "ranks" in done.stderr or "worker" in done.stderr) == ("sleep", True)
    finally:
        monitor.kill()


def test_only_of_environments_that_are_known_to_be_quick_few_steps_are_few():
    for env, few in (("CartPole-v1", 12 * 2 * 50), ("BipedalWalker-v3", None), ("toys:Slow-v0", None)):
        words = ["-e", env, "-p", "6", "-r", "2", "-g", "2", "--set", "env.max_episode_steps=50"]
        assert work_of(load([*words, "--set", "held_out_episodes=0"]).configs) == Work(12, few)


def test_the_work_of_an_unknown_environment_is_unknown_before_its_module_is_imported(monkeypatch, tmp_path):
    """The process that starts the ranks need not import it: it may be slow, or initialize MPI."""
    (tmp_path / "imported_late.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    work = work_of(load(["-e", "imported_late:Env", "-p", "6", "-r", "2"]).configs)
    assert (work.episodes_at_once, work.quick_steps) == (12, None)
    assert "imported_late" not in sys.modules


def test_threads_serve_all_cores_of_exact_tasks_unless_their_number_is_given(monkeypatch):
    monkeypatch.setattr("evolve.training.experiment.share_of_cores", lambda: 4)
    words = ["-e", "CartPole-v1", "-p", "6", "-r", "2", "--engine", "exact"]
    assert work_of(load(words).configs).threads == 4
    assert work_of(load([*words, "--threads", "3"]).configs).threads == 3
    assert work_of(load([*words, "--backend", "numpy"]).configs).threads == 1


def test_auto_starts_no_rank_where_threads_serve(call, monkeypatch):
    monkeypatch.setattr(supervision, "supervise", lambda *_: pytest.fail("ranks were started"))
    monkeypatch.setattr("evolve.cluster.cores.number_of_cores", lambda: 3)
    monkeypatch.setattr("evolve.training.experiment.share_of_cores", lambda: 3)
    for name, *words in (["run", *TINY, "--engine", "exact"], ["verify", "out"], ["evaluate", "out"]):
        done = call(name, *words, "--workers", "auto")
        assert (done.code, done.err) == (0, f"evolve.{name}: one process with 3 threads on 3 of 3 cores, without MPI\n")


def test_one_worker_needs_no_mpi(call, monkeypatch, absent):
    absent("mpi4py")
    monkeypatch.setattr(hosts, "find_launchers", lambda: iter(()))
    done = call("run", *TINY, "--workers", 1)
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert "one process on " in done.err


LAUNCHED = [("OMPI_COMM_WORLD", "1"), ("OMPI_COMM_WORLD", "4"), ("PMI", "2"), ("SLURM_STEP", "3")]


@pytest.mark.parametrize(("launcher", "ranks"), LAUNCHED)
def test_under_a_launcher_they_are_refused(call, launcher, ranks):
    size = "SLURM_STEP_NUM_TASKS" if launcher == "SLURM_STEP" else f"{launcher}_SIZE"
    who = "srun" if launcher == "SLURM_STEP" else "mpirun"
    said = f"--workers: expected a command that no launcher has started, got one under {who} -n {ranks}."
    call("run", *TINY, "--workers", 2, **{size: ranks}).refused(said)


def test_under_a_launcher_one_rank_says_so(command):
    done = command("run", *TINY, "--workers", 2, ranks=2)
    assert done.code == 2
    assert (done.out + done.err).count("evolve.run:") == 1


def test_without_mpi4py_or_mpirun_they_are_refused(call, absent, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(hosts, "find_launchers", lambda: iter(()))
        done = call("run", *TINY, "--workers", 2)
        assert (done.code, done.err.count("\n")) == (2, 2)
        assert f"mpirun: expected an MPI launcher, got none. Install it: pip install -e '{ROOT}[mpi]'." in done.err
        under_slurm = call("run", *TINY, "--workers", 2, SLURM_JOB_ID="7")
        assert "srun --overcommit -n 3 python -m evolve.run" in under_slurm.err
    absent("mpi4py")
    done = call("run", *TINY, "--workers", 2)
    assert (done.code, done.err.count("\n")) == (2, 2)
    assert "--workers: expected mpi4py, got ModuleNotFoundError" in done.err
    assert f"pip install -e '{ROOT}[mpi]'" in done.err


def test_the_launcher_is_that_of_the_library(tmp_path, monkeypatch):
    bin_, lib = tmp_path / "other" / "bin", tmp_path / "other" / "lib"
    bin_.mkdir(parents=True)
    lib.mkdir()
    (bin_ / "mpirun").write_text("#!/bin/sh\necho HYDRA build details\n")
    (bin_ / "mpirun").chmod(0o755)
    monkeypatch.setenv("MPI4PY_LIBMPI", str(lib / "libmpi.so.12"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert mpirun_words(3) == [str(bin_ / "mpirun"), "-n", "3"]
    monkeypatch.setenv("SLURM_JOB_ID", "7")  # with more nodes than this machine
    assert mpirun_words(3)[1:] == ["-launcher", "fork", "-hosts", "localhost", "-n", "3"]
    (bin_ / "mpirun").write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1'\n")
    assert mpirun_words(3)[-4:] == ["--host", "localhost:3", "-n", "3"]
    monkeypatch.delenv("SLURM_JOB_ID")
    assert mpirun_words(3) == [str(bin_ / "mpirun"), "--oversubscribe", "--bind-to", "none", "-n", "3"]
    # Intel MPI's mpirun passes on no signals, and starts the launcher that the PATH has.
    (bin_ / "mpirun").write_text('#!/bin/sh\nmpiexec.hydra "$@"\n')
    (bin_ / "mpiexec.hydra").write_text("#!/bin/sh\necho 'Intel(R) MPI Library for Linux* OS, Version 2021.15'\n")
    (bin_ / "mpiexec.hydra").chmod(0o755)
    assert mpirun_words(3) == [str(bin_ / "mpiexec.hydra"), "-genv", "I_MPI_PIN", "0", "-n", "3"]
    assert Launcher.find().version == "Intel MPI 2021.15"
    monkeypatch.setenv("I_MPI_PIN_DOMAIN", "socket")
    assert mpirun_words(3)[1:] == ["-n", "3"]
    (bin_ / "mpirun").write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1'\n")
    monkeypatch.delenv("MPI4PY_LIBMPI")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(bin_))
    assert mpirun_words(2)[0] == str(bin_ / "mpirun")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="an MPI launcher"):
        mpirun_words(2)


@pytest.mark.parametrize(("user", "allowed"), [(0, True), (1000, False)])
def test_root_is_allowed(monkeypatch, user, allowed):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    for name in NOT_ROOT:
        monkeypatch.delenv(name, raising=False)
    assert ({name: mpirun_environment().get(name) for name in NOT_ROOT} == dict.fromkeys(NOT_ROOT, "1")) == allowed


def test_without_mpi4py_in_a_process_too(command):
    done = command("run", *TINY, "--workers", 2, **without("mpi4py"))
    assert (done.code, done.err.count("\n")) == (2, 2)


def test_help_and_settings_start_no_ranks(call, monkeypatch):
    monkeypatch.setattr(supervision, "supervise", lambda *_: pytest.fail("ranks were started"))
    for answered in ("--help", "--settings", "--dry-run"):
        call("run", *TINY, "--workers", 2, answered).ok()


def test_a_slip_in_the_number_of_workers_is_refused(call, command):
    call("run", *TINY, "--workers", 1_000_000).refused(
        "--workers: expected at most ", "on this machine, got 1,000,000. More workers than cores are no faster"
    )
    command("run", "--workers", "9" * 5000).refused("--workers: expected a number, at least 1, or auto, got 999")
