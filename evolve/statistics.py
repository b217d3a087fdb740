"""What a sample of returns says: the door to SciPy, which comes with the extra `stats`."""

import importlib
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


def rank_test(one: Float64, other: Float64) -> float:
    """Return p of the two-sided Mann-Whitney U test (1947) of two samples [n], [m]. Raises InputError without SciPy."""
    return float(_scipy_stats().mannwhitneyu(one, other, alternative="two-sided").pvalue)


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
