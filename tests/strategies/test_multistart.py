"""Several starts: the start of each search, the choice between them, and the champion meanwhile."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from resuming import run_in_parts

from evolve import networks, strategies
from evolve.errors import InputError
from evolve.numerics.streams import Purpose, Stream
from evolve.strategies import STRATEGIES, Results, Strategy
from evolve.strategies.pruning_schedules import PruningOptions, PruningRounds
from evolve.strategies.wrapper import Multistart, StartOptions, StartRecord

NETWORK = networks.make({"name": "hebbian-dag", "hidden": [3], "init_sparsity": 0.2}, 4, 2)
P = 8
ES = ["openai-es", "pgpe", "snes", "sep-cma-es", "cma-es"]


def made(name="pgpe", **options):
    return strategies.from_table({"name": name} | options, NETWORK, P, 5)


def states_after(strategy, scores):
    """Return the states before and after generations whose fitness has these means."""
    states = [strategy.start()]
    for generation, score in enumerate(scores):
        fitness = np.arange(P) - (P - 1) / 2 + score
        genomes = strategy.ask(states[-1], generation)
        states.append(strategy.tell(states[-1], genomes, Results(fitness)))
    return states


def same(strategy, one, other):
    arrays, others = strategy.to_arrays(one), strategy.to_arrays(other)
    return arrays.keys() == others.keys() and all(np.array_equal(arrays[name], others[name]) for name in arrays)


class Measuring(Strategy):
    """A strategy that selects by a measure and tells what it has kept. Its state counts generations."""

    measured = ("connections",)

    def start(self):
        return 0

    def tell(self, state, genomes, results):
        return state + 1

    def champion_generation(self, state):
        return state - 1

    def measures(self, genomes, metrics):
        return np.full((P, 1), metrics["speed"])

    def outcome(self, state):
        return {"archive": np.full(1, state)}

    def select(self, state, **which):
        return state, which

    def origin(self, state, cell):
        return state, cell


@pytest.mark.parametrize(
    "strategy",
    [
        Multistart(Measuring(), StartOptions(starts=2, start_generations=3)),
        PruningRounds(lambda _: Measuring(), PruningOptions(pruning_every=3), NETWORK, 5),
    ],
)
def test_measures_and_outcomes_are_those_of_the_strategy_inside(strategy):
    state = strategy.start()
    for _ in range(2):
        state = strategy.tell(state, None, Results(np.zeros(P)))
    assert strategy.measured == ("connections",)
    assert strategy.measures(None, {"speed": 3.0}).tolist() == [[3.0]] * P
    assert strategy.outcome(state)["archive"].tolist() == [2.0]
    assert strategy.champion_generation(state) == 1
    assert strategy.select(state, connections=3) == (2, {"connections": 3})
    assert (strategy.select(state, cell=[0]), strategy.origin(state, [0])) == ((2, {"cell": [0]}), (2, [0]))


@pytest.mark.parametrize("name", [*ES, "ga"])
def test_with_one_start_a_strategy_is_itself(name):
    assert not isinstance(made(name), Multistart)
    assert isinstance(made(name, starts=2), Multistart)


@pytest.mark.parametrize("name", ES)
def test_the_best_start_goes_on_from_where_it_ended(name):
    strategy, inner = made(name, starts=3, start_generations=2), made(name)
    states = states_after(strategy, [0.0, 1.0, 0.0, 3.0, 9.0, 2.0, 0.0])
    first, other = (NETWORK.init(Stream(5, Purpose.INIT, generation, 0)) for generation in (0, 2))
    began = inner.champion(states[2].now)
    assert np.array_equal(began.weights, np.where(first.mask, other.weights, 0))  # the second start, of the same mask
    assert [state.record for state in states[2:7:2]] == [StartRecord(1.0, 2), StartRecord(3.0, 4), StartRecord(3.0, 6)]
    second = inner.tell(states[3].now, strategy.ask(states[3], 3), Results(np.arange(P) - (P - 1) / 2 + 3.0))
    assert same(inner, states[6].now, second)
    assert not same(inner, states[7].now, second)  # it has gone on
    assert same(inner, states[7].best, states[7].now)


def test_the_champion_is_that_of_the_best_start_that_has_ended():
    strategy, inner = made(starts=2, start_generations=2), made()
    states = states_after(strategy, [5.0, 5.0, 9.0, 1.0, 0.0])
    champions = [strategy.champion(state) for state in states]
    assert np.array_equal(champions[1].weights, inner.champion(states[1].now).weights)  # there is no other one yet
    assert np.array_equal(champions[3].weights, champions[2].weights)
    assert not np.array_equal(champions[3].weights, inner.champion(states[3].now).weights)
    assert np.array_equal(champions[4].weights, champions[2].weights)
    assert np.array_equal(champions[5].weights, inner.champion(states[5].now).weights)


@given(st.data(), st.integers(2, 4), st.integers(1, 6))
def test_the_first_of_the_best_is_chosen_by_its_last_generations(data, starts, each):
    scores = data.draw(st.lists(st.integers(-3, 3), min_size=starts * each, max_size=starts * each))
    states = states_after(made(starts=starts, start_generations=each), scores)
    k = math.ceil(each / 4)
    wanted = [sum(scores[(n + 1) * each - k : (n + 1) * each]) / k for n in range(starts)]
    assert states[-1].record.best_score == pytest.approx(max(wanted))
    best = int(np.argmax(wanted))
    ends = [states[each * (n + 1)].best for n in range(starts)]
    assert all(same(made(), ends[n], ends[best]) for n in range(best, starts))


@given(st.data(), st.integers(3, 5), st.integers(1, 3))
def test_the_best_starts_play_on_and_the_best_of_these_goes_on(data, starts, each):
    finalists = data.draw(st.integers(2, starts - 1))
    total = (starts + finalists) * each
    scores = data.draw(st.lists(st.integers(-3, 3), min_size=total, max_size=total))
    strategy = made(starts=starts, start_generations=each, finalists=finalists)
    states = states_after(strategy, scores)
    k = math.ceil(each / 4)
    ends = [each * (n + 1) for n in range(starts + finalists)]
    wanted = [sum(scores[end - k : end]) / k for end in ends]
    ranked = sorted(range(starts), key=lambda n: -wanted[n])[:finalists]
    for place, n in enumerate(ranked):
        begun = states[each * (starts + place)]
        assert same(made(), begun.now, before_next_start(states, ends[n], scores))  # it begins where its start ended
        assert [score for score, _ in begun.waiting] == pytest.approx([wanted[m] for m in ranked[place + 1 :]])
    best = starts + int(np.argmax(wanted[starts:]))
    assert states[-1].record.best_score == pytest.approx(wanted[best])
    assert same(made(), states[-1].now, before_next_start(states, ends[best], scores))
    kinds = [strategy.begun_search(*pair) for pair in itertools.pairwise(states)]
    assert [kind for kind in kinds if kind] == [
        *(f"start {n}" for n in range(2, starts + 1)),
        *(f"finalist {n}" for n in range(1, finalists + 1)),
        "best start",
    ]


def before_next_start(states, end, scores):
    """Return the strategy's own state after generation `end` - 1, before another start takes its place."""
    before, fitness = states[end - 1], np.arange(P) - (P - 1) / 2 + scores[end - 1]
    return made().tell(before.now, made().ask(before.now, end - 1), Results(fitness))


