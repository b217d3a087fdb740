"""cma-es and sep-cma-es: covariance matrix adaptation, with a full and with a diagonal covariance.

Both search the n connections of an initial genome. The weights of this genome are the first mean m, and all candidates
share its mask. The champion is m. m is an average over many candidates of all generations, so the lucky fitness of one
candidate hardly changes m. Weights are float32. The standard deviation of a weight is never smaller than the distance
of m to the next float32. Otherwise all candidates could be equal, and σ would adapt to noise until it vanished or
overflowed.

cma-es: Hansen, "The CMA Evolution Strategy: A Tutorial" (2016, arXiv:1604.00772), with the constants of the library
cmaes. The tutorial computes the root of the covariance C from eigenvectors. Their bits depend on the library and the
processor. This module uses the Cholesky factor L of C instead, as Krause, Arbonès & Igel do in "CMA-ES with Optimal
Covariance Update and Storage Complexity" (2016). L is computed from products, differences, quotients and square roots,
which have the same bits on every machine. The weights w_i of the worse half are negative. At first C is the identity
matrix I. mu = floor(P/2). x_i is the i-th best candidate; NaN is last.

    candidate    m + σ L z, C = L Lᵀ, z ~ N(0, I) from keyed streams
    w'_i         ln((P + 1)/2) - ln i, i = 1 … P; mu_eff = (Σ w'_i)²/Σ w'_i² over i ≤ mu; mu_neg: the same over i > mu
    w_i          w'_i/Σ_j max(0, w'_j) if w'_i ≥ 0, else w'_i a/Σ_j max(0, -w'_j),
                 a = min(1 + c_1/c_mu, 1 + 2mu_neg/(mu_eff + 2), (1 - c_1 - c_mu)/(n c_mu))
    y_i          (x_i - m)/σ; y = Σ_i w_i y_i over i ≤ mu
    m            m + σ y
    p_σ          (1 - c_σ) p_σ + sqrt(c_σ (2 - c_σ) mu_eff) L⁻¹ y, c_σ = (mu_eff + 2)/(n + mu_eff + 5)
    σ, h         as in sep-cma-es, below
    p_c          (1 - c_c) p_c + h sqrt(c_c (2 - c_c) mu_eff) y, c_c = (4 + mu_eff/n)/(n + 4 + 2mu_eff/n)
    C            (1 - c_1 - c_mu Σ w_i + (1 - h) c_1 c_c (2 - c_c)) C + c_1 p_c p_cᵀ + c_mu Σ_i v_i y_i y_iᵀ,
                 v_i = w_i if w_i ≥ 0, else w_i n/‖L⁻¹ y_i‖²; c_1 = 2/((n + 1.3)² + mu_eff),
                 c_mu = min(1 - c_1, 2 (mu_eff - 2 + 1/mu_eff)/((n + 2)² + mu_eff))

sep-cma-es: Ros & Hansen, "A Simple Modification in CMA-ES Achieving Linear Time and Space Complexity" (2008), with its
parameters. As in the library cmaes, the paper's c_cov is named c_mu, and c_1 is the tutorial's. C stands for the
diagonal of the covariance, [n], which is 1 at first. mu = floor(P/2). x_i is the i-th best candidate; NaN is last. All
operations are elementwise:

    candidate    m + σ sqrt(C) z, z ~ N(0, I) from keyed streams
    w_i          (ln(mu + 1) - ln i) / Σ_j (ln(mu + 1) - ln j), i = 1 … mu; mu_eff = 1/Σ w_i²
    y            Σ_i w_i (x_i - m)/σ, and y² is short for Σ_i w_i ((x_i - m)/σ)²
    m            m + σ y
    p_σ          (1 - c_σ) p_σ + sqrt(c_σ (2 - c_σ) mu_eff) y/sqrt(C), c_σ = (mu_eff + 2)/(n + mu_eff + 3)
    σ            σ exp(c_σ/d_σ (‖p_σ‖/χ - 1)), χ = sqrt(n) (1 - 1/(4n) + 1/(21n²)),
                 d_σ = 1 + 2 max(0, sqrt((mu_eff - 1)/(n + 1)) - 1) + c_σ
    h            1 if ‖p_σ‖/sqrt(1 - (1 - c_σ)^(2(t + 1))) < (1.4 + 2/(n + 1)) χ, else 0;
                 t = 1 in the first update. The library cmaes has this exponent; the tutorial has 2t
    p_c          (1 - c_c) p_c + h sqrt(c_c (2 - c_c) mu_eff) y, c_c = 4/(n + 4)
    C            (1 - c_1 - c_mu + (1 - h) c_1 c_c (2 - c_c)) C + c_1 p_c² + c_mu y², c_1 = 2/((n + 1.3)² + mu_eff),
                 c_mu = (n + 2)/3 (2/mu_eff/(n + sqrt(2))² + (1 - 1/mu_eff) min(1, (2mu_eff - 1)/((n + 2)² + mu_eff)))

In sep-cma-es, too, c_mu is at most 1 - c_1: the formula can exceed this limit if P is much larger than n. Sums over
candidates have the order of their ranks, and use the float32 weights that were evaluated. The exponential function in
the formula of σ is computed in float32.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pydantic import Field

from evolve.errors import InputError, Setting, pluralize
from evolve.genome import GenomeLayout, Genomes, GenomeSource
from evolve.numerics import exp, ordered_sum
from evolve.numerics.perturbation import moments_about_centre, perturbed
from evolve.numerics.portable import add_outer, cholesky, log, norm, solve
from evolve.numerics.streams import Purpose, normal_rows
from evolve.shapes import Float32, Float64, Int64
from evolve.strategies.evolution_strategy import EvolutionStrategy, weighted_moments
from evolve.strategies.pruning_schedules import PruningOptions
from evolve.strategies.strategy import (
    NamedNumbers,
    NewestValue,
    Results,
    check_population,
    ranking,
    requested_candidates,
    require_evolved_weights,
    stored,
)
from evolve.strategies.wrapper import RestartOptions

_MIN_POPULATION = 4  # a smaller population would have only one parent
_MAX_WEIGHT = 1e30  # also the largest standard deviation
_MIN_SIGMA = 1e-12  # without a limit, σ could vanish while the covariance grows
_MIN_PIVOT = 1e-13  # of the Cholesky factor, as a share of a weight's variance; a smaller pivot is a rounding error
_NEAR_ZERO = 1e-8  # added to ‖L⁻¹ y‖², which is 0 for a candidate at the mean
_MAX_CONNECTIONS = 2_000
"""The largest n. The covariance of 2,000 connections takes 32 MB, and a generation half a second."""


@dataclass(frozen=True)
class CmaProgress(NamedNumbers):
    """σ, and the number of completed generations."""

    sigma: float
    generations: int


@dataclass(frozen=True)
class SearchedConnections:
    """The n connections of an initial genome of W weights, which a strategy with a covariance searches.

    initial: The initial genome (P = 1).
    columns: [n], the places of the connections in a genome, in ascending order.
    """

    initial: Genomes
    columns: Int64

    @classmethod
    def of(cls, initial: Genomes, population: int, strategy: str) -> "SearchedConnections":
        """Return the connections of an initial genome (P = 1). strategy: the name of the strategy, for errors.

        Raises InputError if there are too few connections, or too few candidates in the population.
        """
        if population < _MIN_POPULATION:
            raise InputError("population", f"at least {_MIN_POPULATION} for {strategy}", population)
        connections = cls(initial, np.flatnonzero(initial.mask[0]))
        if len(connections) < 2:
            expected = f"genomes of at least 2 connections with {strategy}"
            raise InputError("strategy.name", expected, pluralize(len(connections), "connection"))
        return connections

    def __len__(self) -> int:
        return len(self.columns)

    def weights(self, genome: Genomes) -> Float64:
        """Return [n]: the weights of the connections in a genome (P = 1)."""
        return genome.weights[0, self.columns].astype(np.float64)

    def within(self, part: slice) -> tuple[Int64, slice]:
        """Return the k connections in a part of a genome: their places [k] in the part, and their slice among all n."""
        first, stop = np.searchsorted(self.columns, [part.start, part.stop])
        return self.columns[first:stop] - part.start, slice(int(first), int(stop))

    def genomes(self, x: Float32) -> Genomes:
        """Return N genomes with the connection weights x [N, n]."""
        W = self.initial.num_weights
        weights = x
        if len(self) < W:  # otherwise all weights are in x, which is not copied because it may be large
            weights = np.zeros((len(x), W), np.float32)
            weights[:, self.columns] = x
        return Genomes(weights, np.repeat(self.initial.mask, len(x), axis=0))


class CmaOptions(RestartOptions):
    """Settings of `[strategy]` for cma-es."""

    sigma: float = Field(1.0, gt=0, le=1e6)
    """The initial σ, the standard deviation of candidates around the mean."""


@dataclass(frozen=True)
class CmaState:
    """The state of cma-es, float64.

    mean, p_sigma, p_c: [n], the mean and the evolution paths.
    covariance: [c], the upper half of the covariance, row by row, c = n(n + 1)/2.
    progress: σ and the number of completed generations.
    """

    mean: Float64 = stored("n")
    p_sigma: Float64 = stored("n")
    p_c: Float64 = stored("n")
    covariance: Float64 = stored("c")
    progress: CmaProgress = stored(CmaProgress)


class _CmaRates:
    """The constants of cma-es, named as in the formulas at the top of this module. `weights` holds the w_i [P]."""

    def __init__(self, n: int, population: int) -> None:
        self.n = n
        self.mu = mu = population // 2
        # w'_i for i = 1 … P: above 0 for the better half, below 0 for the worse half.
        unscaled = log(np.array([(population + 1) / 2])) - log(np.arange(1.0, population + 1))
        self.mu_eff = mu_eff = _effective_number(unscaled[:mu])
        self.c_sigma = (mu_eff + 2) / (n + mu_eff + 5)
        self.c_c = (4 + mu_eff / n) / (n + 4 + 2 * mu_eff / n)
        self.c_1 = c_1 = 2 / ((n + 1.3) * (n + 1.3) + mu_eff)
        # As in the library, c_mu stays a little below its limit, 1 - c_1.
        self.c_mu = c_mu = min(1 - c_1 - 1e-8, 2 * (mu_eff - 2 + 1 / mu_eff) / ((n + 2) * (n + 2) + mu_eff))
        mu_neg = _effective_number(unscaled[mu:])
        # The smallest of these limits is the factor a of the negative weights.
        limits = 1 + c_1 / c_mu, 1 + 2 * mu_neg / (mu_eff + 2), (1 - c_1 - c_mu) / (n * c_mu)
        best, worst = np.maximum(unscaled, 0), np.minimum(unscaled, 0)
        # `worst` and its sum are both negative, so their quotient is positive, and needs the minus sign.
        self.weights: Float64 = best / ordered_sum(best) - worst * (min(limits) / ordered_sum(worst))


def _effective_number(weights: Float64) -> float:
    """Return (Σ w)²/Σ w² of weights w [k]: the number of equal weights that would give a mean the same variance."""
    total = float(ordered_sum(weights))
    return total * total / float(ordered_sum(weights * weights))


class Cma(EvolutionStrategy[CmaState]):
    """CMA-ES with a full covariance for P = `population` candidates of a layout."""

    central = True  # rank 0 computes all candidates, because a generation needs a Cholesky factor
    traces = "none"  # `tell` reads no traces of networks
    state_type = CmaState

    def __init__(self, options: CmaOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        super().__init__(layout, population, seed)
        self._connections = SearchedConnections.of(self._initial, population, "cma-es")
        self._n = n = len(self._connections)
        self._sizes |= {"n": n, "c": n * (n + 1) // 2}
        if n > _MAX_CONNECTIONS:
            expected = f"genomes of at most {_MAX_CONNECTIONS:,} connections with cma-es"
            cure = "Use ", Setting("strategy.name", "sep-cma-es"), ", which has a diagonal covariance."
            raise InputError("strategy.name", expected, pluralize(n, "connection"), *cure)
        self._options = options
        # A cache: `tell`, and all calls of `ask` in a generation, need the same Cholesky factor.
        self._factor_of = NewestValue(self._factor)

    @staticmethod
    def validate(options: CmaOptions, layout: GenomeLayout) -> None:
        """Raise InputError for a layout that has no weights to search, and settings without effect."""
        require_evolved_weights(layout, "cma-es")
        options.check_combinations()

    def _initial_state(self, initial: Genomes) -> CmaState:
        mean, zeros = self._connections.weights(initial), np.zeros(self._n)
        return self._bounded(mean, zeros, zeros, np.eye(self._n), CmaProgress(self._options.sigma, generations=0))

    def ask(self, state: CmaState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates, drawn around the mean."""
        candidates = requested_candidates(self._P, candidates)
        z = normal_rows(self._seed, Purpose.WEIGHT_NOISE, generation, candidates, self._n).astype(np.float64)
        # Row i of `steps` becomes L z_i. `add_outer` adds in a fixed order, so all machines get the same bits.
        steps = np.zeros_like(z)
        add_outer(steps, z.T, self._factor_of(state))
        return self._genomes(state.mean + state.progress.sigma * steps)

    def tell(self, state: CmaState, genomes: GenomeSource, results: Results) -> CmaState:
        """Adapt mean, step size and covariance. The covariance needs all candidates at once."""
        check_population(genomes, results, self._P, self._W)
        r, n, sigma = self._rates, self._n, state.progress.sigma
        # x_i and y_i of the formulas, the best candidate first.
        x = genomes.take(ranking(results.fitness)).weights[:, self._connections.columns].astype(np.float64)
        steps = (x - state.mean) / sigma
        y = ordered_sum((r.weights[: r.mu, None] * steps[: r.mu]).T)
        # Row 0 is L⁻¹ y, for p_σ. The other rows are L⁻¹ y_i of the worse half, for the lengths in v_i.
        whitened = solve(self._factor_of(state), np.concatenate([y[None], steps[r.mu :]]))
        p_sigma, p_c, progress, h = _next_paths(state, r, y, whitened[0])
        # The next covariance: first a share of the old one and the term of p_c, then the terms of all candidates.
        old_share = 1 - r.c_1 - r.c_mu * float(ordered_sum(r.weights)) + (1 - h) * r.c_1 * r.c_c * (2 - r.c_c)
        # Below the diagonal the sum lacks the old covariance, but `_bounded` stores only the upper half.
        covariance = old_share * self._upper(state) + (r.c_1 * p_c)[:, None] * p_c
        # c_mu v_i of the formulas: the negative weights are scaled.
        shares = r.c_mu * r.weights
        lengths = ordered_sum(whitened[1:] * whitened[1:])
        shares[r.mu :] *= np.where(shares[r.mu :] < 0, n / (lengths + _NEAR_ZERO), 1)
        add_outer(covariance, shares[:, None] * steps, steps)
        return self._bounded(state.mean + sigma * y, p_sigma, p_c, covariance, progress)

    def champion(self, state: CmaState) -> Genomes:
        """Return the mean."""
        return self._genomes(state.mean[None])

    @cached_property
    def _rates(self) -> _CmaRates:
        # Not in the constructor: `bytes_per_weight` makes strategies, too, to estimate their memory. If the population
        # is far too large, the weights w_i [P] would not fit in memory.
        return _CmaRates(self._n, self._P)

    def _genomes(self, x: Float64) -> Genomes:
        return self._connections.genomes(np.clip(x, -_MAX_WEIGHT, _MAX_WEIGHT).astype(np.float32))

    def _upper(self, state: CmaState) -> Float64:
        """Return the covariance [n, n] of a state, with zeros in the lower half."""
        upper = np.zeros((self._n, self._n))
        upper[np.triu_indices(self._n)] = state.covariance
        return upper

    def _factor(self, state: CmaState, _generation: int) -> Float64:
        """Return Lᵀ [n, n] of a state."""
        upper = self._upper(state)
        return cholesky(upper, _MIN_PIVOT * np.diagonal(upper))

    def _bounded(self, mean: Float64, p_sigma: Float64, p_c: Float64, C: Float64, progress: CmaProgress) -> CmaState:
        """Return a state with standard deviations from the resolution of float32 to `_MAX_WEIGHT`.

        C: [n, n], of which only the upper half counts. The caller has made C for this call, so C may change in place.
        """
        mean = np.clip(mean, -_MAX_WEIGHT, _MAX_WEIGHT)
        variances = np.diagonal(C)
        largest = math.sqrt(float(variances.max()))
        sigma = min(max(progress.sigma, _MIN_SIGMA), _MAX_WEIGHT / largest)
        # The standard deviation of weight i is σ sqrt(C_ii), so the resolution gives a lower bound of C_ii in units of
        # σ².
        spacing = np.spacing(np.abs(mean).astype(np.float32))
        resolution = spacing.astype(np.float64) / sigma
        np.fill_diagonal(C, np.maximum(variances, resolution * resolution))
        upper = C[np.triu_indices(self._n)]
        return CmaState(mean, p_sigma, p_c, upper, CmaProgress(sigma, progress.generations))


