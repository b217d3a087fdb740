"""openai-es: the formulas of its docstring, computed by hand."""

import math
from itertools import pairwise

import numpy as np
import pytest
from antithetic import NETWORK, SEED, W, check_pairs, first_genome, tell

from evolve import networks
from evolve.errors import InputError
from evolve.numerics.streams import Purpose, Stream
from evolve.strategies import Results
from evolve.strategies.acting import Paths
from evolve.strategies.evolution_strategy import centred_ranks, scaled_fitness
from evolve.strategies.openai_es import OpenAiEs, OpenAiEsOptions
from evolve.strategies.strategy import StartLayout


def made(P=6, **options):
    return OpenAiEs(OpenAiEsOptions(**options), NETWORK, P, SEED)


@pytest.mark.parametrize("P", [6, 7])
def test_candidates_are_antithetic_pairs_and_the_centre(P):
    es = made(P, sigma=0.25)
    asked = es.ask(es.start(), 3)
    assert asked.weights.shape == (P, W)
    check_pairs(asked, 3, 0.25)


def test_perturbations_of_low_rank_have_full_variance():
    """Wide matrices get a product of rank r, biases a deviate each; the elements have mean 0 and variance 1."""
    wide = networks.make({"name": "mlp", "hidden": [40, 30]}, 20, 2)
    for rank in (1, 3):
        es = OpenAiEs(OpenAiEsOptions(perturbation_rank=rank, sigma=0.5), wide, 60, SEED)
        state = es.start()
        weights = es.ask(state, 4).weights
        noise = (weights[::2].astype(float) - weights[1::2]) / (2 * 0.5)
        ranks = []
        for block in wide.blocks:
            matrix = noise[:, block.start : block.stop].reshape(30, block.rows, block.columns)
            ranks.append(np.linalg.matrix_rank(matrix[0, :-1], tol=1e-3))
            assert abs(matrix.mean()) < 0.2
            assert 0.7 < matrix.std() < 1.3
            assert np.linalg.matrix_rank(matrix[:, -1]) > min(
                rank, block.columns - 1
            )  # biases differ from pair to pair
        assert ranks == [rank, rank, min(rank, 2)]


def test_perturbations_of_low_rank_leave_pruned_connections_alone():
    es = made(6, perturbation_rank=1, pruning=0.5, pruning_generations=2)
    state = es.start()
    for t in range(3):
        state = tell(es, state, t, np.arange(6.0))
    asked = es.ask(state, 3)
    assert 0 < np.count_nonzero(~state.mask) == np.count_nonzero((asked.weights == 0).all(axis=0))
    assert not es.sums(state, 3, np.arange(6.0), slice(0, W))[~state.mask].any()


def by_hand(theta, weights, fitness, options, m, v, t):
    """One tell in plain Python, weight by weight, for fitness without ties."""
    n, sigma = len(fitness) // 2, options["sigma"]
    order = sorted(fitness[: 2 * n])
    u = [order.index(f) / (2 * n - 1) - 0.5 for f in fitness[: 2 * n]]
    b1, b2 = options["beta1"], options["beta2"]
    for w in range(len(theta)):
        noise = [(weights[2 * i][w] - weights[2 * i + 1][w]) / (2 * sigma) for i in range(n)]
        g = sum((u[2 * i] - u[2 * i + 1]) * noise[i] for i in range(n)) / (2 * n * sigma)
        m[w] = b1 * m[w] + (1 - b1) * g
        v[w] = b2 * v[w] + (1 - b2) * g * g
        step = (m[w] / (1 - b1**t)) / (math.sqrt(v[w] / (1 - b2**t)) + 1e-8)
        theta[w] += options["learning_rate"] * (step - options["weight_decay"] * theta[w])


