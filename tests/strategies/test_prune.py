"""prune: the formulas of its docstring, and the bugs of the 2020 script that must not come back."""

from dataclasses import replace

import numpy as np
import pytest

from evolve import networks, strategies
from evolve.errors import InputError
from evolve.genome import Genomes, pruned
from evolve.numerics.streams import Purpose, Stream, Streams
from evolve.strategies import Results
from evolve.strategies.elitist import ScoredGenomes
from evolve.strategies.prune import (
    Prune,
    PruneOptions,
    PruneState,
    adaptive_rate,
    assemble,
    parent_ranks,
    swap_blocks,
    trace_pruning_probability,
)

QUIET = {"trace_pruning": 0.0, "uniform_pruning": 0.0}


def network(hidden=(3,), O=4, A=2):
    return networks.make({"name": "hebbian-dag", "hidden": list(hidden)}, O, A)


def prune(P, net=None, seed=0, survivors=1, weight_noise=0.0, **options):
    options = PruneOptions(survivors=survivors, weight_noise=weight_noise, **options)
    return Prune(options, net or network(), P, seed)


def evolved(made, P, W, fitness, traces=None, generations=1):
    state = made.start()
    for generation in range(generations):
        genomes = made.ask(state, generation)
        traces_now = np.zeros((P, W), np.float32) if traces is None else traces
        state = made.tell(state, genomes, Results(fitness(genomes, generation), traces_now))
    return state


def test_champion_is_untouched():
    # In the 2020 script the saved champion was pruned in place.
    made, W = prune(16, uniform_pruning=0.5, weight_noise=1.0, regrowth=0.5), network().num_weights
    state = evolved(made, 16, W, lambda g, _: np.arange(16.0))
    champion = made.champion(state)
    for generation in range(1, 6):
        genomes = made.ask(state, generation)
        assert np.array_equal(genomes.weights[0], champion.weights[0])
        assert np.array_equal(genomes.mask[0], champion.mask[0])
        others = np.arange(16.0)
        others[0] = 100.0
        state = made.tell(state, genomes, Results(others, np.zeros((16, W), np.float32)))
        assert np.array_equal(made.champion(state).weights, champion.weights)


def test_a_lucky_score_does_not_last():
    # In the 2020 script elites kept their luckiest score for ever.
    made, W = prune(8), network().num_weights
    lucky = evolved(made, 8, W, lambda g, _: np.array([0, 0, 0, 100.0, 0, 0, 0, 0]))
    first = made.champion(lucky).weights
    assert lucky.leaderboard.score[0] == 100.0
    genomes = made.ask(lucky, 1)
    state = made.tell(lucky, genomes, Results(np.array([-50.0, *[26.0] * 7]), np.zeros((8, W), np.float32)))
    # The mean of 100 and -50 is 25: a newcomer's 26 takes the lead.
    assert state.leaderboard.score[0] == 26.0
    assert not np.array_equal(made.champion(state).weights, first)


def test_a_new_score_counts_more_the_more_often_it_is_confirmed():
    made, W = prune(8, prior_evaluations=3), network().num_weights
    state = evolved(made, 8, W, lambda g, _: np.array([16.0, 0, 0, 0, 0, 0, 0, 0]))
    assert state.leaderboard.score[0] == (16 + 3 * 2) / 4  # the mean of that generation is 2
    for generation in range(1, 50):
        results = Results(np.array([16.0, *[0.0] * 7]), np.zeros((8, W), np.float32))
        state = made.tell(state, made.ask(state, generation), results)
    assert state.leaderboard.score[0] == pytest.approx((50 * 16 + 3 * 2) / 53)


def test_leaderboard_and_recent_hold_the_k_best():
    P, W = 20, network().num_weights
    made = prune(P)
    state = evolved(made, P, W, lambda g, n: np.arange(20.0) - 100 * n, generations=2)
    assert state.recent.total.tolist() == [-81, -82, -83]  # K = ceil(20/8) = 3
    # The leader (19) was candidate 0 of generation 1 and scored -100 there: (19 - 100)/2 = -40.5.
    assert state.leaderboard.score.tolist() == [18, 17, -40.5]
    assert state.leaderboard.count.tolist() == [1, 1, 2]


def test_parents_follow_linear_ranks():
    parents = parent_ranks(3, 30_000, Stream(0, Purpose.PARENTS, 1))
    shares = np.bincount(parents, minlength=3) / 30_000
    assert shares == pytest.approx([3 / 6, 2 / 6, 1 / 6], abs=0.01)


def varied(made, mask):
    """Return children of parents that have the mask [P, W], all rows of it equal, and weights of 1."""
    genomes = Genomes(mask.astype(np.float32), mask)
    state = made.tell(made.start(), genomes, Results(np.zeros(len(mask)), np.zeros(mask.shape, np.float32)))
    return made.ask(state, 1, np.arange(1, len(mask)))  # 0 is the survivor


