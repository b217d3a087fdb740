"""cma-es and sep-cma-es: covariance matrix adaptation, with a full and with a diagonal covariance.

Both search the n connections of an initial genome. Its weights are the first mean m, and all candidates share its mask.
The champion is m, an average over many candidates of all generations, so the lucky fitness of one candidate hardly
changes it. Weights are float32. A standard deviation is never smaller than the distance of m to the next float32.
Otherwise all candidates could be equal, and σ would adapt to noise until it vanished or overflowed.

cma-es: Hansen, "The CMA Evolution Strategy: A Tutorial" (2016, arXiv:1604.00772), by the library cmaes, which comes
with the extra `cma`. This module is its sole importer.

    candidate    m + σ B D z, z ~ N(0, I) from keyed streams, C = B D² Bᵀ
    update       cmaes gets the candidates in order of fitness, NaN last, and updates m, σ and C

The state is kept as plain arrays, from which each ask and tell restores an optimizer of cmaes. cmaes has no public
function for that, so this module uses private parts that may change: `__getstate__` and `__setstate__`, their entries
`_sigma`, `_p_sigma`, `_pc`, `_g` and `_c_1d`, and `_eigen_decomposition`. The library's arithmetic is not portable:
eigenvectors and norms come from BLAS. On machines of one kind the bits are the same if BLAS uses one thread, so this
module limits BLAS to one thread.

sep-cma-es, in portable arithmetic: Ros & Hansen, "A Simple Modification in CMA-ES Achieving Linear Time and Space
Complexity" (2008), with its parameters, but as in the library cmaes the paper's c_cov is named c_mu, and c_1 is the
tutorial's. With C = 1 at first, mu = floor(P/2), x_i the i-th best candidate, NaN last, and all operations elementwise:

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

c_mu is reduced to 1 - c_1 if the formula gives more, as it does if P is much larger than n. Sums over candidates are
taken in the order of their rank, from the float32 weights that were evaluated. The exponential function of σ takes and
gives float32.
"""

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from pydantic import Field

from evolve.errors import InputError, Setting, import_extra, pluralize
from evolve.genome import GenomeLayout, Genomes, GenomeSource
from evolve.numerics import exp, ordered_sum
from evolve.numerics.perturbation import moments_about_centre, perturbed
from evolve.numerics.portable import log, norm
from evolve.numerics.streams import Purpose, normal_rows
from evolve.shapes import Float64, Int64
from evolve.strategies.evolution_strategy import (
    CmaProgress,
    EvolutionStrategy,
    SearchedConnections,
    stored,
    weighted_moments,
)
from evolve.strategies.pruning_schedules import PruningOptions
from evolve.strategies.strategy import Results, check_population, ranking, requested_candidates, require_evolved_weights
from evolve.strategies.wrapper import RestartOptions

_MAX_WEIGHT = 1e30  # also the largest standard deviation of sep-cma-es; cmaes refuses a mean above 1e32
_MIN_SIGMA = 1e-12  # σ could vanish while the covariance grows
_MAX_CONNECTIONS = 2_000
"""The largest n; an update of cmaes finds the eigenvectors of C, which takes n³ operations."""
_MAX_PRODUCTS = 2**28
"""The largest P·n²; cmaes allocates two arrays of P·n² float64."""


class CmaOptions(RestartOptions):
    """Settings of `[strategy]` for cma-es."""

    sigma: float = Field(1.0, gt=0, le=1e6)
    """The initial σ, the standard deviation of candidates around the mean."""


@dataclass(frozen=True)
class CmaState:
    """The state of cma-es, float64.

    mean, p_sigma, p_c: [n], the mean and the evolution paths.
    covariance: [c], c = n(n + 1)/2: the upper half of the covariance, row by row.
    progress: σ and the number of completed generations.
    """

    mean: Float64 = stored("n")
    p_sigma: Float64 = stored("n")
    p_c: Float64 = stored("n")
    covariance: Float64 = stored("c")
    progress: CmaProgress = stored(CmaProgress)


@cache
def _controller(threadpoolctl: Any) -> Any:
    """Return the controller of the threads of loaded libraries, cached: the search for them takes some 10 ms."""
    return threadpoolctl.ThreadpoolController()


