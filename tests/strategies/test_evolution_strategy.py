"""Centred ranks, Adam, ClipUp and the length of vectors: the formulas of their docstrings."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.numerics.portable import norm
from evolve.strategies import best_candidate, ranking
from evolve.strategies.evolution_strategy import Adam, ClipUp, centred_ranks, log_ranks, scaled_fitness

numbers = st.lists(st.floats(-1e6, 1e6).map(lambda x: 0.0 if abs(x) < 1e-100 else x), min_size=1, max_size=40)


def same_size(*vectors):
    n = min(map(len, vectors))
    return [np.array(vector[:n]) for vector in vectors]


@pytest.mark.parametrize(
    ("fitness", "expected"),
    [
        ([7.0, -1.0, 100.0], [0.0, -0.5, 0.5]),
        ([1.0, 2.0, 3.0, 4.0, 5.0], [-0.5, -0.25, 0.0, 0.25, 0.5]),
        ([3.0, 3.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.0]),
        ([500.0, 9.0, 500.0, 8.0, 500.0], [0.25, -0.25, 0.25, -0.5, 0.25]),
        ([np.nan, -np.inf, 0.0, np.inf, np.nan], [-0.375, 0.0, 0.25, 0.5, -0.375]),
        ([2.0, 1.0], [0.5, -0.5]),
    ],
)
def test_centred_ranks(fitness, expected):
    assert centred_ranks(np.array(fitness)).tolist() == expected


@given(st.lists(st.sampled_from([np.nan, -np.inf, np.inf, -0.0, 0.0, 1.0, 2.0, 3.0]), min_size=2, max_size=40))
def test_the_rank_of_a_candidate_is_the_mean_over_its_equals(fitness):
    fitness = np.array(fitness)
    better = [sum(other > one or (np.isnan(one) and not np.isnan(other)) for other in fitness) for one in fitness]
    equal = [sum(other == one or (np.isnan(one) and np.isnan(other)) for other in fitness) for one in fitness]
    expected = [0.5 - (2 * b + e - 1) / 2 / (len(fitness) - 1) for b, e in zip(better, equal, strict=True)]
    assert centred_ranks(fitness).tolist() == expected
    assert best_candidate(fitness) == ranking(fitness)[0]


def test_log_ranks():
    """Wierstra et al. (2014), section 3.1, with four candidates: ln 3, ln 3 - ln 2, and then 0."""
    whole = 2 * math.log(3) - math.log(2)
    best, second = math.log(3) / whole - 0.25, math.log(1.5) / whole - 0.25
    assert log_ranks(np.array([5.0, -np.inf, 9.0, np.nan])) == pytest.approx([second, -0.25, best, -0.25])
    mean = (best + second) / 2
    assert log_ranks(np.array([7.0, 1.0, 7.0, 2.0])) == pytest.approx([mean, -0.25, mean, -0.25])
    mean = (second - 0.5) / 3
    assert log_ranks(np.array([np.nan, np.nan, 2.0, np.nan])) == pytest.approx([mean, mean, best, mean])
    assert not log_ranks(np.full(7, 500.0)).any()


@given(st.lists(st.sampled_from([np.nan, -np.inf, np.inf, -0.0, 0.0, 1.0, 2.0, 3.0]), min_size=2, max_size=40))
def test_better_candidates_have_larger_log_ranks_and_equal_ones_equal(fitness):
    fitness = np.array(fitness)
    shares = log_ranks(fitness)
    assert sum(shares) == pytest.approx(0, abs=1e-12)
    groups = centred_ranks(fitness)
    for better, worse in zip(ranking(fitness)[:-1], ranking(fitness)[1:], strict=True):
        assert shares[better] == shares[worse] if groups[better] == groups[worse] else shares[better] >= shares[worse]


@pytest.mark.parametrize(
    ("fitness", "expected"),
    [
        ([0.0, 100.0, 25.0], [-0.5, 0.5, -0.25]),
        ([3.0, 3.0], [0.0, 0.0]),
        ([np.nan, -np.inf, 0.0, np.inf, 2.0], [-0.5, -0.5, -0.5, 0.5, 0.5]),
        ([np.nan, np.inf], [0.0, 0.0]),
        ([-1.7e308, 0.0, 1.7e308], [-0.5, 0.0, 0.5]),
    ],
)
def test_scaled_fitness(fitness, expected):
    assert scaled_fitness(np.array(fitness)).tolist() == expected


@given(numbers, numbers, st.floats(1e-3, 1e3))
def test_adam_takes_a_gradient_or_a_multiple_of_it(m, gradient, divisor):
    m, gradient = same_size(m, gradient)
    v = np.abs(m)
    step, new_m, new_v = Adam(beta1=0.8, beta2=0.9).step((m, v), (0.5, 0.75), gradient, divisor)
    g = gradient / divisor
    assert new_m == pytest.approx(0.8 * m + (1 - 0.8) * g, rel=1e-12)
    assert new_v == pytest.approx(0.9 * v + (1 - 0.9) * g * g, rel=1e-12)
    assert step == pytest.approx(2 * new_m / (np.sqrt(4 * new_v) + 1e-8), rel=1e-9)


@given(numbers, numbers)
def test_the_largest_speed_is_twice_the_learning_rate_by_default(velocity, gradient):
    velocity, gradient = same_size(velocity, gradient)
    assert norm(ClipUp(momentum=0.9).velocity(velocity, gradient, 0.25)) <= 2 * 0.25 * (1 + 1e-12)


@given(numbers, numbers, st.floats(1e-6, 10), st.floats(0, 0.99), st.floats(1e-6, 10))
def test_a_velocity_is_a_step_added_to_the_old_one_and_clipped(old, gradient, rate, momentum, most):
    old, gradient = same_size(old, gradient)
    size = math.sqrt(math.fsum(gradient**2))
    expected = momentum * old + (rate * gradient / size if size else 0.0)
    speed = math.sqrt(math.fsum(expected**2))
    expected = expected * min(1.0, most / speed) if speed else expected
    found = ClipUp(momentum, most).velocity(old, gradient, rate)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9 * (1 + np.abs(expected).max()))
    assert norm(found) <= most * (1 + 1e-12)


@given(numbers, st.floats(1e-3, 1e3))
def test_only_the_direction_of_a_gradient_counts(gradient, factor):
    gradient = np.array(gradient)
    still = np.zeros(len(gradient))
    found = [ClipUp(0.9, 0.5).velocity(still, g, 0.25) for g in (gradient, factor * gradient)]
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert norm(found[0]) == pytest.approx(0.25 if gradient.any() else 0.0)


def test_without_a_gradient_the_velocity_decays():
    assert ClipUp(0.5, 10.0).velocity(np.array([3.0, -4.0]), np.zeros(2), 0.1).tolist() == [1.5, -2.0]


def test_its_arguments_stay_as_they_are():
    old, gradient = np.array([3.0, 4.0]), np.array([1.0, 0.0])
    ClipUp(0.5, 0.01).velocity(old, gradient, 0.1)
    assert (old.tolist(), gradient.tolist()) == ([3.0, 4.0], [1.0, 0.0])


@given(st.integers(0, 3), st.integers(0, 5))
def test_norms_of_vectors_larger_than_one_part(parts, more):
    x = np.random.Generator(np.random.Philox(3)).normal(size=parts * 2**16 + more)
    assert norm(x) == pytest.approx(math.sqrt(math.fsum(x * x)), rel=1e-13)
