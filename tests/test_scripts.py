"""The scripts that keep a run going, with small programs in place of the cluster's commands."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import warm
from conftest import LONG, ROOT, environment, wait_for

from evolve import store

RUN = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.006", "--set", "env.kwargs.brake=brake", "-p", 8, "-r", 2,
       "-g", 20, "-d", 2, "--set", "held_out_episodes=0", "-o", "out")  # fmt: skip


@pytest.fixture
def commands(tmp_path):
    """Return an environment in which a cluster's commands are small programs that log their calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    scripts = {
        "python": f'exec {warm.words([sys.executable], environment())[0]} "$@"',
        "srun": 'echo "$@" >> srun.log; shift; exec "$@"',
        "scontrol": 'echo "$@" >> scontrol.log',
    }
    for name, body in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return environment(PATH=f"{folder}{os.pathsep}{os.environ['PATH']}", SLURM_JOB_ID="42")


@pytest.fixture
def begin(tmp_path):
    """Start a script; its output goes to the file `log`."""
    started = []
    log = open(tmp_path / "log", "w")  # noqa: SIM115

    def start(script, env, *arguments):
        words = ["bash", str(ROOT / "hostfiles" / script), *map(str, arguments)]
        started.append(subprocess.Popen(words, env=env, cwd=tmp_path, stdout=log, stderr=log))
        return started[-1]

    yield start
    log.close()
    for process in started:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        process.wait()


def wait_for_generations(number, tmp_path, seed):
    """Wait until that many generations are complete."""
    path = store.path_of(tmp_path / "out", seed)
    wait_for(lambda: path.exists() and store.read_progress(path)[0] >= number, (tmp_path / "log").read_text)


def test_until_complete_is_evolve_launch(commands, begin, tmp_path):
    (tmp_path / "bin" / "evolve").write_text('#!/bin/sh\necho "$@" > evolve.log\nexit 75\n')
    (tmp_path / "bin" / "evolve").chmod(0o755)
    assert begin("until-complete.sh", commands, "-n", 3, *RUN).wait(LONG) == 75
    assert (tmp_path / "evolve.log").read_text().split() == ["launch", "-n", "3", *map(str, RUN)]


@pytest.mark.parametrize("array", [False, True])
def test_the_slurm_job_requeues_itself_until_it_is_complete(commands, begin, tmp_path, brake, array):
    """SLURM signals only the script when time is short; a task of an array requeues itself."""
    seed = 3 if array else 0
    env = commands | ({"SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "3"} if array else {})
    first = begin("slurm.sh", env, *RUN)
    wait_for_generations(2, tmp_path, seed)
    first.send_signal(signal.SIGUSR1)
    assert first.wait(LONG) == 75, (tmp_path / "log").read_text()
    brake.unlink()
    assert (tmp_path / "scontrol.log").read_text() == f"requeue {'40_3' if array else '42'}\n"
    assert "--mpi=pmix" in (tmp_path / "srun.log").read_text()
    second = begin("slurm.sh", env | {"SLURM_RESTART_COUNT": "1"}, *RUN)
    assert second.wait(LONG) == 0, (tmp_path / "log").read_text()
    assert store.read(store.path_of(tmp_path / "out", seed)).complete
    assert (tmp_path / "scontrol.log").read_text().count("requeue") == 1


def test_the_slurm_job_does_not_repeat_a_failure(commands, begin, tmp_path):
    assert begin("slurm.sh", commands, "-e", "toys:Broken-v0", *RUN[6:]).wait(LONG) == 1
    assert not Path(tmp_path / "scontrol.log").exists()


def test_a_slurm_job_whose_ranks_cannot_start_fails_after_three_attempts(commands, begin, tmp_path):
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\nexit 213\n")
    assert begin("slurm.sh", commands, *RUN).wait(LONG) == 213
    assert "3 attempts" in (tmp_path / "log").read_text()
    assert not Path(tmp_path / "scontrol.log").exists()
