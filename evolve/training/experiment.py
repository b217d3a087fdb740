"""An experiment, prepared: its configuration in full and what it describes."""

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from evolve import environments, networks, store, strategies
from evolve.cluster import Watchdog
from evolve.config import ComputeOptions, Config, EnvOptions, annotated_toml, parse, read_table
from evolve.errors import InputError
from evolve.networks import NETWORKS, Network
from evolve.numerics import Backend, backend, native
from evolve.numerics.device import in_sight
from evolve.rollouts import RolloutSpec
from evolve.strategies import STRATEGIES

_LOG = logging.getLogger("evolve")
_CACHE = 2**24  # bytes: what one process may hope for of a cache that the cores share
_LARGE = 2**16  # numbers of a slot: a step of a tile takes as long as about 16 of an environment


@dataclass(frozen=True)
class Experiment:
    """A configuration in full, and what it describes.

    action_size: A, the network outputs that make one action. chosen_backend: what compute.backend = "auto" stands for
    here; by default the native kernels, or NumPy.
    """

    config: Config
    network: Network
    action_size: int
    chosen_backend: Literal["numpy", "native", "cupy"] | None = None

    @property
    def backend(self) -> Backend:
        """By which networks compute."""
        return backend(self.chosen_backend or self.config.compute.backend)

    @cached_property
    def rollout_spec(self) -> RolloutSpec:
        """What plays the episodes of this experiment, on any rank."""
        env = self.config.env
        return RolloutSpec(
            experiment=self._as_computed().to_toml(),
            slots=self.config.compute.slots or 1,
            num_traces=self.network.num_traces,
            max_episode_seconds=env.max_episode_seconds,
            on_failure=env.on_failure,
            chunk_seconds=environments.chunk_seconds(env),
            least_chunk=self._least_chunk,
        )

    @property
    def limits_change(self) -> bool:
        """Whether the limit of steps of training episodes may be another in each generation."""
        return self.config.episode_cap is not None or self.config.early_max_episode_steps is not None

    @property
    def _least_chunk(self) -> int:
        """How many episodes take hardly longer than one: slots that are stepped together, if that is the work."""
        if self.backend == "native" and self.config.env.engine == "exact":
            task = environments.exact_task(self.config.env)
            if task.has_world:
                return min(environments.lanes_of(task), self.config.compute.slots or 1)
        if self.backend != "native" or self.network.slot_size < _LARGE:
            return 1
        return min(native.lanes(), self.config.compute.slots or 1)

    def _as_computed(self) -> Config:
        if self.chosen_backend is None:
            return self.config
        compute = self.config.compute.model_copy(update={"backend": self.chosen_backend})
        return self.config.model_copy(update={"compute": compute})

    def in_evaluation(self) -> "Experiment":
        """Return this experiment as its validation and held-out episodes are played, with their own limit of steps."""
        return replace(self, config=self.config.in_evaluation())

    def strategy(self, seed: int) -> strategies.Strategy[Any]:
        """Return the strategy of a run with a seed. Raises InputError for settings that it refuses."""
        return strategies.from_table(self.config.strategy, self.network, self.config.population, seed)


def load_config(text: str, source: str = "the experiment") -> Config:
    """Return the configuration written in a run file or sent to a worker. Raises InputError that names the source.

    Settings that are younger than the file have their defaults. A network or a strategy that is not installed here can
    still be looked at; `prepare` refuses it.
    """
    try:
        return parse(Config, read_table(text, source), lenient=True)
    except InputError as error:
        raise InputError(source, "a whole configuration", f"a damaged one ({error})") from None


def settings_text(config: Config) -> str:
    """Return a configuration in full as TOML that says what its settings mean. Raises InputError for a bad one."""
    return annotated_toml(config)


def prepare(config: Config) -> Experiment:
    """Complete a configuration and make its environment once, so that bad input is refused here. Raises InputError."""
    backend(config.compute.backend)
    for warning in (NETWORKS.shadowing(config.network), STRATEGIES.shadowing(config.strategy)):
        _warn(warning)
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
            "network": NETWORKS.parse(config.network),
            "strategy": STRATEGIES.parse(config.strategy),
        }
    )
    network = networks.make(complete.network, engine.observation_size, engine.action_size)
    slots = config.compute.slots or _suggested_slots(config, network, engine.suggested_slots())
    complete = complete.model_copy(update={"compute": config.compute.model_copy(update={"slots": slots})})
    _check_size(complete, network)
    networks.check(complete.network, network, engine.action_size)
    if config.compute.check:
        environments.check(engine)
    engine.close()
    return Experiment(complete, network, engine.action_size)


