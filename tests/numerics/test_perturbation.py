"""Weights perturbed by keyed deviates follow the formulas, with the same bits with and without kernels."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.numerics.perturbation import (
    Factors,
    PerturbedMatrix,
    add_noise,
    antithetic_matrix_sums,
    antithetic_sums,
    moments_about_centre,
    perturbed,
)
from evolve.numerics.streams import Purpose, Stream

KEY = (7, Purpose.WEIGHT_NOISE, 3)
sizes = st.integers(1, 600)
streams = st.lists(st.sampled_from([0, 1, 2, 2**32 - 1]), min_size=1, max_size=5)


def deviates(stream, n, first=0):
    return Stream(*KEY, stream).normal(first + n)[first:].astype(np.float64)


def numbers(*shape):
    return np.random.Generator(np.random.Philox(4)).normal(size=shape)


def masks(*shape):
    return np.random.Generator(np.random.Philox(5)).random(shape) < 0.8


pytestmark = pytest.mark.usefixtures("with_and_without_kernels")


@settings(max_examples=15)
@given(sizes, streams)
def test_rows_around_a_centre(W, numbered):
    centre, mask, steps = numbers(W), masks(W), numbers(len(numbered))
    rows = perturbed(centre, mask, steps, KEY, np.array(numbered))
    moved = [centre + step * deviates(stream, W) for step, stream in zip(steps, numbered, strict=True)]
    assert rows.tobytes() == np.where(mask, moved, 0.0).astype(np.float32).tobytes()


@settings(max_examples=15)
@given(sizes, streams)
def test_every_weight_may_have_a_scale_of_its_own(W, numbered):
    centre, mask, steps, scale = numbers(W), masks(W), numbers(len(numbered)), np.abs(numbers(W + 1)[1:])
    rows = perturbed(centre, mask, steps, KEY, np.array(numbered), scale)
    moved = [centre + step * (scale * deviates(stream, W)) for step, stream in zip(steps, numbered, strict=True)]
    assert rows.tobytes() == np.where(mask, moved, 0.0).astype(np.float32).tobytes()


@settings(max_examples=15)
@given(sizes, st.integers(0, 600), streams)
def test_moments_of_rows_around_a_centre(n, first, numbered):
    """Of the rows as they were evaluated, whichever columns they are taken in."""
    wide, steps, shares = first + n, numbers(len(numbered)), numbers(len(numbered) + 1)[1:]
    centre, scale = numbers(wide), np.abs(numbers(wide + 1)[1:])
    rows = perturbed(centre, np.ones(wide, np.bool_), steps, KEY, np.array(numbered), scale)
    expected = np.zeros((n, 2))
    for row, share in zip(rows[:, first:].astype(np.float64), shares, strict=True):
        d = row - centre[first:]
        expected[:, 0] += share * d
        expected[:, 1] += share * (d * d)
    found = moments_about_centre(centre[first:], scale[first:], steps, KEY, np.array(numbered), shares, first)
    assert found.tobytes() == expected.tobytes()


@settings(max_examples=15)
@given(sizes, st.integers(0, 600), st.integers(1, 5))
def test_sums_of_the_differences_of_both_sides(n, first, count):
    centre, shares, expected = numbers(n), numbers(count), np.zeros(n)
    for stream, share in enumerate(shares):
        step = 0.1 * deviates(stream, n, first)
        one, other = (side.astype(np.float32).astype(np.float64) for side in (centre + step, centre - step))
        expected += share * (one - other)
    assert antithetic_sums(centre, 0.1, KEY, shares, first).tobytes() == expected.tobytes()


@st.composite
def tilings(draw):
    """Matrices of any rank that tile a genome; their deviates follow each other; some are wider than AT_ONCE."""
    tiling, start, first = [], 0, 0
    for _ in range(draw(st.integers(1, 3))):
        rows, columns, rank = (
            draw(st.integers(1, 6)),
            draw(st.sampled_from([1, 3, 17, 256, 300])),
            draw(st.integers(0, 3)),
        )
        tiling.append(PerturbedMatrix(start, rows, columns, rank, first))
        start, first = tiling[-1].stop, first + tiling[-1].num_deviates
    return tiling


def moves_by_hand(tiling, stream, step):
    """Return the perturbation [W] of a stream in float32, weight by weight."""
    found = []
    for matrix in tiling:
        m, n, r = matrix.rows, matrix.columns, matrix.rank
        d = Stream(*KEY, stream).normal(matrix.first_deviate + matrix.num_deviates)[matrix.first_deviate :]
        scaled = (step / np.sqrt(max(r, 1)) * d.astype(np.float64)).astype(np.float32)
        if not r:
            found += [np.float32(step) * x for x in d]
        for j in range(m if r else 0):
            for column in range(n):
                total = scaled[j] * d[r * m + column]
                for k in range(1, r):
                    total = total + scaled[k * m + j] * d[r * m + k * n + column]
                found.append(total)
    return np.array(found, np.float32)


@settings(max_examples=15)
@given(tilings(), streams)
def test_matrices_are_moved_by_products_of_low_rank(tiling, numbered):
    W = tiling[-1].stop
    centre, mask, steps = numbers(W), masks(W), numbers(len(numbered))
    centre = centre.astype(np.float32)
    rows = Factors.of(centre, tuple(tiling), steps, KEY, np.array(numbered)).weights(mask)
    moves = [moves_by_hand(tiling, stream, step) for step, stream in zip(steps, numbered, strict=True)]
    assert rows.tobytes() == np.where(mask, centre + moves, np.float32(0)).tobytes()


@settings(max_examples=15)
@given(tilings(), st.integers(1, 5), st.data())
def test_sums_of_products_of_low_rank_are_the_same_in_any_columns(tiling, count, data):
    W = tiling[-1].stop
    centre, shares, expected = numbers(W), numbers(count), np.zeros(W)
    for stream, share in enumerate(shares):
        step = np.array([0.1, -0.1])
        factors = Factors.of(centre.astype(np.float32), tuple(tiling), step, KEY, np.array([stream, stream]))
        pair = factors.weights(np.ones(W, np.bool_))
        expected += share * np.subtract(*pair, dtype=np.float64)
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, W), max_size=3))), W]
    parts = [slice(*edge) for edge in pairwise(edges)]
    found = [antithetic_matrix_sums(centre, 0.1, KEY, shares, tiling, part) for part in parts]
    assert np.concatenate(found).tobytes() == expected.tobytes()


@settings(max_examples=15)
@given(sizes, streams)
def test_noise_is_added_where_the_mask_is(W, numbered):
    before, mask = numbers(len(numbered), W).astype(np.float32), masks(len(numbered), W)
    noise = np.array([deviates(stream, W) for stream in numbered], np.float32)
    weights = before.copy()
    add_noise(weights, mask, 0.3, KEY, np.array(numbered))
    assert weights.tobytes() == np.where(mask, before + np.float32(0.3) * noise, np.float32(0)).tobytes()