def _next_paths(
    state: CmaState, rates: "_CmaRates | _SepRates", y: Float64, whitened: Float64
) -> tuple[Float64, Float64, CmaProgress, float]:
    """Return the next p_σ, p_c and progress, and h, which is 0 if p_σ is so long that p_c must not grow, else 1.

    Args:
        state: The state before the generation.
        rates: The constants of the strategy.
        y: [n], the y of the formulas.
        whitened: [n], y in units of the standard deviations: L⁻¹ y, or y/sqrt(C) for sep-cma-es.
    """
    n, c_sigma, c_c, mu_eff = rates.n, rates.c_sigma, rates.c_c, rates.mu_eff
    generations = state.progress.generations + 1
    p_sigma = (1 - c_sigma) * state.p_sigma + math.sqrt(c_sigma * (2 - c_sigma) * mu_eff) * whitened
    d_sigma = 1 + 2 * max(0, math.sqrt((mu_eff - 1) / (n + 1)) - 1) + c_sigma
    ratio = norm(p_sigma) / (math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n)))  # ‖p_σ‖/χ
    # p_σ begins at 0, so its length is too small in the first generations.
    start_correction = math.sqrt(1 - _power(1 - c_sigma, 2 * (generations + 1)))
    h = 1.0 if ratio / start_correction < 1.4 + 2 / (n + 1) else 0.0
    p_c = (1 - c_c) * state.p_c + (h * math.sqrt(c_c * (2 - c_c) * mu_eff)) * y
    factor = exp(np.array([c_sigma / d_sigma * (ratio - 1)], np.float32))[0]
    return p_sigma, p_c, CmaProgress(state.progress.sigma * float(factor), generations), h


