"""Racing: every candidate plays a few episodes, and only the contenders play the rest.

Successive halving (Karnin, Koren and Somekh, 2013; Jamieson and Talwalkar, 2016) over the episodes of one generation:
after each round the best `keep` of those still in the race go on, by their mean return so far. Who goes on follows from
returns alone, so it is the same on any number of ranks.
"""

from collections.abc import Iterator

import numpy as np

from evolve.config import RacingOptions
from evolve.numerics import ordered_sum
from evolve.shapes import Bool, Float64, Int64
from evolve.strategies import ranking

NO_RACE = RacingOptions()
"""Every candidate plays all its episodes."""


def rounds(options: RacingOptions, returns_pe: Float64, costs_p: Float64 | float = 0.0) -> Iterator[Int64]:
    """Yield the units [n] of each round; the next one is asked for when these have been entered into returns [P, E].

    Unit n is episode n mod E of candidate n div E. The last round ends with episode E. costs: see `fitness`.
    """
    P, E = returns_pe.shape
    racing, played, costs = np.arange(P), 0, np.broadcast_to(costs_p, P)
    for until in (*(r for r in options.rounds if r < E), E):
        yield (racing[:, None] * E + np.arange(played, until)).ravel()
        played = until
        if until < E:
            means = ordered_sum(returns_pe[racing, :until]) / until - costs[racing]
            left = max(1, round(len(racing) * options.keep))
            racing = np.sort(racing[ranking(means)[:left]])


def fitness(returns_pe: Float64, played_pe: Bool, costs_p: Float64 | float = 0.0) -> Float64:
    """Return [P]: the mean return over the episodes that were played, added up in a fixed order, less the costs [P].

    NaN where an episode's return is NaN. Who left the race has at most the fitness of everybody who stayed longer:
    a good mean over few episodes is luck.
    """
    counts = np.count_nonzero(played_pe, axis=1)
    means, most, costs = np.full(len(returns_pe), np.nan), np.inf, np.broadcast_to(costs_p, len(returns_pe))
    for count in np.unique(counts)[::-1].tolist():
        if count:
            rows = np.flatnonzero(counts == count)
            means[rows] = np.minimum(ordered_sum(returns_pe[rows, :count]) / count - costs[rows], most)
            most = min(most, float(np.fmin.reduce(means[rows], initial=np.inf)))
    return means
