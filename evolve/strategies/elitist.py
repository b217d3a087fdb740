"""The strategies random, ga and umda, which evaluate their best genomes again in every generation.

`random` is the control: its children are initial genomes. `ga` is a simple genetic algorithm without crossover (Such et
al., "Deep Neuroevolution", 2017, algorithm 1). `umda` is a univariate estimation-of-distribution algorithm over masks,
as in the second version of the script of 2020 with which this project began.

A generation consists of survivors and children. The elite of a generation is the genomes with the best scores. `ga`
and `umda` take the parents of the next generation from the elite. The best of the elite also survive: they are
evaluated again, so a lucky score does not last. The score of a genome is its mean fitness over all generations in which
it was evaluated.

A new genome is scored as if it had `prior_evaluations` more evaluations, each with the mean fitness of all candidates
of its first generation. This shrinks a single high fitness towards the mean until later evaluations confirm it.

A search may begin with a given genome (`StartLayout`). At first the elite is this genome alone: the genome is candidate
0 of generation 0, and the other candidates are its children.

`nsga2` and `prune` have the base class `Elitist`, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.errors import InputError
from evolve.genome import GenomeLayout, Genomes, GenomeSource, concatenate, no_genomes, pruned
from evolve.numerics import ordered_sum
from evolve.numerics.perturbation import add_noise
from evolve.numerics.streams import Purpose, Stream, Streams
from evolve.shapes import Float32, Float64, Int64, ceil_div
from evolve.strategies import strategy as contract
from evolve.strategies.wrapper import StartOptions


@dataclass(frozen=True)
class ScoredGenomes:
    """N genomes and their scores.

    traces: [N, T] float32, the Hebbian traces of the newest evaluation; T = 0 if traces are not used.
    total: [N] float64, the sum of the fitness over all evaluations, including prior ones (`with_prior`).
    count: [N] int64, the number of evaluations, including prior ones; 0 for a given genome before generation 0.
    """

    genomes: Genomes = contract.stored(Genomes)
    traces: Float32 = contract.stored("N T", np.float32)
    total: Float64 = contract.stored("N")
    count: Int64 = contract.stored("N", np.int64)

    @classmethod
    def evaluated(cls, genomes: Genomes, fitness: Float64, traces: Float32 | None = None) -> "ScoredGenomes":
        """Return N genomes after one evaluation. traces: [N, T]; None if traces are not used."""
        N = len(genomes)
        return cls(genomes, np.zeros((N, 0), np.float32) if traces is None else traces, fitness, np.ones(N, np.int64))

    @classmethod
    def initial(cls, layout: GenomeLayout, T: int = 0) -> "ScoredGenomes":
        """Return the elite before generation 0: the genome of a `StartLayout`, or no genome.

        T: The number of traces of each genome.
        """
        genomes = layout.genome if isinstance(layout, contract.StartLayout) else no_genomes(layout.num_weights)
        N = len(genomes)
        return cls(genomes, np.zeros((N, T), np.float32), np.zeros(N), np.zeros(N, np.int64))

    def __len__(self) -> int:
        return len(self.count)

    @property
    def score(self) -> Float64:
        """Mean fitness over all evaluations, [N]; 0 for a genome without evaluations."""
        return self.total / np.maximum(self.count, 1)

    @property
    def evaluated_before(self) -> "ScoredGenomes":
        """All genomes, but not a given genome that no generation has evaluated yet."""
        return self if self.count.all() else self.take(np.flatnonzero(self.count))

    def take(self, which: NDArray[np.intp]) -> "ScoredGenomes":
        """Return n of the genomes, in this order. which: [n], their places among the N genomes."""
        return ScoredGenomes(self.genomes.take(which), self.traces[which], self.total[which], self.count[which])

    def best(self, n: int) -> "ScoredGenomes":
        """Return the n best by score, best first."""
        return self.take(contract.ranking(self.score)[:n])

    def joined(self, other: "ScoredGenomes") -> "ScoredGenomes":
        """Return these genomes followed by others."""
        return ScoredGenomes(
            concatenate(self.genomes, other.genomes),
            np.concatenate([self.traces, other.traces]),
            np.concatenate([self.total, other.total]),
            np.concatenate([self.count, other.count]),
        )

    def with_prior(self, prior: int, fitness: Float64) -> "ScoredGenomes":
        """Return the genomes as if they had `prior` more evaluations, each with the mean of the given fitness [P].

        Fitness that is not finite does not count in that mean.
        """
        # Without this line, `prior * mean` below would be 0 · ∞ = NaN if the sum of the fitness overflows.
        if not prior:
            return self
        finite = fitness[np.isfinite(fitness)]
        mean = float(ordered_sum(finite)) / max(len(finite), 1)
        return replace(self, total=self.total + prior * mean, count=self.count + prior)

    def with_evaluation(self, fitness: Float64, traces: Float32 | None = None) -> "ScoredGenomes":
        """Return the genomes after another evaluation of the first n of them.

        fitness: [n]. traces: [n, T]; None if traces are not used.
        """
        n = len(fitness)
        # Copies, because a state must not change.
        total, count, newest_traces = self.total.copy(), self.count.copy(), self.traces.copy()
        total[:n] += fitness
        count[:n] += 1
        if traces is not None:
            newest_traces[:n] = traces
        return ScoredGenomes(self.genomes, newest_traces, total, count)


class ElitistOptions(Options):
    """Settings of `[strategy]` that elitist strategies share."""

    survivors: int = Field(4, ge=1)
    """The number of genomes that are kept unchanged and evaluated again; at most P - 1."""
    prior_evaluations: int = Field(0, ge=0, le=1000)
    """Extra evaluations in the score of a new genome, each with the mean fitness of its first generation."""


class Elitist(contract.Strategy[contract.State]):
    """A strategy with an elite of scored genomes. In a generation, the survivors come first, and the children follow.

    A subclass implements `_elite` and `_children`.

    Args:
        layout: The layout of the genomes.
        population: P.
        seed: The seed of the experiment.
        size: The largest number of genomes in the elite.
        survivors: The largest number of survivors. At most P - 1 genomes survive, so at least one candidate is new.
        prior: The `prior_evaluations` of a new genome.
    """

    portable = True  # `ask` and `tell` give the same bits on every machine
    compares_generations = True  # scores are means over several generations
    warm_starts = True  # a search can begin with a given genome

    def __init__(self, layout: GenomeLayout, population: int, seed: int, size: int, survivors: int, prior: int) -> None:
        self._layout = layout
        self._P = population
        self._seed = seed
        self._elite_size = size
        self.capacity = size  # for the estimate of the memory that a state takes
        self._max_survivors = min(survivors, size, population - 1)
        self._prior = prior

    def survivors(self, state: contract.State) -> int:
        """Return n: candidates 0 to n - 1 of the next generation were evaluated before."""
        # A count of 0 marks a given genome that no generation has evaluated yet.
        return self._num_copies(state) if self._elite(state).count.all() else 0

    def ask(self, state: contract.State, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates: the survivors and then the children. If there is no elite, all are initial genomes."""
        candidates = contract.requested_candidates(self._P, candidates)
        num_copies, elite = self._num_copies(state), self._elite(state).genomes
        if not num_copies:
            return contract.initial_genomes(self._layout, self._seed, generation, candidates)
        is_copy = candidates < num_copies
        if is_copy.all():
            return elite.take(candidates)
        children = self._children(state, generation, candidates[~is_copy])
        if not is_copy.any():
            return children
        return contract.interleaved(is_copy, elite.take(candidates[is_copy]), children)

    def champion(self, state: contract.State) -> Genomes:
        """Return the best genome of the elite. Raises InputError if there is no elite, as before the first `tell`."""
        self._require_elite(state)
        return self._elite(state).genomes.take(np.zeros(1, np.intp))

    def _require_elite(self, state: contract.State) -> None:
        if not len(self._elite(state)):
            raise InputError("state", "a state that `tell` has returned", "a state without evaluated genomes")

    def _num_copies(self, state: contract.State) -> int:
        """Return n: candidates 0 to n - 1 of the next generation are copies of the elite.

        The copies are the survivors, or in generation 0 the given genome of a search.
        """
        return min(self._max_survivors, len(self._elite(state)))

    def _elite(self, state: contract.State) -> ScoredGenomes:
        """Return the elite in a state, best first."""
        raise NotImplementedError

    def _children(self, state: contract.State, generation: int, candidates: Int64) -> Genomes:
        """Return the children with the candidate numbers [n]. The elite is not empty."""
        raise NotImplementedError


