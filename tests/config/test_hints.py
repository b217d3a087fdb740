"""Advice for the names of other tools."""

import tomllib

import pytest
from conftest import ROOT

from evolve.config import Config
from evolve.config.options import UnknownKeyError, fold, parse, suggest
from evolve.config.registry import advice
from evolve.errors import InputError
from evolve.networks import NETWORKS
from evolve.strategies import STRATEGIES


def hint(key, strategy="prune", network="mlp"):
    return advice(key, {"strategy": {"name": strategy}, "network": {"name": network}}, Config.model_fields)


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("popsize", "population"),
        ("pop_size", "population"),
        ("num_generations", "generations"),
        ("n_eval_episodes", "held_out_episodes"),
        ("total_timesteps", "early_stop.steps"),
        ("env_id", "env.id"),
        ("enviroment", "env.id"),
        ("env.name", "env.id"),
        ("policy", "network"),
        ("algorithm", "strategy"),
        ("batch_size", "population"),
        ("device", "compute.backend"),
        ("network.hidden_sizes", "network.hidden"),
        ("env.max_steps", "env.max_episode_steps"),
        ("hiden", "network.hidden"),
        ("weight_nois", "strategy.weight_noise"),
        ("populaton", "population or least_population"),
    ],
)
def test_names_of_other_tools_are_translated(key, ours):
    assert hint(key) == f"Did you mean {ours}?"


def test_a_setting_of_another_strategy_names_the_strategies_that_have_it():
    for key in ("strategy.lr", "strategy.learning_rate", "lr"):
        found = hint(key, strategy="ga")
        assert "strategy.learning_rate" in found
        assert "is a setting of openai-es, pgpe. Settings of ga: starts, " in found
        assert "weight_noise" in found  # a setting that ga has
    chosen = {"strategy": STRATEGIES.parse({"name": "ga"}), "network": {"name": "mlp"}}
    assert "Settings of ga: starts, " in advice("lr", chosen, Config.model_fields)
    assert hint("strategy.lr", strategy="openai-es") == "Did you mean strategy.learning_rate?"
    assert hint("strategy.mutation_rate", strategy="ga") == "Did you mean strategy.weight_noise?"
    assert hint("strategy.radius_init", strategy="pgpe") == "Did you mean strategy.initial_radius?"
    assert "strategy.sigma_learning_rate is a setting of pgpe." in hint("strategy.stdev_learning_rate", strategy="snes")
    assert "strategy.optimizer is a setting of openai-es. Settings of pgpe: " in hint(
        "strategy.optimizer", strategy="pgpe"
    )


def test_a_table_has_no_seed():
    with pytest.raises(InputError, match=r"no setting seed\. A file lists .* evolve\.train takes the argument seed=1"):
        parse(Config, {"seed": 1})
    with pytest.raises(InputError, match=r"no setting seed\. A file lists .* evolve\.train takes the argument seed=1"):
        Config(seed=1)


@pytest.mark.parametrize("key", ["workers", "n_workers", "n_envs", "n_jobs", "num_processes"])
def test_the_number_of_workers_is_an_argument(key):
    assert "--workers N" in hint(key)


def test_every_proposed_setting_exists():
    """The keys that advice proposes are settings of an experiment, of a network or of a strategy."""
    from evolve.config.registry import foreign_names

    names = {name for kinds in (NETWORKS, STRATEGIES) for kind in kinds for name in kinds.options_class(
        {"name": kind}).model_fields}  # fmt: skip
    for ours in foreign_names().values():
        if " " in ours or ours in names:
            continue
        section, _, name = ours.rpartition(".")
        table = Config.model_fields[section].annotation.model_fields if section else Config.model_fields
        assert name in table, ours


def test_the_names_in_other_tools_are_installed_with_the_package():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "foreign_names.toml" in table["tool"]["setuptools"]["package-data"]["evolve.config"]


def test_no_advice_for_a_name_without_a_meaning():
    assert hint("zzz") == ""
    with pytest.raises(UnknownKeyError, match=r"there is no setting zzz\.$"):
        parse(Config, {"zzz": 1})


@pytest.mark.parametrize(
    ("registry", "theirs", "ours"),
    [
        (NETWORKS, "MLP", "mlp"),
        (NETWORKS, "MlpPolicy", "mlp"),
        (NETWORKS, "Plastic_MLP", "plastic-mlp"),
        (NETWORKS, "RNN", "elman"),
        (NETWORKS, "RecurrentNetwork", "elman"),
        (STRATEGIES, "Open_ES", "openai-es"),
        (STRATEGIES, "OpenES", "openai-es"),
        (STRATEGIES, "CMA-ES", "cma-es"),
        (STRATEGIES, "CMAES", "cma-es"),
        (STRATEGIES, "SteadyStateGA", "ga"),
        (STRATEGIES, "SimpleGA", "ga"),
        (STRATEGIES, "PGPE", "pgpe"),
        (STRATEGIES, "SNES", "snes"),
        (STRATEGIES, "CMA-ME", "map-elites"),
    ],
)
def test_kinds_of_other_tools_are_translated(registry, theirs, ours):
    with pytest.raises(InputError) as refused:
        registry.parse({"name": theirs})
    assert refused.value.cure[0].startswith(f"Did you mean {ours}?")


def test_spelling_without_punctuation_and_case():
    assert fold("CMA-ES") == fold("cma_es") == "cmaes"
    assert suggest("CMAES", ["cma-es", "sep-cma-es"]) == "Did you mean cma-es?"


@pytest.mark.parametrize(
    ("key", "argument"),
    [
        ("progres", "argument progress"),
        ("overwite", "argument overwrite"),
        ("resum", "argument resume"),
        ("callback", "callbacks=[function]"),
        ("progress_bar", "progress=True"),
        ("tensorboard_log", 'tensorboard="logs"'),
        ("policy_kwargs", "table of a network"),
    ],
)
def test_arguments_of_train_are_proposed(key, argument):
    assert argument in hint(key)
