"""pgpe: policy gradients with parameter-based exploration, symmetric sampling, and ClipUp.

Sehnke et al., "Parameter-Exploring Policy Gradients" (2010), with symmetric sampling; Toklu, Liskowski & Srivastava,
"ClipUp: A Simple and Powerful Optimizer for Distribution-Based Policy Evolution" (2020), for the optimizer (`ClipUp`),
the centred ranks, and the limit on the change of σ. The paper's radius is 15 times the largest speed. Every weight has
a σ of its own. θ begins as an initial genome, and all candidates share its mask. σ begins as r/sqrt(C), for C
connections and the radius r. With n = floor(P/2) pairs and ε_i ~ N(0, σ²):

    candidates   2i is θ + ε_i, 2i + 1 is θ - ε_i; if P is odd, the last is θ itself, so that the log has its fitness
    u            centred ranks of the fitness of the 2n paired candidates, so that an outlier counts only by its rank
    ∇θ           1/n Σ_i (u_2i - u_{2i+1})/2 ε_i
    ∇σ           1/n Σ_i (u_2i + u_{2i+1})/2 (ε_i² - σ²)/σ; the mean of u, which is the baseline, is 0
    θ            θ + v, where v is ClipUp's velocity after ∇θ
    σ            σ + α_σ ∇σ, where α_σ is the learning rate of σ; `max_sigma_change` limits the relative change of a σ

Both gradients are sums over candidates of their weights w_c, rounded to float32 as in the genomes: ∇θ is
1/2n Σ_c u_c (w_c - θ), and ∇σ is 1/2n Σ_c u_c (w_c - θ)²/σ, as Σ u = 0. θ, v and σ are float64. The champion is θ, so
the lucky fitness of one candidate does not decide the champion.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationInfo, model_validator

from evolve.errors import InputError
from evolve.genome import GenomeLayout, Genomes, GenomeSource, pruned
from evolve.numerics.perturbation import moments_about_centre, perturbed
from evolve.shapes import Bool, Float64, Int64
from evolve.strategies.evolution_strategy import ClipUp, EvolutionStrategy, centred_ranks, stored, weighted_moments
from evolve.strategies.pruning_schedules import PruningOptions
from evolve.strategies.strategy import Results, check_population, requested_candidates, require_evolved_weights

_MAX_SIGMA = 1e6


class PgpeOptions(PruningOptions):
    """Settings of `[strategy]` for pgpe."""

    max_speed: float = Field(1.0, gt=0, le=1e6)
    """v_max, the largest distance that the centre moves in a generation."""
    learning_rate: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """α, the length of a gradient's step; by default half of max_speed."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """μ, the share of the velocity that stays from one generation to the next."""
    initial_radius: float = Field(4.5, gt=0, le=1e6)
    """r, the approximate distance of candidates from the first centre."""
    sigma_learning_rate: float = Field(0.1, ge=0, le=1e6)
    """α_σ, the learning rate of the standard deviations; with 0 they do not change."""
    max_sigma_change: float = Field(0.2, gt=0, lt=1)
    """The largest relative change of a standard deviation in a generation."""
    smallest_sigma: float = Field(1e-5, ge=1e-6, le=1e6)
    """The smallest standard deviation."""

    @model_validator(mode="before")
    @classmethod
    def _as_in_earlier_versions(cls, given: Any, info: ValidationInfo) -> Any:
        # Files of earlier versions have no radius unless it was set: by default it was 15 times the largest speed.
        if (info.context or {}).get("lenient") and "initial_radius" not in given and "max_speed" in given:
            return {**given, "initial_radius": 15 * given["max_speed"]}
        return given


@dataclass(frozen=True)
class PgpeState:
    """θ, v and σ: [W] float64; θ and v are zero where the mask [W] is False."""

    centre: Float64 = stored("W")
    velocity: Float64 = stored("W")
    sigma: Float64 = stored("W")
    mask: Bool = stored("W", np.bool_)


