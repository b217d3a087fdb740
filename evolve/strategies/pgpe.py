"""pgpe: policy gradients with parameter-based exploration, symmetric sampling, and ClipUp.

Sehnke et al., "Parameter-Exploring Policy Gradients" (2010), with symmetric sampling; Toklu, Liskowski & Srivastava,
"ClipUp: A Simple and Powerful Optimizer for Distribution-Based Policy Evolution" (2020), for the optimizer (`ClipUp`),
the centred ranks, the limit on what σ may change, and the usual settings. Every weight has a σ of its own. θ is an
initial genome at first, and all candidates share its mask; σ is r/sqrt(C) at first, for C connections and the radius
r. With n = floor(P/2) pairs and ε_i ~ N(0, σ²):

    candidates   2i is θ + ε_i, 2i + 1 is θ - ε_i; if P is odd, the last is θ itself, to be seen in the log
    u            centred ranks of the fitness of the 2n, so that outliers have no more weight than others
    ∇θ           1/n Σ_i (u_2i - u_{2i+1})/2 ε_i
    ∇σ           1/n Σ_i (u_2i + u_{2i+1})/2 (ε_i² - σ²)/σ; the mean of u, which is the baseline, is 0
    θ            θ + v, v the velocity that ClipUp makes of ∇θ
    σ            σ + α_σ ∇σ, α_σ the learning rate of σ; but no σ changes by more than a share of itself in a generation

Both gradients are added up over candidates, from the weights w_c as they were evaluated: ∇θ is 1/2n Σ_c u_c (w_c - θ),
and ∇σ is 1/2n Σ_c u_c (w_c - θ)²/σ, as Σ u = 0. θ, v and σ are float64. The champion is θ, so no candidate's lucky
fitness can make it.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from evolve.errors import InputError
from evolve.genome import GenomeLayout, Genomes, GenomeSource, pruned
from evolve.numerics.perturbation import moments_about_centre, perturbed
from evolve.shapes import Bool, Float64, Int64
from evolve.strategies.evolution_strategy import EvolutionStrategy, stored
from evolve.strategies.optimizers import ClipUp, centred_ranks
from evolve.strategies.pruning_schedules import PruningOptions
from evolve.strategies.strategy import Results, check_population, need_weights, requested_candidates

_LARGEST = 1e6  # of a σ


class PgpeOptions(PruningOptions):
    """Settings of `[strategy]` for pgpe."""

    max_speed: float = Field(0.15, gt=0, le=1e6)
    """v_max, the largest distance that the centre moves in a generation."""
    learning_rate: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """α, the length of a gradient's step; by default half of max_speed."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """μ, the share of the velocity that stays from one generation to the next."""
    initial_radius: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """r, the distance of candidates from the first centre, about; by default 15 times max_speed."""
    sigma_learning_rate: float = Field(0.1, ge=0, le=1e6)
    """α_σ, the learning rate of the standard deviations; with 0 they do not change."""
    max_sigma_change: float = Field(0.2, gt=0, lt=1)
    """The largest change of a standard deviation in a generation, as a share of itself."""
    smallest_sigma: float = Field(1e-5, ge=1e-6, le=1e6)
    """The smallest standard deviation."""


@dataclass(frozen=True)
class PgpeState:
    """θ, v and σ: [W] float64; θ and v are zero where the mask [W] is False."""

    centre: Float64 = stored("W")
    velocity: Float64 = stored("W")
    sigma: Float64 = stored("W")
    mask: Bool = stored("W", np.bool_)


def _first_sigma(options: PgpeOptions, connections: int) -> float:
    """Return the first σ of each of C = `connections` connections."""
    radius = options.initial_radius or 15 * options.max_speed
    return min(radius / math.sqrt(max(connections, 1)), _LARGEST)


