"""Kinds that other packages add: found by entry points, and refused when they are no such thing."""

import os

import pytest
from conftest import ROOT

from evolve import store

MODULE = """
from evolve.config import Options
from evolve.strategies.prune import Prune, PruneOptions

class Louder(PruneOptions):
    weight_noise: float = 0.5

louder, wrong = (Louder, Prune), (dict, Prune)
"""


@pytest.fixture
def added(tmp_path):
    """A package, as pip would leave it, that adds strategies; the environment that finds it."""
    info = tmp_path / "site" / "added-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: added\nVersion: 1.0\n")
    points = "louder = added:louder\nwrong = added:wrong\nabsent = added:absent\n"
    (info / "entry_points.txt").write_text(f"[evolve.strategy]\n{points}")
    (tmp_path / "site" / "added.py").write_text(MODULE)
    return {"PYTHONPATH": f"{ROOT}:{tmp_path / 'site'}"}


def test_an_added_strategy_evolves_and_verifies(command, added):
    quick = ("-p", 6, "-r", 1, "-g", 2, "-d", 2, "--set", "held_out_episodes=0")
    done = command("run", *quick, "--strategy", "louder", "-o", "a", **added)
    assert done.code == 0, done.err
    noisy = ("--strategy", "prune", "--set", "strategy.weight_noise=0.5", "-o", "b")
    digest = done.out.split()[-1]
    assert command("run", *quick, *noisy).out.split()[-1] == digest
    assert command("verify", "a/seed-0.h5", "--full", ranks=3, **added).code == 0
    refused = command("verify", "a/seed-0.h5")  # where the package is not installed
    assert refused.code == 2
    assert "a known strategy, got louder" in refused.err


@pytest.mark.parametrize(
    ("name", "message"),
    [("wrong", "expected added:wrong to be a pair (options, kind)"), ("absent", "which cannot be loaded"),
     ("lauder", "Did you mean louder?")],
)  # fmt: skip
def test_what_is_no_strategy_is_refused(command, added, name, message):
    done = command("run", "--strategy", name, **added)
    assert (done.code, message in done.err, done.err.count("\n")) == (2, True, 1), done.err


def test_the_example_of_an_added_network_and_strategy(command, outside, tmp_path):
    """From a directory without the example, as where pip has installed it."""
    there = {"PYTHONPATH": os.pathsep.join([str(ROOT), outside])}
    small = ("-a", "leaky", "--strategy", "hill-climber", "-p", 12, "-r", 2, "-g", 6)
    one = command("run", *small, "--set", "strategy.weight_noise=0.5", "-o", "one", **there)
    assert one.code == 0, one.err
    command("run", *small, "--set", "strategy.weight_noise=0.5", "-o", "three", ranks=3, **there)
    assert command("verify", "one/seed-0.h5", "three/seed-0.h5").code == 0
    records = store.read(tmp_path / "one" / "seed-0.h5").records
    assert records[-1].returns.mean() > records[0].returns.mean()
    assert "strategy.weight_noise" in command("run", *small, "--set", "strategy.weight_noise=-1.0", **there).err
