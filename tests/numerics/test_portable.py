"""The exact functions against higher precision, and their order of addition against plain loops."""

import sys
from types import SimpleNamespace

import arithmetic
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from evolve.errors import RunError
from evolve.numerics import (
    exp,
    normal_quantile,
    ordered_sum,
    portable,
    restore_ieee,
    sequential_sum,
    sigmoid,
    tanh,
)
from evolve.numerics.portable import add_outer, cholesky, solve

mpmath.mp.dps = 30
FUNCTIONS = {
    tanh: mpmath.tanh,
    exp: mpmath.exp,
    sigmoid: lambda x: 1 / (1 + mpmath.exp(-x)),
}
finite32 = st.floats(width=32, allow_nan=False)


def ulps(ours: float, exact: mpmath.mpf, dtype=np.float32) -> float:
    if abs(exact) >= np.finfo(dtype).max:
        return 0.0 if np.isinf(ours) or ours == np.finfo(dtype).max else np.inf
    nearest = dtype(float(exact))
    return float(abs(mpmath.mpf(float(ours)) - exact) / mpmath.mpf(float(np.spacing(abs(nearest)))))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@given(x=finite32)
def test_within_an_ulp_everywhere(function, x):
    (ours,) = function(np.array([x], np.float32))
    assert ours.dtype == np.float32
    assert ulps(ours, FUNCTIONS[function](mpmath.mpf(x))) <= 0.51


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_within_an_ulp_over_the_whole_exponent_range(function):
    bits = np.arange(0, 0x7F800000, 1_299_709, dtype=np.uint32)  # every exponent, about six mantissas each
    x = np.concatenate([bits.view(np.float32), -bits.view(np.float32)])
    ours = function(x)
    worst = max(ulps(y, FUNCTIONS[function](mpmath.mpf(float(v)))) for v, y in zip(x, ours, strict=True))
    assert worst <= 0.51


def test_special_values():
    x = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf], np.float32)
    assert np.array_equal(tanh(x), np.array([np.nan, 0, 0, 1, -1], np.float32), equal_nan=True)
    assert np.signbit(tanh(x)[1])
    assert np.array_equal(exp(x), np.array([np.nan, 1, 1, np.inf, 0], np.float32), equal_nan=True)
    assert np.array_equal(sigmoid(x), np.array([np.nan, 0.5, 0.5, 1, 0], np.float32), equal_nan=True)


@given(st.floats(2.0**-1000, 2.0**1000))
def test_log(x):
    assert ulps(portable.log(np.array([x]))[0], mpmath.log(mpmath.mpf(x)), np.float64) <= 2


@given(st.floats(2.0**-53, 1 - 2.0**-53))
def test_normal_quantile(u):
    exact = mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(u) - 1)
    assert ulps(normal_quantile(np.array([u]))[0], exact) <= 0.51


def test_normal_quantile_is_odd_and_golden(golden):
    u = np.array([0.5, 0.25, 0.75, 0.025, 0.975, 2.0**-53])
    z = normal_quantile(u)
    assert z[0] == 0
    assert z[1] == -z[2]
    assert z[3] == -z[4]
    assert [float(v).hex() for v in z] == golden["normal_quantile"]


@given(arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(0, 40)), elements=st.floats(-1e6, 1e6)))
def test_ordered_sum_is_its_definition(x):
    def by_hand(values):
        while len(values) > 1:
            half = (len(values) + 1) // 2
            values = [a + b for a, b in zip(values, values[half:], strict=False)] + values[len(values) - half : half]
        return values[0] if values else 0.0

    assert ordered_sum(x).tolist() == [by_hand(row.tolist()) for row in x]


@pytest.mark.parametrize("width", [1, 7, 99, 100, 640])
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 40))
def test_sequential_sum_adds_one_after_another(width, n, seed):
    x = np.random.Generator(np.random.Philox(seed)).normal(size=(n, width)).astype(np.float32)
    total = x[0].copy()
    for row in x[1:]:
        total += row
    assert np.array_equal(sequential_sum(x.copy()), total)


@pytest.mark.skipif(not arithmetic.SUPPORTED, reason="the helper does not know the registers of this processor")
@pytest.mark.parametrize("change", [arithmetic.flush_denormals, arithmetic.round_up])
def test_another_mode_of_the_processor_is_restored_or_refused(change, monkeypatch):
    def results():
        return (sys.float_info.min * np.array([0.5])).tobytes(), (np.array([1.0]) + 2.0**-53).tobytes()

    usual = results()
    try:
        change()
        assert results() != usual
        with monkeypatch.context() as patch:
            patch.setattr(portable.ctypes, "CDLL", lambda _: SimpleNamespace())
            with pytest.raises(RunError, match=r"^arithmetic: .*-ffast-math"):
                restore_ieee()
        with monkeypatch.context() as patch:  # where -1 is no pointer to an environment
            patch.setattr(portable.sys, "platform", "darwin")
            with pytest.raises(RunError, match=r"^arithmetic: .*-ffast-math"):
                restore_ieee()
    finally:
        restore_ieee()
    assert results() == usual
    restore_ieee()
    assert results() == usual


def normals(*shape):
    return np.random.Generator(np.random.Philox(3)).normal(size=shape)


@pytest.mark.usefixtures("with_and_without_kernels")
@settings(max_examples=15)
@given(st.integers(0, 9), st.integers(0, 100), st.integers(0, 9), st.booleans())
def test_outer_products_are_added_in_their_order(m, n, k, turned):
    target, right = normals(m, n + 3)[:, 2 : n + 2], normals(k, n + 4)[:, 1 : n + 1]
    left = normals(m, k).T if turned else normals(k, m)
    expected = target.copy()
    for a, b in zip(left, right, strict=True):
        expected += np.multiply.outer(a, b)
    add_outer(target, left, right)
    assert target.tobytes() == expected.tobytes()


@pytest.mark.usefixtures("with_and_without_kernels")
@settings(max_examples=15)
@given(st.integers(1, 100), st.integers(0, 5))
def test_a_factor_and_its_solutions(n, N):
    """The bits are those of plain loops over rows; the control is NumPy's library."""
    spread, rows = normals(n, 2 * n), normals(N, n)
    covariance = spread @ spread.T
    factor = cholesky(np.triu(covariance), np.zeros(n))
    solved = solve(factor, rows)
    left, found = covariance.copy(), rows.copy()
    for j in range(n):
        left[j, j:] /= np.sqrt(left[j, j])
        left[j + 1 :, j + 1 :] -= np.multiply.outer(left[j, j + 1 :], left[j, j + 1 :])
        found[:, j] /= left[j, j]
        found[:, j + 1 :] -= np.multiply.outer(found[:, j], left[j, j + 1 :])
    assert factor.tobytes() == np.triu(left).tobytes()
    assert solved.tobytes() == found.tobytes()
    theirs = np.linalg.cholesky(covariance).T
    assert factor == pytest.approx(theirs, rel=1e-9, abs=1e-9)
    assert solved == pytest.approx(np.linalg.solve(theirs.T, rows.T).T, rel=1e-9, abs=1e-9)
