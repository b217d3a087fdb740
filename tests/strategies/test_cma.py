"""cma-es, and what it shares with sep-cma-es: covariance, limits, threads, and the missing library."""

import os

import numpy as np
import pytest
from conftest import HELPERS, ROOT
from threadpoolctl import threadpool_limits

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
    n = x.shape[1]
    C = np.zeros((n, n))
    C[np.triu_indices(n)] = state.covariance
    C += np.triu(C, 1).T
    assert np.abs(C - np.eye(n)).max() > 0.1  # it has learned something
    assert np.abs(x.T @ x / P - C).max() < 0.2


def test_cma_es_learns_a_rotated_ellipsoid_that_the_diagonal_does_not():
    rotation, _ = np.linalg.qr(np.random.Generator(np.random.Philox(1)).normal(size=(W, W)))
    scales = 10.0 ** np.linspace(0, 2, W)
    left = {}
    for name in ("cma-es", "sep-cma-es"):
        cma = made(name, 16, sigma=0.5)
        state = cma.start()
        for generation in range(160):
            weights = cma.ask(state, generation).weights.astype(float)
            loss = (scales * ((weights @ rotation) ** 2)).sum(axis=1)
            _, state = play(cma, state, generation, -loss)
        left[name] = (scales * ((cma.champion(state).weights[0] @ rotation) ** 2)).sum()
    assert left["cma-es"] < 0.1 * left["sep-cma-es"]


@pytest.mark.parametrize("name", ["cma-es", "sep-cma-es"])
def test_too_small_a_population_is_refused(name):
    with pytest.raises(InputError, match=r"population.*at least 4"):
        made(name, 3)


@pytest.mark.parametrize(("P", "hidden", "most"), [(8, 64, "2,000"), (4096, 16, "256")])
def test_cma_es_refuses_networks_too_large_for_a_full_covariance(P, hidden, most):
    large = networks.make({"name": "hebbian-dag", "hidden": [hidden, hidden]}, 8, 2)
    with pytest.raises(InputError, match=rf"at most {most} connections.*sep-cma-es"):
        made("cma-es", P, large)
    assert len(made("sep-cma-es", 8, large).start().mean) > 2000 * (hidden == 64)


def test_a_network_without_connections_is_refused():
    bare = networks.make({"name": "hebbian-dag", "hidden": [1], "init_sparsity": 0.999999}, 1, 1)
    with pytest.raises(InputError, match="at least 2 connections"):
        made("sep-cma-es", 8, bare)


def test_the_threads_of_blas_do_not_matter():
    """Launchers that bind ranks to cores change their number; the control shows that it matters to BLAS."""
    x = np.random.Generator(np.random.Philox(1)).normal(size=(300, 300))
    ours, control = [], []
    for threads in (1, 2):
        with threadpool_limits(threads):
            cma = made("cma-es", network=networks.make({"name": "hebbian-dag", "hidden": [10]}, 10, 3))
            state = cma.start()
            for generation in range(3):
                genomes = cma.ask(state, generation)
                _, state = play(cma, state, generation, genomes.weights[:, 0])
            ours.append(cma.ask(state, 3).weights)
            control.append(np.linalg.eigh(x + x.T)[1])
    assert np.array_equal(*ours)
    if np.array_equal(*control):
        pytest.skip("BLAS has one thread here, or keeps its bits")


@pytest.mark.parametrize("module", ["cmaes", "threadpoolctl"])
def test_a_missing_library_names_its_install_line(call, absent, tmp_path, module):
    absent(module)
    call("run", "--strategy", "cma-es", "-g", 1, "-o", "run").refused(
        "strategy.name (--strategy)", f"pip install -e '{ROOT}[cma]'"
    )
    assert not (tmp_path / "run").exists()


def test_other_strategies_need_no_library(command):
    paths = os.pathsep.join([str(HELPERS / "without"), str(ROOT)])
    small = ("-p", 4, "-r", 1, "-g", 1, "--set", "held_out_episodes=1")
    command("run", "--strategy", "sep-cma-es", *small, EVOLVE_WITHOUT="cmaes,threadpoolctl", PYTHONPATH=paths).ok()


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