class Cma(EvolutionStrategy[CmaState]):
    """CMA-ES with a full covariance for P = `population` candidates of a layout."""

    portable = False
    traces = "none"
    state_type = CmaState

    def __init__(self, options: CmaOptions, layout: GenomeLayout, population: int, seed: int) -> None:
        self._cmaes = import_extra("cmaes", "cma", "strategy.name")
        self._threads = _controller(import_extra("threadpoolctl", "cma", "strategy.name"))
        super().__init__(layout, population, seed)
        self._connections = SearchedConnections.of(self._initial, population, "cma-es")
        self._n = len(self._connections)
        self._sizes |= {"n": self._n, "c": self._n * (self._n + 1) // 2}
        most = min(_MAX_CONNECTIONS, math.isqrt(_MAX_PRODUCTS // population))
        if self._n > most:
            expected = f"genomes of at most {most:,} connections with cma-es and a population of {population:,}"
            cure = "Use ", Setting("strategy.name", "sep-cma-es"), ", which has a diagonal covariance."
            raise InputError("strategy.name", expected, pluralize(self._n, "connection"), *cure)
        self._options = options

    @staticmethod
    def validate(options: CmaOptions, layout: GenomeLayout) -> None:
        """Raise InputError for a layout that has no weights to search, and settings without effect."""
        require_evolved_weights(layout, "cma-es")
        options.check_combinations()

    def _initial_state(self, initial: Genomes) -> CmaState:
        mean = np.clip(self._connections.weights(initial), -_MAX_WEIGHT, _MAX_WEIGHT)
        return self._state(self._optimizer(mean, self._options.sigma))

    def ask(self, state: CmaState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates, drawn around the mean."""
        candidates = requested_candidates(self._P, candidates)
        z = normal_rows(self._seed, Purpose.WEIGHT_NOISE, generation, candidates, self._n).astype(np.float64)
        return self._genomes(state.mean + state.progress.sigma * self._shaped(state, z))

    def tell(self, state: CmaState, genomes: GenomeSource, results: Results) -> CmaState:
        """Adapt mean, step size and covariance by cmaes, which needs all candidates at once."""
        check_population(genomes, results, self._P, self._W)
        x = genomes.take(np.arange(self._P)).weights[:, self._connections.places].astype(np.float64)
        with self._one_thread():
            optimizer = self._restored(state)
            order = ranking(results.fitness)
            optimizer.tell([(x[candidate], float(rank)) for rank, candidate in enumerate(order)])
        return self._state(optimizer)

    def champion(self, state: CmaState) -> Genomes:
        """Return the mean."""
        return self._genomes(state.mean[None])

    @property
    def _diagonal(self) -> Int64:
        """[n]: the places of the diagonal in the upper half of the covariance."""
        rows = np.arange(self._n)
        return rows * self._n - rows * (rows - 1) // 2

    def _shaped(self, state: CmaState, z: Float64) -> Float64:
        """Return B D z for each row of z [N, n]."""
        with self._one_thread():
            B, D = self._restored(state)._eigen_decomposition()
        # No matrix product: with BLAS the bits of a candidate could depend on the other candidates of the same call.
        shaped = np.zeros_like(z)
        for column, scale, along in zip(np.ascontiguousarray(B.T), D, z.T, strict=True):
            shaped += (scale * along)[:, None] * column
        return shaped

    def _genomes(self, x: Float64) -> Genomes:
        """Return the genomes of weights x [N, n]."""
        return self._connections.genomes(np.clip(x, -_MAX_WEIGHT, _MAX_WEIGHT).astype(np.float32))

    def _one_thread(self) -> AbstractContextManager[Any]:
        return self._threads.limit(limits=1, user_api="blas")

    def _optimizer(self, mean: Float64, sigma: float) -> Any:
        """Return a new optimizer of cmaes. It never draws, so its seed has no effect."""
        return self._cmaes.CMA(mean=mean.copy(), sigma=sigma, population_size=self._P, seed=0)

    def _restored(self, state: CmaState) -> Any:
        """Return an optimizer that continues from a state."""
        optimizer = self._optimizer(state.mean, state.progress.sigma)
        generations = state.progress.generations
        parts = {"_p_sigma": state.p_sigma, "_pc": state.p_c, "_g": generations, "_c_1d": state.covariance}
        optimizer.__setstate__(optimizer.__getstate__() | parts)
        return optimizer

    def _state(self, optimizer: Any) -> CmaState:
        """Return the state of an optimizer, with standard deviations above the resolution of float32."""
        parts = optimizer.__getstate__()
        covariance = parts["_c_1d"].copy()
        progress = CmaProgress(max(float(parts["_sigma"]), _MIN_SIGMA), int(parts["_g"]))
        size = np.minimum(np.abs(optimizer.mean), _MAX_WEIGHT).astype(np.float32)
        resolution = np.spacing(size).astype(np.float64) / progress.sigma
        covariance[self._diagonal] = np.maximum(covariance[self._diagonal], resolution * resolution)
        return CmaState(optimizer.mean, parts["_p_sigma"], parts["_pc"], covariance, progress)


class SepCmaOptions(PruningOptions):
    """Settings of `[strategy]` for sep-cma-es."""

    sigma: float = Field(0.5, gt=0, le=1e6)
    """The initial σ, the standard deviation of candidates around the mean."""


@dataclass(frozen=True)
class SepCmaState(CmaState):
    """The state of sep-cma-es, which stores only the diagonal of the covariance, [n]."""

    covariance: Float64 = stored("n")


class _Rates:
    """The constants of the formulas at the top of this module, with the same names; weights: w_i, [mu]."""

    def __init__(self, n: int, population: int) -> None:
        self.n = n
        mu = population // 2
        unscaled = log(np.array([mu + 1.0])) - log(np.arange(1.0, mu + 1.0))
        self.weights: Float64 = unscaled / ordered_sum(unscaled)
        self.mu_eff = mu_eff = 1 / float(ordered_sum(self.weights * self.weights))
        self.c_sigma = (mu_eff + 2) / (n + mu_eff + 3)
        self.d_sigma = 1 + 2 * max(0, math.sqrt((mu_eff - 1) / (n + 1)) - 1) + self.c_sigma
        self.c_c = 4 / (n + 4)
        self.c_1 = 2 / ((n + 1.3) * (n + 1.3) + mu_eff)
        shifted = n + math.sqrt(2)
        limited = min(1, (2 * mu_eff - 1) / ((n + 2) * (n + 2) + mu_eff))
        c_mu = 2 / mu_eff / (shifted * shifted) + (1 - 1 / mu_eff) * limited
        self.c_mu = min((n + 2) / 3 * c_mu, 1 - self.c_1)
        self.chi = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))


class SepCma(EvolutionStrategy[SepCmaState]):
    """Separable CMA-ES for P = `population` candidates of a layout."""

    traces = "none"
    sum_shape = (2,)
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
            dimensions: The n of the formulas, by default the number of connections; fewer if the caller prunes some of
                the connections, whose weights stay 0.
        """
        super().__init__(layout, population, seed)
        self._connections = SearchedConnections.of(self._initial, population, "sep-cma-es")
        self._n = self._sizes["n"] = len(self._connections)
        self._rates = _Rates(self._n if dimensions is None else dimensions, population)
        self._options = options

    @staticmethod
    def validate(options: SepCmaOptions, layout: GenomeLayout) -> None:
        """Raise InputError for a layout that has no weights to search, and settings without effect."""
        require_evolved_weights(layout, "sep-cma-es")
        options.check_combinations()

    def _initial_state(self, initial: Genomes) -> SepCmaState:
        mean, zeros = self._connections.weights(initial), np.zeros(self._n)
        return _bounded(mean, zeros, zeros, np.ones(self._n), CmaProgress(self._options.sigma, generations=0))

    def ask(self, state: SepCmaState, generation: int, candidates: Int64 | None = None) -> Genomes:
        """Return candidates, drawn around the mean."""
        candidates = requested_candidates(self._P, candidates)
        steps = np.full(len(candidates), state.progress.sigma)
        mask, deviations = np.ones(self._n, np.bool_), np.sqrt(state.covariance)
        x = perturbed(state.mean, mask, steps, self._key(generation), candidates, deviations)
        return self._connections.genomes(x)

    def sums(self, state: SepCmaState, generation: int, fitness: Float64, columns: slice) -> Float64:
        """Return [N, 2]: Σ w_i (x_i - m) and Σ w_i (x_i - m)² in each of N columns; 0 in a column without a connection.

        fitness: [P].
        """
        columns_of_sums, connections = self._connections.within(columns)
        best = self._best(fitness)
        total = np.zeros((columns.stop - columns.start, 2))
        total[columns_of_sums] = moments_about_centre(
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
        if results.sums is None:  # no worker has computed them
            best, places = self._best(results.fitness), self._connections.places
            moved, squares = weighted_moments(genomes, best, self._rates.weights, state.mean, places).T
        else:
            moved, squares = results.sums[self._connections.places].T
        r = self._rates
        sigma, generations = state.progress.sigma, state.progress.generations + 1
        y = moved / sigma
        path_step = math.sqrt(r.c_sigma * (2 - r.c_sigma) * r.mu_eff) * (y / np.sqrt(state.covariance))
        p_sigma = (1 - r.c_sigma) * state.p_sigma + path_step
        ratio = norm(p_sigma) / r.chi
        start_correction = math.sqrt(1 - _power(1 - r.c_sigma, 2 * (generations + 1)))
        h = 1.0 if ratio / start_correction < 1.4 + 2 / (r.n + 1) else 0.0
        p_c = (1 - r.c_c) * state.p_c + (h * math.sqrt(r.c_c * (2 - r.c_c) * r.mu_eff)) * y
        kept = 1 - r.c_1 - r.c_mu + (1 - h) * r.c_1 * r.c_c * (2 - r.c_c)
        covariance = kept * state.covariance + r.c_1 * (p_c * p_c) + r.c_mu * (squares / (sigma * sigma))
        factor = exp(np.array([r.c_sigma / r.d_sigma * (ratio - 1)], np.float32))[0]
        progress = CmaProgress(sigma * float(factor), generations)
        return _bounded(state.mean + moved, p_sigma, p_c, covariance, progress)

    def champion(self, state: SepCmaState) -> Genomes:
        """Return the mean."""
        return self._connections.genomes(state.mean[None].astype(np.float32))

    def distribution(self, state: SepCmaState) -> tuple[Float64, Float64]:
        """Return mean and standard deviation of each weight, both [W]; 0 and 1 for an absent connection."""
        mean, deviation = np.zeros(self._W), np.ones(self._W)
        mean[self._connections.places] = state.mean
        deviation[self._connections.places] = state.progress.sigma * np.sqrt(state.covariance)
        return mean, deviation

    def _best(self, fitness: Float64) -> Int64:
        """Return [mu]: the best candidates, best first."""
        return ranking(fitness)[: len(self._rates.weights)]


def _bounded(mean: Float64, p_sigma: Float64, p_c: Float64, covariance: Float64, progress: CmaProgress) -> SepCmaState:
    """Return a state with standard deviations above the resolution of float32, and small enough for finite weights."""
    mean = np.clip(mean, -_MAX_WEIGHT, _MAX_WEIGHT)
    sigma = min(max(progress.sigma, _MIN_SIGMA), _MAX_WEIGHT)
    resolution = np.spacing(np.abs(mean).astype(np.float32))
    # The smallest and largest standard deviations in units of σ; the smallest in float32, as in published runs, unless
    # float32 cannot hold its square, such as near a weight of 0.
    smallest, exact_smallest = resolution / sigma, resolution.astype(np.float64) / sigma
    largest = _MAX_WEIGHT / sigma
    with np.errstate(over="ignore"):
        square = smallest * smallest
    in_range = (square >= np.finfo(np.float32).tiny) & (square < np.inf)
    least = np.where(in_range, square, exact_smallest * exact_smallest)
    covariance = np.clip(covariance, least, largest * largest)
    return SepCmaState(mean, p_sigma, p_c, covariance, CmaProgress(sigma, progress.generations))


def _power(x: float, exponent: int) -> float:
    """Return x^exponent by squaring. The operator ** calls libm, whose bits differ between machines."""
    power = 1.0
    while exponent:
        if exponent & 1:
            power *= x
        x *= x
        exponent >>= 1
    return power
