"""Sine and cosine against higher precision, and the kernel against the array reference."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.numerics import native
from evolve.numerics.native import ADDRESS, INT64
from evolve.numerics.portable import sincos

mpmath.mp.dps = 40
QUARTERS = [n * np.pi / 4 for n in range(-20, 21)]
angles = st.floats(-(2.0**19), 2.0**19) | st.sampled_from(QUARTERS)


def ulps(ours, exact):
    return abs(mpmath.mpf(float(ours)) - exact) / mpmath.mpf(float(np.spacing(abs(float(exact)))))


@given(angles)
def test_within_an_ulp(x):
    ours = sincos(np.array([x]))
    for (value,), exact in zip(ours, (mpmath.sin(mpmath.mpf(x)), mpmath.cos(mpmath.mpf(x))), strict=True):
        assert value.dtype == np.float64
        assert ulps(value, exact) <= 1


def test_zero_keeps_its_sign_and_nan_stays_nan():
    with np.errstate(invalid="ignore"):
        sine, cosine = sincos(np.array([0.0, -0.0, np.nan, np.inf]))
    assert cosine[:2].tolist() == [1, 1]
    assert np.signbit(sine[:2]).tolist() == [False, True]
    assert np.isnan([*sine[2:], *cosine[2:]]).all()


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
def test_the_kernel_equals_the_reference():
    random = np.random.Generator(np.random.Philox(3))
    x = np.concatenate([random.uniform(-20, 20, 100_000), random.uniform(-(2.0**19), 2.0**19, 100_000), QUARTERS])
    x = np.resize(x, -(-len(x) // native.lanes()) * native.lanes())
    sine, cosine = np.zeros_like(x), np.zeros_like(x)
    rows = len(x) // native.lanes()
    native.bind("sincos", [ADDRESS] * 3 + [INT64])(x.ctypes.data, sine.ctypes.data, cosine.ctypes.data, rows)
    for ours, theirs in zip((sine, cosine), sincos(x), strict=True):
        assert ours.tobytes() == theirs.tobytes()
