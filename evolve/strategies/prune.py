"""prune: children of an elite swap matrices, and lose connections that their parents' episodes did not use.

This is the strategy of the script of 2020 with which this project began. Let K = ceil(P/8). The pool consists of the
champion, of the leaderboard (the K best ever), and of the K best of the last generation, sorted by score. A genome can
be in the pool several times: the champion is also the first of the leaderboard. A generation consists of the first
`survivors` of the leaderboard, unchanged, and of children:

    parent     drawn from the pool with probability proportional to (pool size - rank)
    K swaps    two children exchange one matrix or, half the time, all matrices that lead to one layer
    trace      connection w is pruned with probability min(1, q·c·softmax(-|H̄|)(w)) over the c remaining connections
               of each matrix; q is `trace_pruning`. H̄ is the parent's Hebbian trace, averaged over the episodes of its
               last evaluation. Swaps exchange traces, too. If the network leaves no traces, there is no such pruning
    uniform    in a share `uniform_pruning_chance` of the children, each connection is pruned with probability
               `uniform_pruning`. With "adaptive" this probability is, as for the binary-mask perceptron of 2020, the
               relative standard deviation of the numbers of connections C in the pool: sqrt(mean((C - C̄)²))/C̄,
               limited to [0.001, 0.0125]
    regrowth   each absent connection returns with probability `regrowth`, its weight N(0, 1)
    noise      then the weight of every connection, also of a returned one, moves by `weight_noise` · N(0, 1)

See `elitist` for scores and prior evaluations. For the K best of the last generation, only the fitness of that
generation counts. Survivors are evaluated again in every generation, so a lucky score does not last. With one survivor,
as in the script of 2020, any other genome on the leaderboard keeps its first score until it comes first.

If the search begins with a given genome, this genome is the parent of all children of generation 0. It has played no
episode, so all its traces are 0, and trace pruning removes each connection with probability q.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from evolve.config import Options
from evolve.errors import InputError
from evolve.genome import Block, GenomeLayout, Genomes, GenomeSource, pruned
from evolve.numerics import exp, ordered_sum
from evolve.numerics.perturbation import add_noise
from evolve.numerics.streams import Purpose, Stream, Streams
from evolve.shapes import Bool, Float32, Float64, Int64, ceil_div, check_shape
from evolve.strategies import strategy as contract
from evolve.strategies.elitist import Elitist, ScoredGenomes


def _check_rate(value: float | str) -> float | str:
    if value != "adaptive" and not (isinstance(value, float) and 0 <= value <= 1):
        raise ValueError('"adaptive", or a number from 0 to 1')
    return value


class PruneOptions(Options):
    """Settings of `[strategy]` for prune. The script of 2020 had one survivor, and no noise."""

    trace_pruning: float = Field(0.01, ge=0, le=1)
    """q, the approximate share of a matrix's connections that is pruned because of weak traces."""
    uniform_pruning: Annotated[float | str, AfterValidator(_check_rate)] = 0.01
    """The probability that a connection is pruned by chance; "adaptive" follows the spread of the pool."""
    uniform_pruning_chance: float = Field(0.5, ge=0, le=1)
    """The share of children that are pruned by chance."""
    survivors: int = Field(4, ge=1)
    """The number of genomes that are kept unchanged and evaluated again; at most ceil(population / 8)."""
    prior_evaluations: int = Field(0, ge=0, le=1000)
    """Extra evaluations in the score of a new genome, each with the mean fitness of its first generation."""
    regrowth: float = Field(0.0, ge=0, le=1)
    """The probability that an absent connection returns."""
    weight_noise: float = Field(0.2, ge=0, le=1e6)
    """The standard deviation of the noise that is added to a weight."""


@dataclass(frozen=True)
class PruneState:
    """The K best genomes of all generations, best first, and the K best of the last generation, best first."""

    leaderboard: ScoredGenomes
    recent: ScoredGenomes


