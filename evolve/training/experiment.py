"""Turns a configuration into an `Experiment`: fills in missing settings, checks them, and makes the network.

`load_config` reads a configuration from a file. `prepare` makes the experiment, for which it needs the environment;
`prepare_policy` does not need it. `validate_new_run` refuses more settings, but only for runs that begin now. The loop
that trains an experiment is in `loop.py`.
"""

import logging
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Literal

from evolve import __version__, environments, networks, store, strategies
from evolve.cluster import Watchdog
from evolve.cluster.cores import share_of_cores, usable_memory
from evolve.config import (
    MOST_SLOTS,
    Config,
    EnvOptions,
    RacingOptions,
    Table,
    observation_index,
    parse,
    read_table,
    suggest,
)
from evolve.config.registry import UnknownOptions
from evolve.errors import EpisodeTimeout, InputError, Setting
from evolve.networks import NETWORKS, Network
from evolve.networks.network import SlotArrays
from evolve.numerics import Backend, backend, native
from evolve.numerics.device import has_device
from evolve.rollouts import RolloutSpec
from evolve.strategies import STRATEGIES
from evolve.strategies.acting import GENOME_MEASURES
from evolve.training.fitness import check_fitness, importing

_LOG = logging.getLogger("evolve")
_CACHE_BYTES = 2**24  # the part of the cores' shared cache that a process is assumed to have
_RESULT_BYTES = 32  # approximate memory of the results of an episode
_SLOTS_IF_HANGING = 8  # the number of slots if an environment hangs while its speed is measured
_MOST_SLOT_NUMBERS = 2**28
"""The most float32 numbers in all slots of a device together, unless the user sets the number of slots.

A slot plays one episode at a time. Its numbers are weights, states and so on (`Network.slot_size`).
"""
_LEARNING_WRAPPERS: dict[str, tuple[str | Setting, ...]] = {
    "gymnasium.wrappers:NormalizeObservation": (
        "To scale observations: ",
        Setting("normalize_observations", True),
        ".",
    ),
    "gymnasium.wrappers:NormalizeReward": ("Leave it out: strategies rank or scale returns.",),
}
"""Gymnasium's wrappers that learn over several episodes, and what to do instead (the end of the error message).

They are refused: each episode begins with a new environment, so the wrapper would begin anew, too.
"""
_LARGE_SLOT = 2**16
"""A network is large if its slots have this size or more. A step takes about as long as 16 environment steps."""


