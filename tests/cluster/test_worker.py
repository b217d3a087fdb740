"""A worker, message by message: it plays, sends heartbeats, and leaves its process as it was."""

import importlib
import itertools
import json
import math
import signal
import sys
import time
from contextlib import nullcontext
from types import ModuleType
from unittest.mock import Mock

import numpy as np
import pytest
import toys
from some_results import checked

from evolve.cluster import KeptRollouts, messages, serve, worker
from evolve.cluster.messages import (
    Chunk,
    ChunkResults,
    Dismiss,
    Ended,
    FailedEpisode,
    Heartbeat,
    Kill,
    Setup,
    StopRequest,
    WorkerError,
)
from evolve.cluster.transport import Transport
from evolve.config import Config, parse
from evolve.errors import RunError
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, generation_keys
from evolve.training import StrategyReplica, make_rollout, prepare

P = 4


class Script(Transport):
    """A transport that delivers a list of messages, each when its condition holds, and keeps the messages sent."""

    def __init__(self, *steps):
        super().__init__()
        self.rank = 1
        self.hosts = ["here", "here"]
        self.steps = list(steps)
        self.sent = []

    def probe(self):
        condition, message = self.steps[0]
        if not condition(self):
            return None
        del self.steps[0]
        return 0, messages.encode(message)

    def send(self, rank, buffer):
        assert rank == 0
        self.sent.append(messages.decode(buffer))

    def of(self, kind):
        return [message for message in self.sent if isinstance(message, kind)]


def now(_):
    return True


def done(count):
    return lambda script: sum(len(m.results) for m in script.of(ChunkResults)) >= count


LEAVE = Dismiss(np.frombuffer(b"bye", np.uint8))


def experiment(env, **compute):
    table = {"population": P, "episodes": 1, "network": {"name": "hebbian-dag", "hidden": [2]}}
    return prepare(parse(Config, table | {"env": env, "compute": {"slots": P, "check": False} | compute}))


def chunk(made, serial, episodes=range(1)):
    strategy = made.strategy(1)
    genomes = strategy.ask(strategy.start(), 0)
    return Chunk(serial, EpisodeBatch.of(1, Purpose.EPISODE, genomes, generation_keys(0, P), episodes))


CART = {"id": "CartPole-v1", "max_episode_steps": 20}


def work(script, signalled=lambda: None, make=make_rollout):
    def release():
        assert not script.of(Dismiss)  # the environments are closed before the worker confirms that it leaves
        script.released = True

    assert serve(script, make, signalled, StrategyReplica(), release) == b"bye"
    assert script.steps == []
    assert script.released
    return script


def test_it_plays_its_episodes_and_leaves_when_it_is_dismissed():
    made = experiment(CART)
    script = work(
        Script((now, Setup(made.config.to_toml())), (now, chunk(made, 5)), (now, chunk(made, 5, range(1, 3))),
               (done(3 * P), LEAVE))
    )  # fmt: skip
    parcels = script.of(ChunkResults)
    assert {parcel.serial for parcel in parcels} == {5}
    keys = [key for p in parcels for key in zip(p.results.genomes.tolist(), p.results.episodes.tolist(), strict=True)]
    assert sorted(keys) == [(p, e) for p in range(P) for e in range(3)]
    for parcel in parcels:
        checked(parcel.results)
        assert len(set(parcel.results.traced.tolist())) == len(parcel.results.traced)
        assert parcel.busy_seconds >= parcel.environment_seconds >= 0
    assert isinstance(script.sent[-1], Dismiss)


@pytest.mark.parametrize(("longest", "sizes"), [(math.inf, [8, 4, 2, 1, 1]), (0.0, [1] * 16)])
def test_parcels_shrink_with_the_work_in_hand(longest, sizes, monkeypatch):
    """Half of the work at a time, so that the coordinator can send more in time; at once if episodes take long."""
    monkeypatch.setattr(worker, "LONGEST_HELD", longest)
    monkeypatch.setattr(worker, "SHORTEST_HELD", 0.0)
    made = experiment(CART, slots=1)
    script = Script((now, Setup(made.config.to_toml())), (now, chunk(made, 5, range(4))), (done(16), LEAVE))
    assert [len(parcel.results) for parcel in work(script).of(ChunkResults)] == sizes


