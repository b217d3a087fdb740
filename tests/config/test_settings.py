import contextlib
import tomllib

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from evolve.config import (
    Config,
    annotated_toml,
    differences,
    nearest,
    parse,
    read_assignment,
    read_table,
    seconds,
    set_key,
)
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
    ("table", "message"),
    [
        ({"population": 1}, "population: expected at least 2, got 1."),
        ({"population": 2**31}, "population: expected less than 2,147,483,648, got 2147483648."),
        ({"seeds": [2**63]}, "seeds.0: expected less than 9,223,372,036,854,775,808, got"),
        ({"compute": {"slots": 65537}}, "compute.slots: expected at most 65,536, got 65537."),
        ({"episode_cap": 1.0}, "episode_cap: expected more than 1, got 1.0."),
        ({"racing": {"keep": 1.0}}, "racing.keep: expected less than 1, got 1.0."),
        ({"connection_cost": -0.5}, "connection_cost: expected at least 0, got -0.5."),
        ({"population": 2.5}, "population"),
        ({"population": True}, "population"),
        ({"episodes": 0}, "episodes"),
        ({"generations": "7"}, "generations"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [-1]}, "seeds.0"),
        ({"seeds": [5, 5]}, "expected different seeds, got [5, 5]"),
        ({"populaton": 5}, "there is no setting populaton. Did you mean population or least_population?"),
        ({"env": {"kwarg": {}}}, "Did you mean kwargs"),
        ({"env": 5}, "env"),
        ({"env": {"engine": "unity"}}, "'gymnasium'"),
        ({"compute": {"slots": 0}}, "compute.slots"),
        ({"compute": {"time_limit": "soon"}}, "23h50m"),
        ({"network": 3}, "network: expected a table, got 3"),
        ({"env": {"wrappers": [{"name": "a b"}]}}, "env.wrappers.0.name: expected the name of a wrapper, such as"),
        ({"env": {"action_scale": float("nan")}}, "env.action_scale: expected a finite number, got nan."),
        ({"seeds": 3}, "seeds: expected a list, such as [1, 4], got 3."),
        ({"seeds": []}, "seeds: expected a list of at least 1, got []."),
        ({"racing": {"rounds": "1,4"}}, "racing.rounds: expected a list, such as [1, 4], got '1,4'."),
        ({"env": {"reuse": 7}}, "env.reuse: expected true or false or 'auto', got 7."),
        ({"env": {"wrappers": [5]}}, "env.wrappers.0: expected a table, got 5."),
        (
            {"env": {"wrappers": [{"name": "a:b", "kwarg": {}}]}},
            "there is no setting env.wrappers.0.kwarg. Did you mean kwargs?",
        ),
    ],
)
def test_wrong_settings_are_refused_with_one_plain_line(table, message):
    with pytest.raises(InputError) as wrong:
        parse(Config, table)
    assert message in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize(
    ("table", "meant"),
    [
        ({"weight_noise": 0.3}, "there is no setting weight_noise. Did you mean strategy.weight_noise?"),
        ({"network": {"weight_noise": 0.3}}, "no setting network.weight_noise. Did you mean strategy.weight_noise?"),
        ({"strategy": {"name": "ga", "hidden": [4]}}, "no setting strategy.hidden. Did you mean network.hidden?"),
        ({"env": {"population": 9}}, "there is no setting env.population. Did you mean population?"),
        ({"slots": 9}, "there is no setting slots. Did you mean compute.slots?"),
        ({"name": "dag"}, "there is no setting name. Did you mean network.name or strategy.name?"),
        (
            {"strategy": {"name": "random", "weight_noise": 0.3}},
            "With strategy.name ga or umda or prune it is strategy.weight_noise.",
        ),
        ({"network": {"name": "no such"}, "slots": 9}, "expected a known network, got no such."),
    ],
)
def test_a_setting_of_another_section_is_proposed(table, meant):
    with pytest.raises(InputError) as wrong:
        parse(Config, table)
    assert meant in str(wrong.value)


