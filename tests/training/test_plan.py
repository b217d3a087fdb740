"""The upper bounds on the size of a run: episodes and steps; the arguments of `evolve.train`."""

import json
from types import SimpleNamespace

import gymnasium
import pandas
import pytest
import toy_fitness
import toys

import evolve
from evolve.config import Config, parse
from evolve.errors import InputError
from evolve.training.plan import RunSize, file_bytes, plan_from_arguments, size_of, sweep_from_arguments, threads_for

SMALL = {"population": 8, "episodes": 3, "generations": 10, "held_out_episodes": 5, "compute": {"check": False}}


@pytest.mark.parametrize(
    ("more", "completed", "expected"),
    [
        ({}, 0, RunSize(245, 245 * 500)),
        ({}, 4, RunSize(149, 149 * 500)),
        ({}, 10, RunSize(5, 5 * 500)),
        ({"env": {"max_episode_steps": 20}}, 0, RunSize(245, 245 * 20)),
        ({"env": {"max_episode_steps": 20}, "evaluation_max_episode_steps": 30}, 0, RunSize(245, 240 * 20 + 5 * 30)),
        ({"early_max_episode_steps": 100, "early_generations": 6}, 4, RunSize(149, 48 * 100 + 101 * 500)),
        ({"early_max_episode_steps": 100, "early_generations": 6}, 8, RunSize(53, 53 * 500)),
        ({"early_stop": {"steps": 1000}}, 0, RunSize(245, 1000 + 24 * 500 + 5 * 500)),
        ({"early_stop": {"mean_return": 400.0, "episodes": 7, "every": 3}}, 0, RunSize(266, 266 * 500)),
        ({"early_stop": {"mean_return": 400.0, "episodes": 7, "every": 3}}, 6, RunSize(115, 115 * 500)),
        ({"env": {"id": "toys:Switches-v0"}}, 0, RunSize(245, None)),
    ],
)
def test_sizes(more, completed, expected):
    assert size_of(parse(Config, SMALL | more), completed) == expected


@pytest.mark.parametrize("genomes", ["champions", "all"])
def test_the_size_of_a_file_is_known_before_the_run(tmp_path, genomes):
    config = {
        "env": {"id": "Pendulum-v1", "engine": "exact"},  # each episode has 200 steps
        "network": {"name": "mlp", "hidden": [64]},
        "strategy": "openai-es",
        "normalize_observations": True,
        "population": 16,
        "generations": 240,
        "output": {"directory": str(tmp_path), "genomes": genomes},
    }
    run = evolve.train(config, seed=1, progress=False)
    assert file_bytes(run.experiment) == pytest.approx(run.path.stat().st_size, rel=0.2)


def test_what_envpool_says_of_its_limits():
    pytest.importorskip("envpool", exc_type=ImportError)  # the system may lack libEGL
    config = parse(Config, SMALL | {"env": {"id": "CartPole-v1", "engine": "envpool"}})
    assert size_of(config).steps == 245 * 500


