"""What a search strategy is to the rest of the engine: a pure ask and a pure tell over an explicit state.

`ask` returns the genomes of a generation; `tell` takes in how they did, and returns the state before the next one.
All randomness comes from streams keyed by (seed, purpose, generation, candidate), so the state is nothing but arrays,
and a strategy whose state was stored and restored asks for the same genomes.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError
from evolve.genome import GenomeLayout, Genomes, GenomeSource, concatenate, pruned
from evolve.numerics import ordered_sum
from evolve.numerics.streams import Purpose, Stream, Streams
from evolve.shapes import Float32, Float64, Int64, check_shape

State = TypeVar("State")
Value = TypeVar("Value")
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Results:
    """What a strategy learns about the P candidates of a generation.

    fitness: [P] float64, higher is better, NaN is worst.
    traces: [P, T] float32, the traces of each candidate's network, averaged over its episodes; [P, 0] by default.
    mean_traces: [T], the same averaged over all candidates, for strategies that need no more; by default not known.
    sums: [W, *sum_shape], what the strategy's `sums` returned, its columns computed anywhere; by default not known.

    Raises ValueError for other shapes or types.
    """

    fitness: Float64
    traces: Float32 = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    mean_traces: Float64 | None = None
    sums: Float64 | None = None

    def __post_init__(self) -> None:
        check_shape(self.fitness, "fitness", "P", np.float64)
        P = len(self.fitness)
        if not self.traces.size:
            object.__setattr__(self, "traces", np.zeros((P, 0), np.float32))
        check_shape(self.traces, "traces", "P T", np.float32, P=P)


class Strategy(Generic[State]):
    """A strategy for P candidates of one genome layout: the base class of all of them.

    A subclass implements `start`, `ask`, `tell`, `champion`, `to_arrays` and `from_arrays`, and overrides attributes
    whose defaults do not fit. An instance may override an attribute, too.

    Attributes:
        portable: True if ask and tell give the same bits on every machine. Then every rank holds the state and makes
            the candidates that it plays. False: the bits repeat only on machines of the same kind.
        shared_mask: True if all candidates have the same connections.
        traces: The traces that `tell` reads: those of "each" candidate, their "mean", or "none".
        grows: True if `tell` accepts the results of only the first n candidates, for even n and even P.
        compares_generations: True if the strategy compares returns of different generations.
        sum_shape: Shape of the sums per weight that `sums` returns: () for one number, (k,) for k numbers, None for no
            sums.
        capacity: Largest number of genomes in a state; None if a state holds no genomes.
    """

    portable: bool = False
    shared_mask: bool = False
    traces: Literal["each", "mean", "none"] = "each"
    grows: bool = False
    compares_generations: bool = False
    sum_shape: tuple[int, ...] | None = None
    capacity: int | None = None

    @staticmethod
    def validate(options: Any, layout: GenomeLayout) -> None:
        """Raise InputError for options that make no sense in a new run.

        Runs that were begun with such options can still be resumed and examined.
        """

    @abstractmethod
    def start(self) -> State:
        """Return the state before generation 0."""
        raise NotImplementedError

    @abstractmethod
    def ask(self, state: State, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return the P candidates of a generation; or some [n] of at least one, equal to those rows of the whole."""
        raise NotImplementedError

    @abstractmethod
    def tell(self, state: State, genomes: GenomeSource, results: Results) -> State:
        """Return the state after a generation.

        Args:
            state: That the genomes were asked for with.
            genomes: The P candidates that `ask` returned, unchanged, or what makes them once more: take few.
            results: What their evaluation gave.
        """
        raise NotImplementedError

    @abstractmethod
    def champion(self, state: State) -> Genomes:
        """Return the genome (P = 1) the strategy believes to be best. Needs one tell."""
        raise NotImplementedError

    @abstractmethod
    def to_arrays(self, state: State) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        raise NotImplementedError

    @abstractmethod
    def from_arrays(self, arrays: Arrays) -> State:
        """Return the state those arrays stand for. Raises ValueError when a shape does not fit."""
        raise NotImplementedError

    def start_anew(self, _generation: int) -> State:
        """Return a state like that of `start`, with the initial genomes of a generation's key."""
        return self.start()

    def survivors(self, _state: State) -> int:
        """Return the number of leading candidates of the next generation that were evaluated before."""
        return 0

    def sums(self, state: State, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return [n, *sum_shape]: sums over all candidates, for some columns of the genome.

        Ranks share the columns among them, and `tell` reads all sums from `results.sums`. A column must not depend on
        other columns, so that the bits do not depend on how columns are shared.

        Args:
            state: The state before the generation.
            generation: Its number.
            fitness: [P].
            columns: A slice of range(W).
        """
        raise NotImplementedError

    def distribution(self, state: State) -> tuple[Float64, Float64]:
        """Return the mean and the standard deviation of each weight, both [W]; undefined outside the mask.

        Pruning in rounds needs this method.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class AskedGenomes(Generic[State]):
    """The P candidates of a generation, made by the strategy whenever they are needed."""

    strategy: Strategy[State]
    state: State
    generation: int
    population: int
    num_weights: int

    def __len__(self) -> int:
        return self.population

    def take(self, candidates: Int64) -> Genomes:
        """Return the given candidates, in that order."""
        return self.strategy.ask(self.state, self.generation, candidates)


class Newest(Generic[State, Value]):
    """A function of state and generation that remembers its newest value: candidates are asked for a few at a time."""

    def __init__(self, function: Callable[[State, int], Value]) -> None:
        self._function = function
        self._newest: tuple[State, int, Value] | None = None

    def __call__(self, state: State, generation: int) -> Value:
        """Return the function's value."""
        newest = self._newest
        if newest is None or newest[0] is not state or newest[1] != generation:
            newest = self._newest = state, generation, self._function(state, generation)
        return newest[2]


def everyone(population: int, candidates: Int64 | None) -> Int64:
    """Return candidates [n], which are all of a population by default."""
    return np.arange(population) if candidates is None else candidates


def wanted_traces(strategy: Strategy[Any], num_traces: int) -> Literal["each", "mean", "none"]:
    """Return whose traces a strategy needs in `tell`, where an episode leaves T of them."""
    return strategy.traces if num_traces else "none"


def is_made_anywhere(strategy: Strategy[Any], num_traces: int) -> bool:
    """Return whether every rank can make a strategy's candidates from its state, where an episode leaves T traces."""
    return strategy.portable and wanted_traces(strategy, num_traces) != "each"


def check_population(genomes: GenomeSource, results: Results, P: int, W: int, grows: bool = False) -> None:
    """Check the arguments of `tell`.

    Args:
        genomes: The candidates.
        results: Those of the candidates.
        P: How many candidates there must be.
        W: How many weights each must have.
        grows: Whether the results may be those of the first candidates, in whole pairs.

    Raises:
        ValueError: There are more or fewer, of genomes or of results.
    """
    if isinstance(genomes, Genomes):
        check_shape(genomes.weights, "genomes.weights", "P W", np.float32, P=P, W=W)
    count = len(results.fitness)
    if not (grows and 2 <= count < P and count % 2 == 0):
        check_shape(results.fitness, "fitness", "P", np.float64, P=P)


def ranking(fitness: Float64) -> NDArray[np.intp]:
    """Return [P]: candidates from best to worst; equals keep their order, NaN comes last."""
    missing = np.isnan(fitness)
    return np.lexsort((np.where(missing, 0.0, -fitness), missing))


def need_weights(layout: GenomeLayout, strategy: str) -> None:
    """Raise InputError where weights have no effect, for a strategy that changes nothing else."""
    if not getattr(layout, "evolves_weights", True):
        cure = "Others change masks: prune, umda, random."
        expected = "one that changes masks, for weights have no effect on the network"
        raise InputError("strategy.name", expected, strategy, cure)


def initial_genomes(layout: GenomeLayout, seed: int, generation: int, candidates: Iterable[int]) -> Genomes:
    """Return new genomes, one for each of the candidates, drawn from the streams of their keys.

    Args:
        layout: That of the genomes.
        seed: That of the experiment.
        generation: In which the candidates are.
        candidates: Their numbers in the population.
    """
    if getattr(layout, "inits_many", False):
        init: Callable[[Streams], Genomes] = layout.init  # type: ignore[assignment]
        return init(Streams(seed, Purpose.INIT, generation, np.fromiter(candidates, np.int64)))
    return concatenate(*(layout.init(Stream(seed, Purpose.INIT, generation, int(p))) for p in candidates))


def other_weights(layout: GenomeLayout, seed: int, generation: int, initial: Genomes) -> Genomes:
    """Return another initial genome (P = 1) with the connections of a first one; one that it lacks has the weight 0.

    generation: That of the key of its stream; above 0, for the first one is that of generation 0.
    """
    other = initial_genomes(layout, seed, generation, range(1))
    return pruned(other.weights, initial.mask)


def mean_fitness(fitness: Float64, first: int | None = None) -> float:
    """Return the mean fitness of the first candidates, by default of all P; -∞ where nothing is finite.

    fitness: [P]; the smallest finite one of all takes the place of what is not finite.
    """
    finite = np.isfinite(fitness)
    if not finite.any():
        return -np.inf
    of = np.where(finite, fitness, fitness[finite].min())[:first]
    return float(ordered_sum(of)) / len(of)