def adaptive_rate(state: PruneState) -> float:
    """Return the relative standard deviation of the numbers of connections in the pool, limited to [0.001, 0.0125]."""
    best, recent = state.leaderboard.genomes.connections(), state.recent.genomes.connections()
    # The pool, in which the champion counts twice.
    connections = np.concatenate([best[:1], best, recent]).astype(np.float64)
    mean = float(ordered_sum(connections)) / len(connections)
    # NumPy computes a square by a multiplication, so ** does not call libm here.
    variance = float(ordered_sum((mean - connections) ** 2)) / len(connections)
    deviation = math.sqrt(variance) / mean if mean else 0.0
    return min(max(deviation, 0.001), 0.0125)


def parent_ranks(pool_size: int, children: int, stream: Stream) -> NDArray[np.intp]:
    """Return [children]: the rank in the pool of each child's parent, by linear rank selection."""
    # Integers, because they have no rounding errors: every machine selects the same parents.
    cumulative = np.cumsum(np.arange(pool_size, 0, -1))
    # Of the whole numbers below cumulative[-1], exactly pool_size - r numbers select rank r.
    return np.searchsorted(cumulative, stream.below(int(cumulative[-1]), children), side="right")


def swap_blocks(sources: Int64, blocks: Sequence[Block], draws: Float64) -> Int64:
    """Return the sources after K swaps. In each swap, two children exchange a block, or all blocks of a layer.

    Args:
        sources: [children, blocks]. A source is the number of the member of the pool from which a child takes a block.
        blocks: The blocks of the layout.
        draws: [K, 5], uniform numbers for each swap. They choose the first child, the second child, the block, whether
            a layer is swapped instead of the block, and the layer.
    """
    children = len(sources)
    if children < 2:
        return sources
    layer_of = [block.layer for block in blocks]
    # For each layer the slice of its blocks, which are contiguous.
    layers = [slice(layer_of.index(n), layer_of.index(n) + layer_of.count(n)) for n in dict.fromkeys(layer_of)]
    bounds = children, children - 1, len(blocks), len(layers)
    # A whole number below a bound: a uniform number times the bound, rounded down, as in `Stream.below`.
    chosen = np.floor(draws[:, (0, 1, 2, 4)] * bounds).astype(np.int64)
    columns = sources.T.tolist()  # for each block the sources of all children; swaps are faster in lists than in arrays
    for (one, other, block, layer), swaps_layer in zip(chosen.tolist(), (draws[:, 3] < 0.5).tolist(), strict=True):
        two = other + 1 if other >= one else other  # `other` is a number among the children without child `one`
        swapped = layers[layer] if swaps_layer else slice(block, block + 1)
        for column in columns[swapped]:
            column[one], column[two] = column[two], column[one]
    return np.array(columns, np.int64).T


def assemble(
    state: PruneState, sources: Int64, blocks: Sequence[Block], q: float | None
) -> tuple[Float32, Bool, Float64]:
    """Return weights, mask and pruning probability [n, W] of children that take their blocks from sources [n, blocks].

    A source is the number of a member of the pool: 0 is the champion, then come the leaderboard, and the best of the
    last generation. The probability is the `trace_pruning_probability` of the rate q; 0 if q is None.
    """
    n, W = len(sources), blocks[-1].stop
    weights, mask, probability = np.empty((n, W), np.float32), np.empty((n, W), np.bool_), np.zeros((n, W))
    # Assemble children block by block, because a copy of the whole pool would double the memory.
    for column, block in enumerate(blocks):
        place = slice(block.start, block.stop)
        # Several children can take a block from the same member. Compute the member's probability once.
        members, row_of_child = np.unique(sources[:, column], return_inverse=True)
        block_weights, block_mask, block_traces = _blocks_of(state, members, place)
        weights[:, place] = block_weights[row_of_child]
        mask[:, place] = block_mask[row_of_child]
        if q is not None:
            probability[:, place] = trace_pruning_probability(q, block_mask, block_traces)[row_of_child]
    return weights, mask, probability


