"""When a time is measured well enough: rules that leave nobody a choice among repeats."""

import statistics
from collections.abc import Sequence

LEAST, MOST = 3, 8
"""Repeats."""
WITHIN = 0.035
"""How far the last three may lie apart, as a share of the shortest."""


def enough(seconds: Sequence[float]) -> bool:
    """Return whether no further repeat is needed: the last three agree, or there are as many as there may be."""
    return len(seconds) >= MOST or agree(seconds)


def agree(seconds: Sequence[float]) -> bool:
    """Return whether the last three repeats agree."""
    return len(seconds) >= LEAST and spread(seconds[-LEAST:]) <= WITHIN


def spread(seconds: Sequence[float]) -> float:
    """Return how far repeats lie apart, as a share of the shortest."""
    return max(seconds) / min(seconds) - 1


def score(seconds: Sequence[float]) -> float:
    """Return the seconds that count: the median of all repeats, none left out."""
    return statistics.median(seconds)