@dataclass(frozen=True, eq=False)
class Experiment:
    """A complete configuration, and the objects that it describes.

    Attributes:
        config: The configuration.
        network: The network.
        action_size: A, the number of network outputs that are actions.
        spaces: The spaces of observations and actions of the environment.
        chosen_backend: The back end that a comparison of speeds has chosen for compute.backend = "auto"
            (`rollouts.choose_backend`). Without it, "auto" means native if the kernels were built, otherwise numpy.
        start: The genome with which the search begins; None for random genomes.
        device_slots: The number of slots on a device that plays whole episodes: one for each episode of a generation,
            or fewer if these do not fit. None if `config.compute.slots` applies: the user gave it, or the environment
            or the network is on the host.
        trial: The environment that was checked before the run, and the fingerprints that
            `environments.check_repeatable` returned. None without this check.
    """

    config: Config
    network: Network
    action_size: int
    spaces: environments.Spaces
    chosen_backend: Literal["numpy", "native", "cupy"] | None = None
    start: store.Start | None = None
    device_slots: int | None = None
    trial: tuple[EnvOptions, tuple[str, ...]] | None = None

    @property
    def backend(self) -> Backend:
        """The back end of the networks."""
        return backend(self.chosen_backend or self.config.compute.backend)

    @property
    def plays_whole_episodes(self) -> bool:
        """Whether one kernel call plays whole episodes, environment and network together, on the CPU or on a GPU."""
        on_device = self.backend == "cupy" and self.config.env.engine == "exact"
        return on_device or natively_plays_whole_episodes(self.config)

    @cached_property
    def rollout_spec(self) -> RolloutSpec:
        """The specification from which any rank makes a rollout of this experiment."""
        env = self.config.env
        # The TOML text names the chosen back end, so that the other ranks need not compare speeds.
        config = self.on(self.chosen_backend or self.config.compute.backend)
        return RolloutSpec(
            experiment=config.to_toml(),
            slots=self._num_rollouts * (config.compute.slots or 1),
            num_traces=self.network.num_traces,
            max_episode_seconds=env.max_episode_seconds,
            on_failure=env.on_failure,
            chunk_seconds=environments.chunk_seconds(env),
            least_chunk=self._least_chunk,
            num_metrics=len(env.reported_metrics),
            # The fingerprints hold for the checked environment only. Evaluation may use another environment, and a
            # generation may have another step limit.
            trial=self.trial[1] if self.trial is not None and self.trial[0] == env else (),
        )

    @cached_property
    def _num_rollouts(self) -> int:
        """The number of rollouts of whole episodes that a process plays in parallel, one for each thread."""
        return num_threads(self.config) if self.backend == "native" and self.config.env.engine == "exact" else 1

    @property
    def _least_chunk(self) -> int:
        """The smallest number of episodes that a worker gets at a time (a chunk).

        A kernel steps several slots in about the time of one, so smaller chunks would waste time.
        """
        if self.backend != "native":
            return 1
        slots = self.config.compute.slots or 1
        if self.config.env.engine == "exact":
            task = environments.exact_task(self.config.env)
            # A task with a rigid-body world steps the worlds of several slots together.
            if task.has_world:
                return self._num_rollouts * min(environments.slots_per_call(task), slots)
        # The step of a large network takes most of the time, so a chunk should fill a tile of slots.
        return 1 if self.network.slot_size < _LARGE_SLOT else min(native.lanes(), slots)

    def on(self, backend_name: str) -> Config:
        """Return the configuration for a back end, with the number of slots on this back end."""
        changes: dict[str, Any] = {"backend": backend_name}
        if backend(backend_name) == "cupy" and self.device_slots is not None:
            changes["slots"] = self.device_slots
        return self.config.with_section("compute", **changes)

    def in_evaluation(self) -> "Experiment":
        """Return this experiment with the environment of its validation and held-out episodes."""
        return replace(self, config=self.config.in_evaluation())

    def strategy(self, seed: int) -> strategies.Strategy[Any]:
        """Return the strategy of a run with a seed. Raises InputError if the strategy refuses its settings."""
        start = None if self.start is None else self.start.genome
        return strategies.guarded(self.config.strategy, self.network, self.config.population, seed, start)


# The annotation is a text, because the names would make each worker import h5py.
def config_of(stored: "store.Stored | store.RunFile") -> Config:
    """Return the configuration in a run file or a champion file. Raises the errors of `load_config`."""
    return load_config(stored.header.config, str(stored.path))


def load_config(text: str, source: str = "the experiment") -> Config:
    """Return the configuration of a TOML text. Raises an InputError that names the source.

    Settings that are missing in an old file get their defaults. A configuration can be read even if its network or
    strategy is not installed. `prepare` refuses such a configuration.

    Args:
        text: The text in a run file, in a champion file, or in a message from another rank.
        source: The path of the file, or a description of the text, for errors.
    """
    try:
        table = read_table(text, source)
    except InputError as error:
        raise InputError(source, "an undamaged configuration", f"a damaged one ({error})") from None
    try:
        return parse(Config, table, lenient=True)
    except InputError as error:
        raise unknown_settings_error(source, error) from None


def unknown_settings_error(source: str, error: InputError) -> InputError:
    """Return the error for a file with settings that this version does not know. error: names the first of them."""
    expected = f"settings that version {__version__} of evolve knows"
    cure = "If a newer version wrote the file, use that version."
    return InputError(source, expected, f"unknown settings ({str(error).removesuffix('.')})", cure)


@environments.keeping_directory()
def prepare(config: Config) -> Experiment:
    """Return the experiment of a configuration with all its settings filled in and checked. Raises InputError.

    For the checks, the environment is made and closed again.
    """
    backend(config.compute.backend)  # raises InputError if the back end cannot be used here
    for warning in (NETWORKS.warning_of_shadowed(config.network), STRATEGIES.warning_of_shadowed(config.strategy)):
        _warn(warning)
    # Making the environment imports modules of the user. They may hang, or call functions that begin a run.
    with Watchdog(config.env.max_episode_seconds, fatal=True):
        with importing(config.env.id):
            engine = environments.make(config.env, slots=1)
        with closing(engine):
            return _prepare(config, engine)


