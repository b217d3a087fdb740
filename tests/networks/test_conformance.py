"""Every network of the registry keeps the contract."""

import importlib

import numpy as np
import pytest
from conftest import use_device
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import evolve
from evolve import networks
from evolve.errors import EvolveError, InputError
from evolve.genome import Block, Genomes, concatenate, pruned
from evolve.numerics import native
from evolve.numerics.streams import Purpose, Stream, Streams

VARIANTS = [  # every network with its defaults, so that a new one needs no line here; then other settings
    *({"name": name} for name in networks.NETWORKS),
    {"name": "hebbian-dag", "hidden": []},
    {"name": "hebbian-dag", "hidden": [5, 3, 4], "plasticity": 0.3, "trace_limit": 1.0, "init_sparsity": 0.4},
    {"name": "hebbian-dag", "hidden": [6], "plasticity": -0.2, "neuromodulated": True},
    {"name": "dag", "hidden": []},
    {"name": "dag", "hidden": [5, 3, 4], "init_scale": 0.1, "init_sparsity": 0.4},
    {"name": "mlp", "hidden": []},
    {"name": "mlp", "hidden": [5, 3, 4], "init_scale": 3.0, "init_sparsity": 0.4},
    {"name": "elman", "hidden": [1], "init_scale": 3.0},
    {"name": "elman", "hidden": [5], "init_sparsity": 0.4},
    {"name": "hebbian-lstm", "hidden": [2], "update_limit": 1e-3},
    {"name": "hebbian-lstm", "hidden": [5], "update_limit": 2.0, "init_sparsity": 0.4},
    {"name": "plastic-mlp", "hidden": [], "init_scale": 2.0},
    {"name": "plastic-mlp", "hidden": [5, 3], "max_norm": True, "update_every": 2, "init_sparsity": 0.6},
    {"name": "plastic-mlp", "hidden": [5, 3], "rules": "neuron", "init_scale": 1.0, "init_sparsity": 0.4},
    {"name": "plastic-mlp", "hidden": [4], "rules": "layer", "max_norm": True, "initial_scale": 2.0},
    {"name": "binary-mask-mlp", "hidden": []},
    {"name": "binary-mask-mlp", "hidden": [5, 3, 4], "init_sparsity": 0.6},
    {"name": "leaky", "leak": 0.3},  # examples/outside
]
O, A = 7, 3


def pytest_generate_tests(metafunc):
    if "network" in metafunc.fixturenames:
        given = [{"name": name} for name in metafunc.config.getoption("--network")]
        names = {"ids": lambda table: "-".join(map(str, table.values()))}
        metafunc.parametrize("network", given or VARIANTS, indirect=True, **names)


@pytest.fixture
def network(request):
    return networks.make(request.param, O, A)


def test_what_is_no_network_is_refused_with_all_that_it_lacks():
    class Sizes:
        observation_size = num_weights = slot_size = 3

    with pytest.raises(
        InputError, match=r"network\.name: .*Sizes has no batch and no blocks and no init and no num_traces"
    ):
        networks.NETWORKS.check({"name": "sizes"}, Sizes(), networks.Network)


def test_a_network_that_draws_no_genome_is_refused():
    network = networks.make({"name": "mlp"}, O, A)

    class Drawing(type(network)):
        def init(self, stream):
            return super().init(stream).weights

    drawing = Drawing(network.options, O, A)
    with pytest.raises(InputError, match=r"init fails \(TypeError: expected evolve\.genome\.Genomes, got ndarray"):
        networks.check({"name": "mlp"}, drawing, A)


def _noisy(step):
    """As a network that draws from NumPy's generator. Rounding errors of a product of matrices may be as large."""
    noise = np.random.Generator(np.random.Philox(1))
    return lambda *given: step(*given) + 1e-4 * noise.normal(size=(1, A)).astype(np.float32)


def _centred(step):
    return lambda batch, observations: step(batch, observations - observations.mean(axis=0))


