"""Being asked to stop, once and twice."""

import signal
import subprocess
import sys

import pytest

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
print("still here", stop.signal)
"""
UNBLOCK = "signal.pthread_sigmask(signal.SIG_UNBLOCK, (first,)); assert stop.reason() == signal.Signals(first).name"


def run(first: int, second: int, between: str = "") -> tuple[int, str, str]:
    code = TWICE.format(first=int(first), second=int(second), between=between)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("between", ["", UNBLOCK])
def test_a_second_signal_ends_the_process_without_a_word(between):
    """Also one that comes with the first, before Python has handled that: which Python complained of once."""
    assert run(signal.SIGUSR1, signal.SIGTERM, between) == (-signal.SIGTERM, "", "")


def test_a_second_interrupt_is_a_keyboard_interrupt():
    code, out, err = run(signal.SIGTERM, signal.SIGINT, UNBLOCK)
    assert (code, out) == (-signal.SIGINT, "")
    assert err.endswith("KeyboardInterrupt\n")
