"""Experiments that are refused before an episode is played or a file is written."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
from tampering import edit_config

import evolve
from evolve import networks, strategies
from evolve.config import ComputeOptions, Config, RacingOptions, parse
from evolve.environments.gymnasium_engine import GymnasiumEngine
from evolve.errors import InputError
from evolve.numerics import native
from evolve.training import experiment, load_config, prepare, validate_new_run

MASKS = networks.make({"name": "binary-mask-mlp"}, 4, 2)


@pytest.mark.parametrize("name", ["openai-es", "cma-es", "sep-cma-es"])
def test_a_cost_that_all_candidates_share_is_refused(name):
    config = Config(strategy={"name": name}, connection_cost=2.0)
    with pytest.raises(InputError, match=f"^connection_cost: .*{name}.* got 2.0"):
        validate_new_run(prepare(config))
    validate_new_run(prepare(config.model_copy(update={"connection_cost": 0.0})))


@pytest.mark.parametrize(
    ("name", "cure"),
    [("NormalizeObservation", r"normalize_observations=True\.$"), ("NormalizeReward", r"Leave it out: .*\.$")],
)
def test_wrappers_that_learn_from_episode_to_episode_are_refused(name, cure):
    config = parse(Config, {"env": {"id": "CartPole-v1", "wrappers": [name]}})
    with pytest.raises(InputError, match=rf"^env\.wrappers: .* got gymnasium\.wrappers:{name}\. .*{cure}"):
        validate_new_run(prepare(config))


def test_a_window_for_each_episode_is_refused():
    prepared = prepare(Config(env="CartPole-v1"))
    for mode in ("rgb_array", "human"):  # a wrapper may make observations of pictures
        config = prepared.config.with_env_changes({"kwargs": {"render_mode": mode}})
        with pytest.raises(InputError, match=r"evolve replay FILE --window") if mode == "human" else nullcontext():
            validate_new_run(replace(prepared, config=config))


def test_a_mean_observation_among_descriptors_must_be_a_metric():
    strategy = {"name": "map-elites", "descriptors": ["mean_observation_0"], "cells": [3], "bounds": [[-1.0, 1.0]]}
    config = parse(Config, {"network": "mlp", "strategy": strategy, "normalize_observations": True})
    with pytest.raises(InputError, match=r'Name it: env\.metrics=\["mean_observation_0"\]\.$'):
        validate_new_run(prepare(config))


def test_the_share_of_a_race_without_rounds_is_refused():
    with pytest.raises(InputError, match=r"^racing\.keep: expected its default, 0\.5, without .*, got 0\.3"):
        validate_new_run(prepare(Config(racing=RacingOptions(keep=0.3))))
    validate_new_run(prepare(Config(racing=RacingOptions(keep=0.3, rounds=(1,)))))


def test_files_of_earlier_versions_keep_the_radius_of_pgpe():
    """It was 15 times the largest speed unless it was set, and such a file does not name it."""
    config = Config(strategy={"name": "pgpe", "max_speed": 0.15})
    assert (new := config.strategy.table())["initial_radius"] == 4.5
    text = config.to_toml()
    assert load_config(text).strategy.table() == new
    (line,) = (line for line in text.splitlines() if line.startswith("initial_radius"))
    earlier = load_config(text.replace(line + "\n", ""))
    assert earlier.strategy.table() == new | {"initial_radius": 15 * 0.15}
    assert load_config(earlier.to_toml()) == earlier


@pytest.mark.parametrize("line", ["speed_of_light = 3", "[early_stop]\nspeed_of_light = 3", 'population = "many"'])
def test_settings_of_a_newer_version_are_not_called_damaged(line):
    with pytest.raises(
        InputError, match=rf"^run\.h5: .*{evolve.__version__}.*(speed_of_light|population).*newer version"
    ):
        load_config(line, "run.h5")
    with pytest.raises(InputError, match=r"^run\.h5: .*damaged"):
        load_config(line + "\n[", "run.h5")


def test_options_of_a_newer_strategy_are_not_called_damaged(tmp_path):
    run = evolve.train(generations=1, population=2, episodes=1, held_out_episodes=1, output=tmp_path)
    edit_config(run.path, "[strategy]\n", "[strategy]\nspeed_of_light = 3\n")
    with pytest.raises(InputError, match=r"seed-0\.h5: .*speed_of_light.*newer version"):
        evolve.load(run.path).evaluate(1)


@pytest.mark.parametrize("rounds", [(4,), (1, 4), (2, 9)])
def test_a_race_that_no_candidate_leaves_is_refused(rounds):
    with pytest.raises(InputError, match=r"^racing\.rounds: .*\b4\b"):
        validate_new_run(prepare(Config(episodes=4, racing=RacingOptions(rounds=rounds))))
    validate_new_run(prepare(Config(episodes=10, racing=RacingOptions(rounds=rounds))))


@pytest.mark.parametrize("name", ["openai-es", "cma-es", "sep-cma-es", "ga"])
def test_a_strategy_that_changes_no_mask_is_refused_if_only_masks_count(name):
    with pytest.raises(InputError, match=rf"^strategy\.name: .* got {name}\."):
        validate_new_run(prepare(Config(network={"name": "binary-mask-mlp"}, strategy={"name": name})))


@pytest.mark.parametrize("name", ["prune", "umda", "random"])
def test_masks_are_searched_by_the_others(name):
    strategy = strategies.from_table({"name": name}, MASKS, 40, 1)
    assert len({mask.tobytes() for mask in strategy.ask(strategy.start(), 0).mask}) > 1


@pytest.mark.parametrize(
    "stop", ["held_out_episodes = 2_000_000_000", "[early_stop]\nmean_return = 1.0\nepisodes = 2_000_000_000"]
)
def test_champions_are_not_evaluated_in_more_episodes_than_fit_into_memory(stop, monkeypatch):
    monkeypatch.setattr(experiment, "usable_memory", lambda: 16e9)
    with pytest.raises(InputError, match=r"^(held_out_episodes|early_stop\.episodes): .*16\.0 GB"):
        prepare(load_config(stop))
    few = load_config(stop.replace("2_000_000_000", "2_000"))
    prepare(few)


@pytest.mark.parametrize("engine", ["exact", "gymnasium"])
def test_kernels_of_whole_episodes_need_memory_for_a_few_slots(monkeypatch, engine):
    if not native.available():
        pytest.skip("the native kernels were not built")
    monkeypatch.setattr(experiment, "usable_memory", lambda: 1e9)
    env = {"id": "CartPole-v1", "engine": engine}
    large = Config(env=env, network={"name": "mlp", "hidden": [600, 600]}, compute={"slots": 1024, "threads": 4})
    with (
        nullcontext()
        if engine == "exact"
        else pytest.raises(InputError, match=r"^compute\.slots: .*and 1,024 slots: at least 1\.7 GB")
    ):
        prepare(large)
    with pytest.raises(InputError, match=r"^population × network\.hidden: expected sizes that fit into 1\.0 GB"):
        prepare(large.model_copy(update={"network": Config(network={"name": "mlp", "hidden": [60000, 60000]}).network}))


@pytest.mark.parametrize(
    ("engine", "backend", "whole"),
    [("exact", "native", True), ("exact", "numpy", False), ("gymnasium", "native", False)],
)
def test_whole_episodes_need_an_exact_task_and_a_kernel(emulated_device, engine, backend, whole):
    if not native.available():
        pytest.skip("the native kernels were not built")
    prepared = prepare(Config(env={"id": "CartPole-v1", "engine": engine}, compute={"backend": backend}))
    assert prepared.plays_whole_episodes is whole
    assert replace(prepared, chosen_backend="cupy").plays_whole_episodes is (engine == "exact")


def test_threads_without_effect_are_mentioned(caplog):
    for engine, threads in (("gymnasium", 2), ("gymnasium", 1), ("gymnasium", "auto"), ("exact", 2)):
        caplog.clear()
        prepare(parse(Config, {"env": {"id": "CartPole-v1", "engine": engine}, "compute": {"threads": threads}}))
        assert ("compute.threads has no effect here" in caplog.text) == ((engine, threads) == ("gymnasium", 2))


def test_an_archive_must_fit_into_memory(monkeypatch):
    monkeypatch.setattr(experiment, "usable_memory", lambda: 1e8)
    descriptors = ["mean_observation_0", "mean_observation_2"]

    def prepared(cells):
        strategy = {"name": "map-elites", "descriptors": descriptors, "cells": [cells, cells]}
        strategy["bounds"] = [[-1.0, 1.0], [-1.0, 1.0]]
        env = {"id": "CartPole-v1", "engine": "exact", "metrics": descriptors}
        return prepare(
            parse(Config, {"env": env, "network": "mlp", "strategy": strategy, "normalize_observations": True})
        )

    prepared(30)
    with pytest.raises(InputError, match=r"expected sizes that fit into 0\.1 GB of memory"):
        prepared(300)


@pytest.mark.parametrize(("hidden", "backend", "least"), [(300, "native", 8), (30, "native", 1), (300, "numpy", 1)])
def test_large_networks_are_not_handed_out_one_by_one(hidden, backend, least):
    if not native.available():
        pytest.skip("the native kernels were not built")
    network = {"name": "mlp", "hidden": [hidden, hidden]}
    compute = ComputeOptions(backend=backend, slots=8)
    assert prepare(Config(network=network, compute=compute)).rollout_spec.least_chunk == least


@pytest.mark.parametrize(
    ("hidden", "compute", "slots"),
    [(400, {}, 16), (256, {}, 48), (50, {}, 2048), (400, {"backend": "numpy"}, 2048), (400, {"slots": 50}, 50)],
)
def test_large_networks_have_as_many_slots_as_fit_into_a_cache(monkeypatch, hidden, compute, slots):
    if not native.available():
        pytest.skip("the native kernels were not built")
    monkeypatch.setattr(GymnasiumEngine, "suggested_slots", lambda _: 2048)
    monkeypatch.setattr(experiment, "has_device", lambda: False)
    network = {"name": "mlp", "hidden": [hidden, hidden]}
    assert prepare(Config(network=network, compute=ComputeOptions(**compute))).config.compute.slots == slots


def test_a_device_has_as_many_slots_as_the_engine_wants(monkeypatch):
    monkeypatch.setattr(GymnasiumEngine, "suggested_slots", lambda _: 2048)
    monkeypatch.setattr(experiment, "has_device", lambda: True)
    assert prepare(Config(network={"name": "mlp", "hidden": [400, 400]})).config.compute.slots == 2048


def test_the_checks_of_a_new_run_make_its_strategy_once(monkeypatch):
    settings = {"population": 8, "least_population": 4, "num_interactions": 100, "early_max_episode_steps": 9}
    settings |= {"strategy": {"name": "pgpe"}, "common_random_numbers": "pairs"}
    prepared, make, made = prepare(Config(**settings)), experiment.Experiment.strategy, []
    monkeypatch.setattr(experiment.Experiment, "strategy", lambda self, seed: made.append(seed) or make(self, seed))
    validate_new_run(prepared)
    assert len(made) == 1
