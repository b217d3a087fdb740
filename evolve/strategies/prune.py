"""prune: selection from an elite, block swaps, and trace-guided pruning of what the episodes left unused.

With K = ceil(P/8), the pool is the champion, the leaderboard (the K best ever) and the K best of the last generation,
sorted by score. A generation is the first `survivors` of the leaderboard, unchanged, and children:

    parent     drawn from the pool with probability proportional to (pool size - rank)
    K swaps    two children exchange all matrices into one layer, or one matrix, each half the time
    trace      P(prune w) = min(1, q·c·softmax(-|H̄|)(w)) in each matrix, over its c connections left; H̄ is the parent's
               trace averaged over its episodes, carried along by the swaps; networks without traces lose none so
    uniform    half the time, each connection is pruned with probability `uniform_pruning`; "adaptive" takes the rate of
               the prunable MLP, mk1: sqrt(mean over the pool of (C̄ - C)²)/C̄ of its connections C, in [0.001, 0.0125]
    regrowth   each absent connection returns with probability `regrowth`, its weight N(0, 1)
    noise      every connection left moves by `weight_noise` · N(0, 1)

A leaderboard score is the mean over all evaluations of that genome, and of `prior_evaluations` more that stood at the
mean of the generation it was new in: a newcomer's single score is shrunk towards what is usual until it is confirmed.
Survivors are evaluated again in every generation, so their luck does not last; with one survivor, as in the ancestor,
the others on the leaderboard keep their first score until they lead.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from evolve.config import Options
from evolve.genome import Genomes, concatenate, pruned
from evolve.networks import Network
from evolve.numerics import exp, normal_quantile, ordered_sum
from evolve.rng import Purpose, Stream
from evolve.shapes import Bool, Float32, Float64, expect
from evolve.strategies.contract import Arrays, newborns
from evolve.strategies.elite import Elite, evaluated, from_arrays, join, nobody, to_arrays


def _rate(value: float | str) -> float | str:
    if value != "adaptive" and not (isinstance(value, float) and 0 <= value <= 1):
        raise ValueError('"adaptive", or a number from 0 to 1')
    return value


class PruneOptions(Options):
    """Settings of `[strategy]` for prune; the defaults are the ancestor's.

    survivors: how many are kept unchanged and evaluated again; at most K, all there are.
    """

    trace_pruning: float = Field(0.01, ge=0, le=1)
    uniform_pruning: Annotated[float | str, AfterValidator(_rate)] = 0.01
    uniform_pruning_chance: float = Field(0.5, ge=0, le=1)
    survivors: int = Field(1, ge=1)
    prior_evaluations: int = Field(0, ge=0, le=1000)
    regrowth: float = Field(0.0, ge=0, le=1)
    weight_noise: float = Field(0.0, ge=0, le=1e6)


@dataclass(frozen=True)
class PruneState:
    """What the strategy remembers: the best ever, best first, and the best of the last generation."""

    leaderboard: Elite
    recent: Elite


_ADAPTIVE = 0.001, 0.0125  # the least and the greatest rate


def _adaptive_rate(pool: Elite) -> float:
    """Return the relative standard deviation of the connections of a pool, inside the limits."""
    connections = pool.genomes.connections().astype(np.float64)
    mean = float(ordered_sum(connections)) / len(connections)
    variance = float(ordered_sum((mean - connections) ** 2)) / len(connections)
    least, greatest = _ADAPTIVE
    return min(max(math.sqrt(variance) / mean if mean else 0.0, least), greatest)


class Prune:
    """The pruning strategy for P = `population` candidates of `network`."""

    portable = True

    def __init__(self, options: PruneOptions, network: Network, population: int, seed: int) -> None:
        self._options, self._network, self._P, self._seed = options, network, population, seed
        self._K = -(-population // 8)

    def start(self) -> PruneState:
        """Return the state before generation 0: nobody is known."""
        none = nobody(self._network.weights, self._network.weights)
        return PruneState(none, none)

    def ask(self, state: PruneState, generation: int) -> Genomes:
        """Return P candidates: newborn in generation 0, later the survivors and then the children."""
        if len(state.leaderboard.genomes) == 0:
            return newborns(self._network, self._seed, generation, range(self._P))
        survivors = state.leaderboard.take(np.arange(self._survivors(state)))
        pool = join(state.leaderboard.take(np.zeros(1, np.intp)), state.leaderboard, state.recent)
        N, first_child = len(pool.count), len(survivors.count)
        children = pool.best(N).take(self._draw_parents(N, self._P - first_child, generation))
        given = self._options.uniform_pruning
        rate = _adaptive_rate(pool) if isinstance(given, str) else given
        return concatenate(survivors.genomes, self._vary(children, generation, first_child, rate))

    def tell(self, state: PruneState, genomes: Genomes, fitness: Float64, traces: Float32) -> PruneState:
        """Score the survivors again, rank the newcomers, and keep the K best of each."""
        P, W = self._P, self._network.weights
        expect(genomes.weights, "genomes.weights", "P W", np.float32, P=P, W=W)
        expect(fitness, "fitness", "P", np.float64, P=P)
        expect(traces, "traces", "P T", np.float32, P=P, T=self._network.traces)
        if traces.shape[1] == 0:
            traces = np.zeros((P, W), np.float32)
        known = self._survivors(state)
        generation = evaluated(genomes, fitness, traces)
        newcomers = generation.take(np.arange(known, P)).best(self._K).shrunk(self._options.prior_evaluations, fitness)
        leaderboard = join(state.leaderboard.evaluated_again(generation, known), newcomers).best(self._K)
        return PruneState(leaderboard, generation.best(self._K))

    def champion(self, state: PruneState) -> Genomes:
        """Return the leader of the leaderboard."""
        return state.leaderboard.genomes.take(np.zeros(1, np.int64))

    def to_arrays(self, state: PruneState) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        return to_arrays("leaderboard", state.leaderboard) | to_arrays("recent", state.recent)

    def from_arrays(self, arrays: Arrays) -> PruneState:
        """Return the state of those arrays. Raises ValueError when one is missing or has another shape."""
        W = self._network.weights
        return PruneState(*(from_arrays(arrays, name, W, W) for name in ("leaderboard", "recent")))

    def _survivors(self, state: PruneState) -> int:
        return min(self._options.survivors, len(state.leaderboard.count), self._P - 1)

    def _draw_parents(self, pool_size: int, children: int, generation: int) -> NDArray[np.intp]:
        """Return [children]: the pool rank of each child's parent, by linear rank selection in whole numbers."""
        shares = np.cumsum(np.arange(pool_size, 0, -1))
        draws = Stream(self._seed, Purpose.PARENTS, generation).below(int(shares[-1]), children)
        return np.searchsorted(shares, draws, side="right")

    def _vary(self, children: Elite, generation: int, first: int, uniform_pruning: float) -> Genomes:
        """Return the children after swaps, pruning, regrowth and noise; `first` is the first child's candidate."""
        weights, mask, traces = children.genomes.weights, children.genomes.mask, children.traces
        self._swap_blocks((weights, mask, traces), generation)
        doomed = self._trace_pruning_probability(mask, traces)
        for child in range(len(weights)):
            key = (generation, first + child)
            self._prune(mask[child], doomed[child], uniform_pruning, key)
            self._regrow(weights[child], mask[child], key)
            self._add_noise(weights[child], key)
        return pruned(weights, mask)

    def _swap_blocks(self, arrays: tuple[NDArray[Any], ...], generation: int) -> None:
        children, blocks = len(arrays[0]), self._network.blocks
        if children < 2:
            return
        for swap in range(self._K):
            stream = Stream(self._seed, Purpose.SWAPS, generation, swap)
            one, other = int(stream.below(children, 1)[0]), int(stream.below(children - 1, 1)[0])
            other += other >= one
            chosen = blocks[int(stream.below(len(blocks), 1)[0])]
            if stream.uniform(1)[0] < 0.5:
                layer = int(stream.below(blocks[-1].layer + 1, 1)[0])
                span = [b for b in blocks if b.layer == layer]
            else:
                span = [chosen]
            place = slice(span[0].start, span[-1].stop)
            for array in arrays:
                array[[one, other], place] = array[[other, one], place]

    def _trace_pruning_probability(self, mask: Bool, traces: Float32) -> Float64:
        """Return [children, W] float64: min(1, q·c·softmax(-|H̄|)) within each block, over the connections left."""
        probability = np.zeros(mask.shape)
        for block in self._network.blocks if self._network.traces else ():
            place = slice(block.start, block.stop)
            left, size = mask[:, place], np.where(mask[:, place], np.abs(traces[:, place]), np.float32(np.inf))
            smallest = size.min(axis=1, keepdims=True)
            smallest[np.isinf(smallest)] = 0
            weight = np.where(left, exp(smallest - size), np.float32(0)).astype(np.float64)
            total = ordered_sum(weight)[:, None]
            share = weight / np.where(total > 0, total, 1.0)
            count = np.count_nonzero(left, axis=1)[:, None]
            probability[:, place] = np.minimum(1.0, self._options.trace_pruning * count * share)
        return probability

    def _prune(self, mask: Bool, doomed: Float64, uniform_pruning: float, key: tuple[int, int]) -> None:
        mask &= Stream(self._seed, Purpose.TRACE_PRUNING, *key).uniform(len(mask)) >= doomed
        stream = Stream(self._seed, Purpose.UNIFORM_PRUNING, *key)
        if stream.uniform(1)[0] < self._options.uniform_pruning_chance:
            mask &= stream.uniform(len(mask)) >= uniform_pruning

    def _regrow(self, weights: Float32, mask: Bool, key: tuple[int, int]) -> None:
        if self._options.regrowth:
            stream = Stream(self._seed, Purpose.REGROWTH, *key)
            grown = ~mask & (stream.uniform(len(mask)) < self._options.regrowth)
            weights[grown] = normal_quantile(stream.uniform(len(mask)))[grown]
            mask |= grown

    def _add_noise(self, weights: Float32, key: tuple[int, int]) -> None:
        if self._options.weight_noise:
            noise = normal_quantile(Stream(self._seed, Purpose.WEIGHT_NOISE, *key).uniform(len(weights)))
            weights += np.float32(self._options.weight_noise) * noise
