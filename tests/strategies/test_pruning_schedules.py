"""Pruning in rounds: when, what, and with which weights the search begins again."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from conftest import run_on

from evolve import networks, store, strategies
from evolve.errors import InputError
from evolve.numerics.streams import Purpose, Stream
from evolve.strategies import STRATEGIES, Results
from evolve.strategies.pruning_schedules import MaskedLayout, PruningRounds

NETWORK = networks.make({"name": "hebbian-dag", "hidden": [3], "init_sparsity": 0.2}, 4, 2)
P = 8
START = NETWORK.init(Stream(5, Purpose.INIT, 0, 0))
ALL = ["pgpe", "snes", "sep-cma-es"]


def made(name="pgpe", **options):
    return strategies.from_table({"name": name} | options, NETWORK, P, 5)


def states_of(strategy, generations):
    """Return the states before each generation and after the last, on a sphere."""
    state = strategy.start()
    states = [state]
    for generation in range(generations):
        genomes = strategy.ask(state, generation)
        state = strategy.tell(state, genomes, Results(-((genomes.weights.astype(float) - 0.5) ** 2).sum(axis=1)))
        states.append(state)
    return states


def moments(name, now):
    """Return mean and standard deviation of the weights of a strategy's first state, by its arrays."""
    if name != "sep-cma-es":
        return now.centre[START.mask[0]], now.sigma[START.mask[0]]
    return now.mean, now.progress.sigma * np.sqrt(now.covariance)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("by", ["signal-to-noise", "magnitude"])
def test_the_most_important_connections_remain_and_are_rewound(name, by):
    strategy, inner = made(name, pruning_every=3, pruning_keep=0.7, pruning_by=by), made(name)
    assert isinstance(strategy, PruningRounds)
    assert not isinstance(inner, PruningRounds)
    *_, end = states_of(strategy, 3)
    there = START.mask[0]
    mean, deviation = moments(name, end.now)
    importance = abs(mean) / deviation if by == "signal-to-noise" else abs(mean)
    places = np.flatnonzero(there)[np.argsort(-importance, kind="stable")[: round(0.7 * there.sum())]]
    left = strategy.ask(end, 3).mask
    assert np.flatnonzero(left[0]).tolist() == sorted(places)
    assert (left == left[0]).all()
    assert np.array_equal(strategy.champion(end).weights, inner.champion(end.now).weights)  # until the next begins
    asked = strategy.ask(end, 3)
    told = strategy.tell(end, asked, Results(np.zeros(P)))  # equal fitness moves the centre of a Gaussian nowhere
    if name != "sep-cma-es":
        assert np.array_equal(strategy.champion(told).weights[0], np.where(left[0], START.weights[0], 0))
    alone = asked.weights[:, left[0]].astype(float).mean(axis=0)
    assert abs(alone - START.weights[0, left[0]]).max() < 4 * deviation.max()  # around the start


def test_what_goes_first_by_signal_and_by_magnitude_differs():
    ends = [states_of(made(pruning_every=4, sigma_learning_rate=2.0, pruning_by=by), 4)[-1] for by in
            ("signal-to-noise", "magnitude", "random")]  # fmt: skip
    masks = [made(pruning_every=4, sigma_learning_rate=2.0, pruning_by=by).ask(end, 4).mask[0].tolist()
             for by, end in zip(("signal-to-noise", "magnitude", "random"), ends, strict=True)]  # fmt: skip
    assert masks[0] != masks[1] != masks[2] != masks[0]


@pytest.mark.parametrize("name", ALL)
def test_a_control_has_the_mask_and_other_weights_and_decides_nothing(name):
    options = {"pruning_every": 2, "pruning_keep": 0.5}
    controlled, plain = made(name, pruning_control=True, **options), made(name, **options)
    states = states_of(controlled, 9)
    control, after = (controlled.ask(states[g], g) for g in (2, 4))
    assert np.array_equal(control.mask[0], START.mask[0])
    other = NETWORK.init(Stream(5, Purpose.INIT, 2, 0)).weights[0]
    told = controlled.tell(states[2], control, Results(np.zeros(P)))
    if name != "sep-cma-es":
        assert np.array_equal(controlled.champion(told).weights[0], np.where(START.mask[0], other, 0))
    assert np.array_equal(after.mask, plain.ask(states_of(plain, 2)[-1], 2).mask)
    connections = [int(controlled.ask(state, g).connections()[0]) for g, state in enumerate(states)]
    assert connections[0] == connections[3] > connections[4] == connections[7] > connections[8]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("more", "after"), [({"starts": 2, "start_generations": 2}, 2), ({"restart_after": 2, "restart_from": "anew"}, 3)]
)
def test_a_control_begins_with_other_weights(name, more, after):
    strategy = made(name, pruning_every=5, pruning_control=True, **more)
    state, began = strategy.start(), {}
    for generation in range(10):
        if generation in (after, 5 + after):
            began[generation] = strategy.champion(replace(state, now=replace(state.now, best=state.now.now))).weights[0]
        state = strategy.tell(state, strategy.ask(state, generation), Results(np.full(P, -float(generation))))
    there = START.mask[0]
    for generation, weights in began.items():
        other = NETWORK.init(Stream(5, Purpose.INIT, generation, 0)).weights[0]
        assert np.array_equal(weights[there], other[there])


