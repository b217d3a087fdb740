"""Genomes that have been evaluated: their scores, and how they are stored.

The score of a genome is its mean fitness over all generations in which it was evaluated. A genome that is kept is
evaluated again in the next generation, so a lucky score does not last. In addition a new genome may be counted as if it
had been evaluated `prior` times more, each time with the mean fitness of its first generation: a single high fitness is
shrunk towards that mean until later evaluations confirm it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.genome import Genomes, concatenate
from evolve.numerics import ordered_sum
from evolve.shapes import Float32, Float64, Int64, check_shape
from evolve.strategies.strategy import ranking

_PARTS = {"weights": ("N W", np.float32), "mask": ("N W", np.bool_), "traces": ("N T", np.float32),
          "total": ("N", np.float64), "count": ("N", np.int64)}  # fmt: skip


@dataclass(frozen=True)
class ScoredGenomes:
    """N evaluated genomes.

    traces: [N, T] float32, Hebbian trace of each connection in the newest evaluation; T = 0 where these are not used.
    total: [N] float64, the sum of the fitness over all evaluations.
    count: [N] int64, how many evaluations these were.
    """

    genomes: Genomes
    traces: Float32
    total: Float64
    count: Int64

    def __len__(self) -> int:
        return len(self.count)

    @property
    def score(self) -> Float64:
        """Mean fitness over all evaluations, [N]."""
        return self.total / self.count

    def take(self, which: NDArray[np.intp]) -> "ScoredGenomes":
        """Return the chosen members, in that order."""
        return ScoredGenomes(self.genomes.take(which), self.traces[which], self.total[which], self.count[which])

    def best(self, n: int) -> "ScoredGenomes":
        """Return the n best by score, best first."""
        return self.take(ranking(self.score)[:n])

    def with_prior(self, prior: int, fitness: Float64) -> "ScoredGenomes":
        """Return them as if evaluated `prior` times more, each with the mean of a generation's finite fitness [P]."""
        finite = fitness[np.isfinite(fitness)]
        mean = float(ordered_sum(finite)) / max(len(finite), 1)
        return replace(self, total=self.total + prior * mean, count=self.count + prior)

    def with_evaluation(self, fitness: Float64, traces: Float32 | None = None) -> "ScoredGenomes":
        """Return them with one more evaluation of the first n members: its fitness [n], and traces [n, T] if any."""
        known = len(fitness)
        total = self.total.copy()
        total[:known] += fitness
        count = self.count.copy()
        count[:known] += 1
        newest = self.traces.copy()
        if traces is not None:
            newest[:known] = traces
        return ScoredGenomes(self.genomes, newest, total, count)


def evaluated(genomes: Genomes, fitness: Float64, traces: Float32 | None = None) -> ScoredGenomes:
    """Return genomes that have been evaluated once.

    Args:
        genomes: P of them.
        fitness: [P], what the evaluation gave.
        traces: [P, T] of the same evaluation; by default none (T = 0).
    """
    P = len(genomes)
    if traces is None:
        traces = np.zeros((P, 0), np.float32)
    return ScoredGenomes(genomes, traces, fitness, np.ones(P, np.int64))


def no_scored_genomes(W: int, T: int = 0) -> ScoredGenomes:
    """Return N = 0 genomes, of W weights and T trace values."""
    none = Genomes(np.zeros((0, W), np.float32), np.zeros((0, W), np.bool_))
    return ScoredGenomes(none, np.zeros((0, T), np.float32), np.zeros(0), np.zeros(0, np.int64))


def join(*parts: ScoredGenomes) -> ScoredGenomes:
    """Return the genomes of all parts, end to end."""
    return ScoredGenomes(
        concatenate(*(part.genomes for part in parts)),
        np.concatenate([part.traces for part in parts]),
        np.concatenate([part.total for part in parts]),
        np.concatenate([part.count for part in parts]),
    )


def survivors_and_children(
    candidates: Int64, known: int, survivors: Callable[[Int64], Genomes], children: Callable[[Int64], Genomes]
) -> Genomes:
    """Return candidates [n]: the first `known` of a generation are survivors, the others children."""
    old = candidates < known
    if old.all():
        return survivors(candidates)
    made = children(candidates[~old])
    if not old.any():
        return made
    both = concatenate(survivors(candidates[old]), made)
    places = np.argsort(np.argsort(~old, kind="stable"), kind="stable")
    return both if (places[:-1] < places[1:]).all() else both.take(places)


def to_arrays(name: str, scored: ScoredGenomes) -> dict[str, NDArray[Any]]:
    """Return scored genomes as arrays for a checkpoint, `<name>_weights` and so on; without traces where T = 0."""
    genomes = scored.genomes
    parts: list[NDArray[Any]] = [genomes.weights, genomes.mask, scored.traces, scored.total, scored.count]
    named = {f"{name}_{part}": array for part, array in zip(_PARTS, parts, strict=True)}
    if not scored.traces.shape[1]:
        del named[f"{name}_traces"]
    return named


def from_arrays(arrays: Mapping[str, NDArray[Any]], name: str, W: int, T: int = 0) -> ScoredGenomes:
    """Return the genomes that `to_arrays` stored.

    Args:
        arrays: A checkpoint.
        name: The prefix of the names of its arrays.
        W: Weights of a genome.
        T: Trace values of a member; 0 where none were stored.

    Raises:
        ValueError: An array is missing or has another shape.
    """
    sizes = {"W": W, "T": T, "N": len(stored_array(arrays, f"{name}_count", "N", np.int64))}
    parts: dict[str, NDArray[Any]] = {"traces": np.zeros((sizes["N"], 0), np.float32)}
    for part, (symbols, dtype) in _PARTS.items():
        if part != "traces" or T:
            parts[part] = stored_array(arrays, f"{name}_{part}", symbols, dtype, **sizes)
    return ScoredGenomes(Genomes(parts["weights"], parts["mask"]), parts["traces"], parts["total"], parts["count"])


def stored_array(arrays: Mapping[str, NDArray[Any]], name: str, symbols: str, dtype: Any, **sizes: int) -> NDArray[Any]:
    """Return an array of a checkpoint.

    Args:
        arrays: The checkpoint.
        name: The name of the array.
        symbols: Its shape, as `check_shape` reads it: "P W".
        dtype: Its type.
        **sizes: The sizes known already.

    Raises:
        ValueError: The array is missing, or has another shape or type.
    """
    if name not in arrays:
        raise ValueError(f"checkpoint: {name} is missing")
    array = np.asarray(arrays[name])
    check_shape(array, name, symbols, dtype, **sizes)
    return array
