"""cma-es and sep-cma-es: covariance matrix adaptation. The door to cmaes, which comes with the extra `cma`.

Hansen, "The CMA Evolution Strategy: A Tutorial" (2016), and Ros & Hansen, "A Simple Modification in CMA-ES Achieving
Linear Time and Space Complexity" (2008), whose covariance is a diagonal. Both search the n connections of a newborn
genome, which is the first mean m, and whose mask is everybody's:

    candidate    m + σ B D z, z ~ N(0, I) from keyed streams, C = B D² Bᵀ; B is the identity for sep-cma-es
    told         the order of the candidates, NaN last; cmaes does the rest

The champion is m: an average over all that was told, so no lucky score can make it. Weights are float32: no standard
deviation falls below the distance to the next float32, else candidates would all be equal and what is told noise, which
σ follows to zero or beyond all bounds. The learning rates of the covariance add up to 1 at most; in cmaes those of the
diagonal may not, where P is much larger than n.

The state is kept as plain arrays, and put back before each tell. cmaes has no public way for that, so parts of it that
may change are used: `__getstate__` and `__setstate__`, what they hold (`_sigma`, `_p_sigma`, `_pc`, `_g`, `_C`,
`_c_1d`), `_c1`, `_cmu` and `_eigen_decomposition`.

What is the library's is not portable: eigenvectors and norms come from BLAS. On one kind of machine they repeat
themselves, as long as BLAS keeps to one thread, whatever the launcher allows.
"""

import importlib
import math
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evolve.config import Options
from evolve.errors import InputError, one_line
from evolve.genome import Genomes
from evolve.networks import Network
from evolve.numerics import normal_quantile
from evolve.rng import Purpose, Stream
from evolve.shapes import Float32, Float64, Int64, expect
from evolve.strategies.contract import Arrays, need_weights, newborns, ranking
from evolve.strategies.elite import stored

_FEWEST = 4  # candidates: with fewer, one parent only
_LARGEST = 1e30  # of a weight; cmaes refuses more than 1e32
_SMALLEST = 1e-12  # of σ, which may shrink as long as the covariance grows
_MOST_CONNECTIONS, _MOST_PRODUCTS = 2_000, 2**28
"""Of cma-es: n, and P·n², which cmaes holds twice, as float64."""


class CmaOptions(Options):
    """Settings of `[strategy]` for cma-es and sep-cma-es. sigma: the first σ."""

    sigma: float = Field(0.5, gt=0, le=1e6)


@dataclass(frozen=True)
class CmaState:
    """The state of cmaes, float64: mean, paths p_sigma and p_c [n]; covariance [n], or the upper half of it, row by
    row; progress [2]: σ and the tells so far.
    """

    mean: Float64
    p_sigma: Float64
    p_c: Float64
    covariance: Float64
    progress: Float64


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as wrong:
        cure = "Install it: pip install 'evolve[cma]' (in a clone: pip install -e '.[cma]')."
        raise InputError("strategy.name (--strategy)", f"a working {name}", one_line(wrong), cure) from None


