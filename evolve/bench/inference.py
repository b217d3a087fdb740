"""Nanoseconds per network step for each back end, in batches of several sizes."""

import time
from typing import Any

import numpy as np

from evolve.genome import concatenate
from evolve.networks import Network
from evolve.numerics import native
from evolve.rng import Purpose, Stream


def nanoseconds(network: Network, backend: native.Backend, slots: int, seconds: float = 0.3) -> float:
    """Return the time of one network step, the least of five measurements."""
    batch = network.batch(slots, backend)
    born = concatenate(*(network.birth(Stream(0, Purpose.BIRTH, 0, slot)) for slot in range(slots)))
    batch.load(np.arange(slots), born.weights, born.mask)
    uniform = Stream(0, Purpose.EPISODE).uniform(slots, network.observation_size)
    observations = (2 * uniform - 1).astype(np.float32)
    batch.step(observations)
    ticks, best = 1, float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(ticks):
            batch.step(observations)
        took = time.perf_counter() - begin
        best = min(best, took / ticks)
        ticks = max(1, int(seconds / 5 / best))
    return best / slots * 1e9


def table(network: Network, batches: tuple[int, ...] = (1, 16, 64, 256)) -> list[dict[str, Any]]:
    """Return a row per batch size, with the nanoseconds of each back end that was built."""
    names: list[native.Backend] = ["numpy", "native"] if native.available() else ["numpy"]
    return [{"slots": slots} | {name: nanoseconds(network, name, slots) for name in names} for slots in batches]
