"""cma-es, and what it shares with sep-cma-es: covariance, factor, limits, and a library that has the formulas, too."""

from dataclasses import replace

import numpy as np
import pytest

from evolve import networks, strategies
from evolve.errors import InputError
from evolve.numerics import normal_quantile
from evolve.numerics.streams import Purpose, Stream
from evolve.strategies import Results

NETWORK = networks.make({"name": "hebbian-dag", "hidden": [3], "init_sparsity": 0.2}, 4, 2)
W = NETWORK.num_weights


def made(name, P=8, network=NETWORK, **options):
    return strategies.from_table({"name": name} | options, network, P, 5)


def play(strategy, state, generation, fitness):
    genomes = strategy.ask(state, generation)
    return genomes, strategy.tell(state, genomes, Results(np.asarray(fitness, float)))


def square(upper):
    """Return a covariance [n, n] from its upper half."""
    n = int(np.sqrt(2 * len(upper)))
    whole = np.zeros((n, n))
    whole[np.triu_indices(n)] = upper
    return whole + np.triu(whole, 1).T


@pytest.mark.parametrize("name", ["cma-es", "sep-cma-es"])
def test_first_candidates_are_drawn_around_an_initial_genome(name):
    cma = made(name, sigma=0.25)
    first = NETWORK.init(Stream(5, Purpose.INIT, 0, 0))
    there = first.mask[0]
    asked = cma.ask(cma.start(), 0)
    assert (asked.mask == first.mask).all()
    assert not asked.weights[:, ~there].any()
    for candidate in range(8):
        z = normal_quantile(Stream(5, Purpose.WEIGHT_NOISE, 0, candidate).uniform(there.sum())).astype(float)
        expected = (first.weights[0, there].astype(float) + 0.25 * z).astype(np.float32)
        assert np.array_equal(asked.weights[candidate, there], expected)
    assert np.array_equal(cma.champion(cma.start()).weights, first.weights)


@pytest.mark.parametrize("name", ["cma-es", "sep-cma-es"])
def test_a_first_mean_is_limited(name):
    cma = strategies.make(name, x0=[3e38, -3e38, 1.0], population=8)
    assert cma.champion(cma.start()).weights[0].tolist() == np.float32([1e30, -1e30, 1.0]).tolist()


def test_candidates_of_cma_es_have_its_covariance():
    P = 2000
    cma = made("cma-es", P)
    _, state = play(cma, cma.start(), 0, np.arange(P))
    asked = cma.ask(state, 1)
    x = (asked.weights[:, asked.mask[0]] - state.mean) / state.progress.sigma
    C = square(state.covariance)
    assert np.abs(C - np.eye(len(C))).max() > 0.1  # it has learned something
    assert np.abs(x.T @ x / P - C).max() < 0.2


def test_cma_es_learns_a_rotated_ellipsoid_that_the_diagonal_does_not():
    rotation, _ = np.linalg.qr(np.random.Generator(np.random.Philox(1)).normal(size=(W, W)))
    scales = 10.0 ** np.linspace(0, 2, W)
    left = {}
    for name in ("cma-es", "sep-cma-es"):
        cma = made(name, 16, sigma=0.5)
        state = cma.start()
        for generation in range(220):
            weights = cma.ask(state, generation).weights.astype(float)
            loss = (scales * ((weights @ rotation) ** 2)).sum(axis=1)
            _, state = play(cma, state, generation, -loss)
        left[name] = (scales * ((cma.champion(state).weights[0] @ rotation) ** 2)).sum()
    assert left["cma-es"] < 0.05 * left["sep-cma-es"]


@pytest.mark.parametrize("name", ["cma-es", "sep-cma-es"])
def test_too_small_a_population_is_refused(name):
    with pytest.raises(InputError, match=r"population.*at least 4"):
        made(name, 3)


def test_cma_es_refuses_networks_too_large_for_a_full_covariance():
    large = networks.make({"name": "hebbian-dag", "hidden": [64, 64]}, 8, 2)
    with pytest.raises(InputError, match=r"at most 2,000 connections.*sep-cma-es"):
        made("cma-es", 8, large)
    assert len(made("sep-cma-es", 8, large).start().mean) > 2000


def test_a_network_without_connections_is_refused():
    bare = networks.make({"name": "hebbian-dag", "hidden": [1], "init_sparsity": 0.999999}, 1, 1)
    with pytest.raises(InputError, match="at least 2 connections"):
        made("sep-cma-es", 8, bare)


