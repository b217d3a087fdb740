"""nsga2: a front of genomes that trade objectives against each other, such as the return against the connections.

Deb, Pratap, Agarwal and Meyarivan, "A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II" (2002). The
objectives are the fitness, which is maximized, and the numbers that `minimize` and `maximize` name. A generation
consists of the N parents and their children:

    parents    unchanged, and evaluated again. Their objectives are means over all evaluations, so luck does not last.
               `prior_evaluations` shrinks the fitness of children towards the mean of their generation, see `elitist`
    child      of the better of two parents that are drawn at random (binary tournament, by the order below)
    pruning    half of the children lose connections: a weight w with probability `pruning` · u² · (2m/(m + |w|))²,
               m the mean |w|, u uniform for each child. So small weights are pruned more often than large ones
    regrowth   each absent connection returns with probability `regrowth`, its weight 0
    noise      the weight of every connection, also of a returned one, moves by `weight_noise` · u² · N(0, 1), u uniform
               for each child

The next parents are the first N of all candidates, in the order of the paper: by the number of their front; in a front
by crowding distance, the largest first; then by their number in the population. One genome dominates another if it is
at least as good in every objective, and better in one. Of genomes that are equal in all objectives, the first dominates
the others; otherwise copies would fill the front. A genome with an objective that is NaN is behind all fronts.

The champion is the parent of the best mean fitness. If a parent has fewer than `trusted` evaluations, its mean fitness
also counts the missing evaluations, each with the median of the mean fitness of all parents.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.errors import InputError, check_whole
from evolve.genome import GenomeLayout, Genomes, GenomeSource
from evolve.numerics import ordered_sum
from evolve.numerics.streams import Purpose, Stream, Streams
from evolve.shapes import Bool, Float32, Float64, Int64
from evolve.strategies import strategy as contract
from evolve.strategies.acting import ACTING, Paths, measure
from evolve.strategies.elitist import Elitist, ScoredGenomes

_PRUNED_SHARE = 0.5  # the share of children that lose connections

_Names = Annotated[tuple[str, ...], Field(strict=False, max_length=8)]


class Nsga2Options(Options):
    """Settings of `[strategy]` for nsga2."""

    minimize: _Names = (ACTING,)
    """The objectives to minimize: "acting_connections", "connections", or names in env.metrics."""
    maximize: _Names = ()
    """The objectives to maximize besides the fitness: names in env.metrics."""
    parents: int = Field(32, ge=1)
    """N, the number of genomes that are kept, evaluated again and have children; at most half of the population."""
    weight_noise: float = Field(0.3, ge=0, le=1e6)
    """The largest standard deviation of the noise that is added to a weight."""
    pruning: float = Field(0.3, ge=0, le=1)
    """The largest probability with which a child loses a connection of mean size; smaller ones are lost more often."""
    regrowth: float = Field(0.002, ge=0, le=1)
    """The probability that an absent connection returns."""
    prior_evaluations: int = Field(0, ge=0, le=1000)
    """Extra evaluations in the score of a new genome, each with the mean fitness of its first generation."""
    trusted: int = Field(1, ge=1)
    """The number of evaluations, prior ones included, with which a parent counts fully when the champion is chosen;
    each missing evaluation counts with the median of the mean fitness of the parents that may be chosen."""


def fronts_of(values: Float64) -> Int64:
    """Return [n]: the number of each row's front (non-dominated sorting), from 0; n if a value is NaN.

    Front 0 has the rows that no other row dominates. Front k has the rows that only rows of earlier fronts dominate. Of
    equal rows, the first dominates the others. The function needs about 3n² bytes of memory.

    values: [n, D], larger is better.
    """
    n = len(values)
    known = np.flatnonzero(~np.isnan(values).any(axis=1))  # the rows without NaN
    K = len(known)
    no_worse = np.ones((K, K), np.bool_)  # [i, j]: known row i is at least as good as known row j in every column
    for column in values[known].T:
        no_worse &= column[:, None] >= column
    # Row i dominates row j if i is no worse, unless both are equal and j ≤ i, see `np.tri`.
    dominates = no_worse & ~(no_worse.T & np.tri(K, dtype=np.bool_))
    num_dominators = np.count_nonzero(dominates, axis=0)
    fronts: Int64 = np.full(n, n, np.int64)
    number, num_left = 0, K
    while num_left:
        # Remove one front after another. -1 keeps the rows of a front out of all later fronts.
        front = np.flatnonzero(num_dominators == 0)
        fronts[known[front]] = number
        num_dominators -= np.count_nonzero(dominates[front], axis=0)
        num_dominators[front] = -1
        number, num_left = number + 1, num_left - len(front)
    return fronts


def crowding_of(values: Float64, fronts: Int64) -> Float64:
    """Return [n]: the crowding distance of each row in its front.

    For each objective, the rows of a front are sorted by their values; equal rows keep their order. The first and the
    last row get ∞. Each other row gets the difference of its two neighbours' values, as a share of the range of all
    values. A range that is 0 or not finite adds nothing. The distance is the sum over the objectives, in their order.

    Args:
        values: [n, D], larger is better.
        fronts: [n], the number of the front of each row.
    """
    distance = np.zeros(len(values))
    with np.errstate(over="ignore", invalid="ignore"):  # a range that overflows adds nothing
        for number in np.unique(fronts):
            rows = np.flatnonzero(fronts == number)
            for column in values.T:
                order = rows[np.argsort(column[rows], kind="stable")]
                ordered = column[order]
                span = ordered[-1] - ordered[0]
                if 0 < span < np.inf:
                    distance[order[1:-1]] += (ordered[2:] - ordered[:-2]) / span
                distance[order[[0, -1]]] = np.inf
    return distance


def crowded_order(values: Float64) -> tuple[NDArray[np.intp], Int64]:
    """Return the rows of values [n, D] from best to worst (crowded comparison), and the number of each row's front."""
    fronts = fronts_of(values)
    return np.lexsort((-crowding_of(values, fronts), fronts)), fronts


