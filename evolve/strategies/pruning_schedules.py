"""Prune the connections that all candidates of an evolution strategy share: gradually, or in rounds.

**Gradual pruning** is from Zhu & Gupta, "To Prune, or Not to Prune" (2017), eq. 1. Of the C initial connections of a
matrix, this number is left after t of T generations:

    round(C (1 - s)), s = `pruning` · (1 - (1 - t/T)³)

So most connections are pruned early. `pruning_by` selects the connections that are pruned first:

    magnitude   the smallest |θ|; θ is the centre
    trace       the smallest |H̄|; H̄ is the Hebbian trace, averaged over all candidates. A matrix without traces is
                pruned by magnitude
    random      a random order, as a control
    flow        the smallest flow, see `acting`; connections that cannot act have flow 0. If no connection can act, the
                smallest |θ|. Flow treats all matrices as one matrix with C connections

**Pruning in rounds**: after each round the search begins again with the remaining connections. Pruning by
signal-to-noise ratio is from Lange & Sprekeler, "Lottery Tickets in Evolutionary Optimization: On Sparse
Backpropagation-Free Trainability" (ICML 2023). Rounds with rewinding, and the control, are from Frankle & Carbin, "The
Lottery Ticket Hypothesis" (2019). A round is `pruning_every` generations of the strategy. At the end of a round the
strategy has a mean m and a standard deviation s for the weight of each of the C connections:

    importance  |m|/s of each connection, or |m|, or, for comparison, a random number
    mask        the max(2, round(C · `pruning_keep`)) most important connections of all matrices together. Of equally
                important connections the first ones remain
    weights     each remaining connection is rewound to its initial weight, of generation 0. The strategy forgets
                everything else. Random streams are keyed by generation, so the next search draws other random numbers
    control     with `pruning_control` a control follows each round: a search of the same length with the same mask and
                new initial weights. The control measures the mask without the rewound weights. Later rounds use no
                result of the control, but they have other random numbers, because the control has used generations.
                If `init_sparsity` is above 0, the initial genome of the control lacks some connections of the mask. The
                weights of these connections begin at 0

The champion is the champion of the newest search. A run of n · `pruning_every` generations ends with the champion of
the n-th search, because the next search would begin only with the next generation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pydantic import Field

from evolve.errors import InputError
from evolve.genome import GenomeLayout, Genomes, GenomeSource, pruned
from evolve.numerics.streams import Purpose, Stream
from evolve.shapes import Bool, Float64, Int64, stored_array
from evolve.strategies import strategy as contract
from evolve.strategies.acting import Paths
from evolve.strategies.wrapper import RestartOptions, copy_attributes, joined

_MIN_CONNECTIONS = 2  # each round keeps at least this number


def most_important(mask: Bool, importance: Float64, count: int) -> Bool:
    """Return a mask [n] of the `count` most important connections of a mask [n]; of all connections if there are fewer.

    importance: [n]. Of equally important connections the first ones remain.
    """
    # Absent connections come last. If `count` includes some of them, `& mask` removes them at the end.
    order = np.argsort(np.where(mask, -importance, np.inf), kind="stable")
    remaining = np.zeros(len(mask), np.bool_)
    remaining[order[:count]] = True
    return remaining & mask


@dataclass(frozen=True)
class GradualPruning:
    """Gradual pruning, see the top of this module.

    share: The setting `pruning`, the share of the initial connections that is pruned after T generations.
    generations: T, the setting `pruning_generations`.
    by: The setting `pruning_by`, the connections that are pruned first.
    layout: The layout of the genomes.
    initial: [W], the mask before generation 0.
    seed: The seed of the experiment.
    """

    share: float
    generations: int
    by: Literal["magnitude", "trace", "random", "flow"]
    layout: GenomeLayout
    initial: Bool
    seed: int

    def mask_after(self, generations: int, mask: Bool, centre: Float64, results: contract.Results) -> Bool:
        """Return the mask [W] after a number of generations.

        Args:
            generations: t, the number of completed generations.
            mask: [W], the mask before this generation.
            centre: [W], θ.
            results: The results of the newest generation.
        """
        remaining_time = 1 - min(generations / self.generations, 1.0)  # as a share of T
        # Products, because the operator ** calls libm, and its bits differ between machines.
        pruned_share = self.share * (1 - remaining_time * remaining_time * remaining_time)
        importance = self._importance(mask, centre, results)
        remaining = np.zeros(len(mask), np.bool_)
        # Each matrix loses the same share. Otherwise a layer could lose all its connections. Only flow can treat all
        # matrices as one: the fewer connections a layer has, the larger is the flow through each of them.
        matrices = [slice(block.start, block.stop) for block in self.layout.blocks]
        if self.by == "flow":
            matrices = [slice(None)]
        for matrix in matrices:
            # All importances are 0 if a matrix has no traces, or if no connection can act.
            ranked_by = importance[matrix] if importance[matrix].any() else np.abs(centre[matrix])
            count = round(np.count_nonzero(self.initial[matrix]) * (1 - pruned_share))
            remaining[matrix] = most_important(mask[matrix], ranked_by, count)
        return remaining

    def _importance(self, mask: Bool, centre: Float64, results: contract.Results) -> Float64:
        """Return the importance [W] of each connection, at least 0."""
        match self.by:
            case "trace":
                return np.abs(np.nan_to_num(results.average_traces(len(centre)), nan=0.0))
            case "random":
                return Stream(self.seed, Purpose.UNIFORM_PRUNING).uniform(len(centre))
            case "flow":
                return Paths(self.layout).flow(np.where(mask, centre, 0.0))
            case _:
                return np.abs(centre)


class PruningOptions(RestartOptions):
    """Settings of `[strategy]` that all evolution strategies with a standard deviation per weight have."""

    pruning_every: int = Field(0, ge=0)
    """The length of a round in generations; after each round connections are pruned. With 0 there are no rounds."""
    pruning_keep: float = Field(0.8, gt=0, lt=1)
    """The share of the connections that remain after each round."""
    pruning_by: Literal["signal-to-noise", "magnitude", "random"] = "signal-to-noise"
    """The connections that are pruned first: those with the smallest ratio of a weight's mean to its standard
    deviation, with the smallest mean, or random ones. The sign of the mean does not count."""
    pruning_control: bool = False
    """Whether a control follows each round: a search of the same length that begins with other initial weights."""

    def is_control(self, search: int) -> bool:
        """Return whether a search, numbered from 0, is a control. A control follows each round."""
        return self.pruning_control and search % 2 == 1

    def check_combinations(self) -> None:
        """Raise InputError for a setting without effect, and for rounds too short for a restart or for all starts."""
        super().check_combinations()
        every, choosing = self.pruning_every, self.choosing_generations
        for name in ("pruning_keep", "pruning_by", "pruning_control"):
            if not every and getattr(self, name) != PruningOptions.model_fields[name].default:
                raise InputError("strategy.pruning_every", f"1 or more, if there is a {name}", 0)
        if self.restart_after and 0 < every <= self.restart_after:
            expected = f"below pruning_every, {every}, because each round ends after {every} generations"
            raise InputError("strategy.restart_after", expected, self.restart_after)
        if self.starts > 1 and 0 < every <= choosing:
            raise InputError("strategy.pruning_every", f"above {choosing}, the generations of all starts", every)


@dataclass(frozen=True)
class MaskedLayout(contract.ChangedLayout):
    """A layout with initial genomes that have only the connections of a mask [W]."""

    mask: Bool

    def init(self, stream: Stream) -> Genomes:
        """Return one initial genome of the layout, pruned."""
        genome = self.layout.init(stream)
        return pruned(genome.weights, genome.mask & self.mask)


@dataclass(frozen=True)
class RoundRecord(contract.NamedNumbers):
    """The progress of a strategy that prunes in rounds.

    search_generations: The completed generations of the present search.
    search: The number of the present search, from 0. Controls count as searches.
    generations: The completed generations of all searches.
    """

    dtype: ClassVar[DTypeLike] = np.int64

    search_generations: int
    search: int
    generations: int


@dataclass(frozen=True)
class PruningState:
    """The state of a strategy that prunes in rounds.

    now: The state of the inner strategy, which searches in this round.
    mask: [W], the connections that the inner strategy searches.
    next_mask: [W], the connections of the next round while a control runs; otherwise equal to mask.
    record: The progress.
    """

    now: Any
    mask: Bool
    next_mask: Bool
    record: RoundRecord


MakeStrategy = Callable[[GenomeLayout], contract.Strategy[Any]]
"""Returns a strategy for a layout."""


class PruningRounds(contract.Strategy[PruningState]):
    """A strategy that runs an inner strategy in rounds, and prunes connections between rounds.

    The inner strategy is made anew when the mask changes.

    Args:
        make: Returns the inner strategy for a layout.
        options: The length of the rounds, and the connections to prune.
        layout: The layout of the genomes.
        seed: The seed of the experiment.
    """

    def __init__(self, make: MakeStrategy, options: PruningOptions, layout: GenomeLayout, seed: int) -> None:
        self._options = options
        self._seed = seed
        self._W = layout.num_weights
        self._initial_mask = contract.initial_genomes(layout, seed, 0, range(1)).mask[0]
        self._make = make
        self._layout = layout
        # Both are caches. An inner strategy has caches, too, which compare states by identity. So all calls of `ask` in
        # a generation must use the same strategy and the same state.
        self._strategy_of = contract.NewestValue(self._strategy_for)
        self._current_of = contract.NewestValue(self._current_search)
        copy_attributes(self, self._strategy_of(self._initial_mask))

    def start(self) -> PruningState:
        """Return the state before generation 0."""
        mask = self._initial_mask
        record = RoundRecord(search_generations=0, search=0, generations=0)
        return PruningState(self._strategy_of(mask).start(), mask, mask, record)

    def ask(self, state: PruningState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates of the present search."""
        state = self._current_of(state)
        return self._strategy_of(state.mask).ask(state.now, generation, candidates)

    def sums(self, state: PruningState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return the inner strategy's sums over all candidates, for some columns."""
        state = self._current_of(state)
        return self._strategy_of(state.mask).sums(state.now, generation, fitness, columns)

    def tell(self, state: PruningState, genomes: GenomeSource, results: contract.Results) -> PruningState:
        """Return the state after a generation: the present search learns from its results."""
        state = self._current_of(state)
        now = self._strategy_of(state.mask).tell(state.now, genomes, results)
        old = state.record
        record = RoundRecord(old.search_generations + 1, old.search, old.generations + 1)
        return PruningState(now, state.mask, state.next_mask, record)

    def champion(self, state: PruningState) -> Genomes:
        """Return the champion of the newest search."""
        return self._strategy_of(state.mask).champion(state.now)

    def champion_generation(self, state: PruningState) -> int | None:
        """Return the generation that evaluated the champion; None if there is none, or if there may be several."""
        return self._strategy_of(state.mask).champion_generation(state.now)

    def outcome(self, state: PruningState) -> dict[str, Float64]:
        """Return the inner strategy's front or archive, see `Strategy.outcome`."""
        return self._strategy_of(state.mask).outcome(state.now)

    def select(self, state: PruningState, /, **which: Any) -> Genomes:
        """Return a genome of the inner strategy's front or archive."""
        return self._strategy_of(state.mask).select(state.now, **which)

    def origin(self, state: PruningState, cell: Sequence[int]) -> tuple[int, int]:
        """Return the generation and the candidate number of an elite of the inner strategy."""
        return self._strategy_of(state.mask).origin(state.now, cell)

    def to_arrays(self, state: PruningState) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        own = {"round_mask": state.mask, "round_chosen": state.next_mask, "rounds": state.record.to_array()}
        return joined(self._strategy_of(state.mask).to_arrays(state.now), own)

    def from_arrays(self, arrays: contract.Arrays) -> PruningState:
        """Return the state that `to_arrays` stored. Raises ValueError if an array is missing or has another shape."""
        mask = stored_array(arrays, "round_mask", "W", np.bool_, W=self._W)
        next_mask = stored_array(arrays, "round_chosen", "W", np.bool_, W=self._W)
        record = RoundRecord.from_arrays(arrays, "rounds")
        return PruningState(self._strategy_of(mask).from_arrays(arrays), mask, next_mask, record)

    def _strategy_for(self, mask: Bool, _generation: int) -> contract.Strategy[Any]:
        """Return the inner strategy for a mask."""
        return self._make(MaskedLayout(self._layout, mask))

    def _current_search(self, state: PruningState, _generation: int) -> PruningState:
        """Return the state from which candidates are drawn: the given state or, at the end of a search, a new start."""
        # The next search begins when its first candidates are drawn, not when the round ends. So a run that ends with a
        # round has the champion of this round.
        if state.record.search_generations < self._options.pruning_every:
            return state
        record = RoundRecord(0, state.record.search + 1, state.record.generations)
        if self._options.is_control(record.search):
            # Choose the next mask now, by the state at the end of the round. The control begins with another state.
            control = self._strategy_of(state.mask).start_anew(record.generations)
            return PruningState(control, state.mask, self._pruned_mask(state), record)
        mask = state.next_mask if self._options.pruning_control else self._pruned_mask(state)
        return PruningState(self._strategy_of(mask).start(), mask, mask, record)

    def _pruned_mask(self, state: PruningState) -> Bool:
        """Return the mask [W] after the pruning at the end of a round."""
        count = max(_MIN_CONNECTIONS, round(np.count_nonzero(state.mask) * self._options.pruning_keep))
        return most_important(state.mask, self._importance(state), count)

    def _importance(self, state: PruningState) -> Float64:
        """Return the importance [W] of each connection, at least 0."""
        mean, deviation = self._strategy_of(state.mask).distribution(state.now)
        match self._options.pruning_by:
            case "signal-to-noise":
                return np.abs(mean) / deviation
            case "random":
                # Each round has another random order.
                return Stream(self._seed, Purpose.UNIFORM_PRUNING, state.record.search).uniform(self._W)
            case _:
                return np.abs(mean)
