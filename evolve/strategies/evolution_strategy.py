"""The common parts of the strategies that search around one genome: cma-es, sep-cma-es, openai-es, pgpe and snes.

The parts are the base class `EvolutionStrategy`, fitness shaping and optimizers. The state of such a strategy is a
dataclass of arrays.

An optimizer turns an estimated gradient of the fitness into a step that raises the fitness. The caller multiplies the
step of `Adam` by the learning rate, while the velocity of `ClipUp` is a whole step. An optimizer object holds only
settings. The state of the strategy holds its moving averages, or its velocity.

`snes` in `search_gradients` is the shortest strategy with this base class.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.genome import GenomeLayout, Genomes, GenomeSource, pruned
from evolve.numerics import ordered_sum
from evolve.numerics.perturbation import PerturbedMatrix, StreamsKey
from evolve.numerics.portable import log, norm
from evolve.numerics.streams import Purpose
from evolve.shapes import Float64, Int64
from evolve.strategies.strategy import Arrays, State, Strategy, arrays_of, initial_genomes, state_of

_PART_SIZE = 2**16  # the length of the slices of `parts`
_EPSILON = 1e-8  # in Adam; prevents a division by 0


class EvolutionStrategy(Strategy[State]):
    """A strategy for P = `population` candidates of a layout, which all have the connections of one initial genome.

    A subclass implements `_initial_state`, and names its `state_type`: a dataclass that declares each field by
    `strategy.stored`, for checkpoints. The shapes of the fields may use the letters in `_sizes`.
    """

    portable = True  # `ask` and `tell` give the same bits on every machine
    shared_mask = True  # all candidates have the same connections
    warm_starts = True  # a search can begin with a given genome
    state_type: type[Any]

    def __init__(self, layout: GenomeLayout, population: int, seed: int) -> None:
        self._layout = layout
        self._W = layout.num_weights
        self._P = population
        self._seed = seed
        self._initial = initial_genomes(layout, seed, 0, range(1))
        self._sizes = {"W": self._W}

    def start(self) -> State:
        """Return the state before generation 0: the search begins at an initial genome."""
        return self._initial_state(self._initial)

    def start_anew(self, generation: int) -> State:
        """Return an initial state with new weights, drawn from the streams of a generation above 0.

        The connections stay; a connection that the new genome lacks gets the weight 0. If the search began with a
        given genome, the layout is a `StartLayout`. All its initial genomes equal the given genome, so the search
        begins with this genome again.
        """
        new = initial_genomes(self._layout, self._seed, generation, range(1))
        return self._initial_state(pruned(new.weights, self._initial.mask))

    def to_arrays(self, state: State) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        return arrays_of(state)

    def from_arrays(self, arrays: Arrays) -> State:
        """Return the state that `to_arrays` stored. Raises ValueError for a missing array, or another shape or type."""
        return state_of(self.state_type, arrays, "", dict(self._sizes))  # a copy, because `state_of` adds entries

    def _initial_state(self, initial: Genomes) -> State:
        """Return the state of a search that begins at a genome (P = 1)."""
        raise NotImplementedError

    def _key(self, generation: int) -> StreamsKey:
        """Return the key of a generation's noise streams, one stream for each candidate or pair."""
        return self._seed, Purpose.WEIGHT_NOISE, generation


def centred_ranks(fitness: Float64) -> Float64:
    """Return [N]: 1/2 - r/(N - 1) for each fitness [N], r its rank: 0 for the best, N - 1 for the worst. NaN is worst.

    So the best gets 1/2, the worst -1/2, and the sum is 0. N is at least 2. The formula is from Salimans et al. (2017),
    section 2.1, and their code. Unlike their code, this function gives candidates of equal fitness the mean of their
    ranks. So there is no gradient if all are equal.
    """
    N = len(fitness)
    order, first, stop = _equal_runs(fitness)
    centred = np.empty(N)
    # (first + stop - 1)/2 is the mean of the ranks in a run of equal fitness.
    centred[order] = np.repeat(0.5 - (first + stop - 1) / 2 / (N - 1), stop - first)
    return centred


