"""Statistics of returns and scores: means, intervals of means, and tests between samples.

A sample is an array of float64 numbers. A failed episode or candidate has the value NaN. Means, quantiles and intervals
ignore all values that are not finite. The module also formats values for tables, messages and pages.

Only this module imports SciPy (extra `stats`), and only for the rank test.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.errors import import_extra, sanitize
from evolve.shapes import Float64

Interval = tuple[float, float]
"""The lower and the upper end."""

_MOST_PERMUTATIONS = 10_000  # the rank test is exact up to this number of permutations
_Z = 1.959963984540054  # the 97.5 % quantile of the normal distribution
# The 97.5 % quantiles of Student's t with 1 to 9 degrees of freedom.
_STUDENT = (12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157)
_LONGEST_TEXT = 2000  # characters
_MOST_LISTED = 8  # names
# How `number` shows a number:
_LARGEST_DECIMAL = 1e15  # larger numbers have four significant digits instead of two decimals
_SMALLEST_DECIMAL = 0.01  # smaller numbers have three significant digits instead of three decimals
_ROUNDING_ERROR = 1e-14  # smaller numbers are shown as 0


def finite(values: Float64) -> Float64:
    """Return the finite values [n] of an array of any shape."""
    return values[np.isfinite(values)]


def mean(sample: Float64) -> float:
    """Return the mean of a sample [n]; NaN without finite values."""
    return _without_overflow(np.mean, sample)


def median(sample: Float64) -> float:
    """Return the median of a sample [n]; NaN without finite values."""
    return _without_overflow(np.median, sample)


def quantile(sample: Float64, share: float) -> float:
    """Return the quantile at a share (0 to 1) of a sample [n], interpolated linearly; NaN without finite values."""
    return _without_overflow(lambda scaled: np.quantile(scaled, share), sample)


def deviation(sample: Float64) -> float:
    """Return the standard deviation (n - 1) of a sample [n]; NaN for fewer than two finite values."""
    if len(finite(sample)) < 2:
        return math.nan
    return _without_overflow(lambda scaled: np.std(scaled, ddof=1), sample)


def interval(sample: Float64, low: float = -math.inf, high: float = math.inf) -> Interval | None:
    """Return the 95 % interval of the mean of a sample [n], by Student's t (1908); None for fewer than two values.

    A bootstrap interval would be too narrow for the scores of few seeds: it never leaves the range of its sample.

    low, high: Bounds of the mean. They cut the interval.
    """
    n = len(finite(sample))
    if n < 2:
        return None
    half = _student(n - 1) * deviation(sample) / math.sqrt(n)
    centre = mean(sample)
    # The mean of equal values may lie beyond a bound by a rounding error. But the interval must contain the mean, so
    # such a bound is moved to the mean.
    return max(centre - half, min(low, centre)), min(centre + half, max(high, centre))


def interval_of_returns(returns: Float64) -> Interval | None:
    """Return the 95 % interval of the mean of returns [n] of episodes; None for fewer than two finite returns.

    Student's interval is cut at the `shared_bounds` of the returns.
    """
    known = finite(returns)
    return interval(known, *shared_bounds(known, known))


def shared_bounds(lows: Float64, highs: Float64) -> Interval:
    """Return the smallest of `lows` [n] and the largest of `highs` [n]. An end that occurs only once becomes infinite.

    A best or worst return that several episodes share is assumed to be a bound of the task, like 500 in CartPole-v1. No
    mean can be beyond a bound.
    """
    low, high = float(lows.min(initial=math.inf)), float(highs.max(initial=-math.inf))
    has_low, has_high = np.count_nonzero(lows == low) > 1, np.count_nonzero(highs == high) > 1
    return low if has_low else -math.inf, high if has_high else math.inf


def geometric_ratio(one: Float64, other: Float64) -> float:
    """Return the ratio of the geometric means of two samples [n] and [m] of positive values."""
    return math.exp(float(np.log(one).mean() - np.log(other).mean()))


def ratio_interval(one: Float64, other: Float64) -> Interval | None:
    """Return the 95 % interval of `geometric_ratio`; None if a sample has fewer than two values.

    It is Welch's interval (1947) for the difference of the mean logarithms. The degrees of freedom are rounded down.
    """
    if min(len(one), len(other)) < 2:
        return None
    logs = np.log(one), np.log(other)
    centre = math.log(geometric_ratio(one, other))
    variances = [float(log.var(ddof=1)) / len(log) for log in logs]
    variance_of_difference = sum(variances)
    # Without variance, the degrees of freedom would be 0 / 0.
    if not variance_of_difference:
        return math.exp(centre), math.exp(centre)
    parts = sum(variance**2 / (len(log) - 1) for variance, log in zip(variances, logs, strict=True))
    degrees = max(1, int(variance_of_difference**2 / parts))  # by Welch and Satterthwaite
    half = _student(degrees) * math.sqrt(variance_of_difference)
    return math.exp(centre - half), math.exp(centre + half)


def _without_overflow(statistic: Callable[[Float64], Any], sample: Float64) -> float:
    """Return a statistic of the finite values of a sample [n]; NaN if there are none.

    The values are scaled down, so that their sum does not overflow. The scale is a power of two, so scaling is exact.
    """
    known = finite(sample)
    if not len(known):
        return math.nan
    # The largest absolute value is less than 2^exponent, so no scaled value exceeds 1.
    _, exponent = math.frexp(float(np.abs(known).max()))
    scaled = np.ldexp(known, -exponent)
    # A deviation may exceed the largest float, and is then infinite.
    with np.errstate(over="ignore"):
        return float(np.ldexp(statistic(scaled), exponent))


def _student(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t with a number of degrees of freedom, accurate to 1e-5."""
    if degrees <= len(_STUDENT):
        return _STUDENT[degrees - 1]
    # The expansion of Abramowitz and Stegun (1964), 26.7.5.
    z, n = _Z, float(degrees)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4)
    )


