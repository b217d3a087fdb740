import contextlib
import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.config import (
    Config,
    EnvOptions,
    Options,
    annotated_toml,
    assignments,
    differences,
    parse,
    read_assignment,
    read_file,
    read_table,
    seconds,
    set_key,
    suggest,
)
from evolve.config.documents import experiments
from evolve.config.options import UnknownKeyError
from evolve.environments import kwargs_model
from evolve.errors import InputError
from evolve.networks import NETWORKS
from evolve.strategies import STRATEGIES
from evolve.strategies.prune import PruneOptions


def test_toml_round_trip_spells_out_every_default():
    config = parse(Config, {"population": 10, "env": {"id": "Pendulum-v1", "kwargs": {"g": 9.0}}, "seeds": [3, 1]})
    text = config.to_toml()
    assert parse(Config, read_table(text, "it")) == config
    table = tomllib.loads(text)
    assert table["population"] == 10
    assert table["episodes"] == Config().episodes
    assert set(table) == {key for key, value in config if value is not None}
    assert table["network"] == {"name": "hebbian-dag"} | NETWORKS.parse({"name": "hebbian-dag"}).options.model_dump(
        mode="json"
    )


@pytest.mark.parametrize(
    ("table", "argument", "limit"),
    [
        ({"population": 1}, "population", "2"),
        ({"population": 2**31}, "population", "2,147,483,648"),
        ({"env": {"max_episode_steps": 2**31}}, "env.max_episode_steps", "less than 2,147,483,648"),
        ({"early_max_episode_steps": 2**31}, "early_max_episode_steps", "2,147,483,648"),
        ({"evaluation_max_episode_steps": 2**31}, "evaluation_max_episode_steps", "2,147,483,648"),
        ({"seeds": [2**63]}, "seeds.0", "9,223,372,036,854,775,808"),
        ({"compute": {"slots": 65537}}, "compute.slots", "65,536"),
        ({"episode_cap": 1.0}, "episode_cap", "1"),
        ({"racing": {"keep": 1.0}}, "racing.keep", "1"),
        ({"connection_cost": -0.5}, "connection_cost", "0"),
        ({"population": 2.5}, "population", "a whole number"),
        ({"population": True}, "population", "a whole number"),
        ({"episodes": 0}, "episodes", "1"),
        ({"generations": "7"}, "generations", "a whole number"),
        ({"seeds": []}, "seeds", "1"),
        ({"seeds": [-1]}, "seeds.0", "0"),
        ({"seeds": [5, 5]}, "seeds", "different"),
        ({"env": 5}, "env", "the id alone, or a table with id, engine"),
        ({"output": 5}, "output", "the directory alone, or a table with directory, genomes"),
        ({"env": {"id": "\udcff"}}, "env.id", "text in UTF-8"),
        ({"env": {"engine": "unity"}}, "env.engine", "'gymnasium'"),
        ({"compute": {"slots": 0}}, "compute.slots", "1"),
        ({"compute": {"time_limit": "soon"}}, "compute.time_limit", "23h50m"),
        ({"network": 3}, "network", "a table"),
        ({"env": {"wrappers": [{"name": "a b"}]}}, "env.wrappers.0.name", "wrapper"),
        ({"env": {"action_scale": float("nan")}}, "env.action_scale", "finite"),
        ({"seeds": 3}, "seeds", "[1, 4]"),
        ({"env": {"metrics": "x"}}, "env.metrics", 'a list of names, such as ["x"]'),
        ({"env": {"wrappers": "a:b"}}, "env.wrappers", "a list, each the name alone, or a table with name, kwargs"),
        ({"network": {"name": "mlp", "hidden": "8"}}, "network.hidden", "[1, 4]"),
        ({"racing": {"rounds": "1,4"}}, "racing.rounds", "[1, 4]"),
        ({"env": {"reuse": 7}}, "env.reuse", "true or false or 'auto'"),
        ({"env": {"wrappers": [5]}}, "env.wrappers.0", "the name alone, or a table with name, kwargs"),
        # A run file could not keep these.
        ({"env": {"kwargs": {"n": 2**63}}}, "env.kwargs", "numbers of at most 64 bits"),
        ({"env": {"kwargs": {"names": {1: "one"}}}}, "env.kwargs", "tables"),
        ({"compute": {"time_limit": -1}}, "compute.time_limit", "a number of seconds"),
        ({"compute": {"time_limit": True}}, "compute.time_limit", "a number of seconds"),
        ({"fitness": ["mean"]}, "fitness", "quantile:0.25"),
        ({"strategy": None}, "strategy", "the name of a strategy"),
        ({"env": {5: 1}}, "env.5", "a name that is a text"),
    ],
)
def test_wrong_settings_are_refused_with_one_plain_line(table, argument, limit):
    with pytest.raises(InputError) as wrong:
        parse(Config, table)
    assert wrong.value.argument == argument
    assert limit in wrong.value.expected
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    ("table", "unknown", "meant"),
    [
        ({"populaton": 5}, "populaton", "population or least_population"),
        ({"env": {"kwarg": {}}}, "env.kwarg", "kwargs"),
        ({"env": {"wrappers": [{"name": "a:b", "kwarg": {}}]}}, "env.wrappers.0.kwarg", "kwargs"),
        ({"weight_noise": 0.3}, "weight_noise", "strategy.weight_noise"),
        ({"network": {"weight_noise": 0.3}}, "network.weight_noise", "strategy.weight_noise"),
        ({"strategy": {"name": "ga", "hidden": [4]}}, "strategy.hidden", "network.hidden"),
        ({"env": {"population": 9}}, "env.population", "population"),
        ({"slots": 9}, "slots", "compute.slots"),
        ({"name": "dag"}, "name", "network.name or strategy.name"),
        (
            {"network": {"name": "mlp", "weight_noise": 0.3}, "strategy": "ga"},
            "network.weight_noise",
            "strategy.weight_noise",
        ),
    ],
)
def test_a_setting_of_a_similar_name_or_another_section_is_proposed(table, unknown, meant):
    with pytest.raises(UnknownKeyError) as wrong:
        parse(Config, table)
    assert wrong.value.argument == unknown
    assert f"Did you mean {meant}?" in str(wrong.value)


