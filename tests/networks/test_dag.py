"""dag against its formula to the bit, against values worked out by hand, and against its sibling with traces."""

import numpy as np
import pytest
from episodes import initial, noise, of_any_size, ordered, play

from evolve import networks
from evolve.networks.hebbian import HebbianDag, HebbianDagOptions
from evolve.networks.layered import Dag, DagOptions
from evolve.numerics import tanh
from evolve.numerics.streams import Purpose, Stream


@of_any_size
def test_equals_the_formula_to_the_bit(hidden, O, A, seed):
    network = Dag(DagOptions(hidden=hidden, init_sparsity=0.3), O, A)
    weights, mask = initial(network, seed)
    inputs = noise(seed, 3, O) * 3
    expected = []
    for x in inputs:
        seen, at = x, 0
        for size in (*hidden, A):
            matrix = weights[at : at + len(seen) * size].reshape(len(seen), size)
            at += matrix.size
            said = tanh(ordered(seen, matrix))
            seen = np.concatenate([seen, said])
        expected.append(said)
        assert at == network.num_weights
    for name in ("numpy", "auto"):
        actions, traces = play(network, weights, inputs, mask, name=name)
        assert np.array_equal(actions, expected)
        assert traces.shape == (0,)


def test_golden_by_hand():
    # O = 2, h = (1), A = 2: W_00 [2, 1], then W_10 [2, 2] and W_11 [1, 2]
    network = Dag(DagOptions(hidden=(1,)), 2, 2)
    assert network.num_weights == 8
    x, W00, W10, W11 = np.array([2.0, -1.0]), [[0.5], [0.25]], [[0.1, -0.2], [0.3, 0.4]], [[2.0, -3.0]]
    hidden = np.tanh(0.75)
    ((one, two),), _ = play(network, [*np.ravel(W00), *np.ravel(W10), *np.ravel(W11)], [x])
    assert one == pytest.approx(np.tanh(2 * 0.1 - 0.3 + 2 * hidden), rel=1e-6)
    assert two == pytest.approx(np.tanh(2 * -0.2 - 0.4 - 3 * hidden), rel=1e-6)


def test_is_its_sibling_without_the_modulator():
    """hebbian-dag with m = 0 says the same, but for rounding, once its output 0 is left out."""
    ours, theirs = Dag(DagOptions(hidden=(4, 3)), 5, 2), HebbianDag(HebbianDagOptions(hidden=(4, 3)), 5, 2)
    weights, _ = initial(theirs)
    parts = []
    for block in theirs.blocks:
        matrix = weights[block.start : block.stop].reshape(block.rows, block.columns)
        parts.append((matrix[:, 1:] if block.layer == 2 else matrix).ravel())
    inputs = noise(1, 6, 5)
    assert np.allclose(play(ours, np.concatenate(parts), inputs)[0], play(theirs, weights, inputs)[0], atol=1e-6)


def test_size_of_the_walkers_network():
    network = Dag(DagOptions(hidden=(8, 8)), 24, 4)
    assert network.num_weights == 24 * 8 + 32 * 8 + 40 * 4
    assert [(b.layer, b.source, b.rows, b.columns) for b in network.blocks] == [
        (0, 0, 24, 8), (1, 0, 24, 8), (1, 1, 8, 8), (2, 0, 24, 4), (2, 1, 8, 4), (2, 2, 8, 4),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["dag", "hebbian-dag"])
def test_initial_weights_have_the_scale_that_is_asked_for(name):
    one, small = (networks.make({"name": name, "init_scale": scale}, 4, 2) for scale in (1.0, 0.25))
    first, less = (network.init(Stream(5, Purpose.INIT)) for network in (one, small))
    assert np.array_equal(first.weights * np.float32(0.25), less.weights)
    assert 0.8 < first.weights[first.mask].std() < 1.2
