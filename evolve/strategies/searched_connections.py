"""The connections of an initial genome, where a strategy searches these alone and gives them to all candidates."""

from dataclasses import dataclass

import numpy as np

from evolve.errors import InputError, pluralize
from evolve.genome import GenomeLayout, Genomes
from evolve.shapes import Float32, Float64, Int64
from evolve.strategies.strategy import initial_genomes

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