class EliteOnly(Elitist[ScoredGenomes]):
    """An elitist strategy with no other state than the elite."""

    traces = "none"

    def start(self) -> ScoredGenomes:
        """Return the state before generation 0: the elite is empty, or a given genome."""
        return ScoredGenomes.initial(self._layout)

    def tell(self, state: ScoredGenomes, genomes: GenomeSource, results: contract.Results) -> ScoredGenomes:
        """Score the survivors again, and keep the best of the survivors and the new candidates."""
        contract.check_population(genomes, results, self._P, self._layout.num_weights)
        n, fitness = self.survivors(state), results.fitness
        # Candidate i < n is genome i of the elite, see `ask`. The rest of the elite was not evaluated, and is dropped.
        survivors = state.take(np.arange(n)).with_evaluation(fitness[:n])
        # Only the best new candidates can enter the elite, so a lazy source computes only their genomes.
        best = n + contract.ranking(fitness[n:])[: self._elite_size]
        new = ScoredGenomes.evaluated(genomes.take(best), fitness[best]).with_prior(self._prior, fitness)
        return survivors.joined(new).best(self._elite_size)

    def to_arrays(self, state: ScoredGenomes) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        return contract.arrays_of(state, "elite_")

    def from_arrays(self, arrays: contract.Arrays) -> ScoredGenomes:
        """Return the state that `to_arrays` stored. Raises ValueError if an array is missing or has another shape."""
        return contract.state_of(ScoredGenomes, arrays, "elite_", {"W": self._layout.num_weights, "T": 0})

    def _elite(self, state: ScoredGenomes) -> ScoredGenomes:
        return state

    def _parents(self, num_parents: int, state: ScoredGenomes, generation: int, candidates: Int64) -> Genomes:
        """Return copies of the parents of n candidates, drawn uniformly from the best `num_parents` of the elite."""
        num_copies = self._num_copies(state)
        # All children share one stream. So draw the parents of all, and return the parents of the given candidates.
        places = Stream(self._seed, Purpose.PARENTS, generation).below(num_parents, self._P - num_copies)
        return state.genomes.take(places[candidates - num_copies])


