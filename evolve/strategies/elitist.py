"""What random, ga and mk2 share: an elite that leads every generation, is evaluated again in it, and begets the rest.

The state is the elite, best first. A generation is its first members, the survivors, unchanged, and children. Told, the
elite becomes the best by score (the mean over all evaluations) of that generation: so nobody stays in it without being
evaluated again, and a lucky score lasts one generation.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.genome import Genomes, concatenate
from evolve.networks import Network
from evolve.shapes import Float32, Float64, expect
from evolve.strategies.contract import Arrays, newborns
from evolve.strategies.elite import Elite, evaluated, from_arrays, join, nobody, to_arrays


class ElitistOptions(Options):
    """Settings of `[strategy]` that elitist strategies share.

    survivors: how many are kept unchanged and evaluated again; at most P - 1. prior_evaluations: see strategies.elite.
    """

    survivors: int = Field(4, ge=1)
    prior_evaluations: int = Field(0, ge=0, le=1000)


class Elitist:
    """A strategy for P = `population` candidates of `network` whose state is an elite of at most `size` members.

    A kind of it says how children are made from the elite.
    """

    portable = True

    def __init__(self, options: ElitistOptions, network: Network, population: int, seed: int, size: int) -> None:
        self._network, self._P, self._seed, self._size = network, population, seed, size
        self._survivors, self._prior = min(options.survivors, size, population - 1), options.prior_evaluations

    def start(self) -> Elite:
        """Return the state before generation 0: nobody is known."""
        return nobody(self._network.weights)

    def ask(self, state: Elite, generation: int) -> Genomes:
        """Return P candidates: newborn in generation 0, later the survivors and then the children."""
        known = self._known(state)
        if not known:
            return newborns(self._network, self._seed, generation, range(self._P))
        survivors = state.genomes.take(np.arange(known))
        return concatenate(survivors, self._children(state, generation, range(known, self._P)))

    def tell(self, state: Elite, genomes: Genomes, fitness: Float64, traces: Float32) -> Elite:
        """Score the survivors again, and keep the best of them and of the newcomers."""
        P, W, known = self._P, self._network.weights, self._known(state)
        expect(genomes.weights, "genomes.weights", "P W", np.float32, P=P, W=W)
        expect(fitness, "fitness", "P", np.float64, P=P)
        generation = evaluated(genomes, fitness)
        survivors = state.take(np.arange(known)).evaluated_again(generation, known)
        newcomers = generation.take(np.arange(known, P)).best(self._size).shrunk(self._prior, fitness)
        return join(survivors, newcomers).best(self._size)

    def champion(self, state: Elite) -> Genomes:
        """Return the leader of the elite."""
        return state.genomes.take(np.zeros(1, np.intp))

    def to_arrays(self, state: Elite) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        return to_arrays("elite", state)

    def from_arrays(self, arrays: Arrays) -> Elite:
        """Return the state of those arrays. Raises ValueError when one is missing or has another shape."""
        return from_arrays(arrays, "elite", self._network.weights)

    def _known(self, state: Elite) -> int:
        return min(self._survivors, len(state.count))

    def _children(self, state: Elite, generation: int, candidates: range) -> Genomes:
        """Return the children of an elite that is not empty, one for each of the candidates."""
        raise NotImplementedError
