"""Results of episodes that nobody has played, for the tests of what becomes of results."""

import numpy as np

from evolve.numerics.hashing import MAX_HASHED_STEPS
from evolve.rollouts import EpisodeResults
from evolve.rollouts.episodes import QUANTITIES


def results(**given):
    """Return EpisodeResults: what is given, `genomes` and `lengths` at least, which decides the sizes; else zeros."""
    sizes = {"T": 0, "O": 0, "K": 0, "D": 0, "L": int(np.minimum(given["lengths"], MAX_HASHED_STEPS).sum())}
    for name, array in given.items():
        sizes |= dict(zip(QUANTITIES[name][0].split(), np.shape(array), strict=True))
    arrays = {}
    for name, (symbols, dtype) in QUANTITIES.items():
        shape = [int(symbol) if symbol.isdigit() else sizes[symbol] for symbol in symbols.split()]
        arrays[name] = np.asarray(given[name], dtype) if name in given else np.zeros(shape, dtype)
    return EpisodeResults(**arrays).check()