@cache  # so that each warning appears once
def _warn(warning: str | None) -> None:
    if warning is not None:
        _LOG.warning(warning)


def _prepare(config: Config, engine: environments.Engine) -> Experiment:
    """Return the experiment of `prepare`. engine: the environment of the configuration, with one slot."""
    _check_randomized(config)
    # Fill in missing settings. The id of the engine includes the version of the environment, which a run file records.
    complete = _with_options(config.with_section("env", id=engine.id))
    network = networks.make(complete.network, engine.observation_size, engine.action_size)
    slots, hangs = config.compute.slots, False
    if slots is None:
        try:
            slots = _suggested_slots(config, network, engine.suggested_slots())
        except EpisodeTimeout:  # training will hang, too, and report it
            slots, hangs = _SLOTS_IF_HANGING, True
    complete = complete.with_section("compute", slots=slots)
    # Check the settings for which the sizes of the environment and the network must be known.
    _check_size(complete, network)
    _check_normalization(config, engine.observation_size)
    _warn(networks.check(complete.network, network, engine.action_size))
    if config.env.engine == "gymnasium" and config.compute.threads not in ("auto", 1):
        _warn("compute.threads has no effect here: threads play exact tasks and EnvPool, ranks play other environments")
    # Play a few episodes to check that a seed repeats its episode, that metrics are reported, and that episodes end.
    trial = None
    if config.compute.check and not hangs:
        fingerprints = environments.check_repeatable(engine, complete.env.reuse, slots)
        # Workers need not compare their fingerprints of an exact task, because it is the same on all ranks.
        if config.env.engine != "exact":
            trial = complete.env, fingerprints
        environments.check_metrics(engine)
        if environments.max_episode_steps(config.env) is None and environments.seems_endless(engine):
            # The environment may only be slow, so this is not an error.
            trouble = f"{engine.id} declares no limit of steps, and an episode did not end in a short trial"
            lasts = f"an episode without an end lasts for env.max_episode_seconds, {config.env.max_episode_seconds:g} s"
            _warn(f"{trouble}: {lasts}, unless env.max_episode_steps limits it")
    device_slots = None
    if config.compute.slots is None and config.env.engine == "exact":
        # This limit protects the host, which may keep traces or initial contents of all slots. The memory of the device
        # is checked later (`rollouts.with_fitting_slots`).
        most_slots = max(slots, _MOST_SLOT_NUMBERS // network.slot_size)
        device_slots = min(MOST_SLOTS, config.population * config.episodes, most_slots)
    return Experiment(complete, network, engine.action_size, engine.spaces, device_slots=device_slots, trial=trial)


def _check_normalization(config: Config, observation_size: int) -> None:
    """Raise InputError if a metric or `normalizer_generations` needs normalized observations that the run lacks.

    A metric mean_observation_N must also name one of the environment's observations.
    """
    for name in config.env.metrics:
        index = observation_index(name)
        if index is None:
            continue
        if not config.normalize_observations:
            cure = "The sums that the mean needs are only computed with ", Setting("normalize_observations", True), "."
            raise InputError("env.metrics", f"normalized observations with {name}", "unnormalized ones", *cure)
        if index >= observation_size:
            raise InputError("env.metrics", f"mean_observation_0 to mean_observation_{observation_size - 1}", name)
    if config.normalizer_generations is not None and not config.normalize_observations:
        cure = "Or set ", Setting("normalize_observations", True), "."
        expected = "none if observations are not normalized"
        raise InputError("normalizer_generations", expected, config.normalizer_generations, *cure)


def compute_of_run(config: Config) -> Table:
    """Return the settings of `compute` that a run keeps on every machine. All others suit one machine only."""
    table: Table = {"check": config.compute.check}
    # A user may ask for one slot, because the environments of several slots would affect one another in a process.
    # Exact tasks do not.
    if config.compute.slots == 1 and config.env.engine != "exact":
        table["slots"] = 1
    return table


def _with_options(config: Config) -> Config:
    """Return a configuration with all options of its network and strategy. Raises InputError.

    A champion plays without its strategy. So if a strategy comes from another package, and this package is missing,
    nothing is raised here, but later by `Experiment.strategy`.
    """
    strategy = STRATEGIES.parse(config.strategy, lenient=strategies.is_added(config.strategy))
    return config.model_copy(update={"network": NETWORKS.parse(config.network), "strategy": strategy})


def prepare_policy(config: Config, spaces: environments.Spaces) -> Experiment:
    """Return an experiment that can make policies. Its environment is not made, and need not be installed.

    Args:
        config: A complete configuration.
        spaces: The spaces of its environment.

    Raises:
        InputError: The network is not installed.
    """
    complete = _with_options(config)
    codec = environments.Codec(complete.env, spaces)
    network = networks.make(complete.network, codec.observation_size, codec.action_size)
    return Experiment(complete, network, codec.action_size, spaces)


def _check_randomized(config: Config) -> None:
    """Raise InputError if an argument cannot be randomized as configured, in training or in evaluation."""
    if config.env.randomize:
        environments.check_randomized(config.env)
    if config.evaluation_randomize is not None:
        try:
            environments.check_randomized(config.in_evaluation().env)
        except InputError as error:
            # An error of `InputError.plainly` has no parts from which another error could be made.
            if not error.expected:
                raise
            # The check names env.randomize, but the user has set evaluation_randomize.
            key = error.argument.replace("env.randomize", "evaluation_randomize")
            raise InputError(key, error.expected, error.got, *error.cure) from error


def _suggested_slots(config: Config, network: Network, environment_slots: int) -> int:
    """Return the number of slots that is probably fastest.

    environment_slots: The fastest number for the environment alone, which is the result unless large networks would
        not fit into a cache.
    """
    # Native kernels read the networks of all slots in each step, so large networks should stay in the cache. The exact
    # engine works on one tile of slots at a time, and needs no limit. A device needs many slots.
    may_use_device = config.compute.backend == "auto" and has_device()
    is_native = backend(config.compute.backend) == "native" and not may_use_device
    if network.slot_size < _LARGE_SLOT or config.env.engine == "exact" or not is_native:
        return environment_slots
    tile = native.lanes()  # the number of slots that a kernel steps in about the time of one
    whole_tiles = _CACHE_BYTES // (4 * network.slot_size) // tile * tile
    return min(environment_slots, max(tile, whole_tiles))


def _check_size(config: Config, network: Network) -> None:
    """Raise InputError if an experiment does not fit into the memory that this process may use."""
    P, E, W, slots = config.population, config.episodes, network.num_weights, config.compute.slots or 1
    validation = config.early_stop.episodes if config.early_stop.mean_return is not None else 0
    # The results of one evaluation are in memory together, so the largest evaluation counts.
    num_episodes, argument = max(
        (P * E, "population × episodes"),
        (config.held_out_episodes, "held_out_episodes"),
        (validation, "early_stop.episodes"),
    )
    available = usable_memory()
    # If kernels play whole episodes, each thread holds only the networks that a call steps together. To answer this,
    # `natively_plays_whole_episodes` makes a tile of networks, so ask it only if the tile fits.
    slot_bytes = 4 * network.slot_size
    tile_fits = backend(config.compute.backend) == "native" and native.lanes() * slot_bytes < available
    if tile_fits and natively_plays_whole_episodes(config):
        slots = min(slots, num_threads(config) * environments.slots_per_call(environments.exact_task(config.env)))
    # A strategy that is not installed here needs no memory, because it will not run.
    is_missing = isinstance(config.strategy.options, UnknownOptions)
    genome_bytes = 0 if is_missing else strategies.bytes_per_weight(config.strategy, network, P) * W
    result_bytes = _RESULT_BYTES * num_episodes
    needed = genome_bytes + result_bytes + slots * slot_bytes
    if needed > available:
        # Name the part that is too large: the episodes if their results alone do not fit; the slots if all else fits;
        # otherwise the genomes.
        sizes = f"{num_episodes:,} episodes"
        if result_bytes <= available:
            argument = "compute.slots" if genome_bytes + result_bytes <= available else "population × network.hidden"
            sizes = f"P = {P:,} candidates of W = {W:,} weights, E = {E:,} episodes each, and {slots:,} slots"
        expected = f"sizes that fit into {available / 1e9:,.1f} GB of memory"
        raise InputError(argument, expected, f"{sizes}: at least {needed / 1e9:,.1f} GB")


def validate_new_run(experiment: Experiment) -> None:
    """Raise InputError for settings that have no effect or contradict one another.

    Only new runs are checked, so that earlier run files with such settings can be resumed.
    """
    config, network = experiment.config, experiment.network
    # The network, and the strategy with seed 0.
    NETWORKS.validate(config.network)
    STRATEGIES.validate(config.strategy, network)
    make_strategy = partial(experiment.strategy, 0)
    strategy = make_strategy()
    strategies.check(config.strategy, make_strategy, network, config.population, config.env.metrics, config.generations)
    # The environment.
    for wrapper in config.env.wrappers:
        # The user may name the inner module that defines the class, such as gymnasium.wrappers.stateful_observation.
        module, _, name = wrapper.name.partition(":")
        public_name = f"gymnasium.wrappers:{name}"
        if module.startswith("gymnasium.wrappers") and public_name in _LEARNING_WRAPPERS:
            expected = "wrappers that keep nothing between episodes, because each episode has a new environment"
            raise InputError("env.wrappers", expected, wrapper.name, *_LEARNING_WRAPPERS[public_name])
    if config.env.kwargs.get("render_mode") == "human":
        cure = "To watch a champion: evolve replay FILE --window."
        raise InputError("env.kwargs.render_mode", "no window for each episode of the training", "human", cure)
    # The race.
    rounds, E = config.racing.rounds, config.episodes
    if rounds and rounds[-1] >= E:
        raise InputError("racing.rounds", f"numbers below {E}, the episodes of a candidate", list(rounds))
    if rounds and strategy.measured and not strategies.is_added(config.strategy):
        expected = f"no rounds with {config.strategy.name}, which keeps candidates for more than their fitness"
        raise InputError("racing.rounds", expected, list(rounds))
    keep, default = config.racing.keep, RacingOptions().keep
    if not rounds and keep != default:
        raise InputError("racing.keep", f"its default, {default}, without racing.rounds", keep)
    # The candidates and their fitness.
    _check_growth(experiment, strategy)
    if config.common_random_numbers == "pairs" and not strategy.antithetic:
        expected = f"true or false with {config.strategy.name}, whose candidates are not antithetic pairs"
        raise InputError("common_random_numbers", expected, "pairs", "openai-es, pgpe and snes have pairs.")
    _check_step_limits(experiment, strategy)
    _check_measures(experiment, strategy)
    check_fitness(config, network.num_weights)
    if config.connection_cost and strategies.shared_mask(config.strategy):
        expected = f"0 with {config.strategy.name}, whose candidates all have the same connections"
        raise InputError("connection_cost", expected, config.connection_cost)


def _check_measures(experiment: Experiment, strategy: strategies.Strategy[Any]) -> None:
    """Raise InputError if a strategy selects by a metric that `env.metrics` does not name."""
    # A strategy of another package may compute measures of its own from the genomes.
    if strategies.is_added(experiment.config.strategy):
        return
    metrics = experiment.config.env.metrics
    for name in strategy.measured:
        if name not in (*GENOME_MEASURES, *metrics):
            expected = f"{name} among the metrics that the environment reports, because the strategy selects by {name}"
            cure: tuple[str | Setting, ...] = (suggest(name, (*GENOME_MEASURES, *metrics)),)
            if observation_index(name) is not None:
                cure = "Name it: ", Setting("env.metrics", (*metrics, name)), "."
            raise InputError("env.metrics", expected, list(metrics), *cure)


def _check_growth(experiment: Experiment, strategy: strategies.Strategy[Any]) -> None:
    """Raise InputError if settings of a growing population are missing or invalid, or the strategy cannot grow."""
    config = experiment.config
    least, most, steps = config.least_population, config.population, config.num_interactions
    if least is None and steps is None:
        return
    if steps is None:
        raise InputError("num_interactions", "the number of steps at which the population stops growing", "none")
    # With even numbers, no antithetic pair is split.
    if least is None or least >= most or least % 2 or most % 2:
        expected = "two even numbers, the smaller first: the population grows between them until num_interactions"
        raise InputError("least_population, population", expected, f"{'none' if least is None else least}, {most}")
    if config.racing.rounds:
        raise InputError("racing.rounds", "none if the population grows", list(config.racing.rounds))
    traces = strategies.wanted_traces(strategy, experiment.network.num_traces)
    if not strategy.grows or traces != "none":
        expected = "openai-es, pgpe or snes, without pruning by traces, if the population grows"
        raise InputError("strategy.name", expected, config.strategy.name)


def _check_step_limits(experiment: Experiment, strategy: strategies.Strategy[Any]) -> None:
    """Raise InputError if a step limit of training episodes has no effect, or contradicts another setting."""
    config = experiment.config
    early_limit, usual_limit = config.early_max_episode_steps, environments.max_episode_steps(config.env)
    if early_limit is None and config.early_generations != Config.model_fields["early_generations"].default:
        expected = f"the largest number of steps of an episode in the first {config.early_generations:,} generations"
        raise InputError("early_max_episode_steps", expected, "none")
    if early_limit is not None and usual_limit is not None and early_limit >= usual_limit:
        expected = f"fewer steps than an episode may have later, {usual_limit:,}"
        raise InputError("early_max_episode_steps", expected, f"{early_limit:,}")
    for name in ("early_max_episode_steps", "episode_cap"):
        value = getattr(config, name)
        # Wrappers may skip steps, or include the number of remaining steps in observations.
        if value is not None and config.env.wrappers:
            expected = "none with env.wrappers, because wrappers count steps in another way"
            raise InputError(name, expected, value)
    if early_limit is not None:
        _check_scores_in_early_episodes(experiment, strategy)


def _check_scores_in_early_episodes(experiment: Experiment, strategy: strategies.Strategy[Any]) -> None:
    """Raise InputError if a strategy compares returns of early, shorter episodes with returns of later ones."""
    config = experiment.config
    options = config.strategy.table()
    if strategy.compares_generations:
        expected = f"none with {config.strategy.name}, which compares returns with the returns of earlier generations"
        raise InputError("early_max_episode_steps", expected, config.early_max_episode_steps)
    if options.get("restart_after", 0):
        expected = "0 if early episodes are shorter, because their returns are compared with returns of longer ones"
        raise InputError("strategy.restart_after", expected, options["restart_after"])
    # With `strategy.starts` a run begins with several searches (the starts), and goes on with the best of them. Their
    # returns can be compared only if all their episodes have the same limit.
    if starts_end := strategies.choosing_generations(config.strategy):
        _check_limit_of_starts(config.early_generations, starts_end, options.get("pruning_every", 0))


def _check_limit_of_starts(early_generations: int, starts_end: int, pruning_every: int) -> None:
    """Raise InputError unless the episodes of all starts have the same step limit, in each round of pruning.

    Args:
        early_generations: The setting, at least 1.
        starts_end: The number of generations of all starts together (`strategies.choosing_generations`).
        pruning_every: The number of generations of a round of pruning; 0 without pruning. Each round has new starts.
    """
    # The first generation with the usual step limit, counted from the first generation of its round.
    in_round = early_generations % pruning_every if pruning_every else early_generations
    if 0 < in_round < starts_end:
        round_begin = early_generations - in_round
        allowed = f"{round_begin:,}, or {round_begin + starts_end:,}" if round_begin else f"{starts_end:,}"
        expected = f"{allowed} or more, so that the episodes of all starts have the same step limit"
        raise InputError("early_generations", expected, early_generations)


def natively_plays_whole_episodes(config: Config) -> bool:
    """Return whether native kernels play whole episodes: if the task is exact, and network batches are `SlotArrays`."""
    if config.env.engine != "exact" or backend(config.compute.backend) != "native":
        return False
    _, network = exact_parts(config)
    return isinstance(network.batch(1, "native"), SlotArrays)


def exact_parts(config: Config) -> tuple[environments.AnyTask, Network]:
    """Return the exact task of a configuration, and its network."""
    task = environments.exact_task(config.env)
    return task, networks.make(config.network, task.observation_size, task.action_size)


def num_threads(config: Config) -> int:
    """Return the number of threads in which this process plays the episodes of a configuration."""
    wanted = config.compute.threads
    if config.env.engine == "envpool":  # its waiting threads keep cores busy, so the default is one thread
        return 1 if wanted == "auto" else wanted
    if wanted == 1 or not natively_plays_whole_episodes(config):
        return 1
    return share_of_cores() if wanted == "auto" else wanted


@dataclass(frozen=True)
class PlannedRun:
    """A run to begin or to resume, with the path of its file."""

    experiment: Experiment
    seed: int
    path: Path