def _blocks_of(state: PruneState, members: Int64, place: slice) -> tuple[Float32, Bool, Float32]:
    """Return weights, mask and traces, [n, k] each, of n members of the pool at a place, a slice of k weights.

    members: [n], the numbers of the members as in `assemble`, in ascending order.
    """
    first_recent = 1 + len(state.leaderboard)
    # Members 1, 2, … are the leaderboard. Member 0, the champion, is the first on the leaderboard.
    ranks = np.maximum(members[members < first_recent] - 1, 0)
    recent_ranks = members[len(ranks) :] - first_recent

    def of_members(leaderboard: NDArray[Any], recent: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([leaderboard[ranks, place], recent[recent_ranks, place]])

    leaderboard, recent = state.leaderboard, state.recent
    return (
        of_members(leaderboard.genomes.weights, recent.genomes.weights),
        of_members(leaderboard.genomes.mask, recent.genomes.mask),
        of_members(leaderboard.traces, recent.traces),
    )


def trace_pruning_probability(q: float, mask: Bool, traces: Float32) -> Float64:
    """Return [n, k]: min(1, q·c·softmax(-|H̄|)) over the c connections of each row; 0 for an absent connection.

    mask, traces: [n, k], the present connections of one block in n genomes, and their traces H̄.
    """
    x = np.where(mask, np.abs(traces), np.float32(np.inf))
    # As usual for a softmax, subtract the smallest number first. The largest exponential is then 1, so not all of them
    # underflow.
    smallest = x.min(axis=1, keepdims=True)
    smallest[np.isinf(smallest)] = 0  # a row without connections: inf - inf would be NaN
    exponentials = np.where(mask, exp(smallest - x), np.float32(0)).astype(np.float64)
    total = ordered_sum(exponentials)[:, None]
    softmax = exponentials / np.where(total > 0, total, 1.0)
    return np.minimum(1.0, q * np.count_nonzero(mask, axis=1)[:, None] * softmax)


class Prune(Elitist[PruneState]):
    """prune for P = `population` candidates of a layout. The elite is the leaderboard."""

    def __init__(self, options: PruneOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        self._K = ceil_div(population, 8)
        super().__init__(layout, population, seed, self._K, options.survivors, options.prior_evaluations)
        self._options = options
        self._plan_of = contract.NewestValue(self._plan)  # a cache: one plan for each generation
        self.capacity = 2 * self._K  # the leaderboard and the recent genomes
        self.traces = "each" if layout.num_traces else "none"

    @staticmethod
    def validate(options: PruneOptions, layout: GenomeLayout) -> None:
        """Raise InputError for a rate of trace pruning if episodes leave no traces."""
        # Accept the default, although it has no effect: every network must work with the default settings.
        if not layout.num_traces and options.trace_pruning not in (0.0, PruneOptions().trace_pruning):
            expected = "a network that leaves Hebbian traces, such as hebbian-dag, or 0"
            raise InputError("strategy.trace_pruning", expected, options.trace_pruning)

    def start(self) -> PruneState:
        """Return the state before generation 0, in which no genome has been evaluated."""
        W = self._layout.num_weights  # also the number of traces, which are zeros if the network leaves none
        leaderboard = ScoredGenomes.initial(self._layout, W)
        return PruneState(leaderboard, recent=leaderboard.best(0))

    def tell(self, state: PruneState, genomes: GenomeSource, results: contract.Results) -> PruneState:
        """Score the survivors again. Keep the K best genomes of all generations, and the K best of this generation."""
        P, T = self._P, self._layout.num_traces
        contract.check_population(genomes, results, P, self._layout.num_weights)
        check_shape(results.traces, "traces", "P T", np.float32, P=P, T=T)
        num_survivors, fitness = self.survivors(state), results.fitness
        # The best of this generation may include survivors. The leaderboard has the survivors already, so only new
        # candidates join it.
        best = contract.ranking(fitness)[: self._K]
        best_new = num_survivors + contract.ranking(fitness[num_survivors:])[: self._K]
        new = self._evaluated(genomes, results, best_new).with_prior(self._prior, fitness)
        traces = results.traces[:num_survivors] if T else None
        # A given genome that no generation has evaluated has no score, so drop it here. It is candidate 0, and can join
        # as a new candidate.
        leaderboard = state.leaderboard.evaluated_before.with_evaluation(fitness[:num_survivors], traces)
        return PruneState(leaderboard.joined(new).best(self._K), recent=self._evaluated(genomes, results, best))

    def to_arrays(self, state: PruneState) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        return contract.arrays_of(state.leaderboard, "leaderboard_") | contract.arrays_of(state.recent, "recent_")

    def from_arrays(self, arrays: contract.Arrays) -> PruneState:
        """Return the state that `to_arrays` stored. Raises ValueError if an array is missing or has another shape."""
        W = self._layout.num_weights  # also the number of traces
        leaderboard = contract.state_of(ScoredGenomes, arrays, "leaderboard_", {"W": W, "T": W})
        return PruneState(leaderboard, contract.state_of(ScoredGenomes, arrays, "recent_", {"W": W, "T": W}))

    def _elite(self, state: PruneState) -> ScoredGenomes:
        return state.leaderboard

    def _evaluated(self, genomes: GenomeSource, results: contract.Results, candidates: Int64) -> ScoredGenomes:
        """Return the given candidates [n] with fitness and traces, which are zeros if the network leaves no traces."""
        members = genomes.take(candidates)
        traces = results.traces[candidates] if self._layout.num_traces else np.zeros(members.weights.shape, np.float32)
        return ScoredGenomes.evaluated(members, results.fitness[candidates], traces)

    def _plan(self, state: PruneState, generation: int) -> tuple[Int64, float]:
        """Return the sources [children, blocks] of all children (see `assemble`), and the rate of uniform pruning."""
        # The scores of the pool, in the order of `assemble`. Swaps exchange blocks between children, so the plan is for
        # all children.
        scores = np.concatenate([state.leaderboard.score[:1], state.leaderboard.score, state.recent.score])
        children, blocks = self._P - self._num_copies(state), self._layout.blocks
        ranks = parent_ranks(len(scores), children, Stream(self._seed, Purpose.PARENTS, generation))
        parents = contract.ranking(scores)[ranks]
        draws = Streams(self._seed, Purpose.SWAPS, generation, np.arange(self._K)).uniform(5)
        setting = self._options.uniform_pruning
        rate = adaptive_rate(state) if isinstance(setting, str) else setting
        return swap_blocks(np.repeat(parents[:, None], len(blocks), axis=1), blocks, draws), rate

    def _children(self, state: PruneState, generation: int, candidates: Int64) -> Genomes:
        o, W, blocks = self._options, self._layout.num_weights, self._layout.blocks
        sources, rate = self._plan_of(state, generation)
        q = o.trace_pruning if self._layout.num_traces else None
        weights, mask, probability = assemble(state, sources[candidates - self._num_copies(state)], blocks, q)

        def streams(purpose: Purpose) -> Streams:
            return Streams(self._seed, purpose, generation, candidates)

        # A connection remains if its uniform random number is at least the probability of pruning it.
        if q is not None:
            mask &= streams(Purpose.TRACE_PRUNING).at_least(probability, W)
        # The first number of a stream decides whether its child is pruned uniformly. The next W numbers decide which
        # connections are pruned.
        uniform = streams(Purpose.UNIFORM_PRUNING)
        selected = uniform.uniform(1)[:, 0] < o.uniform_pruning_chance
        mask[selected] &= uniform.take(selected).at_least(rate, W)
        if o.regrowth:
            regrowth = streams(Purpose.REGROWTH)
            grown = ~mask & ~regrowth.at_least(o.regrowth, W)
            # A returned connection begins with a standard normal weight.
            np.copyto(weights, regrowth.normal_rows(W), where=grown)
            mask |= grown
        if o.weight_noise:
            add_noise(weights, mask, o.weight_noise, (self._seed, Purpose.WEIGHT_NOISE, generation), candidates)
        return pruned(weights, mask)