def _into_the_first_slots(load):
    return lambda batch, slots, *genomes: load(batch, np.arange(len(slots)), *genomes)


def _once(load):
    loaded = []
    return lambda batch, *arguments: batch in loaded or loaded.append(batch) or load(batch, *arguments)


def _in_place(load):
    return lambda batch, slots, weights, *rest: load(batch, slots, np.sign(weights, out=weights), *rest)


def _random(_init):
    return lambda network, _: pruned(np.random.rand(1, O * A).astype(np.float32), np.ones((1, O * A), np.bool_))  # noqa: NPY002


def _unpruned(init):
    return lambda network, stream: Genomes(init(network, stream).weights, np.zeros((1, O * A), np.bool_))


def test_an_init_for_many_streams_gives_the_genome_of_each(monkeypatch):
    def in_reverse(_network, streams):
        weights = streams.normal_rows(O * A)[::-1]
        return pruned(weights, np.ones(weights.shape, np.bool_))

    leaky = importlib.import_module("outside").Leaky
    monkeypatch.setattr(leaky, "batched_init", True, raising=False)
    for init, fault in (
        (leaky.init, "AttributeError: 'Streams' object has no attribute 'normal'"),
        (in_reverse, "the Streams of several candidates give other weights than the Stream of each"),
    ):
        monkeypatch.setattr(leaky, "init", init)
        with pytest.raises(InputError, match=rf"whose init fails .*{fault}"):
            networks.check({"name": "leaky"}, networks.make({"name": "leaky"}, O, A), A)


@pytest.mark.parametrize(("forgotten", "fault"), [("load", "after a second load"), ("move", "after move")])
def test_state_that_acts_some_steps_later_is_checked(monkeypatch, forgotten, fault):
    """As the eligibility trace of a rule with three factors."""
    kind = importlib.import_module("outside").LeakyBatch
    traces = {}
    init, load, move, step = kind.__init__, kind.load, kind.move, kind.step

    def made(batch, network, slots):
        traces[id(batch)] = np.zeros((slots, 1), np.float32)
        init(batch, network, slots)

    def loaded(batch, slots, *genomes):
        load(batch, slots, *genomes)
        if forgotten != "load":
            traces[id(batch)][slots] = 0

    def moved(batch, sources, targets):
        move(batch, sources, targets)
        if forgotten != "move":
            traces[id(batch)][targets] = traces[id(batch)][sources]

    def stepped(batch, observations):
        trace = traces[id(batch)][: len(observations)]
        trace += np.abs(observations[:, :1]) + 1
        actions = step(batch, observations)
        return np.where(trace > 4, actions * (trace % 1), actions)

    for name, method in {"__init__": made, "load": loaded, "move": moved, "step": stepped}.items():
        monkeypatch.setattr(kind, name, method)
    with pytest.raises(InputError, match=rf"^network\.name: .*got leaky, whose .*{fault}"):
        networks.check({"name": "leaky"}, networks.make({"name": "leaky"}, O, A), A)


