"""Means, intervals and tests of samples, compared with SciPy's; values as text."""

import math
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from evolve.analysis import statistics
from evolve.analysis.statistics import duration, listed, number, short_names, words


@pytest.mark.parametrize("size", [2, 3, 9, 10, 11, 12, 40, 100, 1000])
def test_the_interval_is_student_s(size):
    from scipy import stats  # takes a second, so only here

    sample = np.random.Generator(np.random.Philox(size)).normal(3.0, 2.0, size)
    expected = stats.t.interval(0.95, size - 1, sample.mean(), stats.sem(sample))
    assert statistics.interval(sample) == pytest.approx(expected, rel=1e-5)


def test_one_value_has_no_interval_and_equal_ones_have_a_narrow_one():
    assert statistics.interval(np.array([4.0])) is None
    assert math.isnan(statistics.mean(np.array([])))
    assert statistics.interval(np.array([4.0, 4.0])) == (4.0, 4.0)


def test_the_interval_of_returns_ends_at_a_bound_that_several_episodes_reach():
    full = np.array([500.0] * 19 + [440.0])
    low, high = statistics.interval(full)
    assert high > 500
    assert statistics.interval_of_returns(full) == (low, 500.0)
    assert statistics.interval_of_returns(-full) == (-500.0, -low)
    once = np.array([500.0, 480.0])  # a return that is reached once may be no bound
    assert statistics.interval_of_returns(once) == statistics.interval(once)
    assert statistics.interval_of_returns(np.array([4.0])) is None
    assert "to 500.00)" in statistics.summary(full)


@pytest.mark.parametrize(("value", "size"), [(0.94, 100), (-84.3, 30), (0.1, 3)])
def test_the_mean_of_equal_returns_is_in_its_interval(value, size):
    """Bars of errors are drawn from the mean to both ends, and Matplotlib refuses bars of negative length."""
    returns = np.full(size, value)
    assert statistics.mean(returns) != value  # rounded
    low, high = statistics.interval_of_returns(returns)
    assert low <= statistics.mean(returns) <= high
    assert (low, high) == pytest.approx((value, value))


@pytest.mark.parametrize(("size", "draw"), [(3, "normal"), (60, "exponential")])
def test_the_interval_covers_the_mean_95_times_in_100(size, draw):
    stream = np.random.Generator(np.random.Philox(1))
    covered = 0
    for _ in range(400):
        sample = stream.normal(3.0, 1.0, size) if draw == "normal" else stream.exponential(3.0, size)
        low, high = statistics.interval(sample)
        covered += low <= 3.0 <= high
    assert 360 <= covered <= 392


def test_values_near_the_largest_float_do_not_overflow():
    sample = np.array([1e308, 1e308, -1e308, 1.5e308])
    assert statistics.mean(sample) == pytest.approx(0.625e308)
    assert statistics.median(sample) == 1e308
    assert statistics.interval(sample)[1] == math.inf
    assert "mean 6.25e+307" in statistics.summary(sample)


def test_values_that_are_not_finite_do_not_count():
    known, more = np.array([1.0, 2.0, 2.0, 5.0]), np.array([1.0, np.nan, 2.0, np.inf, 2.0, 5.0])
    for statistic in (statistics.mean, statistics.median, statistics.deviation, statistics.interval,
                      statistics.interval_of_returns, partial(statistics.quantile, share=0.25)):  # fmt: skip
        assert statistic(more) == statistic(known)


def test_means_keep_their_bits():
    sample = np.random.Generator(np.random.Philox(3)).normal(-200.0, 50.0, 999)
    assert statistics.mean(sample) == sample.mean()
    assert statistics.median(sample) == np.median(sample)