def test_the_champion_is_that_of_the_best_finalist_that_has_ended():
    strategy, inner = made(starts=3, start_generations=1, finalists=2), made()
    states = states_after(strategy, [5.0, 1.0, 9.0, 2.0, 3.0, 0.0])
    champions = [strategy.champion(state).weights for state in states]
    assert np.array_equal(champions[3], inner.champion(states[3].now).weights)  # the third start is the best
    assert np.array_equal(champions[4], inner.champion(before_next_start(states, 4, [5, 1, 9, 2, 3])).weights)
    assert np.array_equal(champions[5], inner.champion(states[5].now).weights)
    assert states[5].record.best_score == 3.0  # in the first round the third start had 9


@pytest.mark.parametrize(
    ("starts", "finalists", "message"),
    [
        (1, 2, r"strategy\.starts: expected more than the 2 finalists, got 1"),
        (2, 2, r"strategy\.finalists: expected fewer than the 2 starts, got 2"),
        (3, 3, r"strategy\.finalists: expected fewer than the 3 starts, got 3"),
    ],
)
def test_a_round_without_a_choice_is_refused(starts, finalists, message):
    with pytest.raises(InputError, match=message):
        STRATEGIES.validate({"name": "pgpe", "starts": starts, "finalists": finalists}, NETWORK)


