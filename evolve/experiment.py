"""An experiment, prepared: its configuration in full and what it describes; and how a run file is taken up again."""

import logging
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evolve import environments, networks, store, strategies
from evolve.cluster import Watchdog
from evolve.config import ComputeOptions, Config, EnvOptions, parse, read_table, spelled_out
from evolve.errors import InputError
from evolve.networks import NETWORKS, Batch, Network
from evolve.normalization import Moments
from evolve.numerics import backend
from evolve.rollout import Rollout
from evolve.shapes import Float32
from evolve.strategies import STRATEGIES

_LOG = logging.getLogger("evolve")


@dataclass(frozen=True)
class Experiment:
    """A configuration in full, the network it describes, and A, the network outputs that make one action."""

    config: Config
    network: Network
    action_size: int


class Told(Protocol):
    """What a run has come to: a run file that was read, or one that is being written."""

    @property
    def path(self) -> Path:
        """The run file."""

    @property
    def header(self) -> store.Header:
        """What was known when the run began."""

    @property
    def told(self) -> int:
        """How many generations have been told."""

    @property
    def checkpoint(self) -> Mapping[str, NDArray[Any]]:
        """The state after the last of them."""


def load_config(text: str, source: str = "the experiment") -> Config:
    """Return the configuration written in a run file or sent to a worker. Raises InputError that names the source.

    Settings that are younger than the file have their defaults.
    """
    try:
        config = parse(Config, read_table(text, source))
    except InputError as wrong:
        raise InputError(source, "a whole configuration", f"a damaged one ({wrong})") from None
    with suppress(InputError):  # what cannot be made here can still be looked at
        config = config.model_copy(update={"network": networks.options(config.network)})
        config = config.model_copy(update={"strategy": strategies.options(config.strategy)})
    return config


def settings(config: Config) -> str:
    """Return a configuration in full as TOML that says what its settings mean. Raises InputError for a bad one."""
    tables = {"network": networks.options(config.network), "strategy": strategies.options(config.strategy)}
    models = {"network": NETWORKS.model(config.network), "strategy": STRATEGIES.model(config.strategy)}
    return spelled_out(config.model_copy(update=tables), models)


def make_rollout(text: str) -> Rollout:
    """Return the rollout of an experiment (TOML text)."""
    config = load_config(text)
    slots = config.compute.slots or 1
    engine = environments.make(config.env, slots)
    network = networks.make(config.network, engine.observation_size, engine.action_size)
    seconds, normalize = config.env.max_episode_seconds, config.normalize_observations
    return Rollout(engine, network, slots, backend(config.compute.backend), seconds, normalize)


def prepare(config: Config) -> Experiment:
    """Complete a configuration and make its environment once, so that bad input is refused here. Raises InputError."""
    backend(config.compute.backend)
    for ignored in (NETWORKS.ignored(config.network), STRATEGIES.ignored(config.strategy)):
        _warn(ignored)
    with Watchdog(config.env.max_episode_seconds, fatal=True):
        return _prepare(config)


@cache  # each once
def _warn(words: str | None) -> None:
    if words is not None:
        _LOG.warning(words)


def _prepare(config: Config) -> Experiment:
    engine = environments.make(config.env, slots=1)
    complete = config.model_copy(
        update={
            "env": config.env.model_copy(update={"id": engine.id}),
            "compute": config.compute.model_copy(update={"slots": config.compute.slots or engine.suggested_slots()}),
            "network": networks.options(config.network),
            "strategy": strategies.options(config.strategy),
        }
    )
    network = networks.make(complete.network, engine.observation_size, engine.action_size)
    _check_size(complete, network)
    NETWORKS.check(complete.network, network.batch(1, "numpy"), Batch)
    if config.compute.check:
        environments.check(engine)
    engine.close()
    return Experiment(complete, network, engine.action_size)


def _check_size(config: Config, network: Network) -> None:
    """Raise InputError for an experiment that cannot fit into this machine's memory."""
    P, E, W, slots = config.population, config.episodes, network.weights, config.compute.slots or 1
    validation = config.early_stop.episodes if config.early_stop.mean_return is not None else 0
    units = max(P * E, config.held_out_episodes, validation)
    needed = 40 * P * W + 32 * units + 4 * slots * network.slot_size  # bytes, about
    there = _memory()
    if needed > there:
        sizes = f"P = {P:,} candidates of W = {W:,} weights, E = {E:,} episodes each, and {slots:,} slots"
        came = f"{sizes}: at least {needed / 1e9:,.1f} GB"
        raise InputError("population × network.hidden", f"what fits into {there / 1e9:,.1f} GB of memory", came)


