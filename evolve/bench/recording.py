"""Recording what the networks of a generation do, so that bare environments can play the same episodes."""

import numpy as np

from evolve import environments, strategies
from evolve.cluster import Coordinator, Task, World, keys_of
from evolve.environments import Recorder, Recording
from evolve.evolution import fitness_of
from evolve.experiment import Experiment, make_rollout
from evolve.genome import Genomes
from evolve.numerics import backend
from evolve.rng import Purpose, environment_seeds
from evolve.rollout import Rollout, Units


def population(experiment: Experiment, generation: int) -> Genomes:
    """Return the candidates of a generation of seed 0; those before it are evaluated here, by this process alone."""
    config, alone = experiment.config, Coordinator(World(), experiment.config, make_rollout)
    strategy = strategies.make(config.strategy, experiment.network, config.population, seed=0)
    state = strategy.start()
    for g in range(generation):
        genomes = strategy.ask(state, g)
        task = Task(0, Purpose.EPISODE, keys_of(g, config.population))
        done = alone.evaluate(task, genomes, config.episodes, experiment.network.traces)
        state = strategy.tell(state, genomes, fitness_of(config, genomes, done), done.traces)
    return strategy.ask(state, generation)


def record(experiment: Experiment, genomes: Genomes, candidates: range) -> list[Recording]:
    """Play all episodes of some candidates; return their seeds and network outputs."""
    config = experiment.config
    slots = config.compute.slots or 1
    recorder = Recorder(environments.make(config.env, slots), slots, observations=False)
    rollout = Rollout(recorder, experiment.network, slots, backend("auto"))
    chosen = np.repeat(np.array(candidates, np.int64), config.episodes)
    episodes = np.tile(np.arange(config.episodes), len(candidates))
    seeds = environment_seeds(0, Purpose.EPISODE, np.zeros_like(chosen), chosen, episodes)
    rollout.submit(Units(chosen.astype(np.int32), episodes.astype(np.int32), seeds, chosen.astype(np.int32), genomes))
    while rollout.pending:
        rollout.tick()
    recorder.close()
    return recorder.finished
