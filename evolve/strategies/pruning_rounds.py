"""Pruning in rounds, after each of which the search begins again with the connections that are left.

Lange & Sprekeler, "Lottery Tickets in Evolutionary Optimization: On Sparse Backpropagation-Free Trainability" (ICML
2023), for pruning by signal-to-noise ratio; Frankle & Carbin, "The Lottery Ticket Hypothesis" (2019), for rounds with
rewinding and for the control. A round is `pruning_every` generations of the strategy; with mean m and standard
deviation s of each weight at its end, and C connections:

    worth     |m|/s of each connection, or |m|, or, as a control, a random number
    mask      the max(2, round(C · `pruning_keep`)) connections of the largest worth, in all matrices together; of
              equals the first
    weights   those of the start, generation 0, wherever a connection is left: they are rewound. All else that the
              strategy has learnt is forgotten. Random streams are keyed by generation, so other candidates are drawn
    control   with `pruning_control` another search follows each round, as long, with the same mask and new initial
              weights, 0 where that initial genome lacks the connection: with a network whose `init_sparsity` is above
              0 it begins with less than the ticket does. What it finds decides nothing: it says what the mask is worth
              without its weights

The champion is that of the newest search; a round is over when the next begins, so after n · `pruning_every`
generations it is what the n-th search has found.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.errors import InputError
from evolve.genome import Block, GenomeLayout, Genomes, GenomeSource, pruned
from evolve.numerics.streams import Purpose, Stream
from evolve.shapes import Bool, Float64, Int64
from evolve.strategies.scored_genomes import stored_array
from evolve.strategies.strategy import Arrays, Newest, Results, Strategy, initial_genomes
from evolve.strategies.wrapper import RestartOptions, copy_attributes, joined, validate_restarts

_FEWEST = 2  # connections that are left in any case


class PruningOptions(RestartOptions):
    """Settings of `[strategy]` that evolution strategies with a standard deviation of each weight share.

    pruning_every: after how many generations connections are pruned and the search begins again; with 0, never.
    pruning_keep: the share of the connections that each round leaves.
    pruning_by: whether those with the smallest ratio of mean to standard deviation go first, the smallest, or any.
    pruning_control: whether each round is followed by a search as long from other initial weights, as a control.
    """

    pruning_every: int = Field(0, ge=0)
    pruning_keep: float = Field(0.8, gt=0, lt=1)
    pruning_by: Literal["signal-to-noise", "magnitude", "random"] = "signal-to-noise"
    pruning_control: bool = False


@dataclass(frozen=True)
class MaskedLayout:
    """A layout whose initial genomes have the connections of a mask [W] at most."""

    layout: GenomeLayout
    mask: Bool

    @property
    def num_weights(self) -> int:
        """W."""
        return self.layout.num_weights

    @property
    def num_traces(self) -> int:
        """T."""
        return self.layout.num_traces

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The matrices."""
        return self.layout.blocks

    def init(self, stream: Stream) -> Genomes:
        """Return one initial genome: that of the layout, pruned."""
        genome = self.layout.init(stream)
        return pruned(genome.weights, genome.mask & self.mask)


@dataclass(frozen=True)
class PruningState:
    """The state of a strategy that prunes in rounds.

    now: That of the strategy. mask: [W], the connections that it searches.
    chosen: [W], those of the next round, where a control is under way; else equal to mask.
    record: [3] int64, the generations of this search, its number from 0, and all completed generations.
    """

    now: Any
    mask: Bool
    chosen: Bool
    record: Int64


