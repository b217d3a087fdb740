"""random: the control. Every generation is newborn but for the best so far, which are evaluated again.

A strategy that does not clearly beat it on the same budget has learned nothing.
"""

from evolve.genome import Genomes
from evolve.networks import Network
from evolve.strategies.contract import newborns
from evolve.strategies.elite import Elite
from evolve.strategies.elitist import Elitist, ElitistOptions


class RandomOptions(ElitistOptions):
    """Settings of `[strategy]` for random."""


class Random(Elitist):
    """Random search with P = `population` candidates of `network`."""

    def __init__(self, options: RandomOptions, network: Network, population: int, seed: int) -> None:
        super().__init__(options, network, population, seed, size=min(options.survivors, population - 1))

    def _children(self, state: Elite, generation: int, candidates: range) -> Genomes:
        return newborns(self._network, self._seed, generation, candidates)
