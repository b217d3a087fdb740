"""Shared by the tests of single networks: a network that plays one episode of given inputs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.numerics import backend


def of_any_size(test):
    """Run a test with many hidden layers, numbers of inputs O and outputs A, and seeds."""
    sizes = {
        "hidden": st.lists(st.integers(1, 4), max_size=3).map(tuple),
        "O": st.integers(1, 5),
        "A": st.integers(1, 3),
    }
    return settings(max_examples=25)(given(**sizes, seed=st.integers(0, 2**32 - 1))(test))


def play(network, weights, inputs, mask=None, seed=0, name="auto"):
    """Return actions [steps, A] and traces [T] of one genome [W] that sees inputs [steps, O]."""
    weights = np.asarray(weights, np.float32)[None]
    mask = np.ones(weights.shape, np.bool_) if mask is None else np.asarray(mask, np.bool_)[None]
    batch = network.batch(2, backend(name))
    batch.load(np.array([1]), weights, mask, np.array([seed]))
    both = np.zeros((2, network.observation_size), np.float32)
    actions = []
    for x in inputs:
        both[1] = x
        actions.append(batch.step(both)[1])
    return np.array(actions), batch.traces(np.array([1]))[0]


def initial(network, seed=0):
    """Return the weights [W] and the mask [W] of an initial genome."""
    from evolve.numerics.streams import Purpose, Stream

    genome = network.init(Stream(seed, Purpose.INIT))
    return genome.weights[0], genome.mask[0]


def noise(seed, *shape):
    """Return normal deviates in float32."""
    return np.random.Generator(np.random.Philox(seed)).normal(size=shape).astype(np.float32)


def ordered(x, matrix):
    """Return x [R] times matrix [R, K], one float32 operation after another, rows in ascending order."""
    total = np.zeros(matrix.shape[1], np.float32)
    for r, (value, row) in enumerate(zip(x, matrix, strict=True)):
        products = np.array([np.float32(value) * w for w in row], np.float32)
        total = products if r == 0 else total + products
    return total
