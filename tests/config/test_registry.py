"""Networks and strategies by name: validated once; those of other packages are found by entry points."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT, environment

from evolve import store
from evolve.config import Choice, Config, Options, parse
from evolve.config.registry import Registry
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.networks import NETWORKS, Network
from evolve.networks.layered import MlpOptions
from evolve.strategies import STRATEGIES


@pytest.mark.parametrize(
    ("kinds", "table", "argument", "got", "hint"),
    [
        (NETWORKS, {"name": "lin"}, "network.name", "lin", "Known: binary-mask-mlp, dag, "),
        (NETWORKS, {"name": "elmann"}, "network.name", "elmann", "Did you mean elman? Known: binary-mask-mlp"),
        (NETWORKS, {"name": "mlp", "hidden": 8}, "network.hidden", "8", "[1, 4]"),
        (NETWORKS, {"name": "hebbian-lstm", "hidden": [8, 8]}, "network.hidden", "[8, 8]", "at most 1"),
        (STRATEGIES, {"name": "prune", "uniform_pruning": float("nan")}, "strategy.uniform_pruning", "nan", "finite"),
    ],
)
def test_errors_name_the_option_its_value_and_a_hint(kinds, table, argument, got, hint):
    with pytest.raises(InputError) as wrong:
        kinds.parse(table)
    assert (wrong.value.argument, wrong.value.got, hint in str(wrong.value)) == (argument, got, True)


def test_a_section_becomes_a_choice_with_every_default():
    found = NETWORKS.parse({"name": "mlp", "hidden": [3]})
    assert found == Choice("mlp", MlpOptions(hidden=(3,)))
    assert found.table() == {"name": "mlp", "hidden": [3], "init_scale": 1.0, "init_sparsity": 0.0}
    assert NETWORKS.parse(found) is found
    assert NETWORKS.parse(found.table()) == found


def test_an_experiment_takes_tables_and_choices():
    config = Config(network={"name": "mlp", "hidden": [3]})
    assert config.network.options.hidden == (3,)
    assert Config(network=config.network) == parse(Config, {"network": config.network.table()}) == config
    assert parse(Config, {"network": {"hidden": [3]}}).network.name == Config().network.name
    assert config.strategy.name == "prune"
    assert config.model_dump(mode="json")["network"] == config.network.table()


def test_an_unknown_kind_can_be_looked_at_but_not_made():
    table = {
        "network": {"name": "absent", "hidden": [3], "deep": {"x": 1.5}},
        "strategy": {"name": "ga", "parents": -1},
    }
    with pytest.raises(InputError, match=r"network\.name: .* known network, got absent\..* Or install the package"):
        parse(Config, table)
    config = parse(Config, table, lenient=True)
    assert config.network.name == "absent"
    assert config.network.options.hidden == [3]
    assert {section: config.model_dump(mode="json")[section] for section in table} == table
    assert parse(Config, config.model_dump(mode="json", exclude_none=True), lenient=True) == config
    with pytest.raises(InputError, match=r"network: expected text, finite numbers"):
        parse(Config, {"network": {"name": "absent", "x": [float("nan")]}}, lenient=True)
    with pytest.raises(InputError, match="got absent"):
        NETWORKS.make(config.network, 4, 2)
    with pytest.raises(InputError, match=r"strategy\.parents"):
        STRATEGIES.parse(config.strategy)


@pytest.mark.parametrize("name", [None, 3, ""])
def test_a_section_without_a_name_is_refused_even_where_it_is_looked_at(name):
    with pytest.raises(InputError, match=r"network(\.name)?: expected|a known network"):
        NETWORKS.parse({"name": name}, lenient=name != "")


def test_a_class_in_place_of_a_name_is_refused_with_the_cure():
    with pytest.raises(InputError, match=r"a table with its name and settings, got .*HillClimber.*evolve\.strategy"):
        STRATEGIES.parse(type("HillClimber", (), {}))


def test_a_registry_that_was_not_imported_is_asked_for():
    code = "from evolve.config import Config; Config()"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert "RuntimeError: there is no registry for the section [network] yet: import its package" in done.stderr


class Whole:
    """A contract."""

    def begin(self):
        """A part of it."""


class Shy:
    """An added kind that keeps nothing."""

    def __init__(self, options):
        pass

    @staticmethod
    def validate(options, *arguments):
        raise InputError("shy.size", f"less than {arguments[0]}", options.size)


class ShyOptions(Options):
    size: int = 7
    limit: int | None = 7
    end: int | None = None


def test_a_kind_may_refuse_options_in_new_runs(monkeypatch):
    monkeypatch.setattr("evolve.config.registry.REGISTRIES", {})
    kinds = Registry("shy", {"shy": (ShyOptions, Shy), "mute": (ShyOptions, Whole)}, Whole)
    assert list(kinds) == ["shy", "mute"]
    assert isinstance(kinds.make({"name": "shy"}), Shy)
    assert kinds.options_class({"name": "shy", "size": "wrong"}) is ShyOptions
    assert kinds.kind({"name": "shy"}) is Shy
    kinds.validate({"name": "mute"}, 5)
    with pytest.raises(InputError) as wrong:
        kinds.validate({"name": "shy"}, 5)
    assert (wrong.value.argument, wrong.value.got) == ("shy.size", "7")
    assert kinds.parse({"name": "shy", "end": None}).table() == {"name": "shy", "size": 7, "limit": 7}
    with pytest.raises(InputError, match=r"^shy\.limit: expected a value, because TOML has no None, got None"):
        kinds.parse({"name": "shy", "limit": None})


def test_an_error_of_a_kind_names_the_kind():
    def init():
        return Genomes(np.zeros((1, 3)), np.ones((1, 3), np.bool_))

    with pytest.raises(InputError) as wrong, NETWORKS.as_input_error({"name": "leaky"}, "init"):
        init()
    assert wrong.value.argument == "network.name"
    assert "evolve.networks.network" in wrong.value.expected
    assert all(word in wrong.value.got for word in ("leaky", "init", "ValueError", "[1, 3] float64"))
    plugin = {}
    exec(compile("\n\ndef grow(): return 1 / 0", f"{ROOT}/evolve_plugin.py", "exec"), plugin)
    with pytest.raises(InputError, match=r"line 3 of evolve_plugin\.py"), NETWORKS.as_input_error({"name": "own"}, ""):
        plugin["grow"]()
    refused = InputError("network.leak", "at most 1", 2)
    with pytest.raises(InputError) as same, NETWORKS.as_input_error({"name": "leaky"}, "init"):
        raise refused
    assert same.value is refused


MODULE = """
from evolve.config import Options
from evolve.networks.layered import Mlp, MlpOptions
from evolve.strategies import Strategy
from evolve.strategies.prune import Prune, PruneOptions

