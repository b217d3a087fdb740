"""cma-es beside the library cmaes, whose constants it has: how many generations and how much time they need.

    python benchmarks/cma_es.py
    python benchmarks/cma_es.py --functions 1 --seeds 3 --connections 50

Both search a rotated ellipsoid, Σ s_i (R x)_i² with s_i from 1 to `condition`, from the point (1, …, 1) with σ = 0.5,
until a candidate has a value below 1e-8. The time is the processor's, of a generation without its evaluation. The
library draws each candidate by a product of matrices; this is left out: of cmaes only `tell` is timed, with the
eigenvectors.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as cma-es, which has one thread

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from cmaes import CMA
from pages import markdown

from evolve import strategies
from evolve.strategies import Results

FUNCTIONS = ((10, 10, 1e6), (26, 16, 1e2), (30, 14, 1e6))
"""The ellipsoids: dimensions, candidates of a generation, condition."""
TARGET = 1e-8
MOST = 10_000  # generations
POPULATION = 64
LEARNING = ["dimensions", "condition", "candidates", "generations of cma-es", "generations of cmaes"]
TIMES = ["connections", "ms of cma-es", "ms of cmaes", "ratio"]


def ellipsoid(dimensions: int, condition: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function, which gives the values [N] of points [N, dimensions]."""
    rotation, _ = np.linalg.qr(np.random.Generator(np.random.Philox(1)).normal(size=(dimensions, dimensions)))
    scales = condition ** np.linspace(0, 1, dimensions)
    return lambda points: (scales * (points @ rotation) ** 2).sum(axis=1)


def ours(values: Callable[[np.ndarray], np.ndarray], dimensions: int, population: int, seed: int) -> int:
    """Return the generations that cma-es needs."""
    strategy = strategies.make("cma-es", x0=np.ones(dimensions), population=population, seed=seed, sigma=0.5)
    state = strategy.start()
    for generation in range(MOST):
        genomes = strategy.ask(state, generation)
        found = values(genomes.weights.astype(float))
        if found.min() < TARGET:
            return generation + 1
        state = strategy.tell(state, genomes, Results(-found))
    return MOST


def theirs(values: Callable[[np.ndarray], np.ndarray], dimensions: int, population: int, seed: int) -> int:
    """Return the generations that cmaes needs."""
    search = CMA(mean=np.ones(dimensions), sigma=0.5, population_size=population, seed=seed)
    for generation in range(MOST):
        points = np.array([search.ask() for _ in range(population)])
        found = values(points)
        if found.min() < TARGET:
            return generation + 1
        search.tell(list(zip(points, found, strict=True)))
    return MOST


def seconds(connections: int, repeats: int) -> tuple[float, float]:
    """Return the CPU seconds of a generation of cma-es and of cmaes: medians over repeats, which take turns."""
    strategy = strategies.make("cma-es", x0=np.zeros(connections), population=POPULATION, seed=1)
    state = strategy.start()
    search = CMA(mean=np.zeros(connections), sigma=1.0, population_size=POPULATION, seed=1)
    fitness = np.arange(float(POPULATION))
    clocks = []
    for repeat in range(repeats + 1):  # in the first one the covariance is 1
        begin = time.process_time()
        genomes = strategy.ask(state, repeat)
        state = strategy.tell(state, genomes, Results(fitness))
        middle = time.process_time()
        search.tell(list(zip(genomes.weights.astype(float), -fitness, strict=True)))
        clocks.append((middle - begin, time.process_time() - middle))
    one, other = np.median(clocks[1:], axis=0)
    return float(one), float(other)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30, help="the number of seeds of each function")
    parser.add_argument("--functions", type=int, default=len(FUNCTIONS), help="only the first ones")
    parser.add_argument("--connections", type=int, nargs="+", default=[50, 212, 932])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    if min(args.seeds, args.repeats, *args.connections) < 2:
        parser.error("expected at least two seeds, repeats and connections")
    rows = []
    for dimensions, population, condition in FUNCTIONS[: args.functions]:
        values = ellipsoid(dimensions, condition)
        counts = np.array([
            [search(values, dimensions, population, seed) for seed in range(1, args.seeds + 1)]
            for search in (ours, theirs)
        ])  # fmt: skip
        cells = (f"{count.mean():.0f} ± {count.std(ddof=1):.0f}" for count in counts)
        rows.append([f"{dimensions}", f"{condition:,.0f}", f"{population}", *cells])
    print(f"{markdown(LEARNING, rows)}\n")
    times = {connections: seconds(connections, args.repeats) for connections in args.connections}
    cells = ([n, 1000 * one, 1000 * other, other / one] for n, (one, other) in times.items())
    print(markdown(TIMES, [[f"{n:,}", *(f"{number:.1f}" for number in numbers)] for n, *numbers in cells]))


if __name__ == "__main__":
    main()
