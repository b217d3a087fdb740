"""Elites: genomes that have been evaluated, with what their evaluations came to, and how they are stored.

A score is the mean over all evaluations of a genome. Whoever is kept is evaluated again in the next generation, so
luck does not last; and a newcomer may be counted as if it had been evaluated `prior` times more, at the mean of the
generation it was new in: its single score is shrunk towards what is usual until it is confirmed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.genome import Genomes, concatenate
from evolve.numerics import ordered_sum
from evolve.shapes import Float32, Float64, Int64, expect
from evolve.strategies.contract import ranking

_PARTS = {"weights": ("N W", np.float32), "mask": ("N W", np.bool_), "traces": ("N T", np.float32),
          "total": ("N", np.float64), "count": ("N", np.int64)}  # fmt: skip


@dataclass(frozen=True)
class Elite:
    """N evaluated genomes: traces [N, T] float32; total [N], the sum of fitness over `count` [N] evaluations."""

    genomes: Genomes
    traces: Float32
    total: Float64
    count: Int64

    @property
    def score(self) -> Float64:
        """Mean fitness over all evaluations, [N]."""
        return self.total / self.count

    def take(self, which: NDArray[np.intp]) -> "Elite":
        """Return the chosen members, in that order."""
        return Elite(self.genomes.take(which), self.traces[which], self.total[which], self.count[which])

    def best(self, n: int) -> "Elite":
        """Return the n best by score, best first."""
        return self.take(ranking(self.score)[:n])

    def shrunk(self, prior: int, fitness: Float64) -> "Elite":
        """Return them as if evaluated `prior` times before, at the mean of the finite part of fitness [P]."""
        finite = fitness[np.isfinite(fitness)]
        mean = float(ordered_sum(finite)) / max(len(finite), 1)
        return replace(self, total=self.total + prior * mean, count=self.count + prior)

    def evaluated_again(self, generation: "Elite", known: int) -> "Elite":
        """Return them with the newest evaluation of the first `known`, who began that generation, in their means."""
        total, count, traces = self.total.copy(), self.count.copy(), self.traces.copy()
        total[:known] += generation.total[:known]
        count[:known] += 1
        traces[:known] = generation.traces[:known]
        return Elite(self.genomes, traces, total, count)


def evaluated(genomes: Genomes, fitness: Float64, traces: Float32 | None = None) -> Elite:
    """Return genomes [P] that have been evaluated once: fitness [P], traces [P, T], by default none (T = 0)."""
    P = len(genomes)
    traces = np.zeros((P, 0), np.float32) if traces is None else traces
    return Elite(genomes, traces, fitness, np.ones(P, np.int64))


def nobody(W: int, T: int = 0) -> Elite:
    """Return an elite of N = 0 members, of W weights and T trace values."""
    none = Genomes(np.zeros((0, W), np.float32), np.zeros((0, W), np.bool_))
    return Elite(none, np.zeros((0, T), np.float32), np.zeros(0), np.zeros(0, np.int64))


def join(*elites: Elite) -> Elite:
    """Return the members of all elites, end to end."""
    return Elite(
        concatenate(*(e.genomes for e in elites)),
        np.concatenate([e.traces for e in elites]),
        np.concatenate([e.total for e in elites]),
        np.concatenate([e.count for e in elites]),
    )


def to_arrays(name: str, elite: Elite) -> dict[str, NDArray[Any]]:
    """Return an elite as arrays, `name_weights` and so on; without traces where T = 0."""
    genomes = elite.genomes
    parts: list[NDArray[Any]] = [genomes.weights, genomes.mask, elite.traces, elite.total, elite.count]
    named = {f"{name}_{part}": array for part, array in zip(_PARTS, parts, strict=True)}
    return named if elite.traces.shape[1] else {key: named[key] for key in named if key != f"{name}_traces"}


def from_arrays(arrays: Mapping[str, NDArray[Any]], name: str, W: int, T: int = 0) -> Elite:
    """Return the elite of those arrays. Raises ValueError when one is missing or has another shape."""
    sizes = {"W": W, "T": T}
    parts: dict[str, NDArray[Any]] = {}
    for part, (symbols, dtype) in _PARTS.items():
        if part == "traces" and not T:
            parts[part] = np.zeros((sizes["N"], 0), np.float32)
            continue
        parts[part] = array = stored(arrays, f"{name}_{part}", symbols, dtype, **sizes)
        sizes.setdefault("N", len(array))
    return Elite(Genomes(parts["weights"], parts["mask"]), parts["traces"], parts["total"], parts["count"])


def stored(arrays: Mapping[str, NDArray[Any]], name: str, symbols: str, dtype: Any, **sizes: int) -> NDArray[Any]:
    """Return an array of a checkpoint. Raises ValueError when it is missing, or has not that shape and type."""
    if name not in arrays:
        raise ValueError(f"checkpoint: {name} is missing")
    array = np.asarray(arrays[name])
    expect(array, name, symbols, dtype, **sizes)
    return array