class RandomOptions(ElitistOptions):
    """Settings of `[strategy]` for random."""


class Random(EliteOnly):
    """Random search with P = `population` candidates of a layout."""

    def __init__(self, options: RandomOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        size = min(options.survivors, population - 1)
        super().__init__(layout, population, seed, size, options.survivors, options.prior_evaluations)

    def _children(self, state: ScoredGenomes, generation: int, candidates: Int64) -> Genomes:
        # All initial genomes of a `StartLayout` equal the given genome, so children come from the layout that it wraps.
        layout = self._layout.layout if isinstance(self._layout, contract.StartLayout) else self._layout
        return contract.initial_genomes(layout, self._seed, generation, candidates)


class GaOptions(ElitistOptions, StartOptions):
    """Settings of `[strategy]` for ga."""

    parents: int = Field(20, ge=1)
    """The number of the best genomes that have children."""
    weight_noise: float = Field(0.1, ge=0, le=1e6)
    """The standard deviation of the noise that is added to a weight."""


class Ga(EliteOnly):
    """ga, the genetic algorithm, for P = `population` candidates of a layout."""

    def __init__(self, options: GaOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        size = max(options.parents, options.survivors)
        super().__init__(layout, population, seed, size, options.survivors, options.prior_evaluations)
        self._options = options

    @staticmethod
    def validate(options: GaOptions, layout: GenomeLayout) -> None:
        """Raise InputError for a layout that has no weights to search, and settings without effect."""
        contract.require_evolved_weights(layout, "ga")
        options.check_combinations()

    def _children(self, state: ScoredGenomes, generation: int, candidates: Int64) -> Genomes:
        # Copies of the parents, to which noise is added.
        children = self._parents(min(self._options.parents, len(state)), state, generation, candidates)
        key = self._seed, Purpose.WEIGHT_NOISE, generation
        add_noise(children.weights, children.mask, self._options.weight_noise, key, candidates)
        return children


class UmdaOptions(Options):
    """Settings of `[strategy]` for umda.

    The script of 2020 had mask_noise 0.1, min_probability 0.05 and weight_noise 0.
    """

    aliases: ClassVar[Mapping[str, str]] = {"rarest": "min_probability"}

    mask_noise: float = Field(0.02, ge=0, le=1e6)
    """The standard deviation of the noise that is added to the probability of a connection."""
    min_probability: float = Field(0.005, ge=0, le=0.5)
    """The least probability of a connection, and of its absence."""
    weight_noise: float = Field(0.4, ge=0, le=1e6)
    """The standard deviation of the noise that is added to a weight."""
    prior_evaluations: int = Field(0, ge=0, le=1000)
    """Extra evaluations in the score of a new genome, each with the mean fitness of its first generation."""


class Umda(EliteOnly):
    """umda, the estimation of distribution algorithm, for P = `population` candidates of a layout."""

    def __init__(self, options: UmdaOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        K = ceil_div(population, 8)  # the size of the elite; the leaderboard of prune has this size, too
        super().__init__(layout, population, seed, size=K, survivors=K, prior=options.prior_evaluations)
        self._options = options
        self._cached_probability = contract.NewestValue(self.connection_probability)

    def _children(self, state: ScoredGenomes, generation: int, candidates: Int64) -> Genomes:
        probability = self._cached_probability(state, generation)
        parents = self._parents(len(state), state, generation, candidates)
        streams = Streams(self._seed, Purpose.MASKS, generation, candidates)
        # A connection is present if its uniform random number is below its probability.
        mask = ~streams.at_least(probability, self._layout.num_weights)
        # A new connection, which the parent lacks, begins with a standard normal weight.
        np.copyto(parents.weights, streams.normal_rows(self._layout.num_weights), where=mask & ~parents.mask)
        if self._options.weight_noise:
            key = self._seed, Purpose.WEIGHT_NOISE, generation
            add_noise(parents.weights, mask, self._options.weight_noise, key, candidates)
        return pruned(parents.weights, mask)

    def connection_probability(self, state: ScoredGenomes, generation: int) -> Float64:
        """Return the probability [W] of each connection in a child: its share in the elite, plus noise, clipped."""
        # The noise is from the stream of candidate 0, which no child uses: candidate 0 is always a survivor.
        noise = Stream(self._seed, Purpose.MASKS, generation).normal(self._layout.num_weights)
        mean = np.count_nonzero(state.genomes.mask, axis=0) / len(state)
        noisy = mean + self._options.mask_noise * noise.astype(np.float64)
        min_probability = self._options.min_probability
        return np.clip(noisy, min_probability, 1 - min_probability)