class SepCmaOptions(PruningOptions):
    """Settings of `[strategy]` for sep-cma-es."""

    sigma: float = Field(0.5, gt=0, le=1e6)
    """The initial σ, the standard deviation of candidates around the mean."""


@dataclass(frozen=True)
class SepCmaState(CmaState):
    """The state of sep-cma-es, which stores only the diagonal of the covariance, [n]."""

    covariance: Float64 = stored("n")


class _SepRates:
    """The constants of sep-cma-es, named as in the formulas at the top of this module. `weights` holds the w_i [mu]."""

    def __init__(self, n: int, population: int) -> None:
        self.n = n
        mu = population // 2
        unscaled = log(np.array([mu + 1.0])) - log(np.arange(1.0, mu + 1.0))
        self.weights: Float64 = unscaled / ordered_sum(unscaled)
        self.mu_eff = mu_eff = 1 / float(ordered_sum(self.weights * self.weights))
        self.c_sigma = (mu_eff + 2) / (n + mu_eff + 3)
        self.c_c = 4 / (n + 4)
        self.c_1 = 2 / ((n + 1.3) * (n + 1.3) + mu_eff)
        shifted = n + math.sqrt(2)
        limited = min(1, (2 * mu_eff - 1) / ((n + 2) * (n + 2) + mu_eff))
        c_mu = 2 / mu_eff / (shifted * shifted) + (1 - 1 / mu_eff) * limited
        self.c_mu = min((n + 2) / 3 * c_mu, 1 - self.c_1)


