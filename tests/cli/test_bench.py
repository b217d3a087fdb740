"""The bench: it measures the same work in both ways, and names what it has measured."""

import json
import multiprocessing
import signal
from contextlib import closing
from functools import partial
from multiprocessing import resource_tracker, spawn
from types import SimpleNamespace

import pytest
import warm
from conftest import environment

from evolve import store, training
from evolve.cli.app import StopFlag
from evolve.cli.bench import measurements
from evolve.cli.bench.measurements import list_schedule
from evolve.cluster import Coordinator, Transport
from evolve.config import Config, parse
from evolve.errors import RunError


@pytest.fixture
def quick(monkeypatch):
    """Let what is measured be measured once, and for a moment: it need not be precise."""
    monkeypatch.setattr(measurements, "startup_seconds", partial(measurements.startup_seconds, rounds=1))
    monkeypatch.setattr(measurements, "network_row", partial(measurements.network_row, rounds=1, seconds=0.002))
    if warm.fits(environment()):  # the bare processes are forked
        resource_tracker.ensure_running()
        before = spawn.get_executable()
        spawn.set_executable(warm.python())
        yield
        spawn.set_executable(before)
    else:
        yield


@pytest.fixture
def started(monkeypatch):
    """Let the start be known, which is not measured."""
    known = dict.fromkeys(("python", "import", "first_step"), 1.0)
    monkeypatch.setattr(measurements, "startup_seconds", lambda *_: known)


@pytest.mark.usefixtures("quick")
def test_the_start_of_whole_rollouts_is_measured(call):
    done = call(
        "bench", "-e", "CartPole-v1", "--engine", "exact", "-d", 3, "--pairs", 0, "--json", **environment()
    ).ok()
    assert json.loads(done.out)["startup"]["first_step"] > 0


@pytest.mark.usefixtures("quick")
def test_the_start_of_several_threads_is_measured(call):
    threads = ("--set", "compute.threads=2")
    done = call("bench", "-e", "CartPole-v1", "--engine", "exact", *threads, "--pairs", 0, "--json").ok()
    assert json.loads(done.out)["startup"]["first_step"] > 0


@pytest.mark.usefixtures("quick")
def test_without_kernels_an_environment_of_the_exact_engine_alone_is_measured(call, monkeypatch):
    monkeypatch.setattr(measurements.native, "available", lambda: False)
    words = ("-e", "Cues-v0", "--engine", "exact", "-p", 2, "-r", 1, "--pairs", 1, "--ranks", 1)
    assert "median ratio" in call("bench", *words).ok().out


@pytest.mark.usefixtures("quick")
def test_the_bench_compares_the_same_work(call):
    words = ("-e", "CartPole-v1", "-p", 4, "-r", 2, "-d", 3)
    done = call("bench", *words, "--ranks", 3, "--pairs", 1, "--json", **environment()).ok()
    figures = json.loads(done.out)
    assert {row["slots"] for row in figures["inference"]} == {1, 16, 64, 256}
    assert all(row["numpy"] > 0 for row in figures["inference"])
    assert min(figures["startup"]["import"], figures["startup"]["first_step"]) > 0
    (three,) = figures["rollouts"]["3"]
    assert three["steps"] > 12
    assert three["ranks"] == 3
    assert len(three["idle"]) == 2
    assert min(three["ratio"], three["bytes"], three["cpu_seconds"], three["serial_seconds"]) > 0
    assert three["backend"] in figures["measured"]
    engines = {row["engine"]: row["microseconds"] for row in figures["engines"]}
    assert {"exact", "gymnasium"} <= set(engines)
    assert list(engines.values()) == sorted(engines.values())
    assert all(row["steps"] > 12 for row in figures["engines"])


@pytest.mark.usefixtures("quick")
def test_the_tables_name_their_columns_for_any_engine(call, monkeypatch):
    pytest.importorskip("envpool")
    known = {"python": 0.01, "import": 0.5, "first_step": 1.0}
    monkeypatch.setattr(measurements, "startup_seconds", lambda *_: known)
    words = ("-e", "CartPole-v1", "--engine", "exact", "-p", 3, "-r", 1, "-g", 1)
    done = call("bench", *words, "--pairs", 1, "--ranks", 1, **environment()).ok()
    for word in ("kernel", "first environment step", "nanoseconds per network step", "bare", "engine", "median ratio",
                 "CPU time per step", "gymnasium", "envpool"):  # fmt: skip
        assert word in done.out


