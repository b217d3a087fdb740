"""Every strategy of the registry keeps the contract."""

import itertools
import json
import pickle
import subprocess
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise

import numpy as np
import pytest
import strategy_digests
from conftest import environment
from processors import MASKED, x86

from evolve import networks, strategies
from evolve.errors import InputError
from evolve.genome import Genomes, pruned
from evolve.numerics import native
from evolve.strategies import AskedGenomes, Results, ranking
from evolve.strategies.strategy import NewestValue

VARIANTS = [  # every strategy with its defaults, so that a new one needs no line here; then other settings
    *({"name": name} for name in strategies.STRATEGIES),
    {"name": "hill-climber"},  # examples/outside
    {"name": "prune", "survivors": 4, "regrowth": 0.1, "weight_noise": 0.2},
    {"name": "prune", "uniform_pruning": "adaptive"},
    {"name": "openai-es", "sigma": 0.3, "sigma_decay": 0.9, "learning_rate_decay": 0.99, "weight_decay": 0.0},
    {"name": "openai-es", "pruning": 0.3, "pruning_generations": 4},
    {"name": "openai-es", "pruning": 0.3, "pruning_generations": 5, "pruning_by": "trace"},
    {"name": "openai-es", "pruning": 0.8, "pruning_generations": 4, "pruning_by": "flow"},
    {"name": "openai-es", "perturbation_rank": 1, "pruning": 0.3, "pruning_generations": 4},
    {"name": "openai-es", "optimizer": "clipup", "learning_rate": 0.2, "pruning": 0.3, "pruning_generations": 4},
    {"name": "pgpe", "max_speed": 0.5, "initial_radius": 2.0, "sigma_learning_rate": 0.5},
    {"name": "snes", "sigma": 0.2, "restart_after": 2, "pruning_every": 3},
    {"name": "sep-cma-es", "sigma": 0.3},
    {"name": "umda", "mask_noise": 0.02, "min_probability": 0.01, "weight_noise": 0.1, "prior_evaluations": 1},
    {
        "name": "nsga2",
        "parents": 3,
        "minimize": ["connections", "acting_connections"],
        "trusted": 2,
        "regrowth": 0.1,
        "prior_evaluations": 1,
    },
    {"name": "map-elites", "descriptors": ["connections", "acting_connections"], "cells": [4, 3], "line_noise": 0.0},
    {"name": "map-elites", "descriptors": ["connections"], "emitters": 1, "sigma": 0.2},
    {"name": "map-elites", "descriptors": ["a_metric", "another"], "bounds": [[-1, 1], [-1, 1]]},
    {"name": "ga", "parents": 3, "survivors": 8, "prior_evaluations": 2},
    {"name": "ga", "parents": 3, "starts": 3, "start_generations": 3, "finalists": 2},
    {"name": "openai-es", "restart_after": 2, "pruning": 0.3, "pruning_generations": 4, "pruning_by": "trace"},
    {"name": "openai-es", "sigma": 0.1, "learning_rate": 0.05, "restart_after": 1, "restart_from": "anew"},
    {"name": "openai-es", "starts": 2, "start_generations": 2, "restart_after": 1, "restart_from": "anew"},
    {"name": "pgpe", "restart_after": 1},
    {"name": "pgpe", "starts": 3, "start_generations": 1, "pruning_every": 4},
    {"name": "sep-cma-es", "starts": 3, "start_generations": 1, "finalists": 2},
    {"name": "cma-es", "starts": 2, "start_generations": 1},
    {"name": "pgpe", "restart_after": 2, "restart_from": "anew"},
    {"name": "sep-cma-es", "restart_after": 1},
    {"name": "sep-cma-es", "restart_after": 2, "restart_from": "anew"},
    {"name": "cma-es", "restart_after": 1},
    {"name": "cma-es", "restart_after": 2, "restart_from": "anew"},
    {"name": "pgpe", "pruning_every": 2},
    {"name": "pgpe", "starts": 2, "start_generations": 1, "pruning_every": 3, "pruning_control": True},
    {"name": "sep-cma-es", "pruning_every": 2, "pruning_control": True, "restart_after": 1, "restart_from": "anew"},
]
P = 20
HILL_CLIMBER = {"name": "hill-climber"}  # examples/outside
FEWEST = {"cma-es": 4, "sep-cma-es": 4}  # candidates; else 2
NETWORK = networks.make({"name": "hebbian-dag", "hidden": [3]}, 4, 2)
START = pruned(
    *(
        draw(np.random.Generator(np.random.Philox(8)))
        for draw in (
            lambda random: random.normal(size=(1, NETWORK.num_weights)).astype(np.float32),
            lambda random: random.uniform(size=(1, NETWORK.num_weights)) < 0.7,
        )
    )
)


