"""hebbian-lstm against its formula to the bit, and against values worked out by hand in float64."""

import numpy as np
import pytest
from episodes import initial, noise, ordered, play
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.errors import InputError
from evolve.networks import NETWORKS
from evolve.networks.hebbian import HebbianLstm, HebbianLstmOptions
from evolve.numerics import sigmoid, tanh

f32 = np.float32


def transcription(weights, mask, inputs, H, A, limit):
    """Return actions and traces by the formula, one float32 operation after another."""
    O = inputs.shape[1]
    size = (O + H) * H
    W = {k: weights[n * size : (n + 1) * size].reshape(O + H, H) for n, k in enumerate("fjoi")}
    left = {k: mask[n * size : (n + 1) * size].reshape(O + H, H) for n, k in enumerate("fjoi")}
    T = {k: np.zeros_like(W[k]) for k in W}
    W_a, c, actions = weights[4 * size :].reshape(H, A), np.zeros(H, f32), []
    for observation in inputs:
        x, g = np.concatenate([observation, c]), c[0]
        z = {k: ordered(x, W[k] + g * T[k]) for k in W}
        gate = {k: sigmoid(z[k] - f32(1)) for k in "fjo"} | {"i": tanh(z["i"])}
        c = tanh(c * gate["f"] + gate["i"] * gate["j"])
        actions.append(tanh(ordered(c * gate["o"], W_a)))
        for k in W:
            for r in range(O + H):
                for n in range(H):
                    change = min(max(f32(f32(c[1] * x[r]) * gate[k][n]), -f32(limit)), f32(limit))
                    T[k][r, n] += change if left[k][r, n] else 0
    return np.array(actions), np.concatenate([*(T[k].ravel() for k in W), np.zeros(W_a.size, f32)])


@settings(max_examples=25)
@given(
    H=st.integers(2, 5),
    O=st.integers(1, 5),
    A=st.integers(1, 3),
    limit=st.sampled_from([0.01, 0.1, 5.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_equals_the_formula_to_the_bit(H, O, A, limit, seed):
    network = HebbianLstm(HebbianLstmOptions(hidden=(H,), update_limit=limit, init_sparsity=0.3), O, A)
    weights, mask = initial(network, seed)
    inputs = noise(seed, 5, O) * 2
    expected, traced = transcription(weights, mask, inputs, H, A, limit)
    for name in ("numpy", "auto"):
        actions, traces = play(network, weights, inputs, mask, name=name)
        assert np.array_equal(actions, expected)
        assert np.array_equal(traces, traced)


def logistic(z):
    return 1 / (1 + np.exp(-z))


def test_golden_by_hand():
    """O = 1, H = 2, A = 1, two steps, every sum written out; rows of W_k: obs, c[0], c[1]."""
    f = [[0.5, -0.2], [0.3, 0.7], [-0.6, 0.1]]
    j = [[1.5, 2.0], [0.2, -0.3], [0.4, 0.5]]
    o = [[-0.4, 0.9], [1.1, -0.8], [0.6, 0.2]]
    i = [[0.8, -0.7], [0.25, 0.35], [-0.45, 0.55]]
    W_a = [1.2, -0.9]
    network = HebbianLstm(HebbianLstmOptions(hidden=(2,)), 1, 1)
    actions, traces = play(network, [*np.ravel([f, j, o, i]), *W_a], [[2.0], [-1.0]])
    # First step: x = [2, 0, 0] and no traces; the cells were zero.
    cells = [np.tanh(np.tanh(2 * i[0][n]) * logistic(2 * j[0][n] - 1)) for n in range(2)]
    out = [logistic(2 * o[0][n] - 1) for n in range(2)]
    assert actions[0, 0] == pytest.approx(np.tanh(1.2 * cells[0] * out[0] - 0.9 * cells[1] * out[1]), rel=1e-6)
    # The traces of the first row alone moved: c'[1]·2·gate, at most 0.1.
    first = {"f": [logistic(2 * f[0][n] - 1) for n in range(2)], "j": [logistic(2 * j[0][n] - 1) for n in range(2)]}
    first |= {"o": out, "i": [np.tanh(2 * i[0][n]) for n in range(2)]}
    moved = {k: [np.clip(cells[1] * 2 * gate, -0.1, 0.1) for gate in first[k]] for k in first}
    # Second step: x = [-1, c[0], c[1]], g = c[0].
    z = {}
    for k, matrix in {"f": f, "j": j, "o": o, "i": i}.items():
        z[k] = [
            -(matrix[0][n] + cells[0] * moved[k][n]) + cells[0] * matrix[1][n] + cells[1] * matrix[2][n]
            for n in range(2)
        ]
    gates = {k: [logistic(s - 1) for s in z[k]] for k in "fjo"} | {"i": [np.tanh(s) for s in z["i"]]}
    later = [np.tanh(cells[n] * gates["f"][n] + gates["i"][n] * gates["j"][n]) for n in range(2)]
    action = np.tanh(1.2 * later[0] * gates["o"][0] - 0.9 * later[1] * gates["o"][1])
    assert actions[1, 0] == pytest.approx(action, rel=1e-5)
    expected = []
    for k in "fjoi":
        for row, x in enumerate([-1.0, *cells]):
            for n in range(2):
                before = moved[k][n] if row == 0 else 0.0
                expected.append(before + np.clip(later[1] * x * gates[k][n], -0.1, 0.1))
    assert traces == pytest.approx([*expected, 0.0, 0.0], rel=1e-5)


def test_needs_two_cells():
    with pytest.raises(InputError, match=r"network\.hidden\.0: expected .* 2, got 1"):
        NETWORKS.parse({"name": "hebbian-lstm", "hidden": [1]})
    for hidden in ([], [8, 8]):
        with pytest.raises(InputError, match=r"network\.hidden: .*a list of at (least|most) 1, got"):
            NETWORKS.parse({"name": "hebbian-lstm", "hidden": hidden})


def test_traces_are_bounded_and_only_where_connections_are():
    network = HebbianLstm(HebbianLstmOptions(hidden=(3,), update_limit=0.05, init_sparsity=0.5), 2, 1)
    weights, mask = initial(network)
    _, traces = play(network, weights, np.full((20, 2), 5.0), mask)
    gates = slice(0, 4 * 5 * 3)
    assert 0.5 < np.abs(traces).max() <= 20 * 0.05 + 1e-6
    assert not traces[~mask].any()
    assert not traces[gates.stop :].any()
    assert np.count_nonzero(traces) > mask[gates].sum() / 2
