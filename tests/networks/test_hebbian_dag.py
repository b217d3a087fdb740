"""hebbian-dag against a scalar transcription of its formula, and against values worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.errors import InputError
from evolve.networks import NETWORKS
from evolve.networks.hebbian import HebbianDag, HebbianDagOptions
from evolve.numerics import tanh
from evolve.numerics.streams import Purpose, Stream

f = np.float32


def scalar_episode(network, weights, mask, inputs):
    """x_{i+1} = tanh(Σ_j x_j (W_ij + m H_ij)); H_ij += ρ x_jᵀ z_ij, one float32 at a time."""
    o, D = network.options, network.sizes
    W = {}
    for i in range(len(D) - 1):
        for j in range(i + 1):
            block = network.blocks[len(W)]
            W[i, j] = (
                weights[block.start : block.stop].reshape(D[j], -1),
                mask[block.start : block.stop].reshape(D[j], -1),
            )
    H = {key: np.zeros_like(w) for key, (w, _) in W.items()}
    actions = []
    for observation in inputs:
        x, z = [observation], {}
        for i in range(len(D) - 1):
            total = None
            for j in range(i + 1):
                z[i, j] = np.zeros(D[i + 1], f)
                for k in range(D[i + 1]):
                    acc = None
                    for r in range(D[j]):
                        w, left = W[i, j][0][r, k], W[i, j][1][r, k]
                        gain = f(o.plasticity) * f(left)
                        weight = f(w + f(gain * H[i, j][r, k])) if o.plasticity else w
                        term = f(x[j][r] * weight)
                        acc = term if acc is None else f(acc + term)
                    z[i, j][k] = acc
                total = z[i, j] if total is None else total + z[i, j]
            x.append(tanh(total))
        rate = x[-1][0] if o.neuromodulated else f(o.trace_rate)
        for i, j in W:
            for r in range(D[j]):
                for k in range(D[i + 1]):
                    h = f(H[i, j][r, k] + f(f(x[j][r] * z[i, j][k]) * rate))
                    H[i, j][r, k] = min(max(h, -f(o.trace_limit)), f(o.trace_limit))
        actions.append(x[-1][1:])
    return np.array(actions), np.concatenate([H[key].ravel() for key in W])


@settings(max_examples=25)
@given(
    hidden=st.lists(st.integers(1, 4), max_size=3).map(tuple),
    O=st.integers(1, 5),
    A=st.integers(1, 3),
    m=st.sampled_from([0.0, 0.1, -1.5]),
    modulated=st.booleans(),
    limit=st.sampled_from([0.5, 10.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_equals_the_formula_to_the_bit(hidden, O, A, m, modulated, limit, seed):
    chosen = HebbianDagOptions(
        hidden=hidden, plasticity=m, neuromodulated=modulated, trace_limit=limit, init_sparsity=0.3
    )
    network = HebbianDag(chosen, O, A)
    g = network.init(Stream(seed, Purpose.INIT))
    inputs = np.random.Generator(np.random.Philox(seed)).normal(size=(4, O)).astype(f) * 3
    actions, traces = scalar_episode(network, g.weights[0], g.mask[0], inputs)
    batch = network.batch(3, "numpy")
    batch.load(np.arange(3), np.repeat(g.weights, 3, axis=0), np.repeat(g.mask, 3, axis=0), np.zeros(3, np.int64))
    ours = np.stack([batch.step(np.repeat(x[None], 2, axis=0)) for x in inputs])
    assert np.array_equal(ours[:, 0], actions)
    assert np.array_equal(ours[:, 1], actions)
    assert np.array_equal(batch.traces(np.array([1]))[0], traces)


def test_golden_by_hand():
    # O = 1, h = (1), A = 1: D = [1, 1, 2]; W = [W00, W10 (to modulator, to action), W11 (to modulator, to action)].
    network = HebbianDag(HebbianDagOptions(hidden=(1,), trace_rate=1.0), 1, 1)
    weights = np.array([0.5, 0.25, -1.0, 2.0, 1.0], f)
    batch = network.batch(1, "numpy")
    batch.load(np.arange(1), weights[None], np.ones((1, 5), np.bool_), np.zeros(1, np.int64))
    (action,) = batch.step(np.array([[2.0]], f))
    hidden = np.tanh(1.0)  # x1 = tanh(2·0.5)
    assert action[0] == pytest.approx(np.tanh(2.0 * -1.0 + hidden * 1.0), rel=1e-6)
    # H_ij = x_jᵀ z_ij: 2·(2·0.5); 2·(2·0.25), 2·(2·-1); hidden·(hidden·2), hidden·(hidden·1)
    assert batch.traces(np.arange(1))[0] == pytest.approx([2.0, 1.0, -4.0, 2 * hidden**2, hidden**2], rel=1e-6)


def test_size_of_the_walkers_network():
    network = HebbianDag(HebbianDagOptions(hidden=(8, 8)), 24, 4)
    assert network.sizes == (24, 8, 8, 5)
    assert network.num_weights == 648


def test_initial_genomes_lack_the_stated_share_of_normal_weights():
    network = HebbianDag(HebbianDagOptions(hidden=(64, 64)), 105, 8)
    g = network.init(Stream(0, Purpose.INIT))
    assert 1 - g.mask.mean() == pytest.approx(0.025, abs=0.005)
    kept = g.weights[g.mask]
    assert kept.mean() == pytest.approx(0, abs=0.03)
    assert kept.std() == pytest.approx(1, abs=0.02)


def test_traces_are_bounded():
    network = HebbianDag(HebbianDagOptions(hidden=(3,), trace_limit=0.75), 2, 1)
    g = network.init(Stream(0, Purpose.INIT))
    batch = network.batch(1, "numpy")
    batch.load(np.arange(1), g.weights, g.mask, np.zeros(1, np.int64))
    for _ in range(50):
        batch.step(np.full((1, 2), 5, f))
    assert np.abs(batch.traces(np.arange(1))).max() == f(0.75)


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"name": "hebian"}, "did you mean hebbian-dag"),
        ({"name": "hebbian-dag", "hidden": [8, 0]}, "network.hidden.1: expected"),
        ({"name": "hebbian-dag", "plastisity": 1.0}, "did you mean plasticity"),
        ({"name": "hebbian-dag", "neuromodulated": True, "trace_rate": 0.1}, "trace_rate: expected its default, 1.0"),
    ],
)
def test_bad_options_are_refused(table, key):
    with pytest.raises(InputError) as wrong:
        NETWORKS.validate(table)
    assert key.lower() in str(wrong.value).lower()


@pytest.mark.parametrize("faint", [{"trace_rate": 1e-9}, {"trace_rate": -9e-4}, {"trace_limit": 1e-4}])
def test_traces_that_the_strategy_would_see_as_zeros_are_refused_in_new_runs(faint):
    (name,) = faint
    with pytest.raises(InputError, match=rf"network\.{name}: expected .*at least 0\.001"):
        NETWORKS.validate({"name": "hebbian-dag"} | faint)
    NETWORKS.validate({"name": "hebbian-dag", "trace_rate": 0.0})