def hypervolume(values: Float64, reference: Float64) -> float:
    """Return the area that points [n, 2] dominate above a reference point [2]; larger is better in both columns."""
    order = np.lexsort((-values[:, 1], -values[:, 0]))
    area, height = 0.0, float(reference[1])
    # From the largest first value down, each point adds a rectangle above the rectangles so far.
    for x, y in values[order].tolist():
        if x > reference[0] and y > height:
            area += (x - float(reference[0])) * (y - height)
            height = y
    return area


@dataclass(frozen=True)
class FrontState:
    """The N parents, in the order of selection.

    parents: the genomes and the sums of their fitness over all evaluations.
    measured: [N, D], the sums of their D measures over the same evaluations.
    fronts: [N], the number of each parent's front.
    candidates: [N], the number of each parent in the population of the last generation.
    """

    parents: ScoredGenomes = contract.stored(ScoredGenomes)
    measured: Float64 = contract.stored("N D")
    fronts: Int64 = contract.stored("N", np.int64)
    candidates: Int64 = contract.stored("N", np.int64)

    @property
    def measures(self) -> Float64:
        """The measures averaged over all evaluations, [N, D]."""
        return self.measured / np.maximum(self.parents.count, 1)[:, None]


def first_front(state: FrontState) -> Int64:
    """Return the rows of the parents that no other parent dominates, in ascending order of their first measure.

    Of parents with equal first measures, the higher mean fitness comes first, and then the lower candidate number.
    """
    rows = np.flatnonzero(state.fronts == 0)
    # The last key of `lexsort` counts first.
    return rows[np.lexsort((state.candidates[rows], -state.parents.score[rows], state.measures[rows, 0]))]