def pytest_generate_tests(metafunc):
    if "table" in metafunc.fixturenames:
        given = [{"name": name} for name in metafunc.config.getoption("--strategy")]
        metafunc.parametrize("table", given or VARIANTS, ids=lambda table: "-".join(map(str, table.values())))


def strategy(table, seed=3, population=P):
    return strategies.from_table(table, NETWORK, population, seed)


@cache
def traces(P=P):
    return np.random.Generator(np.random.Philox(9)).normal(size=(P, NETWORK.num_traces)).astype(np.float32)


def sphere(genomes):
    return -((genomes.weights.astype(np.float64) - 0.5) ** 2).sum(axis=1)


def results_of(made, genomes, fitness):
    """Return results as a run has them: the metrics that a strategy measures are here numbers of the genomes."""
    numbers = genomes.weights.T.astype(np.float64)
    metrics = dict(zip(made.measured, itertools.cycle(numbers)))
    measures = made.measures(genomes, metrics) if made.measured else None
    return Results(fitness, traces(len(genomes)), measures=measures)


def evolve(made, generations, objective=sphere, state=None, first=0):
    state = made.start() if state is None else state
    asked = []
    for generation in range(first, generations):
        genomes = made.ask(state, generation)
        asked.append(genomes)
        state = made.tell(state, genomes, results_of(made, genomes, objective(genomes)))
    return state, asked


@pytest.mark.parametrize("population", [2, 3, 4, 9])
def test_population_keeps_its_size(table, population):
    if population < (8 * table["emitters"] if "emitters" in table else FEWEST.get(table["name"], 2)):
        with pytest.raises(InputError, match="population"):
            strategy(table, population=population)
        return
    _, asked = evolve(strategy(table, population=population), 5)
    assert all(g.weights.shape == (population, NETWORK.num_weights) for g in asked)
    assert not any(g.weights[~g.mask].any() for g in asked)


def test_a_state_holds_no_more_genomes_than_its_capacity(table):
    """Rank 0 estimates by it whether a run fits in memory."""
    made = strategy(table)
    if made.capacity is None:
        return
    state, held = None, []
    for generation in range(12):
        state, _ = evolve(made, generation + 1, state=state, first=generation)
        masks = [array for name, array in made.to_arrays(state).items() if name.endswith("mask")]
        held.append(sum(map(len, masks)))
    assert 0 < max(held) <= made.capacity


def test_same_key_same_ask(table):
    (_, one), (_, two), (_, other) = (evolve(strategy(table, seed), 4) for seed in (3, 3, 4))
    for a, b, c in zip(one, two, other, strict=True):
        assert np.array_equal(a.weights, b.weights)
        assert not np.array_equal(a.weights, c.weights)


def test_ask_and_tell_change_neither_state_nor_arguments(table):
    made = strategy(table)
    state, _ = evolve(made, 3)
    before = {name: array.copy() for name, array in made.to_arrays(state).items()}
    genomes = made.ask(state, 3)
    weights, mask = genomes.weights.copy(), genomes.mask.copy()
    made.tell(state, genomes, results_of(made, genomes, sphere(genomes)))
    assert np.array_equal(genomes.weights, weights)
    assert np.array_equal(genomes.mask, mask)
    assert all(np.array_equal(before[name], array) for name, array in made.to_arrays(state).items())
    assert np.array_equal(made.ask(state, 3).weights, weights)