@pytest.mark.parametrize("P", [6, 7])
@pytest.mark.parametrize("rank", [None, 1, 2])
def test_tell_is_adam_on_the_estimated_gradient(P, rank):
    options = {"sigma": 0.2, "learning_rate": 0.03, "beta1": 0.8, "beta2": 0.95, "weight_decay": 0.1}
    es = made(P, perturbation_rank=rank, **options)
    state = es.start()
    theta, m, v = state.centre.tolist(), [0.0] * W, [0.0] * W
    draw = np.random.Generator(np.random.Philox(2))
    for t in range(1, 6):
        fitness = draw.normal(size=P)
        weights = es.ask(state, t).weights.astype(float).tolist()
        by_hand(theta, weights, fitness.tolist(), options, m, v, t)
        state = tell(es, state, t, fitness)
        for ours, theirs in ((state.centre, theta), (state.m, m), (state.v, v)):
            assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-13)


def test_the_champion_is_an_average_of_the_centre_where_that_is_asked_for():
    plain, averaging = made(6), made(6, averaging=0.75)
    state, average, other = averaging.start(), averaging.start().centre, plain.start()
    draw = np.random.Generator(np.random.Philox(2))
    for t in range(4):
        fitness = draw.normal(size=6)
        state, other = tell(averaging, state, t, fitness), tell(plain, other, t, fitness)
        average = 0.75 * average + 0.25 * state.centre
    assert np.array_equal(state.centre, other.centre)  # what is searched is the same
    assert averaging.champion(state).weights[0] == pytest.approx(average, rel=1e-6)
    assert np.array_equal(plain.champion(other).weights[0], other.centre.astype(np.float32))


def test_the_first_step_of_adam_is_the_learning_rate():
    es = made(2, learning_rate=0.03, weight_decay=0.0)
    state = es.start()
    moved = tell(es, state, 0, [1.0, 0.0]).centre - state.centre
    towards = np.sign(es.ask(state, 0).weights[0].astype(float) - state.centre)
    assert moved == pytest.approx(0.03 * towards, rel=1e-6)


@pytest.mark.parametrize("shaping", ["ranks", "scaled"])
def test_clip_up_takes_steps_of_one_length_along_the_gradient(shaping):
    clip_up = {"optimizer": "clipup", "learning_rate": 0.3, "max_speed": 0.33, "beta1": 0.5}
    es = made(6, fitness_shaping=shaping, weight_decay=0.1, sigma=0.2, **clip_up)
    state, velocity = es.start(), np.zeros(W)
    draw = np.random.Generator(np.random.Philox(2))
    speeds = []
    for t in range(4):
        fitness = draw.normal(size=6)
        weights = es.ask(state, t).weights.astype(float)
        u = {"ranks": centred_ranks, "scaled": scaled_fitness}[shaping](fitness)
        g = ((u[::2] - u[1::2])[:, None] * (weights[::2] - weights[1::2])).sum(axis=0)
        velocity = 0.5 * velocity + 0.3 * g / np.linalg.norm(g)
        speeds.append(np.linalg.norm(velocity))
        velocity *= min(1, 0.33 / speeds[-1])
        after = tell(es, state, t, fitness)
        assert after.centre == pytest.approx(state.centre + velocity - 0.3 * 0.1 * state.centre, rel=1e-9, abs=1e-12)
        assert after.m == pytest.approx(velocity, rel=1e-9, abs=1e-12)
        state = after
    assert min(speeds) < 0.33 < max(speeds)


def test_equal_fitness_moves_the_centre_by_weight_decay_only():
    still = made(8, weight_decay=0.0)
    assert np.array_equal(tell(still, still.start(), 0, [3.0] * 8).centre, still.start().centre)
    decaying = made(8, weight_decay=0.1, learning_rate=0.01)
    before, after = decaying.start().centre, tell(decaying, decaying.start(), 0, [3.0] * 8).centre
    assert after == pytest.approx(before * (1 - 0.01 * 0.1))