class SepCma:
    """Separable CMA-ES for P = `population` candidates of `network`."""

    portable, one_mask = False, True
    _name, _kind, _covariance = "sep-cma-es", "SepCMA", "_C"

    def __init__(self, options: CmaOptions, network: Network, population: int, seed: int) -> None:
        self._cmaes, self._threads = _import("cmaes"), _import("threadpoolctl")
        if population < _FEWEST:
            raise InputError("population (-p/--population)", f"at least {_FEWEST} for {self._kind}", population)
        self._options, self._W, self._P, self._seed = options, network.weights, population, seed
        self._born = newborns(network, seed, 0, range(1))
        self._mask = self._born.mask[0]
        self._n = int(np.count_nonzero(self._mask))
        if self._n < 2:
            raise InputError("network", f"at least 2 connections for {self._kind}", self._n)

    @classmethod
    def refuse(cls, _options: CmaOptions, network: Network) -> None:
        """Raise InputError for a network that has nothing to search."""
        need_weights(network, cls._name)

    def start(self) -> CmaState:
        """Return the state before generation 0: the mean is a newborn genome."""
        mean = self._born.weights[0, self._mask].astype(np.float64)
        return self._state(self._made(mean, self._options.sigma))

    def ask(self, state: CmaState, generation: int) -> Genomes:
        """Return P candidates, drawn around the mean."""
        z = np.empty((self._P, self._n))
        for candidate in range(self._P):
            stream = Stream(self._seed, Purpose.WEIGHT_NOISE, generation, candidate)
            z[candidate] = normal_quantile(stream.uniform(self._n))
        return self._genomes(state.mean + state.progress[0] * self._shaped(state, z))

    def tell(self, state: CmaState, genomes: Genomes, fitness: Float64, traces: Float32) -> CmaState:
        """Let cmaes adapt mean, step size and covariance."""
        expect(genomes.weights, "genomes.weights", "P W", np.float32, P=self._P, W=self._W)
        expect(fitness, "fitness", "P", np.float64, P=self._P)
        x = genomes.weights[:, self._mask].astype(np.float64)
        with self._one_thread():
            made = self._restored(state)
            made.tell([(x[candidate], float(rank)) for rank, candidate in enumerate(ranking(fitness))])
        return self._state(made)

    def champion(self, state: CmaState) -> Genomes:
        """Return the mean."""
        return self._genomes(state.mean[None])

    def to_arrays(self, state: CmaState) -> dict[str, NDArray[Any]]:
        """Return the state as named arrays."""
        return dict(vars(state))

    def from_arrays(self, arrays: Arrays) -> CmaState:
        """Return the state of those arrays. Raises ValueError when one is missing or has another shape."""
        spelled = {"mean": "n", "p_sigma": "n", "p_c": "n", "covariance": "c", "progress": "2"}
        sizes = {"n": self._n, "c": self._entries}
        return CmaState(*(stored(arrays, name, spelled[name], np.float64, **sizes) for name in spelled))

    @property
    def _entries(self) -> int:
        """How long the covariance in a state is."""
        return self._n

    @property
    def _diagonal(self) -> Int64:
        """[n]: where its diagonal is."""
        return np.arange(self._n)

    def _shaped(self, state: CmaState, z: Float64) -> Float64:
        """Return B D z for each row of z [P, n]."""
        shaped: Float64 = np.sqrt(state.covariance) * z
        return shaped

    def _genomes(self, x: Float64) -> Genomes:
        """Return the genomes of connections [N, n]."""
        weights = np.zeros((len(x), self._W), np.float32)
        weights[:, self._mask] = np.clip(x, -_LARGEST, _LARGEST)
        return Genomes(weights, np.repeat(self._born.mask, len(x), axis=0))

    def _one_thread(self) -> AbstractContextManager[Any]:
        limited: AbstractContextManager[Any] = self._threads.threadpool_limits(1, user_api="blas")
        return limited

    def _made(self, mean: Float64, sigma: float) -> Any:
        made = getattr(self._cmaes, self._kind)(mean=mean.copy(), sigma=sigma, population_size=self._P, seed=0)
        made._cmu = min(made._cmu, 1 - made._c1)
        return made

    def _restored(self, state: CmaState) -> Any:
        sigma, told = float(state.progress[0]), int(state.progress[1])
        made = self._made(state.mean, sigma)
        parts = {"_p_sigma": state.p_sigma, "_pc": state.p_c, "_g": told, self._covariance: state.covariance}
        made.__setstate__(made.__getstate__() | parts)
        return made

    def _state(self, made: Any) -> CmaState:
        parts = made.__getstate__()
        covariance = parts[self._covariance].copy()
        progress = np.array([max(parts["_sigma"], _SMALLEST), parts["_g"]], np.float64)
        resolution = np.spacing(np.minimum(np.abs(made.mean), _LARGEST).astype(np.float32)) / progress[0]
        covariance[self._diagonal] = np.maximum(covariance[self._diagonal], resolution * resolution)
        return CmaState(made.mean, parts["_p_sigma"], parts["_pc"], covariance, progress)


class Cma(SepCma):
    """CMA-ES with a full covariance for P = `population` candidates of `network`."""

    _name, _kind, _covariance = "cma-es", "CMA", "_c_1d"

    def __init__(self, options: CmaOptions, network: Network, population: int, seed: int) -> None:
        super().__init__(options, network, population, seed)
        most = min(_MOST_CONNECTIONS, math.isqrt(_MOST_PRODUCTS // population))
        if self._n > most:
            expected = f"a network of at most {most:,} connections for cma-es with P = {population:,}"
            cure = "Use --strategy sep-cma-es, whose covariance is a diagonal."
            raise InputError("network.hidden (-d/--hidden)", expected, f"{self._n:,}", cure)

    @property
    def _entries(self) -> int:
        return self._n * (self._n + 1) // 2

    @property
    def _diagonal(self) -> Int64:
        rows = np.arange(self._n)
        return rows * self._n - rows * (rows - 1) // 2

    def _shaped(self, state: CmaState, z: Float64) -> Float64:
        with self._one_thread():
            B, D = self._restored(state)._eigen_decomposition()
        shaped = np.zeros_like(z)
        for column, scale, along in zip(np.ascontiguousarray(B.T), D, z.T, strict=True):
            shaped += (scale * along)[:, None] * column
        return shaped
