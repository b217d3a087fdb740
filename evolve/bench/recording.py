"""Recording what the networks of a generation do, so that bare environments can play the same episodes."""

from collections.abc import Iterator

import numpy as np

from evolve import environments, strategies
from evolve.cluster import Coordinator, Task, World, keys_of
from evolve.environments import Engine, Recording
from evolve.environments.contract import Trace
from evolve.evolution import Experiment, make_rollout, mean_return
from evolve.genome import Genomes
from evolve.numerics import backend
from evolve.rng import Purpose, environment_seeds
from evolve.rollout import Rollout, Units
from evolve.shapes import Bool, Float32, Float64, Int64, Slots


def population(experiment: Experiment, generation: int) -> Genomes:
    """Return the candidates of a generation of seed 0; those before it are evaluated here, by this process alone."""
    config, alone = experiment.config, Coordinator(World(), experiment.config, make_rollout)
    strategy = strategies.make(config.strategy, experiment.network, config.population, seed=0)
    state = strategy.start()
    for g in range(generation):
        genomes = strategy.ask(state, g)
        task = Task(0, Purpose.EPISODE, keys_of(g, config.population))
        done = alone.evaluate(task, genomes, config.episodes, experiment.network.traces)
        state = strategy.tell(state, genomes, mean_return(done.returns), done.traces)
    return strategy.ask(state, generation)


class _Recorder:
    """An engine that writes down the network outputs each of its episodes is stepped with."""

    def __init__(self, engine: Engine, slots: int) -> None:
        self._engine = engine
        self._open: list[tuple[int, list[Float32]]] = [(0, [])] * slots
        self.recordings: list[Recording] = []
        self.id, self.refill, self.reuses, self.faults = engine.id, engine.refill, engine.reuses, engine.faults
        self.observation_size, self.action_size = engine.observation_size, engine.action_size

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        for slot, seed in zip(slots.tolist(), seeds.tolist(), strict=True):
            self._open[slot] = (seed, [])
        self._engine.reset(slots, seeds, observations)

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        for slot, row in zip(slots.tolist(), outputs, strict=True):
            self._open[slot][1].append(row)
        rewards, ended = self._engine.step(slots, outputs, observations)
        for slot in slots[ended].tolist():
            seed, rows = self._open[slot]
            self.recordings.append(Recording(seed, np.stack(rows)))
        return rewards, ended

    def suggested_slots(self) -> int:
        return self._engine.suggested_slots()

    def move(self, sources: Slots, targets: Slots) -> None:
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._open[target] = self._open[source]
        self._engine.move(sources, targets)

    def trial(self, seed: int, outputs: Float32, used: bool) -> Iterator[Trace]:
        return self._engine.trial(seed, outputs, used)

    def close(self) -> None:
        self._engine.close()


def record(experiment: Experiment, genomes: Genomes, candidates: range) -> list[Recording]:
    """Play all episodes of some candidates; return their seeds and network outputs."""
    config = experiment.config
    slots = config.compute.slots or 1
    recorder = _Recorder(environments.make(config.env, slots), slots)
    rollout = Rollout(recorder, experiment.network, slots, backend("auto"))
    chosen = np.repeat(np.array(candidates, np.int64), config.episodes)
    episodes = np.tile(np.arange(config.episodes), len(candidates))
    seeds = environment_seeds(0, Purpose.EPISODE, np.zeros_like(chosen), chosen, episodes)
    rollout.submit(Units(chosen.astype(np.int32), episodes.astype(np.int32), seeds, chosen.astype(np.int32), genomes))
    while rollout.pending:
        rollout.tick()
    recorder.close()
    return recorder.recordings
