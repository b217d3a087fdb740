"""The setting `fitness`: quantiles to the bit, functions of the user, and their mistakes."""

import math
from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pytest
import toy_fitness
from hypothesis import given
from hypothesis import strategies as st
from tampering import edit_config, tamper

import evolve
from evolve import InputError, RunError, store
from evolve.config import Config, EnvOptions, RacingOptions, parse
from evolve.training.fitness import (
    Scores,
    check_fitness,
    check_not_importing,
    fitness_function,
    import_function,
    importing,
    quantile_of_returns,
    setting_of,
)
from evolve.training.manifest import PORTABLE, portability

RETURNS = np.array([[3.0, 1.0, 2.0, 8.0], [0.0, -0.0, 0.0, -0.0], [1.0, math.nan, 2.0, 3.0]])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("mean", 3.5), ("min", 1.0), ("median", 2.5), ("quantile:0.25", 1.75), ("quantile:1", 8.0), ("quantile:0", 1.0)],
)
def test_a_fitness_by_hand(setting, expected):
    found = fitness_function(setting)(RETURNS, {}, np.zeros(3, np.int32))
    assert found[:2].tolist() == [expected, 0.0]
    assert math.isnan(found[2])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), st.floats(0, 1), st.randoms())
def test_a_quantile_is_one_exactly_rounded_formula(row, quantile, random):
    (found,) = quantile_of_returns(np.array([row]), quantile).tolist()
    ordered = sorted(value + 0.0 for value in row)
    position = quantile * (len(row) - 1)
    below = math.floor(position)
    expected = ordered[below]
    if position > below:
        expected += (position - below) * (ordered[below + 1] - ordered[below])
    assert found.hex() == expected.hex()
    assert abs(Fraction(found) - Fraction(float(np.quantile(row, quantile)))) <= 1e-9  # the usual definition
    random.shuffle(row)
    assert quantile_of_returns(np.array([row]), quantile)[0].hex() == expected.hex()  # in any order of episodes


@pytest.mark.parametrize("wrong", ["max", "quantile:1.5", "quantile:nan", "quantile:", "a b:f", ":f", "a:", "a:b.c"])
def test_an_unknown_fitness_is_refused(wrong):
    with pytest.raises(InputError, match=r'^fitness: expected "mean", "min", "median", "quantile:0.25"'):
        parse(Config, {"fitness": wrong})


def test_a_function_that_tells_no_arguments_may_be_right():
    assert import_function("builtins:max") is max


def test_candidates_without_a_whole_evaluation_are_not_passed_to_a_function():
    found = fitness_function("toy_fitness:worst_two")(np.full((2, 3), math.nan), {}, np.zeros(2, np.int32))
    assert np.isnan(found).tolist() == [True, True]


def scores(function, returns, costs=0.0):
    made = np.full(len(returns), costs)
    return Scores(function, returns, {}, np.arange(len(returns), dtype=np.int32), made)


def test_the_cost_of_connections_is_subtracted_from_every_fitness():
    played = np.ones(RETURNS.shape, np.bool_)
    for setting, expected in (("min", [0.5, -0.5]), ("toy_fitness:worst_two", [1.0, -0.6])):
        found = scores(fitness_function(setting), RETURNS, costs=0.5).fitness(played)
        assert found[:2].tolist() == pytest.approx(expected)
        assert math.isnan(found[2])  # a candidate with a failed episode never reaches the function


def test_a_race_ranks_by_the_fitness_of_the_episodes_so_far():
    from evolve.training.fitness import first_round, next_round

    returns = np.array([[9.0, 0.0, 9.0], [4.0, 3.0, 1.0], [5.0, 2.0, 9.0], [0.0, 0.0, 0.0]])
    options = RacingOptions(rounds=(2,), keep=0.5)
    for setting, racing in (("mean", [0, 1]), ("min", [1, 2])):
        found = next_round(first_round(options, 4, 3), options, scores(fitness_function(setting), returns))
        assert found.candidates.tolist() == racing


class Unconvertible:
    """Like an array on a GPU."""

    def __array__(self, *_, **__):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda r: r[:, :1], r"to return an array \[2\] of numbers, one for each candidate, got float64\[2, 1\]"),
        (lambda r: r[0, 0], r"to return an array \[2\] of numbers"),
        (lambda r: [1.0, "x"], r"to return an array \[2\] of numbers"),
        (lambda r: [[1.0], [1.0, 2.0]], r"to return an array \[2\] of numbers"),
        (lambda r: Unconvertible(), r"to return an array \[2\] of numbers.* got <.*Unconvertible"),
        (lambda r: [10**5000] * 2, r"to return an array \[2\] of numbers.* got one of type list"),
        (lambda r: None, r"to return an array \[2\] of numbers.* got None"),
        (lambda r: r[:, 0] > 0, r"to return an array \[2\] of numbers.* got bool\[2\]"),
        (lambda r: [1.0, math.inf], "to return finite numbers, got inf at position 1 of 2"),
    ],
)
def test_a_wrong_result_names_the_setting(monkeypatch, result, message):
    monkeypatch.setattr(toy_fitness, "worst_two", lambda returns, metrics, connections: result(returns))
    with pytest.raises(InputError, match=rf"^fitness: expected toy_fitness:worst_two {message}"):
        fitness_function("toy_fitness:worst_two")(RETURNS[:2], {}, np.zeros(2, np.int32))