def test_starts_of_ga_begin_with_other_genomes_and_are_scored_by_their_survivors():
    strategy, inner = made("ga", starts=2, start_generations=2), made("ga")
    assert isinstance(strategy, Multistart)
    states = [strategy.start()]
    for generation, (survivors, others) in enumerate([(0, 0), (2, 0), (0, 0), (1, 9), (0, 0)]):
        genomes = strategy.ask(states[-1], generation)
        states.append(strategy.tell(states[-1], genomes, Results(np.repeat([survivors, others], [4, P - 4]) * 1.0)))
    second = strategy.ask(states[2], 2)
    assert np.array_equal(second.weights, inner.ask(inner.start(), 2).weights)
    assert not np.array_equal(second.weights, strategy.ask(states[0], 0).weights)
    assert not np.array_equal(second.mask, strategy.ask(states[0], 0).mask)
    assert states[-1].record == StartRecord(best_score=2.0, generations=5)
    assert same(inner, states[4].now, states[2].best)


def test_survivors_without_a_finite_fitness_have_the_smallest_one_of_their_generation():
    strategy = made("ga", starts=2, start_generations=2, survivors=1)
    state = strategy.start()
    for generation, fitness in enumerate([np.arange(P), np.append(np.nan, 3.0 + np.arange(P - 1)), np.zeros(P)]):
        state = strategy.tell(state, strategy.ask(state, generation), Results(fitness * 1.0))
    assert state.record == StartRecord(best_score=3.0, generations=3)


@pytest.mark.parametrize("fitness", [np.nan, -np.inf])
def test_a_start_without_a_finite_fitness_is_chosen_only_if_all_are(fitness):
    strategy = made(starts=2, start_generations=1)
    state = strategy.start()
    state = strategy.tell(state, strategy.ask(state, 0), Results(np.full(P, fitness)))
    assert np.isfinite(state.record.best_score)
    better = strategy.tell(state, strategy.ask(state, 1), Results(np.arange(P) - 1e9))
    worse = strategy.tell(state, strategy.ask(state, 1), Results(np.full(P, fitness)))
    assert not same(made(), better.best, state.best)
    assert same(made(), worse.best, state.best)


@pytest.mark.parametrize("name", [*ES, "ga"])
def test_the_length_of_one_start_is_refused(name):
    with pytest.raises(InputError, match=r"strategy\.starts: expected 2 or more, of 50 generations each, got 1"):
        STRATEGIES.validate({"name": name, "start_generations": 50}, NETWORK)
    STRATEGIES.validate({"name": name, "starts": 2, "start_generations": 50}, NETWORK)


def test_rounds_of_pruning_that_end_before_the_starts_are_refused():
    table = {"name": "pgpe", "starts": 3, "start_generations": 4, "pruning_every": 12}
    with pytest.raises(InputError, match=r"pruning_every: expected above 12, the generations of all starts, got 12"):
        STRATEGIES.validate(table, NETWORK)
    STRATEGIES.validate(table | {"pruning_every": 13}, NETWORK)


@pytest.mark.parametrize("name", ["openai-es", "sep-cma-es", "ga"])
def test_a_run_with_several_starts_resumes_and_verifies(call, tmp_path, name):
    settings = ("strategy.starts=3", "strategy.start_generations=2")
    assert run_in_parts(call, tmp_path, name, settings, stops=(3, 7, 8)).checkpoint["starts"][1] == 8


def test_a_run_with_finalists_resumes_and_verifies(call, tmp_path):
    settings = ("strategy.starts=4", "strategy.start_generations=2", "strategy.finalists=2")
    end = run_in_parts(call, tmp_path, "openai-es", settings, stops=(3, 8, 9, 11, 13)).checkpoint
    assert end["starts"][1] == 13
    assert not any(name.startswith("waiting") for name in end)
