"""plastic-mlp against its formula to the bit, and against values worked out by hand in float64."""

from itertools import pairwise

import numpy as np
import pytest
from episodes import initial, noise, ordered, play
from hypothesis import given
from hypothesis import strategies as st

from evolve.errors import InputError
from evolve.networks import NETWORKS
from evolve.networks.plastic_mlp import PlasticMlp, PlasticMlpOptions
from evolve.numerics import tanh
from evolve.numerics.streams import Purpose, Stream

f = np.float32


def shape_of(rules, rows, columns):
    return {"synapse": (rows, columns), "neuron": (1, columns), "layer": (1, 1)}[rules]


def transcription(o, sizes, genome, mask, weights, inputs):
    """Return actions by the formula, one float32 operation after another; weights: as drawn."""
    layers, at, drawn = [], 0, 0
    for R, K in pairwise(sizes):
        r, k = shape_of(o.rules, R, K)
        rule, left = (a[at : at + 5 * r * k].reshape(5, r, k) for a in (genome, mask))
        rule, left = np.broadcast_to(rule, (5, R, K)), np.broadcast_to(left.any(axis=0), (R, K))
        w = np.where(left, weights[drawn : drawn + R * K].reshape(R, K), f(0))
        layers.append((w, rule))
        at, drawn = at + 5 * r * k, drawn + R * K
    assert at == len(genome)
    actions = []
    for step, observation in enumerate(inputs, start=1):
        x = [observation]
        for w, _ in layers:
            x.append(tanh(ordered(x[-1], w)))
        actions.append(x[-1])
        for (w, (A, B, C, D, eta)), pre, post in zip(layers, x[:-1], x[1:], strict=True):
            if step % o.update_every:
                continue
            for i, o_i in enumerate(pre):
                for j, o_j in enumerate(post):
                    change = f(f(A[i, j] * f(o_i * o_j)) + f(B[i, j] * o_i))
                    change = f(f(change + f(C[i, j] * o_j)) + D[i, j])
                    w[i, j] = f(w[i, j] + f(change * eta[i, j]))
            if o.max_norm and w.any():
                np.divide(w, np.abs(w).max(), out=w)
    return np.array(actions)


@given(
    rules=st.sampled_from(["synapse", "neuron", "layer"]),
    max_norm=st.booleans(),
    every=st.integers(1, 3),
    hidden=st.lists(st.integers(1, 4), max_size=2).map(tuple),
    O=st.integers(1, 4),
    A=st.integers(1, 3),
    seed=st.integers(0, 2**31 - 1),
)
def test_equals_the_formula_to_the_bit(rules, max_norm, every, hidden, O, A, seed):
    o = PlasticMlpOptions(
        rules=rules, max_norm=max_norm, update_every=every, hidden=hidden, init_scale=1.0, init_sparsity=0.5
    )
    network = PlasticMlp(o, O, A)
    genome, mask = initial(network, seed)
    inputs, drawn = noise(seed, 7, O), network.first_weights(np.array([seed]))[0]
    expected = transcription(o, (O, *hidden, A), genome, mask, drawn, inputs)
    for name in ("numpy", "auto"):
        actions, traces = play(network, genome, inputs, mask, seed, name)
        assert np.array_equal(actions, expected)
        assert traces.shape == (0,)


def test_initial_weights_follow_from_the_environments_seed():
    network = PlasticMlp(PlasticMlpOptions(hidden=(30,), initial_scale=0.2), 20, 10)
    one, again, other = network.first_weights(np.array([7, 7, 8]))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    uniform = Stream(7, Purpose.INITIAL_WEIGHTS).uniform(900)
    assert one == pytest.approx(0.4 * uniform - 0.2, rel=1e-6)
    assert 0.19 < np.abs(one).max() <= f(0.2)
    assert abs(one.mean()) < 0.02


def test_golden_by_hand():
    """O = 2, no hidden layer, A = 1, a rule for each synapse, two steps."""
    network = PlasticMlp(PlasticMlpOptions(hidden=()), 2, 1)
    A, B, C, D, eta = (0.5, -0.25), (0.125, 1.0), (-2.0, 0.75), (0.3, -0.6), (0.1, 2.0)
    w = network.first_weights(np.array([11]))[0].astype(np.float64)
    actions, _ = play(network, [*A, *B, *C, *D, *eta], [[1.5, -0.5], [-1.0, 2.0]], seed=11)
    y = np.tanh(1.5 * w[0] - 0.5 * w[1])
    assert actions[0, 0] == pytest.approx(y, rel=1e-6)
    first = w[0] + 0.1 * (0.5 * 1.5 * y + 0.125 * 1.5 - 2.0 * y + 0.3)
    second = w[1] + 2.0 * (-0.25 * -0.5 * y + 1.0 * -0.5 + 0.75 * y - 0.6)
    assert actions[1, 0] == pytest.approx(np.tanh(-first + 2 * second), rel=1e-5)


@pytest.mark.parametrize(("rules", "numbers"), [("synapse", 5 * (12 + 8)), ("neuron", 5 * (4 + 2)), ("layer", 5 * 2)])
def test_how_many_coefficients_there_are(rules, numbers):
    network = PlasticMlp(PlasticMlpOptions(hidden=(4,), rules=rules), 3, 2)
    assert (network.num_weights, network.num_connections) == (numbers, 20)
    assert [(b.layer, b.source, b.span) for b in network.blocks[::5]] == [(0, 0, (3, 4)), (1, 1, (4, 2))]


def test_the_largest_weight_of_a_normalized_layer_is_one():
    network = PlasticMlp(PlasticMlpOptions(hidden=(), max_norm=True, rules="layer"), 1, 1)
    actions, _ = play(network, [0, 0, 0, 1.0, 3.0], [[0.25]] * 3)  # D η = 3: the weight is 1 after each update
    assert actions[1:, 0] == pytest.approx(np.tanh(0.25), rel=1e-6)


def test_weights_stand_still_between_updates():
    network = PlasticMlp(PlasticMlpOptions(hidden=(3,), update_every=3, init_scale=1.0), 2, 2)
    actions, _ = play(network, initial(network)[0], [[0.5, -1.0]] * 7)
    same = [np.array_equal(a, b) for a, b in pairwise(actions)]
    assert same == [True, True, False, True, True, False]


def test_a_connection_is_there_while_any_of_its_coefficients_is():
    network = PlasticMlp(PlasticMlpOptions(hidden=(), rules="neuron"), 2, 2)
    mask = np.zeros((1, 10), np.bool_)
    mask[0, 9] = True  # η of the second neuron
    assert network.unpruned(mask).reshape(2, 2).tolist() == [[False, True], [False, True]]


def test_unknown_rules_are_refused():
    with pytest.raises(InputError, match=r"network\.rules: expected 'synapse', 'neuron' or 'layer', got weight"):
        NETWORKS.parse({"name": "plastic-mlp", "rules": "weight"})