def test_a_strategy_can_be_sent_to_another_process(table):
    """As joblib does with the arguments of a function."""
    made = strategy(table)
    state, _ = evolve(made, 2)
    sent, its_state = pickle.loads(pickle.dumps((made, state)))
    assert sent.ask(its_state, 2) == made.ask(state, 2)


def test_state_survives_arrays_and_resumes_to_the_bit(table):
    made = strategy(table)
    parts = {3: evolve(made, 3)[0]}
    parts[4], early = evolve(made, 4, state=parts[3], first=3)
    state, late = evolve(made, 8, state=parts[4], first=4)
    for until, part in parts.items():
        restored = strategy(table).from_arrays(made.to_arrays(part))
        state_again, rest = evolve(strategy(table), 8, state=restored, first=until)
        asked = [*early, *late][until - 3 :]
        assert all(np.array_equal(a.weights, b.weights) for a, b in zip(asked, rest, strict=True))
        assert strategy(table).champion(restored) == made.champion(part)
        for name, array in made.to_arrays(state).items():
            assert np.array_equal(made.to_arrays(state_again)[name], array)


def test_damaged_state_is_refused(table):
    made = strategy(table)
    arrays = made.to_arrays(evolve(made, 2)[0])
    for name in arrays:
        if not name.endswith("begun"):  # earlier versions had none
            with pytest.raises(ValueError, match=r"expected|missing"):
                made.from_arrays({k: v for k, v in arrays.items() if k != name})
        with pytest.raises(ValueError, match=r"expected|missing"):
            made.from_arrays(arrays | {name: arrays[name][..., :-1]})
        with pytest.raises(ValueError, match="expected"):
            made.from_arrays(arrays | {name: np.zeros((), arrays[name].dtype)})


def test_improves_a_sphere(table):
    # Without weight noise only recombination and pruning act, so the bar is improvement, not convergence.
    made = strategy(table, population=40)
    _, asked = evolve(made, 25)
    scores = [sphere(g).max() for g in asked]
    assert scores[-1] > scores[0] * 0.9


def test_improves_a_noisy_sphere(table):
    noise = np.random.Generator(np.random.Philox(4))
    made = strategy(table, population=40)
    state, asked = evolve(made, 20, objective=lambda g: sphere(g) + noise.normal(size=len(g.weights)))
    assert sphere(made.champion(state))[0] > sphere(asked[0]).mean()
    if table["name"] != "random" and table.get("restart_from") != "anew":  # which learn nothing, or forget it
        assert sphere(asked[-1]).mean() > sphere(asked[0]).mean()


def test_nan_is_worst_and_ties_keep_their_order():
    fitness = np.array([1.0, np.nan, 3.0, -np.inf, 3.0, np.nan])
    assert ranking(fitness).tolist() == [2, 4, 0, 3, 1, 5]
    assert ranking(np.array([np.nan, np.inf])).tolist() == [1, 0]


def test_a_nan_fitness_never_leads(table):
    made = strategy(table)

    def objective(genomes):
        fitness = sphere(genomes)
        fitness[::3] = np.nan
        return fitness

    state, asked = evolve(made, 5, objective)
    champion = made.champion(state).weights[0]
    bad = np.concatenate([g.weights[::3] for g in asked[:1]])
    assert not (bad == champion).all(axis=1).any()


@pytest.mark.parametrize("generation", [0, 3])
def test_any_candidates_are_those_rows_of_the_whole(table, generation):
    made = strategy(table)
    state, _ = evolve(made, generation)
    whole = made.ask(state, generation)
    for candidates in ([0], [P - 1], [7], [2, 3], [9, 1, 4, 0], [5, 5, 5], range(P), range(P)[::-1]):
        some = made.ask(state, generation, np.array(candidates, np.int64))
        assert np.array_equal(some.weights, whole.weights[list(candidates)])
        assert np.array_equal(some.mask, whole.mask[list(candidates)])


