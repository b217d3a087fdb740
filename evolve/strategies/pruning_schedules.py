"""Schedules by which evolution strategies prune the connections that all candidates share: gradually, or in rounds.

**Gradual pruning**, Zhu & Gupta, "To Prune, or Not to Prune" (2017), eq. 1. After t of T generations

    round(C (1 - s)) of the C initial connections of a matrix are left, s = `pruning` · (1 - (1 - t/T)³)

so pruning is fast while there are many. The connections of the smallest |θ| go first, θ the centre; or the connections
of the smallest |H̄|, the trace averaged over all candidates, if the matrix has any; or, as a control, random ones. By
"flow" C counts the connections of all matrices together, and the connections with the smallest flow go first, see
`acting`: at first those that cannot act, whose flow is 0.

**Pruning in rounds**: after each round the search begins again with the connections that are left. Lange & Sprekeler,
"Lottery Tickets in Evolutionary Optimization: On Sparse Backpropagation-Free Trainability" (ICML 2023), for pruning by
signal-to-noise ratio; Frankle & Carbin, "The Lottery Ticket Hypothesis" (2019), for rounds with rewinding and for the
control. A round is `pruning_every` generations of the strategy. With mean m and standard deviation s of each weight at
its end, and C connections:

    worth     |m|/s of each connection, or |m|, or, as a control, a random number
    mask      the max(2, round(C · `pruning_keep`)) connections of the largest worth, in all matrices together; the
              first ones of equal worth
    weights   the initial weights, of generation 0, of all connections that are left: they are rewound. All else that
              the strategy has learnt is forgotten. Random streams are keyed by generation, so candidates differ
    control   with `pruning_control` another search of the same length follows each round. It has the same mask and new
              initial weights, 0 if that initial genome lacks the connection: with a network whose `init_sparsity` is
              above 0 it begins with less than the ticket does. Its result decides nothing: it shows what the mask is
              worth without its weights

The champion is the champion of the newest search. A round is over when the next one begins, so after
n · `pruning_every` generations it is the result of the n-th search.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pydantic import Field

from evolve.errors import InputError
from evolve.genome import GenomeLayout, Genomes, GenomeSource, pruned
from evolve.numerics.streams import Purpose, Stream
from evolve.shapes import Bool, Float64, Int64
from evolve.strategies.acting import Paths
from evolve.strategies.strategy import (
    Arrays,
    ChangedLayout,
    NamedNumbers,
    NewestValue,
    Results,
    Strategy,
    initial_genomes,
    stored_array,
)
from evolve.strategies.wrapper import RestartOptions, copy_attributes, joined

_FEWEST = 2  # connections that are left in any case


def most_worthy(mask: Bool, worth: Float64, count: int) -> Bool:
    """Return the at most `count` connections [n] of the largest worth [n] in a mask [n], the first of equal worth."""
    best = np.argsort(np.where(mask, -worth, np.inf), kind="stable")
    left = np.zeros(len(mask), np.bool_)
    left[best[:count]] = True
    return left & mask


@dataclass(frozen=True)
class GradualPruning:
    """Gradual pruning, see above.

    share: The share of connections that is pruned in all, `pruning`.
    generations: T, `pruning_generations`.
    by: Which connections go first, `pruning_by`.
    layout: The layout of the genomes, with the matrices.
    initial: [W], the mask at first.
    seed: The seed of the experiment.
    """

    share: float
    generations: int
    by: Literal["magnitude", "trace", "random", "flow"]
    layout: GenomeLayout
    initial: Bool
    seed: int

    def mask_after(self, generations: float, mask: Bool, centre: Float64, results: Results) -> Bool:
        """Return the mask [W] after a number of generations.

        Args:
            generations: t.
            mask: [W], the mask before.
            centre: [W], θ.
            results: The results of the newest generation.
        """
        to_come = 1 - min(generations / self.generations, 1.0)
        gone = self.share * (1 - to_come * to_come * to_come)  # no power, which is libm's
        worth = self._worth(mask, centre, results)
        left = np.zeros(len(mask), np.bool_)
        # Each matrix loses the same share, so that no layer loses all of its connections. Flow needs no such care:
        # the smaller a layer becomes, the larger is the flow through each of its connections.
        places = [slice(block.start, block.stop) for block in self.layout.blocks]
        for place in [slice(None)] if self.by == "flow" else places:
            of_block = worth[place] if worth[place].any() else np.abs(centre[place])
            count = round(np.count_nonzero(self.initial[place]) * (1 - gone))
            left[place] = most_worthy(mask[place], of_block, count)
        return left

    @cached_property
    def _paths(self) -> Paths:
        return Paths.of(self.layout)

    def _worth(self, mask: Bool, centre: Float64, results: Results) -> Float64:
        """Return the worth [W] of each connection, at least 0."""
        match self.by:
            case "trace":
                return np.abs(np.nan_to_num(results.average_traces(len(centre)), nan=0.0))
            case "random":
                return Stream(self.seed, Purpose.UNIFORM_PRUNING).uniform(len(centre))
            case "flow":
                return self._paths.flow(np.where(mask, centre, 0.0))
            case _:
                return np.abs(centre)


class PruningOptions(RestartOptions):
    """Settings of `[strategy]` that evolution strategies with a standard deviation of each weight share."""

    pruning_every: int = Field(0, ge=0)
    """The generations after which connections are pruned and the search begins again; with 0, never."""
    pruning_keep: float = Field(0.8, gt=0, lt=1)
    """The share of the connections that each round leaves."""
    pruning_by: Literal["signal-to-noise", "magnitude", "random"] = "signal-to-noise"
    """The connections that go first: by the ratio of a weight's mean to its standard deviation, by the size of its
    mean, or at random."""
    pruning_control: bool = False
    """Whether a control follows each round: a search of the same length that begins with other initial weights."""

    def check_combinations(self) -> None:
        """Raise InputError for a setting that has no effect beside the others, and for searches that end too early."""
        super().check_combinations()
        every, starts = self.pruning_every, self.starts * self.start_generations
        names = ("pruning_keep", "pruning_by", "pruning_control")
        changed = [name for name in names if getattr(self, name) != PruningOptions.model_fields[name].default]
        if changed and not every:
            raise InputError("strategy.pruning_every", f"1 or more, if there is a {changed[0]}", 0)
        if self.restart_after and 0 < every <= self.restart_after:
            expected = f"below pruning_every, {every}, or no search lasts until it restarts"
            raise InputError("strategy.restart_after", expected, self.restart_after)
        if self.starts > 1 and 0 < every <= starts:
            raise InputError("strategy.pruning_every", f"above starts × start_generations, {starts}", every)


@dataclass(frozen=True)
class MaskedLayout(ChangedLayout):
    """A layout with initial genomes that have at most the connections of a mask [W]."""

    mask: Bool

    def init(self, stream: Stream) -> Genomes:
        """Return one initial genome of the layout, pruned."""
        genome = self.layout.init(stream)
        return pruned(genome.weights, genome.mask & self.mask)


@dataclass(frozen=True)
class RoundRecord(NamedNumbers):
    """The progress of a strategy that prunes in rounds.

    spent: The generations of the present search.
    search: The number of the search, from 0; a control is a search, too.
    generations: All completed generations.
    """

    dtype: ClassVar[DTypeLike] = np.int64

    spent: int
    search: int
    generations: int


@dataclass(frozen=True)
class PruningState:
    """The state of a strategy that prunes in rounds.

    now: The state of the strategy.
    mask: [W], the connections that the strategy searches.
    chosen: [W], the connections of the next round, during a control; otherwise equal to mask.
    record: The progress.
    """

    now: Any
    mask: Bool
    chosen: Bool
    record: RoundRecord


class PruningRounds(Strategy[PruningState]):
    """A strategy that prunes in rounds, see `PruningOptions`, with the attributes and abilities of another strategy.

    Args:
        make: Returns the other strategy for a layout.
        options: When and what to prune.
        layout: The layout of the genomes.
        seed: The seed of the experiment.
    """

    def __init__(
        self, make: Callable[[GenomeLayout], Strategy[Any]], options: PruningOptions, layout: GenomeLayout, seed: int
    ) -> None:
        self._options = options
        self._seed = seed
        self._W = layout.num_weights
        self._first = initial_genomes(layout, seed, 0, range(1)).mask[0]
        self._make = make
        self._layout = layout
        self._newest = self._first, self._made(self._first)
        self._begun = NewestValue(self._begin)
        copy_attributes(self, self._newest[1])

    def start(self) -> PruningState:
        """Return the state before generation 0."""
        first = self._first
        return PruningState(self._strategy(first).start(), first, first, RoundRecord(0, 0, 0))

    def ask(self, state: PruningState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates of the strategy."""
        state = self._begun(state, 0)
        return self._strategy(state.mask).ask(state.now, generation, candidates)

    def sums(self, state: PruningState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return the strategy's sums over all candidates, for some columns."""
        state = self._begun(state, 0)
        return self._strategy(state.mask).sums(state.now, generation, fitness, columns)

    def tell(self, state: PruningState, genomes: GenomeSource, results: Results) -> PruningState:
        """Take in a generation."""
        state = self._begun(state, 0)
        now, before = self._strategy(state.mask).tell(state.now, genomes, results), state.record
        record = RoundRecord(before.spent + 1, before.search, before.generations + 1)
        return PruningState(now, state.mask, state.chosen, record)

    def champion(self, state: PruningState) -> Genomes:
        """Return the champion of the newest search."""
        return self._strategy(state.mask).champion(state.now)

    def to_arrays(self, state: PruningState) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        ours = {"round_mask": state.mask, "round_chosen": state.chosen, "rounds": state.record.to_array()}
        return joined(self._strategy(state.mask).to_arrays(state.now), ours)

    def from_arrays(self, arrays: Arrays) -> PruningState:
        """Return the state that `to_arrays` stored. Raises ValueError if an array is missing or has another shape."""
        mask, chosen = (stored_array(arrays, name, "W", np.bool_, W=self._W) for name in ("round_mask", "round_chosen"))
        record = RoundRecord.from_arrays(arrays, "rounds")
        return PruningState(self._strategy(mask).from_arrays(arrays), mask, chosen, record)

    def _strategy(self, mask: Bool) -> Strategy[Any]:
        """Return the strategy for a mask; the newest one is cached."""
        if mask is not self._newest[0] and not np.array_equal(mask, self._newest[0]):
            self._newest = mask, self._made(mask)
        return self._newest[1]

    def _made(self, mask: Bool) -> Strategy[Any]:
        return self._make(MaskedLayout(self._layout, mask))

    def _begin(self, state: PruningState, _: int) -> PruningState:
        """Return the state that candidates are drawn from: the start of the next search, if the present one is over."""
        # The next search begins with the next generation, not at the end of the last one. So a state at the end of a
        # round still has the champion of that round, and a run that ends there does not prune for nothing.
        if state.record.spent < self._options.pruning_every:
            return state
        search, generations = state.record.search + 1, state.record.generations
        record = RoundRecord(0, search, generations)
        is_control = self._options.pruning_control and search % 2 == 1
        if is_control:
            anew = self._strategy(state.mask).start_anew(generations)
            return PruningState(anew, state.mask, self._left(state), record)
        mask = state.chosen if self._options.pruning_control else self._left(state)
        return PruningState(self._strategy(mask).start(), mask, mask, record)

    def _left(self, state: PruningState) -> Bool:
        """Return [W]: the connections that the end of a round leaves."""
        count = max(_FEWEST, round(np.count_nonzero(state.mask) * self._options.pruning_keep))
        return most_worthy(state.mask, self._worth(state), count)

    def _worth(self, state: PruningState) -> Float64:
        """Return the worth [W] of each connection, at least 0."""
        mean, deviation = self._strategy(state.mask).distribution(state.now)
        match self._options.pruning_by:
            case "signal-to-noise":
                return np.abs(mean) / deviation
            case "random":
                return Stream(self._seed, Purpose.UNIFORM_PRUNING, state.record.search).uniform(self._W)
            case _:
                return np.abs(mean)
