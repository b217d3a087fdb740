"""The cost of fingerprints: this process evaluates whole generations with and without them, in turns.

    python benchmarks/fingerprints.py -e BipedalWalker-v3 --pairs 15

Times are CPU seconds of this process, so that other programs on the machine count little. The result is the median over
pairs of (time with fingerprints / time without) - 1, and the quartiles. Native kernels that play whole episodes of the
exact engine always take fingerprints, and so do kernels of a GPU: `--engine exact` needs `--backend numpy`.
"""

import argparse
import time

import numpy as np

from evolve.cluster import Coordinator, Transport
from evolve.config import Config, parse
from evolve.numerics.hashing import StepHashes
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, generation_keys, inference
from evolve.training import Experiment, make_rollout, prepare


class Without:
    """A stand-in that takes no fingerprints."""

    is_used = False

    def __init__(self, *_):
        Without.is_used = True

    def update(self, *_):
        pass

    begin = move = update

    def of(self, slots, lengths):
        return np.zeros((len(slots), 2), np.uint64), np.zeros((0, 2), np.uint8)


def generation(experiment: Experiment, episodes: int) -> EpisodeBatch:
    """The episodes of generation 0 of seed 0, `episodes` of each candidate."""
    strategy = experiment.strategy(0)
    genomes = strategy.ask(strategy.start(), 0)
    keys = generation_keys(0, experiment.config.population)
    return EpisodeBatch.of(0, Purpose.EPISODE, genomes, keys, range(episodes))


def measure(experiment: Experiment, pairs: int) -> np.ndarray:
    """Return [pairs]: seconds with fingerprints, divided by seconds without."""
    spec = experiment.rollout_spec
    batch = generation(experiment, experiment.config.episodes)
    coordinators = []
    for side in (StepHashes, Without):
        inference.StepHashes = side
        coordinators.append(Coordinator(Transport(), make_rollout))
        coordinators[-1].evaluate(spec, generation(experiment, 1))  # makes its rollout
    if not Without.is_used:
        raise SystemExit("expected episodes that can be played without fingerprints. Set --engine or --backend.")
    seconds = np.zeros((pairs, 2))
    for pair in range(pairs):
        for which in (0, 1) if pair % 2 else (1, 0):
            begin = time.process_time()
            coordinators[which].evaluate(spec, batch)
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
    table |= {"env": {"id": asked.env, "engine": asked.engine}, "compute": {"backend": asked.backend, "threads": 1}}
    experiment = prepare(parse(Config, table))
    ratios = measure(experiment, asked.pairs)
    low, middle, high = (100 * (q - 1) for q in np.percentile(ratios, (25, 50, 75)))
    name = f"{asked.env}, {asked.engine}, {asked.population} × {asked.episodes}, {asked.pairs} pairs"
    print(f"{name}: fingerprints cost {middle:+.2f} % ({low:+.2f} to {high:+.2f})")


if __name__ == "__main__":
    main()