def test_heartbeats_do_not_hold_results_back(monkeypatch):
    """Episodes of 0.1 s, one after another, and a heartbeat 0.1 s after each message."""
    monkeypatch.setattr(worker, "LONGEST_HELD", 0.25)
    made = experiment({"id": "toys:Slow-v0", "kwargs": {"seconds": 0.01}, "max_episode_seconds": 0.4}, slots=1)
    script = Script((now, Setup(made.config.to_toml())), (now, chunk(made, 5, range(4))), (done(16), LEAVE))
    assert len(work(script).of(ChunkResults)) > 5


def test_parcels_that_would_follow_soon_wait_for_the_last(monkeypatch):
    monkeypatch.setattr(worker, "SHORTEST_HELD", math.inf)
    made = experiment(CART, slots=1)
    script = Script((now, Setup(made.config.to_toml())), (now, chunk(made, 5, range(4))), (done(16), LEAVE))
    assert [len(parcel.results) for parcel in work(script).of(ChunkResults)] == [16]


def test_parcels_do_not_wait_for_the_end_of_another_episode(monkeypatch):
    """The first four episodes end together after 0.2 s, and the next four 0.2 s later."""
    monkeypatch.setattr(worker, "SHORTEST_HELD", 0.3)
    made = experiment({"id": "toys:Slow-v0", "kwargs": {"seconds": 0.005}})
    script = Script((now, Setup(made.config.to_toml())), (now, chunk(made, 5, range(2))), (done(8), LEAVE))
    assert [len(parcel.results) for parcel in work(script).of(ChunkResults)] == [4, 4]


def test_a_worker_looks_for_messages_when_one_is_due(monkeypatch):
    """After a message and after results; in between it plays, since a look may yield the core to other ranks."""
    monkeypatch.setattr(worker, "PROBE_EVERY", 0.0)
    monkeypatch.setattr(worker, "PROBE_RARELY", 1e6)
    made = experiment({"id": "toys:Slow-v0", "kwargs": {"seconds": 0.001}}, slots=1)
    vain = []  # the parcels sent before each look without a message

    class Watched(Script):
        def probe(self):
            found = super().probe()
            if found is None:
                vain.append(len(self.of(ChunkResults)))
            return found

    script = work(Watched((now, Setup(made.config.to_toml())), (now, chunk(made, 5, range(4))), (done(16), LEAVE)))
    assert len(script.of(ChunkResults)[0].results) == 8
    assert vain.count(0) == 1  # in the first half, 80 steps
    assert vain.count(1) > 1


def test_to_make_environments_may_take_longer_than_an_episode():
    """Also if episodes of an abandoned evaluation are still in hand."""
    made = experiment({"id": "toys:Slow-v0", "kwargs": {"seconds": 0.02}, "max_episode_seconds": 0.1})
    setups = itertools.count()

    def slow(text):
        time.sleep(1.5 * next(setups))  # at the second setup two alarms are due, after 0.1 s and 1.1 s
        return make_rollout(text)

    setup = Setup(made.config.to_toml())
    script = Script((now, setup), (now, chunk(made, 5)), (now, setup), (now, chunk(made, 6)), (done(P), LEAVE))
    work(script, make=slow)
    assert not script.of(WorkerError)


def test_the_trial_of_rank_0_is_compared_once_for_each_rollout(monkeypatch):
    """A script that iterates sets its workers up again in each generation."""
    compared = []
    monkeypatch.setattr(
        worker.environments, "check_same_as_rank_0", lambda _, fingerprints: compared.append(fingerprints)
    )
    made = experiment({"id": "CartPole-v1", "engine": "gymnasium", "max_episode_steps": 20})
    setup, make = Setup(made.config.to_toml(), trial='["a"]'), KeptRollouts(make_rollout)
    steps = (now, setup), (now, chunk(made, 5)), (now, setup), (now, chunk(made, 6)), (done(P), LEAVE)
    script = work(Script(*steps), make=make)
    assert not script.of(WorkerError)
    assert compared == [["a"]]
    make.close()


def test_the_rest_of_an_abandoned_evaluation_is_dropped():
    made = experiment({"id": "toys:Slow-v0", "kwargs": {"seconds": 0.005}})
    script = work(
        Script((now, Setup(made.config.to_toml())), (now, chunk(made, 5, range(50))), (now, chunk(made, 6)),
               (done(P), LEAVE))
    )  # fmt: skip
    assert {parcel.serial for parcel in script.of(ChunkResults)} == {6}