def can_be_significant(n: int, m: int, tests: int = 1) -> bool:
    """Return whether the rank test of n and m values can reach p ≤ 0.05 at all, as one of several tests."""
    # The smallest p of the exact test is 2 / C(n + m, n). Holm's correction multiplies it by the number of tests.
    return tests * 2 / math.comb(n + m, n) <= 0.05


def holm(ps: Sequence[float]) -> list[float]:
    """Return the p-values of several tests, corrected for the number of tests by Holm's method (1979)."""
    # The smallest of n p-values is multiplied by n, the next one by n - 1, and so on. No corrected p-value is below an
    # earlier one.
    order = np.argsort(ps, kind="stable")
    products = np.minimum(1.0, np.arange(len(ps), 0, -1) * np.array(ps)[order])
    corrected = np.empty(len(ps))
    corrected[order] = np.maximum.accumulate(products)
    return corrected.tolist()


def rank_test(one: Float64, other: Float64) -> float:
    """Return p of the two-sided Mann-Whitney U test (1947) of two samples [n], [m].

    The test is exact, also with ties, up to 10,000 permutations. Two samples of seven values have 3,432 permutations.
    The normal approximation would be too cautious for so few values. Raises InputError if SciPy is not installed.
    """
    stats = import_extra("scipy.stats", "stats", "statistics", "SciPy")
    # SciPy refuses a sample of one value. If both samples have one distribution, each rank of this value among all
    # values is equally probable. So p is twice the share of the values that are at least as extreme on its side.
    n, m = len(one), len(other)
    if min(n, m) == 1:
        values = np.concatenate([one, other])
        single = one[0] if n == 1 else other[0]
        below, above = float((values <= single).mean()), float((values >= single).mean())
        return min(1.0, 2 * min(below, above))
    # SciPy's permutation test is exact if there are at most `n_resamples` permutations.
    exact = math.comb(n + m, n) <= _MOST_PERMUTATIONS
    method = stats.PermutationMethod(n_resamples=_MOST_PERMUTATIONS) if exact else "auto"
    return float(stats.mannwhitneyu(one, other, alternative="two-sided", method=method).pvalue)


