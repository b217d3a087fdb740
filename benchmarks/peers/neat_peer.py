"""CartPole by neat-python: NEAT with the structure of the network fixed, and its settings in neat_peer.ini."""

import random
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import gymnasium
import neat
import numpy as np

EPISODES = 4


def train(seed, workers, steps):
    settings = (neat.DefaultGenome, neat.DefaultReproduction, neat.DefaultSpeciesSet, neat.DefaultStagnation)
    config = neat.Config(*settings, str(Path(__file__).with_suffix(".ini")))
    population = neat.Population(config, seed=seed)
    total, evaluated = 0, []
    with Pool(workers) as pool:

        def evaluate(genomes, config):
            evaluated[:] = [genome for _, genome in genomes]
            jobs = [(genome, config, [random.randrange(2**31) for _ in range(EPISODES)]) for genome in evaluated]
            for genome, length in zip(evaluated, pool.starmap(played, jobs, chunksize=4), strict=True):
                genome.fitness = length / EPISODES

        while total < steps:
            population.run(evaluate, 1)
            total += round(sum(genome.fitness for genome in evaluated) * EPISODES)
            best = max(evaluated, key=lambda genome: genome.fitness)
            yield total, f"{best.fitness}{best}", partial(champion, best, config)


def champion(genome, config):
    network = neat.nn.FeedForwardNetwork.create(genome, config)
    return lambda observations: np.array([np.argmax(network.activate(observation)) for observation in observations])


def played(genome, config, seeds):
    act, env, length = champion(genome, config), gymnasium.make("CartPole-v1"), 0
    for seed in seeds:
        observation, ended = env.reset(seed=seed)[0], False
        while not ended:
            observation, _, terminated, truncated, _ = env.step(int(act([observation])[0]))
            ended, length = terminated or truncated, length + 1
    return length
