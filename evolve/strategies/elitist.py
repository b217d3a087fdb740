"""The strategies random, ga and umda: an elite opens every generation and is evaluated again in it.

`random` is the control. `ga` is a simple genetic algorithm without crossover (Such et al., "Deep Neuroevolution", 2017,
algorithm 1). `umda` is a univariate estimation of distribution over masks, as in the second version of the 2020 script.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.genome import GenomeLayout, Genomes, GenomeSource, pruned
from evolve.numerics.perturbation import add_noise
from evolve.numerics.streams import Purpose, Stream, Streams
from evolve.shapes import Float64, Int64
from evolve.strategies.scored_genomes import (
    ScoredGenomes,
    evaluated,
    from_arrays,
    join,
    no_scored_genomes,
    survivors_and_children,
    to_arrays,
)
from evolve.strategies.strategy import (
    Arrays,
    Newest,
    Results,
    Strategy,
    check_population,
    everyone,
    initial_genomes,
    need_weights,
    ranking,
)
from evolve.strategies.wrapper import StartOptions, validate_starts


class ElitistOptions(Options):
    """Settings of `[strategy]` that elitist strategies share.

    survivors: how many are kept unchanged and evaluated again; at most P - 1.
    prior_evaluations: how many evaluations with the mean fitness of its first generation a new genome is credited with.
    """

    survivors: int = Field(4, ge=1)
    prior_evaluations: int = Field(0, ge=0, le=1000)


class Elitist(Strategy[ScoredGenomes]):
    """A strategy for P = `population` candidates of a layout whose state is an elite of at most `size` members.

    A subclass says in `_children` how children are made from the elite.
    """

    portable = True
    traces = "none"
    compares_generations = True

    def __init__(self, options: ElitistOptions, layout: GenomeLayout, population: int, seed: int, size: int) -> None:
        self._layout = layout
        self._P = population
        self._seed = seed
        self.capacity = self._size = size
        self._most_survivors = min(options.survivors, size, population - 1)
        self._prior = options.prior_evaluations

    def start(self) -> ScoredGenomes:
        """Return the state before generation 0: the elite is empty."""
        return no_scored_genomes(self._layout.num_weights)

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
        best = known + ranking(fitness[known:])[: self._size]
        new = evaluated(genomes.take(best), fitness[best]).with_prior(self._prior, fitness)
        return join(survivors, new).best(self._size)

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


class RandomOptions(ElitistOptions):
    """Settings of `[strategy]` for random."""


class Random(Elitist):
    """Random search with P = `population` candidates of a layout."""

    def __init__(self, options: RandomOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        super().__init__(options, layout, population, seed, size=min(options.survivors, population - 1))

    def _children(self, state: ScoredGenomes, generation: int, candidates: Int64) -> Genomes:
        return initial_genomes(self._layout, self._seed, generation, candidates)


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


class UmdaOptions(Options):
    """Settings of `[strategy]` for umda.

    mask_noise: the standard deviation of what is added to the probability of a connection.
    min_probability: the least probability of a connection, and of its absence.
    weight_noise: the standard deviation of what is added to a weight.
    prior_evaluations: how many evaluations with the mean fitness of its first generation a new genome is credited with.
    """

    aliases: ClassVar[Mapping[str, str]] = {"rarest": "min_probability"}

    mask_noise: float = Field(0.1, ge=0, le=1e6)
    min_probability: float = Field(0.05, ge=0, le=0.5)
    weight_noise: float = Field(0.0, ge=0, le=1e6)
    prior_evaluations: int = Field(0, ge=0, le=1000)


class Umda(Elitist):
    """The estimation of distribution for P = `population` candidates of a layout."""

    def __init__(self, options: UmdaOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        K = -(-population // 8)
        shared = ElitistOptions(survivors=K, prior_evaluations=options.prior_evaluations)
        super().__init__(shared, layout, population, seed, size=K)
        self._options = options
        self._probability_of = Newest(self._probability)

    def _children(self, state: ScoredGenomes, generation: int, candidates: Int64) -> Genomes:
        probability = self._probability_of(state, generation)
        parents = state.genomes.take(self._parents(len(state), state, generation, candidates))
        streams = Streams(self._seed, Purpose.MASKS, generation, candidates)
        mask = ~streams.at_least(probability, self._layout.num_weights)
        np.copyto(parents.weights, streams.normal_rows(self._layout.num_weights), where=mask & ~parents.mask)
        if self._options.weight_noise:
            key = self._seed, Purpose.WEIGHT_NOISE, generation
            add_noise(parents.weights, mask, self._options.weight_noise, key, candidates)
        return pruned(parents.weights, mask)

    def _probability(self, state: ScoredGenomes, generation: int) -> Float64:
        """Return p [W]; its noise comes from the stream of candidate 0, which is never a child."""
        noise = Stream(self._seed, Purpose.MASKS, generation).normal(self._layout.num_weights)
        mean = np.count_nonzero(state.genomes.mask, axis=0) / len(state)
        noisy = mean + self._options.mask_noise * noise.astype(np.float64)
        least = self._options.min_probability
        p: Float64 = np.clip(noisy, least, 1 - least)
        return p