class Nsga2(Elitist[FrontState]):
    """nsga2 for P = `population` candidates of a layout."""

    traces = "none"

    def __init__(self, options: Nsga2Options, layout: GenomeLayout, population: int, seed: int) -> None:
        size = max(1, min(options.parents, population // 2))
        super().__init__(layout, population, seed, size, survivors=size, prior=options.prior_evaluations)
        self._options = options
        self.measured = *options.minimize, *options.maximize  # names; `FrontState.measured` has the sums
        self._signs = np.array([-1.0] * len(options.minimize) + [1.0] * len(options.maximize))
        self._paths = Paths(layout)
        self._parents_of = contract.NewestValue(self._tournament)  # a cache: one tournament for each generation

    @staticmethod
    def validate(options: Nsga2Options, layout: GenomeLayout) -> None:
        """Raise InputError if the layout has no weights to search, or if objectives are missing or named twice."""
        contract.require_evolved_weights(layout, "nsga2")
        named = (*options.minimize, *options.maximize)
        if not named or len(set(named)) < len(named):
            expected = "one name or more in minimize and maximize, all different, beside the fitness"
            raise InputError("strategy.minimize", expected, list(named))

    def measures(self, genomes: GenomeSource, metrics: Mapping[str, Float64]) -> Float64:
        """Return [P, D]: the measures in the order of `measured`."""
        options = self._options
        settings = ["strategy.minimize"] * len(options.minimize) + ["strategy.maximize"] * len(options.maximize)
        return measure(self._paths, self.measured, genomes, metrics, settings)

    def start(self) -> FrontState:
        """Return the state before generation 0: no parents, or a given genome."""
        parents = ScoredGenomes.initial(self._layout)
        N = len(parents)
        return FrontState(parents, np.zeros((N, len(self.measured))), np.zeros(N, np.int64), np.zeros(N, np.int64))

    def tell(self, state: FrontState, genomes: GenomeSource, results: contract.Results) -> FrontState:
        """Score the parents again, and keep the first N of all candidates."""
        contract.check_population(genomes, results, self._P, self._layout.num_weights)
        fitness, measures = results.fitness, self.told_measures(genomes, results)
        n = self.survivors(state)  # the first n candidates are the parents, the others are new
        # Score all candidates without their genomes. Below, take only the genomes of the chosen candidates.
        blank = Genomes(np.zeros((self._P, 0), np.float32), np.zeros((self._P, 0), np.bool_))  # no weights
        old = replace(state.parents, genomes=blank).take(np.arange(n)).with_evaluation(fitness[:n])
        new = ScoredGenomes.evaluated(blank.take(np.arange(n, self._P)), fitness[n:]).with_prior(self._prior, fitness)
        scored = old.joined(new)
        # Prior evaluations count as if they had given the same measures.
        first_sums = measures[n:] * (1.0 + self._prior)
        measured = np.concatenate([state.measured[:n] + measures[:n], first_sums])
        # With the signs, larger is better in every objective.
        objectives = np.column_stack([scored.score, self._signs * (measured / scored.count[:, None])])
        order, fronts = crowded_order(objectives)
        chosen = order[: self._elite_size]
        is_old = chosen < n
        old_genomes, new_genomes = state.parents.genomes.take(chosen[is_old]), genomes.take(chosen[~is_old])
        parents = replace(scored.take(chosen), genomes=contract.interleaved(is_old, old_genomes, new_genomes))
        return FrontState(parents, measured[chosen], fronts[chosen], chosen.astype(np.int64))

    def champion(self, state: FrontState) -> Genomes:
        """Return the parent of the best mean fitness, see `trusted`. Raises InputError before the first `tell`."""
        self._require_elite(state)
        return self._best(state, np.arange(len(state.parents)))

    def select(self, state: FrontState, /, **which: Any) -> Genomes:
        """Return a member of the front, or the best genome of at most `connections` acting connections."""
        if "member" in which:
            front, member = first_front(state), check_whole("member", which["member"], 0)
            if member >= len(front):
                raise InputError("member", f"one of 0 to {len(front) - 1}", member)
            return state.parents.genomes.take(front[[member]])
        if "connections" not in which:
            return super().select(state, **which)  # raises InputError
        max_connections = check_whole("connections", which["connections"], 0)
        counts = self._paths.count(state.parents.genomes.mask)
        small = np.flatnonzero(counts <= max_connections)
        if not len(small):
            expected = f"at least {counts.min()}, the smallest number of acting connections of a parent"
            raise InputError("connections", expected, max_connections)
        return self._best(state, small)

    def _best(self, state: FrontState, among: Int64) -> Genomes:
        """Return the genome of the best mean fitness, completed to `trusted` evaluations, among some parents.

        among: [n], the places of these parents.
        """
        parents, trusted = state.parents, self._options.trusted
        finite = parents.score[among][np.isfinite(parents.score[among])]
        median = float(np.median(finite)) if len(finite) else 0.0
        # Do not exclude parents with few evaluations. The parents with the most evaluations are often trivial networks:
        # they stay because no genome dominates networks with so few connections.
        completed = (parents.total + (trusted - parents.count) * median) / trusted
        scores = np.where(parents.count < trusted, completed, parents.score)
        return parents.genomes.take(among[contract.ranking(scores[among])[:1]])

    def outcome(self, state: FrontState) -> dict[str, Float64]:
        """Return "front" [P]: the mean fitness of the candidates on the first front, NaN for the others."""
        front = np.full(self._P, np.nan)
        first = state.fronts == 0
        front[state.candidates[first]] = state.parents.score[first]
        return {"front": front}

    def to_arrays(self, state: FrontState) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        return contract.arrays_of(state, "parents_")

    def from_arrays(self, arrays: contract.Arrays) -> FrontState:
        """Return the state that `to_arrays` stored. Raises ValueError if an array is missing or has another shape."""
        sizes = {"W": self._layout.num_weights, "T": 0, "D": len(self.measured)}
        state = contract.state_of(FrontState, arrays, "parents_", sizes)
        if not ((state.candidates >= 0) & (state.candidates < self._P)).all():
            raise ValueError("parents_candidates: expected numbers of candidates")
        return state

    def _elite(self, state: FrontState) -> ScoredGenomes:
        return state.parents

    def _tournament(self, state: FrontState, generation: int) -> Int64:
        """Return the place of each child's parent among the parents: the better of two that are drawn uniformly."""
        children = self._P - self._num_copies(state)
        drawn = Stream(self._seed, Purpose.PARENTS, generation).below(len(state.parents), 2, children)
        # The parents are in the order of selection, so the smaller number is the better parent.
        return np.minimum(drawn[0], drawn[1])

    def _children(self, state: FrontState, generation: int, candidates: Int64) -> Genomes:
        o, W = self._options, self._layout.num_weights
        parents = state.parents.genomes.take(self._parents_of(state, generation)[candidates - self._num_copies(state)])
        # `take` has copied the parents, so these arrays may change.
        weights, mask = parents.weights, parents.mask

        def streams(purpose: Purpose) -> Streams:
            return Streams(self._seed, purpose, generation, candidates)

        # One uniform number selects the children that lose connections. The other, u, varies the rate of each child.
        pruning = streams(Purpose.UNIFORM_PRUNING)
        selection, u = pruning.uniform(2).T
        rate = np.where(selection < _PRUNED_SHARE, o.pruning * (u * u), 0.0)
        # A connection stays if its uniform number is at least the probability of pruning it.
        mask &= pruning.at_least(rate[:, None] * _smallness(weights, mask), W)
        if o.regrowth:
            grown = ~mask & ~streams(Purpose.REGROWTH).at_least(o.regrowth, W)
            # A connection that was pruned above still has its old weight.
            weights[grown] = 0
            mask |= grown
        noise = streams(Purpose.WEIGHT_NOISE)
        u = noise.uniform(1)
        weights += (o.weight_noise * (u * u)).astype(np.float32) * noise.normal_rows(W)
        weights[~mask] = 0
        return Genomes(weights, mask)


def _smallness(weights: Float32, mask: Bool) -> Float64:
    """Return [n, W]: (2m/(m + |w|))² for weights [n, W], m the mean |w| of the connections of each row."""
    # A weight of 0 has the largest value, 4. But if all weights of a row are 0, the value is 0.
    size = np.abs(weights).astype(np.float64)
    mean = ordered_sum(size) / np.maximum(np.count_nonzero(mask, axis=1), 1)
    total = mean[:, None] + size
    ratio: Float64 = 2.0 * mean[:, None] / np.where(total > 0, total, 1.0)
    return ratio * ratio
