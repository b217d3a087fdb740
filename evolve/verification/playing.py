"""Playing one episode, alone in this process, exactly as the run did."""

import logging
import math
from collections.abc import Callable

import numpy as np

from evolve import environments
from evolve.cluster import Watchdog
from evolve.environments import Engine, Mode
from evolve.errors import EpisodeError
from evolve.numerics import host_backend
from evolve.numerics.streams import Purpose
from evolve.rollouts import (
    EpisodeBatch,
    EpisodeFailure,
    EpisodeResults,
    Rollout,
    generation_keys,
)
from evolve.store import Stored, StoredRun
from evolve.training import Experiment, final_champion, limit_of, normalizer_of
from evolve.verification.selection import Episode

_LOG = logging.getLogger("evolve")
EachStep = Callable[[int, float], None]
"""Called with the step and the return so far: after reset (0, 0.0), and after each step that did not fail."""


def make_engine(experiment: Experiment, chosen: Episode, mode: Mode | None = None) -> Engine:
    """Return an engine of one slot for such an episode; it draws itself where a mode is given. Raises InputError."""
    of = experiment if chosen.purpose is Purpose.EPISODE else experiment.in_evaluation()
    options = of.config.env
    shown = options if mode is None else environments.drawn(options, mode)
    return environments.make(shown, slots=1, compiled=experiment.config.compute.backend != "numpy")


def play(
    run: Stored, experiment: Experiment, chosen: Episode, engine: Engine, each_step: EachStep | None = None
) -> EpisodeResults:
    """Play an episode in slot 0 of an engine; return its results (N = 1).

    Args:
        run: The run that the episode belongs to.
        experiment: That of the run.
        chosen: The episode.
        engine: Which the caller closes.
        each_step: With it an episode may take any time, since drawing is not what `env.max_episode_seconds` is about;
            a single step may not.

    Raises:
        EpisodeError: The episode fails, and does not fail in the log.
    """
    config = experiment.config
    seconds = config.env.max_episode_seconds if each_step is None else math.inf
    kernel = host_backend(config.compute.backend)
    limit = None
    if isinstance(run, StoredRun) and chosen.purpose is Purpose.EPISODE:
        limit = limit_of(experiment, run.records, chosen.generation)
    normalize = config.normalize_observations
    rollout = Rollout(engine, experiment.network, 1, kernel, seconds, normalize, max_steps=limit)
    results = None
    failures: list[EpisodeFailure] = []
    with Watchdog(config.env.max_episode_seconds, fatal=True) as watchdog:
        rollout.make_genomes_within(watchdog.paused)
        rollout.submit(episode_batch(run, experiment, chosen))
        failed = bool(engine.faults)
        while True:
            if each_step is not None and not failed:
                watchdog.rest()
                each_step(*rollout.newest(0))
            if results is not None:
                break
            watchdog.pat()
            results = rollout.tick()
            failures = rollout.take_failures()
            failed = bool(failures)
    if failures:
        _handle_failure(failures[0], chosen)
    return results


def episode_batch(run: Stored, experiment: Experiment, chosen: Episode) -> EpisodeBatch:
    """Return the batch (N = 1) of an episode of a run."""
    common = experiment.config.common_random_numbers
    keys = generation_keys(chosen.generation, chosen.candidate + 1, common)[-1:]
    if isinstance(run, StoredRun) and chosen.purpose is Purpose.EPISODE:
        normalizer = normalizer_of(experiment, run, chosen.generation)
    else:
        _, normalizer = final_champion(experiment, run)
    episodes = range(chosen.episode, chosen.episode + 1)
    return EpisodeBatch.of(run.header.seed, chosen.purpose, chosen.genome, keys, episodes, normalizer)


def environment_seed(run: Stored, experiment: Experiment, chosen: Episode) -> int:
    """Return the seed of an episode's environment."""
    return int(episode_batch(run, experiment, chosen).environment_seeds()[0])


def _handle_failure(failure: EpisodeFailure, chosen: Episode) -> None:
    place = f"in step {failure.step}" if failure.step else "in reset"
    message = failure.message.rstrip()
    if chosen.logged is not None and np.isnan(chosen.logged):
        _LOG.warning("it fails %s: %s", place, message.splitlines()[-1])
        return
    key = int(chosen.purpose), chosen.generation, chosen.candidate, chosen.episode
    raise EpisodeError("the episode", f"{place}, environment seed {failure.seed}:\n{message}", key)