def check_sense(experiment: Experiment) -> None:
    """Raise InputError for settings that have no effect, or defeat themselves; runs that have begun may have them."""
    config = experiment.config
    NETWORKS.refuse(config.network)
    STRATEGIES.refuse(config.strategy, experiment.network)
    rounds, E = config.racing.rounds, config.episodes
    if rounds and rounds[-1] >= E:
        raise InputError("racing.rounds", f"fewer episodes than a candidate has, {E} (episodes, -r)", list(rounds))
    if config.connection_cost and strategies.one_mask(config.strategy):
        expected = f"0 with {config.strategy['name']}, whose candidates all have the same connections"
        raise InputError("connection_cost", expected, config.connection_cost)


def _memory() -> float:
    """Return the bytes of memory of this machine; infinity where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def reload(run: store.Run, env: EnvOptions | None = None) -> Experiment:
    """Return the experiment of a run file, to be computed in whatever way suits this machine.

    env: another environment in place of its own. Raises InputError when the configuration cannot be used here, or does
    not fit what was recorded.
    """
    config = load_config(run.header.config, str(run.path))
    compute = ComputeOptions(check=config.compute.check)
    experiment = prepare(config.model_copy(update={"compute": compute}))
    if run.records:
        first, shape = run.records[0], (config.population, config.episodes)
        if first.returns.shape != shape or len(first.champion_weights) != experiment.network.weights:
            raise InputError(str(run.path), "generations that fit its configuration", "other shapes")
    return experiment if env is None else _elsewhere(experiment, env)


def _elsewhere(experiment: Experiment, env: EnvOptions) -> Experiment:
    other = prepare(experiment.config.with_env(env))
    sizes, theirs = ((e.network.observation_size, e.action_size) for e in (experiment, other))
    if sizes != theirs:
        came = "{}, of {} and {}".format(env.id, *theirs)
        raise InputError("env", "an environment of the champion's {} observations and {} actions".format(*sizes), came)
    return other


def restore(experiment: Experiment, run: Told) -> tuple[Any, Any]:
    """Return the strategy of a run and its state after the last told generation.

    Raises InputError when the checkpoint does not fit.
    """
    config = experiment.config
    strategy = strategies.make(config.strategy, experiment.network, config.population, run.header.seed)
    if not run.told:
        return strategy, strategy.start()
    try:
        state = strategy.from_arrays(run.checkpoint)
        strategy.champion(state)
    except (ValueError, IndexError) as wrong:
        raise InputError(str(run.path), "a whole checkpoint", f"a damaged one ({wrong})") from None
    return strategy, state


def moments_of(experiment: Experiment, run: Told) -> Moments:
    """Return the moments of what was seen in all told generations. Raises InputError when the checkpoint lacks them."""
    size = experiment.network.observation_size
    if not (experiment.config.normalize_observations and run.told):
        return Moments.none(size)
    try:
        return Moments.from_arrays(run.checkpoint, size)
    except ValueError as wrong:
        raise InputError(str(run.path), "a whole checkpoint", f"a damaged one ({wrong})") from None


def normalizer_of(experiment: Experiment, run: store.Run, generation: int) -> Float32 | None:
    """Return [2, O]: with what a generation's observations are normalized, up to the next one; None for not at all.

    Raises InputError when the file lacks it.
    """
    if not experiment.config.normalize_observations:
        return None
    if generation >= run.told:
        return moments_of(experiment, run).normalizer()
    normalizer = run.records[generation].normalizer
    if normalizer is None or normalizer.shape[1] != experiment.network.observation_size:
        raise InputError(str(run.path), f"the normalizer of generation {generation}", "none that fits")
    return normalizer


def for_each(normalizer: Float32 | None, candidates: int) -> Float32 | None:
    """Return [P, 2, O]: the same normalizer [2, O] for each of P candidates."""
    return None if normalizer is None else np.broadcast_to(normalizer, (candidates, *normalizer.shape))
