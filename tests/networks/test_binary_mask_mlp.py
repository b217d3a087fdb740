"""binary-mask-mlp against values worked out by hand: connections weigh one, or are not there."""

import numpy as np
import pytest
from episodes import initial, noise, of_any_size, ordered, play

from evolve.networks.layered import BinaryMaskMlp, BinaryMaskMlpOptions
from evolve.numerics import tanh


@of_any_size
def test_equals_the_formula_to_the_bit(hidden, O, A, seed):
    network = BinaryMaskMlp(BinaryMaskMlpOptions(hidden=hidden, init_sparsity=0.5), O, A)
    weights, mask = initial(network, seed)
    inputs = noise(seed, 3, O)
    expected = []
    for x in inputs:
        said, at = x, 0
        for size in (*hidden, A):
            matrix = mask[at : at + len(said) * size].reshape(len(said), size).astype(np.float32)
            at += matrix.size
            said = tanh(ordered(said, matrix))
        expected.append(said)
        assert at == network.num_weights
    for name in ("numpy", "auto"):
        assert np.array_equal(play(network, weights, inputs, mask, name=name)[0], expected)


def test_golden_by_hand():
    # O = 2, h = (2), A = 2: M_0 = [[1, 0], [1, 1]], M_1 = [[0, 1], [1, 1]]
    network = BinaryMaskMlp(BinaryMaskMlpOptions(hidden=(2,)), 2, 2)
    mask = [True, False, True, True, False, True, True, True]
    ((one, two),), traces = play(network, np.where(mask, 7.0, 0.0), [[0.5, -0.25]], mask)  # the weight plays no part
    first, second = np.tanh(0.5 - 0.25), np.tanh(-0.25)
    assert one == pytest.approx(np.tanh(second), rel=1e-6)
    assert two == pytest.approx(np.tanh(first + second), rel=1e-6)
    assert traces.shape == (0,)


def test_a_quarter_of_the_ones_is_pruned_at_first():
    weights, mask = initial(BinaryMaskMlp(BinaryMaskMlpOptions(hidden=(64, 64)), 105, 8))
    assert np.array_equal(weights, mask.astype(np.float32))
    assert mask.mean() == pytest.approx(0.75, abs=0.01)