def test_two_connections_are_left_in_any_case():
    strategy = made("sep-cma-es", pruning_every=1, pruning_keep=0.1)
    assert strategy.ask(states_of(strategy, 6)[-1], 6).connections().tolist() == [2] * P


@pytest.mark.parametrize("name", ALL)
def test_settings_without_effect_are_refused(name):
    with pytest.raises(InputError, match=r"strategy\.pruning_every: expected 1 or more, if there is a pruning_by"):
        STRATEGIES.validate({"name": name, "pruning_by": "magnitude"}, NETWORK)
    with pytest.raises(InputError, match=r"strategy\.restart_after: expected below pruning_every, 3, because each"):
        STRATEGIES.validate({"name": name, "pruning_every": 3, "restart_after": 3}, NETWORK)
    STRATEGIES.validate({"name": name, "pruning_every": 3, "restart_after": 2, "pruning_by": "random"}, NETWORK)


def test_a_run_is_the_same_on_three_ranks_and_resumed(call, tmp_path):
    words = ("-e", "Pendulum-v1", "--engine", "exact", "-p", 6, "-r", 1, "-d", 3, "-s", 4, "--strategy", "sep-cma-es")
    more = ("strategy.pruning_every=2", "strategy.pruning_control=true", "held_out_episodes=2")
    words += tuple(word for setting in more for word in ("--set", setting))
    run_on(3, *words, "-g", 7, "-o", "ranks", where=tmp_path)
    for generations, resume in ((4, ()), (7, ("--resume",))):
        call("run", *words, "-g", generations, "-o", "parts", *resume).ok()
    ranks, parts = (store.read(store.path_of(tmp_path / at, 4)) for at in ("ranks", "parts"))
    assert [r.digest for r in ranks.records] == [r.digest for r in parts.records]
    assert ranks.held_out.returns.tolist() == parts.held_out.returns.tolist()
    assert len({int(r.connections[0]) for r in parts.records}) == 2
    call("verify", parts.path, "--full").ok()


@pytest.mark.parametrize("name", ALL)
def test_threads_ask_while_a_round_begins(name):
    """They ask for the strategy of the mask before and of the mask after, one of which is cached."""
    population, threads = 64, 8
    network = networks.make({"name": "mlp", "hidden": [24, 24]}, 8, 4)
    table = {"name": name, "pruning_every": 1, "pruning_keep": 0.97}
    alone, shared = (strategies.from_table(table, network, population, 1) for _ in range(2))
    state, same = alone.start(), shared.start()
    barrier = threading.Barrier(threads, timeout=30)

    def ask(thread, generation):
        barrier.wait()
        return shared.ask(same, generation, np.arange(thread, population, threads))

    with ThreadPoolExecutor(threads) as pool:
        for generation in range(25):
            whole = alone.ask(state, generation)
            parts = list(pool.map(ask, range(threads), [generation] * threads))
            for thread, part in enumerate(parts):
                assert np.array_equal(part.weights, whole.weights[thread::threads])
                assert np.array_equal(part.mask, whole.mask[thread::threads])
            results = Results(np.arange(population, dtype=float))
            state, same = alone.tell(state, whole, results), shared.tell(same, whole, results)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda layout: pickle.loads(pickle.dumps(layout))])
def test_a_masked_layout_can_be_copied(copied):
    same = copied(MaskedLayout(NETWORK, START.mask[0]))
    assert same.num_weights == NETWORK.num_weights
    assert np.array_equal(same.mask, START.mask[0])