def test_the_strategies_that_have_a_setting_are_named():
    with pytest.raises(UnknownKeyError) as wrong:
        parse(Config, {"strategy": {"name": "random", "weight_noise": 0.3}})
    assert all(name in str(wrong.value) for name in ("ga", "umda", "prune", "strategy.weight_noise"))


def test_an_unknown_network_is_reported_before_an_unknown_setting():
    with pytest.raises(InputError) as wrong:
        parse(Config, {"network": {"name": "no such"}, "slots": 9})
    assert (wrong.value.argument, wrong.value.got) == ("network.name", "no such")


def test_an_argument_that_is_both_set_and_randomized_is_refused():
    changes = {"kwargs": {"length": 1.0}, "randomize": {"length": {"uniform": [0.4, 0.6]}}}
    for env in (EnvOptions(), EnvOptions(kwargs={"length": 0.5})):
        with pytest.raises(
            InputError, match=r"env\.randomize\.length: expected an argument that env\.kwargs does not set"
        ):
            env.changed(changes)


def test_advice_survives_another_section_that_is_wrong():
    with pytest.raises(UnknownKeyError, match=r"network\.hiden.*Did you mean hidden"):
        parse(Config, {"network": {"name": "mlp", "hiden": [4]}, "strategy": 5})
    with pytest.raises(InputError, match="expected the name of a strategy"):
        parse(Config, {"network": {"name": "mlp", "survivors": 5}, "strategy": 5})


def test_a_text_with_a_number_is_shown_as_the_number():
    for text, cure in ((".2", " Write 0.2."), ("a", "")):
        with pytest.raises(InputError) as wrong:
            parse(Config, {"env": {"action_scale": text}})
        assert str(wrong.value) == f"env.action_scale: expected a number, got {text!r}.{cure}"


def test_a_time_limit_may_be_a_number_of_seconds():
    limits = [parse(Config, {"compute": {"time_limit": given}}).compute.time_limit for given in (3600, 0.5, "1h")]
    assert limits == ["3600s", "0.5s", "1h"]


