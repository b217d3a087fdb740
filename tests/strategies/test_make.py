"""Strategies by hand: ask and tell on any function of a vector, with no environment and no network."""

import subprocess
import sys
import tracemalloc
from functools import partial

import numpy as np
import pytest

from evolve import networks, strategies
from evolve.errors import InputError
from evolve.genome import Genomes, pruned
from evolve.numerics import normal_quantile
from evolve.numerics.streams import Purpose, Stream
from evolve.strategies import Results, VectorLayout, make

FEW = {  # options that make 60 generations of 40 candidates enough for 10 numbers; other strategies need none
    "cma-es": {"sigma": 0.3},
    "sep-cma-es": {"sigma": 0.3},
    "snes": {"sigma": 0.3},
    "openai-es": {"sigma": 0.1, "learning_rate": 0.1},
    "pgpe": {"max_speed": 0.2},
    "ga": {"weight_noise": 0.1},
    "prune": {"weight_noise": 0.1, "survivors": 3, "uniform_pruning": 0.0},
    "nsga2": {"parents": 10, "pruning": 0.0, "regrowth": 0.0},
    "umda": {"weight_noise": 0.1, "min_probability": 0.0, "mask_noise": 0.0},
}


def sphere(weights):
    return -((weights.astype(float) - 0.5) ** 2).sum(axis=1)


def search(strategy, generations):
    """Return the champion's value after a number of generations, and the mean of the first candidates."""
    state = strategy.start()
    for generation in range(generations):
        genomes = strategy.ask(state, generation)
        if generation == 0:
            first = sphere(genomes.weights).mean()
        state = strategy.tell(state, genomes, Results(sphere(genomes.weights)))
    return sphere(strategy.champion(state).weights)[0], first


@pytest.mark.parametrize("name", sorted({*strategies.STRATEGIES} - {"random"}))
def test_it_climbs_a_sphere(name):
    best, first = search(make(name, genome_size=10, population=40, seed=1, **FEW.get(name, {})), 60)
    assert best > 0.05 * first  # both are negative; the optimum is 0


def test_five_lines_are_enough():
    strategy = strategies.make("openai-es", genome_size=100)
    state = strategy.start()
    genomes = strategy.ask(state, 0)
    state = strategy.tell(state, genomes, Results(sphere(genomes.weights)))
    assert genomes.weights.shape == strategy.ask(state, 1).weights.shape == (64, 100)


@pytest.mark.parametrize("name", ["ga", "snes", "cma-es", "map-elites"])
def test_candidates_may_be_a_list(name):
    strategy = make(name, genome_size=3, population=8)
    state = strategy.start()
    assert strategy.ask(state, 0, [2, 5]) == strategy.ask(state, 0).take(np.array([2, 5]))


@pytest.mark.parametrize(
    ("method", "result", "fault"),
    [
        ("ask", lambda ask: ask.weights, "ask fails (TypeError: expected evolve.genome.Genomes, got ndarray)"),
        (
            "ask",
            lambda ask: pruned(ask.weights[:, 1:], ask.mask[:, 1:]),
            "ask fails (ValueError: weights: expected [P, W]",
        ),
        ("ask", lambda ask: pruned(ask.weights + len(ask), ask.mask), "a second call gives a candidate other weights"),
        ("to_arrays", lambda arrays: {}, "to_arrays or from_arrays fails (ValueError"),
    ],
)
def test_a_strategy_of_another_package_is_checked_before_a_run(monkeypatch, method, result, fault):
    made = partial(strategies.guarded, {"name": "hill-climber"}, VectorLayout(3), 8, 0)  # examples/outside
    strategy = made()
    strategies.check({"name": "hill-climber"}, made, VectorLayout(3), 8)
    original = getattr(type(strategy), method)
    monkeypatch.setattr(type(strategy), method, lambda self, *given: result(original(self, *given)))
    with pytest.raises(InputError) as wrong:
        strategies.check({"name": "hill-climber"}, made, VectorLayout(3), 8)
    assert fault in str(wrong.value)


@pytest.mark.parametrize("convert", [list, tuple, np.float32, np.int64])
def test_fitness_is_anything_that_numpy_converts_to_numbers(convert):
    strategy = make("openai-es", genome_size=3, population=8)
    state, values = strategy.start(), np.arange(8.0)
    genomes = strategy.ask(state, 0)
    told = [strategy.tell(state, genomes, Results(given)) for given in (values, convert(values))]
    assert Results(convert(values)).fitness.dtype == np.float64
    assert told[0].centre.tobytes() == told[1].centre.tobytes()


