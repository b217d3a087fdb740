import json

import numpy as np
import pytest

from evolve.bench.prototype import stepper
from evolve.bench.rollouts import list_schedule


@pytest.mark.parametrize(("engine", "worlds"), [("gymnasium", (1, 3)), ("envpool", (2,))])
def test_the_bench_compares_the_same_work(command, engine, worlds):
    if engine == "envpool":
        pytest.importorskip("envpool")
    words = ("-e", "CartPole-v1", "--engine", engine, "-p", 6, "-r", 2, "-d", 3)
    done = command("bench", *words, "--ranks", *worlds, "--pairs", 1, "--json")
    assert done.code == 0, done.err
    figures = json.loads(done.out)
    assert {row["slots"] for row in figures["inference"]} == {1, 16, 64, 256}
    assert all(row["numpy"] > 0 for row in figures["inference"])
    assert 0 < figures["startup"]["import"] < figures["startup"]["first_step"] + 1
    rows = [row for ranks in worlds for row in figures["rollouts"][str(ranks)]]
    assert [row["ranks"] for row in rows] == [*worlds]
    assert len({row["steps"] for row in rows}) == 1
    for row in rows:
        assert row["steps"] > 12
        assert len(row["idle"]) == max(1, row["ranks"] - 1)
        assert min(row["ratio"], row["cpu_seconds"], row["serial_seconds"]) > 0
        assert (row["bytes"] > 0) == (row["ranks"] > 1)
        assert row["backend"] in figures["measured"]


def test_the_tables_name_their_columns(command):
    done = command("bench", "-e", "CartPole-v1", "-p", 4, "-r", 1, "-g", 2, "--pairs", 1, "--ranks", 2)
    assert done.code == 0, done.err
    for word in ("kernel", "first environment step", "nanoseconds per network step", "bare", "engine", "median ratio"):
        assert word in done.out


def test_scheduling_is_measured_with_sleep(command):
    done = command("bench", "--sleep-env", 0.02, "-p", 20, "-r", 3, "-d", 2, "--ranks", 5, "--pairs", 1, "--json")
    assert done.code == 0, done.err
    (row,) = json.loads(done.out)["rollouts"]["5"]
    assert row["ideal_seconds"] == pytest.approx(60 * 0.02 / 4, rel=0.2)
    assert row["ideal_seconds"] <= row["list_seconds"] < row["seconds"]
    assert 0.3 < row["ratio"] <= 1


@pytest.mark.parametrize("words", [("--ranks", 0), ("--pairs", -1), ("--sleep-env", -1), ("-g", -1)])
def test_bad_options_are_refused(command, words):
    done = command("bench", *words)
    assert done.code == 2
    assert "at least" in done.err


def test_list_scheduling():
    assert list_schedule([3, 1, 1, 1, 2], 2) == 5
    assert list_schedule([1.0] * 6, 3) == 2


def test_the_prototype_does_the_same_work():
    from evolve.networks.hebbian_dag import HebbianDag, HebbianDagOptions
    from evolve.rng import Purpose, Stream

    network = HebbianDag(HebbianDagOptions(hidden=(4, 3)), 5, 2)
    g = network.birth(Stream(0, Purpose.BIRTH))
    observations = np.linspace(-1, 1, 5, dtype=np.float32)[None]
    step = stepper(network.sizes, g.weights, observations)
    if step is None:
        pytest.skip("no C compiler")
    batch = network.batch(1, "numpy")
    batch.load(np.arange(1), g.weights, g.mask, np.zeros(1, np.int64))
    for _ in range(3):
        step()
        actions = batch.step(observations)
    assert step.nodes[-2:] == pytest.approx(actions[0], abs=1e-6)
    assert step.traces[0] == pytest.approx(batch.traces(np.arange(1))[0], abs=1e-5)