def test_a_name_stands_for_a_section_and_a_byte_order_mark_for_nothing(tmp_path):
    short, whole = tmp_path / "short.toml", tmp_path / "whole.toml"
    short.write_bytes(b'\xef\xbb\xbfenv = "Acrobot-v1"\r\nnetwork = "elman"\r\nstrategy = "ga"\r\noutput = "x"\r\n')
    whole.write_text(
        '[output]\ndirectory = "x"\n[env]\nid = "Acrobot-v1"\n[network]\nname = "elman"\n[strategy]\nname = "ga"\n'
    )
    assert read_file(short) == read_file(whole)
    named = Config(env="Acrobot-v1", network="elman", strategy="ga", output="x")
    assert named == parse(Config, read_file(whole))


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_file_in_another_encoding_is_refused_with_the_cure(encoding, tmp_path):
    (tmp_path / "a.toml").write_text("# Läuft es?\n", encoding=encoding)
    with pytest.raises(InputError, match=r"can't decode byte .* Save it as UTF-8\.$"):
        read_file(tmp_path / "a.toml")


def test_malformed_toml_is_refused():
    with pytest.raises(InputError, match="line 1") as wrong:
        read_table("population = = 3", "my.toml")
    assert wrong.value.argument == "my.toml"


def test_a_document_that_is_read_again_has_a_table_of_its_own():
    text = '[env]\nwrappers = [{id = "a"}]'
    for _ in range(2):
        table = read_table(text, "it")
        assert table == {"env": {"wrappers": [{"id": "a"}]}}
        table["env"]["wrappers"][0]["id"] = "b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=3", ("a.b", 3)),
        ("a.b = 2.5", ("a.b", 2.5)),
        ("x=true", ("x", True)),
        ("x=[1, 2]", ("x", [1, 2])),
        ("env.id=CartPole-v1", ("env.id", "CartPole-v1")),
        ("x='7'", ("x", "7")),
        ("env.kwargs.a-b=", ("env.kwargs.a-b", "")),
        ("x=[1,\n2]", ("x", [1, 2])),
        ("x=4\ny=3", ("x", "4\ny=3")),
        ("output.directory=2026-11-29", ("output.directory", "2026-11-29")),
        ("x=12:30:00", ("x", "12:30:00")),
    ],
)
def test_assignments(text, expected):
    assert read_assignment(text) == expected


def test_settings_in_words_are_one_line():
    """The caption of a film has room for one, and a terminal for no control characters."""
    table = {"env": {"kwargs": {"map": "S.\n.G", "size": 2}}, "network": {"hidden": [3, 4]}}
    assert assignments(table) == "env.kwargs.map=S.\\n.G, env.kwargs.size=2, network.hidden=[3, 4]"


@pytest.mark.parametrize("part", ["a", '"a b"', "'a.b'", '"\\\\"'])
def test_a_key_of_very_many_parts_is_refused_at_once(part, tmp_path):
    (tmp_path / "a.toml").write_text(f"{part}." * 100_000 + "b = 1")  # `tomllib` would take minutes
    with pytest.raises(InputError, match="expected values nested at most 32 deep, got deeper nesting"):
        read_file(tmp_path / "a.toml")


def test_a_comment_of_quotes_is_read_at_once():
    """In a stranger's file it would make commands hang for half an hour, longer than a test may take."""
    assert read_table("seeds = [1]\n# " + '"\\' * 450_000 + "\n", "it") == {"seeds": [1]}