@pytest.mark.parametrize("P", [4, 9, 64])
def test_the_library_whose_constants_cma_es_has_makes_the_same_update(P):
    """Its root of C is symmetric, so its p_σ is ours, turned by an orthogonal matrix. Lengths stay the same."""
    cmaes = pytest.importorskip("cmaes")
    n = 12
    ours = strategies.make("cma-es", x0=np.linspace(-1, 1, n), population=P, seed=1, sigma=0.4)
    state = ours.start()
    for generation in range(12):
        C = square(state.covariance)
        values, vectors = np.linalg.eigh(C)
        turned = vectors @ np.diag(values**-0.5) @ vectors.T @ np.linalg.cholesky(C)
        theirs = cmaes.CMA(mean=state.mean.copy(), sigma=state.progress.sigma, population_size=P)
        parts = {"_p_sigma": turned @ state.p_sigma, "_pc": state.p_c, "_g": generation, "_c_1d": state.covariance}
        theirs.__setstate__(theirs.__getstate__() | parts)
        x = ours.ask(state, generation).weights.astype(float)
        loss = (10.0 ** np.linspace(0, 3, n) * (x - 1) ** 2).sum(axis=1)
        _, state = play(ours, state, generation, -loss)
        theirs.tell(list(zip(x, loss, strict=True)))
        found = theirs.__getstate__()
        assert state.mean == pytest.approx(theirs.mean, rel=1e-9)
        assert np.linalg.norm(state.p_sigma) == pytest.approx(np.linalg.norm(found["_p_sigma"]), rel=1e-9)
        assert state.progress.sigma == pytest.approx(found["_sigma"], rel=1e-6)  # σ's exponential has float32
        assert state.p_c == pytest.approx(found["_pc"], rel=1e-6, abs=1e-9)
        assert state.covariance == pytest.approx(found["_c_1d"], rel=1e-6, abs=1e-9)
    assert np.linalg.cond(square(state.covariance)) > 2  # it has left the identity


def test_a_factor_of_any_size_has_the_products_of_the_covariance():
    """200 rows are more than one block; the control is the library's factor."""
    n, P = 200, 6
    ours = strategies.make("cma-es", x0=np.zeros(n), population=P, seed=1)
    spread = np.random.Generator(np.random.Philox(1)).normal(size=(n, 2 * n))
    C = spread @ spread.T / (2 * n)
    state = replace(ours.start(), covariance=C[np.triu_indices(n)])
    z = np.array([normal_quantile(Stream(1, Purpose.WEIGHT_NOISE, 0, each).uniform(n)) for each in range(P)], float)
    assert ours.ask(state, 0).weights == pytest.approx(z @ np.linalg.cholesky(C).T, rel=1e-5, abs=1e-5)


def test_weights_that_depend_on_each_other_have_finite_candidates():
    """A covariance of rank one, and less by rounding, which has no factor without a smallest pivot."""
    ours = strategies.make("cma-es", x0=np.zeros(9), population=8, seed=1)
    line = np.linspace(1, 2, 9)
    rounded = 1 - 1e-12 * (np.arange(45) % 2)
    state = replace(ours.start(), covariance=np.outer(line, line)[np.triu_indices(9)] * rounded)
    weights = ours.ask(state, 0).weights
    assert weights == pytest.approx(weights[:, :1] * line, rel=1e-3)
    for generation in range(3):
        _, state = play(ours, state, generation, np.arange(8))
    assert np.isfinite(ours.ask(state, 3).weights).all()


@pytest.mark.parametrize("sigma", [1e-6, 1e6])
def test_a_step_size_stays_within_limits(sigma):
    """A fitness that rises without end lets σ grow until its limit, where weights and state are still finite."""
    ours = strategies.make("cma-es", x0=np.zeros(4), population=8, seed=1, sigma=sigma)
    state = ours.start()
    for generation in range(400):
        genomes, state = play(ours, state, generation, ours.ask(state, generation).weights.astype(float).sum(axis=1))
        assert np.isfinite(genomes.weights).all()
    arrays = ours.to_arrays(state)
    assert all(np.isfinite(array).all() for array in arrays.values())
    assert np.abs(state.mean).max() > 1e29  # it has come there


SPHERE = networks.make({"name": "mlp", "hidden": []}, 3, 1)


def search(name, P, tells, fitness):
    """Return the largest distance of the champion's weights from 1 after a number of tells, and the last candidates."""
    strategy = made(name, P, SPHERE)
    state = strategy.start()
    for generation in range(tells):
        genomes = strategy.ask(state, generation)
        assert np.isfinite(genomes.weights).all(), generation
        state = strategy.tell(state, genomes, Results(fitness(genomes.weights.astype(float))))
    return np.abs(strategy.champion(state).weights - 1).max(), strategy.ask(state, tells).weights


def sphere(weights):
    return -((weights - 1) ** 2).sum(axis=1)


@pytest.mark.parametrize("name", ["cma-es", "sep-cma-es"])
def test_a_population_much_larger_than_the_network(name):
    assert search(name, 256, 40, sphere)[0] < 1e-5  # unlimited, the diagonal's learning rate is above 1 here


@pytest.mark.parametrize("name", ["cma-es", "sep-cma-es"])
def test_a_search_that_has_arrived_stays(name):
    distance, last = search(name, 16, 250, sphere)
    assert distance < 1e-6
    assert 0 < np.ptp(last, axis=0).max() < 1e-5  # candidates still differ, by what float32 can tell apart
