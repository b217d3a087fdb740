"""Metrics in runs: equal on any number of ranks, logged with their types, resumed, verified and evaluated."""

import json
import math
import re
import shutil

import h5py
import numpy as np
import pytest
from conftest import ROOT
from tampering import tamper

import evolve
from evolve import store
from evolve.analysis import statistics
from evolve.analysis.generations import pack_generation, unpack_generation

NAMES = ["distance", "reached", "sometimes", "steps"]
RUN = ("-e", "toys:Measured-v0", "-a", "mlp", "-p", 6, "-r", 2, "-g", 4, "-d", 2, "-s", 1, "--strategy", "ga",
       "--set", "held_out_episodes=3", "--set", f"env.metrics={NAMES}")  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The run of the settings in RUN, trained from Python."""
    return evolve.train(
        env={"id": "toys:Measured-v0", "metrics": NAMES}, network={"name": "mlp", "hidden": [2]}, population=6,
        episodes=2, generations=4, seed=1, strategy="ga", held_out_episodes=3, output=tmp_path_factory.mktemp("made"),
    )  # fmt: skip


def test_three_ranks_log_the_same_metrics(made, command, tmp_path):
    command("run", *RUN, "-o", "three", ranks=3).ok()
    three = evolve.load(tmp_path / "three" / "seed-1.h5")
    assert three.digest == made.digest
    for one, other in zip(made.generations, three.generations, strict=True):
        assert sorted(one.metrics) == NAMES
        for name in NAMES:
            assert one.metrics[name].dtype == other.metrics[name].dtype
            assert one.metrics[name].tolist() == other.metrics[name].tolist()
    assert evolve.load(three.path).held_out.metrics["distance"].tolist() == made.held_out.metrics["distance"].tolist()


def test_the_file_has_a_column_of_each_metric(made):
    with h5py.File(made.path) as file:
        group = file["generation/metrics"]
        types = {name: group[name].dtype for name in group}
        assert types == {"distance": np.float64, "reached": np.bool_, "sometimes": np.float64, "steps": np.int64}
        assert {column.shape for column in group.values()} == {(4, 6, 2)}
        assert "the metric distance of each episode" in group["distance"].attrs["meaning"]
        assert (group["steps"][()] == file["generation/lengths"][()]).all()
        assert (group["reached"][()] == (group["sometimes"][()] == 0)).all()
    assert made.evaluate(episodes=5).metrics["distance"][:3].tolist() == made.held_out.metrics["distance"].tolist()


def test_metrics_are_a_part_of_the_digest(made):
    plain = made.config.model_dump(mode="json", exclude_none=True)
    plain["env"]["metrics"] = []
    bare = evolve.train(plain, output=made.path.parent / "bare")
    assert bare.generations[-1].returns.tolist() == made.generations[-1].returns.tolist()
    assert bare.digest != made.digest
    assert bare.generations[0].metrics == {}
    with h5py.File(bare.path) as file:
        assert "generation/metrics" not in file


def test_a_resumed_run_goes_on_with_its_metrics(made, call, tmp_path):
    call("run", *RUN, "-g", 1, "-o", "out").ok()
    call("run", *RUN[:-1], "env.metrics=['steps']", "-o", "out", "--resume").refused("env.metrics, resuming")
    call("run", *RUN, "-o", "out", "--resume").ok()
    resumed = evolve.load(tmp_path / "out" / "seed-1.h5")
    assert resumed.digest == made.digest
    assert {n: m.dtype for n, m in resumed.generations[0].metrics.items()} == {
        n: m.dtype for n, m in made.generations[0].metrics.items()
    }
    call("verify", resumed.path, made.path).ok()


def test_a_column_widens_when_a_later_generation_needs_it(made, tmp_path):
    stored = store.read(made.path)
    file = store.create(tmp_path / "wide.h5", stored.header)
    kinds = (np.bool_, np.int64, np.int64, np.float64)
    for record, kind in zip(stored.records, kinds, strict=True):
        object.__setattr__(record, "metrics", {"x": (record.returns < -0.5).astype(kind)})
        file.append(record, {})
        file.flush()
    file.close()
    read = [record.metrics["x"] for record in store.read(tmp_path / "wide.h5").records]
    assert {values.dtype for values in read} == {np.dtype(np.float64)}
    for values, record in zip(read, stored.records, strict=True):
        assert (values == record.metrics["x"]).all()


@pytest.mark.parametrize(("words", "why"), [((), "a metric differs"), (("--full",), "a log was changed afterwards")])
def test_verify_compares_metrics(made, call, tmp_path, words, why):
    path = tmp_path / "copy.h5"
    shutil.copy(made.path, path)
    call("verify", path, *words).ok()
    best = int(store.read(path).records[2].champion_candidate)
    tamper(path, "generation/metrics/distance", (2, best, 1), 9.5)
    done = call("verify", path, *words)
    assert done.code == 1
    assert f"generation 2: candidate {best}, episode 1: its metric distance is 9.5 against 0." in done.out
    assert why in done.out
    done = call("verify", path, made.path)
    assert "its metric distance is 9.5 against" in done.out
    shutil.copy(made.path, path)
    tamper(path, "evaluation/metrics/distance", 1, 9.5)
    assert "the champion's metrics on 3 held-out episodes differ" in call("verify", path, *words).out


def test_champion_files_keep_metrics(made, tmp_path, call):
    path = made.export(tmp_path / "x.champion")
    assert evolve.load(path).held_out.metrics["steps"].tolist() == made.held_out.metrics["steps"].tolist()
    call("verify", path).ok()
    tamper(path, "evaluation/metrics/steps", 1, 99)
    assert "the champion's metrics on 3 held-out episodes differ" in call("verify", path).out


def test_a_fitness_function_sees_metrics(tmp_path):
    run = evolve.train(
        env={"id": "toys:Measured-v0", "metrics": ["distance", "reached"]}, network={"name": "mlp", "hidden": [2]},
        population=6, episodes=3, generations=2, seed=1, strategy="ga", held_out_episodes=0, output=tmp_path,
        racing={"rounds": [2]}, fitness="toy_fitness:nearest",
    )  # fmt: skip
    for generation in run.generations:
        stayed = ~np.isnan(generation.returns[:, 2])
        near = np.where(generation.metrics["reached"], 0.0, -generation.metrics["distance"])[stayed]
        assert generation.fitness[stayed].tolist() == near.min(axis=1).tolist()
        assert np.isnan(generation.metrics["distance"][~stayed, 2]).all()
    assert run.verify().equal


def test_missing_metrics_are_refused_before_a_run_or_end_an_episode(call):
    missing = (*RUN[:-1], "env.metrics=['steps', 'far']", "-o", "a")
    call("run", *missing).refused("env.metrics: expected a number far")
    for wrong in ('"missing"', '"near"', "[1, 2]"):
        late = ("--set", f"env.kwargs={{wrong = {wrong}, late = 7}}", "-o", "b")
        done = call("run", *RUN, *late, "--overwrite")
        assert done.code == 1, done.err
        assert "env.metrics: expected a number distance in the info of the last step of an episode" in done.err
    worst = ("--set", "env.on_failure='worst'", "-o", "c")
    call("run", *RUN, *late[:2], *worst).ok()


def test_failed_episodes_have_no_metrics(call, tmp_path):
    late = ("--set", 'env.kwargs={wrong = "missing", late = 6}', "--set", "env.on_failure='worst'", "-o", "c")
    call("run", *RUN, *late).ok()
    path = tmp_path / "c" / "seed-1.h5"
    failed = 0
    for generation in evolve.load(path).generations:
        lost = np.isnan(generation.returns)
        failed += int(lost.sum())
        assert np.isnan(generation.metrics["distance"][lost]).all()
        assert not generation.metrics["steps"][lost].any()
        assert all(not math.isnan(value) for value in generation.metrics["distance"][~lost].tolist())
    assert failed
    call("verify", path).ok()
    call("verify", path, "--full").ok()


def test_failed_episodes_have_no_mean_observation(tmp_path):
    task = {"id": "toys:Faulty-v0", "on_failure": "worst", "kwargs": {"share": 0.5}}
    run = evolve.train(
        env=task | {"metrics": ["mean_observation_0"]},
        normalize_observations=True, generations=1, population=6, episodes=2, seed=1, held_out_episodes=6,
        output=tmp_path,
    )  # fmt: skip
    for played in (run.generations[0], run.held_out):
        failed = np.isnan(played.returns)
        assert failed.any()
        assert np.array_equal(np.isnan(played.metrics["mean_observation_0"]), failed)
    assert run.verify(full=True).equal


def test_a_table_has_the_metrics_of_the_best_and_of_all(made):
    table = made.table()
    for number, generation in enumerate(made.generations):
        distance = generation.metrics["distance"]
        best = distance[generation.record.champion_candidate]
        assert table["best_metric_distance"][number] == pytest.approx(best.mean())
        assert table["mean_metric_distance"][number] == pytest.approx(distance.mean())
        assert table["mean_metric_reached"][number] == generation.metrics["reached"].mean()


def test_info_shows_the_means_of_held_out_metrics(made, call):
    mean = made.held_out.metrics["steps"].mean()
    assert f"steps {mean:.3g}" in call("info", made.path).out


def test_evaluate_prints_metrics_of_episodes_that_did_not_fail(made, call, tmp_path):
    path = tmp_path / "a.h5"
    shutil.copy(made.path, path)
    steps = made.held_out.metrics["steps"]
    assert f"steps {steps.mean():.3g}" in call("evaluate", path, "--episodes", 3).out
    assert json.loads(call("evaluate", path, "--episodes", 3, "--json").out)["metrics"]["steps"] == steps.tolist()
    failing = statistics.metrics_summary({"steps": np.array([4, 0, 5])}, np.array([1.0, np.nan, 2.0]))
    assert failing == "steps 4.50"
    assert statistics.metrics_summary({"rare": np.array([0.0, 0.005])}, np.zeros(2)) == "rare 0.0025"
    two = {"time": np.array([2.0]), "done": np.array([True])}
    assert statistics.metrics_summary(two, np.zeros(1)) == "done 1.00, time 2.00"


def test_the_documented_experiments_have_one_digest_on_one_rank_and_on_three(command, tmp_path):
    page = (ROOT / "docs" / "experiments.md").read_text()
    for name, code in re.findall(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", page, re.M | re.S):
        (tmp_path / name).write_text(code)
    for name in ("commute", "reliable"):
        command("run", f"{name}.toml", "-o", f"{name}-one").ok()
        command("run", f"{name}.toml", "-g", 3, "-o", f"{name}-three", ranks=3).ok()
        one, three = (evolve.load(tmp_path / f"{name}-{ranks}" / "seed-0.h5") for ranks in ("one", "three"))
        assert three.digest == one.generations[2].digest
    table = evolve.load(tmp_path / "commute-one" / "seed-0.h5").table()
    assert table["mean_metric_distance"][-1] < table["mean_metric_distance"][0]


def test_other_ranks_of_a_script_get_the_metrics(made):
    for generation in made.generations:
        sent = unpack_generation(pack_generation(generation))
        assert sorted(sent.metrics) == NAMES
        for name, values in sent.metrics.items():
            assert values.dtype == generation.metrics[name].dtype
            assert values.tolist() == generation.metrics[name].tolist()


def test_a_metric_may_have_the_name_of_another_array_of_an_evaluation():
    metrics = {"seeds": np.zeros(1), "returns": np.zeros(1)}
    one, same, other = (evolve.Evaluation(np.ones(1), np.array([seed]), metrics) for seed in (1, 1, 2))
    assert one == same != other


def test_a_resumed_run_first_compares_the_metrics_of_an_episode(call, tmp_path):
    call("run", *RUN, "-g", 2, "-o", "out").ok()
    path = tmp_path / "out" / "seed-1.h5"
    tamper(path, "generation/metrics/distance", (1, int(store.read(path).records[1].champion_candidate), 0), 7.5)
    call("run", *RUN, "-o", "out", "--resume").refused("episode 0: its metric distance is 0.", "against 7.5")
