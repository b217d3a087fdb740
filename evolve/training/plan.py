"""Runs before they begin: their files, and how large they are at most."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evolve import environments, store
from evolve.config import Config
from evolve.training.experiment import Experiment


@dataclass(frozen=True)
class PlannedRun:
    """A run to begin or to resume: its experiment, its seed, and the path of its file."""

    experiment: Experiment
    seed: int
    path: Path


def plan_runs(experiments: Sequence[Experiment], file: Path | None = None) -> list[PlannedRun]:
    """Return the runs of experiments, one for each seed. file: the path, when one run file is resumed by name."""
    return [
        PlannedRun(experiment, seed, file or store.path_of(experiment.config.directory(), seed))
        for experiment in experiments
        for seed in experiment.config.seeds
    ]


@dataclass(frozen=True)
class RunSize:
    """How much a run has to do at most; an early stop and racing can make it less.

    Attributes:
        episodes: To be played, those of validation and the held-out ones included.
        steps: Of the environment, in these episodes; None where the environment has no limit that is known.
    """

    episodes: int
    steps: int | None

    def __add__(self, other: "RunSize") -> "RunSize":
        known = self.steps is not None and other.steps is not None
        return RunSize(self.episodes + other.episodes, (self.steps or 0) + (other.steps or 0) if known else None)


def size_of(config: Config, completed: int = 0) -> RunSize:
    """Return what is left of a run of an experiment when so many generations are complete."""
    stop = config.early_stop
    per_generation = config.population * config.episodes
    training = max(0, config.generations - completed) * per_generation
    validations = 0
    if stop.mean_return is not None and completed < config.generations:
        validations = (config.generations - 1) // stop.every - max(0, completed - 1) // stop.every
    evaluation = validations * stop.episodes + config.held_out_episodes
    longest = environments.max_episode_steps(config.env)
    longest_evaluated = environments.max_episode_steps(config.in_evaluation().env)
    if longest is None or longest_evaluated is None:
        return RunSize(training + evaluation, None)
    steps = training * longest
    if config.early_max_episode_steps is not None:
        early = max(0, min(config.early_generations, config.generations) - completed)
        steps -= early * per_generation * max(0, longest - config.early_max_episode_steps)
    if stop.steps is not None:  # the generation in which they are taken is completed
        steps = min(steps, stop.steps + per_generation * longest)
    return RunSize(training + evaluation, steps + evaluation * longest_evaluated)
