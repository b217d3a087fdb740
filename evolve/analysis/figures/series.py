"""What a run has in every generation, as the curves show it, and how the runs of a group are summed up."""

from collections.abc import Callable, Sequence

import numpy as np

from evolve.analysis.comparison import RunGroup
from evolve.shapes import Float64
from evolve.store import StoredRun

Series = Callable[[StoredRun], Sequence[float]]
"""Returns a value for each generation of a run."""
Quartiles = tuple[Float64, Float64, Float64]
"""Lower quartile, median and upper quartile, [G] each."""

_LARGEST = 1e300  # axes fail a little above, as do differences of fitnesses


def drawable(values: Float64) -> Float64:
    """Return values that an axis can show: infinite and huge ones cut to ±1e300."""
    cut: Float64 = np.clip(values, -_LARGEST, _LARGEST)
    return cut


def quartiles(group: RunGroup, series: Series) -> Quartiles:
    """Return the quartiles of a series over the runs of a group."""
    rows = np.array([series(run)[: group.num_generations] for run in group.runs])
    low, middle, high = np.full((3, group.num_generations), np.nan)
    known = ~np.isnan(rows).all(axis=0)
    low[known], middle[known], high[known] = np.nanpercentile(rows[:, known], (25, 50, 75), axis=0)
    return low, middle, high


def axis_values(group: RunGroup, axis: str) -> Float64:
    """Return [G]: generations, or environment steps, seconds or minutes up to each (the median over runs)."""
    if axis == "generation":
        return np.arange(group.num_generations, dtype=np.float64)
    divisor = {"steps": 1, "seconds": 1, "time": 60}[axis]
    name = "steps" if axis == "steps" else "seconds"
    rows = [[getattr(record, name) / divisor for record in run.records] for run in group.runs]
    middle: Float64 = np.median([np.cumsum(row[: group.num_generations]) for row in rows], axis=0)
    return middle


def best_fitness(run: StoredRun) -> list[float]:
    """Return the best fitness of each generation."""
    best: list[float] = drawable(np.array([record.champion_fitness for record in run.records])).tolist()
    return best


def fitness_percentile(share: float) -> Series:
    """Return the series of a percentile of fitness over the candidates."""
    return lambda run: [_of_finite(np.percentile, record.fitness, share) for record in run.records]


def mean_fitness(run: StoredRun) -> list[float]:
    """Return the mean fitness over the candidates of each generation that have one."""
    return [_of_finite(np.mean, record.fitness) for record in run.records]


def _of_finite(value: Callable[..., object], fitness: Float64, *arguments: float) -> float:
    finite = drawable(fitness[np.isfinite(fitness)])
    return float(value(finite, *arguments)) if len(finite) else np.nan  # type: ignore[arg-type]


def median_connections(run: StoredRun) -> list[float]:
    """Return the connections left to the median candidate of each generation."""
    return [float(np.median(record.connections)) for record in run.records]


def best_connections(run: StoredRun) -> list[float]:
    """Return the connections left to the best candidate of each generation."""
    return [float(np.count_nonzero(record.champion_mask)) for record in run.records]


def throughput(run: StoredRun) -> list[float]:
    """Return thousands of environment steps per second of each generation."""
    return [record.steps / record.seconds / 1000 for record in run.records]


def busy_seconds(run: StoredRun) -> Float64:
    """Return [R]: how long each rank evaluated, over all complete generations."""
    busy = np.zeros(max(len(record.busy_seconds) for record in run.records))
    for record in run.records:
        busy[: len(record.busy_seconds)] += np.nan_to_num(record.busy_seconds)
    return busy


def idle_shares(run: StoredRun) -> Float64:
    """Return [G, workers] in per cent: how long each worker had nothing to do; NaN where it was not there."""
    ranks = max(len(record.busy_seconds) for record in run.records)
    busy = np.full((run.num_generations, ranks), np.nan)
    for row, record in zip(busy, run.records, strict=True):
        row[: len(record.busy_seconds)] = record.busy_seconds / record.seconds
    idle: Float64 = 100 * (1 - np.minimum(busy, 1))
    return idle[:, 1:] if ranks > 1 else idle


def mean_idle(run: StoredRun) -> list[float]:
    """Return the idle share of each generation, in per cent, over the workers that were there."""
    idle = idle_shares(run)
    there = ~np.isnan(idle)
    means: list[float] = (np.where(there, idle, 0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)).tolist()
    return means
