"""How a cost grows with P candidates of W weights: as a + b P + c W, or as a + b P W."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from evolve.shapes import Float64

_LEAST = 4  # cells, one more than the coefficients of a sum
_BETTER = 0.05  # of R², from which on one model is said to fit better


@dataclass(frozen=True)
class Fit:
    """A model of measured costs.

    Attributes:
        coefficients: a, b, …, not negative.
        r2: 1 - (squared relative errors of the model) / (those of a constant).
        error: The median of the absolute relative errors.
    """

    coefficients: tuple[float, ...]
    r2: float
    error: float


@dataclass(frozen=True)
class Growth:
    """Both models of one cost: a + b P + c W, and a + b P W."""

    sum: Fit
    product: Fit


def growth(candidates: Sequence[float], weights: Sequence[float], costs: Sequence[float]) -> Growth | None:
    """Return both models, None if too few cells were measured to tell them apart.

    Args:
        candidates: P of each cell.
        weights: W of each cell.
        costs: The cost of each cell, above 0.
    """
    P, W, y = (np.array(values, np.float64) for values in (candidates, weights, costs))
    if len(y) < _LEAST or len(set(candidates)) < 2 or len(set(weights)) < 2:
        return None
    one = np.ones(len(y))
    return Growth(fitted(np.stack([one, P, W], axis=1), y), fitted(np.stack([one, P * W], axis=1), y))


def fitted(columns: Float64, costs: Float64) -> Fit:
    """Return the combination of columns [N, k] nearest to costs [N], by relative errors: costs span many decades.

    No part of a cost is negative. So the result is the best of all choices of columns without negative coefficients.
    """
    relative = columns / costs[:, None]
    k = columns.shape[1]
    best, least = np.zeros(k), np.inf
    for size in range(1, k + 1):
        for chosen in map(list, itertools.combinations(range(k), size)):
            scale = relative[:, chosen].max(axis=0)
            found = np.linalg.lstsq(relative[:, chosen] / scale, np.ones(len(costs)), rcond=None)[0] / scale
            missed = float(np.sum((relative[:, chosen] @ found - 1) ** 2))
            if (found >= 0).all() and missed < least:
                least = missed
                best = np.zeros(k)
                best[chosen] = found
    errors = np.abs(relative @ best - 1)
    constant = 1 / costs
    by_constant = float(np.sum((constant * constant.sum() / np.sum(constant**2) - 1) ** 2))
    r2 = 1 - least / by_constant if by_constant else 1.0
    return Fit(tuple(best.tolist()), r2, float(np.median(errors)))


def sentence(what: str, found: Growth | None, unit: Callable[[float], str]) -> str:
    """Return a sentence that names the model that fits a cost better; `unit` turns a number into text."""
    if found is None:
        return f"{what}: too few cells to fit, at least {_LEAST} with two sizes of both."
    a, b, c = map(unit, found.sum.coefficients)
    base, slope = map(unit, found.product.coefficients)
    gain = found.sum.r2 - found.product.r2
    verdict = (
        "P + W fits better" if gain > _BETTER else "P × W fits better" if gain < -_BETTER else "neither fits better"
    )
    return (
        f"{what}: {verdict}, as {a} + {b} × P + {c} × W is off by {found.sum.error:.0%} in the median "
        f"(R² {found.sum.r2:.2f}), and {base} + {slope} × P × W by {found.product.error:.0%} "
        f"(R² {found.product.r2:.2f})."
    )