@pytest.mark.parametrize("wrong", [1.0, np.zeros((8, 1)), ["good"] * 8, [[1], [1, 2]], [1j] * 8, [10**400] * 8])
def test_a_wrong_fitness_is_refused(wrong):
    with pytest.raises(InputError, match=r"^fitness: expected the fitness of P candidates, an array \[P\]"):
        Results(wrong)


@pytest.mark.parametrize("name", sorted(strategies.STRATEGIES))
def test_tell_refuses_results_that_do_not_fit(name):
    strategy = make(name, genome_size=3, population=8)
    state = strategy.start()
    genomes = strategy.ask(state, 0)
    with pytest.raises(InputError, match=r"^results: .* got an object of ndarray.*Results\(fitness\)"):
        strategy.tell(state, genomes, np.zeros(8))
    with pytest.raises(InputError, match=r"^fitness: expected one number for each of 8 candidates, got 9 numbers"):
        strategy.tell(state, genomes, Results(np.zeros(9)))


@pytest.mark.parametrize("name", sorted(strategies.STRATEGIES))
def test_a_strategy_needs_no_memory_for_its_candidates_before_it_is_used(name):
    """The size of an experiment is checked with its strategy, which must not fail or fill the memory before."""
    make(name, genome_size=3, population=10)  # imports the module of the strategy
    tracemalloc.start()
    try:
        make(name, genome_size=3, population=10**6)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


def test_no_network_and_no_environment_is_imported_for_it():
    code = "import sys; from evolve.strategies import make; make('ga', genome_size=3).start(); print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"evolve.networks", "evolve.environments", "gymnasium"} & set(loaded)
    assert "evolve.strategies.elitist" in loaded
    assert not {"evolve.strategies.search_gradients", "evolve.strategies.prune", "evolve.strategies.cma"} & set(loaded)


def test_initial_vectors_are_normal_and_complete():
    genomes = VectorLayout(1000, init_scale=0.25).init(Stream(3, Purpose.INIT))
    assert genomes.mask.all()
    expected = np.float32(0.25) * normal_quantile(Stream(3, Purpose.INIT).uniform(1, 1000))
    assert np.array_equal(genomes.weights, expected)


def test_a_layout_in_place_of_a_size():
    small = make("ga", layout=VectorLayout(7, init_scale=0.01), population=5)
    assert np.abs(small.ask(small.start(), 0).weights).max() < 0.1
    network = networks.make({"name": "mlp"}, 4, 2)
    strategy = make("prune", layout=network, population=5)
    assert strategy.ask(strategy.start(), 0).weights.shape == (5, network.num_weights)


def test_the_seed_decides():
    one, again, other = (make("ga", 9, seed=seed) for seed in (1, 1, 2))
    asked = [s.ask(s.start(), 0).weights for s in (one, again, other)]
    assert np.array_equal(asked[0], asked[1])
    assert not np.array_equal(asked[0], asked[2])


@pytest.mark.parametrize("name", [*strategies.STRATEGIES])
def test_x0_is_the_first_champion(name):
    x0 = np.linspace(-1, 1, 6)
    strategy = make(name, x0=x0, population=8)
    genomes = strategy.ask(strategy.start(), 0)
    assert genomes.weights.shape == (8, 6)
    assert np.array_equal(strategy.champion(strategy.start()).weights[0], x0.astype(np.float32))
    state = strategy.tell(strategy.start(), genomes, Results(-np.arange(8.0)))
    assert strategy.ask(state, 1).weights.shape == (8, 6)


def test_x0_of_a_good_place_is_a_head_start():
    def champion(**start):
        strategy = make("sep-cma-es", genome_size=10, population=12, sigma=0.05, seed=2, **start)
        state = strategy.start()
        for generation in range(5):
            genomes = strategy.ask(state, generation)
            state = strategy.tell(state, genomes, Results(sphere(genomes.weights)))
        return sphere(strategy.champion(state).weights)[0]

    assert champion(x0=np.full(10, 0.6)) > -0.2 > champion()


def test_x0_may_be_a_genome_with_its_mask():
    network = networks.make({"name": "mlp", "hidden": [3]}, 2, 1)
    genome = pruned(np.ones((1, network.num_weights), np.float32), np.arange(network.num_weights)[None] % 2 == 0)
    strategy = make("openai-es", layout=network, x0=genome, population=4)
    assert np.array_equal(strategy.ask(strategy.start(), 0).mask, np.repeat(genome.mask, 4, axis=0))


