"""Playing one episode, alone in this process, exactly as the run did."""

import logging
import math
from collections.abc import Callable

import numpy as np

from evolve import environments
from evolve.cluster import Watchdog
from evolve.environments import Engine, Mode
from evolve.errors import EpisodeError
from evolve.evaluation import Outcomes
from evolve.experiment import Experiment, for_each, normalizer_of
from evolve.numerics import backend
from evolve.playback.selection import Episode, environment_seed
from evolve.rng import Purpose
from evolve.rollout import Fault, Rollout, Units
from evolve.shapes import Float32
from evolve.store import Run

_LOG = logging.getLogger("evolve")
EachStep = Callable[[int, float], None]
"""Called with the step and the return so far: after reset (0, 0.0), and after each step that did not fail."""


def make_engine(experiment: Experiment, chosen: Episode, mode: Mode | None = None) -> Engine:
    """Return an engine of one slot for such episodes; it draws itself where a mode is given. Raises InputError."""
    config = experiment.config
    options = (config if chosen.purpose is Purpose.EPISODE else config.in_evaluation()).env
    return environments.make(options if mode is None else environments.drawn(options, mode), slots=1)


def play(
    run: Run, experiment: Experiment, chosen: Episode, engine: Engine, each_step: EachStep | None = None
) -> Outcomes:
    """Play an episode in slot 0 of an engine that the caller closes; return its outcome.

    Raises EpisodeError when it fails, unless it does so in the log too. With `each_step` an episode may take any time,
    since drawing is not what `env.max_episode_seconds` is about; a single step may not.
    """
    env = experiment.config.env
    seconds = env.max_episode_seconds if each_step is None else math.inf
    kernel, normalize = backend(experiment.config.compute.backend), experiment.config.normalize_observations
    rollout = Rollout(engine, experiment.network, 1, kernel, seconds, normalize)
    one, outcomes = np.zeros(1, np.int32), None
    with Watchdog(env.max_episode_seconds, fatal=True) as watchdog:
        seeds = np.array([environment_seed(run, experiment, chosen)])
        rollout.submit(Units(one, one, seeds, one, chosen.genome, _normalizers(run, experiment, chosen)))
        failed = bool(engine.faults)
        while True:
            if each_step is not None and not failed:
                watchdog.rest()
                each_step(*rollout.so_far(0))
            if outcomes is not None:
                break
            watchdog.pat()
            outcomes = rollout.tick()
            faults = rollout.take_faults()
            failed = bool(faults)
    if faults:
        _judge(faults[0], chosen)
    return outcomes


def _normalizers(run: Run, experiment: Experiment, chosen: Episode) -> Float32:
    """Return [1, 2, O], with O = 0 where observations are not normalized."""
    generation = chosen.generation if chosen.purpose is Purpose.EPISODE else run.told
    found = for_each(normalizer_of(experiment, run, generation), 1)
    return np.zeros((1, 2, 0), np.float32) if found is None else found


def _judge(fault: Fault, chosen: Episode) -> None:
    place = f"in {f'step {fault.step}' if fault.step else 'reset'}"
    if chosen.logged is not None and np.isnan(chosen.logged):
        _LOG.warning("it fails %s: %s", place, fault.told.rstrip().splitlines()[-1])
        return
    where = f"{place}, environment seed {fault.seed}"
    raise EpisodeError("the episode", f"{where}:\n{fault.told.rstrip()}", "")
