"""Restarts: their generations, the states that they return to, and the champion."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from resuming import run_in_parts

from evolve import networks, strategies
from evolve.errors import InputError
from evolve.numerics.streams import Purpose, Stream
from evolve.strategies import STRATEGIES, Results
from evolve.strategies.strategy import NamedNumbers
from evolve.strategies.wrapper import Restarting, RestartRecord, joined

NETWORK = networks.make({"name": "hebbian-dag", "hidden": [3], "init_sparsity": 0.2}, 4, 2)
P = 8
ES = ["openai-es", "pgpe", "snes", "sep-cma-es", "cma-es"]


def made(name="pgpe", **options):
    return strategies.from_table({"name": name} | options, NETWORK, P, 5)


def tell(strategy, state, generation, score):
    """Return the state after a generation whose fitness has a mean."""
    fitness = np.arange(P) - (P - 1) / 2 + score
    return strategy.tell(state, strategy.ask(state, generation), Results(fitness))


def equal(strategy, one, other):
    arrays, others = strategy.to_arrays(one), strategy.to_arrays(other)
    return all(np.array_equal(arrays[name], others[name]) for name in arrays | others)


@pytest.mark.parametrize("name", ES)
def test_without_restarts_a_strategy_is_itself(name):
    assert not isinstance(made(name), Restarting)
    assert isinstance(made(name, restart_after=1), Restarting)


@pytest.mark.parametrize("name", ES)
def test_after_a_stall_it_goes_back_to_before_the_best_generation(name):
    strategy = made(name, restart_after=3)
    state, states = strategy.start(), []
    for generation, score in enumerate([1.0, 2.0, 1.5, 2.0, 0.0]):
        states.append(state)
        state = tell(strategy, state, generation, score)
    assert state.record == RestartRecord(best_score=2.0, to_beat=2.0, stalled=0, restarts=1, generations=5)
    assert equal(made(name), state.now, states[1].now)
    there = NETWORK.init(Stream(5, Purpose.INIT, 0, 0)).mask[0]
    asked, before = (strategy.ask(state, generation).weights[:, there] for generation in (5, 1))
    assert not (asked == before).any(axis=0).all()  # other candidates around it
    assert np.array_equal(strategy.champion(state).weights, made(name).champion(states[1].now).weights)


@pytest.mark.parametrize("name", ES)
def test_after_a_stall_it_begins_anew(name):
    strategy, inner = made(name, restart_after=2, restart_from="anew"), made(name)
    state, states = strategy.start(), []
    for generation, score in enumerate([5.0, 4.0, 3.0]):
        states.append(state)
        state = tell(strategy, state, generation, score)
    assert state.record == RestartRecord(best_score=5.0, to_beat=-np.inf, stalled=0, restarts=1, generations=3)
    first, other = (NETWORK.init(Stream(5, Purpose.INIT, generation, 0)) for generation in (0, 3))
    began = inner.champion(state.now)  # the centre
    assert not np.array_equal(first.mask, other.mask)
    assert np.array_equal(began.mask, first.mask)
    assert np.array_equal(began.weights, np.where(first.mask, other.weights, 0))
    arrays, fresh = inner.to_arrays(state.now), inner.to_arrays(inner.start())
    same = [array for array in arrays if array not in ("centre", "average", "mean")]
    assert all(np.array_equal(arrays[array], fresh[array]) for array in same)
    state = tell(strategy, state, 3, 1.0)  # a new search is compared with itself alone
    assert state.record == RestartRecord(best_score=5.0, to_beat=1.0, stalled=0, restarts=1, generations=4)
    assert np.array_equal(strategy.champion(state).weights, inner.champion(states[0].now).weights)
    better = tell(strategy, state, 4, 6.0)
    assert better.record == RestartRecord(best_score=6.0, to_beat=6.0, stalled=0, restarts=1, generations=5)
    assert np.array_equal(strategy.champion(better).weights, inner.champion(state.now).weights)


@pytest.mark.parametrize("name", ES)
def test_before_the_first_score_the_champion_is_the_newest(name):
    """A score is the mean of three generations, so a shorter run ended with its first random genome as champion."""
    strategy, inner = made(name, restart_after=12), made(name)
    states, own = [strategy.start()], inner.start()
    for generation in range(3):
        states.append(tell(strategy, states[-1], generation, 1.0))
        own = tell(inner, own, generation, 1.0)
        newest = own if generation < 2 else states[2].now
        assert np.array_equal(strategy.champion(states[-1]).weights, inner.champion(newest).weights)


def by_hand(means, after, anew):
    """Return the record after generations of the given mean fitness."""
    best = own = -np.inf
    waited = restarts = began = 0
    k = math.ceil(after / 4)
    for generation in range(len(means)):
        last = means[max(began, generation + 1 - k) : generation + 1]
        score = sum(last) / k if len(last) == k else -np.inf
        best, waited = max(best, score), 0 if score > own else waited + 1
        own = max(own, score)
        if waited == after:
            own, waited, restarts, began = -np.inf if anew else best, 0, restarts + 1, generation + 1
    return [best, own, waited, restarts, len(means)]


@settings(max_examples=60)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.integers(1, 13), st.sampled_from(["best", "anew"]))
def test_it_restarts_whenever_there_was_no_progress_for_so_long(scores, after, where):
    strategy = made(restart_after=after, restart_from=where)
    state = strategy.start()
    for generation, score in enumerate(scores):
        state = tell(strategy, state, generation, score)
    assert strategy.to_arrays(state)["restarts"] == pytest.approx(by_hand(scores, after, where == "anew"))


@pytest.mark.parametrize(
    ("fitness", "score"),
    [
        ([1.0, 2.0, 3.0, 6.0], 3.0),
        ([np.nan, 2.0, -np.inf, 6.0], 3.0),  # the worst finite one in their place
        ([np.inf, 2.0, 2.0, 2.0], 2.0),
        ([np.nan, np.nan, np.nan, np.nan], -np.inf),
    ],
)
def test_the_score_is_the_mean_of_finite_values(fitness, score):
    strategy = strategies.from_table({"name": "pgpe", "restart_after": 3}, NETWORK, 4, 5)
    state = strategy.start()
    state = strategy.tell(state, strategy.ask(state, 0), Results(np.array(fitness)))
    assert state.record.best_score == score


def test_a_stored_record_has_whole_counts():
    strategy = made(restart_after=3)
    arrays = strategy.to_arrays(strategy.start())
    assert arrays["restarts"].tolist() == [-np.inf, -np.inf, 0, 0, 0]
    assert arrays["restarts"].dtype == np.float64
    for count in (0.5, np.nan, np.inf):
        with pytest.raises(ValueError, match="restarts: expected a whole number of generations"):
            strategy.from_arrays(arrays | {"restarts": np.array([0.0, 0.0, 0.0, 0.0, count])})


@dataclass(frozen=True)
class Counts(NamedNumbers):
    """Annotated as in a module that postpones annotations."""

    sigma: "float"
    generations: "int"


def test_whole_numbers_stay_whole_if_annotations_are_postponed():
    again = Counts.from_arrays({"counts": Counts(0.5, 3).to_array()}, "counts")
    assert (again, type(again.generations)) == (Counts(0.5, 3), int)


@pytest.mark.parametrize("name", ES)
def test_to_say_from_where_but_not_when_is_refused(name):
    with pytest.raises(InputError, match=r"strategy\.restart_after: expected 1 or more, to restart from anew, got 0"):
        STRATEGIES.validate({"name": name, "restart_from": "anew"}, NETWORK)
    STRATEGIES.validate({"name": name, "restart_from": "anew", "restart_after": 9}, NETWORK)


@pytest.mark.parametrize("name", ["openai-es", "sep-cma-es"])
def test_a_run_with_restarts_resumes_and_verifies(call, tmp_path, name):
    settings = ("strategy.restart_after=1", "strategy.restart_from=anew")
    assert run_in_parts(call, tmp_path, name, settings, stops=(5, 8)).checkpoint["restarts"][3] > 1


def played(name, generations, **options):
    """Return the states of a search whose fitness is noise, and the fitness of each generation."""
    strategy, stream = made(name, **options), Stream(9, Purpose.INIT, 0, 0)
    states, fitness = [strategy.start()], []
    for generation in range(generations):
        fitness.append(stream.normal(P).astype(np.float64))
        states.append(strategy.tell(states[-1], strategy.ask(states[-1], generation), Results(fitness[-1])))
    return states, fitness


def test_the_fitness_tells_when_a_search_restarted():
    options = {"restart_after": 3, "restart_from": "anew"}
    states, fitness = played("pgpe", 40, **options)
    counts = [state.record.restarts for state in states]
    expected = [n for n in range(1, 40) if counts[n] > counts[n - 1]]
    assert len(expected) > 3
    found = strategies.searches({"name": "pgpe"} | options, fitness)
    assert found == [(generation, "restart") for generation in expected]
    assert strategies.searches({"name": "pgpe"}, fitness) == []


def test_the_fitness_tells_when_starts_and_rounds_began():
    options = {"starts": 3, "start_generations": 5, "restart_after": 4}
    states, fitness = played("sep-cma-es", 30, **options)
    found = strategies.searches({"name": "sep-cma-es"} | options, fitness)
    assert [each for each in found if each[1] != "restart"] == [(5, "start 2"), (10, "start 3"), (15, "best start")]
    counts = [state.now.record.restarts for state in states]
    later = [n for n in range(16, 30) if counts[n] > counts[n - 1]]
    assert [first for first, kind in found if kind == "restart" and first > 15] == later
    rounds = {"name": "pgpe", "pruning_every": 10, "pruning_control": True}
    assert strategies.searches(rounds, [*fitness, *fitness]) == [
        (10, "control"), (20, "round 2"), (30, "control"), (40, "round 3"), (50, "control"),
    ]  # fmt: skip
    assert strategies.searches(rounds, []) == []


def test_parts_of_a_state_have_arrays_of_different_names():
    one, other = {"means": np.zeros(1)}, {"centre": np.ones(1)}
    assert joined(one, other) == one | other
    with pytest.raises(ValueError, match="two arrays of one name"):
        joined(one, other, {"centre": np.zeros(1)})
