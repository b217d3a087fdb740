"""Nanoseconds per network step for each back end, in batches of several sizes."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from evolve.genome import Genomes, concatenate
from evolve.networks import Network
from evolve.numerics import native
from evolve.numerics.streams import Purpose, Stream
from evolve.shapes import Float32


def _initial(network: Network, slots: int) -> tuple[Genomes, Float32]:
    """Return a genome [slots, W] and an observation [slots, O] for each slot."""
    genomes = concatenate(*(network.init(Stream(0, Purpose.INIT, 0, slot)) for slot in range(slots)))
    uniform = Stream(0, Purpose.EPISODE).uniform(slots, network.observation_size)
    return genomes, (2 * uniform - 1).astype(np.float32)


def _steppers(network: Network, slots: int) -> dict[str, Callable[[], object]]:
    genomes, observations = _initial(network, slots)
    found: dict[str, Callable[[], object]] = {}
    names: list[native.Backend] = ["numpy", "native"] if native.available() else ["numpy"]
    for name in names:
        batch = network.batch(slots, name)
        batch.load(np.arange(slots), genomes.weights, genomes.mask, np.arange(slots))
        found[name] = partial(batch.step, observations)
    return found


def row(network: Network, slots: int, rounds: int = 5, seconds: float = 0.05) -> dict[str, Any]:
    """Return the nanoseconds of one network step of each back end, the least of several rounds in turn."""
    steppers = _steppers(network, slots)
    best = dict.fromkeys(steppers, float("inf"))
    ticks = dict.fromkeys(steppers, 1)
    for _ in range(rounds + 1):
        for name, step in steppers.items():
            begin = time.perf_counter()
            for _ in range(ticks[name]):
                step()
            best[name] = min(best[name], (time.perf_counter() - begin) / ticks[name])
            ticks[name] = max(1, int(seconds / best[name]))
    return {"slots": slots} | {name: took / slots * 1e9 for name, took in best.items()}


def table(network: Network, batches: tuple[int, ...] = (1, 16, 64, 256)) -> list[dict[str, Any]]:
    """Return a row per batch size: each back end that was built."""
    return [row(network, slots) for slots in batches]
