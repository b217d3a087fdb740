"""ClipUp, and the length of vectors that it takes: the formulas of their docstrings."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.numerics.portable import length, squared_length
from evolve.strategies.optimizers import clip_up

numbers = st.lists(st.floats(-1e6, 1e6).map(lambda x: 0.0 if abs(x) < 1e-100 else x), min_size=1, max_size=40)


def same_size(*vectors):
    n = min(map(len, vectors))
    return [np.array(vector[:n]) for vector in vectors]


@given(numbers, numbers, st.floats(1e-6, 10), st.floats(0, 0.99), st.floats(1e-6, 10))
def test_a_velocity_is_a_step_added_to_the_old_one_and_clipped(old, gradient, rate, momentum, most):
    old, gradient = same_size(old, gradient)
    size = math.sqrt(math.fsum(gradient**2))
    expected = momentum * old + (rate * gradient / size if size else 0.0)
    speed = math.sqrt(math.fsum(expected**2))
    expected = expected * min(1.0, most / speed) if speed else expected
    found = clip_up(old, gradient, rate, momentum, most)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9 * (1 + np.abs(expected).max()))
    assert length(found) <= most * (1 + 1e-12)


@given(numbers, st.floats(1e-3, 1e3))
def test_only_the_direction_of_a_gradient_counts(gradient, factor):
    gradient = np.array(gradient)
    still = np.zeros(len(gradient))
    found = [clip_up(still, g, 0.25, 0.9, 0.5) for g in (gradient, factor * gradient)]
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert length(found[0]) == pytest.approx(0.25 if gradient.any() else 0.0)


def test_without_a_gradient_the_velocity_decays():
    assert clip_up(np.array([3.0, -4.0]), np.zeros(2), 0.1, 0.5, 10.0).tolist() == [1.5, -2.0]


def test_its_arguments_stay_as_they_are():
    old, gradient = np.array([3.0, 4.0]), np.array([1.0, 0.0])
    clip_up(old, gradient, 0.1, 0.5, 0.01)
    assert (old.tolist(), gradient.tolist()) == ([3.0, 4.0], [1.0, 0.0])


@given(st.integers(0, 3), st.integers(0, 5))
def test_lengths_of_vectors_larger_than_one_part(parts, more):
    x = np.random.Generator(np.random.Philox(3)).normal(size=parts * 2**16 + more)
    assert squared_length(x) == pytest.approx(math.fsum(x * x), rel=1e-13)
    assert length(x) == math.sqrt(squared_length(x))
