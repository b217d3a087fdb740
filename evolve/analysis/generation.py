"""One generation, or one held-out evaluation, as the Python interface shows it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from evolve.analysis import statistics
from evolve.shapes import Float64
from evolve.store import Record


@dataclass(frozen=True)
class Generation:
    """A generation that is complete: its number, from 0 on, and its record in the run file."""

    number: int
    record: Record

    @property
    def best(self) -> float:
        """The fitness of its best candidate."""
        return float(self.record.champion_fitness)

    @property
    def fitness(self) -> Float64:
        """[P]: what selection saw of each candidate."""
        return self.record.fitness

    @property
    def returns(self) -> Float64:
        """[P, E]: the return of each episode; NaN for one that failed or was not played."""
        return self.record.returns

    @property
    def mean(self) -> float:
        """The mean fitness of the candidates that have one."""
        known = self.fitness[np.isfinite(self.fitness)]
        return float(known.mean()) if len(known) else float("nan")

    @property
    def digest(self) -> str:
        """64 hexadecimal characters that stand for the run up to here."""
        return self.record.digest.decode()

    def __repr__(self) -> str:
        return f"<Generation {self.number}: best fitness {self.best:.6g}, mean {self.mean:.6g}>"


@dataclass(frozen=True)
class Evaluation:
    """A champion on N held-out episodes: their returns and environment seeds, [N] each."""

    returns: Float64
    seeds: Any

    @property
    def mean(self) -> float:
        """The mean return of the episodes that did not fail."""
        return statistics.mean(self._known)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean, by Student's t; None for fewer than two returns."""
        return statistics.interval(self._known)

    @property
    def failed(self) -> int:
        """How many episodes failed."""
        return len(self.returns) - len(self._known)

    def __repr__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        between = f", 95 % interval {self.interval[0]:.6g} to {self.interval[1]:.6g}" if self.interval else ""
        return f"<Evaluation: {len(self.returns)} episodes, mean {self.mean:.6g}{between}{failed}>"

    @property
    def _known(self) -> Float64:
        return self.returns[np.isfinite(self.returns)]