def test_a_function_that_does_not_repeat_itself_is_refused(monkeypatch):
    """Selection would follow chance, and the run could not be repeated."""
    calls = []
    monkeypatch.setattr(toy_fitness, "worst_two", lambda r, *_: calls.append(1) or r[:, 0] + len(calls))
    with pytest.raises(
        InputError, match=r"^fitness: expected toy_fitness:worst_two to return the same numbers .* in two"
    ):
        fitness_function("toy_fitness:worst_two")(RETURNS[:2], {}, np.zeros(2, np.int32))
    monkeypatch.setattr(toy_fitness, "worst_two", lambda r, *_: calls.append(1) or r[:, 0])
    calls.clear()
    function = fitness_function("toy_fitness:worst_two")
    for _ in range(3):
        function(RETURNS[:2], {}, np.zeros(2, np.int32))
    assert len(calls) == 4  # the first call is repeated, and the results are compared


def test_an_error_of_the_function_is_shown_with_its_line(monkeypatch):
    def broken(returns, metrics, connections):
        return 1 / 0

    monkeypatch.setattr(toy_fitness, "worst_two", broken)
    with pytest.raises(RunError, match=r"(?s)^fitness: toy_fitness:worst_two raised.*return 1 / 0.*ZeroDivisionError"):
        fitness_function("toy_fitness:worst_two")(RETURNS[:2], {}, np.zeros(2, np.int32))


def test_a_metric_that_the_settings_do_not_name_is_proposed(monkeypatch):
    monkeypatch.setattr(toy_fitness, "worst_two", lambda r, m, c: m["distance"][:, 0])
    with pytest.raises(RunError, match=r'(?s)KeyError.*name it: env\.metrics=\["speed", "distance"\]'):
        fitness_function("toy_fitness:worst_two")(RETURNS[:2], {"speed": RETURNS[:2]}, np.zeros(2, np.int32))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("no_such:f", "ModuleNotFoundError: No module named 'no_such'.*PYTHONPATH"),
        ("toy_fitness:no_such", "AttributeError"),
        ("toy_fitness:NUMBER", "whose type is int"),
        ("toy_fitness:two_arguments", "three arguments: returns, metrics, connections"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_before_a_run(setting, message, call, tmp_path):
    with pytest.raises(InputError, match=message):
        import_function(setting)
    call("run", *RUN, "--set", f"fitness={setting}", "-o", "out").refused("fitness: expected a function")
    assert not list(tmp_path.glob("out/*.h5"))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (
            lambda r: np.mean(r, {}),
            "a function of returns, metrics and connections, got toy_fitness:worst_two",
        ),
        (lambda r: 1.0, r"^fitness: expected toy_fitness:worst_two to return an array \[2\] of numbers"),
        (lambda r: np.log(-r).mean(axis=1), None),
        (lambda r: r.no_such, None),
    ],
)
def test_a_function_is_tried_before_a_run(monkeypatch, result, message):
    monkeypatch.setattr(toy_fitness, "worst_two", lambda returns, metrics, connections: result(returns))
    config = parse(Config, {"fitness": "toy_fitness:worst_two"})
    with nullcontext() if message is None else pytest.raises(InputError, match=message):
        check_fitness(config, 5)
    check_fitness(config.model_copy(update={"env": EnvOptions(metrics=("x",))}), 5)


class Unprintable:
    """A callable object without a text."""

    def __call__(self, returns, metrics, connections):
        """Return no fitness."""

    def __repr__(self):
        raise ValueError("no text")


def test_a_function_object_is_a_setting_if_it_can_be_imported(monkeypatch):
    assert setting_of(toy_fitness.worst_two) == "toy_fitness:worst_two"
    for wrong in (lambda r, m, c: r[:, 0], scores.__call__, np.min.__get__(1), RUN.count, Unprintable()):
        with pytest.raises(InputError, match=r"at the top level of a module.*Put it into a module, such as scores.py"):
            setting_of(wrong)
    before = toy_fitness.worst_two
    monkeypatch.setattr(toy_fitness, "worst_two", lambda r, m, c: r[:, 0])
    with pytest.raises(InputError, match=r'toy_fitness has now, got an earlier .*fitness="toy_fitness:worst_two"\.$'):
        setting_of(before)
    for statistic, name in ((min, "min"), (np.median, "median"), (np.mean, "mean")):
        with pytest.raises(InputError, match=f'Name it: fitness="{name}"'):
            setting_of(statistic)