@pytest.mark.usefixtures("quick")
def test_scheduling_is_measured_with_sleep(call):
    words = ("--sleep-env", 0.02, "-p", 20, "-r", 3, "-d", 2, "--ranks", 3, "--pairs", 1, "--json")
    done = call("bench", *words, **environment()).ok()
    (row,) = json.loads(done.out)["rollouts"]["3"]
    assert row["ideal_seconds"] == pytest.approx(60 * 0.02 / 2, rel=0.2)
    assert row["ideal_seconds"] <= row["list_seconds"] < row["seconds"]
    assert 0 < row["ratio"] <= 1


@pytest.mark.parametrize("words", [("--ranks", 0), ("--pairs", -1), ("--sleep-env", -1), ("--generation", -1)])
def test_bad_options_are_refused(call, words):
    call("bench", *words).refused(f"{words[0]}: expected at least ")


@pytest.mark.parametrize(
    "more",
    [
        {"normalize_observations": True},
        {"early_max_episode_steps": 9, "early_generations": 3},
        {"common_random_numbers": True},
    ],
)
def test_bare_environments_play_the_episodes_of_the_generation(tmp_path, more):
    table = {
        "env": {"id": "CartPole-v1", "engine": "exact"},
        "network": {"name": "mlp", "hidden": [4]},
        "strategy": {"name": "openai-es", "sigma": 1.0},
        "population": 6,
        "episodes": 3,
        "generations": 2,
        "held_out_episodes": 0,
    }
    experiment, path = training.prepare(parse(Config, table | more)), tmp_path / "run.h5"
    measurements.play_earlier_generations(experiment, 1, path, StopFlag())
    _, recorded = measurements.record_episodes(experiment, store.read(path), range(6))
    with closing(store.reopen(path)) as log:
        record = next(training.iterate(experiment, Coordinator(Transport(), training.make_rollout), log))
    assert sorted(len(each.outputs) for each in recorded) == sorted(record.lengths.ravel())
    assert len({len(each.outputs) for each in recorded}) > 1 or "early_max_episode_steps" in more


def test_a_bare_process_that_is_killed_ends_the_bench(tmp_path):
    table = {"env": {"engine": "exact"}, "network": {"name": "mlp"}, "population": 2, "episodes": 1, "generations": 1}
    experiment, path = training.prepare(parse(Config, table)), tmp_path / "run.h5"
    measurements.play_earlier_generations(experiment, 0, path, StopFlag())
    with closing(measurements.BareProcesses(experiment, path, 2, StopFlag())) as bare:
        assert bare.rate() > 0
        multiprocessing.active_children()[0].kill()
        with pytest.raises(RunError, match="a bare process has ended early"):
            bare.rate()
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("quick", "started")
@pytest.mark.parametrize("where", ["step", "reset"])
def test_an_episode_that_fails_is_named(call, monkeypatch, where):
    faulty = ("-e", "toys:Faulty-v0", "--set", "env.kwargs.share=0.5", "--set", f"env.kwargs.where={where}")
    words = (*faulty, "-p", 16, "-r", 1, "--ranks", 1, "--pairs", 1)
    done = call("bench", *words)
    assert done.code == 1
    failed = f"evolve.bench: an episode failed in {'step 3' if where == 'step' else 'reset'}, environment seed "
    assert done.err.startswith(failed)
    assert done.err.endswith("RuntimeError: the motor burnt out\n")
    monkeypatch.setattr(measurements, "engine_rows", lambda *_: [])
    assert call("bench", *words, **environment()).err == done.err  # seen by a bare process


@pytest.mark.usefixtures("quick", "started")
def test_a_generation_after_the_end_of_the_run_is_refused(call):
    words = ("--engine", "exact", "-p", 2, "-r", 1, "--ranks", 1, "--pairs", 1, "--set", "early_stop.steps=5")
    expected = "--generation: expected at most 0, as the run ends then, got "
    done = call("bench", *words, "-g", 2)
    assert (done.code, done.err) == (2, f"evolve.bench: {expected}2.\n")
    done = call("bench", *words, "-g", 1, **environment())
    assert (done.code, "Traceback" in done.err) == (1, False)
    assert done.err.startswith(f"evolve.bench: the measurement on 1 rank failed: evolve.bench: {expected}1.")


def test_options_without_effect_are_refused(call):
    call("bench", "-e", "CartPole-v1", "--sleep-env", 0.01).refused("--sleep-env: expected no --env and no --engine")


def test_what_ranks_need_is_checked_first(call, absent):
    call("bench", "--ranks", 1, 10**6, "--pairs", 0).refused("--ranks: expected at most ", "got 1,000,000")
    absent("mpi4py")
    call("bench").refused("--ranks: expected mpi4py", "[mpi]")