def test_a_removed_directory_is_no_place_for_a_run(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(
        InputError, match=r"^output: expected a directory, got runs/.* in a removed directory\. Change to"
    ):
        plan()
    assert plan_from_arguments(None, 3, tmp_path, {}).path == tmp_path / "seed-3.h5"


def test_too_many_threads_for_files_are_refused():
    with pytest.raises(InputError, match=r"^compute\.threads: expected at most 1,024"):
        threads_for([], threads=5000)


def test_sizes_add_up():
    assert RunSize(1, 10) + RunSize(2, 20) == RunSize(3, 30)
    assert RunSize(1, 10) + RunSize(2, None) == RunSize(3, None)


def plan(experiment=None, **settings):
    return plan_from_arguments(experiment, None, None, settings)


@pytest.mark.parametrize(
    ("env", "env_id"),
    [
        (toys.Unregistered, "toys:Unregistered"),
        (toys.remembering_cart, "toys:remembering_cart"),
        ({"id": toys.Slow, "kwargs": {"seconds": 0.0}}, "toys:Slow"),
        ("toys:Unregistered", "toys:Unregistered"),
    ],
)
def test_an_environment_may_be_its_class_or_a_function_that_makes_it(env, env_id):
    assert plan(env=env).experiment.config.env.id == env_id


def test_a_sweep_over_environments_and_fitness_takes_classes_and_functions():
    grid = {"env": [toys.Unregistered, {"id": toys.Memory}], "fitness": ["min", toy_fitness.worst_two]}
    points = sweep_from_arguments(grid, None, None, None, {"env": {"max_episode_steps": 5}})
    assert [(config.env.id, config.fitness) for _, config in points] == [
        ("toys:Unregistered", "min"),
        ("toys:Unregistered", "toy_fitness:worst_two"),
        ("toys:Memory", "min"),
        ("toys:Memory", "toy_fitness:worst_two"),
    ]
    with pytest.raises(InputError, match="expected the id of an environment, its class"):
        sweep_from_arguments({"env": [toys.Memory, 3]}, None, None, None, {})
    grid = {"network": ["mlp", {"name": "mlp", "hidden": [4]}], "network.hidden": [[2], [3]]}
    with pytest.raises(InputError, match=r"^grid: .*network or network\.hidden.*Put hidden into the tables of network"):
        sweep_from_arguments(grid, None, None, None, {})


@pytest.mark.parametrize("env", ["CartPole-v1", "toys:Memory-v0"])
def test_an_environment_in_place_of_a_file_is_named_with_its_setting(env):
    with pytest.raises(InputError, match=f'^experiment: .* got {env}, which does not exist.* env="{env}"'):
        plan(env)


def test_a_missing_champion_file_is_not_taken_for_an_environment():
    with pytest.raises(InputError, match=r"^experiment: .* got a\.champion, which is named like a champion file"):
        plan("a.champion")


@pytest.mark.parametrize(
    ("experiment", "settings", "said"),
    [
        (toys.Memory, {}, r"^experiment: expected a TOML file, .* setting: env=Memory\.$"),
        (
            gymnasium.make("CartPole-v1"),
            {},
            r"^experiment: .* setting: env=\"module:Name-v0\"\.$",
        ),
        (".", {}, r"^experiment: .* got \., a directory\.$"),
        (SimpleNamespace(config=Config(env={"id": "CartPole-v1"})), {}, "Give its attribute `config`"),
        ("no.toml", {}, "expected a readable TOML file, got no.toml"),
        (None, {"env": lambda: 0}, '^env: expected a class or a function.* env="tasks:Task".* gymnasium.register'),
        (None, {"env": type("Mine", (toys.Memory,), {"__module__": "__main__"})}, "^env: expected a class or a func"),
        (None, {"env": gymnasium.make("CartPole-v1")}, "^env: expected the id of an environment, its class.* object"),
        (None, {"env": toys.coin}, r"register_task\('Name-v0', coin, …\).* env\.id=\"toys:Name-v0\""),
        (None, {"env": "toys:nothing"}, "got toys:nothing. The module toys has no class or function nothing.$"),
        (None, {"env": "toys:Memmory"}, "^env.id: .* has no class or function Memmory. Did you mean Memory"),
        (
            None,
            {"env": "toys:Memmory-v0"},
            "The module toys registers no Memmory-v0. Did you mean Memory-v0",
        ),
        (None, {"env": "toys:Nope-v0"}, r"The module toys registers no Nope-v0\.$"),
        (None, {"env": "toys:__name__"}, "The module toys holds another object instead of a class or function __n"),
    ],
)
def test_a_wrong_environment_is_refused_with_the_words_to_write(experiment, settings, said):
    with pytest.raises(InputError, match=said):
        plan(experiment, **settings)


@pytest.mark.parametrize("name", ["it.h5", "it.champion"])
def test_a_file_of_results_in_place_of_an_experiment_is_named(name, tmp_path):
    path = tmp_path / name
    path.touch()
    with pytest.raises(InputError, match=rf"^experiment: .* file. Give its configuration: evolve.load\('.*{name}'\)"):
        sweep_from_arguments({}, path, None, None, {})


def planned(experiment=None, **settings):
    return plan_from_arguments(experiment, None, None, settings).experiment.config


RANDOM = {"id": "CartPole-v1", "engine": "exact", "randomize": {"length": {"uniform": [0.3, 0.9]}}}


def test_an_empty_table_of_distributions_randomizes_nothing():
    config = planned(env=RANDOM, evaluation_randomize={})
    assert config.evaluation_randomize == {}
    assert config.in_evaluation().env.randomize == {}
    assert planned({"env": RANDOM, "evaluation_randomize": {}}).evaluation_randomize == {}
    assert planned(config, env={"randomize": {}}).env.randomize == {}
    assert config.env.changed({"randomize": {}}).randomize == {}
    assert config.env.changed({"engine": "exact"}).randomize == config.env.randomize
    # The table of a section is merged, also an empty one.
    assert planned(config, env={}).env == config.env


@pytest.mark.parametrize(
    ("grid", "sweep", "settings", "twice"),
    [
        ({"strategy.sigma": [0.1, 0.2]}, {}, {"strategy.sigma": 0.5}, "strategy.sigma"),
        ({}, {"strategy.sigma": [0.1, 0.2]}, {"strategy": {"sigma": 0.5}}, "strategy.sigma"),
        ({"strategy": ["ga", "pgpe"]}, {}, {"strategy": "openai-es"}, "strategy.name"),
        ({"strategy": [{"name": "ga"}, {"name": "pgpe"}]}, {}, {"strategy": {"sigma": 0.5}}, "strategy.sigma"),
    ],
)
def test_a_setting_that_the_sweep_varies_is_refused(grid, sweep, settings, twice):
    with pytest.raises(InputError, match=f"^{twice} is given twice: as a setting, and in the sweep"):
        sweep_from_arguments(grid, {"sweep": sweep}, None, None, settings)


def test_a_section_of_another_configuration_is_a_setting():
    config = planned(env={"id": "Acrobot-v1", "action_scale": 0.5}, network={"name": "mlp", "hidden": [5]})
    assert planned({"env": {"max_episode_steps": 7}}, env=config.env).env == config.env
    assert planned(network=config.network, racing=config.racing).network == config.network
    ((point, varied),) = sweep_from_arguments({"env": [config.env], "network": [config.network]}, None, None, None, {})
    assert (varied.env, varied.network) == (config.env, config.network)
    assert json.loads(json.dumps(point)) == point


def test_settings_of_other_types_are_refused():
    config = planned()
    with pytest.raises(InputError, match=r"^strategy: expected the name of a strategy.* got <evolve\."):
        planned(strategy=plan().experiment.strategy(0))  # it cannot be copied
    with pytest.raises(InputError, match=r"^experiment: expected settings whose names are texts, got 1"):
        planned({1: 2})
    with pytest.raises(InputError, match=r"^grid: expected a table of lists, .*, got \{1: \[2\]\}"):
        sweep_from_arguments({1: [2]}, config, None, None, {})


def test_a_sweep_varies_a_name_once_and_the_other_settings_of_its_section():
    with pytest.raises(InputError, match=r"^grid: expected either network or network\.name, got both"):
        sweep_from_arguments({"network": ["mlp", "elman"], "network.name": ["lstm"]}, None, None, None, {})
    settings = {"network": {"hidden": [3]}, "env.kwargs": {"gravity": 9.0}}
    found = sweep_from_arguments({"network": ["mlp", "elman"], "env.kwargs.length": [0.3]}, None, None, None, settings)
    assert [config.network.table()["hidden"] for _, config in found] == [[3], [3]]
    assert found[0][1].env.kwargs == {"gravity": 9.0, "length": 0.3}


def test_a_sweep_accepts_columns_of_a_data_frame():
    table = pandas.DataFrame({"seed": [3, 4], "population": [8, 12], "normalized": [True, False]})
    grid = {"population": table["population"], "normalize_observations": table["normalized"]}
    found = sweep_from_arguments(grid, None, table["seed"], None, {})
    points = [(config.population, config.normalize_observations) for _, config in found]
    assert points == [(8, True), (8, False), (12, True), (12, False)]
    assert {config.seeds for _, config in found} == {(3, 4)}


def test_a_table_of_a_sweep_without_a_name_keeps_the_network():
    def names(grid, experiment, **settings):
        found = sweep_from_arguments(grid, experiment, None, None, settings)
        return [(config.network.name, *config.network.options.hidden) for _, config in found]

    grid = {"network": [{"hidden": [3]}, {"hidden": [4]}]}
    assert names(grid, {"network": "mlp"}) == names(grid, None, network="mlp") == [("mlp", 3), ("mlp", 4)]
    config = planned(network={"name": "elman", "hidden": [5]})
    assert names(grid, config) == [("elman", 3), ("elman", 4)]
    mixed = {"network": [{"hidden": [3]}, "mlp"]}
    assert names(mixed, config) == [("elman", 3), ("mlp", 16, 16)]


def test_another_strategy_of_a_whole_configuration_has_its_own_defaults():
    config = planned(strategy={"name": "ga", "weight_noise": 0.3}, network={"name": "mlp", "hidden": [5]})
    other = planned(config, strategy="openai-es")
    assert other.strategy.table() == planned(strategy="openai-es").strategy.table()
    assert other.network == config.network
    assert planned(config, strategy={"name": "ga", "parents": 3}).strategy.options.weight_noise == 0.3
    assert planned(config, strategy={"parents": 3}).strategy.options.weight_noise == 0.3
    for key in ("strategy", "strategy.name"):
        varied = sweep_from_arguments({key: ["ga", "pgpe"]}, config, None, None, {})
        assert [c.strategy.name for _, c in varied] == ["ga", "pgpe"]
        assert varied[0][1].strategy == config.strategy
        assert varied[1][1].strategy == planned(strategy="pgpe").strategy
    grid = {"network": ["mlp"], "network.init_scale": [0.5], "strategy": ["random"]}
    ((_, varied),) = sweep_from_arguments(grid, config, None, None, {"network": {"init_sparsity": 0.1}})
    assert varied.network.table() == config.network.table() | {"init_scale": 0.5, "init_sparsity": 0.1}
    assert planned(config, **{"strategy.name": "openai-es"}) == other
    # Options that were written down are not dropped in silence.
    with pytest.raises(InputError, match="weight_noise"):
        planned({"strategy": {"name": "ga", "weight_noise": 0.3}}, strategy="openai-es")