def swapped(net, generation):
    """Return weights and pruning probability of two parents' children after a swap, and the parents' probability.

    The parents have weights of zero and of one, and different traces.
    """
    weights = np.repeat(np.arange(2, dtype=np.float32)[:, None], net.num_weights, axis=1)
    mask = np.ones(weights.shape, np.bool_)
    traces = np.random.Generator(np.random.Philox(generation)).normal(size=mask.shape).astype(np.float32)
    pool = ScoredGenomes.evaluated(Genomes(weights, mask), np.zeros(2), traces)
    state = PruneState(leaderboard=pool.take(np.arange(1)), recent=pool.take(np.arange(1, 2)))
    sources = np.repeat(np.array([[1], [2]]), len(net.blocks), axis=1)
    draws = Streams(0, Purpose.SWAPS, generation, np.arange(1)).uniform(5)
    weights, _, ours = assemble(state, swap_blocks(sources, net.blocks, draws), net.blocks, 0.01)
    return weights, ours, by_blocks(net, 0.01, mask, traces)


def by_blocks(net, q, mask, traces):
    """Return [n, W], the pruning probability of genomes."""
    places = [slice(b.start, b.stop) for b in net.blocks]
    return np.concatenate([trace_pruning_probability(q, mask[:, p], traces[:, p]) for p in places], axis=1)


def test_swaps_exchange_whole_matrices_and_carry_the_traces():
    net = network(hidden=(3, 2))
    kinds = set()
    for generation in range(1, 60):
        weights, ours, parents = swapped(net, generation)
        assert np.array_equal(ours, np.where(weights == 0, parents[0], parents[1]))
        assert (weights.sum(axis=0) == 1).all()  # exchanged, nothing lost
        moved = tuple(i for i, b in enumerate(net.blocks) if weights[0, b.start] != 0)
        for b in net.blocks:
            assert len(set(weights[0, b.start : b.stop])) == 1
        kinds.add(moved)
    rows = {tuple(i for i, b in enumerate(net.blocks) if b.layer == layer) for layer in range(3)}
    singles = {(i,) for i in range(len(net.blocks))}
    assert kinds == rows | singles


def test_layers_without_a_matrix_are_never_swapped():
    """A network of another package may count its layers from 1."""
    blocks = network(hidden=(3, 2)).blocks
    later = [replace(block, layer=2 * block.layer + 1) for block in blocks]
    draws = Streams(0, Purpose.SWAPS, 1, np.arange(20)).uniform(5)
    sources = np.repeat(np.arange(6)[:, None], len(blocks), axis=1)
    assert np.array_equal(swap_blocks(sources, later, draws), swap_blocks(sources, blocks, draws))


def test_trace_pruning_probability_is_the_softmax_of_the_formula():
    net = network(hidden=(3,))
    draw = np.random.Generator(np.random.Philox(0))
    traces = draw.normal(size=(2, net.num_weights)).astype(np.float32) * 2
    mask = draw.random((2, net.num_weights)) < 0.8
    ours = by_blocks(net, 0.01, mask, traces)
    for child in range(2):
        for b in net.blocks:
            left, h = mask[child, b.start : b.stop], np.abs(traces[child, b.start : b.stop].astype(np.float64))
            softmax = np.exp(-h) * left / (np.exp(-h) * left).sum()
            expected = np.minimum(1, 0.01 * left.sum() * softmax)
            assert ours[child, b.start : b.stop] == pytest.approx(expected, rel=1e-5)
        assert not ours[child][~mask[child]].any()


def test_trace_pruning_survives_extremes():
    net = network(hidden=(3,))
    huge = np.full((2, net.num_weights), 3e38, np.float32)
    mask = np.ones((2, net.num_weights), np.bool_)
    mask[1] = False
    ours = by_blocks(net, 1.0, mask, huge)
    assert ours[0] == pytest.approx(1.0)
    assert not ours[1].any()


def test_traces_steer_pruning():
    # In the 2020 script traces never left the workers, so "Hebbian" pruning was uniform.
    net = network(hidden=(8,), O=8, A=3)
    P, W = 200, net.num_weights
    made = prune(P, net, trace_pruning=0.05, uniform_pruning=0.0)
    used = np.arange(W) % 2 == 0
    traces = np.where(used, np.float32(3), np.float32(0)) * np.ones((P, 1), np.float32)
    state = evolved(made, P, W, lambda g, _: np.arange(float(P)), traces)
    before, after = state.recent.genomes.mask, made.ask(state, 1).mask[1:]
    lost_used, lost_unused = (1 - after[:, which].mean() / before[:, which].mean() for which in (used, ~used))
    assert lost_unused > 0.05
    assert lost_used < lost_unused / 5


