"""Strategies of another package, as `strategy.name` names them: added:NAME."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from evolve.genome import Genomes
from evolve.strategies import Strategy
from evolve.strategies.elitist import Ga, GaOptions


class Measuring(Ga):
    """Has a measure of its own, which it computes from the genomes, and an archive."""

    measured = ("weight_norm",)

    def measures(self, genomes, metrics):
        weights = genomes.take(np.arange(len(genomes))).weights.astype(np.float64)
        return np.abs(weights).max(axis=1, keepdims=True)

    def tell(self, state, genomes, results):
        assert self.told_measures(genomes, results).shape == (len(results.fitness), 1)
        return super().tell(state, genomes, results)

    def outcome(self, state):
        return {"archive": np.zeros(3)}

    def select(self, state, *, cell=None, **others):
        return self.champion(state) if cell else super().select(state, **others)


class Changing(Ga):
    """Asks for other genomes if a variable of the environment is set, as after a change of its code."""

    def ask(self, state, generation, candidates=None):
        asked = super().ask(state, generation, candidates)
        return Genomes(asked.weights * np.float32(os.environ.get("ADDED_SCALE", "1")), asked.mask)


@dataclass(frozen=True)
class Frozen(Strategy):
    """A frozen data class, as the network of the tutorial is."""

    options: Any
    layout: Any
    population: int
    seed: int
    portable = True
    traces = "none"

    @property
    def _ga(self):
        return Ga(self.options, self.layout, self.population, self.seed)

    def start(self):
        return self._ga.start()

    def ask(self, state, generation, candidates=None):
        return self._ga.ask(state, generation, candidates)

    def tell(self, state, genomes, results):
        return self._ga.tell(state, genomes, results)

    def champion(self, state):
        return self._ga.champion(state)

    def to_arrays(self, state):
        return self._ga.to_arrays(state)

    def from_arrays(self, arrays):
        return self._ga.from_arrays(arrays)


measuring, changing, frozen = ((GaOptions, kind) for kind in (Measuring, Changing, Frozen))


class NestedOptions(GaOptions):
    """Settings with a tuple of tuples."""

    ranges: tuple[tuple[float, float], ...] = ((1.0, 2.0), (3.0, 4.0))
    """Pairs."""
    listed: list[tuple[float, float]] = Field([(1.0, 2.0)])
    """A list of pairs."""
    optional: tuple[int, ...] | None = None
    """Numbers, or nothing."""


class InfiniteOptions(GaOptions):
    """Settings with a default that JSON cannot hold."""

    limit: float = float("inf")
    """A limit."""


class NameOptions(GaOptions):
    """Settings with the key that names the strategy."""

    name: str = "a"
    """A name."""


nested, infinite, named = ((options, Ga) for options in (NestedOptions, InfiniteOptions, NameOptions))


class Ignoring(Measuring):
    """Says that it can begin with a given genome, but does not."""

    warm_starts = True

    def champion(self, state):
        champion = super().champion(state)
        return Genomes(champion.weights + np.float32(1), np.ones_like(champion.mask))


ignoring = GaOptions, Ignoring


class CheckedOptions(GaOptions):
    """Settings with a validator of their own."""

    v: int = 1
    """A number."""

    @field_validator("v")
    @classmethod
    def _no_five(cls, value):
        if value == 5:
            raise ValueError("v must not be five")
        return value


checked = CheckedOptions, Ga
