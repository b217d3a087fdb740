"""The contract of a search strategy, and the helpers that strategies share.

A strategy has two pure functions of an explicit state. `ask` returns the genomes of a generation. `tell` takes the
results of these genomes and returns the next state. The state consists of arrays, and holds no generator of random
numbers: all random numbers come from streams with the key (seed, purpose, generation, candidate), see
`numerics.streams`. So `ask` returns the same genomes after the state was stored and restored.

`random` in `elitist` is the simplest strategy to read next. `docs/tutorial-strategy.md` writes a new one.
"""

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evolve.errors import InputError, one_line
from evolve.genome import GenomeLayout, Genomes, GenomeSource, concatenate, no_genomes
from evolve.numerics import ordered_sum
from evolve.numerics.streams import Purpose, Stream, Streams
from evolve.shapes import Bool, Float32, Float64, Int64, check_shape, read_only, stored_array

State = TypeVar("State")
Value = TypeVar("Value")
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Results:
    """The results of the P candidates of a generation, genomes of W weights.

    fitness: [P] numbers, kept as a read-only float64 array. Higher is better; NaN is worst.
    traces: [P, T] float32, the T Hebbian traces of each candidate's network, averaged over its episodes; [P, 0] by
        default.
    mean_traces: [T], the traces averaged over all candidates; if None, `average_traces` computes them from `traces`.
    sums: [W, *sum_shape], the strategy's `sums` for all columns; if None, `tell` computes the sums.
    measures: [P, D], the strategy's `measures`; if None, `tell` computes the measures from the genomes alone.

    Raises:
        InputError: The fitness is not an array [P] of numbers.
        ValueError: The traces or the measures have another shape or type.
        TypeError: The traces or the measures are not arrays.
    """

    fitness: Float64
    traces: Float32 = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    mean_traces: Float64 | None = None
    sums: Float64 | None = None
    measures: Float64 | None = None

    def __post_init__(self) -> None:
        # Only in this way can a frozen data class set its own fields.
        object.__setattr__(self, "fitness", _fitness_array(self.fitness))
        P = len(self.fitness)
        # The default is an array [0, 0], because it cannot know P.
        if not np.size(self.traces):
            object.__setattr__(self, "traces", np.zeros((P, 0), np.float32))
        check_shape(self.traces, "traces", "P T", np.float32, P=P)
        object.__setattr__(self, "traces", read_only(self.traces))
        if self.measures is not None:
            check_shape(self.measures, "measures", "P D", np.float64, P=P)

    def average_traces(self, T: int) -> Float64:
        """Return [T]: the traces averaged over all candidates. Raises ValueError unless each candidate has T traces."""
        if self.mean_traces is not None:
            return self.mean_traces
        check_shape(self.traces, "traces", "P T", np.float32, T=T)
        # `ordered_sum` sums over the last axis, so `.T` moves the candidates there.
        return ordered_sum(self.traces.T.astype(np.float64)) / len(self.traces)


