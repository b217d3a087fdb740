"""The benchmark of 2020 on one machine: how long the 200 generations of the leg "walker" take, or would take."""

from dataclasses import dataclass

from evolve.analysis.contest.contest_result import ContestFile, ContestRow
from evolve.analysis.contest.contest_work import LEGS, SIZES, WALKER
from evolve.analysis.contest.repeats import score

STEPS = 228_539_753
"""Environment steps of these 200 generations in the size "large"."""
PUBLISHED = "3,491 s (24 cores), 6,666 s (64 vCPUs)"


@dataclass(frozen=True)
class Benchmark2020:
    """The seconds of all generations, and whether they were played; else they follow from `timed` generations."""

    seconds: float
    timed: int
    played: bool

    def __str__(self) -> str:
        generations = LEGS[WALKER]["generations"]
        took = f"{generations} generations took {self.seconds:,.0f} s here"
        if not self.played:
            took = (
                f"{generations} generations would take about {self.seconds:,.0f} s here (an extrapolation from "
                f"{self.timed} generations, by steps)"
            )
        return f"walker, the benchmark of 2020: {took}; published in 2020: {PUBLISHED}"


def benchmark_2020(found: ContestFile, row: ContestRow) -> Benchmark2020 | None:
    """Return how long the whole benchmark takes by the workers of a row, from its seconds per environment step.

    The first generation is not timed, so that its steps are taken to be as fast as all others. Returns None where the
    leg was not played, or with another population.
    """
    leg = row.legs.get(WALKER)
    population, generations = SIZES[found.size].walker
    if leg is None or not leg.timed_steps or population != LEGS[WALKER]["population"]:
        return None
    played = generations == LEGS[WALKER]["generations"]
    seconds = score([repeat.legs[WALKER] for repeat in row.repeats])
    steps = leg.steps if played else STEPS
    return Benchmark2020(seconds / leg.timed_steps * steps, generations - 1, played)
