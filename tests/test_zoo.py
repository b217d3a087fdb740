"""The zoo: small files of the experiments' champions, with the published digests and returns."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

import evolve
from evolve.config import differences, read_file
from evolve.config.documents import experiments
from evolve.store.champion_file import read_champion
from evolve.training import prepare
from evolve.verification.comparison import PUBLISHED

ZOO = {path.stem: path for path in sorted((ROOT / "zoo").iterdir())}
CARDS = (ROOT / "docs" / "zoo.md").read_text()
NEVER_DRAWN = {"cues", "reversal", "reversal-long", "tmaze", "bandit"}
"""Experiments whose tasks have no picture: there is no film of their champions."""
A_STAGE = {"walker-hardcore-gpu"}
"""walker-hardcore-gpu-far goes on from its champions, and shows its own."""


def published():
    """Return the published digests of first seeds, by experiment."""
    known = json.loads(PUBLISHED.read_text())
    return {name: experiment["results"][0]["digest"] for name, experiment in known.items()}


def test_the_page_counts_the_published_seeds():
    known = json.loads(PUBLISHED.read_text())
    seeds = sum(len(experiment["results"]) for experiment in known.values())
    assert f"| {seeds} seeds, listed in" in (ROOT / "docs" / "results.md").read_text()


def test_the_zoo_has_the_published_champions():
    assert set(ZOO) == set(published()) - NEVER_DRAWN - A_STAGE
    assert all(path.suffix == ".champion" and path.stat().st_size <= 200_000 for path in ZOO.values())


def test_champions_are_those_published():
    """With the published digest, and of their experiment: the same settings, and its first seed."""
    pytest.importorskip("envpool", exc_type=ImportError)  # the system may lack libEGL
    wrong = []
    for name, path in ZOO.items():
        champion, experiment = evolve.load(path), ROOT / "experiments" / f"{name}.toml"
        (config,) = experiments(read_file(experiment), str(experiment))
        if champion.digest != published()[name]:
            wrong.append(f"{name}: digest {champion.digest}, published {published()[name]}")
        if champion.seed != config.seeds[0]:
            wrong.append(f"{name}: seed {champion.seed}, published {config.seeds[0]}")
        here = champion.config.model_copy(update={"compute": config.compute})  # one was made on a GPU
        wrong += [f"{name}: {change}" for change in differences(prepare(config).config, prepare(here).config)]
    assert not wrong, "\n".join(wrong)


def test_champions_name_no_folder_of_the_machine_that_made_them():
    made_on_a_gpu = sorted((ROOT / "benchmarks" / "results" / "gpu").rglob("*.champion"))
    assert made_on_a_gpu
    for path in [*ZOO.values(), *made_on_a_gpu]:
        champion = read_champion(path)
        config = evolve.load(path).config
        named = [*champion.header.manifest["command"], config.output.directory]
        named += [] if config.start_from is None else [config.start_from.file]
        assert not [each for each in named if Path(each).is_absolute()], path


@pytest.mark.parametrize("name", ["acrobot", "car", "cartpole", "lander"])
def test_champions_reach_their_scores_again(name):
    """A few episodes each; `evolve verify zoo/*` plays all."""
    champion = evolve.load(ZOO[name])
    episodes = 5
    assert np.array_equal(champion.evaluate(episodes).returns, champion.held_out.returns[:episodes])


def test_the_cards_are_those_of_the_files(monkeypatch, tmp_path, capsys):
    pytest.importorskip("envpool", exc_type=ImportError)  # the system may lack libEGL
    spec = importlib.util.spec_from_file_location("zoo_cards", ROOT / "experiments" / "zoo.py")
    cards = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cards)
    monkeypatch.setattr(cards, "PAGE", tmp_path / "zoo.md")
    with pytest.raises(SystemExit):
        cards.main(["walkr"])
    assert re.search(r"expected champions .*, got walkr$", capsys.readouterr().err, re.M)
    cards.main([])
    assert (tmp_path / "zoo.md").read_text() == CARDS
    assert set(cards.NAMES) == set(ZOO)
    for name in ZOO:
        assert (ROOT / "docs" / "films" / f"{name}.gif").stat().st_size < 2_000_000