def _initial_sigma(options: PgpeOptions, connections: int) -> float:
    """Return the initial σ of every weight, for C = `connections` connections."""
    return min(options.initial_radius / math.sqrt(max(connections, 1)), _MAX_SIGMA)


class Pgpe(EvolutionStrategy[PgpeState]):
    """The evolution strategy for P = `population` candidates of a layout."""

    grows = True
    antithetic = True
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
        """Raise InputError for a layout that has no weights to search, and settings without effect.

        Also if `smallest_sigma` is not below the initial σ of a genome that has all connections.
        """
        require_evolved_weights(layout, "pgpe")
        options.check_combinations()
        first = _initial_sigma(options, layout.num_weights)
        if options.smallest_sigma >= first:
            expected = f"below the first standard deviation, about {first:g}"
            raise InputError("strategy.smallest_sigma", expected, options.smallest_sigma)

    def _initial_state(self, initial: Genomes) -> PgpeState:
        mask = initial.mask[0]
        sigma = _initial_sigma(self._options, int(np.count_nonzero(mask)))
        centre = initial.weights[0].astype(np.float64)
        return PgpeState(centre, np.zeros(self._W), np.full(self._W, sigma), mask)

    def ask(self, state: PgpeState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates: pairs on both sides of the centre, and the centre if P is odd."""
        candidates = requested_candidates(self._P, candidates)
        key = self._key(generation)
        weights = perturbed(state.centre, state.mask, self._signs(candidates), key, candidates // 2, state.sigma)
        return Genomes(weights, np.repeat(state.mask[None], len(candidates), axis=0))

    def sums(self, state: PgpeState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return [k, 2]: Σ u_c (w_c - θ) and Σ u_c (w_c - θ)² in k columns; fitness: [P], or fewer, see `grows`."""
        centre, sigma = state.centre[columns], state.sigma[columns]
        # If the number of candidates is odd, the last one is the centre, which has no partner.
        paired = np.arange(len(fitness) // 2 * 2)
        u, key = self._utilities(fitness), self._key(generation)
        total = moments_about_centre(centre, sigma, self._signs(paired), key, paired // 2, u, first=columns.start)
        return np.where(state.mask[columns, None], total, 0.0)

    def tell(self, state: PgpeState, genomes: GenomeSource, results: Results) -> PgpeState:
        """Move the centre and the standard deviations along their gradients."""
        options = self._options
        check_population(genomes, results, self._P, self._W, grows=True)
        total, u = results.sums, self._utilities(results.fitness)
        if total is None:
            total = weighted_moments(genomes, np.arange(len(u)), u, state.centre)
        total = total / len(u)
        # If the candidates of each pair tie, ∇θ is 0. ClipUp would make a full step of the rounding errors in its sums.
        gradient = np.zeros(self._W) if np.array_equal(u[::2], u[1::2]) else total[:, 0]
        velocity = self._optimizer.velocity(state.velocity, gradient, self._learning_rate)
        max_change = options.max_sigma_change * state.sigma
        change = np.clip(options.sigma_learning_rate * (total[:, 1] / state.sigma), -max_change, max_change)
        sigma = np.clip(state.sigma + change, options.smallest_sigma, _MAX_SIGMA)
        return PgpeState(state.centre + velocity, velocity, sigma, state.mask)

    def champion(self, state: PgpeState) -> Genomes:
        """Return the centre."""
        return pruned(state.centre[None].astype(np.float32), state.mask[None])

    def distribution(self, state: PgpeState) -> tuple[Float64, Float64]:
        """Return mean and standard deviation of each weight, both [W]."""
        return state.centre, state.sigma

    def _signs(self, candidates: Int64) -> Float64:
        """Return [n]: the sign of ε in each candidate, 1 or -1; 0 for the candidate that is the centre itself."""
        return np.where(candidates == 2 * self._pairs, 0.0, np.where(candidates % 2, -1.0, 1.0))

    def _utilities(self, fitness: Float64) -> Float64:
        """Return u [2n], the centred ranks of the paired candidates, from the fitness [P], or fewer, see `grows`."""
        return centred_ranks(fitness[: len(fitness) // 2 * 2])
