"""Code that hangs in Python is interrupted; code that answers in time, or was only suspended, is not."""

import faulthandler
import io
import itertools
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import deque

import numpy as np
import psutil
import pytest
from conftest import LONG, wait_for
from interrupts import interrupted_at_each_line
from wire import Wire

import evolve
from evolve.cluster import Coordinator, Transport
from evolve.cluster.messages import Chunk, Setup
from evolve.cluster.watchdog import Watchdog, interrupt_soon, kill, patience
from evolve.cluster.worker import Worker
from evolve.config import Config, parse
from evolve.errors import EpisodeTimeout, Interrupted
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, generation_keys
from evolve.strategies import initial_genomes
from evolve.training import StrategyReplica, make_rollout, prepare


def test_a_hang_in_python_is_interrupted():
    begin = time.monotonic()
    with pytest.raises(EpisodeTimeout, match=r"no answer for 0\.2 s"), Watchdog(0.2, fatal=False):
        time.sleep(LONG)
    assert 0.2 < time.monotonic() - begin < LONG


def test_code_that_pats_is_not_interrupted():
    with Watchdog(0.5, fatal=False) as watchdog:
        for _ in range(40):
            time.sleep(0.05)
            watchdog.pat()


def test_nothing_is_watched_at_rest():
    watchdog = Watchdog(0.1, fatal=False)
    watchdog.pat()
    watchdog.disarm()
    time.sleep(1.5)


def test_a_late_first_alarm_is_forgiven():
    """A process that was suspended gets the alarm as soon as it goes on, and answers at once."""
    with Watchdog(0.2, fatal=False) as watchdog:
        time.sleep(0.3)  # the alarm has rung once
        watchdog.pat()
        time.sleep(0.15)
        watchdog.pat()


@pytest.fixture
def alarms():
    """An alarm clock of the process's own: how often it has rung."""
    rung = []
    handler = signal.signal(signal.SIGALRM, lambda *_: rung.append(time.monotonic()))
    timer = signal.setitimer(signal.ITIMER_REAL, 0)
    yield rung
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, *timer)


def test_the_process_has_its_handler_of_alarms_back(alarms):
    ours = signal.getsignal(signal.SIGALRM)
    watchdog = Watchdog(5.0, fatal=False)
    for _ in range(2):
        for _ in range(2):
            watchdog.pat()
            assert signal.getsignal(signal.SIGALRM) is not ours
            time.sleep(0.15)  # a pat that follows sooner has no effect
        watchdog.disarm()
        watchdog.disarm()
        assert signal.getsignal(signal.SIGALRM) is ours
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    with pytest.raises(EpisodeTimeout), Watchdog(0.1, fatal=False):
        time.sleep(LONG)
    assert signal.getsignal(signal.SIGALRM) is ours
    assert alarms == []


def test_one_watchdog_within_another_gives_back_to_it(alarms):
    with Watchdog(5.0, fatal=False):
        outer = signal.getsignal(signal.SIGALRM)
        with Watchdog(2.0, fatal=False):
            assert signal.getsignal(signal.SIGALRM) != outer
        assert signal.getsignal(signal.SIGALRM) == outer
        assert 3.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 5.0


def test_one_watchdog_within_another_gives_the_traceback_back_to_it(monkeypatch):
    planned = []
    monkeypatch.setattr("faulthandler.dump_traceback_later", lambda seconds, **_: planned.append(seconds))
    monkeypatch.setattr("faulthandler.cancel_dump_traceback_later", lambda: planned.append(None))
    with Watchdog(60.0, fatal=False):
        with Watchdog(30.0, fatal=False):
            pass
        assert planned[-1] == patience(60.0)
    assert planned[-1] is None


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
@pytest.mark.usefixtures("alarms")
def test_no_handler_at_all_comes_back_too(handler):
    signal.signal(signal.SIGALRM, handler)
    with Watchdog(5.0, fatal=False):
        pass
    assert signal.getsignal(signal.SIGALRM) == handler


