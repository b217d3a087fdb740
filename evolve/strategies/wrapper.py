"""Strategies around another strategy: `Multistart` makes several starts, `Restarting` restarts a stalled search.

Both compare searches by a score: the mean fitness of the last k generations of a search. k is a quarter of
`start_generations` or of `restart_after`, rounded up. If a strategy has survivors, `Multistart` counts only the fitness
of survivors.

`wrapped` adds the wrappers that the options ask for. `pruning_schedules` has a third wrapper, for rounds of pruning.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.errors import InputError
from evolve.genome import NO_GENOMES, Genomes, GenomeSource
from evolve.numerics import ordered_sum
from evolve.shapes import Float64, Int64, ceil_div, stored_array
from evolve.strategies.strategy import Arrays, NamedNumbers, Results, Strategy


class StartOptions(Options):
    """Settings of `[strategy]` that ga and all evolution strategies share."""

    starts: int = Field(1, ge=1)
    """The number of searches that a run begins with, one after another; the best goes on."""
    start_generations: int = Field(100, ge=1, le=1_000_000)
    """The generations of each start, if there are several."""
    finalists: int = Field(1, ge=1)
    """The number of best starts that play `start_generations` more before the best of them goes on; with 1, the best
    start goes on at once."""

    def check_combinations(self) -> None:
        """Raise InputError for a setting that has no effect beside the others."""
        is_changed = self.start_generations != StartOptions.model_fields["start_generations"].default
        if is_changed and self.starts == 1:
            raise InputError("strategy.starts", f"2 or more, of {self.start_generations} generations each", 1)
        if self.starts == 1 and self.finalists > 1:
            raise InputError("strategy.starts", f"more than the {self.finalists} finalists", 1)
        if self.starts > 1 and self.finalists >= self.starts:
            raise InputError("strategy.finalists", f"fewer than the {self.starts} starts", self.finalists)

    @property
    def choosing_generations(self) -> int:
        """The number of generations before the best start goes on alone."""
        finals = self.finalists if self.finalists > 1 else 0  # the best start alone plays no final
        return (self.starts + finals) * self.start_generations


class RestartOptions(StartOptions):
    """Settings of `[strategy]` that all evolution strategies share."""

    restart_after: int = Field(0, ge=0, le=1_000_000)
    """The generations without progress in the mean fitness after which the search restarts; with 0, never."""
    restart_from: Literal["best", "anew"] = "best"
    """Where the search restarts: from the strategy's "best" state so far, or "anew" from other initial weights."""

    def check_combinations(self) -> None:
        """Raise InputError for a setting that has no effect beside the others."""
        super().check_combinations()
        if self.restart_from != "best" and not self.restart_after:
            raise InputError("strategy.restart_after", f"1 or more, to restart from {self.restart_from}", 0)


@dataclass(frozen=True)
class WrapperState:
    """The state of a wrapper.

    now: The newest state of the inner strategy.
    best: The state of the inner strategy that has the wrapper's champion.
    means: [k] float64, the mean fitness of each of the last k generations.
    record: The scores and counts of the wrapper.
    first_generation: The generation in which this search began. The first weights come from the streams of this
        generation. The number is above 0 if another wrapper began the search, for example as its second start.
    waiting: The score and the last inner state of each start that may go on as a finalist, the best first.
    """

    now: Any
    best: Any
    means: Float64
    record: Any
    first_generation: int
    waiting: tuple[tuple[float, Any], ...] = ()