@pytest.mark.parametrize("text", ["x", "=3", "a..b=3", "a b=3", ".a=1", "a." * 40 + "b=1"])
def test_bad_assignments_are_refused(text):
    with pytest.raises(InputError, match=r"section\.key=value"):
        read_assignment(text)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("x = " + "[" * 40 + "]" * 40, "32"),
        ("x = " + "[" * 5000 + "]" * 5000, "32"),
        ("a." * 100_000 + "b = 1", "32"),  # tomllib alone would take minutes
        ("a." * 40 + "b = 1", "32"),
        ("x = 0x" + "f" * 6000, "64 bits"),
        ("x = [1, 9223372036854775808]", "64 bits"),
        ("x = " + "1" * 6000, "TOML"),
        ("#" * 1_000_001, "1,000,000"),
    ],
    ids=lambda v: v[:20],
)
def test_absurd_documents_are_refused_with_one_short_line(text, limit):
    with pytest.raises(InputError) as wrong:
        read_table(text, "my.toml")
    assert limit in wrong.value.expected
    assert "\n" not in str(wrong.value)
    assert len(str(wrong.value)) < 1000


@pytest.mark.parametrize(
    ("table", "limit"),
    [
        ({"strategy": {"name": "nsga2", "trusted": 2**63}}, "64 bits"),
        ({"env": {"kwargs": {"map": "x" * 1_000_000}}}, "1,000,000"),
        ({"env": {"kwargs": {"map": json.loads("[" * 40 + "]" * 40)}}}, "32"),
    ],
    ids=["integer", "length", "depth"],
)
def test_experiments_that_a_run_file_could_not_keep_are_refused(table, limit):
    with pytest.raises(InputError) as wrong:
        experiments(table, "a title")
    assert wrong.value.argument == "experiment"
    assert limit in wrong.value.expected


def test_messages_show_no_control_characters():
    with pytest.raises(InputError) as wrong:
        parse(Config, {"env": {"id": 5}, "population": "\x1b[31m\n" + "x" * 10_000})
    assert "\x1b" not in str(wrong.value)
    assert len(str(wrong.value)) < 1000


def test_set_key_makes_tables_but_does_not_replace_values():
    table = {"population": 3}
    set_key(table, "env.kwargs.g", 9.0)
    assert table == {"population": 3, "env": {"kwargs": {"g": 9.0}}}
    with pytest.raises(InputError, match="population to be a table"):
        set_key(table, "population.x", 1)


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90), ("90s", 90), ("1h", 3600), ("23h50m", 85800), ("1d2h3m4.5s", 93784.5)]
)
def test_durations(text, value):
    assert seconds(text) == value


def test_a_number_behind_hours_needs_a_unit_except_in_a_file():
    table = {"compute": {"time_limit": "1h30"}}
    with pytest.raises(InputError, match=r"compute\.time_limit: expected a duration .*, got 1h30"):
        parse(Config, table)
    assert parse(Config, table, lenient=True).compute.time_limit == "1h30"


@given(st.text(max_size=8))
def test_durations_never_crash(text):
    with contextlib.suppress(ValueError):
        assert seconds(text) >= 0


def test_differences_name_only_settings_that_define_the_experiment():
    base = Config()
    other = parse(
        Config,
        {"population": 65, "generations": 99, "seeds": [8], "compute": {"slots": 3}, "env": {"kwargs": {"g": 1}},
         "network": {"name": "hebbian-dag", "plasticity": 0.5}},
    )  # fmt: skip
    assert differences(base, base) == []
    assert differences(base, other) == [
        ("env.kwargs.g", None, 1), ("network.plasticity", 0.0, 0.5), ("population", 64, 65),
    ]  # fmt: skip


TEXTS = st.text(st.characters(codec="utf-8"), max_size=9)


@given(
    st.sampled_from([*NETWORKS, "leaky"]),
    st.sampled_from([*STRATEGIES, "hill-climber"]),
    st.dictionaries(TEXTS, st.one_of(TEXTS, st.booleans(), st.lists(st.integers(0, 9)), st.just("[env]\n[[x]] # ="))),
    st.sampled_from([{}, {"env": {"max_episode_steps": 7, "wrappers": [{"name": "a:b", "kwargs": {"id": "[env]"}}]}}]),
)
def test_settings_that_are_shown_read_back_as_the_same(network, strategy, kwargs, more):
    table = {"network": {"name": network}, "strategy": {"name": strategy}, "env": {"kwargs": kwargs}} | more
    config = parse(Config, table)
    text = annotated_toml(config)
    again = parse(Config, read_table(text, "it"))
    assert again == config == parse(Config, read_table(config.to_toml(), "it"))
    assert annotated_toml(again) == text
    assert all(line.isprintable() for line in text.split("\n"))  # nothing controls a terminal


