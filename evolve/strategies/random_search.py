"""random: the control. All candidates are new, except for the best so far, which are evaluated again.

A strategy that does not clearly beat it on the same budget has learned nothing.
"""

from evolve.genome import GenomeLayout, Genomes
from evolve.shapes import Int64
from evolve.strategies.elitist import Elitist, ElitistOptions
from evolve.strategies.scored_genomes import ScoredGenomes
from evolve.strategies.strategy import initial_genomes


class RandomOptions(ElitistOptions):
    """Settings of `[strategy]` for random."""


class Random(Elitist):
    """Random search with P = `population` candidates of a layout."""

    def __init__(self, options: RandomOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        super().__init__(options, layout, population, seed, size=min(options.survivors, population - 1))

    def _children(self, state: ScoredGenomes, generation: int, candidates: Int64) -> Genomes:
        return initial_genomes(self._layout, self._seed, generation, candidates)