@pytest.mark.parametrize("last", ["dismissed", "left alone"])
def test_after_its_last_message_the_watchdog_is_disarmed(last):
    """Even if episodes are still running: a script of the user may come next."""
    made = experiment({"id": "toys:Slow-v0", "kwargs": {"seconds": 0.02}, "max_episode_seconds": 60.0})
    before, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    watched = []

    def busy(script):
        watched.append(signal.getsignal(signal.SIGALRM))
        return len(watched) > 9

    setup = Setup(made.config.to_toml())
    script = Script((now, setup), (now, chunk(made, 5)), (busy, setup), (now, chunk(made, 6)))
    script.steps.append((now, LEAVE if last == "dismissed" else Ended()))
    with nullcontext() if last == "dismissed" else pytest.raises(RunError, match="rank 0 has ended its script"):
        work(script)
    assert len(set(map(str, watched))) > 1  # it was watched in between
    assert signal.getsignal(signal.SIGALRM) == before
    assert abs(signal.getitimer(signal.ITIMER_REAL)[0] - timer[0]) < 200.0


@pytest.mark.parametrize(("fate", "words"), [("lost", "rank 0 was lost"), ("ended", "rank 0 has ended its script")])
def test_without_rank_0_every_call_ends(fate, words):
    """A script may catch the error and call evolve again: it must not wait for rank 0 then."""
    script = Script((now, Ended())) if fate == "ended" else Script()
    script.steps.append((lambda _: False, LEAVE))
    if fate == "lost":
        script.mark_dead([0])
    for _ in range(2):
        with pytest.raises(RunError, match=words):
            work(script)


@pytest.mark.parametrize("where", ["step", "reset"])
def test_it_sends_a_heartbeat_after_every_episode_that_fails(where):
    """They may have hung, one after another, in the same step."""
    made = experiment({"id": "toys:Faulty-v0", "kwargs": {"share": 1.0, "where": where}, "on_failure": "worst"})
    script = work(Script((now, Setup(made.config.to_toml())), (now, chunk(made, 5)), (done(P), LEAVE)))
    assert len(script.of(Heartbeat)) >= 1 + P
    assert [m.failure.genome for m in script.of(FailedEpisode)] == list(range(P))
    first = next(n for n, m in enumerate(script.sent) if isinstance(m, FailedEpisode))
    last = max(n for n, m in enumerate(script.sent) if isinstance(m, ChunkResults))
    assert first < last  # the failure comes before the results that hold its NaN
    assert np.isnan(script.sent[last].results.returns).all()


def test_a_reset_that_hangs_is_interrupted(monkeypatch):
    """Also if the chunk finds an idle worker, and all of its episodes begin at once."""
    reset = toys.Slow.reset

    def hang(env, **options):
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            time.sleep(0.01)
        return reset(env, **options)

    monkeypatch.setattr(toys.Slow, "reset", hang)
    made = experiment({"id": "toys:Slow-v0", "max_episode_seconds": 0.2})
    script = Script((now, Setup(made.config.to_toml())), (now, chunk(made, 5)), (done(1), LEAVE))
    assert 0 in [message.failure.step for message in work(script).of(FailedEpisode)]


def test_long_episodes_are_no_silence():
    made = experiment({"id": "toys:Slow-v0", "kwargs": {"seconds": 0.02}, "max_episode_seconds": 0.4})
    script = work(Script((now, Setup(made.config.to_toml())), (now, chunk(made, 5)), (done(P), LEAVE)))
    assert len(script.of(Heartbeat)) >= 2  # four slots take ten steps of 20 ms each, and it speaks every 100 ms


def test_a_failure_is_reported_once_and_another_setup_begins_anew():
    made = experiment(CART)
    wrong = made.config.to_toml().replace('"CartPole-v1"', '"Nowhere-v0"')
    script = work(
        Script((now, Setup(wrong)), (now, chunk(made, 5)), (now, Setup(made.config.to_toml())),
               (now, chunk(made, 6)), (done(P), LEAVE))
    )  # fmt: skip
    (error,) = script.of(WorkerError)
    assert "an evaluation failed on rank 1 (" in error.report
    assert "Nowhere-v0" in error.report
    assert "\n" not in error.report  # an error in plain words has no traceback


