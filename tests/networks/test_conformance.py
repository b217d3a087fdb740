"""Every network of the registry keeps the contract."""

import numpy as np
import pytest

from evolve import networks
from evolve.rng import Purpose, Stream

VARIANTS = [
    {"name": "hebbian-dag"},
    {"name": "hebbian-dag", "hidden": []},
    {"name": "hebbian-dag", "hidden": [5, 3, 4], "plasticity": 0.3, "trace_limit": 1.0, "birth_pruning": 0.4},
    {"name": "hebbian-dag", "hidden": [6], "plasticity": -0.2, "neuromodulated": True},
]
O, A = 7, 3


@pytest.fixture(params=VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
def network(request):
    return networks.make(networks.options(request.param), O, A)


def test_every_registered_network_is_tried():
    assert {v["name"] for v in VARIANTS} == set(networks.NETWORKS)


def genomes(network, n):
    return [network.birth(Stream(5, Purpose.BIRTH, 0, p)) for p in range(n)]


def observations(n, steps):
    return np.random.Generator(np.random.Philox(2)).normal(size=(steps, n, O)).astype(np.float32) * 2


def play(network, born, inputs):
    """Return actions [steps, n, A] and traces [n, T] of n genomes in one batch."""
    batch = network.batch(len(born))
    for slot, g in enumerate(born):
        batch.load(slot, g.weights[0], g.mask[0])
    actions = np.stack([batch.step(x) for x in inputs])
    return actions, np.stack([batch.trace(slot) for slot in range(len(born))])


def test_shapes_and_types(network):
    (g,) = genomes(network, 1)
    assert g.weights.shape == g.mask.shape == (1, network.weights)
    actions, traces = play(network, [g], observations(1, 3))
    assert actions.shape == (3, 1, A)
    assert actions.dtype == traces.dtype == np.float32
    assert traces.shape == (1, network.traces)
    assert (np.abs(actions) <= 1).all()


def test_blocks_tile_the_genome(network):
    at = 0
    for block in network.blocks:
        assert block.start == at
        at = block.stop
    assert at == network.weights
    assert [b.layer for b in network.blocks] == sorted(b.layer for b in network.blocks)


def test_birth_is_a_function_of_its_stream(network):
    a, b, other = (network.birth(Stream(5, Purpose.BIRTH, 0, p)) for p in (1, 1, 2))
    assert np.array_equal(a.weights, b.weights)
    assert np.array_equal(a.mask, b.mask)
    assert not np.array_equal(a.weights, other.weights)


@pytest.mark.parametrize("n", [1, 2, 5, 33])
def test_batch_equals_loop(network, n):
    born, inputs = genomes(network, n), observations(n, 6)
    together, traces = play(network, born, inputs)
    for slot in range(n):
        alone, trace = play(network, born[slot : slot + 1], inputs[:, slot : slot + 1])
        assert np.array_equal(together[:, slot], alone[:, 0])
        assert np.array_equal(traces[slot], trace[0])


def test_load_clears_all_state(network):
    a, b = genomes(network, 2)
    inputs = observations(1, 5)
    batch = network.batch(1)
    batch.load(0, a.weights[0], a.mask[0])
    for x in inputs:
        batch.step(x)
    batch.load(0, b.weights[0], b.mask[0])
    again = np.stack([batch.step(x) for x in inputs])
    fresh, trace = play(network, [b], inputs)
    assert np.array_equal(again, fresh)
    assert np.array_equal(batch.trace(0), trace[0])


def test_move_carries_the_episode_along(network):
    born, inputs = genomes(network, 3), observations(3, 8)
    expected, traces = play(network, born, inputs)
    batch = network.batch(3)
    for slot, g in enumerate(born):
        batch.load(slot, g.weights[0], g.mask[0])
    for x in inputs[:4]:
        batch.step(x)
    batch.move(2, 0)
    rest = np.stack([batch.step(x[[2, 1]]) for x in inputs[4:]])
    assert np.array_equal(rest, expected[4:][:, [2, 1]])
    assert np.array_equal(batch.trace(0), traces[2])


def test_pruned_connections_do_nothing(network):
    (g,) = genomes(network, 1)
    inputs = observations(1, 4)
    batch = network.batch(1)
    batch.load(0, g.weights[0], np.zeros_like(g.mask[0]))
    batch.load(0, np.zeros_like(g.weights[0]), np.zeros_like(g.mask[0]))
    assert not np.stack([batch.step(x) for x in inputs]).any()
    assert not batch.trace(0).any()
    _, traces = play(network, [g], inputs)
    assert not traces[0][~g.mask[0]].any()
