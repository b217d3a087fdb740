"""What a sample of returns says: the door to SciPy, which comes with the extra `stats`."""

import importlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from evolve.errors import InputError, one_line
from evolve.shapes import Float64

_RESAMPLES = 10_000


def _scipy_stats() -> Any:
    try:
        return importlib.import_module("scipy.stats")
    except ImportError as wrong:
        cure = "Install it: pip install 'evolve[stats]' (in a clone: pip install -e '.[stats]')."
        raise InputError("statistics", "a working SciPy", one_line(wrong), cure) from None


def interval(returns: Float64) -> tuple[float, float]:
    """Return the 95 % interval of the mean of returns [N], by the bootstrap (percentiles of resampled means).

    The resampling is the same for the same returns. Raises InputError without SciPy.
    """
    stats = _scipy_stats()
    if len(returns) < 2 or np.ptp(returns) == 0:
        return float(returns.mean()), float(returns.mean())
    found = stats.bootstrap((returns,), np.mean, n_resamples=_RESAMPLES, method="percentile",
                            rng=np.random.Generator(np.random.Philox(0)), batch=100)  # fmt: skip
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def interval_of_seeds(scores: Float64) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean of scores [n], one for each seed, by Student's t (1908); None for one seed.

    Seeds are too few for the bootstrap, which never leaves the range of its sample. Raises InputError without SciPy.
    """
    stats, n, mean = _scipy_stats(), len(scores), float(scores.mean())
    if n < 2:
        return None
    half = float(stats.t.ppf(0.975, n - 1) * scores.std(ddof=1) / math.sqrt(n))
    return mean - half, mean + half


def can_tell(n: int, m: int, tests: int = 1) -> bool:
    """Return whether samples of n and m can differ so much that the rank test says p ≤ 0.05, as one of several."""
    return tests * 2 / math.comb(n + m, n) <= 0.05


def holm(ps: Sequence[float]) -> list[float]:
    """Return what p of several tests are worth together, by Holm's correction (1979)."""
    found, least = [0.0] * len(ps), 0.0
    for place, n in enumerate(sorted(range(len(ps)), key=lambda n: ps[n])):
        least = found[n] = max(least, min(1.0, (len(ps) - place) * ps[n]))
    return found


def rank_test(one: Float64, other: Float64) -> float:
    """Return p of the two-sided Mann-Whitney U test (1947) of two samples [n], [m]. Raises InputError without SciPy.

    Exact where they are small, equal values or not: the normal approximation would say less than they can.
    """
    stats, exact = _scipy_stats(), math.comb(len(one) + len(other), len(one)) <= _RESAMPLES
    method = stats.PermutationMethod(n_resamples=_RESAMPLES) if exact else "auto"
    return float(stats.mannwhitneyu(one, other, alternative="two-sided", method=method).pvalue)


def summary(returns: Float64) -> str:
    """Return mean, interval, median, worst and best of returns [N] in words; failed episodes (NaN) are counted."""
    known = returns[~np.isnan(returns)]
    failed = f"   failed {len(returns) - len(known)}" if len(known) < len(returns) else ""
    if not len(known):
        return f"no episode has a return{failed}"
    low, high = interval(known)
    return (
        f"mean {known.mean():.2f} (95 % interval {low:.2f} to {high:.2f})   median {np.median(known):.2f}   "
        f"worst {known.min():.2f}   best {known.max():.2f}{failed}"
    )
