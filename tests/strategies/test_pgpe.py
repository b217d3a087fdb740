"""pgpe: the formulas of its docstring, computed by hand."""

import math

import numpy as np
import pytest
from antithetic import NETWORK, SEED, W, check_pairs, first_genome, tell
from hypothesis import given
from hypothesis import strategies as st

from evolve.errors import InputError
from evolve.strategies.search_gradients import Pgpe, PgpeOptions


def made(P=6, **options):
    return Pgpe(PgpeOptions(**options), NETWORK, P, SEED)


@pytest.mark.parametrize("P", [6, 7])
def test_candidates_are_symmetric_pairs_and_the_centre(P):
    pgpe = made(P, initial_radius=1.5)
    first = first_genome()
    state = pgpe.start()
    assert state.sigma == pytest.approx(1.5 / math.sqrt(np.count_nonzero(first.mask)))
    asked = pgpe.ask(state, 3)
    assert asked.weights.shape == (P, W)
    check_pairs(asked, 3, state.sigma)
    assert np.array_equal(pgpe.champion(state).weights, first.weights)


def by_hand(theta, v, sigma, weights, fitness, options):
    """One tell in plain Python, weight by weight, for fitness without ties."""
    n = len(fitness) // 2
    order = sorted(fitness[: 2 * n])
    u = [order.index(f) / (2 * n - 1) - 0.5 for f in fitness[: 2 * n]]
    g, change = [], []
    for w in range(len(theta)):
        noise = [(weights[2 * i][w] - weights[2 * i + 1][w]) / 2 for i in range(n)]
        g.append(sum((u[2 * i] - u[2 * i + 1]) / 2 * noise[i] for i in range(n)) / n)
        shares = [(u[2 * i] + u[2 * i + 1]) / 2 for i in range(n)]
        change.append(sum(shares[i] * (noise[i] ** 2 - sigma[w] ** 2) / sigma[w] for i in range(n)) / n)
    size = math.sqrt(sum(x * x for x in g))
    v = [options["momentum"] * old + options["learning_rate"] * x / size for old, x in zip(v, g, strict=True)]
    speed = math.sqrt(sum(x * x for x in v))
    v = [x * min(1, options["max_speed"] / speed) for x in v]
    most = options["max_sigma_change"]
    rate = options["sigma_learning_rate"]
    sigma = [s + min(max(rate * c, -most * s), most * s) for s, c in zip(sigma, change, strict=True)]
    return [t + x for t, x in zip(theta, v, strict=True)], v, sigma


@pytest.mark.parametrize("P", [6, 7])
@pytest.mark.parametrize("sigma_rate", [0.1, 4.0])
def test_tell_is_clip_up_of_one_gradient_and_a_limited_step_of_the_other(P, sigma_rate):
    options = {"max_speed": 0.2, "learning_rate": 0.15, "momentum": 0.8, "sigma_learning_rate": sigma_rate}
    options |= {"max_sigma_change": 0.1, "initial_radius": 2.0}
    pgpe = made(P, **options)
    state = pgpe.start()
    there = state.mask
    theta, v, sigma = state.centre.tolist(), [0.0] * W, state.sigma.tolist()
    draw = np.random.Generator(np.random.Philox(2))
    limited = False
    for t in range(5):
        fitness = draw.normal(size=P)
        before = state.sigma
        weights = pgpe.ask(state, t).weights.astype(float).tolist()
        theta, v, sigma = by_hand(theta, v, sigma, weights, fitness.tolist(), options)
        state = tell(pgpe, state, t, fitness)
        assert state.centre == pytest.approx(theta, rel=1e-6, abs=1e-7)  # weights are float32
        assert state.velocity == pytest.approx(v, rel=1e-5, abs=1e-7)
        assert state.sigma[there] == pytest.approx(np.array(sigma)[there], rel=1e-5)
        limited |= np.isclose(np.abs(state.sigma / before - 1), 0.1)[there].any()
    assert limited == (sigma_rate > 1)


@given(st.lists(st.floats(allow_infinity=True, allow_nan=True), min_size=7, max_size=7), st.integers(0, 2**32 - 1))
def test_no_fitness_moves_it_by_more_than_its_limits(fitness, generation):
    pgpe = made(7, max_speed=0.3, sigma_learning_rate=10.0)
    before = pgpe.start()
    after = tell(pgpe, before, generation, fitness)
    assert np.linalg.norm(after.centre - before.centre) <= 0.3 * (1 + 1e-9)
    ratio = after.sigma / before.sigma
    assert ratio.min() >= 0.8 - 1e-9
    assert ratio.max() <= 1.2 + 1e-9
    assert not after.centre[~after.mask].any()
    assert not after.velocity[~after.mask].any()


@given(st.floats(0.01, 100), st.floats(-1000, 1000))
def test_only_the_order_of_fitness_counts(scale, offset):
    pgpe, fitness = made(6), np.array([3.0, 1.0, 7.0, -2.0, 5.0, 4.0])
    one, other = (tell(pgpe, pgpe.start(), 0, given_) for given_ in (fitness, scale * fitness + offset))
    assert all(np.array_equal(a, b) for a, b in zip(vars(one).values(), vars(other).values(), strict=True))


def test_equal_fitness_leaves_everything_as_it_is():
    pgpe = made(8)
    state = tell(pgpe, pgpe.start(), 0, [3.0] * 8)
    assert np.array_equal(state.centre, pgpe.start().centre)
    assert np.array_equal(state.sigma, pgpe.start().sigma)


def test_pairs_that_tie_do_not_move_the_centre():
    """The two candidates of a pair may play the same episodes, and luck alone may decide their returns."""
    pgpe = made(8)
    state = tell(pgpe, pgpe.start(), 0, [1.0, 1.0, 4.0, 4.0, 2.0, 2.0, 2.0, 2.0])
    assert np.array_equal(state.centre, pgpe.start().centre)
    assert not np.array_equal(state.sigma, pgpe.start().sigma)


def test_every_weight_learns_how_far_to_look():
    """Where fitness depends on one weight alone, the deviation of that one falls as it arrives; the others' stays."""
    pgpe = made(200, max_speed=0.2)
    state = pgpe.start()
    (w, other) = np.flatnonzero(state.mask)[:2]
    for generation in range(60):
        weights = pgpe.ask(state, generation).weights.astype(float)
        state = tell(pgpe, state, generation, -np.abs(weights[:, w] - 0.5))
    assert abs(state.centre[w] - 0.5) < 0.1
    assert state.sigma[w] < 0.5 * state.sigma[other]


def test_it_climbs_a_sphere():
    pgpe = made(40, max_speed=0.15, initial_radius=2.25)
    state = pgpe.start()
    first = ((state.centre - 0.5) ** 2)[state.mask].sum()
    for generation in range(80):
        weights = pgpe.ask(state, generation).weights.astype(float)
        state = tell(pgpe, state, generation, -((weights - 0.5) ** 2).sum(axis=1))
    assert ((state.centre - 0.5) ** 2)[state.mask].sum() < 0.05 * first


@pytest.mark.parametrize("sigma_learning_rate", [0.1, 0.0])
def test_a_sigma_below_its_limit_is_refused(sigma_learning_rate):
    with pytest.raises(InputError, match=r"strategy\.smallest_sigma: expected below the first standard deviation"):
        Pgpe.validate(PgpeOptions(smallest_sigma=100.0, sigma_learning_rate=sigma_learning_rate), NETWORK)
    assert made(smallest_sigma=100.0).start().sigma.max() < 10  # a run that has begun so can still be looked at
