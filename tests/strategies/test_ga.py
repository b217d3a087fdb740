"""ga: the formulas of its docstring."""

import numpy as np
import pytest

from evolve import networks
from evolve.numerics import normal_quantile
from evolve.numerics.streams import Purpose, Stream
from evolve.strategies import Results
from evolve.strategies.elitist import Ga, GaOptions

NETWORK = networks.make({"name": "hebbian-dag", "hidden": [3], "init_sparsity": 0.2}, 4, 2)
W = NETWORK.num_weights


def play(P, fitness, **options):
    made = Ga(GaOptions(**options), NETWORK, P, 5)
    genomes = made.ask(made.start(), 0)
    return made, genomes, made.tell(made.start(), genomes, Results(np.asarray(fitness, float)))


def test_a_child_is_a_parent_plus_noise_where_connections_are_left():
    made, first, state = play(6, [0, 5, 1, 4, 3, 2], parents=2, survivors=1, weight_noise=0.25)
    asked = made.ask(state, 1)
    assert np.array_equal(asked.weights[0], first.weights[1])  # the best, unchanged
    drawn = Stream(5, Purpose.PARENTS, 1).below(2, 5)
    for child in range(1, 6):
        parent = (1, 3)[drawn[child - 1]]  # the two best
        noise = normal_quantile(Stream(5, Purpose.WEIGHT_NOISE, 1, child).uniform(W))
        expected = np.where(first.mask[parent], first.weights[parent] + np.float32(0.25) * noise, np.float32(0))
        assert np.array_equal(asked.weights[child], expected)
        assert np.array_equal(asked.mask[child], first.mask[parent])


def test_parents_are_drawn_uniformly_from_the_best():
    P = 4001
    made, first, state = play(P, -np.arange(P), parents=4, survivors=1, weight_noise=0.0)
    children = made.ask(state, 1).weights[1:]
    shares = [(children == first.weights[parent]).all(axis=1).mean() for parent in range(4)]
    assert shares == pytest.approx([0.25] * 4, abs=0.03)


def test_only_survivors_outlive_their_generation():
    made, first, state = play(6, [0, 5, 1, 4, 3, 2], parents=3, survivors=1)
    second = made.ask(state, 1)
    state = made.tell(state, second, Results(np.array([1.0, 0, 0, 0, 0, -9])))
    assert state.score.tolist() == [3, 0, 0]  # (5 + 1)/2, and newcomers: the parents that scored 4 and 3 are gone
    assert np.array_equal(state.genomes.weights[0], first.weights[1])


def test_it_climbs_a_sphere():
    made = Ga(GaOptions(weight_noise=0.05), NETWORK, 40, 5)

    def distance(genomes):
        return ((genomes.weights.astype(float) - 0.5 * genomes.mask) ** 2).sum(axis=1)

    state, first = made.start(), None
    for generation in range(60):
        genomes = made.ask(state, generation)
        first = distance(genomes).min() if first is None else first
        state = made.tell(state, genomes, Results(-distance(genomes)))
    assert distance(made.champion(state))[0] < 0.2 * first
