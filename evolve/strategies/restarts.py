"""Restarts of an evolution strategy whose search has stalled: back to the best centre, or from anew.

Ha's estool (2017) goes back to its best parameters after a stall; Auger & Hansen, "A Restart CMA Evolution Strategy
with Increasing Population Size" (2005), begin anew, here with the population as it was. The score is the mean fitness
of all candidates of the last k = ceil(`restart_after`/4) generations, which estimates what an evolution strategy
climbs: the expected fitness around its centre. That of one generation would be luck where all candidates meet the same
episodes. There is no score in the first k - 1 generations, nor in as many after a restart.

    stall     `restart_after` generations in a row without a score above the best one since the last restart; since the
              first generation, where the search goes back to the best
    best      everything is again as it was before the generation in which the score was best. Random streams are keyed
              by generation, so other candidates are drawn now
    anew      the search begins with another initial genome, of the same connections; one that it lacks starts at 0

The champion is that of the state before the generation in which the score was best, and not of the newest state, which
may have begun anew a moment ago. NaN and infinite fitness count as the smallest finite one.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.errors import InputError
from evolve.genome import GenomeSource
from evolve.numerics import ordered_sum
from evolve.shapes import Float64, Int64
from evolve.strategies.multistart import StartOptions, validate_starts
from evolve.strategies.scored_genomes import stored_array
from evolve.strategies.strategy import Arrays, Results, mean_fitness
from evolve.strategies.wrapper import Startable, Wrapper, begun_of, joined


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

    def __init__(self, strategy: Startable, options: RestartOptions) -> None:
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


def with_restarts(strategy: Any, options: Options) -> Any:
    """Return a strategy that restarts as its options say; the strategy itself, where they say nothing of it."""
    if isinstance(options, RestartOptions) and options.restart_after:
        return Restarting(strategy, options)
    return strategy


def validate_restarts(options: RestartOptions) -> None:
    """Raise InputError where it is said how to start or restart, but not that it is to be done."""
    validate_starts(options)
    if options.restart_from != "best" and not options.restart_after:
        raise InputError("strategy.restart_after", f"1 or more, to restart from {options.restart_from}", 0)
