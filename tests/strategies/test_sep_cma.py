"""sep-cma-es: the published formulas by hand, and beside a library that has them too."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve import networks
from evolve.strategies import Results, make
from evolve.strategies.cma import CmaProgress, SepCma, SepCmaOptions

NETWORK = networks.make({"name": "hebbian-dag", "hidden": [3], "init_sparsity": 0.2}, 4, 2)


def made(P=8, network=NETWORK, **options):
    return SepCma(SepCmaOptions(**options), network, P, 5)


def play(strategy, state, generation, fitness):
    genomes = strategy.ask(state, generation)
    return genomes, strategy.tell(state, genomes, Results(np.asarray(fitness, float)))


def test_a_tell_by_hand():
    """Ros & Hansen (2008) with the parameters of Hansen's tutorial, P = 8 and so mu = 4, from C = I and empty paths."""
    cma, fitness = made(sigma=0.25), [3, 8, 1, 7, 2, 6, 4, 5]
    start = cma.start()
    asked, state = play(cma, start, 0, fitness)
    x = asked.weights[:, asked.mask[0]].astype(float)
    n = x.shape[1]
    y = (x[np.argsort(fitness)[::-1]] - start.mean) / 0.25
    w = np.array([math.log(5) - math.log(i) for i in range(1, 5)])
    w /= w.sum()
    mu_eff = 1 / (w**2).sum()
    y_w = (w[:, None] * y[:4]).sum(axis=0)
    c_sigma = (mu_eff + 2) / (n + mu_eff + 3)
    d_sigma = 1 + 2 * max(0, math.sqrt((mu_eff - 1) / (n + 1)) - 1) + c_sigma
    p_sigma = math.sqrt(c_sigma * (2 - c_sigma) * mu_eff) * y_w
    length, usual = math.sqrt((p_sigma**2).sum()), math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))
    assert state.mean == pytest.approx(start.mean + 0.25 * y_w)
    assert state.p_sigma == pytest.approx(p_sigma)
    assert state.progress.sigma == pytest.approx(0.25 * math.exp(c_sigma / d_sigma * (length / usual - 1)))
    assert state.progress.generations == 1
    c_c = 4 / (n + 4)
    h_sigma = length / math.sqrt(1 - (1 - c_sigma) ** 4) < (1.4 + 2 / (n + 1)) * usual
    p_c = h_sigma * math.sqrt(c_c * (2 - c_c) * mu_eff) * y_w
    c_1 = 2 / ((n + 1.3) ** 2 + mu_eff)
    c_mu = 2 / mu_eff / (n + math.sqrt(2)) ** 2 + (1 - 1 / mu_eff) * min(1, (2 * mu_eff - 1) / ((n + 2) ** 2 + mu_eff))
    c_mu *= (n + 2) / 3
    kept = 1 - c_1 - c_mu + c_1 * (1 - h_sigma) * c_c * (2 - c_c)
    assert state.covariance == pytest.approx(kept + c_1 * p_c**2 + c_mu * (w[:, None] * y[:4] ** 2).sum(axis=0))


@pytest.mark.parametrize("P", [4, 9, 64])
def test_a_library_that_has_the_formulas_too_goes_the_same_way(P):
    """Not to the bit: NumPy computes its sums and its exponential function."""
    cmaes = pytest.importorskip("cmaes")
    ours = made(P, sigma=0.4)
    state = ours.start()
    theirs = cmaes.SepCMA(mean=state.mean.copy(), sigma=0.4, population_size=P)
    scales = np.linspace(1, 30, len(state.mean))
    for generation in range(40):
        weights = ours.ask(state, generation).weights
        x = weights[:, ours.ask(state, generation).mask[0]].astype(float)
        loss = (scales * (x - 0.5) ** 2).sum(axis=1)
        _, state = play(ours, state, generation, -loss)
        theirs.tell(list(zip(x, loss, strict=True)))
        found = theirs.__getstate__()
        assert state.mean == pytest.approx(theirs.mean, rel=1e-5, abs=1e-6)
        assert state.p_sigma == pytest.approx(found["_p_sigma"], rel=1e-4, abs=1e-4)
        assert state.p_c == pytest.approx(found["_pc"], rel=1e-4, abs=1e-4)
        assert state.covariance == pytest.approx(found["_C"], rel=1e-4)
        assert ours.to_arrays(state)["progress"] == pytest.approx([found["_sigma"], found["_g"]], rel=1e-4)


@given(
    st.lists(st.lists(st.floats(allow_infinity=True, allow_nan=True), min_size=8, max_size=8), min_size=1, max_size=5),
    st.floats(1e-12, 1e6, exclude_min=True),
)
def test_candidates_are_finite_and_differ_whatever_fitness_is(fitness, sigma):
    cma = made(sigma=sigma)
    state = cma.start()
    for generation, of_candidates in enumerate(fitness):
        _, state = play(cma, state, generation, of_candidates)
        weights = cma.ask(state, generation + 1).weights
        assert np.isfinite(weights).all()
        assert len({row.tobytes() for row in weights}) == 8


@given(st.floats(0.01, 100), st.floats(-1000, 1000))
def test_only_the_order_of_fitness_counts(scale, offset):
    cma, fitness = made(6), np.array([3.0, 1.0, 7.0, -2.0, 5.0, 4.0])
    told = (play(cma, cma.start(), 0, given_)[1] for given_ in (fitness, scale * fitness + offset))
    one, other = map(cma.to_arrays, told)
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_the_step_size_stays_positive_where_all_weights_are_found():
    cma = made()
    state = cma.start()
    for generation in range(700):
        weights = cma.ask(state, generation).weights.astype(float)
        _, state = play(cma, state, generation, -((weights - 0.5) ** 2).sum(axis=1))
    assert state.progress.sigma >= 1e-12
    assert state.mean == pytest.approx(0.5, abs=1e-3)


def test_a_wide_scale_is_learned_by_weight():
    """On a sphere whose axes differ by a factor of a thousand, the deviations become proportional to the axes."""
    cma = made(20)
    state = cma.start()
    scales = 10.0 ** np.linspace(0, 3, len(state.mean))
    for generation in range(200):
        genomes = cma.ask(state, generation)
        x = genomes.weights[:, genomes.mask[0]].astype(float)
        _, state = play(cma, state, generation, -((scales * (x - 0.5)) ** 2).sum(axis=1))
    deviations = np.sqrt(state.covariance) * scales
    assert deviations.max() / deviations.min() < 30  # of 1,000


def test_a_search_whose_weights_end_at_zero_stays_finite():
    """With many candidates and few weights the old covariance does not count, so equal candidates would leave none."""
    cma = made(256, networks.make({"name": "mlp", "hidden": []}, 2, 1), sigma=0.1)
    zeros = np.zeros(3)
    state = replace(cma.start(), mean=zeros, covariance=zeros + 1e-99, progress=CmaProgress(1e-12, 900))
    for generation in range(4):
        _, state = play(cma, state, generation, np.zeros(256))
        assert all(np.isfinite(array).all() for array in cma.to_arrays(state).values())
    assert (state.covariance > 0).all()


def test_a_small_step_from_large_weights_stays_small():
    state = make("sep-cma-es", x0=np.full(4, 1e16), sigma=1e-12).start()
    assert state.progress.sigma * np.sqrt(state.covariance) == pytest.approx(np.spacing(np.float32(1e16)))
