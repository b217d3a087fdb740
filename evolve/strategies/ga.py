"""ga: a simple genetic algorithm, after Such et al., "Deep Neuroevolution" (2017), algorithm 1; without crossover.

    parents   the T best of the last generation (truncation selection)
    child     a parent, drawn uniformly, whose every connection left moves by `weight_noise` · N(0, 1)

Such et al. evaluate the ten best 30 times more to find the one that is kept. Here the survivors are evaluated again in
every generation they stay in, and their score is the mean.
"""

from pydantic import Field

from evolve.genome import GenomeLayout, Genomes
from evolve.numerics.perturbation import add_noise
from evolve.numerics.streams import Purpose
from evolve.shapes import Int64
from evolve.strategies.elitist import Elitist, ElitistOptions
from evolve.strategies.multistart import StartOptions, validate_starts
from evolve.strategies.scored_genomes import ScoredGenomes
from evolve.strategies.strategy import need_weights


class GaOptions(ElitistOptions, StartOptions):
    """Settings of `[strategy]` for ga.

    parents: T, how many of the best have children.
    weight_noise: the standard deviation of what is added to a weight.
    """

    parents: int = Field(20, ge=1)
    weight_noise: float = Field(0.1, ge=0, le=1e6)


class Ga(Elitist):
    """The genetic algorithm for P = `population` candidates of a layout."""

    def __init__(self, options: GaOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        super().__init__(options, layout, population, seed, size=max(options.parents, options.survivors))
        self._num_parents = options.parents
        self._weight_noise = options.weight_noise

    @staticmethod
    def validate(options: GaOptions, layout: GenomeLayout) -> None:
        """Raise InputError for a layout of which nothing would change, and for the length of a start without others."""
        need_weights(layout, "ga")
        validate_starts(options)

    def _children(self, state: ScoredGenomes, generation: int, candidates: Int64) -> Genomes:
        T = min(self._num_parents, len(state))
        children = state.genomes.take(self._parents(T, state, generation, candidates))
        key = self._seed, Purpose.WEIGHT_NOISE, generation
        add_noise(children.weights, children.mask, self._weight_noise, key, candidates)
        return children