def test_malformed_toml_is_refused():
    with pytest.raises(InputError, match=r"^my\.toml: expected well-formed TOML, got .*line 1"):
        read_table("population = = 3", "my.toml")


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
    ],
)
def test_assignments(text, expected):
    assert read_assignment(text) == expected


@pytest.mark.parametrize("text", ["x", "=3", "a..b=3", "a b=3", ".a=1", "a." * 40 + "b=1"])
def test_bad_assignments_are_refused(text):
    with pytest.raises(InputError, match=r"section\.key=value"):
        read_assignment(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = " + "[" * 40 + "]" * 40, "nested at most 32 deep"),
        ("x = " + "[" * 5000 + "]" * 5000, "nested at most 32 deep"),
        ("a." * 40 + "b = 1", "nested at most 32 deep"),
        ("x = 0x" + "f" * 6000, "integers of at most 64 bits"),
        ("x = [1, 9223372036854775808]", "integers of at most 64 bits"),
        ("x = " + "1" * 6000, "well-formed TOML"),
        ("#" * 1_000_001, "at most 1,000,000 characters"),
    ],
    ids=lambda v: v[:20],
)
def test_absurd_documents_are_refused_with_one_short_line(text, message):
    with pytest.raises(InputError, match=message) as wrong:
        read_table(text, "my.toml")
    assert "\n" not in str(wrong.value)
    assert len(str(wrong.value)) < 1000


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


@given(st.text(max_size=8))
def test_durations_never_crash(text):
    with contextlib.suppress(ValueError):
        assert seconds(text) >= 0


def test_differences_name_what_defines_the_experiment_only():
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


@hypothesis_settings(deadline=None)
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


def test_arguments_of_a_known_environment_are_shown_with_defaults_and_limits():
    config = parse(Config, {"env": {"id": "Bandit-v0", "engine": "exact", "kwargs": {"arms": 7}}})
    text = annotated_toml(config, kwargs_model(config.env))
    lines = text.partition("[env.kwargs]\n")[2].splitlines()
    assert "arms = 7  # 2 to 61" in lines
    assert "# pulls = 100  # 1 to 100,000" in lines
    assert parse(Config, read_table(text, "it")) == config
    assert kwargs_model(Config().env) is None


def test_settings_are_shown_with_what_they_mean():
    text = annotated_toml(Config())
    assert set(tomllib.loads(text)["strategy"]) == {"name", *PruneOptions.model_fields}
    for line in ("# max_episode_steps is not set: 1 or more", 'on_failure = "stop"  # "stop" or "worst"',
                 "regrowth = 0.0  # 0 to 1", f"# {PruneOptions.__doc__.splitlines()[0]}",
                 "init_scale = 1.0  # above 0, at most 1,000,000", "generations = 20  # 1 or more"):  # fmt: skip
        assert line in text.splitlines()


def test_another_kind_differs_by_its_name_first():
    other = Config(network={"name": "mlp", "hidden": [3]}, strategy={"name": "ga", "parents": 3})
    found = [key for key, _, _ in differences(Config(), other)]
    assert found[:2] == ["network.name", "network.hidden"]
    options = found[found.index("strategy.name") + 1 :]
    assert "strategy.parents" in options
    assert all(key.startswith("strategy.") for key in options)


def test_nearest():
    assert nearest("CartPole-v0", ["CartPole-v1", "Pendulum-v1"]) == "Did you mean CartPole-v1?"
    assert nearest("zzz", ["one", "two"]) == "Known: one, two."
    assert nearest("zzz", []) == ""
    assert nearest("lin", ["elman", "mlp"]) == "Known: elman, mlp."
    assert nearest("elmann", ["elman", "mlp"], listed=True) == "Did you mean elman? Known: elman, mlp."
