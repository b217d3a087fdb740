"""Kinds that other packages add: found by entry points, and refused when they are no such thing."""

import os

import pytest
from conftest import ROOT

from evolve import store
from evolve.errors import InputError
from evolve.networks import NETWORKS
from evolve.strategies import STRATEGIES, Strategy


@pytest.mark.parametrize(
    ("kinds", "table", "message"),
    [
        (NETWORKS, {"name": "lin"}, "network.name (-a/--agent): expected a known network, got lin. Known: dag, "),
        (NETWORKS, {"name": "elmann"}, "got elmann. Did you mean elman? Known: dag, elman"),
        (NETWORKS, {"name": "mlp", "hidden": 8}, "(-d/--hidden): expected a list, such as [1, 4], got 8."),
        (NETWORKS, {"name": "hebbian-lstm", "hidden": [8, 8]}, "expected a list of at most 1, got [8, 8]."),
        (STRATEGIES, {"name": "prune", "uniform_pruning": float("nan")},
         "strategy.uniform_pruning: expected a finite number or text, got nan."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_plainly(kinds, table, message):
    with pytest.raises(InputError) as wrong:
        kinds.options(table)
    assert message in str(wrong.value)


MODULE = """
from evolve.config import Options
from evolve.networks.mlp import Mlp, MlpOptions
from evolve.strategies.prune import Prune, PruneOptions

class Louder(PruneOptions):
    weight_noise: float = 0.5

class Mute:
    def __init__(self, options, network, population, seed):
        pass
    start = ask = tell = champion = lambda *words: None

class Still(Mlp):
    def batch(self, slots, backend):
        return Mute(None, None, 0, 0)

louder, wrong, mute, still = (Louder, Prune), (dict, Prune), (Options, Mute), (MlpOptions, Still)
"""


@pytest.fixture
def added(tmp_path):
    """A package, as pip would leave it, that adds strategies; the environment that finds it."""
    info = tmp_path / "site" / "added-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: added\nVersion: 1.0\n")
    names = "louder", "wrong", "absent", "mute"
    points = "\n".join(f"{name} = added:{name}" for name in names)
    networks = "mlp = added:louder\nstill = added:still\n"
    (info / "entry_points.txt").write_text(f"[evolve.strategy]\n{points}\n[evolve.network]\n{networks}")
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
     ("lauder", "Did you mean louder?"),
     ("mute", "contract (evolve.strategies.contract), got mute, whose Mute has no to_arrays and no from_arrays.")],
)  # fmt: skip
def test_what_is_no_strategy_is_refused(command, added, name, message, tmp_path):
    done = command("run", "--strategy", name, "-o", "out", **added)
    assert (done.code, message in done.err, done.err.count("\n")) == (2, True, 1), done.err
    assert not (tmp_path / "out").exists()


def test_a_network_whose_batches_do_not_keep_the_contract_is_refused(command, added):
    done = command("run", "-a", "still", **added)
    message = "(evolve.networks.contract), got still, whose Mute has no load and no move and no step and no traces."
    assert (done.code, message in done.err, done.err.count("\n")) == (2, True, 1), done.err


def test_an_added_kind_with_the_name_of_a_built_in_one_is_ignored_aloud(command, added):
    quick = ("-a", "mlp", "-p", 4, "-r", 1, "-g", 1, "-s", 1, 2, "--set", "held_out_episodes=0")
    done = command("run", *quick, ranks=2, **added)
    told = "network.name (-a/--agent): mlp is evolve's own, not added:louder of the package added, which needs another"
    assert (done.code, (done.err + done.out).count(told)) == (0, 1), done.err


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


def test_properties_of_added_kinds_may_raise_until_they_are_needed():
    class Odd:
        def __getattr__(self, name):
            if name == "start":
                raise ZeroDivisionError
            raise AttributeError(name)

    with pytest.raises(InputError) as wrong:
        STRATEGIES.check({"name": "odd"}, Odd(), Strategy)
    assert "no ask and no tell" in str(wrong.value)
    assert "start" not in str(wrong.value)