def test_constant_weight_decay_takes_the_same_share_however_small_the_steps():
    how = {"weight_decay": 0.1, "learning_rate": 0.4, "learning_rate_decay": 0.5, "smallest_learning_rate": 0.05}
    for constant, rates in ((True, [0.4, 0.4, 0.4, 0.4]), (False, [0.4, 0.2, 0.1, 0.05])):
        es = made(8, constant_weight_decay=constant, **how)
        state = es.start()
        for generation, rate in enumerate(rates):
            after = tell(es, state, generation, [3.0] * 8)
            assert after.centre == pytest.approx(state.centre * (1 - rate * 0.1), rel=1e-12)
            state = after
    with pytest.raises(InputError, match="smallest_learning_rate"):
        made(8, constant_weight_decay=True, learning_rate_decay=0.9, smallest_learning_rate=0.0)
    made(8, constant_weight_decay=True)  # the rate does not decay


def test_clipup_stands_still_when_its_steps_have_become_0():
    """A new run is refused with such a decay, but a run of an earlier version goes on."""
    es = made(6, optimizer="clipup", max_speed=0.5, learning_rate_decay=1e-200, smallest_learning_rate=0.0)
    state = es.start()
    for generation in range(2):
        state = tell(es, state, generation, np.arange(6.0))
    assert state.schedule.learning_rate == 0
    after = tell(es, state, 2, np.arange(6.0))
    assert np.array_equal(after.centre, state.centre)
    assert np.isfinite(after.centre).all()


def test_step_sizes_are_constant_at_first_where_that_is_asked_for():
    es = made(2, sigma=1.0, sigma_decay=0.5, learning_rate=0.8, learning_rate_decay=0.5, constant_generations=2)
    state, seen = es.start(), []
    for generation in range(4):
        state = tell(es, state, generation, [1.0, 0.0])
        seen.append((state.schedule.sigma, state.schedule.learning_rate))
    assert seen == [(1.0, 0.8), (1.0, 0.8), (0.5, 0.4), (0.25, 0.2)]


def test_step_sizes_decay_down_to_their_smallest():
    es = made(2, sigma=1.0, sigma_decay=0.5, smallest_sigma=0.2,
              learning_rate=0.8, learning_rate_decay=0.5, smallest_learning_rate=0.3)  # fmt: skip
    state, seen = es.start(), []
    for generation in range(4):
        state = tell(es, state, generation, [1.0, 0.0])
        seen.append((state.schedule.sigma, state.schedule.learning_rate))
    assert seen == [(0.5, 0.4), (0.25, 0.3), (0.2, 0.3), (0.2, 0.3)]
    assert es.to_arrays(state)["schedule"] == pytest.approx([0.9**4, 0.999**4, 0.2, 0.3, 4])


def pruned_run(by, tells, P=6, traces=None):
    es = made(P, pruning=0.5, pruning_generations=4, pruning_by=by, learning_rate=0.02)
    state, states = es.start(), []
    draw = np.random.Generator(np.random.Philox(4))
    for generation in range(tells):
        genomes = es.ask(state, generation)
        given = np.zeros((P, W), np.float32) if traces is None else traces(generation)
        state = es.tell(state, genomes, Results(draw.normal(size=P), given))
        states.append(state)
    return es, states


@pytest.mark.parametrize("by", ["magnitude", "trace", "random"])
def test_pruning_follows_the_cubic_schedule_and_ends(by):
    es, states = pruned_run(by, 6)
    mask = first_genome().mask[0]
    first = [np.count_nonzero(mask[block.start : block.stop]) for block in NETWORK.blocks]
    expected = [sum(round(n * (1 - 0.5 * (1 - (1 - min(t / 4, 1)) ** 3))) for n in first) for t in range(1, 7)]
    assert [int(state.mask.sum()) for state in states] == expected
    assert expected[0] > expected[2] > expected[3] == expected[-1]
    for before, after in pairwise(states):
        assert not (after.mask & ~before.mask).any()  # nothing returns
    for array in (states[-1].centre, states[-1].m, states[-1].v):
        assert not array[~states[-1].mask].any()
    asked = es.ask(states[-1], 6)
    assert (asked.mask == states[-1].mask).all()
    assert not asked.weights[~asked.mask].any()
    assert np.array_equal(es.champion(states[-1]).mask[0], states[-1].mask)


