"""From run files to curves: runs are gathered into experiments, whose seeds are summed up by median and quartiles."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from evolve import networks
from evolve.config import Config, differences
from evolve.errors import InputError, plain
from evolve.shapes import Float64
from evolve.store import Run

Summary = tuple[Float64, Float64, Float64]
"""Lower quartile, median and upper quartile, [G] each."""

_LONGEST = 240  # characters of a label
_NAMES = ("env.id", "network.name", "strategy.name")  # which need not say of what they are


@dataclass(frozen=True)
class Experiment:
    """The runs of one configuration, which differ in their seeds only; `label` says what sets it apart from others."""

    label: str
    config: Config
    runs: tuple[Run, ...]

    @cached_property
    def generations(self) -> int:
        """G: as many as every run has told."""
        return min(run.told for run in self.runs)

    def x(self, axis: str) -> Float64:
        """Return [G]: generations, environment steps so far, or minutes so far (the median over runs)."""
        if axis == "generation":
            return np.arange(self.generations, dtype=np.float64)
        rows = [[r.steps if axis == "steps" else r.seconds / 60 for r in run.records] for run in self.runs]
        middle: Float64 = np.median([np.cumsum(row[: self.generations]) for row in rows], axis=0)
        return middle

    def over_runs(self, value: Callable[[Run], Sequence[float]]) -> Summary:
        """Return the quartiles over runs of a value per generation."""
        low, middle, high = np.nanpercentile(
            [value(run)[: self.generations] for run in self.runs], (25, 50, 75), axis=0
        )
        return low, middle, high


def costly(shown: Sequence[Experiment]) -> bool:
    """Return whether connections cost any experiment some of its fitness, which is no mean return then."""
    return any(experiment.config.connection_cost > 0 for experiment in shown)


def what_masks_count(config: Config) -> str:
    """Return what the mask of a genome counts: its "connections", or the "coefficients" of its learning rules."""
    try:
        network = networks.make(networks.options(config.network), 1, 1)  # of any size
    except InputError:  # not known here
        return "connections"
    return "coefficients" if network.blocks[0].span else "connections"


def champions(run: Run) -> list[float]:
    """Return the best fitness of each generation."""
    return [record.champion_fitness for record in run.records]


def percentile(share: float) -> Callable[[Run], list[float]]:
    """Return what gives the percentile of fitness over the candidates of each generation."""
    return lambda run: [_finite(np.percentile, record.fitness, share) for record in run.records]


def mean_fitness(run: Run) -> list[float]:
    """Return the mean fitness over the candidates of each generation that have one."""
    return [_finite(np.mean, record.fitness) for record in run.records]


def _finite(value: Callable[..., object], fitness: Float64, *arguments: float) -> float:
    known = fitness[np.isfinite(fitness)]
    return float(value(known, *arguments)) if len(known) else np.nan  # type: ignore[arg-type]


def median_connections(run: Run) -> list[float]:
    """Return the connections left to the median candidate of each generation."""
    return [float(np.median(record.connections)) for record in run.records]


def champion_connections(run: Run) -> list[float]:
    """Return the connections left to the champion of each generation."""
    return [float(np.count_nonzero(record.champion_mask)) for record in run.records]


def throughput(run: Run) -> list[float]:
    """Return thousands of environment steps per second of each generation."""
    return [record.steps / record.seconds / 1000 for record in run.records]


def busy_seconds(run: Run) -> Float64:
    """Return [R]: how long each rank evaluated, over all generations told."""
    busy = np.zeros(max(len(record.busy_seconds) for record in run.records))
    for record in run.records:
        busy[: len(record.busy_seconds)] += np.nan_to_num(record.busy_seconds)
    return busy


def idle_shares(run: Run) -> Float64:
    """Return [G, workers] in per cent: how long each worker had nothing to do; NaN where it was not there."""
    ranks = max(len(record.busy_seconds) for record in run.records)
    busy = np.full((run.told, ranks), np.nan)
    for row, record in zip(busy, run.records, strict=True):
        row[: len(record.busy_seconds)] = record.busy_seconds / record.seconds
    idle: Float64 = 100 * (1 - np.minimum(busy, 1))
    return idle[:, 1:] if ranks > 1 else idle


def mean_idle(run: Run) -> list[float]:
    """Return the idle share of each generation, in per cent, over the workers that were there."""
    idle = idle_shares(run)
    there = ~np.isnan(idle)
    means: list[float] = (np.where(there, idle, 0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)).tolist()
    return means


def experiments(runs: Sequence[tuple[Run, Config]]) -> list[Experiment]:
    """Gather runs of one configuration, judged in one way; each is called by the settings that set it apart."""
    groups: list[tuple[Config, list[Run]]] = []
    for run, config in runs:
        for known, members in groups:
            if not differences(known, config) and known.judges_like(config):
                members.append(run)
                break
        else:
            groups.append((config, [run]))
    configs = [config for config, _ in groups]
    return [Experiment(_label(config, configs), config, tuple(members)) for config, members in groups]


def _label(config: Config, configs: Sequence[Config]) -> str:
    """Return the names in which an experiment differs from any other, and the settings from those of the same names."""
    names = [_value(config, key) for key in _NAMES]
    alike = [other for other in configs if [_value(other, key) for key in _NAMES] == names]
    words = [str(name) for key, name in zip(_NAMES, names, strict=True) if len({_value(c, key) for c in configs}) > 1]
    apart = {key for other in alike for key, _, _ in differences(alike[0], other)}
    apart |= {"evaluation_max_episode_steps"} if not all(alike[0].judges_like(other) for other in alike) else set()
    settings = {key.rpartition(".")[2]: _value(config, key) for key in sorted(apart)}
    words += [f"{key} {value}" for key, value in settings.items() if value is not None]
    return plain(", ".join(words) or f"{config.env.id}, {config.network['name']}", _LONGEST)


def _value(config: Config, key: str) -> Any:
    value: Any = config.model_dump(mode="json")
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
