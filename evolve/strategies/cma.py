"""cma-es: covariance matrix adaptation. Sole importer of cmaes, which comes with the extra `cma`.

Hansen, "The CMA Evolution Strategy: A Tutorial" (2016). It searches the n connections of an initial genome, which is
the first mean m and whose mask all candidates share:

    candidate    m + σ B D z, z ~ N(0, I) from keyed streams, C = B D² Bᵀ
    update       cmaes gets the candidates in order of fitness, NaN last, and updates m, σ and C

The champion is m: an average over many candidates of all generations, so a lucky fitness cannot make it. Weights are
float32, so no standard deviation may fall below the distance to the next float32: candidates would be equal, fitness
would be noise, and σ would follow it to zero or beyond all bounds. The learning rates of the covariance are limited to
1 in sum.

The state is kept as plain arrays, from which an optimizer of cmaes is restored for each tell. cmaes has no public way
for that, so parts of it are used that may change: `__getstate__` and `__setstate__`, what they hold (`_sigma`,
`_p_sigma`, `_pc`, `_g`, `_c_1d`), `_c1`, `_cmu` and `_eigen_decomposition`.

The library's arithmetic is not portable: eigenvectors and norms come from BLAS. On one kind of machine they repeat
themselves as long as BLAS keeps to one thread, whatever the launcher allows. `sep-cma-es` is portable.
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
from evolve.numerics.streams import Purpose, normal_rows
from evolve.shapes import Float64, Int64
from evolve.strategies.evolution_strategy import CmaProgress, EvolutionStrategy, SearchedConnections, stored
from evolve.strategies.strategy import Results, check_population, ranking, requested_candidates, require_evolved_weights
from evolve.strategies.wrapper import RestartOptions

_LARGEST = 1e30  # of a weight; cmaes refuses more than 1e32
_SMALLEST = 1e-12  # of σ, which may shrink as long as the covariance grows
_MOST_CONNECTIONS = 2_000
"""The largest n."""
_MOST_PRODUCTS = 2**28
"""The largest P·n²; cmaes holds as many float64 twice."""


class CmaOptions(RestartOptions):
    """Settings of `[strategy]` for cma-es."""

    sigma: float = Field(0.5, gt=0, le=1e6)
    """The initial σ, the standard deviation of candidates around the mean."""


@dataclass(frozen=True)
class CmaState:
    """The state of cmaes, float64.

    mean, p_sigma, p_c: [n], the mean and the evolution paths.
    covariance: [c], c = n(n + 1)/2: the upper half of the covariance, row by row.
    progress: σ and the number of completed generations.
    """

    mean: Float64 = stored("n")
    p_sigma: Float64 = stored("n")
    p_c: Float64 = stored("n")
    covariance: Float64 = stored("c")
    progress: CmaProgress = stored(CmaProgress)


def _import(name: str) -> Any:
    return import_extra(name, "cma", "strategy.name")


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
        self._cmaes = _import("cmaes")
        self._threads = _controller(_import("threadpoolctl"))
        super().__init__(layout, population, seed)
        self._connections = SearchedConnections.of(self._initial, population, "cma-es")
        self._n = len(self._connections)
        self._sizes |= {"n": self._n, "c": self._n * (self._n + 1) // 2}
        most = min(_MOST_CONNECTIONS, math.isqrt(_MOST_PRODUCTS // population))
        if self._n > most:
            expected = f"genomes of at most {most:,} connections with cma-es and a population of {population:,}"
            cure = "Use ", Setting("strategy.name", "sep-cma-es"), ", whose covariance is a diagonal."
            raise InputError("strategy.name", expected, pluralize(self._n, "connection"), *cure)
        self._options = options

    @staticmethod
    def validate(options: CmaOptions, layout: GenomeLayout) -> None:
        """Raise InputError for a layout that has no weights to search, and settings without effect."""
        require_evolved_weights(layout, "cma-es")
        options.check_combinations()

    def _initial_state(self, initial: Genomes) -> CmaState:
        return self._state(self._optimizer(self._connections.weights(initial), self._options.sigma))

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
        """Return B D z for each row of z [P, n]."""
        with self._one_thread():
            B, D = self._restored(state)._eigen_decomposition()
        # No matrix product: in BLAS the bits of a candidate could depend on the candidates that are asked for with it.
        shaped = np.zeros_like(z)
        for column, scale, along in zip(np.ascontiguousarray(B.T), D, z.T, strict=True):
            shaped += (scale * along)[:, None] * column
        return shaped

    def _genomes(self, x: Float64) -> Genomes:
        """Return the genomes of connections [N, n]."""
        return self._connections.genomes(np.clip(x, -_LARGEST, _LARGEST).astype(np.float32))

    def _one_thread(self) -> AbstractContextManager[Any]:
        limited: AbstractContextManager[Any] = self._threads.limit(limits=1, user_api="blas")
        return limited

    def _optimizer(self, mean: Float64, sigma: float) -> Any:
        """Return a new optimizer of cmaes."""
        optimizer = self._cmaes.CMA(mean=mean.copy(), sigma=sigma, population_size=self._P, seed=0)
        optimizer._cmu = min(optimizer._cmu, 1 - optimizer._c1)
        return optimizer

    def _restored(self, state: CmaState) -> Any:
        """Return an optimizer that continues from a state."""
        optimizer = self._optimizer(state.mean, state.progress.sigma)
        generations = state.progress.generations
        parts = {"_p_sigma": state.p_sigma, "_pc": state.p_c, "_g": generations, "_c_1d": state.covariance}
        optimizer.__setstate__(optimizer.__getstate__() | parts)
        return optimizer

    def _state(self, optimizer: Any) -> CmaState:
        """Return the state of an optimizer, its standard deviations kept above the resolution of float32."""
        parts = optimizer.__getstate__()
        covariance = parts["_c_1d"].copy()
        progress = CmaProgress(max(float(parts["_sigma"]), _SMALLEST), int(parts["_g"]))
        # Below the resolution of float32 candidates would be equal, see above.
        size = np.minimum(np.abs(optimizer.mean), _LARGEST).astype(np.float32)
        resolution = np.spacing(size).astype(np.float64) / progress.sigma
        covariance[self._diagonal] = np.maximum(covariance[self._diagonal], resolution * resolution)
        return CmaState(optimizer.mean, parts["_p_sigma"], parts["_pc"], covariance, progress)