def test_the_smallest_weights_go():
    _, (one, two) = pruned_run("magnitude", 2)
    for block in NETWORK.blocks:
        place = slice(block.start, block.stop)
        gone, left = (one.mask & ~two.mask)[place], two.mask[place]
        largest, smallest = np.abs(one.centre[place][gone]), np.abs(two.centre[place][left])
        assert not gone.any() or largest.max() < smallest.min() + 2 * 0.02  # one step of Adam, at most
    assert (one.mask & ~two.mask).any()


def test_the_smallest_mean_traces_go():
    traces = np.random.Generator(np.random.Philox(1)).normal(size=(6, W)).astype(np.float32)
    _, states = pruned_run("trace", 5, traces=lambda generation: traces)
    mean, left = np.abs(traces.astype(float).mean(axis=0)), states[-1].mask
    first = first_genome().mask[0]
    for block in NETWORK.blocks:
        place = slice(block.start, block.stop)
        assert mean[place][left[place]].min() > mean[place][(first & ~left)[place]].max()


@pytest.mark.parametrize("name", ["hebbian-dag", "hebbian-lstm"])
def test_no_matrix_loses_more_than_its_share(name):
    """The output matrix of hebbian-lstm leaves no traces: there the largest weights stay."""
    network = networks.make({"name": name, "hidden": [6], "init_sparsity": 0.0}, 4, 2)
    es = OpenAiEs(OpenAiEsOptions(pruning=0.5, pruning_generations=1, pruning_by="trace"), network, 6, 5)
    traces = np.random.Generator(np.random.Philox(1)).normal(size=(6, network.num_weights)).astype(np.float32)
    last = network.blocks[-1]
    if name == "hebbian-lstm":
        traces[:, last.start : last.stop] = 0
    state = es.start()
    state = es.tell(state, es.ask(state, 0), Results(np.arange(6.0), traces))
    for block in network.blocks:
        assert np.count_nonzero(state.mask[block.start : block.stop]) == round((block.stop - block.start) / 2)
    if name == "hebbian-lstm":
        size, left = np.abs(es.start().centre[last.start : last.stop]), state.mask[last.start : last.stop]
        assert size[left].min() > size[~left].max() - 2 * 0.05  # a step of Adam, at most


def test_a_control_prunes_by_chance_alone():
    _, one = pruned_run("random", 5)
    _, two = pruned_run("random", 5, traces=lambda generation: np.full((6, W), generation, np.float32))
    _, large = pruned_run("magnitude", 5)
    assert np.array_equal(one[-1].mask, two[-1].mask)
    assert not np.array_equal(one[-1].mask, large[-1].mask)


@pytest.mark.parametrize("name", ["mlp", "elman", "hebbian-dag"])
def test_by_flow_no_connection_that_can_act_goes_before_one_that_cannot(name):
    network = networks.make({"name": name, "hidden": [6], "init_sparsity": 0.0}, 4, 2)
    options = OpenAiEsOptions(pruning=0.8, pruning_generations=8, pruning_by="flow", learning_rate=0.02)
    es, paths, draw = OpenAiEs(options, network, 6, 5), Paths(network), np.random.Generator(np.random.Philox(4))
    state, count = es.start(), network.num_weights
    for t in range(1, 10):
        before = state
        state = es.tell(state, es.ask(state, t - 1), Results(draw.normal(size=6)))
        left = round(count * (1 - 0.8 * (1 - (1 - min(t / 8, 1)) ** 3)))
        assert np.count_nonzero(state.mask) == left  # of the whole network, whatever becomes of a matrix
        able = paths.count(before.mask[None])[0]
        assert paths.count(state.mask[None])[0] >= min(left, able) / 2
        if left < able:  # a connection that cannot act is left only if it lost its path just now
            cannot = ~np.concatenate([acting.ravel() for acting in paths.acting(before.mask[None])])
            assert not (state.mask & cannot).any()
    layers = [slice(block.start, block.stop) for block in network.blocks]
    assert len({round(state.mask[place].mean(), 2) for place in layers}) > 1