@pytest.mark.parametrize(
    ("part", "change", "fault"),
    [
        ("LeakyBatch.move", lambda _: lambda *_: None, "after move"),
        ("LeakyBatch.load", _once, "after a second load"),
        ("LeakyBatch.load", _into_the_first_slots, "beside another slot"),
        ("LeakyBatch.load", _in_place, "array is read-only"),
        ("LeakyBatch.step", _centred, "beside another slot"),
        ("LeakyBatch.step", _noisy, "after a second load; .* draw random numbers from the seeds of load"),
        ("LeakyBatch.step", lambda _: lambda *_: [[0.0] * A], "actions: expected an array, got list"),
        ("Leaky.slot_size", lambda _: None, "property slot_size fails"),
        ("Leaky.slot_size", lambda _: 0, "property slot_size fails .*expected at least 1, got 0"),
        ("Leaky.init", _unpruned, "init fails .*expected the weight 0 at each absent connection"),
        ("Leaky.init", _random, "init .*other weights; draw from the stream only"),
        ("Leaky.num_traces", lambda _: None, "property num_traces fails"),
        ("Leaky.num_traces", lambda _: 5, "property num_traces fails .*expected 0 or num_weights = 21, got 5"),
        ("Leaky.__init__", lambda _: lambda *_: 1 / 0, r"constructor fails .*, line \d+ of test_conformance\.py"),
    ],
)
def test_an_added_network_that_breaks_the_contract_is_refused(monkeypatch, part, change, fault):
    kind, name = part.split(".")
    kind = getattr(importlib.import_module("outside"), kind)
    monkeypatch.setattr(kind, name, change(getattr(kind, name)))
    with pytest.raises(InputError, match=rf"^network\.name: .*got leaky, whose .*{fault}"):
        networks.check({"name": "leaky"}, networks.make({"name": "leaky"}, O, A), A)


@pytest.mark.parametrize(
    ("blocks", "fault"),
    [
        ((Block(0, 0, 0, O, A),), "expected blocks of num_weights = 42 numbers, got 21"),
        ((Block(0, 0, 0, O, A), Block(0, 0, 0, O, A)), "expected W_0_0 to start at 21, .*, got 0"),
        ((Block(0, 0, 0, O, A), Block(0, 0, 21, O, A)), "expected a different name for each block, got W_0_0 twice"),
        ((Block(1, 0, 0, O, A), Block(0, 0, 21, O, A)), "expected layers in ascending order, got 0 after 1 in W_0_0"),
    ],
)
def test_blocks_that_do_not_tile_the_genome_are_refused(blocks, fault):
    class Tiled:
        num_weights = 2 * O * A

        def init(self, stream):
            weights = stream.normal(1, self.num_weights)
            return pruned(weights, np.ones(weights.shape, np.bool_))

    Tiled.blocks = blocks
    with pytest.raises(InputError, match=rf"whose property blocks fails \(ValueError: {fault}"):
        networks.check({"name": "tiled"}, Tiled(), A)


def usable(backend, request):
    """Return a back end, or skip the test if the back end is not available; a device is emulated."""
    if backend == "native" and not native.available():
        pytest.skip("the native kernels were not built")
    if backend == "cupy":
        request.getfixturevalue("emulated_device")
    return backend


@pytest.fixture(params=["numpy", "native", "cupy"])
def backend(request):
    return usable(request.param, request)


@pytest.fixture(params=["native", "emulated", "gpu"])
def compiled(request, no_device):
    if request.param == "native":
        return usable("native", request)
    use_device(request.param)
    return "cupy"


def genomes(network, n):
    return [network.init(Stream(5, Purpose.INIT, 0, p)) for p in range(n)]


def observations(n, steps):
    return np.random.Generator(np.random.Philox(2)).normal(size=(steps, n, O)).astype(np.float32) * 2


def loaded(network, backend, some, seed=3):
    """Return a batch of the episodes `seed`, `seed` + 1, …"""
    batch, all_of_them = network.batch(len(some), backend), concatenate(*some)
    batch.load(np.arange(len(some)), all_of_them.weights, all_of_them.mask, np.arange(seed, seed + len(some)))
    return batch


def play(network, backend, some, inputs, seed=3):
    """Return actions [steps, n, A] and traces [n, T] of n genomes in one batch."""
    batch = loaded(network, backend, some, seed)
    actions = np.stack([batch.step(x) for x in inputs])
    return actions, batch.traces(np.arange(len(some)))


def test_shapes_and_types(network, backend):
    (g,) = genomes(network, 1)
    assert g.weights.shape == g.mask.shape == (1, network.num_weights)
    actions, traces = play(network, backend, [g], observations(1, 3))
    assert actions.shape == (3, 1, A)
    assert actions.dtype == traces.dtype == np.float32
    assert traces.shape == (1, network.num_traces)
    assert (np.abs(actions) <= 1).all()


