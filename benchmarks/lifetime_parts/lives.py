"""The lives of a champion, step by step: its reward in each trial."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve import environments
from evolve.environments.exact import TASKS
from evolve.genome import Genomes
from evolve.training import Experiment

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Lives:
    """N lives of one genome.

    rewards: [N, T], 0 after the end of a life. observations: [N, T, O], before each of these steps.
    """

    rewards: Array
    observations: NDArray[np.float32]

    @property
    def returns(self) -> Array:
        """[N]: the return of each life, as a run file has it."""
        total = np.zeros(len(self.rewards))
        for rewards in self.rewards.T:
            total = total + rewards
        return total


def play(experiment: Experiment, genome: Genomes, seeds: NDArray[np.int64]) -> Lives:
    """Return the lives of a genome (P = 1) in environments of seeds [N] of an exact task."""
    N = len(seeds)
    engine = environments.make(experiment.config.env, slots=N)
    everyone = np.arange(N, dtype=np.intp)
    batch = experiment.network.batch(N, experiment.backend)
    batch.load(everyone, np.repeat(genome.weights, N, axis=0), np.repeat(genome.mask, N, axis=0), seeds)
    seen = np.zeros((N, engine.observation_size), np.float32)
    engine.reset(everyone, seeds, seen)
    rewards, observations = [], []
    alive = everyone
    while len(alive):
        observations.append(seen.copy())
        outputs = batch.step(seen)
        row = np.zeros(N)
        row[alive], ended = engine.step(alive, outputs[alive], seen)
        rewards.append(row)
        alive = alive[~ended]
    engine.close()
    return Lives(np.array(rewards).T, np.array(observations).transpose(1, 0, 2))


def by_trial(task: str, kwargs: dict[str, Any], lives: Lives) -> Array:
    """Return [N, trials]: the reward of each trial, 1 for a perfect one.

    A trial of the cues is the nth presentation of a cue, averaged over the cues.
    """
    options = TASKS[task].options_class(**kwargs)
    if task == "TMaze-v0":
        return _by_walk(lives, options.trials) * options.trials
    decided = lives.rewards[:, ::2]
    if task == "Cues-v0":
        shown = lives.observations[:, ::2, : options.cues].argmax(axis=2)
        return _by_presentation(decided * options.cues * options.presentations, shown, options.cues)
    return decided * options.trials if task == "Reversal-v0" else decided


def _by_presentation(right: Array, shown: NDArray[np.int64], cues: int) -> Array:
    """Return [N, presentations]: the share of cues answered correctly at their nth presentation."""
    order = np.argsort(shown, axis=1, kind="stable")
    by_cue = np.take_along_axis(right, order, axis=1)
    return by_cue.reshape(len(right), cues, -1).mean(axis=1)


def _by_walk(lives: Lives, trials: int) -> Array:
    """Return [N, trials]: rewards of each walk through a maze, which begins at home."""
    at_home = lives.observations[:, :, 2] == 1
    walk = np.minimum(np.cumsum(at_home, axis=1) - 1, trials - 1)
    found = np.zeros((len(lives.rewards), trials))
    np.add.at(found, (np.arange(len(found))[:, None], walk), lives.rewards)
    return found
