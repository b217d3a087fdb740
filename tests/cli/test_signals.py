"""Being asked to stop, once and twice."""

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import wait_for

from evolve import store
from evolve.cluster.supervision import EXIT_CODE

TWICE = """
import os, signal
from evolve.cli.app import StopFlag

stop = StopFlag()
stop.install()
first, second = {first}, {second}
signal.pthread_sigmask(signal.SIG_BLOCK, (first, second))
os.kill(os.getpid(), first)
{between}
os.kill(os.getpid(), second)
signal.pthread_sigmask(signal.SIG_UNBLOCK, (first, second))
print("still here", stop.read_signal())
"""
UNBLOCK = "signal.pthread_sigmask(signal.SIG_UNBLOCK, (first,)); assert stop.reason() == signal.Signals(first).name"


READ = "signal.pthread_sigmask(signal.SIG_UNBLOCK, (first,)); assert stop.reason()"


def run(first: int, second: int, between: str = "", **more: str) -> tuple[int, str, str]:
    code, env = TWICE.format(first=int(first), second=int(second), between=between), os.environ | more
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, env=env
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("between", ["", READ])
@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGTERM, signal.SIGUSR1), (signal.SIGUSR1, signal.SIGTERM), (signal.SIGTERM, signal.SIGTERM)],
)
def test_a_rank_survives_the_two_signals_of_one_request(first, second, between, tmp_path):
    """SLURM signals all processes, and the supervisor its ranks. The second signal ended rank 0 before its flush."""
    code, out, err = run(first, second, between, **{EXIT_CODE: str(tmp_path / "code")})
    assert (code, err) == (0, "")
    assert out.startswith("still here ")


def test_a_second_request_ends_a_rank(tmp_path):
    late = f"{READ}; import time; time.sleep(2.1); stop.reason()"
    code, out, _ = run(signal.SIGUSR1, signal.SIGTERM, late, **{EXIT_CODE: str(tmp_path / "code")})
    assert (code, out) == (-signal.SIGTERM, "")


@pytest.mark.parametrize("between", ["", UNBLOCK])
def test_a_second_signal_ends_the_process_without_a_word(between):
    """Also one that comes with the first, before Python has handled that: which Python complained of once."""
    assert run(signal.SIGUSR1, signal.SIGTERM, between) == (-signal.SIGTERM, "", "")


def test_a_second_interrupt_is_a_keyboard_interrupt():
    code, out, err = run(signal.SIGTERM, signal.SIGINT, UNBLOCK)
    assert (code, out) == (-signal.SIGINT, "")
    assert err.endswith("KeyboardInterrupt\n")


HANGING = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=300", "--set", "env.kwargs.mark=mark",
           "-p", 4, "-r", 1, "-d", 2, "-g", 99999, "--set", "held_out_episodes=0", "-o", "out")  # fmt: skip


def interrupted(process):
    """Interrupt a command once; return its end."""
    process.popen.send_signal(signal.SIGINT)
    return process.wait(100)  # a step takes 300 seconds


@pytest.mark.parametrize("more", [(), ("--set", "env.kwargs.seconds=0", "--set", "env.kwargs.closing=300")])
def test_an_interrupt_ends_a_trial_that_hangs(start, tmp_path, more):
    """Also while it closes its environments, of which there are two."""
    process = start("run", *HANGING, *more)
    wait_for((tmp_path / "mark").exists, process.output)
    done = interrupted(process)
    assert (done.code, done.err) == (75, "evolve.run: stopped by SIGINT, as an environment did not answer\n")
    assert not (tmp_path / "out").exists()


def test_an_interrupt_ends_a_run_that_hangs(start, tmp_path, brake):
    brake.unlink()
    process = start("run", *HANGING, "--set", f"env.kwargs.brake={brake}")
    path = store.path_of(tmp_path / "out", 0)
    wait_for(lambda: path.exists() and store.read_progress(path)[0] > 1, process.output)
    brake.touch()
    wait_for(lambda: time.time() - (tmp_path / "mark").stat().st_mtime > 1, process.output)  # every step makes it
    done = interrupted(process)
    assert done.code == 75
    assert "stopped by SIGINT: " in done.err
    assert "; continue with --resume: " in done.err
    assert "Traceback" not in done.err


ROS = """
import signal
from gymnasium.envs.classic_control import CartPoleEnv

class Node(CartPoleEnv):
    def reset(self, **words):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        return super().reset(**words)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_environment_that_takes_the_signals_does_not_keep_them(start, tmp_path, number):
    (tmp_path / "ros.py").write_text(ROS)
    path = store.path_of(tmp_path / "out", 0)
    words = ("-e", "ros:Node", "-p", 8, "-r", 2, "-d", 2, "-g", 99999, "--set", "held_out_episodes=0", "-o", "out")
    process = start("run", *words, "--set", "env.max_episode_steps=20")
    wait_for(lambda: path.exists() and store.read_progress(path)[0] > 1, process.output)
    process.popen.send_signal(number)
    done = process.wait(60)
    assert done.code == 75, done.err
    assert done.err.count(f"has replaced the handler of {number.name}") == 1
    assert f"stopped by {number.name}" in done.err


def test_an_interrupted_evaluation_says_so(start, call, tmp_path):
    mark = tmp_path / "mark"
    slow = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.01", "--set", "env.kwargs.mark=mark")
    call("run", *slow, "-p", 2, "-r", 1, "-d", 2, "-g", 1, "--set", "held_out_episodes=0", "-o", "out").ok()
    mark.unlink()
    process = start("evaluate", store.path_of(tmp_path / "out", 0), "--episodes", 100_000)
    wait_for(mark.exists, process.output)
    done = interrupted(process)
    assert (done.code, done.err) == (75, "evolve.evaluate: stopped by SIGINT\n")
