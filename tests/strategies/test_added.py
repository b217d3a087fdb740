"""Strategies of other packages in runs."""

import sys

import numpy as np
import pytest

import evolve
from evolve.errors import InputError

SMALL = {"env": {"id": "CartPole-v1", "engine": "exact"}, "network": "mlp", "population": 6, "episodes": 1}
SMALL |= {"generations": 2, "held_out_episodes": 2}


def trained(name, folder):
    return evolve.train(SMALL, strategy=f"added:{name}", seed=1, output=folder)


def test_a_strategy_may_have_measures_of_its_own(tmp_path, call):
    run = trained("measuring", tmp_path)
    assert run.generations[0].record.measures.shape == (6, 1)
    assert "3 genomes\n" in call("info", run.path).ok().out  # evolve cannot list them
    with pytest.raises(InputError, match=r"^cell: expected a strategy that knows the generation of its elites"):
        run.champion(cell=(1,))


def test_a_strategy_may_be_a_frozen_data_class(tmp_path):
    assert (
        trained("frozen", tmp_path / "a").digest
        == evolve.train(SMALL, strategy="ga", seed=1, output=tmp_path / "b").digest
    )


def test_a_champion_plays_without_the_package_of_its_strategy(tmp_path, monkeypatch):
    exported = trained("changing", tmp_path).export(tmp_path / "a.champion")
    monkeypatch.delitem(sys.modules, "added")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.endswith("helpers")])
    champion = evolve.load(exported)
    assert champion.evaluate(episodes=2).returns.tolist() == champion.held_out.returns.tolist()
    champion.champion().export(tmp_path / "a.c")


def test_changed_code_of_a_strategy_is_the_cause_of_other_genomes(tmp_path, monkeypatch):
    run = trained("changing", tmp_path)
    monkeypatch.setenv("ADDED_SCALE", "0.5")
    verdict = run.verify()
    assert (verdict.equal, verdict.cause) == (False, "strategy")
    assert "strategy of another package" in verdict.why


def test_options_may_have_tuples_of_tuples(tmp_path):
    options = {"name": "added:nested", "ranges": [[5.0, 6.0]], "listed": [[7.0, 8.0]], "optional": [1, 2]}
    run = evolve.train(SMALL, strategy=options, output=tmp_path)
    found = evolve.load(run.path).config.strategy.options
    assert (found.ranges, found.listed, found.optional) == (((5.0, 6.0),), [(7.0, 8.0)], (1, 2))
    assert trained("nested", tmp_path / "b").config.strategy.options.ranges == ((1.0, 2.0), (3.0, 4.0))


@pytest.mark.parametrize(("name", "got"), [("infinite", "limit"), ("named", "the option name")])
def test_options_that_a_run_file_cannot_hold_are_refused(name, got):
    with pytest.raises(InputError, match=rf"^strategy\.name: expected options of added:{name} .* got .*{got}"):
        evolve.train(SMALL, strategy=f"added:{name}")


def test_a_strategy_that_ignores_a_given_genome_is_refused(tmp_path):
    start = np.zeros(evolve.train(SMALL, output=tmp_path).champion().genome.num_weights)
    with pytest.raises(InputError, match=r"whose start fails .*the first state is not the given genome"):
        evolve.train(SMALL, strategy="added:ignoring", start_from=start)


def test_a_validator_of_another_package_is_quoted():
    with pytest.raises(InputError, match=r"^strategy\.v: v must not be five, got 5$"):
        evolve.train(SMALL, strategy={"name": "added:checked", "v": 5})