def _suggested_slots(config: Config, network: Network, engines: int) -> int:
    """Return how many slots are fastest, where the engine would have so many: few whose networks fit into a cache.

    Native kernels read all of a slot's network in each step. Whole rollouts keep to one tile by themselves.
    """
    may_be_device = config.compute.backend == "auto" and in_sight()
    is_native = backend(config.compute.backend) == "native" and not may_be_device
    if network.slot_size < _LARGE or config.env.engine == "exact" or not is_native:
        return engines
    fitting = _CACHE // (4 * network.slot_size)
    return min(engines, max(native.lanes(), fitting - fitting % native.lanes()))


def _check_size(config: Config, network: Network) -> None:
    """Raise InputError for an experiment that cannot fit into this machine's memory."""
    P, E, W, slots = config.population, config.episodes, network.num_weights, config.compute.slots or 1
    validation = config.early_stop.episodes if config.early_stop.mean_return is not None else 0
    at_once = max(P * E, config.held_out_episodes, validation)  # episodes
    there = memory()
    episodes = 32 * at_once + 4 * slots * network.slot_size
    needed = 40 * P * W + episodes  # bytes, about
    if needed > there:
        needed = strategies.bytes_per_weight(config.strategy, network, P) * W + episodes
    if needed > there:
        sizes = f"P = {P:,} candidates of W = {W:,} weights, E = {E:,} episodes each, and {slots:,} slots"
        came = f"{sizes}: at least {needed / 1e9:,.1f} GB"
        raise InputError("population × network.hidden", f"what fits into {there / 1e9:,.1f} GB of memory", came)


def is_portable(config: Config) -> bool:
    """Return whether the strategy of an experiment gives the same bits on every machine."""
    return strategies.portable(config.strategy)


def memory() -> float:
    """Return the bytes of memory of this machine; infinity where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def reload(
    run: store.Stored,
    env: EnvOptions | None = None,
    network: Mapping[str, Any] | None = None,
    engine: str | None = None,
) -> Experiment:
    """Return the experiment of a run file or a champion file, to be computed in whatever way suits this machine.

    Args:
        run: The file.
        env: Another environment in place of its own.
        network: Other settings of its network, such as {"plasticity": 0.0}, which leave genomes what they are.
        engine: Another engine in place of its own, which then need not be installed.

    Raises:
        InputError: The configuration cannot be used here, or does not fit what was recorded.
    """
    config = load_config(run.header.config, str(run.path))
    if engine is not None:
        config = config.with_engine(engine)
    compute = ComputeOptions(check=config.compute.check)
    experiment = prepare(config.model_copy(update={"compute": compute}))
    if not _fits(run, experiment):
        if engine is not None:
            expected = f"an engine whose {config.env.id} has the observations and actions of {run.path}"
            raise InputError("env.engine", expected, engine)
        raise InputError(str(run.path), "generations that fit its configuration", "other shapes")
    if network:
        experiment = _with_network(experiment, network)
    return experiment if env is None else _elsewhere(experiment, env)


def _fits(run: store.Stored, experiment: Experiment) -> bool:
    """Return whether what was recorded has the sizes of an experiment."""
    W = experiment.network.num_weights
    if isinstance(run, store.StoredChampion):
        return len(run.held_out.weights) == W
    if not run.records:
        return True
    first = run.records[0]
    shape = (experiment.config.population, experiment.config.episodes)
    return first.returns.shape == shape and len(first.champion_weights) == W


def _elsewhere(experiment: Experiment, env: EnvOptions) -> Experiment:
    other = prepare(experiment.config.with_env(env))
    sizes, theirs = ((e.network.observation_size, e.action_size) for e in (experiment, other))
    if sizes != theirs:
        came = "{}, of {} and {}".format(env.id, *theirs)
        raise InputError("env", "an environment of the champion's {} observations and {} actions".format(*sizes), came)
    return other


def _with_network(experiment: Experiment, settings: Mapping[str, Any]) -> Experiment:
    """Return an experiment whose networks have other settings, and the same connections."""
    section = NETWORKS.parse({**experiment.config.network.table(), **settings})
    other = prepare(experiment.config.model_copy(update={"network": section}))
    kinds = [e.config.network.name for e in (experiment, other)]
    if kinds[0] != kinds[1] or experiment.network.blocks != other.network.blocks:
        came = ", ".join(f"{key}={value}" for key, value in settings.items())
        raise InputError("network", f"settings that leave a {kinds[0]} the champion's connections", came)
    return other


@dataclass(frozen=True)
class PlannedRun:
    """A run to begin or to resume: its experiment, its seed, and the path of its file."""

    experiment: Experiment
    seed: int
    path: Path
