"""Several starts of a strategy, of which the best one goes on.

Marti, Resende & Ribeiro, "Multi-start methods for combinatorial optimization" (2013); Jamieson & Talwalkar,
"Non-stochastic Best Arm Identification and Hyperparameter Optimization" (2016), of whose successive halving this is one
round. It is for tasks where luck in the first generations decides what a search will ever find. With N = `starts` and
G = `start_generations`:

    starts    N searches of G generations each, one after another. The first begins at the initial genome, others at
              initial genomes of the same connections; one that such a genome lacks starts at 0. With ga each begins
              with initial genomes of its own
    score     the mean fitness of all candidates of a start's last ceil(G/4) generations, and of the survivors alone
              where there are some, as with ga; NaN and infinite fitness count as the smallest finite one
    choice    after N · G generations the start with the best score goes on from where it ended, the first of equals

The champion is that of the best start that has ended, while starts are under way; of the first one before that.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.errors import InputError
from evolve.genome import GenomeSource
from evolve.numerics import ordered_sum
from evolve.shapes import Float64, Int64
from evolve.strategies.scored_genomes import stored_array
from evolve.strategies.strategy import Arrays, Results, mean_fitness
from evolve.strategies.wrapper import Startable, Wrapper, begun_of, joined


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

    def __init__(self, strategy: Startable, options: StartOptions) -> None:
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
        survivors = getattr(self._strategy, "survivors", None)
        return None if survivors is None else survivors(state) or None

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


def with_starts(strategy: Any, options: Options) -> Any:
    """Return a strategy with as many starts as its options say; the strategy itself for one."""
    if isinstance(options, StartOptions) and options.starts > 1:
        return Multistart(strategy, options)
    return strategy


def validate_starts(options: StartOptions) -> None:
    """Raise InputError where it is said how long starts are, but there is one."""
    if options.start_generations != StartOptions.model_fields["start_generations"].default and options.starts == 1:
        raise InputError("strategy.starts", f"2 or more, of {options.start_generations} generations each", 1)
