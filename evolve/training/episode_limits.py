"""Limits of steps that training has for a while: in its first generations, and by how long episodes last.

Where episodes are short at first, a walk that is fast soon counts for more than standing safely, and generations are
cheap; long ones then count the falls. Ha's estool (2017) cuts episodes at twice the mean length of the last generation,
so that few idle ones do not take most of the time:

    limit     the least of `early_max_episode_steps`, in the first `early_generations` generations; of
              max(1, ceil(`episode_cap` · Σ lengths/n)) over the n episodes that the last generation played, after
              generation 0; and of the environment's own

A generation's limit follows from its number, and from the record of the one before, so it is the same on any number of
ranks, and after a restart. Validation and held-out episodes have the environment's limit.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evolve import environments
from evolve.config import Config
from evolve.shapes import Int32
from evolve.store import Record
from evolve.training.experiment import Experiment


def step_limit(config: Config, generation: int, previous: Int32 | None) -> int | None:
    """Return the limit of steps of a generation, None where it is that of the environment alone.

    previous: the lengths of the episodes of the generation before, 0 for one that was not played; None for none.
    """
    limits = []
    if config.early_max_episode_steps is not None and generation < config.early_generations:
        limits.append(config.early_max_episode_steps)
    if config.episode_cap is not None and previous is not None and previous.any():
        played = previous[previous > 0]
        limits.append(max(1, math.ceil(config.episode_cap * (int(played.sum(dtype=np.int64)) / len(played)))))
    if not limits:
        return None
    usual = environments.max_episode_steps(config.env)
    return min(*limits, usual or 2**31 - 1)


def after(experiment: Experiment, generation: int, previous: Record | None) -> Experiment:
    """Return an experiment as its episodes are played in a generation. previous: the record of the one before."""
    config = experiment.config
    limit = step_limit(config, generation, None if previous is None else previous.lengths)
    if limit is None:
        return experiment
    env = config.env.model_copy(update={"max_episode_steps": limit})
    return replace(experiment, config=config.model_copy(update={"env": env}))


def in_generation(experiment: Experiment, records: Sequence[Record], generation: int) -> Experiment:
    """Return an experiment as its episodes were played in a generation of a run with such records."""
    return after(experiment, generation, records[generation - 1] if generation else None)


def limit_of(experiment: Experiment, records: Sequence[Record], generation: int) -> int | None:
    """Return the limit of steps that a generation of a run with such records had; None for the environment's alone."""
    if not experiment.limits_change:
        return None
    return step_limit(experiment.config, generation, records[generation - 1].lengths if generation else None)
