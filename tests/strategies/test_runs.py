"""Every strategy of the registry in the real commands: run, resume, verify; and against random search."""

import pytest
from conftest import run_on

import evolve
from evolve import store
from evolve.strategies import STRATEGIES

SMALL = ("-e", "CartPole-v1", "--engine", "exact", "-p", 7, "-r", 2, "-d", 3, "-s", 4,
         "--set", "env.max_episode_steps=60", "--set", "held_out_episodes=3")  # fmt: skip


@pytest.fixture(scope="module")
def farmed(tmp_path_factory):
    """Runs of all strategies, one after another on the same two ranks."""
    where = tmp_path_factory.mktemp("farmed")
    run_on(2, *SMALL, "-g", 3, "--set", f"sweep.strategy.name={[*STRATEGIES]}", "-o", "whole", where=where)
    return where / "whole"


@pytest.mark.parametrize(
    ("name", "generations"),
    [
        ("random", 10),
        ("ga", 10),
        ("openai-es", 40),
        ("pgpe", 25),
        ("prune", 10),
        ("sep-cma-es", 15),
        ("snes", 30),
        ("umda", 10),
    ],
)
def test_defaults_are_not_behind_random_search(name, generations, tmp_path):
    """Random search finds the largest return in 10 generations, so in all longer runs.

    `experiments/defaults.toml` compares more, on three tasks. These have the same bits on every machine.
    """
    few = {"env": {"id": "CartPole-v1", "engine": "exact"}, "network": "mlp", "generations": generations, "seeds": [1]}
    assert evolve.train(few, strategy=name, output=tmp_path).held_out.mean == 500


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
