"""Recording what the networks of a generation do, so that bare environments can play the same episodes."""

import numpy as np

from evolve import environments, strategies
from evolve.environments import Engine, Recording
from evolve.evolution import Experiment
from evolve.genome import Genomes
from evolve.numerics import backend
from evolve.rng import Purpose, environment_seed
from evolve.rollout import Rollout, Unit
from evolve.shapes import Bool, Float32, Float64


def newborn(experiment: Experiment) -> Genomes:
    """Return generation 0 of seed 0."""
    config = experiment.config
    strategy = strategies.make(config.strategy, experiment.network, config.population, seed=0)
    return strategy.ask(strategy.start(), 0)


class _Recorder:
    """An engine that writes down the network outputs each of its episodes is stepped with."""

    def __init__(self, engine: Engine, slots: int) -> None:
        self._engine = engine
        self._open: list[tuple[int, list[Float32]]] = [(0, [])] * slots
        self.recordings: list[Recording] = []
        self.id, self.refill = engine.id, engine.refill
        self.observation_size, self.action_size = engine.observation_size, engine.action_size

    def reset(self, first: int, seeds: list[int], observations: Float32) -> None:
        self._open[first : first + len(seeds)] = [(seed, []) for seed in seeds]
        self._engine.reset(first, seeds, observations)

    def step(self, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        for (_, rows), row in zip(self._open, outputs, strict=False):
            rows.append(row)
        rewards, ended = self._engine.step(outputs, observations)
        for slot in np.flatnonzero(ended).tolist():
            seed, rows = self._open[slot]
            self.recordings.append(Recording(seed, np.stack(rows)))
        return rewards, ended

    def move(self, source: int, target: int) -> None:
        self._open[target] = self._open[source]
        self._engine.move(source, target)

    def close(self) -> None:
        self._engine.close()


def record(experiment: Experiment, candidates: range) -> list[Recording]:
    """Play all episodes of some newborn candidates; return their seeds and network outputs."""
    config, genomes = experiment.config, newborn(experiment)
    slots = environments.slots(config.env, config.compute.slots)
    recorder = _Recorder(environments.make(config.env, slots), slots)
    rollout = Rollout(recorder, experiment.network, slots, backend("auto"))
    rollout.submit(
        Unit(c, e, environment_seed(0, Purpose.EPISODE, 0, c, e), genomes.weights[c], genomes.mask[c])
        for c in candidates
        for e in range(config.episodes)
    )
    while rollout.pending:
        rollout.tick()
    recorder.close()
    return recorder.recordings