def test_an_alarm_that_was_set_before_still_rings(alarms):
    """When it is due, at the next `ring` or after the watch."""
    begin = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.4)
    with Watchdog(60.0, fatal=False):
        pass
    assert signal.getitimer(signal.ITIMER_REAL)[0] <= 0.4
    wait_for(lambda: alarms)
    assert alarms[0] - begin > 0.3  # the two clocks need not agree to the millisecond
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.3)
    with Watchdog(60.0, fatal=False) as watchdog:
        for _ in range(3):
            time.sleep(0.2)
            watchdog.pat()
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
        assert len(alarms) == 1
        watchdog.deliver_alarm()
        watchdog.deliver_alarm()
        assert len(alarms) == 2
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 0.31
    assert signal.getitimer(signal.ITIMER_REAL)[1] == pytest.approx(0.3)


def test_the_handler_of_an_alarm_that_was_set_before_may_raise(alarms, tmp_path):
    """As pytest-timeout's does. It ends training, and not only an episode, also if that may fail."""

    def end(_, frame):
        # An exception while the file is written counts as a failure to write, so put the alarm off.
        if any("/evolve/store/" in each.f_code.co_filename for each, _ in traceback.walk_stack(frame)):
            signal.setitimer(signal.ITIMER_REAL, 0.01)
        else:
            raise TimeoutError("too long")

    for env in ({"id": "CartPole-v1", "on_failure": "worst"}, {"id": "CartPole-v1", "engine": "exact"}):
        run = {"env": env, "network": "mlp", "population": 16, "output": tmp_path / env["id"]}
        evolve.train(**run, generations=1)  # loads the modules, so that the alarm rings in the training
        signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(TimeoutError, match="too long"):
            evolve.train(**run, generations=1_000_000, resume=True)
        assert signal.getsignal(signal.SIGALRM) is end
        shutil.rmtree(tmp_path / env["id"])
    assert alarms == []


def test_a_disarmed_watchdog_delivers_no_alarm(alarms):
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with Watchdog(60.0, fatal=False) as watchdog:
        time.sleep(0.2)
    wait_for(lambda: alarms)
    watchdog.deliver_alarm()
    assert len(alarms) == 1


@pytest.mark.usefixtures("alarms")
def test_the_handler_of_an_alarm_may_raise_while_a_watchdog_takes_it_over(monkeypatch):
    def end(*_):
        raise TimeoutError("too long")

    set_handler = signal.signal
    set_handler(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 60.0, 30.0)

    def ring_first(number, handler):
        if number == signal.SIGALRM and handler is not end:
            signal.raise_signal(signal.SIGALRM)
        return set_handler(number, handler)

    with monkeypatch.context() as patch:
        patch.setattr(signal, "signal", ring_first)
        with pytest.raises(TimeoutError, match="too long"), Watchdog(5.0, fatal=False):
            pass
    assert signal.getsignal(signal.SIGALRM) is end
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 50
    assert signal.getitimer(signal.ITIMER_REAL)[1] == pytest.approx(30.0)


def test_the_handler_of_an_alarm_may_set_the_next_one(alarms):
    def beat(*_):
        alarms.append(0)
        signal.setitimer(signal.ITIMER_REAL, 0.1)

    signal.signal(signal.SIGALRM, beat)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with Watchdog(60.0, fatal=False) as watchdog:
        for _ in range(3):
            time.sleep(0.11)
            watchdog.deliver_alarm()
        assert len(alarms) == 3
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 0.1


def test_it_works_where_stderr_is_no_file(monkeypatch):
    """As in a notebook."""
    for stream in ("stderr", "__stderr__"):
        monkeypatch.setattr(sys, stream, io.StringIO())
        with pytest.raises(EpisodeTimeout), Watchdog(0.1, fatal=True):
            time.sleep(LONG)
    monkeypatch.setattr(sys, "__stderr__", None)
    with Watchdog(0.1, fatal=True):
        pass


