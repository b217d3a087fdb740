"""What fingerprints cost: whole generations evaluated by this process with and without them, in turns.

    python benchmarks/fingerprints.py -e BipedalWalker-v3 --pairs 15

Times are CPU seconds of this process, so that neighbours on the machine count little; what is printed is the median
over pairs of the time with fingerprints divided by that without, less one, and the quartiles.
"""

import argparse
import time

import numpy as np

from evolve import rollout, strategies
from evolve.cluster import Coordinator, Task, World, keys_of
from evolve.config import Config, parse
from evolve.experiment import Experiment, make_rollout, prepare
from evolve.genome import Genomes
from evolve.numerics import EpisodeFingerprints
from evolve.rng import Purpose


class Without:
    """Takes no fingerprints."""

    def __init__(self, *_):
        pass

    def note(self, *_):
        pass

    begin = move = note

    def of(self, slots, lengths):
        return np.zeros((len(slots), 2), np.uint64), np.zeros((0, 2), np.uint8)


def newborn(experiment: Experiment) -> Genomes:
    """The candidates of generation 0 of seed 0."""
    config = experiment.config
    strategy = strategies.make(config.strategy, experiment.network, config.population, 0)
    return strategy.ask(strategy.start(), 0)


def measure(experiment: Experiment, genomes: Genomes, pairs: int) -> np.ndarray:
    """Return [pairs]: seconds with, divided by seconds without."""
    config, sides = experiment.config, (EpisodeFingerprints, Without)
    task = Task(0, Purpose.EPISODE, keys_of(0, config.population))
    farms = []
    for side in sides:
        rollout.EpisodeFingerprints = side
        farms.append(Coordinator(World(), config, make_rollout))
        farms[-1].evaluate(task, genomes, 1, experiment.network.traces)  # makes its rollout
    seconds = np.zeros((pairs, 2))
    for pair in range(pairs):
        for which in (0, 1) if pair % 2 else (1, 0):
            begin = time.process_time()
            farms[which].evaluate(task, genomes, config.episodes, experiment.network.traces)
            seconds[pair, which] = time.process_time() - begin
    return seconds[:, 0] / seconds[:, 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-e", "--env", default="BipedalWalker-v3")
    parser.add_argument("--engine", default="gymnasium")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("-p", "--population", type=int, default=48)
    parser.add_argument("-r", "--episodes", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=15)
    asked = parser.parse_args()
    table = {"population": asked.population, "episodes": asked.episodes}
    table |= {"env": {"id": asked.env, "engine": asked.engine}, "compute": {"backend": asked.backend}}
    experiment = prepare(parse(Config, table))
    ratios = measure(experiment, newborn(experiment), asked.pairs)
    low, middle, high = (100 * (q - 1) for q in np.percentile(ratios, (25, 50, 75)))
    name = f"{asked.env}, {asked.engine}, {asked.population} × {asked.episodes}, {asked.pairs} pairs"
    print(f"{name}: fingerprints cost {middle:+.2f} % ({low:+.2f} to {high:+.2f})")


if __name__ == "__main__":
    main()