def test_without_traces_nothing_is_pruned_by_them():
    net = networks.make({"name": "mlp", "hidden": [8]}, 4, 2)
    made = prune(8, net, trace_pruning=0.9, uniform_pruning=0.0)
    genomes = made.ask(made.start(), 0)
    state = made.tell(made.start(), genomes, Results(np.arange(8.0)))
    assert made.ask(state, 1).mask.all()


def test_pruning_rates():
    P, W = 400, network().num_weights
    made = prune(P, trace_pruning=0.0, uniform_pruning=0.2, uniform_pruning_chance=0.5)
    children = varied(made, np.ones((P, W), np.bool_))
    pruned_share = 1 - children.mask.mean(axis=1)
    assert (pruned_share == 0).mean() == pytest.approx(0.5, abs=0.08)
    assert pruned_share[pruned_share > 0].mean() == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize(
    ("connections", "rate"),
    [
        ([10, 10, 10], 0.001),
        ([20, 20, 4], 0.0125),  # the leader counts twice
        ([100, 100, 100, 101], 3**0.5 / 4 / 100.25),
        ([0, 0], 0.001),
    ],
)
def test_adaptive_rate_is_the_relative_deviation_of_the_connections_inside_limits(connections, rate):
    mask = np.arange(200) < np.array(connections)[:, None]
    pool = ScoredGenomes.evaluated(Genomes(mask.astype(np.float32), mask), np.zeros(len(mask)))
    after_the_leader = PruneState(leaderboard=pool.take(np.arange(1)), recent=pool.take(np.arange(2, len(mask))))
    assert adaptive_rate(after_the_leader) == pytest.approx(rate, rel=1e-12)


def test_adaptive_pruning_prunes_at_its_rate():
    net = network(hidden=(20,), O=20)
    P, W = 400, net.num_weights
    made = prune(P, net, trace_pruning=0.0, uniform_pruning="adaptive", uniform_pruning_chance=1.0)
    genomes = Genomes(np.ones((P, W), np.float32), np.arange(W) < np.where(np.arange(P) % 2, W // 2, W)[:, None])
    results = Results(np.zeros(P), np.zeros((P, W), np.float32))
    state = made.tell(made.start(), pruned(genomes.weights, genomes.mask), results)
    children = made.ask(state, 1).mask[1:, : W // 2]  # the connections that all parents had
    assert 1 - children.mean() == pytest.approx(0.0125, abs=0.001)


@pytest.mark.parametrize("rate", [2.0, -0.1, "often"])
def test_a_wrong_rate_is_refused(rate):
    with pytest.raises(InputError, match=r'strategy.uniform_pruning: expected "adaptive", or a number from 0 to 1'):
        strategies.STRATEGIES.parse({"name": "prune", "uniform_pruning": rate})


def test_regrowth_brings_back_connections_with_new_weights():
    P, W = 50, network().num_weights
    made = prune(P, **QUIET, regrowth=0.3)
    children = varied(made, np.zeros((P, W), np.bool_))
    assert children.mask.mean() == pytest.approx(0.3, abs=0.05)
    assert children.weights[children.mask].std() == pytest.approx(1, abs=0.15)


def test_noise_moves_only_present_weights():
    P, W = 50, network().num_weights
    made = prune(P, **QUIET, weight_noise=0.5)
    mask = np.tile(np.arange(W) % 2 == 0, (P, 1))
    children = varied(made, mask)
    assert np.array_equal(children.mask, mask[1:])
    assert children.weights[children.mask].std() == pytest.approx(0.5, abs=0.05)


def test_without_noise_and_regrowth_weights_neither_move_nor_return():
    P, W = 24, network().num_weights
    made = prune(P)
    state = made.start()
    first = made.ask(state, 0)
    pool = {float(w) for w in first.weights.ravel()}
    for generation in range(5):
        genomes = made.ask(state, generation)
        assert {float(w) for w in genomes.weights.ravel()} <= pool | {0.0}
        state = made.tell(state, genomes, Results(-genomes.connections().astype(float), np.zeros((P, W), np.float32)))


def test_initial_genomes_come_from_keyed_streams():
    net = network()
    first = prune(6, net, seed=11).ask(prune(6, net, seed=11).start(), 0)
    alone = net.init(Stream(11, Purpose.INIT, 0, 4))
    assert np.array_equal(first.weights[4], alone.weights[0])


def test_trace_pruning_is_refused_where_there_are_no_traces():
    """It would have no effect; the default, which every file has that was printed in full, stays allowed."""
    mlp = networks.make({"name": "mlp"}, 3, 2)
    for value, allowed in ((0.5, False), (0.0, True), (0.01, True)):
        table = {"name": "prune", "trace_pruning": value}
        if allowed:
            strategies.STRATEGIES.validate(table, mlp)
        else:
            with pytest.raises(InputError, match="trace_pruning: expected a network that leaves Hebbian traces"):
                strategies.STRATEGIES.validate(table, mlp)
        strategies.STRATEGIES.validate(table, networks.make({"name": "hebbian-dag"}, 3, 2))
