"""A limit of steps that follows how long episodes last: none is much longer than those of the last generation.

Ha's estool (2017) cuts episodes at twice the mean length of the last generation, so that few idle ones do not take most
of the time:

    limit     max(1, ceil(`episode_cap` · Σ lengths/n)) over the n episodes that the last generation played; never above
              that of the environment. In generation 0 it is the environment's alone

A generation's limit follows from the record of the one before, so it is the same on any number of ranks, and after a
restart. Validation and held-out episodes have the environment's limit.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evolve import environments
from evolve.config import Config
from evolve.shapes import Int32
from evolve.store import Record, StoredRun
from evolve.training.experiment import Experiment


def step_limit(config: Config, lengths: Int32) -> int | None:
    """Return the limit of steps after a generation with episodes of some lengths, 0 where one was not played.

    None where episodes are not limited so.
    """
    played = lengths[lengths > 0]
    if config.episode_cap is None or not len(played):
        return None
    mean = int(played.sum(dtype=np.int64)) / len(played)
    usual = environments.max_episode_steps(config.env)
    return min(max(1, math.ceil(config.episode_cap * mean)), usual or 2**31 - 1)


def after(experiment: Experiment, previous: Record | None) -> Experiment:
    """Return an experiment as its episodes are played in the generation after a record; None for generation 0."""
    config = experiment.config
    limit = None if previous is None else step_limit(config, previous.lengths)
    if limit is None:
        return experiment
    env = config.env.model_copy(update={"max_episode_steps": limit})
    return replace(experiment, config=config.model_copy(update={"env": env}))


def in_generation(experiment: Experiment, records: Sequence[Record], generation: int) -> Experiment:
    """Return an experiment as its episodes were played in a generation of a run with such records."""
    return after(experiment, records[generation - 1] if generation else None)


def limit_of(experiment: Experiment, run: StoredRun, generation: int) -> int | None:
    """Return the limit of steps that a generation of a run had by the one before; None for the environment's alone."""
    return step_limit(experiment.config, run.records[generation - 1].lengths) if generation else None