def log_ranks(fitness: Float64) -> Float64:
    """Return [N]: s_k/Σ_j s_j - 1/N for the k-th best fitness [N], with s_k = max(0, ln(N/2 + 1) - ln k).

    All candidates in the worse half get the same value, -1/N. The sum of all values is 0. Candidates of equal fitness
    get the mean of their values. NaN is worst. N is at least 2. The formula is from Wierstra et al., "Natural Evolution
    Strategies" (2014), section 3.1.
    """
    N = len(fitness)
    shares = np.maximum(log(np.array([N / 2 + 1])) - log(np.arange(1.0, N + 1)), 0)
    shares = shares / ordered_sum(shares) - 1 / N
    order, first, stop = _equal_runs(fitness)
    if len(first) == 1:
        return np.zeros(N)  # all are equal; the sums below would leave rounding errors
    # Average the shares of each run. Runs of one candidate, or in the worse half, have equal shares already.
    for run in np.flatnonzero(shares[first] > shares[stop - 1]):
        equal = slice(first[run], stop[run])
        shares[equal] = ordered_sum(shares[equal]) / (stop[run] - first[run])
    by_candidate = np.empty(N)
    by_candidate[order] = shares
    return by_candidate


def _equal_runs(fitness: Float64) -> tuple[Int64, Int64, Int64]:
    """Return the order of candidates [N], best first, and the runs of equal fitness in this order.

    The runs are two arrays: the first place of each run, and its end.

    fitness: [N]. NaN is worst, and all NaN are equal.
    """
    # NaN comes last. The sort need not be stable, because the callers give all candidates of a run the same value.
    order = np.argsort(-fitness)
    in_order = fitness[order]
    begins = np.ones(len(fitness), np.bool_)  # whether a run of equal fitness begins here
    # NaN differs from itself, but only NaN follows a NaN, so no run begins there.
    begins[1:] = (in_order[1:] != in_order[:-1]) & ~np.isnan(in_order[:-1])
    first = np.flatnonzero(begins)
    return order, first, np.append(first[1:], len(fitness))


def scaled_fitness(fitness: Float64) -> Float64:
    """Return [N]: the fitness [N], scaled so that the best is 1/2 and the worst -1/2.

    Unlike ranks, the values keep the ratios of differences, so an outlier can outweigh all other candidates. ∞ counts
    as the best finite fitness, -∞ and NaN count as the worst finite fitness. If all finite fitness is equal, or no
    fitness is finite, the result is zeros. N is at least 1.
    """
    finite = fitness[np.isfinite(fitness)]
    if not len(finite):
        return np.zeros(len(fitness))
    worst, best = float(finite.min()), float(finite.max())
    clipped = np.clip(np.where(np.isnan(fitness), worst, fitness), worst, best)
    # Halves, because the difference of two large numbers may overflow.
    span = best / 2 - worst / 2
    if not span:
        return np.zeros(len(fitness))
    return (clipped / 2 - worst / 2) / span - 0.5


def weighted_moments(
    genomes: GenomeSource, candidates: Int64, shares: Float64, centre: Float64, columns: Int64 | slice = slice(None)
) -> Float64:
    """Return [k, 2]: Σ s_c (w_c - m) and Σ s_c (w_c - m)² over n candidates c, in the given order.

    Args:
        genomes: The genomes of all candidates, with the weights w.
        candidates: [n], the numbers c of the candidates.
        shares: [n], s.
        centre: [k], m.
        columns: The k columns of the genomes; by default all.
    """
    total = np.zeros((len(centre), 2))
    for candidate, share in zip(candidates, shares, strict=True):
        # One genome at a time, because a lazy source may have more genomes than fit in memory.
        difference = genomes.take(candidate[None]).weights[0, columns].astype(np.float64) - centre
        total[:, 0] += share * difference
        total[:, 1] += share * (difference * difference)
    return total


def parts(size: int) -> Iterator[slice]:
    """Yield slices that cover range(size), so short that such parts of several float64 arrays fit in a cache."""
    for start in range(0, size, _PART_SIZE):
        yield slice(start, min(start + _PART_SIZE, size))


