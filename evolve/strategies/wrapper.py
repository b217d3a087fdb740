"""Strategies around another strategy: several starts of which the best goes on, and restarts of a stalled search."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.errors import InputError
from evolve.genome import Genomes, GenomeSource
from evolve.numerics import ordered_sum
from evolve.shapes import Float64, Int64
from evolve.strategies.scored_genomes import stored_array
from evolve.strategies.strategy import Arrays, Results, Strategy, mean_fitness


class WrapperState(Protocol):
    """The state of a wrapper. now: the newest of the strategy's. best: the one whose champion is the wrapper's."""

    @property
    def now(self) -> Any:
        """Of which candidates are asked."""

    @property
    def best(self) -> Any:
        """Of which the champion is."""


class Wrapper(Strategy[Any]):
    """A strategy around another one, which can do what that one can do.

    A subclass says in `_started` which state a search begins with, and writes `tell`, `to_arrays` and `from_arrays`.
    Its state has `begun` [1] int64, the generation of the run that the search begins with, so that a control, or what
    restarts, begins elsewhere than searches before it.

    Args:
        strategy: The other one.
        prefix: Of the names of arrays of its best state.
    """

    def __init__(self, strategy: Strategy[Any], prefix: str) -> None:
        self._strategy = strategy
        self._prefix = prefix
        copy_attributes(self, strategy)
        self.capacity = None if strategy.capacity is None else 2 * strategy.capacity

    def start(self) -> Any:
        """Return the state before generation 0."""
        return self._started(self._strategy.start(), np.zeros(1, np.int64))

    def start_anew(self, generation: int) -> Any:
        """Return a state like that of `start`, with the initial weights of a generation's key."""
        return self._started(self._strategy.start_anew(generation), np.array([generation], np.int64))

    def ask(self, state: WrapperState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates."""
        return self._strategy.ask(state.now, generation, candidates)

    def distribution(self, state: WrapperState) -> tuple[Float64, Float64]:
        """Return mean and standard deviation [W] of weights in the best state so far, of a strategy that has them."""
        return self._strategy.distribution(state.best)

    def champion(self, state: WrapperState) -> Genomes:
        """Return the champion of the best state so far."""
        return self._strategy.champion(state.best)

    def _started(self, state: Any, begun: Int64) -> WrapperState:
        """Return the state of a search that begins with a state of the strategy, in a generation [1]."""
        raise NotImplementedError

    def _best_to_arrays(self, best: Any) -> dict[str, NDArray[Any]]:
        return {f"{self._prefix}{name}": array for name, array in self._strategy.to_arrays(best).items()}

    def _best_from_arrays(self, arrays: Arrays) -> Any:
        mine = {name: array for name, array in arrays.items() if name.startswith(self._prefix)}
        return self._strategy.from_arrays({name.removeprefix(self._prefix): array for name, array in mine.items()})

    def survivors(self, state: WrapperState) -> int:
        """Return how many candidates of the next generation, its first ones, have been evaluated before."""
        return self._strategy.survivors(state.now)

    def sums(self, state: WrapperState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return some columns of what the strategy adds up."""
        return self._strategy.sums(state.now, generation, fitness, columns)


def begun_of(arrays: Arrays, name: str) -> Int64:
    """Return [1], `begun`; 0 for files of earlier versions, which lack it. Raises ValueError when it is damaged."""
    return stored_array(arrays, name, "1", np.int64) if name in arrays else np.zeros(1, np.int64)


def joined(*parts: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of all parts of a state. Raises ValueError where two of them have one name."""
    arrays = {name: array for part in parts for name, array in part.items()}
    if len(arrays) < sum(map(len, parts)):
        raise ValueError(f"two arrays of one name among {[sorted(part) for part in parts]}")
    return arrays


def copy_attributes(wrapper: Strategy[Any], strategy: Strategy[Any]) -> None:
    """Copy the attributes that describe a strategy to its wrapper."""
    for name in ("portable", "shared_mask", "traces", "grows", "compares_generations", "sum_shape", "capacity"):
        setattr(wrapper, name, getattr(strategy, name))


class StartOptions(Options):
    """Settings of `[strategy]` that ga and all evolution strategies share.

    starts: with how many searches a run begins, one after another; the best goes on.
    start_generations: how many generations each of them has until then, where there are several.
    """

    starts: int = Field(1, ge=1)
    start_generations: int = Field(100, ge=1)


@dataclass(frozen=True)
class MultistartState:
    """The state of a strategy with several starts.

    now: That of the strategy. best: The same where the best start ended; that of the newest before one has.
    means: [ceil(G/4)] float64, the mean fitness of the last generations, see `score` above.
    record: [2] float64, the best score of a start, and the number of completed generations of this search.
    begun: [1] int64, the generation of the run with which it began.
    """

    now: Any
    best: Any
    means: Float64
    record: Float64
    begun: Int64


class Multistart(Wrapper):
    """A strategy with several starts, see `StartOptions`."""

    def __init__(self, strategy: Strategy[Any], options: StartOptions) -> None:
        super().__init__(strategy, prefix="chosen_")
        self._each = options.start_generations
        self._all = options.starts * options.start_generations

    def _started(self, state: Any, begun: Int64) -> MultistartState:
        return MultistartState(state, state, np.zeros(-(-self._each // 4)), np.array([-np.inf, 0.0]), begun)

    def tell(self, state: MultistartState, genomes: GenomeSource, results: Results) -> MultistartState:
        """Take in a generation; at the end of a start, begin the next one, or choose."""
        now = self._strategy.tell(state.now, genomes, results)
        means = np.append(state.means[1:], mean_fitness(results.fitness, self._scored(state.now)))
        best_score, generations = float(state.record[0]), int(state.record[1]) + 1
        best = now if best_score == -np.inf or generations > self._all else state.best
        if generations <= self._all and generations % self._each == 0:
            score = float(ordered_sum(means)) / len(means)
            if score > best_score or best_score == -np.inf:
                best, best_score = now, max(score, -np.finfo(np.float64).max)
            now = best if generations == self._all else self._strategy.start_anew(int(state.begun[0]) + generations)
        return MultistartState(now, best, means, np.array([best_score, generations]), state.begun)

    def _scored(self, state: Any) -> int | None:
        """Return how many candidates, the first ones, a score is made of; None for all."""
        return self._strategy.survivors(state) or None

    def to_arrays(self, state: MultistartState) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays; once a start is chosen, there is one state."""
        best = self._best_to_arrays(state.best) if state.record[1] < self._all else {}
        ours = {"start_means": state.means, "starts": state.record, "starts_begun": state.begun}
        return joined(self._strategy.to_arrays(state.now), best, ours)

    def from_arrays(self, arrays: Arrays) -> MultistartState:
        """Return the state of those arrays. Raises ValueError when one is missing or has another shape."""
        means = stored_array(arrays, "start_means", "k", np.float64, k=-(-self._each // 4))
        record = stored_array(arrays, "starts", "2", np.float64)
        now = self._strategy.from_arrays(arrays)
        best = self._best_from_arrays(arrays) if record[1] < self._all else now
        return MultistartState(now, best, means, record, begun_of(arrays, "starts_begun"))


def with_starts(strategy: Strategy[Any], options: Options) -> Strategy[Any]:
    """Return a strategy with as many starts as its options say; the strategy itself for one."""
    if isinstance(options, StartOptions) and options.starts > 1:
        return Multistart(strategy, options)
    return strategy


def validate_starts(options: StartOptions) -> None:
    """Raise InputError where it is said how long starts are, but there is one."""
    if options.start_generations != StartOptions.model_fields["start_generations"].default and options.starts == 1:
        raise InputError("strategy.starts", f"2 or more, of {options.start_generations} generations each", 1)


class RestartOptions(StartOptions):
    """Settings of `[strategy]` that all evolution strategies share.

    restart_after: after how many generations without progress in the mean fitness the search restarts; with 0, never.
    restart_from: where from: the "best" centre so far, or "anew", from other initial weights.
    """

    restart_after: int = Field(0, ge=0)
    restart_from: Literal["best", "anew"] = "best"


@dataclass(frozen=True)
class RestartState:
    """The state of a strategy that restarts.

    now: That of the strategy. best: The same before the generation in which the score was best.
    means: [k] float64, the mean fitness of the last generations since the last restart, NaN where there were fewer.
    record: [5] float64, the best score, the best one since the last restart, how many generations in a row were without
        a better one, the number of restarts, and of completed generations of this search.
    begun: [1] int64, the generation of the run with which it began.
    """

    now: Any
    best: Any
    means: Float64
    record: Float64
    begun: Int64


class Restarting(Wrapper):
    """An evolution strategy that restarts, see `RestartOptions`."""

    def __init__(self, strategy: Strategy[Any], options: RestartOptions) -> None:
        super().__init__(strategy, prefix="best_")
        self._after = options.restart_after
        self._none = np.full(-(-self._after // 4), np.nan)
        self._anew = options.restart_from == "anew"

    def _started(self, state: Any, begun: Int64) -> RestartState:
        return RestartState(state, state, self._none, np.array([-np.inf, -np.inf, 0.0, 0.0, 0.0]), begun)

    def tell(self, state: RestartState, genomes: GenomeSource, results: Results) -> RestartState:
        """Take in a generation; after a stall, restart."""
        now = self._strategy.tell(state.now, genomes, results)
        means = np.append(state.means[1:], mean_fitness(results.fitness))
        score = float(ordered_sum(means)) / len(means)  # NaN while there are fewer than k
        best = state.best
        best_score, since_restart, stalled, restarts, generations = (float(value) for value in state.record)
        stalled += 1
        generations += 1
        if score > best_score:
            best, best_score = state.now, score
        if score > since_restart:
            since_restart, stalled = score, 0.0
        if stalled >= self._after:
            now = self._strategy.start_anew(int(state.begun[0] + generations)) if self._anew else best
            since_restart = -np.inf if self._anew else best_score
            means, stalled = self._none, 0.0
            restarts += 1
        record = np.array([best_score, since_restart, stalled, restarts, generations])
        return RestartState(now, best, means, record, state.begun)

    def to_arrays(self, state: RestartState) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        ours = {"restart_means": state.means, "restarts": state.record, "restarts_begun": state.begun}
        return joined(self._strategy.to_arrays(state.now), self._best_to_arrays(state.best), ours)

    def from_arrays(self, arrays: Arrays) -> RestartState:
        """Return the state of those arrays. Raises ValueError when one is missing or has another shape."""
        means = stored_array(arrays, "restart_means", "k", np.float64, k=len(self._none))
        record = stored_array(arrays, "restarts", "5", np.float64)
        now, best = self._strategy.from_arrays(arrays), self._best_from_arrays(arrays)
        return RestartState(now, best, means, record, begun_of(arrays, "restarts_begun"))


def with_restarts(strategy: Strategy[Any], options: Options) -> Strategy[Any]:
    """Return a strategy that restarts as its options say; the strategy itself, where they say nothing of it."""
    if isinstance(options, RestartOptions) and options.restart_after:
        return Restarting(strategy, options)
    return strategy


def validate_restarts(options: RestartOptions) -> None:
    """Raise InputError where it is said how to start or restart, but not that it is to be done."""
    validate_starts(options)
    if options.restart_from != "best" and not options.restart_after:
        raise InputError("strategy.restart_after", f"1 or more, to restart from {options.restart_from}", 0)
