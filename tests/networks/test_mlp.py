"""mlp against its formula to the bit, and against values worked out by hand."""

import numpy as np
import pytest
from episodes import initial, noise, of_any_size, ordered, play

from evolve.networks.layered import Mlp, MlpOptions
from evolve.numerics import tanh


@of_any_size
def test_equals_the_formula_to_the_bit(hidden, O, A, seed):
    network = Mlp(MlpOptions(hidden=hidden, init_sparsity=0.3, init_scale=2.0), O, A)
    weights, mask = initial(network, seed)
    inputs = noise(seed, 3, O) * 3
    expected = []
    for x in inputs:
        said, at = x, 0
        for size in (*hidden, A):
            seen = np.append(said, np.float32(1))
            matrix = weights[at : at + len(seen) * size].reshape(len(seen), size)
            at += matrix.size
            said = tanh(ordered(seen, matrix))
        expected.append(said)
        assert at == network.num_weights
    for name in ("numpy", "auto"):
        actions, traces = play(network, weights, inputs, mask, name=name)
        assert np.array_equal(actions, expected)
        assert traces.shape == (0,)


def test_golden_by_hand():
    # O = 2, h = (2), A = 1: W_0 [3, 2], its last row the biases; W_1 [3, 1]
    network = Mlp(MlpOptions(hidden=(2,)), 2, 1)
    W0, W1 = [[0.5, -1.0], [0.25, 2.0], [0.125, -0.75]], [[1.5], [-0.5], [0.25]]
    ((action,),), _ = play(network, [*np.ravel(W0), *np.ravel(W1)], [[1.0, -2.0]])
    one, other = np.tanh(0.5 - 0.5 + 0.125), np.tanh(-1.0 - 4.0 - 0.75)
    assert action == pytest.approx(np.tanh(1.5 * one - 0.5 * other + 0.25), rel=1e-6)


def test_initial_genomes_are_scaled_by_the_fan_in_and_complete():
    network = Mlp(MlpOptions(hidden=(63, 99), init_scale=0.5), 399, 30)
    weights, mask = initial(network)
    assert mask.all()
    for block, fan_in in zip(network.blocks, (400, 64, 100), strict=True):
        drawn = weights[block.start : block.stop]
        assert block.rows == fan_in
        assert drawn.std() == pytest.approx(0.5 / fan_in**0.5, rel=0.05)
        assert abs(drawn.mean()) < 0.1 / fan_in**0.5


def test_a_matrix_larger_than_the_caches_has_the_same_bits():
    network = Mlp(MlpOptions(hidden=(67, 63)), 5, 2)
    weights, mask = initial(network)
    inputs = noise(1, 3, 5)
    native, arrays = (play(network, weights, inputs, mask, name=name)[0] for name in ("auto", "numpy"))
    assert np.array_equal(native, arrays)