class Wrapper(Strategy[WrapperState]):
    """A strategy around an inner strategy, with the same attributes. Most methods call methods of the inner strategy.

    A subclass implements `tell` and `begun_search`, and sets the attributes below.

    Args:
        strategy: The inner strategy.
        generations: `start_generations` or `restart_after`; k is a quarter of it, rounded up.
    """

    own_prefix: str
    """The prefix of the names of the wrapper's own arrays in a checkpoint."""
    best_prefix: str
    """The prefix of the names of the best state's arrays in a checkpoint."""
    first_record: NamedNumbers
    """The record at the start of a search."""
    no_mean: float
    """The entry of `means` for a generation that was not played yet."""

    def __init__(self, strategy: Strategy[Any], generations: int) -> None:
        self._strategy = strategy
        self._no_means = np.full(ceil_div(generations, 4), self.no_mean)
        copy_attributes(self, strategy)
        # A state holds two states of the inner strategy, the newest and the best.
        self.capacity = None if strategy.capacity is None else 2 * strategy.capacity

    def start(self) -> WrapperState:
        """Return the state before generation 0."""
        return self._started(self._strategy.start(), 0)

    def start_anew(self, generation: int) -> WrapperState:
        """Return an initial state with weights from the streams of a generation."""
        return self._started(self._strategy.start_anew(generation), generation)

    def ask(self, state: WrapperState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates of the inner strategy."""
        return self._strategy.ask(state.now, generation, candidates)

    def sums(self, state: WrapperState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return the inner strategy's sums over all candidates, for some columns."""
        return self._strategy.sums(state.now, generation, fitness, columns)

    def survivors(self, state: WrapperState) -> int:
        """Return n: candidates 0 to n - 1 of the next generation were evaluated before."""
        return self._strategy.survivors(state.now)

    def distribution(self, state: WrapperState) -> tuple[Float64, Float64]:
        """Return mean and standard deviation of each weight in the best state, both [W]."""
        return self._strategy.distribution(state.best)

    def champion(self, state: WrapperState) -> Genomes:
        """Return the champion of the best state."""
        return self._strategy.champion(state.best)

    def champion_generation(self, state: WrapperState) -> int | None:
        """Return the generation that evaluated the champion; None if there is none, or if there may be several."""
        return self._strategy.champion_generation(state.best)

    def outcome(self, state: WrapperState) -> dict[str, Float64]:
        """Return the inner strategy's front or archive, see `Strategy.outcome`."""
        return self._strategy.outcome(state.now)

    def select(self, state: WrapperState, /, **which: Any) -> Genomes:
        """Return a genome of the inner strategy's front or archive."""
        return self._strategy.select(state.now, **which)

    def origin(self, state: WrapperState, cell: Sequence[int]) -> tuple[int, int]:
        """Return the generation and the candidate number of an elite of the inner strategy."""
        return self._strategy.origin(state.now, cell)

    def begun_search(self, before: WrapperState, after: WrapperState) -> str:
        """Return the kind of the search that began between two states, such as "restart"; "" if no search began."""
        inner = self._strategy
        return inner.begun_search(before.now, after.now) if isinstance(inner, Wrapper) else ""

    def to_arrays(self, state: WrapperState) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        best = self._strategy.to_arrays(state.best) if self._stores_best(state.record) else {}
        # For example start_means, starts (the record) and starts_begun (the first generation). Files have these names.
        own = {
            f"{self.own_prefix}_means": state.means,
            f"{self.own_prefix}s": state.record.to_array(),
            f"{self.own_prefix}s_begun": np.array([state.first_generation], np.int64),
        }
        return joined(self._strategy.to_arrays(state.now), with_prefix(best, self.best_prefix), own)

    def from_arrays(self, arrays: Arrays) -> WrapperState:
        """Return the state that `to_arrays` stored. Raises ValueError if an array is missing or has another shape."""
        means = stored_array(arrays, f"{self.own_prefix}_means", "k", np.float64, k=len(self._no_means))
        record = type(self.first_record).from_arrays(arrays, f"{self.own_prefix}s")
        first_generation = 0  # files of earlier versions have no array for this number
        if f"{self.own_prefix}s_begun" in arrays:
            first_generation = int(stored_array(arrays, f"{self.own_prefix}s_begun", "1", np.int64)[0])
        now = best = self._strategy.from_arrays(arrays)
        if self._stores_best(record):
            best = self._strategy.from_arrays(without_prefix(arrays, self.best_prefix))
        return WrapperState(now, best, means, record, first_generation)

    def _started(self, state: Any, first_generation: int) -> WrapperState:
        """Return the state of a search that begins with a state of the inner strategy."""
        return WrapperState(state, state, self._no_means, self.first_record, first_generation)

    def _stores_best(self, _record: Any) -> bool:
        """Return whether a checkpoint stores the best state, too. Otherwise the best state is the newest one."""
        return True


def copy_attributes(wrapper: Strategy[Any], strategy: Strategy[Any]) -> None:
    """Copy the attributes that describe a strategy to its wrapper, and the method `measures`, which reads no state."""
    # The annotated names of the base class are its attributes.
    for name in (*Strategy.__annotations__, "measures"):
        setattr(wrapper, name, getattr(strategy, name))


def joined(*parts: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays of all parts of a state. Raises ValueError if two arrays have one name."""
    arrays: dict[str, NDArray[Any]] = {}
    for part in parts:
        arrays |= part
    if len(arrays) < sum(map(len, parts)):
        raise ValueError(f"two arrays of one name among {[sorted(part) for part in parts]}")
    return arrays


def with_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays under names that begin with a prefix."""
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def without_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays with names that begin with a prefix, under names without the prefix."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def mean_fitness(fitness: Float64, count: int | None = None) -> float:
    """Return the mean of the fitness [P], or of the fitness of the first `count` candidates.

    A fitness that is not finite counts as the smallest finite fitness of all P candidates. The result is -∞ if no
    fitness is finite.
    """
    finite = np.isfinite(fitness)
    if not finite.any():
        return -np.inf
    counted = np.where(finite, fitness, fitness[finite].min())[:count]
    return float(ordered_sum(counted)) / len(counted)


@dataclass(frozen=True)
class StartRecord(NamedNumbers):
    """The progress of a strategy with several starts.

    best_score: The best score of the starts that have ended. If there are finalists, and all starts have ended, it is
        the best score of the finalists that have ended. -∞ if none has ended.
    generations: The completed generations of this search.
    """

    best_score: float
    generations: int


class Multistart(Wrapper):
    """A strategy with several starts, see `StartOptions`.

    With finalists, this is sequential halving (Karnin, Koren & Somekh, "Almost Optimal Exploration in Multi-Armed
    Bandits", 2013) in two rounds.

    The best state is the last state of the best start, or of the best finalist as soon as one has ended. Before the
    first start has ended, while the first finalist plays, and after the choice, the best state is the newest state.
    """

    own_prefix, best_prefix, no_mean = "start", "chosen_", 0.0
    first_record = StartRecord(best_score=-np.inf, generations=0)

    def __init__(self, strategy: Strategy[Any], options: StartOptions) -> None:
        super().__init__(strategy, options.start_generations)
        self._per_start = options.start_generations
        self._starts = options.starts
        self._finalists = options.finalists if options.finalists > 1 else 0  # the best start alone plays no final
        self._end = options.choosing_generations
        # The newest state, the best one, and the states of waiting starts.
        self.capacity = None if strategy.capacity is None else (2 + self._finalists) * strategy.capacity

    def tell(self, state: WrapperState, genomes: GenomeSource, results: Results) -> WrapperState:
        """Return the state after a generation; at the end of a start, begin the next start or choose the best one."""
        now = self._strategy.tell(state.now, genomes, results)
        # Survivors are evaluated in every generation, so their mean is less noisy than the mean of all candidates. If
        # there are no survivors, all candidates count.
        survivors = self._strategy.survivors(state.now)
        means = np.append(state.means[1:], mean_fitness(results.fitness, survivors if survivors else None))
        best_score, generations = state.record.best_score, state.record.generations + 1
        # The newest state is the best one while no start (or finalist) has ended, and after the choice.
        has_best = best_score != -np.inf and generations <= self._end
        best, waiting = state.best if has_best else now, state.waiting
        # A start or a finalist ends here. k is at most the length of a start, so all of `means` belong to it.
        if generations <= self._end and generations % self._per_start == 0:
            ended = generations // self._per_start  # starts and finalists
            score = float(ordered_sum(means)) / len(means)
            if self._finalists and ended <= self._starts:
                # Sorting is stable, so the earlier one of two starts with equal scores comes first.
                ranked = sorted((*waiting, (score, now)), key=lambda entry: -entry[0])
                waiting = tuple(ranked[: self._finalists])
            # A best score of -∞ means that no start has ended. So a start without finite fitness gets a finite score.
            if score > best_score or best_score == -np.inf:
                best, best_score = now, max(score, -float(np.finfo(np.float64).max))
            # Go on with the next start, with the next finalist, or with the best search.
            if ended < self._starts:
                now = self._strategy.start_anew(state.first_generation + generations)
            elif waiting:
                # The next finalist goes on from the state in which its start ended.
                now, waiting = waiting[0][1], waiting[1:]
                if ended == self._starts:  # from now on, only the scores that finalists reach as finalists count
                    best, best_score = now, -np.inf
            else:
                # The choice: the best start or finalist goes on alone.
                now = best
        return WrapperState(now, best, means, StartRecord(best_score, generations), state.first_generation, waiting)

    def begun_search(self, before: WrapperState, after: WrapperState) -> str:
        """Return "start n", "finalist n" or "best start" if one begins; or the search that begins within a start."""
        generations = after.record.generations
        if generations > self._end or generations % self._per_start:
            return super().begun_search(before, after)
        if generations == self._end:
            return "best start"
        number = generations // self._per_start + 1
        return f"start {number}" if number <= self._starts else f"finalist {number - self._starts}"

    def to_arrays(self, state: WrapperState) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        arrays = super().to_arrays(state)
        if not state.waiting:
            return arrays
        scores, states = zip(*state.waiting, strict=True)
        stored = [with_prefix(self._strategy.to_arrays(states[i]), f"waiting_{i}_") for i in range(len(states))]
        return joined(arrays, {"waiting_scores": np.array(scores, np.float64)}, *stored)

    def from_arrays(self, arrays: Arrays) -> WrapperState:
        """Return the state that `to_arrays` stored. Raises ValueError if an array is missing or has another shape."""
        state = super().from_arrays(arrays)
        # n, the number of waiting starts, follows from the number of starts and finalists that have ended.
        ended = state.record.generations // self._per_start
        n = min(ended, self._finalists)
        if ended >= self._starts:  # one finalist plays, and the earlier ones have ended
            n = self._starts + self._finalists - 1 - ended
        if n <= 0:
            return state
        scores = stored_array(arrays, "waiting_scores", "n", np.float64, n=n).tolist()
        states = [self._strategy.from_arrays(without_prefix(arrays, f"waiting_{i}_")) for i in range(n)]
        return replace(state, waiting=tuple(zip(scores, states, strict=True)))

    def _stores_best(self, record: StartRecord) -> bool:
        """Return whether a start is still to be chosen. Afterwards the best state is the newest one."""
        return record.generations < self._end


@dataclass(frozen=True)
class RestartRecord(NamedNumbers):
    """The progress of a strategy that restarts.

    best_score: The best score so far.
    to_beat: The best score since the last restart. A restart sets it to `best_score`, or to -∞ if the search begins
        anew.
    stalled: The number of generations in a row without a score above `to_beat`.
    restarts: The number of restarts.
    generations: The completed generations of this search.
    """

    best_score: float
    to_beat: float
    stalled: int
    restarts: int
    generations: int


class Restarting(Wrapper):
    """An evolution strategy that restarts, see `RestartOptions`.

    The best state is the state before the generation with the best score. Before there is a score, the best state is
    the newest one. `means` are NaN for generations before the last restart.
    """

    own_prefix, best_prefix, no_mean = "restart", "best_", np.nan
    first_record = RestartRecord(best_score=-np.inf, to_beat=-np.inf, stalled=0, restarts=0, generations=0)

    def __init__(self, strategy: Strategy[Any], options: RestartOptions) -> None:
        super().__init__(strategy, options.restart_after)
        self._restart_after = options.restart_after
        self._restarts_anew = options.restart_from == "anew"

    def tell(self, state: WrapperState, genomes: GenomeSource, results: Results) -> WrapperState:
        """Return the state after a generation; after a stall, restart."""
        now = self._strategy.tell(state.now, genomes, results)
        best, record = state.best, state.record
        means = np.append(state.means[1:], mean_fitness(results.fitness))
        score = float(ordered_sum(means)) / len(means)  # NaN before k generations since a restart
        best_score, to_beat = record.best_score, record.to_beat
        stalled, restarts, generations = record.stalled + 1, record.restarts, record.generations + 1
        if score > best_score:
            # The candidates with this score came from the state before `tell`.
            best, best_score = state.now, score
        elif best_score == -np.inf:
            best = now
        if score > to_beat:
            to_beat, stalled = score, 0
        if stalled >= self._restart_after:
            means, stalled, restarts = self._no_means, 0, restarts + 1
            # A new search has no score to beat. A search from the best state must beat the best score.
            if self._restarts_anew:
                now, to_beat = self._strategy.start_anew(state.first_generation + generations), -np.inf
            else:
                now, to_beat = best, best_score
        record = RestartRecord(best_score, to_beat, stalled, restarts, generations)
        return WrapperState(now, best, means, record, state.first_generation)

    def begun_search(self, before: WrapperState, after: WrapperState) -> str:
        """Return "restart" if the search restarts, otherwise ""."""
        return "restart" if after.record.restarts > before.record.restarts else ""


class _NoSearch(Strategy[None]):
    """A strategy without candidates, for `beginnings`. Its wrappers start and restart it like any other strategy."""

    def start(self) -> None:
        """Return no state."""

    def tell(self, _state: None, _genomes: GenomeSource, _results: Results) -> None:
        """Return no state."""


def wrapped(strategy: Strategy[Any], options: Any) -> Strategy[Any]:
    """Return a strategy with the starts and restarts that its options ask for."""
    # `Multistart` is the outer wrapper, because each start may restart.
    if isinstance(options, RestartOptions) and options.restart_after:
        strategy = Restarting(strategy, options)
    if isinstance(options, StartOptions) and options.starts > 1:
        strategy = Multistart(strategy, options)
    return strategy


def beginnings(options: Any, fitness: Sequence[Float64]) -> list[tuple[int, str]]:
    """Return the first generation and the kind of each start and restart of a search, except its first start.

    A kind is a text of `Wrapper.begun_search`.

    Args:
        options: The options of the strategy.
        fitness: The fitness of all candidates, for each generation of the search.
    """
    strategy = wrapped(_NoSearch(), options)  # type: ignore[abstract]  # `start` and `tell` are enough here
    if not isinstance(strategy, Wrapper):
        return []
    # Starts and restarts depend on the fitness alone, so this strategy needs no candidates.
    states = [strategy.start()]
    for of_generation in fitness:
        states.append(strategy.tell(states[-1], NO_GENOMES, Results(of_generation)))
    kinds = [strategy.begun_search(before, after) for before, after in itertools.pairwise(states)]
    return [(generation, kind) for generation, kind in enumerate(kinds, 1) if kind]
