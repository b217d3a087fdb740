"""Recording what the networks of a generation do, so that bare environments can play the same episodes."""

import numpy as np

from evolve import environments
from evolve.cluster import Coordinator, Transport
from evolve.environments import Recorder, Recording
from evolve.genome import Genomes
from evolve.numerics import backend
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, Rollout, generation_keys
from evolve.strategies import Results
from evolve.training import Experiment, connection_costs, evaluate_population, make_rollout, mean_return


def population(experiment: Experiment, generation: int) -> Genomes:
    """Return the candidates of a generation of seed 0; those before it are evaluated here, by this process alone."""
    alone = Coordinator(Transport(), make_rollout)
    strategy = experiment.strategy(seed=0)
    state = strategy.start()
    for number in range(generation):
        genomes = strategy.ask(state, number)
        results = evaluate_population(experiment, alone, 0, number, genomes)
        costs = connection_costs(experiment.config, genomes.connections(), genomes.num_weights)
        fitness = mean_return(results.returns, results.played, costs)
        state = strategy.tell(state, genomes, Results(fitness, results.traces))
    return strategy.ask(state, generation)


def record(experiment: Experiment, genomes: Genomes, candidates: range) -> list[Recording]:
    """Play all episodes of some candidates; return their seeds and network outputs."""
    config = experiment.config
    slots = config.compute.slots or 1
    recorder = Recorder(environments.make(config.env, slots), slots, observations=False)
    rollout = Rollout(recorder, experiment.network, slots, backend("auto"))
    keys = generation_keys(0, len(genomes), config.common_random_numbers)
    batch = EpisodeBatch.of(0, Purpose.EPISODE, genomes, keys, range(config.episodes), rows=np.array(candidates))
    rollout.submit(batch)
    while rollout.pending:
        rollout.tick()
    recorder.close()
    return recorder.finished