class Pgpe(EvolutionStrategy[PgpeState]):
    """The evolution strategy for P = `population` candidates of a layout."""

    grows = True
    traces = "none"
    sum_shape = (2,)
    state_type = PgpeState

    def __init__(self, options: PgpeOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        super().__init__(layout, population, seed)
        self._options = options
        self._optimizer = ClipUp(options.momentum, options.max_speed)
        self._learning_rate = options.learning_rate or options.max_speed / 2
        self._pairs = population // 2

    @staticmethod
    def validate(options: PgpeOptions, layout: GenomeLayout) -> None:
        """Raise InputError for a layout that has no weights to search, or a σ below its limit."""
        need_weights(layout, "pgpe")
        options.check_combinations()
        first = _first_sigma(options, layout.num_weights)
        if options.smallest_sigma >= first:
            expected = f"below the first standard deviation, about {first:g}"
            raise InputError("strategy.smallest_sigma", expected, options.smallest_sigma)

    def _started(self, initial: Genomes) -> PgpeState:
        mask = initial.mask[0]
        sigma = _first_sigma(self._options, int(np.count_nonzero(mask)))
        centre = initial.weights[0].astype(np.float64)
        return PgpeState(centre, np.zeros(self._W), np.full(self._W, sigma), mask)

    def ask(self, state: PgpeState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates: pairs on both sides of the centre, and the centre if P is odd."""
        candidates = requested_candidates(self._P, candidates)
        key = self._key(generation)
        weights = perturbed(state.centre, state.mask, self._steps(candidates), key, candidates // 2, state.sigma)
        return Genomes(weights, np.repeat(state.mask[None], len(candidates), axis=0))

    def sums(self, state: PgpeState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return [n, 2]: Σ u_c (w_c - θ) and Σ u_c (w_c - θ)² in n columns; fitness is [P]."""
        centre, sigma = state.centre[columns], state.sigma[columns]
        paired = np.arange(len(fitness) // 2 * 2)
        u, key = self._shaped(fitness), self._key(generation)
        total = moments_about_centre(centre, sigma, self._steps(paired), key, paired // 2, u, first=columns.start)
        return np.where(state.mask[columns, None], total, 0.0)

    def tell(self, state: PgpeState, genomes: GenomeSource, results: Results) -> PgpeState:
        """Move the centre along its gradient, and the standard deviations along theirs."""
        o = self._options
        check_population(genomes, results, self._P, self._W, grows=True)
        total = self._added_up(state, genomes, results.fitness) if results.sums is None else results.sums
        total = total / (len(results.fitness) // 2 * 2)
        velocity = self._optimizer.velocity(state.velocity, total[:, 0], self._learning_rate)
        most = o.max_sigma_change * state.sigma
        change = np.clip(o.sigma_learning_rate * (total[:, 1] / state.sigma), -most, most)
        sigma = np.clip(state.sigma + change, o.smallest_sigma, _LARGEST)
        return PgpeState(state.centre + velocity, velocity, sigma, state.mask)

    def champion(self, state: PgpeState) -> Genomes:
        """Return the centre."""
        return pruned(state.centre[None].astype(np.float32), state.mask[None])

    def distribution(self, state: PgpeState) -> tuple[Float64, Float64]:
        """Return mean and standard deviation of each weight, both [W]."""
        return state.centre, state.sigma

    def _steps(self, candidates: Int64) -> Float64:
        """Return [n]: the side of the centre that each candidate is on, 1 or -1; or 0 for the centre itself."""
        return np.where(candidates == 2 * self._pairs, 0.0, np.where(candidates % 2, -1.0, 1.0))

    def _shaped(self, fitness: Float64) -> Float64:
        """Return u [2n] from the fitness [P]."""
        return centred_ranks(fitness[: len(fitness) // 2 * 2])

    def _added_up(self, state: PgpeState, genomes: GenomeSource, fitness: Float64) -> Float64:
        """Return the value of `sums` for all columns, computed from the genomes."""
        total = np.zeros((self._W, 2))
        for candidate, u in enumerate(self._shaped(fitness)):
            d = genomes.take(np.array([candidate])).weights[0].astype(np.float64) - state.centre
            total[:, 0] += u * d
            total[:, 1] += u * (d * d)
        return total