@pytest.mark.parametrize(
    ("returns", "numbers"),
    [
        ([5.0], {"mean": "5.00", "median": "5.00", "worst": "5.00", "best": "5.00"}),
        ([1.0, 3.0, np.nan], {"mean": "2.00", "median": "2.00", "worst": "1.00", "best": "3.00", "failed": "1"}),
        ([1.0, np.inf], {"mean": "1.00", "median": "1.00", "worst": "1.00", "best": "1.00", "failed": "1"}),
        ([np.nan], {"failed": "1"}),
    ],
)
def test_summaries(returns, numbers):
    said = statistics.summary(np.array(returns))
    assert dict(re.findall(r"(\w+) (\d[\d.]*)(?=  | \(|$)", said)) == numbers
    assert ("-10.71 to 14.71" in said) == (len(numbers) == 5 and returns[1] == 3.0)


def test_the_rank_test_of_one_value_is_exact_with_and_without_ties():
    single, solved = np.array([100.0]), np.full(39, 500.0)
    assert statistics.rank_test(single, solved) == statistics.rank_test(solved, single) == pytest.approx(2 / 40)
    assert statistics.rank_test(single, np.arange(39) + 500.0) == pytest.approx(2 / 40)
    assert statistics.rank_test(single, np.array([1.0, 100.0, 200.0])) == 1


def test_the_sizes_for_which_the_rank_test_can_be_significant():
    assert not statistics.can_be_significant(3, 3)
    assert not statistics.can_be_significant(1, 30)
    for n, m in ((4, 4), (3, 5), (2, 8), (1, 39)):
        assert statistics.can_be_significant(n, m)
        assert statistics.rank_test(np.arange(n) + 0.0, np.arange(m) + 100.0) <= 0.05


def test_holm_s_correction():
    assert statistics.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert statistics.holm([0.9, 0.8]) == [1.0, 1.0]
    assert statistics.holm([]) == []


def test_the_interval_of_a_ratio_is_welch_s():
    from scipy import stats  # takes a second, so only here

    draw = np.random.Generator(np.random.Philox(4))
    one, other = np.exp(draw.normal(2.0, 0.1, 20)), np.exp(draw.normal(1.0, 0.3, 5))
    exact = stats.ttest_ind(np.log(one), np.log(other), equal_var=False).confidence_interval()
    low, high = statistics.ratio_interval(one, other)
    assert low * high == pytest.approx(math.exp(exact.low + exact.high))
    assert low == pytest.approx(math.exp(exact.low), rel=0.1)
    assert low <= math.exp(exact.low)  # the degrees of freedom are rounded down
    assert low < statistics.geometric_ratio(one, other) < high


def test_the_interval_of_a_ratio_of_few_values():
    two = np.array([2.0, 2.0])
    assert statistics.ratio_interval(two, two / 2) == (pytest.approx(2.0), pytest.approx(2.0))
    assert statistics.ratio_interval(two, two[:1]) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1,234.50"),
        (-0.9389, "-0.939"),
        (np.nan, "none"),
        (1e308, "1e+308"),
        (-np.inf, "-inf"),
        (-0.000602, "-0.000602"),
        (0.01, "0.010"),
        (-0.0, "0.00"),
        (-2.8e-17, "0.00"),
        (2e-14, "2e-14"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (75, "1 min 15 s"),
        (7500, "2 h 05 min"),
        (-1, "unknown"),
        (np.inf, "unknown"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_values_of_a_configuration_have_no_control_characters():
    assert words(None) == "none"
    assert words([8, "a\n"]) == "8, a\\n"
    assert words({"a": "\x1b"}) == "{'a': '\\x1b'}"


def test_names_are_paths_without_their_common_directories():
    paths = [Path("runs/a/seed-1.h5"), Path("runs/a/seed-2.h5"), Path("runs/b/seed-1.h5")]
    assert short_names(paths) == ["a/seed-1.h5", "a/seed-2.h5", "b/seed-1.h5"]
    assert short_names(paths[:1]) == ["seed-1.h5"]
    assert short_names([Path("runs/a.h5"), Path("/runs/b.h5")]) == ["runs/a.h5", "/runs/b.h5"]
    assert short_names([]) == []


def test_of_many_names_the_first_are_listed():
    assert listed([]) == ""
    assert listed(list("abcdefgh")) == "a, b, c, d, e, f, g, h"
    assert listed(list("abcdefghij")) == "a, b, c, d, e, f, g, h and 2 more"