def superiority(one: Float64, other: Float64) -> float:
    """Return A of two samples [n], [m], the effect size of the rank test (Vargha and Delaney, 2000).

    A is the probability that a value of the first sample is above a value of the second one; equal values count half.
    """
    return float(((one[:, None] > other).mean() + (one[:, None] >= other).mean()) / 2)


def summary(returns: Float64) -> str:
    """Return the statistics of returns [N] in words. Episodes without a finite return count as failed."""
    known = finite(returns)
    failed = f"   failed {len(returns) - len(known)}" if len(known) < len(returns) else ""
    if not len(known):
        return f"no episode has a return{failed}"
    ends = interval_of_returns(known)
    interval_text = "" if ends is None else f" (95 % interval {between(ends)})"
    return (
        f"mean {number(mean(known))}{interval_text}   median {number(median(known))}   "
        f"worst {number(known.min())}   best {number(known.max())}{failed}"
    )


def metrics_means(metrics: Mapping[str, NDArray[Any]], returns: Float64) -> dict[str, float]:
    """Return the mean of each metric [N] over the episodes with a finite return, by name."""
    played = np.isfinite(returns)  # the other episodes failed: their metrics are NaN, 0 or False
    return {name: mean(values[played].astype(float)) for name, values in metrics.items()}


def metrics_summary(metrics: Mapping[str, NDArray[Any]], returns: Float64) -> str:
    """Return the `metrics_means` in words, in the order of their names; an empty text without metrics."""
    texts = []
    for name, value in sorted(metrics_means(metrics, returns).items()):
        text = number(value) if abs(value) >= 1 else f"{value:.3g}"
        texts.append(f"{name} {text}")
    return ", ".join(texts)


def number(value: float) -> str:
    """Return the text of a return or a fitness; "none" for NaN.

    The text has two decimals, or three for a number below 1. For a number below 0.01, the text has three significant
    digits, and for a huge number four. A number below 1e-14 is shown as 0, because it is usually a rounding error of a
    sum.
    """
    if math.isnan(value):
        return "none"
    if abs(value) < _ROUNDING_ERROR:
        return "0.00"
    if abs(value) < _SMALLEST_DECIMAL:
        return f"{value:.3g}"
    if abs(value) < 1:
        return f"{value:.3f}"
    return f"{value:,.2f}" if abs(value) < _LARGEST_DECIMAL else f"{value:.4g}"


def between(ends: Interval) -> str:
    """Return an interval in words: "1.00 to 2.00"."""
    return f"{number(ends[0])} to {number(ends[1])}"


def duration(seconds: float) -> str:
    """Return a time in words, such as "5.2 s", "3 min 05 s" or "2 h 07 min"; "unknown" for an invalid or huge time."""
    if not 0 <= seconds < 1e10:
        return "unknown"
    # Round first: 59.96 s would be shown as 60.0 s.
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60:,} h {minutes % 60:02} min"


def words(value: object, separator: str = ", ") -> str:
    """Return a value of a configuration or a manifest as text.

    separator: Joins the parts of a list. A list of lists or tables has the form of Python instead.
    """
    if value is None:
        return "none"
    if isinstance(value, list | tuple) and value and not any(isinstance(part, list | dict) for part in value):
        return sanitize(separator.join(map(sanitize, value)), _LONGEST_TEXT)
    return sanitize(value, _LONGEST_TEXT)


def listed(names: Sequence[str]) -> str:
    """Return names as one text. Of many names it has only the first eight, and the number of the others."""
    others = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {others:,} more" if others > 0 else "")


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return names that distinguish files: their paths without the leading directories that all of them share."""
    levels = zip(*(path.parent.parts for path in paths), strict=False)
    num_shared = len(list(takewhile(lambda names: len(set(names)) == 1, levels)))
    return [sanitize(str(Path(*path.parts[num_shared:]))) for path in paths]
