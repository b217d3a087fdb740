"""snes: the formulas of its docstring, computed by hand."""

import math

import numpy as np
import pytest
from antithetic import NETWORK, SEED, W, check_pairs, first_genome, tell
from hypothesis import given
from hypothesis import strategies as st

from evolve.strategies import make
from evolve.strategies.search_gradients import Snes, SnesOptions


def made(P=6, **options):
    return Snes(SnesOptions(**options), NETWORK, P, SEED)


@pytest.mark.parametrize("P", [6, 7])
def test_candidates_are_symmetric_pairs_and_the_centre(P):
    snes = made(P, sigma=0.3)
    state = snes.start()
    assert (state.sigma == 0.3).all()
    check_pairs(snes.ask(state, 3), 3, state.sigma)
    assert np.array_equal(snes.champion(state).weights, first_genome().weights)


@pytest.mark.parametrize("P", [8, 9])
def test_tell_is_a_step_along_the_natural_gradient(P):
    """Schaul, Glasmachers & Schmidhuber (2011), algorithm 3, in plain Python, for fitness without ties."""
    snes, draw = made(P, sigma=0.4), np.random.Generator(np.random.Philox(2))
    state = snes.start()
    present = np.flatnonzero(state.mask).tolist()
    utility = [max(0.0, math.log(8 / 2 + 1) - math.log(k)) for k in range(1, 9)]
    utility = [u / sum(utility) - 1 / 8 for u in utility]
    rate = (3 + math.log(len(present))) / (5 * math.sqrt(len(present)))
    for generation in range(5):
        fitness, weights = draw.normal(size=P), snes.ask(state, generation).weights.astype(float)
        best_first = sorted(range(8), key=lambda candidate: -fitness[candidate])
        centre, sigma = state.centre.copy(), state.sigma.copy()
        for w in present:
            s = [(weights[candidate, w] - centre[w]) / sigma[w] for candidate in best_first]
            centre[w] += sigma[w] * sum(u * x for u, x in zip(utility, s, strict=True))
            sigma[w] *= math.exp(rate / 2 * sum(u * (x * x - 1) for u, x in zip(utility, s, strict=True)))
        state = tell(snes, state, generation, fitness)
        assert state.centre == pytest.approx(centre, rel=1e-6, abs=1e-7)  # weights are float32
        assert state.sigma == pytest.approx(sigma, rel=1e-5)


@given(st.floats(0.01, 100), st.floats(-1000, 1000))
def test_only_the_order_of_fitness_counts(scale, offset):
    snes, fitness = made(6), np.array([3.0, 1.0, 7.0, -2.0, 5.0, 4.0])
    one, other = (tell(snes, snes.start(), 0, given_) for given_ in (fitness, scale * fitness + offset))
    assert all(np.array_equal(a, b) for a, b in zip(vars(one).values(), vars(other).values(), strict=True))


def test_equal_fitness_leaves_everything_as_it_is():
    """Such as the largest return of CartPole, which all candidates may reach."""
    snes = made(8)
    state = tell(snes, snes.start(), 0, [3.0] * 8)
    assert np.array_equal(state.centre, snes.start().centre)
    assert np.array_equal(state.sigma, snes.start().sigma)


@given(
    st.lists(st.lists(st.floats(allow_infinity=True, allow_nan=True), min_size=6, max_size=6), min_size=1, max_size=5),
    st.floats(1e-12, 1e6, exclude_min=True),
)
def test_candidates_are_finite_and_differ_whatever_fitness_is(fitness, sigma):
    snes = made(sigma=sigma)
    state = snes.start()
    for generation, of_candidates in enumerate(fitness):
        state = tell(snes, state, generation, of_candidates)
        weights = snes.ask(state, generation + 1).weights
        assert np.isfinite(weights).all()
        assert len({row.tobytes() for row in weights}) == 6
    assert not state.centre[~state.mask].any()


def test_every_weight_learns_how_far_to_look():
    """The axes of a sphere differ by a factor of a hundred, and the deviations become proportional to them."""
    snes, scales = made(40), 10.0 ** np.linspace(0, 2, W)
    state = snes.start()
    for generation in range(300):
        weights = snes.ask(state, generation).weights.astype(float)
        state = tell(snes, state, generation, -((scales * (weights - 0.5) * state.mask) ** 2).sum(axis=1))
    deviations = (state.sigma * scales)[state.mask]
    assert deviations.max() / deviations.min() < 10  # of 100
    assert state.centre[state.mask] == pytest.approx(0.5, abs=0.01)


def test_a_small_step_from_large_weights_stays_above_the_resolution_of_float32():
    state = make("snes", x0=np.full(4, 1e16), sigma=1e-12).start()
    assert state.sigma == pytest.approx(np.spacing(np.float32(1e16)))
