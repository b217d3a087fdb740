"""The cells of `benchmarks/scale.py`, weights × candidates × ranks: costs, and the choice of cells to measure."""

import math
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evolve.config import Config, parse
from evolve.training import Experiment, prepare

WEIGHTS = tuple(10**n for n in range(2, 8))
CANDIDATES = (64, 1024, 16384)
LEAST_WEIGHTS, LEAST_CANDIDATES = 8, 2

_START = 1.6  # seconds until a job has begun, and ended
_REFERENCE = 10e-9  # seconds that one weight of a candidate takes to be made on the machine of the next three
_EPISODE, _WEIGHT, _CANDIDATE_WEIGHT = 2.5e-4, 2e-7, 5e-8  # seconds of a core per generation, for each
_GENERATIONS = 2  # of a cell that takes long
_PROCESS, _CANDIDATE = 9e7, 700  # bytes, for each
_RANK_0, _WORKER = 150, 190  # bytes per weight
_DISK = 100  # bytes per weight: the run file, and the one that replaces it
_SHARE = 0.8  # of what is free


@dataclass(frozen=True)
class Cell:
    """One measurement: about `weights` weights, candidates, and ranks."""

    weights: int
    candidates: int
    ranks: int

    @property
    def hidden(self) -> int:
        """The width h of both hidden layers: with 3 observations and 1 action there are h² + 6h + 1 weights."""
        return round(math.sqrt(8 + self.weights) - 3)

    @property
    def workers(self) -> int:
        """The number of ranks that play; a single rank does everything."""
        return max(1, self.ranks - 1)

    def experiment(self, generations: int) -> Experiment:
        """Return the experiment: an mlp by openai-es, on one step of Pendulum, so that genomes are most of the work.

        Raises InputError if it does not fit into memory.
        """
        table: dict[str, Any] = {
            "population": self.candidates,
            "episodes": 1,
            "generations": generations,
            "held_out_episodes": 0,
            "env": {"id": "Pendulum-v1", "max_episode_steps": 1},
            "network": {"name": "mlp", "hidden": [self.hidden] * 2},
            "strategy": {"name": "openai-es", "sigma": 0.1, "learning_rate": 0.05},
        }
        return prepare(parse(Config, table))

    def seconds(self, slowness: float, cores: int) -> float:
        """Return the estimated seconds."""
        P, W = self.candidates, self.weights
        work = slowness * P * (_EPISODE + W * _CANDIDATE_WEIGHT) / min(self.workers, cores)
        return _START + _GENERATIONS * (work + slowness * W * _WEIGHT * self.ranks)

    def memory(self) -> float:
        """Return the estimated bytes of all its ranks."""
        W = self.weights
        alone = _PROCESS + _RANK_0 * W + _CANDIDATE * self.candidates
        return alone + (self.ranks > 1) * self.workers * (_PROCESS + _WORKER * W)


def default_ranks(cores: int) -> list[int]:
    """Return one process, then 1, 2, 4, … workers beside rank 0, up to one for each core."""
    workers = {2**n for n in range(cores.bit_length()) if 2**n <= cores} | {cores}
    return [1, *(n + 1 for n in sorted(workers))]


def slowness() -> float:
    """Return how slowly this machine makes genomes, by a trial; 1 for the machine of the cost constants."""
    strategy = Cell(100_000, 16, 1).experiment(1).strategy(seed=0)
    state = strategy.start()
    best = np.inf
    for number in range(4):
        begin = time.perf_counter()
        genomes = strategy.ask(state, number)
        best = min(best, time.perf_counter() - begin)
    return float(best / genomes.weights.size / _REFERENCE)


def plan(cells: Sequence[Cell], budget: float, slow: float, cores: int) -> tuple[dict[Cell, str], float]:
    """Return for each cell the reason to leave it out, "" if it is measured, and the estimated seconds of the others.

    The cheapest cells come first into the budget.
    """
    memory, disk = _SHARE * free_memory(), _SHARE * shutil.disk_usage(tempfile.gettempdir()).free
    why: dict[Cell, str] = {}
    total = 0.0
    for cell in sorted(cells, key=lambda cell: cell.seconds(slow, cores)):
        seconds = cell.seconds(slow, cores)
        if cell.memory() > memory:
            why[cell] = (
                f"too little memory: about {cell.memory() / 1e9:,.1f} GB, of {memory / 1e9:,.1f} GB that are free"
            )
        elif _DISK * cell.weights > disk:
            why[cell] = f"too little disk: about {_DISK * cell.weights / 1e9:,.1f} GB for the run file"
        elif total + seconds > budget:
            why[cell] = "it would take too long"
        else:
            why[cell] = ""
            total += seconds
    return why, total


def free_memory() -> float:
    """Return the free bytes of memory; infinity if the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
