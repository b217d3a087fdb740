"""Whole generations of the exact engine, from ask to record and the run file, and the share of the native call."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evolve.cluster import Coordinator, Transport
from evolve.rollouts.native_play import NativePlay
from evolve.shapes import Float32
from evolve.store import Header, create
from evolve.training import Experiment, iterate, make_rollout, rollouts

TOGETHER = 4
"""Generations that are measured together."""


class TimedPlay(NativePlay):
    """Notes how long the kernel played, and the weights [n, W] that it played."""

    seconds = 0.0
    fed: tuple[np.ndarray, ...] = ()

    def feed(self, feed):
        TimedPlay.fed += (feed.columns[0][feed.genomes],)
        super().feed(feed)

    def run(self, steps, more):
        begin = time.process_time()
        made = super().run(steps, more)
        TimedPlay.seconds += time.process_time() - begin
        return made


@dataclass(frozen=True)
class Measured:
    """A few generations: environment steps, CPU seconds of the native call and of everything, and the last weights."""

    generation: int
    steps: int
    kernel_seconds: float
    seconds: float
    weights: Float32

    @property
    def length(self) -> float:
        """Steps of an episode."""
        return self.steps / TOGETHER / len(self.weights)

    @property
    def share(self) -> float:
        """The rate of whole generations, as a share of the kernel's rate."""
        return self.kernel_seconds / self.seconds


def measure(experiment: Experiment, generations: list[int]) -> Iterator[Measured]:
    """Yield the measurements of TOGETHER generations, from each of the given generations on."""
    rollouts.NativePlay = TimedPlay
    with tempfile.TemporaryDirectory() as folder:
        config = experiment.config
        log = create(Path(folder) / "seed-0.h5", Header(config.to_toml(), {}, 0, config.env.id))
        evolving = iterate(experiment, Coordinator(Transport(), make_rollout), log)
        for first in generations:
            while log.num_generations < first:
                next(evolving)
            TimedPlay.seconds, steps, begin = 0.0, 0, time.process_time()
            for _ in range(TOGETHER):
                TimedPlay.fed = ()
                steps += next(evolving).steps
            seconds = time.process_time() - begin
            yield Measured(first, steps, TimedPlay.seconds, seconds, np.concatenate(TimedPlay.fed))
        evolving.close()