class SepCma(EvolutionStrategy[SepCmaState]):
    """Separable CMA-ES for P = `population` candidates of a layout."""

    traces = "none"  # `tell` reads no traces of networks
    sum_shape = (2,)  # `sums` returns two numbers for each weight
    state_type = SepCmaState

    def __init__(
        self, options: SepCmaOptions, layout: GenomeLayout, population: int, seed: int, dimensions: int | None = None
    ) -> None:
        """Search the connections of a layout's initial genome.

        Args:
            options: The settings.
            layout: The layout of the genomes.
            population: P.
            seed: The seed of the streams.
            dimensions: The n of the formulas, by default the number of connections. map-elites passes a smaller number,
                the connections of an emitter, because all other weights stay 0.
        """
        super().__init__(layout, population, seed)
        self._connections = SearchedConnections.of(self._initial, population, "sep-cma-es")
        self._n = self._sizes["n"] = len(self._connections)
        self._dimensions = self._n if dimensions is None else dimensions
        self._options = options

    @staticmethod
    def validate(options: SepCmaOptions, layout: GenomeLayout) -> None:
        """Raise InputError for a layout that has no weights to search, and settings without effect."""
        require_evolved_weights(layout, "sep-cma-es")
        options.check_combinations()

    def _initial_state(self, initial: Genomes) -> SepCmaState:
        mean, zeros = self._connections.weights(initial), np.zeros(self._n)
        progress = CmaProgress(self._options.sigma, generations=0)
        return self._bounded(SepCmaState(mean, zeros, zeros, np.ones(self._n), progress))

    def ask(self, state: SepCmaState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates, drawn around the mean."""
        candidates = requested_candidates(self._P, candidates)
        steps = np.full(len(candidates), state.progress.sigma)
        # The mean has only the n connections, and all of them are present.
        mask, deviations = np.ones(self._n, np.bool_), np.sqrt(state.covariance)
        x = perturbed(state.mean, mask, steps, self._key(generation), candidates, deviations)
        return self._connections.genomes(x)

    def sums(self, state: SepCmaState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return [N, 2]: Σ w_i (x_i - m) and Σ w_i (x_i - m)² in N columns; 0 in a column without a connection."""
        rows_of_total, connections = self._connections.within(columns)
        best = self._best(fitness)
        total = np.zeros((columns.stop - columns.start, 2))
        # A stream has deviates only for the n connections, so `first` is a number among them, and not a column.
        total[rows_of_total] = moments_about_centre(
            state.mean[connections],
            np.sqrt(state.covariance[connections]),
            np.full(len(best), state.progress.sigma),
            self._key(generation),
            best,
            self._rates.weights,
            first=connections.start,
        )
        return total

    def tell(self, state: SepCmaState, genomes: GenomeSource, results: Results) -> SepCmaState:
        """Adapt mean, step size and covariance."""
        check_population(genomes, results, self._P, self._W)
        r, sigma, columns = self._rates, state.progress.sigma, self._connections.columns
        # σ y and σ² y² of the formulas.
        if results.sums is None:  # no worker has computed them
            moments = weighted_moments(genomes, self._best(results.fitness), r.weights, state.mean, columns)
        else:
            moments = results.sums[columns]
        first_moment, second_moment = moments.T
        y = first_moment / sigma
        p_sigma, p_c, progress, h = _next_paths(state, r, y, y / np.sqrt(state.covariance))
        old_share = 1 - r.c_1 - r.c_mu + (1 - h) * r.c_1 * r.c_c * (2 - r.c_c)
        covariance = old_share * state.covariance + r.c_1 * (p_c * p_c) + r.c_mu * (second_moment / (sigma * sigma))
        return self._bounded(SepCmaState(state.mean + first_moment, p_sigma, p_c, covariance, progress))

    def champion(self, state: SepCmaState) -> Genomes:
        """Return the mean."""
        return self._connections.genomes(state.mean[None].astype(np.float32))

    def distribution(self, state: SepCmaState) -> tuple[Float64, Float64]:
        """Return mean and standard deviation of each weight, both [W]; 0 and 1 for an absent connection."""
        mean, deviation = np.zeros(self._W), np.ones(self._W)
        mean[self._connections.columns] = state.mean
        deviation[self._connections.columns] = state.progress.sigma * np.sqrt(state.covariance)
        return mean, deviation

    @staticmethod
    def _bounded(state: SepCmaState) -> SepCmaState:
        """Return the state with standard deviations limited: from the resolution of float32 to `_MAX_WEIGHT`."""
        mean = np.clip(state.mean, -_MAX_WEIGHT, _MAX_WEIGHT)
        sigma = min(max(state.progress.sigma, _MIN_SIGMA), _MAX_WEIGHT)
        resolution = np.spacing(np.abs(mean).astype(np.float32))
        # All standard deviations here are in units of σ. The smallest variance is computed in float32, as in published
        # runs, to keep their bits. If float32 cannot hold it, as near a weight of 0, it is computed in float64.
        smallest, exact_smallest = resolution / sigma, resolution.astype(np.float64) / sigma
        largest = _MAX_WEIGHT / sigma
        with np.errstate(over="ignore"):
            variance = smallest * smallest
        in_range = (variance >= np.finfo(np.float32).tiny) & (variance < np.inf)
        smallest_variance = np.where(in_range, variance, exact_smallest * exact_smallest)
        covariance = np.clip(state.covariance, smallest_variance, largest * largest)
        progress = CmaProgress(sigma, state.progress.generations)
        return SepCmaState(mean, state.p_sigma, state.p_c, covariance, progress)

    @cached_property
    def _rates(self) -> _SepRates:
        return _SepRates(self._dimensions, self._P)

    def _best(self, fitness: Float64) -> Int64:
        """Return [mu]: the best candidates, best first."""
        return ranking(fitness)[: len(self._rates.weights)]


def _power(x: float, exponent: int) -> float:
    """Return x^exponent by squaring. The operator ** calls libm, and its bits differ between machines."""
    power = 1.0
    while exponent:
        if exponent & 1:
            power *= x
        x *= x
        exponent >>= 1
    return power
