"""What hangs in Python is interrupted; what answers in time, or was only suspended, is not."""

import signal
import subprocess
import sys
import time

import pytest

from evolve.cluster.watchdog import Watchdog, kill, patience
from evolve.errors import EpisodeTimeout


@pytest.fixture(autouse=True)
def quiet():
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


def test_a_hang_in_python_is_interrupted():
    begin = time.monotonic()
    with pytest.raises(EpisodeTimeout, match=r"no answer for 0\.2 s"), Watchdog(0.2, fatal=False):
        time.sleep(10)
    assert 0.2 < time.monotonic() - begin < 3


def test_who_answers_is_left_alone():
    with Watchdog(0.3, fatal=False) as watchdog:
        for _ in range(30):
            time.sleep(0.05)
            watchdog.pat()


def test_nothing_is_watched_at_rest():
    watchdog = Watchdog(0.1, fatal=False)
    watchdog.pat()
    watchdog.rest()
    time.sleep(1.5)


def test_a_late_first_alarm_is_forgiven():
    """A process that was suspended gets the alarm as soon as it goes on, and answers at once."""
    with Watchdog(0.2, fatal=False) as watchdog:
        time.sleep(0.3)  # the alarm has rung once
        watchdog.pat()
        time.sleep(0.15)
        watchdog.pat()


def test_a_hang_in_c_ends_a_world_of_one_with_a_traceback():
    code = (
        "import sys; sys.path.insert(0, 'tests'); import toys; from evolve.cluster import watchdog\n"
        "watchdog.patience = lambda limit: 0.5\n"
        "with watchdog.Watchdog(0.2, fatal=True): toys._hang_in_c()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert "_hang_in_c" in done.stderr


def test_patience_is_longer_than_an_episode():
    assert patience(10.0) > 10.0


def test_only_ranks_of_the_same_job_are_killed():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        kill(other.pid)
        time.sleep(0.2)
        assert other.poll() is None
        other.communicate(b"\n")
    kill(2**22 + 1)  # nobody
