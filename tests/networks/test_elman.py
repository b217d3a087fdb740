"""elman against its formula to the bit, and against values worked out by hand."""

import numpy as np
import pytest
from episodes import initial, noise, ordered, play
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.errors import InputError
from evolve.networks import NETWORKS
from evolve.networks.layered import Elman, ElmanOptions
from evolve.numerics import tanh


@settings(max_examples=25)
@given(H=st.integers(1, 5), O=st.integers(1, 5), A=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
def test_equals_the_formula_to_the_bit(H, O, A, seed):
    network = Elman(ElmanOptions(hidden=(H,), init_sparsity=0.3), O, A)
    weights, mask = initial(network, seed)
    into_hidden = weights[: (O + H + 1) * H].reshape(O + H + 1, H)
    into_action = weights[(O + H + 1) * H :].reshape(H + 1, A)
    inputs, h, one, expected = noise(seed, 5, O) * 2, np.zeros(H, np.float32), np.ones(1, np.float32), []
    for x in inputs:
        h = tanh(ordered(np.concatenate([x, h, one]), into_hidden))
        expected.append(tanh(ordered(np.concatenate([h, one]), into_action)))
    for name in ("numpy", "auto"):
        actions, traces = play(network, weights, inputs, mask, name=name)
        assert np.array_equal(actions, expected)
        assert traces.shape == (0,)


def test_golden_by_hand():
    # O = 1, H = 2, A = 1: W [1, 2], U [2, 2], b [2], V [2, 1], c
    network = Elman(ElmanOptions(hidden=(2,)), 1, 1)
    W, U, b, V, c = [0.5, -0.25], [[0.3, 0.6], [-0.4, 0.9]], [0.125, -0.5], [1.0, 2.0], 0.1
    actions, _ = play(network, [*W, *np.ravel(U), *b, *V, c], [[2.0], [-1.0]])
    one, two = np.tanh(1.125), np.tanh(-1.0)
    assert actions[0, 0] == pytest.approx(np.tanh(one + 2 * two + 0.1), rel=1e-6)
    first, second = np.tanh(-0.5 + 0.3 * one - 0.4 * two + 0.125), np.tanh(0.25 + 0.6 * one + 0.9 * two - 0.5)
    assert actions[1, 0] == pytest.approx(np.tanh(first + 2 * second + 0.1), rel=1e-6)


def test_blocks_read_the_observation_and_the_step_before():
    network = Elman(ElmanOptions(hidden=(4,)), 3, 2)
    assert [(b.layer, b.source, b.rows, b.columns) for b in network.blocks] == [
        (0, 0, 3, 4),
        (0, 1, 5, 4),
        (1, 1, 5, 2),
    ]


def test_has_one_hidden_layer():
    for hidden in ([], [8, 8]):
        with pytest.raises(InputError, match=r"network\.hidden: .*a list of at (least|most) 1, got"):
            NETWORKS.parse({"name": "elman", "hidden": hidden})