@pytest.mark.parametrize("candidates", [[P], [0, -1]])
def test_candidates_outside_of_the_population_are_refused(table, candidates):
    if table["name"] not in strategies.STRATEGIES:
        pytest.skip("a strategy of another package, which need not check its arguments")
    made = strategy(table)
    with pytest.raises(InputError, match=rf"^candidates: expected numbers from 0 to {P - 1}, got \["):
        made.ask(made.start(), 0, np.array(candidates))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(table, wrong):
    if table["name"] not in strategies.STRATEGIES:
        pytest.skip("a strategy of another package, which need not check its arguments")
    made = strategy(table)
    genomes = made.ask(made.start(), 0)
    genomes.weights[3, -1] = wrong
    with pytest.raises(InputError, match="genomes: expected finite weights, got NaN or infinity in candidate 3"):
        made.tell(made.start(), genomes, Results(np.zeros(P), traces()))


def test_the_champion_before_the_first_generation_is_an_initial_genome_or_refused(table):
    made = strategy(table)
    if table["name"] in ("ga", "nsga2", "prune", "random", "umda"):
        with pytest.raises(InputError, match="state: expected a state that `tell` has returned"):
            made.champion(made.start())
    else:
        assert made.champion(made.start()).weights.shape == (1, NETWORK.num_weights)


def test_threads_that_ask_at_the_same_time_share_what_is_computed_once():
    def slow(state, generation):
        computed.append(generation)
        time.sleep(0.05)
        return state[0] + generation, object()

    computed, newest, state = [], NewestValue(slow), [3]
    with ThreadPoolExecutor(4) as pool:
        for generation in range(3):
            values = list(pool.map(lambda generation: newest(state, generation), [generation] * 4))
            assert values == [values[0]] * 4
            assert values[0][0] == 3 + generation
    assert computed == [0, 1, 2]


def test_tell_may_make_the_candidates_once_more(table):
    made = strategy(table)
    state, _ = evolve(made, 3)
    genomes = made.ask(state, 3)
    results = results_of(made, genomes, sphere(genomes))
    at_hand = made.to_arrays(made.tell(state, genomes, results))
    made_again = made.to_arrays(made.tell(state, AskedGenomes(made, state, 3, P, NETWORK.num_weights), results))
    assert all(np.array_equal(at_hand[name], made_again[name]) for name in at_hand)


def test_a_search_begins_with_a_given_genome(table):
    if not strategy(table).warm_starts:
        pytest.skip("a strategy of another package, which need not begin with a given genome")
    if table.get("pruning_control"):
        with pytest.raises(InputError, match=r"strategy\.pruning_control: expected false"):
            strategies.from_table(table, NETWORK, P, 3, start=START)
        return
    one, again = (strategies.from_table(table, NETWORK, P, 3, start=START) for _ in range(2))
    first = one.champion(one.start())
    assert first.weights.tobytes() == START.weights.tobytes()
    assert first.mask.tobytes() == START.mask.tobytes()
    # The start itself is candidate 0, unless all candidates surround it; the others are mutants of it.
    asked = one.ask(one.start(), 0)
    assert (asked.fingerprints()[0] == START.fingerprints()[0]) == (not one.shared_mask)
    assert len(np.unique(asked.fingerprints())) > P // 4
    if table["name"] not in ("random", "umda"):  # random draws new genomes, umda new connections
        assert not (asked.mask & ~START.mask).any() or table.get("regrowth")
    state, all_asked = evolve(one, 5)
    part, _ = evolve(again, 3)
    restored, rest = evolve(again, 5, state=again.from_arrays(one.to_arrays(part)), first=3)
    assert all(np.array_equal(a.weights, b.weights) for a, b in zip(all_asked[3:], rest, strict=True))
    assert np.array_equal(one.champion(state).weights, again.champion(restored).weights)


def test_a_strategy_that_does_not_support_it_is_named(monkeypatch):
    monkeypatch.setattr(strategies.STRATEGIES.kind({"name": "hill-climber"}), "warm_starts", False)
    with pytest.raises(InputError, match=r"strategy\.name: expected a strategy that can begin .*, got hill-climber"):
        strategies.from_table({"name": "hill-climber"}, NETWORK, P, 3, start=START)


def _in_place(_made, state, *_):
    state.weights[:] += 1
    return state


