"""Every strategy of the registry in the real commands: run, resume, verify; and against random search."""

from functools import cache

import pytest
from conftest import run_on

import evolve
from evolve import store
from evolve.strategies import STRATEGIES

SMALL = ("-e", "CartPole-v1", "-p", 7, "-r", 2, "-d", 3, "-s", 4,
         "--set", "env.max_episode_steps=60", "--set", "held_out_episodes=3")  # fmt: skip


@pytest.fixture(scope="module")
def farmed(tmp_path_factory):
    """Runs of all strategies, one after another on the same two ranks."""
    where = tmp_path_factory.mktemp("farmed")
    run_on(2, *SMALL, "-g", 3, "--set", f"sweep.strategy.name={[*STRATEGIES]}", "-o", "whole", where=where)
    return where / "whole"


@pytest.fixture(scope="module")
def by_default(tmp_path_factory):
    """A function that returns the held-out mean of a strategy with its defaults, on CartPole with an MLP."""
    few = {"env": {"id": "CartPole-v1", "engine": "exact"}, "network": "mlp", "generations": 50, "seeds": [1]}

    @cache
    def mean(name):
        return evolve.train(few, strategy=name, output=tmp_path_factory.mktemp(name)).held_out.mean

    return mean


@pytest.mark.parametrize("name", ["ga", "openai-es", "pgpe", "prune", "sep-cma-es", "umda"])
def test_defaults_are_not_behind_random_search(name, by_default):
    """`experiments/defaults.toml` compares more, on three tasks. These have the same bits on every machine."""
    assert by_default(name) >= by_default("random")


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_a_resumed_run_ends_as_an_uninterrupted_one_and_verifies(farmed, call, tmp_path, name):
    words = (*SMALL, "--strategy", name)
    for done in (
        call("run", *words, "-g", 2, "-o", "parts"),
        call("run", *words, "-g", 3, "-o", "parts", "--resume"),
    ):
        assert done.code == 0, done.err
    whole, parts = (store.read(store.path_of(at, 4)) for at in (farmed / f"name={name}", tmp_path / "parts"))
    assert [r.digest for r in whole.records] == [r.digest for r in parts.records]
    assert whole.held_out.returns.tolist() == parts.held_out.returns.tolist()
    call("verify", parts.path, "--full").ok()
