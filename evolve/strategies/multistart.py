"""Several starts of an evolution strategy, of which the best one goes on.

Marti, Resende & Ribeiro, "Multi-start methods for combinatorial optimization" (2013); Jamieson & Talwalkar,
"Non-stochastic Best Arm Identification and Hyperparameter Optimization" (2016), of whose successive halving this is one
round. It is for tasks where luck in the first generations decides what a search will ever find. With N = `starts` and
G = `start_generations`:

    starts    N searches of G generations each, one after another. The first begins at the initial genome, others at
              initial genomes of the same connections; one that such a genome lacks starts at 0
    score     the mean fitness of all candidates of a start's last ceil(G/4) generations; NaN and infinite fitness count
              as the smallest finite one
    choice    after N · G generations the start with the best score goes on from where it ended, the first of equals

The champion is that of the best start that has ended, while starts are under way; of the first one before that.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.errors import InputError
from evolve.genome import Genomes, GenomeSource
from evolve.numerics import ordered_sum
from evolve.shapes import Float64, Int64
from evolve.strategies.scored_genomes import stored_array
from evolve.strategies.strategy import Arrays, Results, Strategy, mean_fitness, take_abilities

_CHOSEN = "chosen_"


class StartOptions(Options):
    """Settings of `[strategy]` that all evolution strategies share.

    starts: with how many searches a run begins, one after another; the best goes on.
    start_generations: how many generations each of them has until then, where there are several.
    """

    starts: int = Field(1, ge=1)
    start_generations: int = Field(100, ge=1)


class Startable(Strategy[Any], Protocol):
    """A strategy that can begin anew."""

    def start_anew(self, generation: int) -> Any:
        """Return a state like that of `start`, with the initial weights of a generation's key."""


@dataclass(frozen=True)
class MultistartState:
    """The state of a strategy with several starts.

    now: That of the strategy. chosen: The same where the best start ended; that of the newest before one has.
    means: [ceil(G/4)] float64, the mean fitness of the last generations.
    record: [2] float64, the best score of a start, and the number of completed generations.
    """

    now: Any
    chosen: Any
    means: Float64
    record: Float64


class Multistart:
    """An evolution strategy with several starts, see `StartOptions`; it can do what the strategy can do."""

    def __init__(self, strategy: Startable, options: StartOptions) -> None:
        self._strategy = strategy
        self._each = options.start_generations
        self._all = options.starts * options.start_generations
        take_abilities(self, strategy)
        if hasattr(strategy, "sums"):
            self.sums = self._sums

    def start(self) -> MultistartState:
        """Return the state before generation 0."""
        return self._started(self._strategy.start())

    def start_anew(self, generation: int) -> MultistartState:
        """Return a state like that of `start`, with the initial weights of a generation's key."""
        return self._started(self._strategy.start_anew(generation))

    def _started(self, state: Any) -> MultistartState:
        return MultistartState(state, state, np.zeros(-(-self._each // 4)), np.array([-np.inf, 0.0]))

    def ask(self, state: MultistartState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates."""
        return self._strategy.ask(state.now, generation, candidates)

    def tell(self, state: MultistartState, genomes: GenomeSource, results: Results) -> MultistartState:
        """Take in a generation; at the end of a start, begin the next one, or choose."""
        now = self._strategy.tell(state.now, genomes, results)
        means = np.append(state.means[1:], mean_fitness(results.fitness))
        best, generations = float(state.record[0]), int(state.record[1]) + 1
        chosen = now if best == -np.inf or generations > self._all else state.chosen
        if generations <= self._all and generations % self._each == 0:
            score = float(ordered_sum(means)) / len(means)
            if score > best or best == -np.inf:
                chosen, best = now, max(score, -np.finfo(np.float64).max)
            now = chosen if generations == self._all else self._strategy.start_anew(generations)
        return MultistartState(now, chosen, means, np.array([best, generations]))

    def distribution(self, state: MultistartState) -> tuple[Float64, Float64]:
        """Return mean and standard deviation [W] of weights in the chosen state, of a strategy that has them."""
        moments: tuple[Float64, Float64] = self._strategy.distribution(state.chosen)  # type: ignore[attr-defined]
        return moments

    def champion(self, state: MultistartState) -> Genomes:
        """Return the champion of the chosen state."""
        return self._strategy.champion(state.chosen)

    def to_arrays(self, state: MultistartState) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays; once a start is chosen, there is one state."""
        ours = {"start_means": state.means, "starts": state.record}
        if state.record[1] < self._all:
            ours |= {f"{_CHOSEN}{name}": array for name, array in self._strategy.to_arrays(state.chosen).items()}
        return self._strategy.to_arrays(state.now) | ours

    def from_arrays(self, arrays: Arrays) -> MultistartState:
        """Return the state of those arrays. Raises ValueError when one is missing or has another shape."""
        means = stored_array(arrays, "start_means", "k", np.float64, k=-(-self._each // 4))
        record = stored_array(arrays, "starts", "2", np.float64)
        now = chosen = self._strategy.from_arrays(arrays)
        if record[1] < self._all:
            own = {name.removeprefix(_CHOSEN): array for name, array in arrays.items() if name.startswith(_CHOSEN)}
            chosen = self._strategy.from_arrays(own)
        return MultistartState(now, chosen, means, record)

    def _sums(self, state: MultistartState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return some columns of what the strategy adds up."""
        sums: Float64 = self._strategy.sums(state.now, generation, fitness, columns)  # type: ignore[attr-defined]
        return sums


def with_starts(strategy: Any, options: Options) -> Any:
    """Return a strategy with as many starts as its options say; the strategy itself for one."""
    if isinstance(options, StartOptions) and options.starts > 1:
        return Multistart(strategy, options)
    return strategy


def validate_starts(options: StartOptions) -> None:
    """Raise InputError where it is said how long starts are, but there is one."""
    if options.start_generations != StartOptions.model_fields["start_generations"].default and options.starts == 1:
        raise InputError("strategy.starts", f"2 or more, of {options.start_generations} generations each", 1)