def _random_later(_made, _state, generation, candidates):
    weights = np.random.default_rng(None if generation else 0).normal(size=NETWORK.num_weights)
    rows = np.repeat(weights[None].astype(np.float32), len(candidates), axis=0)
    return Genomes(rows, np.ones(rows.shape, np.bool_))


def _random_candidate(_made, state, _generation, candidates):
    weights = state.weights.repeat(len(candidates), axis=0)
    weights[candidates == P - 3] += np.random.default_rng().normal()
    return pruned(weights, state.mask.repeat(len(candidates), axis=0))


@pytest.mark.parametrize(
    ("name", "replacement", "fault"),
    [
        ("ask", _random_candidate, "ask fails .*a second call gives a candidate other weights"),
        ("tell", lambda *_: None, "tell fails .*expected the next state, got None"),
        ("tell", _in_place, "tell fails .*return a new state instead"),
        ("champion", lambda *_: None, "champion fails .*expected evolve.genome.Genomes, got NoneType"),
        ("champion", lambda _, state: state.take(np.array([0, 0])), r"champion fails .*got \[2, "),
        ("to_arrays", lambda *_: {"n": 3}, "to_arrays fails .*arrays of numbers by name, got 'n': int"),
        ("to_arrays", lambda *_: {"z": np.zeros(1, complex)}, "got 'z': complex128"),
        ("to_arrays", lambda *_: {"z": np.zeros(1, ">f8")}, "got 'z': >f8"),
        ("champion", lambda _, state: Genomes(state.weights + 1, ~state.mask), "champion fails .*absent connection"),
        ("to_arrays", lambda *_: {"layer/0": np.zeros(1)}, "expected names without /, got 'layer/0'"),
        ("from_arrays", lambda made, _: made.start(), "the state that was read back gives other candidates"),
        ("ask", _random_later, "ask fails .*a second call gives a candidate other weights"),
        ("traces", "all", "traces fails .*expected each, mean or none, got all"),
        ("sum_shape", (2,), r"sums fails \(NotImplementedError"),
        ("sum_shape", 2, "sums fails .*must be an iterable, not int"),
        ("measured", ("connections",), r"measures fails \(NotImplementedError"),
        ("measured", None, "measures fails .*'NoneType' has no len"),
        ("outcome", lambda *_: {"fronts": np.zeros(P)}, "outcome fails .*expected front or archive, got fronts"),
        ("outcome", lambda *_: None, "outcome fails .*'NoneType' object is not iterable"),
        ("start", lambda _: 1 / 0, r"start fails \(ZeroDivisionError: .*, line \d+ of test_conformance\.py\)"),
    ],
)
def test_an_added_strategy_that_breaks_the_contract_is_refused(monkeypatch, name, replacement, fault):
    made = strategy(HILL_CLIMBER)
    strategies.check(HILL_CLIMBER, partial(strategies.guarded, HILL_CLIMBER, NETWORK, P, 3), NETWORK, P)
    monkeypatch.setattr(type(made), name, replacement)
    with pytest.raises(InputError, match=rf"^strategy\.name: .*got hill-climber, whose .*{fault}"):
        strategies.check(HILL_CLIMBER, partial(strategies.guarded, HILL_CLIMBER, NETWORK, P, 3), NETWORK, P)


def test_an_added_strategy_whose_tell_draws_elsewhere_is_refused(monkeypatch):
    made = strategy(HILL_CLIMBER)
    tell, signs = type(made).tell, itertools.cycle((1.0, -1.0))

    def tell_by_chance(self, state, genomes, results):
        return tell(self, state, genomes, replace(results, fitness=next(signs) * results.fitness))

    monkeypatch.setattr(type(made), "tell", tell_by_chance)
    with pytest.raises(
        InputError, match=r"whose tell fails .*a second call with the same results gives other candidates"
    ):
        strategies.check(HILL_CLIMBER, partial(strategies.guarded, HILL_CLIMBER, NETWORK, P, 3), NETWORK, P)