class Louder(PruneOptions):
    weight_noise: float = 0.5

class Mute(Strategy):
    def __init__(self, options, network, population, seed):
        pass
    start = ask = tell = champion = lambda *words: None

class Stranger:
    def __init__(self, *words):
        pass

class Still(Mlp):
    def batch(self, slots, backend):
        return Stranger()

louder, wrong, mute, still = (Louder, Prune), (dict, Prune), (Options, Mute), (MlpOptions, Still)
stranger = (Options, Stranger)
"""


@pytest.fixture
def added(tmp_path):
    """A package, as pip would leave it, that adds strategies; the environment that finds it."""
    info = tmp_path / "site" / "added-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: added\nVersion: 1.0\n")
    names = "louder", "wrong", "absent", "mute", "stranger"
    points = "\n".join(f"{name} = added:{name}" for name in names)
    networks = "mlp = added:louder\nstill = added:still\n"
    (info / "entry_points.txt").write_text(f"[evolve.strategy]\n{points}\n[evolve.network]\n{networks}")
    (tmp_path / "site" / "added.py").write_text(MODULE)
    return {"PYTHONPATH": f"{ROOT}:{tmp_path / 'site'}"}


def test_an_added_strategy_evolves_and_verifies(call, command, added, tmp_path):
    quick = ("-p", 6, "-r", 1, "-g", 2, "-d", 2, "--set", "held_out_episodes=0")
    command("run", *quick, "--strategy", "louder", "-o", "a", **added).ok()
    noisy = ("--strategy", "prune", "--set", "strategy.weight_noise=0.5", "-o", "b")
    call("run", *quick, *noisy).ok()
    ours, theirs = (store.read(tmp_path / name / "seed-0.h5").records[-1].digest for name in "ab")
    assert ours == theirs
    command("verify", "a/seed-0.h5", "--full", ranks=2, **added).ok()
    call("verify", "a/seed-0.h5").refused("a known strategy, got louder")  # where the package is not installed


@pytest.mark.parametrize(
    ("name", "message"),
    [("wrong", "expected added:wrong to be a pair (options, kind)"), ("absent", "which cannot be loaded"),
     ("lauder", "Did you mean louder?"),
     ("mute", "contract (evolve.strategies.strategy), got mute, whose Mute has no from_arrays and no to_arrays."),
     ("stranger", "got stranger, whose Stranger is not a subclass of Strategy.")],
)  # fmt: skip
def test_an_invalid_strategy_is_refused(command, added, name, message, tmp_path):
    command("run", "--strategy", name, "-o", "out", **added).refused(message)
    assert not (tmp_path / "out").exists()


def test_a_network_with_batches_that_break_the_contract_is_refused(command, added):
    message = "(evolve.networks.network), got still, whose Stranger has no load and no move and no step and no traces."
    command("run", "-a", "still", **added).refused(message)


def test_an_added_kind_with_the_name_of_a_built_in_one_is_ignored_aloud(command, added):
    quick = ("-a", "mlp", "-p", 4, "-r", 1, "-g", 1, "-s", 1, 2, "--set", "held_out_episodes=0")
    done = command("run", *quick, ranks=2, **added)
    warning = "network.name: mlp is evolve's own, not added:louder of the package added, which needs another"
    assert (done.code, (done.err + done.out).count(warning)) == (0, 1), done.err


def test_two_packages_that_add_the_same_name_are_refused(command, added, tmp_path):
    other = tmp_path / "site" / "other-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2.0\n")
    (other / "entry_points.txt").write_text("[evolve.strategy]\nlouder = other:louder\n")
    done = command("run", "--strategy", "louder", "-o", "out", **added)
    both = [f"{name}:louder of the package {name}" for name in ("added", "other")]
    got = "strategy.name (--strategy): expected a name that one package adds, got louder, which is"
    said = [f"{got} {' and '.join(order)}. Uninstall all but one." for order in (both, both[::-1])]
    assert (done.code, any(words in done.err for words in said), done.err.count("\n")) == (2, True, 1), done.err


def test_the_example_of_an_added_network_and_strategy(call, command, outside, tmp_path):
    """From a directory without the example, as where pip has installed it."""
    there = {"PYTHONPATH": os.pathsep.join([str(ROOT), outside])}
    small = ("-a", "leaky", "--strategy", "hill-climber", "-p", 12, "-r", 2, "-g", 6, "--set", "held_out_episodes=2")
    call("run", *small, "--set", "strategy.weight_noise=0.5", "-o", "one").ok()
    command("run", *small, "--set", "strategy.weight_noise=0.5", "-o", "two", ranks=2, **there)
    call("verify", "one/seed-0.h5", "two/seed-0.h5").ok()
    records = store.read(tmp_path / "one" / "seed-0.h5").records
    assert records[-1].returns.mean() > records[0].returns.mean()
    assert "strategy.weight_noise" in call("run", *small, "--set", "strategy.weight_noise=-1.0").err


def test_a_kind_needs_no_package_if_it_is_named_with_its_module(call, command, tmp_path):
    shutil.copy(ROOT / "examples" / "outside" / "outside.py", tmp_path / "mine.py")
    small = (
        "-a",
        "mine:leaky",
        "--strategy",
        "mine:hill_climber",
        "-p",
        4,
        "-r",
        1,
        "-g",
        2,
        "--set",
        "held_out_episodes=2",
    )
    command("run", *small, "-o", "one", ranks=2).ok()
    command("run", *small, "-g", 1, "-o", "two").ok()
    command("run", "--resume", "-g", 2, "two/seed-0.h5").ok()
    command("verify", "one/seed-0.h5", "two/seed-0.h5").ok()
    run = store.read(tmp_path / "one" / "seed-0.h5")
    assert "mine" in run.header.manifest["modules"]
    done = command("run", "--strategy", "mine:climber", "-o", "three")
    done.refused("expected mine:climber to be a pair (options, kind)")
    assert "no attribute 'climber'" in done.err
    call("run", "--strategy", "nowhere:at_all", "-o", "three").refused(
        "No module named 'nowhere'). Modules are looked for in the working directory and on PYTHONPATH."
    )


def test_a_strategy_that_fails_later_ends_the_run_with_one_line(command, outside, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import outside\n\nclass Climber(outside.HillClimber):\n    played = 0\n\n    def tell(self, *given):\n"
        "        Climber.played += given[2].fitness.min() > 5  # not the made-up results of the check\n"
        "        assert Climber.played < 2\n        return super().tell(*given)\n\n"
        "climber = outside.HillClimberOptions, Climber\n"
    )
    small = ("--engine", "exact", "-e", "CartPole-v1", "-p", 4, "-r", 1, "-g", 9, "-s", 1, "-o", "out")
    there = {"PYTHONPATH": os.pathsep.join([str(ROOT), outside])}
    done = command("run", "--strategy", "mine:climber", *small, **there)
    fault = "whose tell fails (AssertionError, line 8 of mine.py). 1 generation is complete in out/seed-1.h5."
    assert (done.code, fault in done.err, done.err.count("\n")) == (2, True, 1), done.err


def test_an_error_names_a_line_of_the_user_and_none_of_pydantic():
    fault = r"'Options' object has no attribute 'nothing', line \d+ of test_registry\.py"
    with pytest.raises(InputError, match=fault), STRATEGIES.as_input_error({"name": "mine:climber"}, "tell"):
        Options().nothing  # noqa: B018


def test_properties_of_added_kinds_may_raise_until_they_are_needed():
    class Odd:
        def __getattr__(self, name):
            if name == "blocks":
                raise ZeroDivisionError
            raise AttributeError(name)

    with pytest.raises(InputError) as wrong:
        NETWORKS.check({"name": "odd"}, Odd(), Network)
    assert "no init and no num_traces" in str(wrong.value)
    assert "blocks" not in str(wrong.value)