def test_by_flow_the_network_is_not_cut_in_two():
    """Weights of one layer are a hundred times smaller: by size alone, all of them would go first."""
    network = networks.make({"name": "mlp", "hidden": [6]}, 4, 2)
    start = network.init(Stream(SEED, Purpose.INIT, 0, 0))
    first = network.blocks[0]
    start.weights[0, first.start : first.stop] *= 0.01
    options = OpenAiEsOptions(
        pruning=0.9, pruning_generations=20, pruning_by="flow", learning_rate=1e-6, weight_decay=0.0
    )
    es = OpenAiEs(options, StartLayout(network, start), 6, 5)
    state = es.start()
    for generation in range(20):
        state = es.tell(state, es.ask(state, generation), Results(np.zeros(6)))
    assert np.count_nonzero(state.mask) == round(0.1 * network.num_weights)
    assert Paths(network).count(state.mask[None])[0] >= 0.8 * np.count_nonzero(state.mask)
    assert state.mask[first.start : first.stop].any()


def test_traces_that_do_not_exist_are_refused():
    still = networks.make({"name": "mlp"}, 4, 2)
    with pytest.raises(InputError, match=r"strategy\.pruning_by: expected .*, because this network leaves no traces"):
        OpenAiEs(OpenAiEsOptions(pruning=0.5, pruning_by="trace"), still, 6, 5)


def test_it_climbs_a_sphere():
    es = made(40)
    state = es.start()
    first = ((state.centre - 0.5) ** 2)[state.centre != 0].sum()
    for generation in range(60):
        weights = es.ask(state, generation).weights.astype(float)
        state = tell(es, state, generation, -((weights - 0.5) ** 2).sum(axis=1))
    assert ((state.centre - 0.5) ** 2)[state.centre != 0].sum() < 0.05 * first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 1000.0, "weight_decay": 0.001}, r"weight_decay: expected below 1/learning_rate, 0\.001, "),
        ({"perturbation_rank": 4}, r"perturbation_rank: expected a network with a matrix .* m n, got 4\. Use a wider"),
        ({"max_speed": 0.3}, r"strategy.max_speed: expected none with the optimizer adam, got 0\.3"),
        ({"pruning_by": "flow"}, r"strategy.pruning: expected above 0, if there is a pruning_by, got 0\.0"),
        ({"beta2": 0.9, "optimizer": "clipup"}, r"strategy.beta2: expected its default, 0\.999, with clipup, got 0\.9"),
        ({"smallest_sigma": 0.3}, r"strategy\.sigma_decay: expected below 1, if there is a smallest_sigma, got 1\.0"),
        ({"smallest_learning_rate": 0.1}, r"strategy\.learning_rate_decay: expected below 1, if there is a smallest_"),
        ({"constant_generations": 5}, r"strategy\.constant_generations: expected 0, unless sigma_decay or learning_"),
        ({"sigma": 0.005, "sigma_decay": 0.9}, r"smallest_sigma: expected below sigma, 0\.005, .* got 0\.01"),
        ({"learning_rate": 0.001, "learning_rate_decay": 0.9}, r"smallest_learning_rate: expected below learning_rate"),
        (
            {"optimizer": "clipup", "learning_rate_decay": 0.9, "smallest_learning_rate": 0.0},
            "smallest_learning_rate: expected above 0 with clipup, because α is the length of a step, got 0.0",
        ),
    ],
)
def test_settings_that_defeat_themselves_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        OpenAiEs.validate(OpenAiEsOptions(**options), NETWORK)
    made(**options)  # a run that has begun so can still be looked at