def test_a_hang_in_c_ends_a_process_that_is_alone_with_a_traceback():
    code = (
        "import sys; sys.path.insert(0, 'tests/helpers'); import toys; from evolve.cluster import watchdog\n"
        "watchdog.patience = lambda limit: 0.5\n"
        "with watchdog.Watchdog(0.2, fatal=True): toys._hang_in_c()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 1
    assert "_hang_in_c" in done.stderr


def test_code_that_catches_every_exception_ends_a_process_that_is_alone():
    code = (
        "import time; from evolve.cluster import watchdog\n"
        "watchdog.patience = lambda limit: 1.5\n"
        "def swallow():\n"
        "    while True:\n"
        "        try:\n"
        "            time.sleep(0.1)\n"
        "        except BaseException:\n"
        "            print('caught', flush=True)\n"
        "with watchdog.Watchdog(0.1, fatal=True): swallow()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("caught")
    assert "in swallow" in done.stderr


@pytest.mark.usefixtures("alarms")
def test_each_pat_puts_off_an_interrupt(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr("evolve.cluster.watchdog.SOON", 30.0)
    with Watchdog(60.0, fatal=False) as watchdog:
        interrupt_soon()
        signal.setitimer(signal.ITIMER_REAL, 5.0)  # most of the time has passed
        clock[0] += 25
        watchdog.pat()
        assert 20 < signal.getitimer(signal.ITIMER_REAL)[0] <= 30
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGALRM)


def test_a_suspended_process_goes_on():
    """It is suspended for longer than its patience, after the first of two alarms, and prints no traceback."""
    code = (
        "import os, signal; from evolve.cluster import watchdog\n"
        "watchdog.patience = lambda limit: 2.0\n"
        "with watchdog.Watchdog(1.0, fatal=True):\n"
        "    signal.raise_signal(signal.SIGALRM)\n"
        "    os.kill(os.getpid(), signal.SIGTSTP)\n"
        "    print('well')"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True) as process:
        wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        time.sleep(2.5)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=LONG)
    assert (process.returncode, out, err) == (0, "well\n", "")


def test_a_process_that_stood_still_explains_the_traceback(monkeypatch, capfd):
    """Without it, the traceback would be hard to understand."""
    monkeypatch.setattr("evolve.cluster.watchdog.patience", lambda _: 0.3)
    with Watchdog(60.0, fatal=False) as watchdog:
        watchdog.pat()
        assert capfd.readouterr().err == ""
        time.sleep(1.2)
        watchdog.pat()
    first, *_, last = capfd.readouterr().err.splitlines()
    assert first.startswith("Timeout")
    assert last.startswith("evolve: this process made no progress for 1")


def test_ctrl_c_at_any_moment_leaves_no_alarm_behind():
    """Otherwise the alarm would end code that comes later, such as the next cell of a notebook, or its kernel."""

    def handlers():
        return signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGTSTP)

    def watch():
        with Watchdog(0.1, fatal=True):
            pass

    earlier, places = handlers(), []
    for place in interrupted_at_each_line(watch, "cluster/watchdog.py"):
        places.append(place)
        # Nothing can disarm the watchdog before the first line of `__exit__`. Then its first alarm disarms it.
        wait_for(lambda: handlers() == earlier)
    assert len(places) > 20
    with pytest.raises(EpisodeTimeout), Watchdog(0.1, fatal=False):
        time.sleep(5.0)


@pytest.mark.usefixtures("alarms")
def test_an_earlier_handler_of_suspension_stays():
    def ours(*_):
        pass

    for handler in (signal.SIG_DFL, signal.SIG_IGN, ours):
        before = signal.signal(signal.SIGTSTP, handler)
        try:
            with Watchdog(5.0, fatal=False):
                kept = signal.getsignal(signal.SIGTSTP)
            assert (kept != handler) == (handler == signal.SIG_DFL)
            assert signal.getsignal(signal.SIGTSTP) == handler
        finally:
            signal.signal(signal.SIGTSTP, before)


def test_patience_is_longer_than_an_episode():
    assert patience(10.0) > 10.0


