"""The zoo: small files of the experiments' champions, equal here, with the digests that are published."""

import importlib.util
import json

import numpy as np
import pytest
from conftest import ROOT

import evolve
from evolve.config import differences
from evolve.config.documents import read_file
from evolve.config.sweep import experiments
from evolve.training import prepare
from evolve.verification.comparison import PUBLISHED

ZOO = {path.stem: path for path in sorted((ROOT / "zoo").iterdir())}
CARDS = (ROOT / "docs" / "zoo.md").read_text()
NEVER_DRAWN = {"cues", "reversal", "reversal-long", "tmaze", "bandit"}  # so there is no film of them


def published():
    """Return the published digests of first seeds, by experiment."""
    known = json.loads(PUBLISHED.read_text())
    return {name: experiment["results"][0]["digest"] for name, experiment in known.items()}


def test_the_zoo_has_what_is_published():
    assert set(ZOO) == set(published()) - NEVER_DRAWN
    assert all(path.suffix == ".champion" and path.stat().st_size <= 200_000 for path in ZOO.values())


@pytest.mark.parametrize("name", sorted(ZOO))
def test_digests_are_those_published(name):
    assert evolve.load(ZOO[name]).digest == published()[name]


@pytest.mark.parametrize("name", ZOO)
def test_champions_are_of_their_experiments(name):
    path = ROOT / "experiments" / f"{name}.toml"
    (config,) = experiments(read_file(path), str(path))
    champion = evolve.load(ZOO[name])
    assert differences(prepare(config).config, prepare(champion.config).config) == []
    assert champion.seed == config.seeds[0]


@pytest.mark.parametrize("name", ["acrobot", "car", "cartpole", "lander"])
def test_champions_score_here_what_they_scored(name):
    """A few episodes each; `evolve verify zoo/*` plays all."""
    champion = evolve.load(ZOO[name])
    episodes = 5
    assert np.array_equal(champion.evaluate(episodes).returns, champion.held_out.returns[:episodes])


def test_the_cards_are_those_of_the_files(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("zoo_cards", ROOT / "experiments" / "zoo.py")
    cards = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cards)
    monkeypatch.setattr(cards, "PAGE", tmp_path / "zoo.md")
    cards.main([])
    assert (tmp_path / "zoo.md").read_text() == CARDS
    assert set(cards.NAMES) == set(ZOO)
    for name in ZOO:
        assert (ROOT / "docs" / "films" / f"{name}.gif").stat().st_size < 2_000_000
