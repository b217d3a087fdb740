"""pgpe and snes: a Gaussian, with one σ for each weight, follows the gradient of the expected fitness.

The weights of an initial genome are the first centre θ, and all candidates have the mask of this genome. With n =
floor(P/2) symmetric pairs and ε_i ~ N(0, σ²), where all operations are elementwise:

    candidates   2i is θ + ε_i, 2i + 1 is θ - ε_i; if P is odd, the last is θ itself, so that its fitness is recorded

The sums over candidates below use the float32 weights w_c of the genomes. θ, v and σ are float64. The champion is θ, so
the lucky fitness of one candidate does not decide the champion.

pgpe: Sehnke et al., "Parameter-Exploring Policy Gradients" (2010), with symmetric sampling. The optimizer (`ClipUp`),
the centred ranks, and the limit on the change of σ are from Toklu, Liskowski & Srivastava, "ClipUp: A Simple and
Powerful Optimizer for Distribution-Based Policy Evolution" (2020). At first σ is r/sqrt(C), for C connections and the
radius r. In the paper, r is 15 times the largest speed. The formulas:

    u            centred ranks of the fitness of the 2n paired candidates, so that an outlier counts only by its rank
    ∇θ           1/(2n) Σ_i (u_2i - u_{2i+1}) ε_i = 1/(2n) Σ_c u_c (w_c - θ)
    ∇σ           1/(2n) Σ_i (u_2i + u_{2i+1}) (ε_i² - σ²)/σ = 1/(2n) Σ_c u_c (w_c - θ)²/σ, as the sum of u is 0
    θ            θ + v, where v is ClipUp's velocity after ∇θ
    σ            σ + α_σ ∇σ, where α_σ is the learning rate of σ. `max_sigma_change` limits the relative change of a σ,
                 and each σ stays from `smallest_sigma` to 1e6

snes: the separable natural evolution strategy of Schaul, Glasmachers & Schmidhuber, "High Dimensions and Heavy Tails
for Natural Evolution Strategies" (2011). snes follows the natural gradient. The constants are the paper's: the learning
rate of θ is 1, and the learning rate of σ is η_σ. Unlike in the paper, candidates come in pairs, and σ is limited
(`_bounded`):

    u_k          max(0, ln(n + 1) - ln k)/Σ_j max(0, ln(n + 1) - ln j) - 1/(2n) for the k-th best of the 2n candidates
    θ            θ + Σ_c u_c (w_c - θ)
    σ            σ exp(η_σ/2 Σ_c u_c (w_c - θ)²/σ²), η_σ = (3 + ln C)/(5 sqrt(C)) for C connections. The paper has
                 (w_c - θ)²/σ² - 1, but the sum of u is 0
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field, ValidationInfo, model_validator

from evolve.config.options import is_lenient
from evolve.errors import InputError
from evolve.genome import GenomeLayout, Genomes, GenomeSource, pruned
from evolve.numerics import exp
from evolve.numerics.perturbation import moments_about_centre, perturbed
from evolve.numerics.portable import log
from evolve.shapes import Bool, Float64, Int64
from evolve.strategies.evolution_strategy import (
    ClipUp,
    EvolutionStrategy,
    centred_ranks,
    log_ranks,
    weighted_moments,
)
from evolve.strategies.pruning_schedules import PruningOptions
from evolve.strategies.strategy import Results, check_population, requested_candidates, require_evolved_weights, stored

_MAX_SIGMA = 1e6


class PgpeOptions(PruningOptions):
    """Settings of `[strategy]` for pgpe."""

    max_speed: float = Field(1.0, gt=0, le=1e6)
    """v_max, the largest distance that the centre moves in a generation."""
    learning_rate: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """α, the length of the change of the velocity along a gradient; by default half of max_speed."""
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
    def _add_earlier_default(cls, options: Any, info: ValidationInfo) -> Any:
        # "lenient" means that the options come from a file. In earlier versions the default radius was 15 times the
        # largest speed, and files did not hold the default.
        if is_lenient(info) and "initial_radius" not in options and "max_speed" in options:
            return {**options, "initial_radius": 15 * options["max_speed"]}
        return options


@dataclass(frozen=True)
class GaussianState:
    """The state of snes: θ and σ, [W] float64, and the mask [W]. θ is zero where the mask is False."""

    centre: Float64 = stored("W")
    sigma: Float64 = stored("W")
    mask: Bool = stored("W", np.bool_)


@dataclass(frozen=True)
class PgpeState(GaussianState):
    """The state of pgpe: also the velocity v, [W] float64. v is zero where the mask is False."""

    velocity: Float64 = stored("W")


GaussianStates = TypeVar("GaussianStates", bound=GaussianState)


def _initial_sigma(options: PgpeOptions, connections: int) -> float:
    """Return the initial σ of every weight, for C = `connections` connections."""
    return min(options.initial_radius / math.sqrt(max(connections, 1)), _MAX_SIGMA)


class _PairedStrategy(EvolutionStrategy[GaussianStates]):
    """The common parts of pgpe and snes. A subclass implements `_initial_state`, `tell` and `_utilities`."""

    grows = True  # `tell` and `sums` accept the fitness of only the first candidates, if their number is even
    antithetic = True  # candidates 2i and 2i + 1 are a pair
    traces = "none"  # `tell` reads no traces of networks
    sum_shape = (2,)  # `sums` returns two numbers for each weight

    def ask(self, state: GaussianStates, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates: pairs on both sides of the centre, and the centre if P is odd."""
        candidates = requested_candidates(self._P, candidates)
        key = self._key(generation)
        weights = perturbed(state.centre, state.mask, self._signs(candidates), key, candidates // 2, state.sigma)
        return Genomes(weights, np.repeat(state.mask[None], len(candidates), axis=0))

    def sums(self, state: GaussianStates, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return [k, 2]: Σ u_c (w_c - θ) and Σ u_c (w_c - θ)² in k columns. fitness: [P], or fewer, see `grows`."""
        centre, sigma = state.centre[columns], state.sigma[columns]
        # The numbers of the 2n paired candidates. If P is odd, the last candidate is the centre, which has no partner.
        paired = np.arange(len(fitness) // 2 * 2)
        u, key = self._utilities(fitness), self._key(generation)
        total = moments_about_centre(centre, sigma, self._signs(paired), key, paired // 2, u, first=columns.start)
        return np.where(state.mask[columns, None], total, 0.0)

    def champion(self, state: GaussianStates) -> Genomes:
        """Return the centre."""
        return pruned(state.centre[None].astype(np.float32), state.mask[None])

    def distribution(self, state: GaussianStates) -> tuple[Float64, Float64]:
        """Return mean and standard deviation of each weight, both [W]."""
        return state.centre, state.sigma

    def _moments(self, state: GaussianStates, genomes: GenomeSource, results: Results) -> tuple[Float64, Float64]:
        """Return Σ u_c (w_c - θ) and Σ u_c (w_c - θ)², [W] each; from the genomes if the results have no sums."""
        check_population(genomes, results, self._P, self._W, grows=True)
        total = results.sums
        if total is None:
            u = self._utilities(results.fitness)
            total = weighted_moments(genomes, np.arange(len(u)), u, state.centre)
        return total[:, 0], total[:, 1]

    def _signs(self, candidates: Int64) -> Float64:
        """Return [n]: the sign of ε in each candidate, 1 or -1; 0 for the candidate that is the centre itself."""
        # This is the number of the last candidate if P is odd. If P is even, no candidate has this number.
        centre_candidate = self._P // 2 * 2
        return np.where(candidates == centre_candidate, 0.0, np.where(candidates % 2, -1.0, 1.0))

    def _utilities(self, fitness: Float64) -> Float64:
        """Return u [2n] of the paired candidates, without the last one of an odd P.

        fitness: [P], or fewer, see `grows`.
        """
        raise NotImplementedError


class Pgpe(_PairedStrategy[PgpeState]):
    """pgpe for P = `population` candidates of a layout."""

    state_type = PgpeState

    def __init__(self, options: PgpeOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        super().__init__(layout, population, seed)
        self._options = options
        self._optimizer = ClipUp(options.momentum, options.max_speed)
        self._learning_rate = options.learning_rate or options.max_speed / 2

    @staticmethod
    def validate(options: PgpeOptions, layout: GenomeLayout) -> None:
        """Raise InputError for a layout without weights to search, and settings without effect or out of range."""
        require_evolved_weights(layout, "pgpe")
        options.check_combinations()
        # The initial genome may lack connections, so the first σ is only known approximately here.
        first_sigma = _initial_sigma(options, layout.num_weights)
        if options.smallest_sigma >= first_sigma:
            expected = f"below the first standard deviation, about {first_sigma:g}"
            raise InputError("strategy.smallest_sigma", expected, options.smallest_sigma)

    def _initial_state(self, initial: Genomes) -> PgpeState:
        mask = initial.mask[0]
        sigma = _initial_sigma(self._options, int(np.count_nonzero(mask)))
        centre = initial.weights[0].astype(np.float64)
        return PgpeState(centre, np.full(self._W, sigma), mask, np.zeros(self._W))

    def tell(self, state: PgpeState, genomes: GenomeSource, results: Results) -> PgpeState:
        """Move the centre and the standard deviations along their gradients."""
        options = self._options
        first_moment, second_moment = self._moments(state, genomes, results)
        u = self._utilities(results.fitness)
        # If the candidates of each pair tie, ∇θ is 0, but the sums hold rounding errors. ClipUp would turn these into a
        # step of full length.
        pairs_tie = np.array_equal(u[::2], u[1::2])
        gradient = np.zeros(self._W) if pairs_tie else first_moment / len(u)
        velocity = self._optimizer.velocity(state.velocity, gradient, self._learning_rate)
        max_change = options.max_sigma_change * state.sigma
        sigma_gradient = second_moment / len(u) / state.sigma
        change = np.clip(options.sigma_learning_rate * sigma_gradient, -max_change, max_change)
        sigma = np.clip(state.sigma + change, options.smallest_sigma, _MAX_SIGMA)
        return PgpeState(state.centre + velocity, sigma, state.mask, velocity)

    def _utilities(self, fitness: Float64) -> Float64:
        return centred_ranks(fitness[: len(fitness) // 2 * 2])


class SnesOptions(PruningOptions):
    """Settings of `[strategy]` for snes."""

    sigma: float = Field(0.5, gt=0, le=1e6)
    """The initial standard deviation of candidates around the centre."""


class Snes(_PairedStrategy[GaussianState]):
    """snes for P = `population` candidates of a layout."""

    state_type = GaussianState

    def __init__(self, options: SnesOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        super().__init__(layout, population, seed)
        self._options = options
        # C of the formulas. Without connections C is 1 here, because 0 has no logarithm.
        C = float(max(1, int(np.count_nonzero(self._initial.mask))))
        # Not `math.log`, because the bits of libm differ between machines.
        log_C = float(log(np.array([C]))[0])
        self._sigma_learning_rate = (3 + log_C) / (5 * math.sqrt(C))

    @staticmethod
    def validate(options: SnesOptions, layout: GenomeLayout) -> None:
        """Raise InputError for a layout that has no weights to search, and settings without effect."""
        require_evolved_weights(layout, "snes")
        options.check_combinations()

    def _initial_state(self, initial: Genomes) -> GaussianState:
        centre, sigma = initial.weights[0].astype(np.float64), np.full(self._W, self._options.sigma)
        return GaussianState(centre, _bounded(sigma, centre), initial.mask[0])

    def tell(self, state: GaussianState, genomes: GenomeSource, results: Results) -> GaussianState:
        """Move the centre and the standard deviations along the natural gradient."""
        first_moment, second_moment = self._moments(state, genomes, results)
        change = self._sigma_learning_rate / 2 * (second_moment / (state.sigma * state.sigma))
        # `exp` is a function of float32, with the same bits on every machine.
        centre, sigma = state.centre + first_moment, state.sigma * exp(change.astype(np.float32))
        return GaussianState(centre, _bounded(sigma, centre), state.mask)

    def _utilities(self, fitness: Float64) -> Float64:
        return log_ranks(fitness[: len(fitness) // 2 * 2])


def _bounded(sigma: Float64, centre: Float64) -> Float64:
    """Return `sigma` [W], limited by `_MAX_SIGMA` and, from below, by the resolution of float32 at the centre [W]."""
    # With a smaller σ, all candidates could round to the same float32 weight.
    resolution = np.spacing(np.abs(centre).astype(np.float32))
    return np.maximum(np.minimum(sigma, _MAX_SIGMA), resolution)