def test_only_ranks_of_the_same_job_are_killed():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        kill(other.pid)
        time.sleep(0.2)
        assert other.poll() is None
        other.communicate(b"\n")
    kill(2**22 + 1)  # no process has this number


def test_code_of_the_project_is_not_interrupted(monkeypatch):
    armed = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: armed.append(seconds))
    with Watchdog(60.0, fatal=False) as watchdog:
        with watchdog.paused():
            for _ in range(3):
                signal.raise_signal(signal.SIGALRM)
        assert armed == 4 * [patience(60.0)]  # nor does it pass for a hang in C
        signal.raise_signal(signal.SIGALRM)
        with pytest.raises(EpisodeTimeout):
            signal.raise_signal(signal.SIGALRM)


@pytest.mark.usefixtures("alarms")
def test_an_episode_has_its_own_time_after_a_pause(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with Watchdog(60.0, fatal=False) as watchdog:
        signal.raise_signal(signal.SIGALRM)
        signal.setitimer(signal.ITIMER_REAL, 5.0)
        with watchdog.paused():
            clock[0] += 50
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 55
        signal.raise_signal(signal.SIGALRM)  # the first one again
    with watchdog.paused():
        pass
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


class Alarming:
    """Makes genomes while the alarm rings twice, as it would if they took long."""

    def __init__(self, genomes):
        self._genomes = genomes
        self.num_weights = genomes.num_weights

    def __len__(self):
        return len(self._genomes)

    def take(self, candidates):
        for _ in range(2):
            signal.raise_signal(signal.SIGALRM)
        return self._genomes.take(candidates)


@pytest.fixture
def scene():
    """An experiment, and a batch of episodes whose genomes take long to make."""
    made = prepare(parse(Config, {"env": {"max_episode_steps": 3}, "network": {"name": "mlp", "hidden": [2]}}))
    genomes = initial_genomes(made.network, 0, 0, range(4))
    return made, EpisodeBatch.of(1, Purpose.EPISODE, Alarming(genomes), generation_keys(0, 4), range(1))


@pytest.mark.usefixtures("alarms")
def test_each_of_several_hanging_episodes_has_its_own_time(monkeypatch):
    """The timer of the traceback begins anew for each; only one episode that goes on and on ends the process."""
    armed = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: armed.append(seconds))
    env = {"id": "toys:Faulty-v0", "kwargs": {"how": "alarm", "share": 1.0}, "on_failure": "worst"}
    table = {"env": env | {"max_episode_seconds": 60.0}, "network": {"name": "mlp", "hidden": [2]}}
    made = prepare(parse(Config, table | {"compute": {"check": False, "slots": 12}}))
    genomes = initial_genomes(made.network, 0, 0, range(12))
    batch = EpisodeBatch.of(1, Purpose.EPISODE, genomes, generation_keys(0, 12), range(1))
    seconds = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    armed.clear()
    results = Coordinator(Transport(), make_rollout).evaluate(made.rollout_spec, batch)
    assert np.isnan(results.returns).all()
    assert len(armed) > 24  # at the beginning, at each alarm, and after each failure
    assert set(armed) == {patience(60.0)}


@pytest.mark.usefixtures("alarms")
def test_genomes_may_take_long_to_make_in_a_single_process(scene):
    made, batch = scene
    assert Coordinator(Transport(), make_rollout).evaluate(made.rollout_spec, batch).played.sum() == 4


def test_genomes_may_take_long_to_make_at_a_worker(scene, alarms):
    made, batch = scene
    worker = Worker(Wire(0, [deque()]), make_rollout, StrategyReplica())
    worker.handle(Setup(made.rollout_spec.experiment))
    worker.keep_alive()
    worker.handle(Chunk(1, batch))  # it is not armed yet: the test's own clock rings
    rung = len(alarms)
    worker.keep_alive()
    worker.handle(Chunk(1, batch))
    assert not worker.idle
    while not worker.idle:
        worker.tick()
    worker.disarm()
    assert len(alarms) == rung == 2
