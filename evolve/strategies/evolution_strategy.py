"""What cma-es, sep-cma-es, openai-es and pgpe share: they search around one genome, an initial one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError, pluralize
from evolve.genome import GenomeLayout, Genomes
from evolve.numerics.perturbation import StreamsKey
from evolve.numerics.streams import Purpose
from evolve.shapes import Float32, Float64, Int64
from evolve.strategies.strategy import State, Strategy, initial_genomes, other_weights

_FEWEST = 4  # candidates of a strategy that adapts a covariance: with fewer, one parent only


@dataclass(frozen=True)
class SearchedConnections:
    """The n connections of an initial genome, of W weights.

    initial: The genome (P = 1). places: [n], where its connections are, in rising order.
    """

    initial: Genomes
    places: Int64

    def __len__(self) -> int:
        return len(self.places)

    def weights(self, genome: Genomes) -> Float64:
        """Return [n]: those of a genome (P = 1)."""
        weights: Float64 = genome.weights[0, self.places].astype(np.float64)
        return weights

    def within(self, columns: slice) -> tuple[Int64, slice]:
        """Return where in some columns of W there are connections, [k], and which of the n these are."""
        first, last = np.searchsorted(self.places, [columns.start, columns.stop])
        return self.places[first:last] - columns.start, slice(int(first), int(last))

    def genomes(self, x: Float32) -> Genomes:
        """Return the genomes of connections [N, n]."""
        W = self.initial.weights.shape[1]
        if len(self) == W:
            weights = x
        else:
            weights = np.zeros((len(x), W), np.float32)
            weights[:, self.places] = x
        return Genomes(weights, np.repeat(self.initial.mask, len(x), axis=0))


def searched_connections(layout: GenomeLayout, population: int, seed: int, strategy: str) -> SearchedConnections:
    """Return what a strategy of that name, which adapts a covariance, searches.

    Raises InputError where the connections or the P candidates are too few.
    """
    if population < _FEWEST:
        raise InputError("population", f"at least {_FEWEST} for {strategy}", population)
    initial = initial_genomes(layout, seed, 0, range(1))
    connections = SearchedConnections(initial, np.flatnonzero(initial.mask[0]))
    if len(connections) < 2:
        expected = f"genomes of at least 2 connections with {strategy}"
        raise InputError("strategy.name", expected, pluralize(len(connections), "connection"))
    return connections


class EvolutionStrategy(Strategy[State]):
    """A strategy for P = `population` candidates of a layout, all of which have the connections of an initial genome.

    The state is a dataclass of arrays. A subclass says in `_started` which one the search begins with.
    """

    portable = True
    shared_mask = True

    def __init__(self, layout: GenomeLayout, population: int, seed: int, initial: Genomes) -> None:
        self._layout = layout
        self._W = layout.num_weights
        self._P = population
        self._seed = seed
        self._initial = initial

    def start(self) -> State:
        """Return the state before generation 0: the search begins at an initial genome."""
        return self._started(self._initial)

    def start_anew(self, generation: int) -> State:
        """Return a state like that of `start`, with the initial weights of a generation's key."""
        return self._started(other_weights(self._layout, self._seed, generation, self._initial))

    def to_arrays(self, state: State) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        return dict(vars(state))

    def _started(self, initial: Genomes) -> State:
        """Return the state of a search that begins at a genome (P = 1)."""
        raise NotImplementedError

    def _key(self, generation: int) -> StreamsKey:
        """Return the key of the streams of a generation's deviates, numbered as candidates are, or as their pairs."""
        return self._seed, Purpose.WEIGHT_NOISE, generation