@pytest.mark.parametrize(
    ("name", "env"),
    [
        ("numpy", CART),
        ("gymnasium", CART),
        ("the source of evolve", CART),
        ("the module toys", {"id": "toys:Values-v0"}),
    ],
)
def test_a_worker_with_another_version_of_a_package_ends_the_run(name, env):
    """Its episodes would be another version's, so returns would depend on the rank that played them."""
    text = experiment(env).config.to_toml()
    same = worker.loaded_versions(text)
    setups = [Setup(text, json.dumps(same)), Setup(text, json.dumps(same | {name: "0.1"}))]
    script = work(Script(*((now, setup) for setup in setups), (lambda script: script.of(WorkerError), LEAVE)))
    (error,) = script.of(WorkerError)
    assert error.report.endswith(f"{name} is {same[name]} here and 0.1 on rank 0: install one version on all hosts")


def text_of(env, network="mlp"):
    return Config().to_toml().replace('"CartPole-v1"', f'"{env}:Task-v0"').replace('"hebbian-dag"', f'"{network}"')


def test_modules_beside_the_environment_have_fingerprints(monkeypatch, tmp_path):
    """The module of an environment may import its physics from another one in the same folder."""
    for name, folder in [("sleds", "mine"), ("ice", "mine"), ("skis", "site-packages"), ("wax", "site-packages")]:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{name}.py").write_text("")
        monkeypatch.syspath_prepend(tmp_path / folder)
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.import_module(name)
    versions = {name: worker.loaded_versions(text_of(name)) for name in ("sleds", "skis", "snow")}
    found = {name: {key for key in keys if key.startswith("the module")} for name, keys in versions.items()}
    assert found == {"sleds": {"the module sleds", "the module ice"}, "skis": {"the module skis"}, "snow": set()}


def test_packages_of_an_environment_and_a_network_have_versions(monkeypatch):
    for module in (toys, importlib.import_module("outside")):
        monkeypatch.setattr(module, "__version__", "2.1", raising=False)
    found = worker.loaded_versions(text_of("toys", "leaky"))
    assert found["toys"] == found["outside"] == "2.1"
    assert {"the module toys", "the module outside"} <= {*found}


class Lazy(ModuleType):
    def __getattribute__(self, name):
        raise ImportError(name)


class Hidden(type):
    @property
    def __module__(cls):
        raise RuntimeError


class Proxy:
    @property
    def __class__(self):
        raise RuntimeError


class Slotted:
    __slots__ = ()


def test_odd_contents_of_a_module_do_not_stop_a_run(monkeypatch):
    """A module may contain any objects; those that hide their package, or run code if they are asked, have none."""
    odd = ModuleType("odd")
    function, nameless = lambda: None, ModuleType("nameless")
    function.__module__, nameless.__name__ = [], None
    mock = Mock(spec=ModuleType)
    here = [Lazy("lazy"), Hidden("Hides", (), {}), type("Number", (), {"__module__": 3}), Proxy(), mock, function]
    vars(odd).update({str(i): item for i, item in enumerate([*here, nameless, ModuleType(".relative"), np.random])})
    monkeypatch.setitem(sys.modules, "odd", odd)
    assert worker.packages_used_by("odd") == {"lazy", "numpy"}
    assert worker.own_modules_used_by("odd") <= {"odd", "lazy"}
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    monkeypatch.setattr(odd, "__version__", object(), raising=False)
    assert worker.loaded_versions(text_of("odd")).items() >= {"odd": "", "lazy": "", "numpy": np.__version__}.items()
    for itself in (None, Slotted(), Lazy("odd")):
        monkeypatch.setitem(sys.modules, "odd", itself)
        assert worker.packages_used_by("odd") == set()


def test_a_signal_is_passed_on_once():
    made = experiment(CART)
    script = work(Script((now, Setup(made.config.to_toml())), (now, chunk(made, 5)), (done(P), LEAVE)), lambda: 15)
    assert [message.signal for message in script.of(StopRequest)] == [15]


def test_it_kills_only_ranks_of_its_job():
    work(Script((now, Kill(2**22 + 1)), (now, LEAVE)))


def test_it_kills_a_rank_even_after_it_failed(monkeypatch):
    killed = []
    monkeypatch.setattr(worker, "kill", killed.append)
    script = work(Script((now, Setup("no TOML =")), (lambda script: script.of(WorkerError), Kill(7)), (now, LEAVE)))
    assert len(script.of(WorkerError)) == 1
    assert killed == [7]
