"""What the strategies random, ga and umda share: an elite that opens every generation and is evaluated again in it.

The state is the elite, best first. A generation consists of the survivors, which are the first members of the elite,
unchanged, and of children made from the elite. After a generation the elite is the best of the survivors and the
children by score (the mean over all evaluations of a genome). So no genome stays in the elite without being evaluated
again, and a lucky score lasts one generation.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.genome import GenomeLayout, Genomes, GenomeSource
from evolve.numerics.streams import Purpose, Stream
from evolve.shapes import Int64
from evolve.strategies.scored_genomes import (
    ScoredGenomes,
    evaluated,
    from_arrays,
    join,
    no_scored_genomes,
    survivors_and_children,
    to_arrays,
)
from evolve.strategies.strategy import Arrays, Results, check_population, everyone, initial_genomes, ranking


class ElitistOptions(Options):
    """Settings of `[strategy]` that elitist strategies share.

    survivors: how many are kept unchanged and evaluated again; at most P - 1.
    prior_evaluations: how many evaluations with the mean fitness of its first generation a new genome is credited with.
    """

    survivors: int = Field(4, ge=1)
    prior_evaluations: int = Field(0, ge=0, le=1000)


class Elitist:
    """A strategy for P = `population` candidates of a layout whose state is an elite of at most `size` members.

    A subclass says in `_children` how children are made from the elite.
    """

    portable = True
    traces = "none"

    def __init__(self, options: ElitistOptions, layout: GenomeLayout, population: int, seed: int, size: int) -> None:
        self._layout = layout
        self._P = population
        self._seed = seed
        self.capacity = size
        """How many genomes a state holds at most."""
        self._most_survivors = min(options.survivors, size, population - 1)
        self._prior = options.prior_evaluations

    def start(self) -> ScoredGenomes:
        """Return the state before generation 0: the elite is empty."""
        return no_scored_genomes(self._layout.num_weights)

    def start_anew(self, _generation: int) -> ScoredGenomes:
        """Return the state before a generation that is to have initial genomes of its own: that of `start`."""
        return self.start()

    def survivors(self, state: ScoredGenomes) -> int:
        """Return how many candidates of the next generation, its first ones, have been evaluated before."""
        return min(self._most_survivors, len(state))

    def ask(self, state: ScoredGenomes, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates: initial genomes in generation 0, later the survivors and then the children."""
        candidates = everyone(self._P, candidates)
        known = self.survivors(state)
        if not known:
            return initial_genomes(self._layout, self._seed, generation, candidates)
        return survivors_and_children(
            candidates, known, state.genomes.take, lambda children: self._children(state, generation, children)
        )

    def tell(self, state: ScoredGenomes, genomes: GenomeSource, results: Results) -> ScoredGenomes:
        """Score the survivors again, and keep the best of them and of the new candidates."""
        check_population(genomes, results, self._P, self._layout.num_weights)
        known = self.survivors(state)
        fitness = results.fitness
        survivors = state.take(np.arange(known)).with_evaluation(fitness[:known])
        best = known + ranking(fitness[known:])[: self.capacity]
        new = evaluated(genomes.take(best), fitness[best]).with_prior(self._prior, fitness)
        return join(survivors, new).best(self.capacity)

    def champion(self, state: ScoredGenomes) -> Genomes:
        """Return the leader of the elite."""
        return state.genomes.take(np.zeros(1, np.intp))

    def to_arrays(self, state: ScoredGenomes) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        return to_arrays("elite", state)

    def from_arrays(self, arrays: Arrays) -> ScoredGenomes:
        """Return the state of those arrays. Raises ValueError when one is missing or has another shape."""
        return from_arrays(arrays, "elite", self._layout.num_weights)

    def _children(self, state: ScoredGenomes, generation: int, candidates: Int64) -> Genomes:
        """Return the children of an elite that is not empty, one for each of the candidates [n]."""
        raise NotImplementedError

    def _parents(self, bound: int, state: ScoredGenomes, generation: int, candidates: Int64) -> Int64:
        """Return [n]: the parent of each of the candidates, drawn uniformly from the first members of the elite."""
        known = self.survivors(state)
        drawn = Stream(self._seed, Purpose.PARENTS, generation).below(bound, self._P - known)
        return drawn[candidates - known]