def test_arguments_of_a_known_environment_are_shown_with_defaults_and_limits():
    config = parse(Config, {"env": {"id": "Bandit-v0", "engine": "exact", "kwargs": {"arms": 7}}})
    text = annotated_toml(config, kwargs_model(config.env))
    lines = text.partition("[env.kwargs]\n")[2].splitlines()
    assert "arms = 7  # 2 to 61" in lines
    assert "# pulls = 100  # 1 to 100,000" in lines
    assert parse(Config, read_table(text, "it")) == config
    assert kwargs_model(Config().env) is None


def test_settings_are_shown_with_their_meaning():
    text = annotated_toml(Config())
    assert set(tomllib.loads(text)["strategy"]) == {"name", *PruneOptions.model_fields}
    for line in ("# max_episode_steps is not set: 1 or more", 'on_failure = "stop"  # "stop" or "worst"',
                 "regrowth = 0.0  # 0 to 1", f"# {PruneOptions.__doc__.splitlines()[0]}",
                 "init_scale = 1.0  # above 0, at most 1,000,000", "generations = 20  # 1 or more"):  # fmt: skip
        assert line in text.splitlines()


def test_settings_without_a_value_come_last_in_their_section():
    lines = annotated_toml(Config()).splitlines()
    places = [lines.index(line) for line in ("seeds = [  # each 0 or more", "# least_population is not set: 2 or more",
                                             "[early_stop]", "every = 10  # 1 or more", "# mean_return is not set",
                                             "[racing]")]  # fmt: skip
    assert places == sorted(places)


def test_another_kind_differs_by_its_name_first():
    other = Config(network={"name": "mlp", "hidden": [3]}, strategy={"name": "ga", "parents": 3})
    found = [key for key, _, _ in differences(Config(), other)]
    assert found[:2] == ["network.name", "network.hidden"]
    options = found[found.index("strategy.name") + 1 :]
    assert "strategy.parents" in options
    assert all(key.startswith("strategy.") for key in options)


def test_nearest():
    assert suggest("CartPole-v0", ["CartPole-v1", "Pendulum-v1"]) == "Did you mean CartPole-v1?"
    assert suggest("zzz", ["one", "two"]) == "Known: one, two."
    assert suggest("zzz", []) == ""
    assert suggest("lin", ["elman", "mlp"]) == "Known: elman, mlp."
    assert suggest("elmann", ["elman", "mlp"], listed=True) == "Did you mean elman? Known: elman, mlp."


def test_options_of_another_package_may_be_tuples():
    """TOML has only lists, so a run file could not be read back."""

    class Sizes(Options):
        hidden: tuple[int, ...] = (4,)
        names: tuple[str, str] | None = None

    given = {"hidden": [1, 2], "names": ["a", "b"]}
    assert parse(Sizes, given, "network") == Sizes(hidden=(1, 2), names=("a", "b"))
    assert parse(Sizes, Sizes().model_dump(mode="json"), "network") == Sizes()
    with pytest.raises(InputError, match=r"^network\.hidden: expected a list, such as \[1, 4\], got 'a'"):
        parse(Sizes, {"hidden": "a"}, "network")


def test_the_directory_of_run_files_may_have_environment_variables(monkeypatch):
    monkeypatch.setenv("SCRATCH", "/scratch/ann")
    monkeypatch.delenv("NOWHERE", raising=False)
    for written, expected in (
        ("$SCRATCH/runs", "/scratch/ann/runs"),
        ("${SCRATCH}/a", "/scratch/ann/a"),
        ("price-5$", "price-5$"),
        ("", "runs/CartPole-v1-hebbian-dag"),
    ):
        assert str(parse(Config, {"output": written}).directory()) == expected
    for written in ("$NOWHERE/runs", "${NOWHERE}/runs"):
        with pytest.raises(InputError, match=r"^output\.directory: expected a directory whose environment variables"):
            parse(Config, {"output": written}).directory()