def low_rank_matrices(layout: GenomeLayout, rank: int) -> tuple[PerturbedMatrix, ...]:
    """Return the matrices of a layout, in the order of the genome, with perturbations of rank r = `rank`.

    A matrix [m, n] gets rank r if rank r needs fewer random numbers: r(m + n) < m n. Other matrices, and biases, get
    rank 0, which means full rank: one random number for each weight. A stream has the numbers in genome order.
    """
    # The number of neurons of each `Block.source`: source l + 1 is the output of layer l, and source 0 is the
    # observation. A layout of another package may lack the size of the observation. The matrices of source 0 then count
    # as matrices without biases.
    sizes = {block.layer + 1: block.columns for block in layout.blocks}
    sizes[0] = getattr(layout, "observation_size", 0)
    matrices: list[PerturbedMatrix] = []

    def add(rows: int, columns: int, own_rank: int) -> None:
        # Matrices follow one another in the genome, and their deviates in the stream.
        start = matrices[-1].stop if matrices else 0
        first_deviate = matrices[-1].first_deviate + matrices[-1].num_deviates if matrices else 0
        matrices.append(PerturbedMatrix(start, rows, columns, own_rank, first_deviate))

    for block in layout.blocks:
        # A matrix with biases has one row more than its source has neurons: the last row holds the biases.
        has_biases = block.rows - 1 == sizes[block.source]
        m, n = block.rows - (1 if has_biases else 0), block.columns
        if rank * (m + n) >= m * n:
            add(block.rows, n, own_rank=0)
            continue
        add(m, n, own_rank=rank)
        if has_biases:
            add(1, n, own_rank=0)
    return tuple(matrices)


@dataclass(frozen=True)
class Adam:
    """Kingma & Ba, "Adam" (2015), algorithm 1: m is an exponential average of the gradients, v of their squares.

    beta1: β1, the weight of the past in m.
    beta2: β2, the weight of the past in v.
    """

    beta1: float
    beta2: float

    def step(
        self, before: tuple[Float64, Float64], powers: tuple[float, float], gradient: Float64, divisor: float
    ) -> tuple[Float64, Float64, Float64]:
        """Return the step, m/(1 - β1^t) / (sqrt(v/(1 - β2^t)) + 1e-8), and the new m and v, each [W].

        Args:
            before: m and v, [W] each, before the step.
            powers: β1^t and β2^t, for t steps including this one.
            gradient: [W], the gradient times `divisor`.
            divisor: The method divides `gradient` by this number. So the caller need not make another array [W].
        """
        step, m, v = (np.empty(len(gradient)) for _ in range(3))
        old_m, old_v = before
        # m and v begin at 0, so the first averages are too small.
        unbias_m, unbias_v = 1 - powers[0], 1 - powers[1]
        # Work in parts that fit in a cache. Otherwise each operation would read the arrays of a large network from
        # memory again.
        for part in parts(len(gradient)):
            g = gradient[part] / divisor
            m[part] = self.beta1 * old_m[part] + (1 - self.beta1) * g
            v[part] = self.beta2 * old_v[part] + (1 - self.beta2) * (g * g)
            step[part] = (m[part] / unbias_m) / (np.sqrt(v[part] / unbias_v) + _EPSILON)
        return step, m, v


@dataclass(frozen=True)
class ClipUp:
    """Toklu, Liskowski & Srivastava, "ClipUp" (2020): each gradient changes a velocity by a vector of fixed length.

    The centre moves by the velocity in each generation. The length of the velocity is limited.

    momentum: μ, the share of the velocity that a step keeps.
    max_speed: v_max, the largest length of the velocity; by default twice the learning rate.
    """

    momentum: float
    max_speed: float | None = None

    def velocity(self, before: Float64, gradient: Float64, learning_rate: float) -> Float64:
        """Return the velocity [W] after a gradient.

        Args:
            before: [W], the velocity before the gradient.
            gradient: [W]. Only its direction counts. A gradient of 0 has no direction, and adds nothing.
            learning_rate: α, the length of the change of the velocity along the gradient.
        """
        size = norm(gradient)
        velocity = self.momentum * before
        if size > 0:
            velocity += (learning_rate / size) * gradient
        # Limit the length of the velocity, and keep its direction.
        speed = norm(velocity)
        max_speed = self.max_speed or 2 * learning_rate
        if speed > max_speed:
            velocity *= max_speed / speed
        return velocity