@pytest.mark.usefixtures("quick")
def test_an_environment_may_print_and_need_arguments(call):
    words = ("-e", "toys:Prints-v0", "--set", "env.kwargs.x=0.5", "-p", 2, "-r", 1, "--pairs", 1, "--ranks", 1)
    done = call("bench", *words, "--json", **environment()).ok()
    assert json.loads(done.out)["rollouts"]["1"][0]["steps"] == 2
    done = call("bench", *words[:-1], 3, **environment()).ok()  # without --json, workers may print after rank 0
    assert "3 ranks: 2 environment steps by 2 workers" in done.out


@pytest.mark.usefixtures("quick")
def test_the_start_is_measured_with_the_same_environment_and_network(call, monkeypatch):
    begun = []
    known = dict.fromkeys(("python", "import", "first_step"), 1.0)
    monkeypatch.setattr(measurements, "startup_seconds", lambda config, _: begun.append(config) or known)
    metric = ("--set", "normalize_observations=true", "--set", "env.metrics=['mean_observation_0']")
    call("bench", "--set", "network.name=mlp", "-d", "--set", "env.max_episode_steps=9", *metric, "--pairs", 0).ok()
    config = measurements.shortest_run(begun[0])
    training.prepare(config)  # the run is not refused
    assert (config.network.name, config.network.options.hidden, config.env.max_episode_steps) == ("mlp", (), 9)


@pytest.mark.usefixtures("quick", "started")
@pytest.mark.parametrize("network", ["elman", "hebbian-lstm"])
def test_a_network_has_the_layers_of_its_defaults(call, network):
    assert f"{network} with " in call("bench", "--set", f"network.name={network}", "--pairs", 0).ok().out


def test_a_network_of_another_package_may_rename_the_seeds():
    network = training.prepare(Config()).network

    def renamed(slots, name):
        batch = network.batch(slots, name)

        def load(slots, weights, mask, episode_seeds):
            batch.load(slots, weights, mask, episode_seeds)

        return SimpleNamespace(load=load, step=batch.step)

    other = SimpleNamespace(init=network.init, observation_size=network.observation_size, batch=renamed)
    assert measurements.network_row(other, slots=2, rounds=1, seconds=0.002)["numpy"] > 0


@pytest.mark.usefixtures("quick", "started")
@pytest.mark.parametrize("words", [("--sleep-env", 0.001), ("--engine", "exact")])
def test_a_signal_ends_the_bench_between_two_pairs(call, monkeypatch, words):
    monkeypatch.setattr(measurements, "BareProcesses", lambda *_: SimpleNamespace(rate=lambda: 1.0, close=lambda: None))

    measured = []

    def measure(*_):
        if not measured:
            signal.raise_signal(signal.SIGTERM)
        measured.append({"ranks": 1, "seconds": 1.0, "rate": 1.0, "returns": [1.0]})
        return measured[-1]

    monkeypatch.setattr(measurements, "figures_of_job", measure)
    done = call("bench", *words, "-p", 2, "-r", 1, "--ranks", 1)
    assert (done.code, done.err, len(measured)) == (75, "evolve.bench: stopped by SIGTERM\n", 1)


@pytest.mark.usefixtures("quick", "started")
def test_an_interrupt_ends_the_generations_before_the_measured_one(call, monkeypatch):
    iterate, seen = measurements.iterate, []

    def interrupted(*arguments):
        for record in iterate(*arguments):
            if not seen:
                signal.raise_signal(signal.SIGINT)
            seen.append(record)
            yield record

    monkeypatch.setattr(measurements, "iterate", interrupted)
    done = call("bench", "--engine", "exact", "-p", 2, "-r", 1, "--ranks", 1, "--pairs", 1, "-g", 5)
    assert (done.code, done.err, len(seen)) == (75, "evolve.bench: stopped by SIGINT\n", 1)


def test_an_interrupt_is_no_failure_of_the_processes_that_it_ends(call, monkeypatch):
    def interrupted(*_):
        signal.raise_signal(signal.SIGINT)
        raise RunError("the measurement under mpirun failed")

    monkeypatch.setattr(measurements, "startup_seconds", interrupted)
    done = call("bench", "--pairs", 0)
    assert (done.code, done.err) == (75, "evolve.bench: stopped by SIGINT\n")


def test_list_scheduling():
    assert list_schedule([3, 1, 1, 1, 2], 2) == 5
    assert list_schedule([1.0] * 6, 3) == 2
