"""Vectors, frames and rotations, for single vectors and for many."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.environments.physics.frames import (
    Frame,
    Rotation,
    choose,
    frame_around,
    greater,
    left_of,
    lesser,
    placed,
    placed_back,
    right_of,
    rotation_of,
    turned,
    turned_back,
    unit,
    within,
)

mpmath.mp.dps = 40
singles = st.floats(-10, 10, width=32).map(np.float32)
vectors = st.tuples(singles, singles).map(np.array)
angles = st.floats(-187, 187, width=32).map(np.float32) | st.sampled_from(
    [np.float32(n * np.pi / 4) for n in range(-20, 21)]
)


@given(angles)
def test_sine_and_cosine_are_within_six_tenths_of_an_ulp(a):
    for value, exact in zip(rotation_of(a), (mpmath.sin(float(a)), mpmath.cos(float(a))), strict=True):
        assert value.dtype == np.float32
        assert abs(mpmath.mpf(float(value)) - exact) <= 0.6 * float(np.spacing(np.float32(abs(float(exact)))))


@given(st.floats(187, 1e7, width=32).map(np.float32), st.sampled_from([-1, 1]))
def test_a_body_that_has_turned_often_is_still_turned(a, sign):
    """Its rotation has to be one. Otherwise the velocities of a spinning lander would explode."""
    found = rotation_of(np.float32(sign) * a)
    for value, exact in zip(found, (sign * mpmath.sin(float(a)), mpmath.cos(float(a))), strict=True):
        assert abs(float(value) - float(exact)) < 1e-7 + 1e-15 * float(a)


def test_many_angles_are_as_one():
    a = np.random.Generator(np.random.Philox(1)).uniform(-10, 10, 500).astype(np.float32)
    many = rotation_of(a)
    for i, each in enumerate(a):
        assert [x.tobytes() for x in rotation_of(each)] == [many.s[i].tobytes(), many.c[i].tobytes()]


@given(st.lists(st.tuples(vectors, vectors, singles), min_size=1, max_size=4))
def test_one_formula_serves_one_vector_and_many(rows):
    v, p = (np.array([row[i] for row in rows]).T for i in range(2))
    frame = Frame(p, rotation_of(np.array([row[2] for row in rows])))
    found = placed(frame, v), placed_back(frame, v), frame_around(p, np.array([row[2] for row in rows]), v).p
    for i, (vector, position, angle) in enumerate(rows):
        one = Frame(position, rotation_of(angle))
        alone = placed(one, vector), placed_back(one, vector), frame_around(position, angle, vector).p
        for many, single in zip(found, alone, strict=True):
            assert many.dtype == single.dtype == np.float32
            assert many[:, i].tobytes() == single.tobytes()


@given(vectors, vectors, singles)
def test_a_frame_is_left_as_it_is_entered(v, p, a):
    frame = Frame(p, rotation_of(a))
    assert placed_back(frame, placed(frame, v)) == pytest.approx(v, abs=1e-4)
    assert turned_back(frame.q, turned(frame.q, v)) == pytest.approx(v, abs=1e-4)
    quarter = Rotation(np.float32(1), np.float32(0))
    assert (turned(quarter, v) == left_of(v)).all()
    assert (turned_back(quarter, v) == right_of(v)).all()


@given(vectors)
def test_a_unit_vector_has_length_1_unless_it_is_too_short(v):
    with np.errstate(divide="ignore", invalid="ignore"):
        direction = unit(v)
    if np.hypot(*v.astype(float)) > 1e-6:
        assert np.hypot(*direction) == pytest.approx(1, rel=1e-6)
    elif np.hypot(*v.astype(float)) < 1e-7:
        assert (direction == v).all()


@pytest.mark.parametrize("shape", [(), (3,)])
def test_bounds_choose_the_same_zero_on_every_processor(shape):
    plus, minus = np.full(shape, 0.0, np.float32)[()], np.full(shape, -0.0, np.float32)[()]
    for function in (lesser, greater):  # of equals, the second
        assert np.signbit(function(plus, minus)).all()
        assert not np.signbit(function(minus, plus)).any()
    assert np.signbit(within(plus - 1, minus, plus)).all()
    assert not np.signbit(within(plus + 1, minus, plus)).any()
    assert choose(plus == minus, 1, 2) == pytest.approx(np.ones(shape))
