"""Shared by the tests of strategies with antithetic pairs: a network, and a check of the candidates."""

import numpy as np

from evolve import networks
from evolve.numerics import normal_quantile
from evolve.numerics.streams import Purpose, Stream
from evolve.strategies import Results

NETWORK = networks.make({"name": "hebbian-dag", "hidden": [3], "init_sparsity": 0.2}, 4, 2)
W = NETWORK.num_weights
SEED = 5


def first_genome():
    """Return the initial genome, which is the centre of generation 0."""
    return NETWORK.init(Stream(SEED, Purpose.INIT, 0, 0))


def tell(strategy, state, generation, fitness):
    """Return the state after a generation with the given fitness."""
    genomes = strategy.ask(state, generation)
    return strategy.tell(state, genomes, Results(np.asarray(fitness, float)))


def check_pairs(asked, generation, sigma):
    """Check that three pairs are the first genome plus and minus noise, and a seventh candidate is that genome."""
    first = first_genome()
    assert (asked.mask == first.mask).all()
    for pair in range(3):
        noise = normal_quantile(Stream(SEED, Purpose.WEIGHT_NOISE, generation, pair).uniform(W)).astype(float)
        for sign, candidate in ((1, 2 * pair), (-1, 2 * pair + 1)):
            expected = (first.weights[0].astype(float) + sign * (sigma * noise)).astype(np.float32)
            assert np.array_equal(asked.weights[candidate], np.where(first.mask[0], expected, np.float32(0)))
    assert all(np.array_equal(weights, first.weights[0]) for weights in asked.weights[6:])