def test_blocks_tile_the_genome(network):
    at = 0
    for block in network.blocks:
        assert block.start == at
        at = block.stop
    assert at == network.num_weights
    assert [b.layer for b in network.blocks] == sorted(b.layer for b in network.blocks)


def test_an_initial_genome_is_a_function_of_its_stream(network):
    a, b, other = (network.init(Stream(5, Purpose.INIT, 0, p)) for p in (1, 1, 2))
    assert np.array_equal(a.weights, b.weights)
    assert np.array_equal(a.mask, b.mask)
    assert not np.array_equal(a.weights, other.weights)


def test_many_streams_give_the_genome_of_each(network):
    if not getattr(network, "batched_init", False):
        pytest.skip("takes one stream at a time")
    for n in (0, 1, 4):
        together = network.init(Streams(5, Purpose.INIT, 0, np.arange(n)))
        assert len(together) == n
        for p, alone in enumerate(genomes(network, n)):
            assert together.weights[p].tobytes() == alone.weights.tobytes()
            assert together.mask[p].tobytes() == alone.mask.tobytes()


@pytest.mark.parametrize("n", [3, 18])
def test_batch_equals_loop(network, backend, n):
    some, inputs = genomes(network, n), observations(n, 6)
    together, traces = play(network, backend, some, inputs)
    for slot in {0, 1, n - 3, n - 2, n - 1}:
        alone, trace = play(network, backend, some[slot : slot + 1], inputs[:, slot : slot + 1], 3 + slot)
        assert np.array_equal(together[:, slot], alone[:, 0])
        assert np.array_equal(traces[slot], trace[0])


def test_load_clears_all_state(network, backend):
    a, b = genomes(network, 2)
    inputs = observations(1, 5)
    batch = loaded(network, backend, [a])
    for x in inputs:
        batch.step(x)
    batch.load(np.arange(1), b.weights, b.mask, np.array([3]))
    again = np.stack([batch.step(x) for x in inputs])
    fresh, trace = play(network, backend, [b], inputs)
    assert np.array_equal(again, fresh)
    assert np.array_equal(batch.traces(np.arange(1)), trace)


def test_move_carries_the_episode_along(network, backend):
    some, inputs = genomes(network, 3), observations(3, 8)
    expected, traces = play(network, backend, some, inputs)
    batch = loaded(network, backend, some)
    for x in inputs[:3]:
        batch.step(x)
    batch.load(np.arange(1), some[0].weights, some[0].mask, np.array([9]))  # so that the episodes differ in age
    batch.step(inputs[3])
    batch.move(np.array([2]), np.array([0]))
    rest = np.stack([batch.step(x[[2, 1]]) for x in inputs[4:]])
    assert np.array_equal(rest, expected[4:][:, [2, 1]])
    assert np.array_equal(batch.traces(np.arange(1))[0], traces[2])


def test_pruned_connections_do_nothing(network, backend):
    (g,) = genomes(network, 1)
    inputs = observations(1, 4)
    batch = network.batch(1, backend)
    batch.load(np.arange(1), np.zeros_like(g.weights), np.zeros_like(g.mask), np.array([3]))
    assert not np.stack([batch.step(x) for x in inputs]).any()


def same_bits(a, b):
    """Assert equal bits, except that any NaN equals any other: CPUs differ in the NaN of an operation."""
    return np.array_equal(np.isnan(a), np.isnan(b)) and a[~np.isnan(a)].tobytes() == b[~np.isnan(b)].tobytes()


