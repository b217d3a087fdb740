"""The rigid-body tasks beside Gymnasium and EnvPool, and the walker's whole generations."""

import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from evolve.config import Config, parse
from evolve.genome import Genomes
from evolve.strategies import Strategy
from evolve.training import Experiment, prepare
from exact_parts.bare_speed import play_envpool, play_exact, play_gymnasium, record_pool
from exact_parts.generations import TOGETHER, Measured, measure
from exact_parts.players import BOX2D_TASKS, champion_of, play

ROWS = (("walker", "champion", 1), ("walker", "random", 1), ("lander", "champion", 4), ("lander", "random", 4))
"""Tasks, players, and the factor of their numbers of episodes."""
ROUNDS = 3  # of all engines in turns; medians count
_AGAIN = 4  # times that the exact engine plays the recorded steps in a round
_POOL = 16  # environments of EnvPool, which is slower with one and with 64
_TICKS = 32  # of EnvPool, at least, for each recorded episode
_SIGMA = 0.02  # so small that candidates around a champion walk, too


@dataclass(frozen=True)
class Row:
    """A task and a player: the mean steps of an episode, and µs of CPU time per step of each engine."""

    task: str
    player: str
    length: float
    gymnasium: float
    envpool: float | None
    exact: float


def rows(episodes: int) -> Iterator[Row]:
    """Yield the rows. episodes: the number of recorded episodes of a row, before its factor."""
    for name, player, times in ROWS:
        task = BOX2D_TASKS[name]
        recorded = list(play(task, player, range(times * episodes)))
        steps = sum(len(episode.outputs) for episode in recorded)
        ticks = max(_TICKS * episodes, steps // _POOL)
        pool = record_pool(task, player, list(range(_POOL)), ticks) if find_spec("envpool") else None
        found: dict[str, list[float]] = {"gymnasium": [], "envpool": [], "exact": []}
        for _ in range(ROUNDS):
            found["gymnasium"].append(_microseconds(play_gymnasium(task, recorded)))
            if pool is not None:
                found["envpool"].append(_microseconds(play_envpool(task, pool)))
            found["exact"].append(_microseconds(play_exact(task, recorded, _AGAIN * steps)))
        medians = {engine: statistics.median(each) if each else None for engine, each in found.items()}
        yield Row(name, player, steps / len(recorded), **medians)


def _microseconds(timed: tuple[int, float]) -> float:
    steps, seconds = timed
    return seconds / steps * 1e6


class AroundChampion(Experiment):
    """An experiment whose search begins at the zoo's walking champion."""

    def strategy(self, seed: int) -> Strategy[Any]:
        """Return the strategy of a run."""
        made = super().strategy(seed)
        weights = champion_of("walker-es")
        made._initial = Genomes(weights[None], np.ones((1, len(weights)), np.bool_))
        return made


def generations(population: int, episodes: int) -> Iterator[tuple[str, Measured]]:
    """Yield a title and TOGETHER generations: candidates around a walking champion, and random networks."""
    common = {
        "population": population,
        "episodes": episodes,
        "generations": TOGETHER + 2,
        "env": {"id": "BipedalWalker-v3", "engine": "exact"},
        "compute": {"threads": 1},
    }
    around = common | {
        "network": {"name": "mlp", "hidden": [32]},
        "strategy": {"name": "openai-es", "sigma": _SIGMA, "learning_rate": 0.001},
    }
    anew = common | {"network": {"name": "hebbian-dag", "hidden": [8, 8]}, "strategy": {"name": "random"}}
    for title, table, kind in (
        ("mlp 24-32-4, around a champion", around, AroundChampion),
        ("hebbian-dag 24-8-8-4, random", anew, Experiment),
    ):
        experiment = kind(**vars(prepare(parse(Config, table))))
        for measured in measure(experiment, [1]):
            yield title, measured


def pin() -> None:
    """Keep this process on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def as_json(engines: Sequence[Row], whole: Sequence[tuple[str, Measured]]) -> dict[str, Any]:
    """Return all figures."""
    return {
        "steps": [asdict(row) for row in engines],
        "generations": [
            {
                "candidates": title,
                "length": found.length,
                "kernel": found.kernel_seconds / found.steps * 1e6,
                "generation": found.seconds / found.steps * 1e6,
                "share": found.share,
            }
            for title, found in whole
        ],
    }


def show(engines: Sequence[Row], whole: Sequence[tuple[str, Measured]]) -> None:
    """Print both tables."""
    first = Table(title="Bare environments, one core: µs per step, resets included", box=box.SIMPLE)
    first.add_column("player")
    for name in ("steps", "exact", "Gymnasium", "ratio", "EnvPool", "ratio"):
        first.add_column(name, justify="right")
    for row in engines:
        pool = ("–", "–") if row.envpool is None else (f"{row.envpool:.1f}", f"{row.envpool / row.exact:.1f}")
        gymnasium = f"{row.gymnasium:.1f}", f"{row.gymnasium / row.exact:.1f}"
        first.add_row(f"{row.task}, {row.player}", f"{row.length:.0f}", f"{row.exact:.2f}", *gymnasium, *pool)
    second = Table(title="Walkers: kernel with networks, and whole generations, µs per step", box=box.SIMPLE)
    second.add_column("candidates")
    for name in ("steps", "kernel", "generation", "share"):
        second.add_column(name, justify="right")
    for title, found in whole:
        times = (seconds / found.steps * 1e6 for seconds in (found.kernel_seconds, found.seconds))
        second.add_row(title, f"{found.length:.0f}", *(f"{one:.2f}" for one in times), f"{found.share:.3f}")
    console = Console()
    console.print(first)
    console.print(second)