def test_only_functions_of_the_user_are_not_portable():
    plain = {"env": {"id": "CartPole-v1"}, "strategy": {"name": "ga"}}
    assert portability(parse(Config, plain | {"fitness": "quantile:0.1"})) == PORTABLE
    named = portability(parse(Config, plain | {"fitness": "toy_fitness:worst_two"}))
    assert named == "not portable: the fitness is a function of the user"


RUN = ("-e", "CartPole-v1", "--engine", "exact", "-p", 6, "-r", 3, "-g", 3, "-d", 3, "-s", 1, "--set",
       "env.max_episode_steps=60", "--set", "held_out_episodes=0", "--set", "strategy.name=ga", "--set",
       "racing.rounds=[2]")  # fmt: skip


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The run of a fitness function, trained from Python with the function object."""
    folder = tmp_path_factory.mktemp("own")
    return evolve.train(
        {"env": {"id": "CartPole-v1", "engine": "exact", "max_episode_steps": 60}, "network": {"hidden": [3]}},
        population=6, episodes=3, generations=3, seed=1, held_out_episodes=0, racing={"rounds": [2]},
        strategy="ga", fitness=toy_fitness.worst_two, output=folder,
    )  # fmt: skip


def test_a_function_gives_one_digest_on_one_rank_and_on_three(own, command, tmp_path):
    command("run", *RUN, "--set", "fitness=toy_fitness:worst_two", "-o", "three", ranks=3).ok()
    assert evolve.load(tmp_path / "three" / "seed-1.h5").digest == own.digest
    for generation in own.generations:
        stayed = ~np.isnan(generation.returns[:, 2])
        expected = np.sort(generation.returns[stayed], axis=1)[:, :2].mean(axis=1)
        assert generation.fitness[stayed] == pytest.approx(expected - generation.record.connections[stayed] / 10)


def test_verify_computes_the_fitness_again(own, tmp_path, call, monkeypatch):
    assert own.verify().equal
    assert "fitness" not in own.verify().summary
    path = tmp_path / "copy.h5"
    path.write_bytes(own.path.read_bytes())
    call("verify", "--full", path).ok()
    # Without its module the episodes are still verified, and the verdict says what was not.
    monkeypatch.delattr(toy_fitness, "worst_two")
    done = call("verify", path).ok()
    assert "but the fitness was not computed again (fitness: expected a function" in done.out
    assert call("verify", "--full", path).code == 2
    # The function has changed: the difference is found, and it is not called a forged log.
    monkeypatch.setattr(toy_fitness, "worst_two", lambda r, m, c: r[:, 0] + 1, raising=False)
    for words in (), ("--full",):
        done = call("verify", path, *words)
        assert done.code == 1
        assert "strategy: the fitness is a function of the user" in done.out


def test_a_changed_fitness_in_the_log_is_found(tmp_path, call):
    call("run", *RUN, "--set", "fitness=quantile:0.3", "-o", "out").ok()
    path = tmp_path / "out" / "seed-1.h5"
    call("verify", path).ok()
    record = store.read(path).records[1]
    other = (int(record.champion_candidate) + 1) % 6
    tamper(path, "generation/fitness", (1, other), -1.0)
    done = call("verify", path)
    assert done.code == 1
    assert f"generation 1: candidate {other}: its fitness is -1.0 in the log" in done.out
    tamper(path, "generation/fitness", (1, other), record.fitness[other])
    edit_config(path, 'fitness = "quantile:0.3"', 'fitness = "min"')
    assert call("verify", path).code == 1


def test_a_resumed_run_keeps_its_fitness(own, tmp_path, call):
    call("run", *RUN, "-g", 2, "--set", "fitness=toy_fitness:worst_two", "-o", "out").ok()
    call("run", *RUN, "--set", "fitness=min", "-o", "out", "--resume").refused("fitness, resuming")
    call("run", *RUN, "--set", "fitness=toy_fitness:worst_two", "-o", "out", "--resume").ok()
    assert evolve.load(tmp_path / "out" / "seed-1.h5").digest == own.digest


def test_a_run_is_not_resumed_with_a_fitness_function_that_has_changed(own, tmp_path, call, monkeypatch):
    path = tmp_path / "out" / "seed-1.h5"
    path.parent.mkdir()
    path.write_bytes(own.path.read_bytes())
    monkeypatch.setattr(toy_fitness, "worst_two", lambda r, m, c: r[:, 0] + 1)
    longer = ("run", "--resume", path, "-g", 4)
    call(*longer).refused(
        "fitness, resuming", "in the log", "between calls", "restore the function", "--set compute.check=false"
    )
    assert path.read_bytes() == own.path.read_bytes()
    call(*longer, "--set", "compute.check=false").ok()


def test_a_module_begins_no_run_after_it_has_imported_another_function():
    with importing("outer:score"):
        with importing("inner:score"):
            pass
        with pytest.raises(InputError, match=r"a module that begins no run .* got outer:score"):
            check_not_importing()
    check_not_importing()