def test_an_added_strategy_that_keeps_something_outside_of_its_state_is_refused(monkeypatch):
    """A resumed run has a new strategy, which has not seen the earlier generations."""
    kind = type(strategy(HILL_CLIMBER))
    tell, archives = kind.tell, weakref.WeakKeyDictionary()

    def tell_with_archive(self, state, genomes, results):
        archive = archives.setdefault(self, [])
        archive.append(results.fitness.max())
        sign = 1.0 if len(archive) < 8 else -1.0
        return tell(self, state, genomes, replace(results, fitness=sign * results.fitness))

    monkeypatch.setattr(kind, "tell", tell_with_archive)
    with pytest.raises(
        InputError, match="a resumed run has other candidates or another champion; keep all that tell changes in the"
    ):
        strategies.check(HILL_CLIMBER, partial(strategies.guarded, HILL_CLIMBER, NETWORK, P, 3), NETWORK, P)


def test_a_capacity_of_an_added_strategy_is_a_whole_number(monkeypatch):
    monkeypatch.setattr(type(strategy(HILL_CLIMBER)), "capacity", "many")
    with pytest.raises(InputError, match="got hill-climber, whose capacity fails"):
        strategies.bytes_per_weight(HILL_CLIMBER, NETWORK, P)


def test_an_added_strategy_whose_champion_is_outside_of_its_state_is_refused(monkeypatch):
    kind = type(strategy(HILL_CLIMBER))
    first = weakref.WeakKeyDictionary()

    def champion_so_far(self, state):
        return first.setdefault(self, state)

    monkeypatch.setattr(kind, "champion", champion_so_far)
    with pytest.raises(InputError, match=r"a resumed run has .* another champion"):
        strategies.check(HILL_CLIMBER, partial(strategies.guarded, HILL_CLIMBER, NETWORK, P, 3), NETWORK, P)


def test_an_added_strategy_that_reads_a_metric_without_its_name_in_env_metrics_is_refused(monkeypatch):
    kind = type(strategy(HILL_CLIMBER))
    monkeypatch.setattr(kind, "measured", ("speed",))
    monkeypatch.setattr(kind, "measures", lambda _self, _genomes, metrics: metrics["speed"][:, None])
    strategies.check(
        HILL_CLIMBER, partial(strategies.guarded, HILL_CLIMBER, NETWORK, P, 3), NETWORK, P, ("energy", "speed")
    )
    with pytest.raises(InputError, match=r"^env\.metrics: expected speed among the metrics, .*, got \['energy'\]"):
        strategies.check(
            HILL_CLIMBER, partial(strategies.guarded, HILL_CLIMBER, NETWORK, P, 3), NETWORK, P, ("energy",)
        )


def test_an_added_strategy_is_checked_for_the_generations_of_the_run_alone(monkeypatch):
    kind = type(strategy(HILL_CLIMBER))
    ask = kind.ask

    def planned(self, state, generation, candidates=None):
        if generation >= 4:
            raise IndexError("the plan has 4 generations")
        return ask(self, state, generation, candidates)

    monkeypatch.setattr(kind, "ask", planned)
    make = partial(strategies.guarded, HILL_CLIMBER, NETWORK, P, 3)
    strategies.check(HILL_CLIMBER, make, NETWORK, P, generations=4)
    with pytest.raises(InputError, match="the plan has 4 generations"):
        strategies.check(HILL_CLIMBER, make, NETWORK, P, generations=5)


def test_an_error_in_validate_of_an_added_strategy_is_refused(monkeypatch):
    kind = type(strategy(HILL_CLIMBER))
    monkeypatch.setattr(kind, "validate", staticmethod(lambda *_: 1 / 0), raising=False)
    with pytest.raises(InputError, match=r"got hill-climber, whose validate fails \(ZeroDivisionError"):
        strategies.STRATEGIES.validate({"name": "hill-climber"}, NETWORK)