def _fitness_array(fitness: Any) -> Float64:
    """Return a fitness [P] as read-only float64. Raises InputError unless it is an array or a list [P] of numbers."""
    expected = "the fitness of P candidates, an array [P] of numbers"
    try:
        array = np.asarray(fitness, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError("fitness", expected, f"{type(fitness).__name__} ({one_line(error)})") from None
    if array.ndim != 1:
        raise InputError("fitness", expected, f"an array of shape {list(array.shape)}")
    return read_only(array)  # `tell` must not change the fitness, because it is recorded afterwards


class Strategy(Generic[State]):
    """Base class of strategies. A strategy searches with P candidates in each generation, genomes of one layout.

    A subclass implements `start`, `ask`, `tell`, `champion`, `to_arrays` and `from_arrays`. If the default of an
    attribute does not fit, a subclass or an instance overrides the attribute.

    Attributes:
        portable: Whether `ask` and `tell` give the same bits on every machine. Every rank can then hold the state and
            compute the candidates that it plays, see `runs_on_every_rank`. If False, the bits repeat only on machines
            of the same kind.
        central: Whether rank 0 computes all candidates of a portable strategy. This is faster if computing a state
            takes longer than sending the candidates.
        shared_mask: Whether all candidates have the same connections.
        traces: The traces that `tell` reads: the traces of "each" candidate, their "mean", or "none".
        grows: Whether `tell` accepts the results of only the first n candidates, for even n and even P. A population
            can then grow until the generation has enough environment steps.
        antithetic: Whether candidates 2i and 2i + 1 are a pair on opposite sides of one centre. A pair can then play
            the same episodes (`common_random_numbers = "pairs"`).
        compares_generations: Whether the strategy compares returns of different generations. Their episodes must then
            have the same limit of steps.
        sum_shape: The shape of the sums that `sums` returns for one weight: () for one number, (k,) for k numbers. None
            if there are no sums.
        capacity: The largest number of genomes in a state; None if a state holds no genomes.
        measured: The names of the D measures of a candidate that `tell` reads besides the fitness.
        warm_starts: Whether a search can begin with a given genome. The layout is then a `StartLayout`: all its initial
            genomes equal the given genome. This genome must also be the champion of the state that `start` returns.
    """

    portable: bool = False
    central: bool = False
    shared_mask: bool = False
    traces: Literal["each", "mean", "none"] = "each"
    grows: bool = False
    antithetic: bool = False
    compares_generations: bool = False
    sum_shape: tuple[int, ...] | None = None
    capacity: int | None = None
    measured: tuple[str, ...] = ()
    warm_starts: bool = False

    @staticmethod
    def validate(options: Any, layout: GenomeLayout) -> None:
        """Raise InputError for options that make no sense in a new run. A resumed run keeps such options."""

    @abstractmethod
    def start(self) -> State:
        """Return the state before generation 0."""

    @abstractmethod
    def ask(self, state: State, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return the P candidates of a generation, or only the given candidates [n], n ≥ 1.

        The bits of a candidate must not depend on the other candidates of a call. Several threads may call this method
        at the same time.
        """

    @abstractmethod
    def tell(self, state: State, genomes: GenomeSource, results: Results) -> State:
        """Return the state after a generation.

        Args:
            state: The state before the generation, the same as for `ask`.
            genomes: The P candidates that `ask` returned, or a lazy source that computes genomes again when they are
                taken. So take as few genomes as possible.
            results: The results of the P candidates.
        """

    @abstractmethod
    def champion(self, state: State) -> Genomes:
        """Return the genome (P = 1) that the strategy estimates to be best.

        The state is a result of `tell`. If the search begins with a given genome, the state may also be the result of
        `start`, and its champion is the given genome. Without a given genome, some strategies refuse the result of
        `start`: no genome was evaluated yet.
        """

    def champion_generation(self, _state: State) -> int | None:
        """Return the generation that evaluated the champion; None if there is none, or if there may be several."""
        return None

    @abstractmethod
    def to_arrays(self, state: State) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""

    @abstractmethod
    def from_arrays(self, arrays: Arrays) -> State:
        """Return the state that `to_arrays` stored. Raises ValueError if an array is missing or has another shape."""

    def start_anew(self, _generation: int) -> State:
        """Return an initial state for a search that begins again in a later generation.

        A strategy with a random initial state should override this method, and draw from the streams of the generation.
        """
        return self.start()

    def survivors(self, _state: State) -> int:
        """Return n: candidates 0 to n - 1 of the next generation were evaluated before."""
        return 0

    def sums(self, state: State, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return [n, *sum_shape]: sums over all candidates, for n columns of the genome.

        Each rank sums some columns, and `tell` reads all sums from `results.sums`. The sums of a column must not depend
        on other columns, because every number of ranks must give the same bits.

        Args:
            state: The state before the generation.
            generation: The number of the generation.
            fitness: [P], the fitness of all candidates.
            columns: A slice of range(W).
        """
        raise NotImplementedError

    def measures(self, genomes: GenomeSource, metrics: Mapping[str, Float64]) -> Float64:
        """Return [P, D]: the measures that `measured` names. Rank 0 computes them for all ranks.

        Args:
            genomes: The P candidates.
            metrics: The metrics of the episodes by name, [P] each, averaged over a candidate's episodes.

        Raises:
            InputError: A measure is not known.
        """
        raise NotImplementedError

    def told_measures(self, genomes: GenomeSource, results: Results) -> Float64:
        """Return [P, D]: `results.measures`, or the measures of the genomes. Raises InputError if D is wrong."""
        measures = self.measures(genomes, {}) if results.measures is None else results.measures
        D = len(self.measured)
        if measures.shape[1] != D:
            expected = f"an array [P, {D}], a column for each of {', '.join(self.measured)}"
            raise InputError("measures", expected, f"an array of shape {list(measures.shape)}")
        return measures

    def outcome(self, _state: State) -> dict[str, Float64]:
        """Return the front or the archive after a generation, for the run file; {} if the strategy keeps neither.

        {"front": [P]} has the fitness of each candidate, NaN if it is not on the front. {"archive": [cells]} has the
        fitness of the elite of each cell, NaN if the cell is empty. The names are fields of `store.schema.Record`.
        """
        return {}

    def select(self, state: State, /, **which: Any) -> Genomes:
        """Return a genome (P = 1) that the strategy keeps besides its champion.

        Args:
            state: A state after a generation.
            which: One of these entries.
                connections: Select the best genome on a front with at most this number of connections that can act.
                member: Select this genome of a front, counted from 0 in the order of `Run.front`.
                cell: Select the elite of this cell of an archive. A strategy with elites also overrides `origin`.

        Raises:
            InputError: The strategy keeps no front, no archive, or no such genome.
        """
        if len(which) != 1:
            raise InputError("select", "one of connections, member and cell", ", ".join(which) or "none of them")
        cure = ""
        if type(self).select is Strategy.select and self.outcome(state):  # a strategy of another package
            cure = "This strategy has no method `select` that finds the genomes of its front or archive."
        [(name, value)] = which.items()
        keeper = "map-elites, which keeps an archive" if name == "cell" else "nsga2, which keeps a front"
        raise InputError(name, f"none, except with {keeper}", value, cure)

    def origin(self, state: State, cell: Sequence[int]) -> tuple[int, int]:
        """Return the generation and the candidate number of the elite in a cell of an archive.

        Raises InputError if the strategy keeps no archive, or the cell is empty.
        """
        self.select(state, cell=cell)  # raises InputError without an archive
        # The subclass keeps an archive, but has no method `origin`.
        raise InputError("cell", "a strategy that knows the generation of its elites (its method `origin`)", cell)

    def distribution(self, state: State) -> tuple[Float64, Float64]:
        """Return the mean and the standard deviation of each weight, both [W]. Pruned weights may have any values.

        Pruning in rounds needs this method.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class AskedGenomes(Generic[State]):
    """Lazy source of the P candidates of a generation: `take` lets the strategy compute them."""

    strategy: Strategy[State]
    state: State
    generation: int
    population: int
    num_weights: int

    def __len__(self) -> int:
        return self.population

    def take(self, candidates: Int64) -> Genomes:
        """Return the given candidates, in the given order."""
        if not len(candidates):  # `ask` is called for one candidate or more
            return no_genomes(self.num_weights)
        return self.strategy.ask(self.state, self.generation, candidates)


class NewestValue(Generic[State, Value]):
    """Cache of the newest value of a function of state and generation.

    Several threads of a rank call `ask`, each for a few candidates. With the cache, the function is computed once for
    each generation instead of once for each call.
    """

    def __init__(self, function: Callable[[State, int], Value]) -> None:
        self._function = function
        self._newest: tuple[State, int, Value] | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the cache without its value, because a lock cannot be pickled."""
        return NewestValue, (self._function,)

    def __call__(self, state: State, generation: int = 0) -> Value:
        """Return the value of the function. Omit the generation if the value depends only on the state."""
        # While one thread computes the value, the others wait for it. A state never changes, so it is enough to compare
        # the identities of states.
        with self._lock:
            if self._newest is None or self._newest[0] is not state or self._newest[1] != generation:
                self._newest = state, generation, self._function(state, generation)
            return self._newest[2]


def requested_candidates(population: int, candidates: Int64 | None) -> Int64:
    """Return the given candidates [n], or all P of the population if `candidates` is None.

    Raises InputError for a number that no candidate has.
    """
    if candidates is None:
        return np.arange(population)
    candidates = np.asarray(candidates)  # the caller may have a list
    if not ((candidates >= 0) & (candidates < population)).all():
        raise InputError("candidates", f"numbers from 0 to {population - 1}", candidates.tolist())
    return candidates


def wanted_traces(strategy: Strategy[Any], num_traces: int) -> Literal["each", "mean", "none"]:
    """Return `strategy.traces`, or "none" if the network has no traces. num_traces: T, the number of its traces."""
    return strategy.traces if num_traces else "none"


def runs_on_every_rank(strategy: Strategy[Any], num_traces: int) -> bool:
    """Return whether every rank runs the strategy, and computes the candidates that it plays from the state.

    Otherwise rank 0 computes all candidates: if the strategy is `central`, or not portable, or needs the traces of each
    candidate, which only rank 0 receives.

    num_traces: T, the number of traces of a network.
    """
    return strategy.portable and not strategy.central and wanted_traces(strategy, num_traces) != "each"


def check_population(genomes: GenomeSource, results: Results, P: int, W: int, grows: bool = False) -> None:
    """Check the arguments of `tell`.

    Args:
        genomes: The candidates.
        results: The results of the candidates.
        P: The required number of candidates. Without `grows` it is also the required number of results.
        W: The required number of weights.
        grows: Whether the results of only the first n candidates are accepted, for even n.

    Raises:
        InputError: `results` is not a `Results`, or the number of results is wrong, or a weight is not finite.
        ValueError: The number or the size of the genomes is wrong. Only genomes in memory are checked.
    """
    if not isinstance(results, Results):
        cure = "Write tell(state, genomes, evolve.strategies.Results(fitness))."
        raise InputError("results", "the `Results` of the candidates", f"an object of {type(results).__name__}", cure)
    if not hasattr(genomes, "take") or isinstance(genomes, np.ndarray):  # an array has a method `take`, too
        cure = "For changed weights write evolve.genome.Genomes(weights, genomes.mask)."
        raise InputError("genomes", "the `Genomes` that `ask` returned", f"an object of {type(genomes).__name__}", cure)
    if isinstance(genomes, Genomes):
        check_shape(genomes.weights, "genomes.weights", "P W", np.float32, P=P, W=W)
        # The smallest and the largest weight show any NaN or infinity, and need no second array [P, W]. Verification
        # passes one number, broadcast to [P, W] with strides 0: finding its minimum would take long for nothing.
        if any(genomes.weights.strides) and not np.isfinite([genomes.weights.min(), genomes.weights.max()]).all():
            bad = np.flatnonzero(~np.isfinite(genomes.weights).all(axis=1))
            raise InputError("genomes", "finite weights", f"NaN or infinity in candidate {bad[0]}")
    count = len(results.fitness)
    if count != P and not (grows and 2 <= count < P and count % 2 == 0):
        raise InputError("fitness", f"one number for each of {P} candidates", f"{count} numbers")


def ranking(fitness: Float64) -> NDArray[np.intp]:
    """Return [P]: the candidates from best to worst. Candidates of equal fitness keep their order; NaN comes last."""
    missing = np.isnan(fitness)
    # The last key of `lexsort` counts first. All NaN get the same first key, 0, so the stable sort keeps their order.
    return np.lexsort((np.where(missing, 0.0, -fitness), missing))


def best_candidate(fitness: Float64) -> int:
    """Return the first candidate of `ranking`, but without sorting."""
    present = np.flatnonzero(~np.isnan(fitness))
    return int(present[np.argmax(fitness[present])]) if len(present) else 0


def require_evolved_weights(layout: GenomeLayout, strategy: str) -> None:
    """Raise InputError if the weights of a layout have no effect. strategy: the name of the strategy, for the error."""
    if not getattr(layout, "evolves_weights", True):
        cure = "These strategies evolve masks alone: prune, umda, random."
        expected = "a strategy that can evolve masks alone, because weights have no effect on this network"
        raise InputError("strategy.name", expected, strategy, cure)


def initial_genomes(layout: GenomeLayout, seed: int, generation: int, candidates: Iterable[int]) -> Genomes:
    """Return an initial genome for each candidate, drawn from the candidate's own stream.

    Args:
        layout: The layout of the genomes.
        seed: The seed of the experiment.
        generation: The generation, a part of the key of each stream.
        candidates: The numbers of the candidates in the population.
    """
    # A layout of another package may lack the attribute. Such a layout draws one genome at a time.
    if getattr(layout, "batched_init", False):
        # `GenomeLayout.init` is declared for one stream, but takes `Streams`, too, if `batched_init` is True.
        init: Callable[[Streams], Genomes] = layout.init  # type: ignore[assignment]
        return init(Streams(seed, Purpose.INIT, generation, np.fromiter(candidates, np.int64)))
    streams = (Stream(seed, Purpose.INIT, generation, int(candidate)) for candidate in candidates)
    return concatenate(*map(layout.init, streams))


def interleaved(takes_first: Bool, first: Genomes, second: Genomes) -> Genomes:
    """Return P genomes: the next of `first` where `takes_first` [P] is True, the next of `second` elsewhere."""
    weights = np.empty((len(takes_first), first.num_weights), np.float32)
    mask = np.empty(weights.shape, np.bool_)
    for rows, genomes in ((takes_first, first), (~takes_first, second)):
        weights[rows], mask[rows] = genomes.weights, genomes.mask
    return Genomes(weights, mask)


@dataclass(frozen=True)
class ChangedLayout:
    """Base class of layouts with their own initial genomes. All other attributes come from the wrapped `layout`."""

    layout: GenomeLayout

    batched_init = False  # `init` takes the stream of one candidate, see `GenomeLayout`

    def __getattr__(self, name: str) -> Any:
        # `copy` and `pickle` look up `__setstate__` on a new object that has no layout yet. Without this check,
        # `self.layout` below would call this method again without end.
        if name == "layout":
            raise AttributeError(name)
        return getattr(self.layout, name)

    def init(self, stream: Stream) -> Genomes:
        """Return one initial genome, P = 1."""
        raise NotImplementedError


@dataclass(frozen=True)
class StartLayout(ChangedLayout):
    """A layout of a search that begins with a given genome (P = 1): all initial genomes equal this genome."""

    genome: Genomes

    def init(self, _stream: Stream) -> Genomes:
        """Return a copy of the given genome."""
        return self.genome.take(np.zeros(1, np.intp))


@dataclass(frozen=True)
class NamedNumbers:
    """Base class of named scalars in a state: a frozen dataclass with fields of type float or int.

    A checkpoint stores the scalars as one array, in the order of the fields.
    """

    dtype: ClassVar[DTypeLike] = np.float64

    def to_array(self) -> NDArray[Any]:
        """Return the numbers as one array."""
        return np.array(tuple(vars(self).values()), self.dtype)

    @classmethod
    def from_arrays(cls, arrays: Arrays, name: str) -> Self:
        """Return the numbers from an array of a checkpoint. Raises ValueError for a missing or damaged array."""
        numbers = stored_array(arrays, name, f"{len(fields(cls))}", cls.dtype).tolist()
        for i, scalar in enumerate(fields(cls)):
            if scalar.type in (int, "int"):  # a text if the module of the subclass postpones annotations
                if numbers[i] % 1 != 0:  # also true for NaN and infinity, because their remainder is NaN
                    raise ValueError(f"{name}: expected a whole number of {scalar.name}, got {numbers[i]}")
                numbers[i] = int(numbers[i])
        return cls(*numbers)


def stored(kind: str | type, dtype: DTypeLike = np.float64) -> Any:
    """Return a dataclass field that `arrays_of` writes to a checkpoint and `state_of` reads.

    Args:
        kind: The shape of an array, written as in `check_shape`, such as "N W". Or a class: `Genomes`, a subclass of
            `NamedNumbers`, or the class of another state.
        dtype: The type of the numbers in an array.
    """
    return field(metadata={"kind": kind, "dtype": dtype})


def arrays_of(state: Any, prefix: str = "") -> dict[str, NDArray[Any]]:
    """Return the fields of a state that `stored` declares, as arrays with the names of the fields.

    Genomes are two arrays, "weights" and "mask". A state in a state gives its own arrays. Arrays [N, 0] are left out:
    they are traces that are not used.

    prefix: The beginning of all names.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for state_field in fields(state):
        name, value = f"{prefix}{state_field.name}", getattr(state, state_field.name)
        if isinstance(value, Genomes):
            arrays |= {f"{prefix}weights": value.weights, f"{prefix}mask": value.mask}
        elif isinstance(value, NamedNumbers):
            arrays[name] = value.to_array()
        elif is_dataclass(value):
            arrays |= arrays_of(value, prefix)
        # A field that `stored` does not declare, such as `Archive.emitters`, is left to the strategy's `to_arrays`.
        elif state_field.metadata and value.shape[1:] != (0,):
            arrays[name] = value
    return arrays


def state_of(state_class: type[Value], arrays: Arrays, prefix: str, sizes: dict[str, int]) -> Value:
    """Return the state that `arrays_of` stored.

    Args:
        state_class: The class of the state.
        arrays: A checkpoint.
        prefix: The beginning of all names.
        sizes: The known lengths, by the letters in the shapes. The first array with a new letter adds an entry.

    Raises:
        ValueError: An array is missing or has another shape.
    """

    def read(name: str, shape: str, dtype: DTypeLike) -> NDArray[Any]:
        letters = shape.split()
        if len(letters) == 2 and sizes.get(letters[1]) == 0:  # `arrays_of` has left out an array without columns
            return np.zeros((sizes[letters[0]], 0), dtype)
        array = stored_array(arrays, f"{prefix}{name}", shape, dtype, **sizes)
        sizes.update(zip(letters, array.shape, strict=True))
        return array

    values: dict[str, Any] = {}
    # `state_class` is always a data class, which its annotation does not say.
    for state_field in fields(state_class):  # type: ignore[arg-type]
        name, kind = state_field.name, state_field.metadata.get("kind")  # no kind: `from_arrays` sets this field
        if isinstance(kind, str):
            values[name] = read(name, kind, state_field.metadata["dtype"])
        elif kind is Genomes:
            values[name] = Genomes(read("weights", "N W", np.float32), read("mask", "N W", np.bool_))
        elif kind and issubclass(kind, NamedNumbers):
            values[name] = kind.from_arrays(arrays, f"{prefix}{name}")
        elif kind:
            values[name] = state_of(kind, arrays, prefix, sizes)
    return state_class(**values)