def test_candidates_that_were_changed_are_told_as_genomes():
    strategy = make("cma-es", genome_size=3, population=8)
    state = strategy.start()
    genomes = strategy.ask(state, 0)
    clipped = np.clip(genomes.weights, -0.5, 0.5)
    with pytest.raises(
        InputError, match=r"genomes: expected the `Genomes` that `ask` returned, got .* ndarray\. For changed"
    ):
        strategy.tell(state, clipped, Results(np.zeros(8)))
    told = strategy.tell(state, Genomes(clipped, genomes.mask), Results(np.arange(8.0)))
    assert (np.abs(strategy.champion(told).weights) < np.abs(clipped).max()).all()


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (("ga", 3), {"x0": [1.0, 2.0]}, r"x0: expected 3 numbers, the size of a genome, got 2"),
        (("ga",), {"x0": [[1.0], [2.0]]}, r"x0: expected a vector of numbers, got an array of shape \[2, 1\]"),
        (("ga",), {"x0": []}, r"x0: expected a vector of numbers, got an array of shape \[0\]"),
        (("ga",), {"x0": [1.0, np.nan]}, r"x0: expected finite float32 numbers, got nan in place 1"),
        (("ga",), {"x0": [1e39]}, r"x0: expected finite float32 numbers, got inf in place 0"),
        (("ga",), {"x0": "zeros"}, r"x0: expected numbers, or a genome, got 'zeros'"),
        (("openai",), {"genome_size": 3}, r"strategy\.name: expected a known strategy, got openai\. Did you mean ope"),
        (("ga",), {"genome_size": 3, "weight_nois": 0.1}, r"strategy\.weight_nois.*Did you mean weight_noise"),
        (("ga",), {"genome_size": 3, "weight_noise": -1.0}, r"strategy\.weight_noise: expected at least 0"),
        (
            ("ga", [0.0, 1.0]),
            {},
            r"genome_size: expected a whole number, got an array\. A vector to begin with is x0=…",
        ),
        (("ga", 3), {"popsize": 8}, r"strategy\.popsize: .* Did you mean population\?"),
        (("ga",), {"genome_size": 0}, r"genome_size: expected a whole number, at least 1, got 0"),
        (("ga",), {"genome_size": 3, "population": 1}, r"population: expected a whole number, at least 2, got 1"),
        (("ga",), {}, r"genome_size: expected either genome_size or a layout, got neither"),
        (("ga", 3), {"layout": VectorLayout(3)}, r"genome_size: expected either genome_size or a layout, got both"),
        (("ga",), {"layout": "mlp"}, r"layout: expected a network, or another layout of genomes, .*, got 'mlp'"),
        (("cma-es", 5000), {}, r"strategy\.name: expected genomes of at most 2,000 connections .*, got 5,000 conn"),
        (("openai-es", 3), {"sigma": 0.005, "sigma_decay": 0.9}, r"strategy\.smallest_sigma: expected below sigma"),
        (
            ("openai-es", 3),
            {"pruning": 0.5, "pruning_by": "trace"},
            r"strategy\.pruning_by: expected magnitude, flow or random, because",
        ),
        (
            ("ga",),
            {"layout": networks.make({"name": "binary-mask-mlp"}, 2, 1)},
            r"strategy\.name: expected a strategy that",
        ),
    ],
)
def test_what_is_wrong_is_named(words, options, message):
    with pytest.raises(InputError, match=message):
        make(*words, **options)


def test_results_have_no_traces_unless_they_are_given():
    assert Results(np.zeros(5)).traces.shape == (5, 0)
    assert Results(np.zeros(5), np.ones((5, 3), np.float32)).traces.shape == (5, 3)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((np.zeros(5), np.ones((4, 3), np.float32)), r"traces: expected \[P, T\] float32 \(P=5\)"),
        ((np.zeros(5), np.ones((5, 3))), r"traces: expected \[P, T\] float32"),
    ],
)
def test_traces_of_other_shapes_are_refused(arrays, message):
    with pytest.raises(ValueError, match=message):
        Results(*arrays)


@pytest.mark.parametrize("other", [{"traces": [[0.5]]}, {"traces": None}, {"measures": [[0.5]]}])
def test_results_that_are_no_arrays_are_refused(other):
    (name,) = other
    with pytest.raises(TypeError, match=f"{name}: expected an array, got"):
        Results([1.0], **other)


def test_a_tell_cannot_change_the_results_that_are_recorded():
    fitness = np.ones(3)
    results = Results(fitness, np.ones((3, 2), np.float32))
    for array in (results.fitness, results.traces):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    fitness[0] = 2  # the caller's own array stays writable


def test_options_may_be_numbers_and_arrays_of_numpy():
    bounds = {"descriptors": ["connections"], "bounds": np.array([[0.0, 3.0]]), "cells": np.array([3])}
    for name, options in (("ga", {"parents": np.int64(3)}), ("map-elites", bounds)):
        assert make(name, 3, **options).start() is not None
    network = networks.make({"name": "mlp", "hidden": np.array([5])}, np.int64(4), 2)
    assert network == networks.make({"name": "mlp", "hidden": [5]}, 4, 2)