@pytest.mark.parametrize(
    ("name", "attribute", "wrong", "right"),
    [
        ("sums", ("sum_shape", (2,)), np.zeros(1), np.zeros((1, 2))),
        ("measures", ("measured", ("a", "b")), np.zeros((1, 1)), np.zeros((1, 2))),
    ],
)
def test_sums_and_measures_of_an_added_strategy_have_their_shapes(monkeypatch, name, attribute, wrong, right):
    made = strategy(HILL_CLIMBER)
    monkeypatch.setattr(type(made), *attribute)
    monkeypatch.setattr(type(made), name, lambda *_: wrong)
    with pytest.raises(InputError, match=rf"whose {name} fails .*expected .*1, 2\]|P, D\]"):
        strategies.check(HILL_CLIMBER, partial(strategies.guarded, HILL_CLIMBER, NETWORK, P, 3), NETWORK, P)
    monkeypatch.setattr(type(made), name, lambda *_: right)
    strategies.check(HILL_CLIMBER, partial(strategies.guarded, HILL_CLIMBER, NETWORK, P, 3), NETWORK, P)


def test_one_that_grows_learns_from_the_first_as_if_they_were_all(table):
    whole, part = strategy(table), strategy(table, population=8)
    if not whole.grows or whole.traces != "none":
        pytest.skip("its population has one size")
    states = whole.start(), part.start()
    for generation in range(4):
        genomes, few = (made.ask(state, generation) for made, state in zip((whole, part), states, strict=True))
        assert np.array_equal(genomes.weights[:8], few.weights)
        results = Results(sphere(few), traces(8))
        sums = whole.sums(states[0], generation, results.fitness, slice(0, NETWORK.num_weights))
        at_hand = whole.tell(states[0], genomes, results)
        states = (
            whole.tell(states[0], NoGenomes(), Results(results.fitness, traces(8), sums=sums)),
            part.tell(states[1], few, results),
        )
        for other in (whole.to_arrays(at_hand), part.to_arrays(states[1])):
            assert all(array.tobytes() == other[name].tobytes() for name, array in whole.to_arrays(states[0]).items())
    with pytest.raises(InputError, match="fitness: expected one number for each of"):
        whole.tell(states[0], genomes, Results(np.zeros(7)))


@pytest.mark.parametrize("edges", [[0, 1, 2, 7, None], [0, None]])
def test_sums_may_be_taken_in_columns(table, edges):
    made = strategy(table)
    if made.sum_shape is None:
        pytest.skip("nothing is added up over all candidates")
    state, _ = evolve(made, 3)
    genomes = made.ask(state, 3)
    fitness = sphere(genomes)
    edges = [NETWORK.num_weights if edge is None else edge for edge in edges]
    sums = np.concatenate([made.sums(state, 3, fitness, slice(*ends)) for ends in pairwise(edges)])
    alone = made.to_arrays(made.tell(state, genomes, results := results_of(made, genomes, fitness)))
    together = made.to_arrays(made.tell(state, NoGenomes(), replace(results, sums=sums)))
    assert all(np.array_equal(alone[name], together[name]) for name in alone)


def test_the_mean_of_the_traces_is_enough_where_no_more_is_wanted(table):
    made = strategy(table)
    wants = made.traces
    assert wants in ("each", "mean", "none")
    state, _ = evolve(made, 3)
    genomes = made.ask(state, 3)
    all_of_them = results_of(made, genomes, sphere(genomes))
    reduced = {
        "each": all_of_them,
        "mean": replace(all_of_them, traces=traces()[:, :0], mean_traces=traces().astype(np.float64).mean(axis=0)),
        "none": replace(all_of_them, traces=traces()[:, :0]),
    }
    whole, less = (made.to_arrays(made.tell(state, genomes, results)) for results in (all_of_them, reduced[wants]))
    assert all(np.array_equal(whole[name], less[name]) for name in whole)


@pytest.mark.parametrize("backend", ["native", "arrays"])
def test_portable_strategies_have_their_golden_digests(golden, monkeypatch, backend):
    if backend == "arrays":
        monkeypatch.setattr(native, "available", lambda: False)
    elif not native.available():
        pytest.skip("the native kernels were not built")
    assert strategy_digests.all_digests() == golden["strategy_digests"]


@x86
def test_an_older_processor_agrees(golden):
    words = [sys.executable, "-m", "strategy_digests"]
    assert json.loads(subprocess.check_output(words, env=environment(**MASKED))) == golden["strategy_digests"]


class NoGenomes:
    """P candidates of which none may be taken."""

    def __len__(self):
        return P

    def take(self, candidates):
        raise AssertionError(f"{candidates} were taken")