class PruningRounds(Strategy[PruningState]):
    """A strategy that prunes in rounds, see `PruningOptions`; it can do what the strategy can do.

    Args:
        make: Returns the strategy for a layout.
        options: When and what to prune.
        layout: That of the genomes.
        seed: That of the experiment.
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
        self._begun = Newest(self._begin)
        copy_attributes(self, self._newest[1])

    def start(self) -> PruningState:
        """Return the state before generation 0."""
        first = self._first
        return PruningState(self._strategy(first).start(), first, first, np.zeros(3, np.int64))

    def ask(self, state: PruningState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates."""
        state = self._begun(state, 0)
        return self._strategy(state.mask).ask(state.now, generation, candidates)

    def sums(self, state: PruningState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return some columns of what the strategy adds up."""
        state = self._begun(state, 0)
        return self._strategy(state.mask).sums(state.now, generation, fitness, columns)

    def tell(self, state: PruningState, genomes: GenomeSource, results: Results) -> PruningState:
        """Take in a generation."""
        state = self._begun(state, 0)
        now = self._strategy(state.mask).tell(state.now, genomes, results)
        return PruningState(now, state.mask, state.chosen, state.record + np.array([1, 0, 1]))

    def champion(self, state: PruningState) -> Genomes:
        """Return the champion of the newest search."""
        return self._strategy(state.mask).champion(state.now)

    def to_arrays(self, state: PruningState) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        ours = {"round_mask": state.mask, "round_chosen": state.chosen, "rounds": state.record}
        return joined(self._strategy(state.mask).to_arrays(state.now), ours)

    def from_arrays(self, arrays: Arrays) -> PruningState:
        """Return the state of those arrays. Raises ValueError when one is missing or has another shape."""
        mask, chosen = (stored_array(arrays, name, "W", np.bool_, W=self._W) for name in ("round_mask", "round_chosen"))
        record = stored_array(arrays, "rounds", "3", np.int64)
        return PruningState(self._strategy(mask).from_arrays(arrays), mask, chosen, record)

    def _strategy(self, mask: Bool) -> Strategy[Any]:
        """Return the strategy for a mask; the newest is remembered."""
        if mask is not self._newest[0] and not np.array_equal(mask, self._newest[0]):
            self._newest = mask, self._made(mask)
        return self._newest[1]

    def _made(self, mask: Bool) -> Strategy[Any]:
        return self._make(MaskedLayout(self._layout, mask))

    def _begin(self, state: PruningState, _: int) -> PruningState:
        """Return the state of which candidates are asked: the next search's, where one is over."""
        spent, number, generations = state.record.tolist()
        if spent < self._options.pruning_every:
            return state
        number += 1
        record = np.array([0, number, generations])
        is_control = self._options.pruning_control and number % 2 == 1
        if is_control:
            anew = self._strategy(state.mask).start_anew(generations)
            return PruningState(anew, state.mask, self._left(state), record)
        mask = state.chosen if self._options.pruning_control else self._left(state)
        return PruningState(self._strategy(mask).start(), mask, mask, record)

    def _left(self, state: PruningState) -> Bool:
        """Return [W]: the connections that the end of a round leaves."""
        connections = int(np.count_nonzero(state.mask))
        best = np.argsort(np.where(state.mask, -self._worth(state), np.inf), kind="stable")
        left = np.zeros(self._W, np.bool_)
        left[best[: max(_FEWEST, round(connections * self._options.pruning_keep))]] = True
        return left & state.mask

    def _worth(self, state: PruningState) -> Float64:
        """Return [W], at least 0: what connections are worth."""
        mean, deviation = self._strategy(state.mask).distribution(state.now)
        match self._options.pruning_by:
            case "signal-to-noise":
                return np.abs(mean) / deviation
            case "random":
                return Stream(self._seed, Purpose.UNIFORM_PRUNING, int(state.record[1])).uniform(self._W)
            case _:
                return np.abs(mean)


def with_pruning_rounds(
    make: Callable[[GenomeLayout], Strategy[Any]], options: Options, layout: GenomeLayout, seed: int
) -> Strategy[Any]:
    """Return the strategy of a layout, pruning in rounds where its options say so."""
    if isinstance(options, PruningOptions) and options.pruning_every:
        return PruningRounds(make, options, layout, seed)
    return make(layout)


def validate_rounds(options: PruningOptions) -> None:
    """Raise InputError where it is said how to prune or to restart, but not when."""
    validate_restarts(options)
    names = ("pruning_keep", "pruning_by", "pruning_control")
    changed = [name for name in names if getattr(options, name) != PruningOptions.model_fields[name].default]
    if changed and not options.pruning_every:
        raise InputError("strategy.pruning_every", f"1 or more, where there is a {changed[0]}", 0)
    if options.restart_after and 0 < options.pruning_every <= options.restart_after:
        expected = f"below pruning_every, {options.pruning_every}, or no search lasts until it restarts"
        raise InputError("strategy.restart_after", expected, options.restart_after)
    starts = options.starts * options.start_generations
    if options.starts > 1 and 0 < options.pruning_every <= starts:
        raise InputError("strategy.pruning_every", f"above starts × start_generations, {starts}", options.pruning_every)