@pytest.mark.parametrize("n", [1, 40])
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-30, 1e-3, 1.0, 50.0, 1e20]))
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_kernels_equal_the_reference_to_the_bit(network, compiled, n, seed, scale):
    draw = np.random.Generator(np.random.Philox(seed))
    both = [network.batch(n, backend) for backend in ("numpy", compiled)]
    weights = (draw.normal(size=(n, network.num_weights)) * scale).astype(np.float32)
    mask = draw.random(weights.shape) < 0.8
    for batch in both:
        batch.load(np.arange(n), np.where(mask, weights, np.float32(0)), mask, np.arange(n))
    for live in (n, n, (n + 1) // 2, (n + 1) // 2):
        x = (draw.normal(size=(live, O)) * scale).astype(np.float32)
        reference, kernel = (batch.step(x) for batch in both)
        assert same_bits(reference, kernel)
    running = np.arange((n + 1) // 2)
    assert same_bits(both[0].traces(running), both[1].traces(running))


def test_what_a_network_does_can_be_looked_at(network):
    """The last nodes are the outputs, and each layer's are what its blocks read and feed."""
    batch = loaded(network, "numpy", genomes(network, 2))
    if not hasattr(batch, "activity"):
        pytest.skip("the network shows nothing")
    for x in observations(2, 3):
        outputs = batch.step(x)
    seen = batch.activity(1)
    np.testing.assert_array_equal(seen.nodes[-1][-A:], outputs[1])
    np.testing.assert_array_equal(seen.nodes[0][:O], x[1])
    for block in network.blocks:
        rows, columns = block.span or (block.rows, block.columns)
        assert len(seen.nodes[block.source]) >= rows
        assert len(seen.nodes[block.layer + 1]) >= columns
    connections = network.num_weights if network.blocks[0].span is None else network.num_connections
    assert seen.weights.shape == (connections,)
    assert all((0 <= layer < len(seen.nodes)) for layer, _ in getattr(network, "modulators", ()))


@pytest.mark.parametrize(
    ("method", "change", "fault"),
    [
        ("step", lambda actions: actions[:, :1], r"step fails \(ValueError: expected actions of shape \[\d+, 2\], got"),
        ("step", lambda _: None, r"step fails \(ValueError: expected actions of shape \[\d+, 2\], got \[\]"),
        ("step", lambda _: 1 / 0, r"step fails \(ZeroDivisionError: .*, line \d+ of test_conformance\.py\)"),
        ("step", lambda actions: actions * np.nan, r"step fails \(ValueError: expected numbers, got NaN\)"),
        ("load", lambda _: 1 / 0, r"load fails \(ZeroDivisionError: "),
    ],
)
def test_a_network_of_another_package_that_fails_later_is_named(monkeypatch, tmp_path, method, change, fault):
    calls = []
    batch_kind = type(networks.make("leaky", 4, 2).batch(1, "numpy"))
    original = getattr(batch_kind, method)

    def changed(self, *given):
        calls.append(0)
        result = original(self, *given)
        return change(result) if len(calls) > (150 if method == "step" else 40) else result  # not in the check

    monkeypatch.setattr(batch_kind, method, changed)
    with pytest.raises(EvolveError, match=rf"network\.name: .*got leaky, whose {fault}"):
        evolve.train(env="CartPole-v1", network="leaky", strategy="random", population=8, episodes=8, generations=9,
                     output=tmp_path)  # fmt: skip


def test_a_network_that_rounds_otherwise_beside_other_slots_causes_a_warning(monkeypatch, tmp_path, caplog):
    """As with matrix products of BLAS: the digests of such a network may depend on the number of ranks."""
    section = {"name": "leaky"}
    network = networks.make(section, 4, 2)
    assert networks.check(section, network, 2) is None
    kind = type(network.batch(1, "numpy"))
    step = kind.step
    monkeypatch.setattr(kind, "step", lambda self, seen: step(self, seen) * np.float32(1 - 1e-6 * (len(seen) > 1)))
    evolve.train(env="CartPole-v1", network="leaky", strategy="random", population=2, episodes=1, generations=1,
                 output=tmp_path)  # fmt: skip
    assert "network.name: leaky: actions have other last bits beside other slots" in caplog.text
