"""Results of episodes that were not played, for the tests of the code that receives results."""

import numpy as np

from evolve.numerics.hashing import MAX_HASHED_STEPS
from evolve.rollouts import EpisodeResults
from evolve.rollouts.episodes import QUANTITIES
from evolve.shapes import check_shape


def results(**given):
    """Return EpisodeResults of the given arrays, at least `genomes` and `lengths`; the others are zeros."""
    sizes = {"T": 0, "O": 0, "K": 0, "D": 0, "M": 0, "L": int(np.minimum(given["lengths"], MAX_HASHED_STEPS).sum())}
    for name, array in given.items():
        sizes |= dict(zip(QUANTITIES[name][0].split(), np.shape(array), strict=True))
    arrays = {}
    given.setdefault("hashed", np.ones(len(given["genomes"]), np.bool_))
    for name, (symbols, dtype) in QUANTITIES.items():
        shape = [int(symbol) if symbol.isdigit() else sizes[symbol] for symbol in symbols.split()]
        arrays[name] = np.asarray(given[name], dtype) if name in given else np.zeros(shape, dtype)
    return checked(EpisodeResults(**arrays))


def checked(results):
    """Return results. Raises ValueError unless every field has the declared type and the sizes agree."""
    sizes = {}
    for name, (symbols, dtype) in QUANTITIES.items():
        array = getattr(results, name)
        check_shape(array, name, symbols, dtype, **sizes)
        sizes |= dict(zip(symbols.split(), array.shape, strict=True))
    return results
