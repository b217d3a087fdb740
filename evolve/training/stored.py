"""Reads experiments and genomes of run files and champion files, for this process or as the start of a new run.

`reload` and `reload_policy` return the experiment of a file. `chosen_genome` returns the final champion, or another
genome of the run, with the normalizer of its observations.

`with_start` gives a new run the genome with which its search begins: the start, from a file or from the caller. The
configuration of the new run records the digest of this genome (`start_from.digest`), and its run file has the genome
itself. So the new run can be resumed and verified even if the source of the genome has changed or is missing.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evolve import environments, networks, store
from evolve.config import ComputeOptions, Config, StartFromOptions, UnknownKeyError, parse, plain
from evolve.errors import InputError, check_whole, pluralize
from evolve.genome import Block, Genomes
from evolve.networks import NETWORKS
from evolve.shapes import Float32
from evolve.store import Start, Stored, StoredChampion, StoredRun, disk
from evolve.training.experiment import (
    Experiment,
    PlannedRun,
    compute_of_run,
    config_of,
    prepare,
    prepare_policy,
    unknown_settings_error,
)
from evolve.training.resume import RunState, champion_normalizer, changed_sizes, restore, restore_moments

StartSource = Stored | Start | Genomes
"""The source of a start, in memory: the content of a file, the start of another run, or a genome (P = 1)."""


def reload(
    run: Stored,
    env: Mapping[str, Any] | None = None,
    network: Mapping[str, Any] | None = None,
    engine: str | None = None,
    threads: int | str = "auto",
    trains: bool = False,
) -> Experiment:
    """Return the experiment of a run file or a champion file, with the compute settings of this machine.

    Args:
        run: The file.
        env: Changed settings of the environment (`EnvOptions.changed`), such as {"kwargs": {"gravity": 12.0}}.
        network: Changed settings of the network, such as {"plasticity": 0.0}. Its connections must stay the same.
        engine: An engine that replaces the engine of the file. The replaced engine need not be installed.
        threads: The number of threads, as `compute.threads`.
        trains: Whether the caller also plays training episodes of a champion file, and not only held-out and validation
            episodes.

    Raises:
        InputError: The configuration cannot be used here, or does not fit the stored generations.
    """
    changes = dict(env or {})
    config = config_of(run)
    # If the changes name another environment, their engine is for that environment. Otherwise it is for the file's.
    keeps_id = changes.get("id", config.env.id) == config.env.id
    if keeps_id:
        engine = changes.pop("engine", engine)
    # Change the engine.
    if engine is not None:
        # Apply engine and changes together, because the changes may drop arguments that the engine does not take.
        config = config.with_env_changes({**(changes if keeps_id else {}), "engine": engine})
        if isinstance(run, StoredChampion) and not trains:
            # Only evaluation episodes are played, so their environment takes the place of the training environment.
            # Other engines refuse settings that only exact tasks have, even with default values, so leave these out.
            played = config.in_evaluation().env
            config = config.with_env(played if engine == "exact" else environments.without_defaults(played))
    compute = parse(ComputeOptions, {**compute_of_run(config), "threads": plain(threads)}, "compute")
    # If another environment replaces the file's, the file's need not be installed.
    if not keeps_id and run.header.spaces is not None:
        policy = reload_policy(run)
        config = policy.config.model_copy(update={"compute": compute})
        other_engine = {"engine": engine} if engine else {}
        experiment = _with_environment(replace(policy, config=config), other_engine | changes)
        return with_network(experiment, network) if network else experiment
    # Make the experiment of the file.
    start = _recorded_start(run, config)
    try:
        experiment = replace(prepare(config.model_copy(update={"compute": compute})), start=start)
    except UnknownKeyError as error:
        raise unknown_settings_error(str(run.path), error) from None
    except InputError as error:
        # If the environment is not registered here, the error advises to change `env.id`. But `env.id` is in the file,
        # and perhaps a notebook registered the environment. So give another advice.
        if (error.argument, error.expected) != ("env.id", "a registered environment") or ":" in config.env.id:
            raise
        evaluate = f"python -m evolve.evaluate {shlex.quote(str(run.path))} --env module:{config.env.id}"
        cure = (
            "The file does not name the module that registers this environment. In Python, import that module first. "
            f"On the command line, name it in place of `module`: {evaluate}"
        )
        raise InputError("env.id", error.expected, error.got, cure) from None
    # The stored arrays must fit the experiment before the network or the environment is replaced.
    if not _fits(run, experiment):
        if engine is not None:
            expected = f"an engine in which {config.env.id} has the observations and actions of {run.path}"
            raise InputError("env.engine", expected, engine)
        if changed := changed_sizes(run, experiment):
            raise InputError("env.id", *changed, "The environment has changed since the run. Restore it.")
        raise InputError(str(run.path), "generations that fit its configuration", "arrays of other sizes")
    if network:
        experiment = with_network(experiment, network)
    return _with_environment(experiment, changes) if changes else experiment


def reload_policy(run: Stored) -> Experiment:
    """Return the experiment of a file, to make policies. The environment need not be installed.

    Raises:
        InputError: The file is damaged. Or an earlier version of evolve wrote it, without the spaces of its
            environment, and the environment cannot be made here.
    """
    path = str(run.path)
    # If the file has no spaces, the numbers of observations and actions are known from the environment only.
    if run.header.spaces is None:
        try:
            return reload(run)
        except (InputError, ImportError) as error:  # ImportError: without Gymnasium
            expected = "a file with the spaces of observations and actions, or its environment on this machine"
            cure = "Export the champion where its environment is installed, with this version of evolve."
            got = f"a file of an earlier version, and: {error}"
            raise InputError(path, expected, got, cure) from None
    config = config_of(run)
    compute = ComputeOptions(check=config.compute.check)
    try:
        spaces = environments.Spaces.from_json(run.header.spaces)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(path, "the spaces of an environment", f"damaged ones ({error})") from None
    prepared = prepare_policy(config.model_copy(update={"compute": compute}), spaces)
    experiment = replace(prepared, start=_recorded_start(run, config))
    if not _fits(run, experiment):
        raise InputError(path, "generations that fit its configuration", "arrays of other sizes")
    return experiment


def _recorded_start(run: Stored, config: Config) -> Start | None:
    """Return the genome with which a stored run began; None for random genomes.

    config: The configuration of the file. Raises InputError if its digest of the genome is another one, or is missing.
    """
    start = run.header.start
    # None for random genomes. "" for a missing digest: it differs from every digest.
    recorded_digest = None if config.start_from is None else (config.start_from.digest or "")
    digest = None if start is None else start.digest
    if recorded_digest != digest:
        raise InputError(str(run.path), "the start that its configuration records", "another one, or none")
    return start


def _fits(run: Stored, experiment: Experiment) -> bool:
    """Return whether the stored arrays have the sizes and the metrics of an experiment."""
    W = experiment.network.num_weights
    if experiment.start is not None and len(experiment.start.weights) != W:
        return False
    if isinstance(run, StoredChampion):
        return len(run.held_out.weights) == W
    if not run.records:
        return True
    first = run.records[0]
    shape = (experiment.config.population, experiment.config.episodes)
    same_metrics = set(first.metrics) == set(experiment.config.env.metrics)
    return first.returns.shape == shape and len(first.champion_weights) == W and same_metrics


def _with_environment(experiment: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """Return an experiment with other settings of its environment, but the same numbers of observations and actions."""
    other = replace(prepare(experiment.config.with_env_changes(changes)), start=experiment.start)
    O, A = experiment.network.observation_size, experiment.action_size
    other_O, other_A = other.network.observation_size, other.action_size
    if (other_O, other_A) != (O, A):
        got = f"{other.config.env.id}, of {other_O} and {other_A}"
        raise InputError("env", f"an environment of the champion's {O} observations and {A} actions", got)
    return other


def with_network(experiment: Experiment, settings: Mapping[str, Any], for_policy: bool = False) -> Experiment:
    """Return an experiment with other settings of the network, but the same connections.

    Raises InputError for settings without effect, or with which the champion does not fit the network.

    for_policy: Whether the experiment makes policies only, so that its environment need not be installed.
    """
    if not isinstance(settings, Mapping):
        raise InputError("network", 'a table of settings, such as {"plasticity": 0.0}', repr(settings))
    table = experiment.config.network.table()
    section = NETWORKS.parse({**table, **settings})
    # Refuse two settings of initial genomes. In a network of another package they may have another meaning.
    for key in settings:
        if key in ("init_scale", "init_sparsity") and settings[key] != table.get(key) and table["name"] in NETWORKS:
            expected = "a setting that acts on a champion; this one acts on initial genomes alone"
            raise InputError(f"network.{key}", expected, settings[key])
    # Refuse other settings without effect, such as `trace_rate` in a neuromodulated network.
    if any(section.table().get(key) != table.get(key) for key in settings):
        NETWORKS.validate(section)
    config = experiment.config.model_copy(update={"network": section})
    prepared = prepare_policy(config, experiment.spaces) if for_policy else prepare(config)
    other = replace(prepared, start=experiment.start)
    name = experiment.config.network.name
    # The genome keeps its meaning only in a network of the same kind with the same matrices.
    if other.config.network.name != name or other.network.blocks != experiment.network.blocks:
        got = ", ".join(f"{key}={value}" for key, value in settings.items())
        raise InputError("network", f"settings with which a {name} has the champion's connections", got)
    return other


@dataclass(frozen=True)
class GenomeChoice:
    """The choice of a genome of a run by one of the attributes. If all are None, the genome is the final champion.

    Attributes:
        generation: The best candidate of this generation.
        connections: The best genome in the strategy's state with at most this number of acting connections.
        member: This genome of the front, counted from 0 in the order of `Run.front`.
        cell: The elite of this cell of the archive.
    """

    generation: int | None = None
    connections: int | None = None
    member: int | None = None
    cell: Sequence[int] | None = None

    @property
    def criteria(self) -> dict[str, Any]:
        """The attributes that are not None, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def is_final_champion(self) -> bool:
        """Whether the genome is the final champion."""
        return not self.criteria

    @property
    def title(self) -> str:
        """The genome in words; empty for the final champion."""
        if self.connections is not None:
            return f"best with at most {pluralize(self.connections, 'acting connection')}"
        if self.member is not None:
            return f"member {self.member} of the front"
        if self.cell is not None:
            return f"elite of cell {','.join(map(str, self.cell))}"
        return "" if self.generation is None else f"best of generation {self.generation}"


def chosen_genome(
    experiment: Experiment, run: Stored, which: GenomeChoice = GenomeChoice(), prefix: str = ""
) -> tuple[Genomes, Float32 | None]:
    """Return the genome (P = 1) that `which` chooses, and the normalizer [2, O] of its observations.

    The normalizer is None if observations are not normalized.

    Args:
        experiment: The experiment of the run.
        run: A run with a complete generation, or a champion file.
        which: The genome; by default the final champion.
        prefix: The beginning of the names of settings in errors, such as "start_from.".

    Raises:
        InputError: The run has no such genome, or the file is damaged.
    """
    check_which(run, which, prefix)
    if isinstance(run, StoredChampion):
        # The normalizer in the file must have the size that follows from the configuration; None for no normalizer.
        size = experiment.network.observation_size if experiment.config.normalize_observations else None
        stored_size = None if run.normalizer is None else run.normalizer.shape[1]
        if stored_size != size:
            raise InputError(str(run.path), "a normalizer that fits its configuration", "another normalizer, or none")
        return run.held_out.champion, run.normalizer
    if which.is_final_champion:
        return newest_champion(experiment, run)
    generation = which.generation
    if generation is not None:
        return run.records[generation].champion, normalizer_of(experiment, run, generation)
    strategy, state = restore(experiment, run)
    try:
        genome = strategy.select(state, **which.criteria)
    except InputError as error:
        raise InputError(f"{prefix}{error.argument}", error.expected, error.got, *error.cure) from None
    # An elite of an archive was evaluated in one generation only, and gets the normalizer of that generation. Other
    # genomes are evaluated again in each generation, and get the present normalizer.
    generation = run.num_generations
    if which.cell is not None:
        generation, _ = strategy.origin(state, which.cell)
    return genome, normalizer_of(experiment, run, generation)


def newest_champion(experiment: Experiment, run: RunState) -> tuple[Genomes, Float32 | None]:
    """Return the champion (P = 1) after the last complete generation of a run, and its normalizer [2, O] or None.

    Raises InputError if the checkpoint is damaged.
    """
    strategy, state = restore(experiment, run)
    normalizer = champion_normalizer(experiment, run)
    # Without a normalizer of the champion's own generation, the present one applies.
    if normalizer is None and experiment.config.normalize_observations:
        normalizer = restore_moments(experiment, run).normalizer()
    return strategy.champion(state), normalizer


def check_which(run: Stored, which: GenomeChoice, prefix: str = "") -> None:
    """Raise InputError if a choice has several attributes, is in a champion file, or names a missing generation.

    prefix: The beginning of the names of settings in errors, such as "start_from.".
    """
    settings = {f"{prefix}{name}": value for name, value in which.criteria.items()}
    if len(settings) > 1:
        raise InputError(" and ".join(settings), "one of these settings", "several")
    for name, value in settings.items():
        require_run_file(run, name, value)
    argument, generation = f"{prefix}generation", which.generation
    if generation is not None and check_whole(argument, generation, 0) >= run.num_generations:
        raise InputError(argument, f"one of 0 to {run.num_generations - 1}", generation)


def require_run_file(run: Stored, argument: str, value: Any) -> None:
    """Raise InputError if an argument that needs a run file has a value, but `run` is a champion file."""
    if value is not None and not isinstance(run, StoredRun):
        raise InputError(argument, f"none with {run.path}, which has the final champion alone", value)


def normalizer_of(experiment: Experiment, run: StoredRun, generation: int) -> Float32 | None:
    """Return the normalizer [2, O] of a generation; None if observations are not normalized.

    generation: at most the generation after the last complete one. Raises InputError if the file lacks the normalizer.
    """
    if not experiment.config.normalize_observations:
        return None
    if generation >= run.num_generations:
        return restore_moments(experiment, run).normalizer()
    normalizer = run.records[generation].normalizer
    if normalizer is None or normalizer.shape[1] != experiment.network.observation_size:
        raise InputError(str(run.path), f"the normalizer of generation {generation}", "no normalizer that fits")
    return normalizer


def with_start(run: PlannedRun, resume: bool, source: StartSource | None) -> PlannedRun:
    """Return a run with the start that `start_from` names. Without that setting the run is unchanged.

    Args:
        run: The run.
        resume: Whether the run is resumed if its file exists. Then the start is in this file.
        source: The source of the start, if the caller has it in memory.

    Raises:
        InputError: The source cannot be read, or its genome does not fit the network.
    """
    experiment = run.experiment
    setting = experiment.config.start_from
    if setting is None:
        _check_frozen(experiment, None)
        return run
    # A resumed run has the start in its own file, so the source may have changed or be missing.
    recorded = _start_in_file(run, setting) if resume and disk.exists(run.path) else None
    if recorded is None:
        start = _load_start(setting, source, experiment, run.seed)
        recorded = setting.model_copy(update={"digest": start.digest}), start
    setting, start = recorded
    # `_load_start` has checked the size of a genome from a file. Here only the run's own file or an object of the
    # caller can have another size.
    _check_size(start.weights, experiment, "the run file" if source is None else "the given genome")
    _check_frozen(experiment, start)
    config = experiment.config.model_copy(update={"start_from": setting})
    return replace(run, experiment=replace(experiment, config=config, start=start))


def _start_in_file(run: PlannedRun, setting: StartFromOptions) -> tuple[StartFromOptions, Start] | None:
    """Return the setting with its digest, and the start, from the file of a run that is resumed.

    None if the file has another start, or random genomes.
    """
    stored = store.read(run.path)
    config = config_of(stored)
    recorded, start = config.start_from, _recorded_start(stored, config)
    if recorded is None or start is None:
        return None
    # Compare the settings, and not the genomes, because the file that the setting names may have changed since.
    return (recorded, start) if setting.is_same(recorded) else None


def _load_start(setting: StartFromOptions, source: StartSource | None, experiment: Experiment, seed: int) -> Start:
    """Return the start that a setting names. seed: the seed of the run, which selects a file in a directory."""
    if source is None:
        if setting.file is None:
            got = "a digest alone" if setting.digest else "none"
            cure = "In Python: start_from=run.start."
            raise InputError("start_from.file", "a run file or a champion file", got, cure)
        path = Path(os.path.expanduser(setting.file))  # no shell expands "~" in a file or in Python
        # If the path is a directory, each seed takes its own run file in it.
        if os.path.isdir(path):
            path = _run_of_seed(path, seed)
        elif disk.why_missing(path) == "no such file":  # reading the file reports other reasons
            raise InputError("start_from", "a run file, its directory or a champion file", f"{path}: no such file")
        source = store.read_any(path)
    match source:
        case Genomes():
            start = Start(source.weights[0], source.mask[0], np.zeros(1, np.int64))
        case Start():
            start = source
            # Without a normalizer, the start fits a run with or without normalized observations, as `Genomes` do.
            if start.normalizer is not None:
                _check_normalization(True, experiment, "the given start")
        case _:
            which = GenomeChoice(**setting.model_dump(exclude={"file", "digest"}))
            start = _start_from_file(source, which, experiment)
    if setting.digest not in (None, start.digest):
        reason = "The source has changed"
        if setting.file is not None and os.path.isdir(os.path.expanduser(setting.file)):
            reason = "The digest is of another seed in this directory, or the source has changed"
        cure = f"{reason}. Without start_from.digest the run begins with the present genome."
        raise InputError("start_from.digest", f"{start.digest}, the digest of the source", setting.digest, cure)
    return start


def _run_of_seed(directory: Path, seed: int) -> Path:
    """Return the run file of a seed in a directory. Raises InputError if there is none."""
    path = store.path_of(directory, seed)
    # If the directory cannot be accessed, reading the file will fail with a better message.
    if not os.path.exists(path) and os.access(directory, os.X_OK):
        expected = f"a directory with a run of the same seed, {path.name}"
        cure = "To begin every seed with one genome, name its run file or its champion file."
        raise InputError("start_from", expected, str(directory), cure)
    return path


def _start_from_file(stored: Stored, which: GenomeChoice, experiment: Experiment) -> Start:
    """Return a genome of a file as the start of a new experiment."""
    source = _source_experiment(stored, experiment)
    if not stored.num_generations:
        raise InputError("start_from", "a run with a complete generation", f"{stored.path}, which has none yet")
    genome, normalizer = chosen_genome(source, stored, which, "start_from.")
    count = 0 if normalizer is None else num_observations(source, stored, which)
    return Start(genome.weights[0], genome.mask[0], np.array([count], np.int64), normalizer)


def num_observations(experiment: Experiment, stored: Stored, which: GenomeChoice = GenomeChoice()) -> int:
    """Return the number of observations from which the normalizer of a genome was computed (`chosen_genome`)."""
    # The normalizer of a generation is computed from all earlier generations, but at most from the first
    # `normalizer_generations` (`until_frozen`). A generation of None means after the last generation.
    steps, until_frozen = stored.steps, experiment.config.normalizer_generations
    if isinstance(stored, StoredRun):
        generation = which.generation
        strategy, state = restore(experiment, stored)
        if which.cell is not None:
            generation, _ = strategy.origin(state, which.cell)
        elif which.is_final_champion and champion_normalizer(experiment, stored) is not None:
            generation = strategy.champion_generation(state)
        steps = sum(int(earlier.steps) for earlier in stored.records[:generation][:until_frozen])
    elif stored.num_observations is not None:
        return stored.num_observations
    elif until_frozen is not None and until_frozen < stored.num_generations:
        # A champion file of an earlier version: assume that all generations have the same number of steps.
        steps = steps * until_frozen // stored.num_generations
    # If the source itself began with a normalizer, the observations of that normalizer count, too.
    return steps + (0 if experiment.start is None else int(experiment.start.num_observations[0]))


def _source_experiment(stored: Stored, experiment: Experiment) -> Experiment:
    """Return the experiment of a file from which a new experiment takes its start. Its environment is not made.

    Raises InputError if the champions of the file do not fit the network of the new experiment.
    """
    config = config_of(stored)
    _check_normalization(config.normalize_observations, experiment, str(stored.path))
    target = experiment.network
    network = networks.make(NETWORKS.parse(config.network), target.observation_size, experiment.action_size)
    source = replace(experiment, config=config, network=network, start=_recorded_start(stored, config))
    # Genomes of equal size may have other matrices, so the matrices are compared, too.
    if not stored.num_generations or (_fits(stored, source) and network.blocks == target.blocks):
        return source
    weights = stored.held_out.weights if isinstance(stored, StoredChampion) else stored.records[0].champion_weights
    name = f"{stored.path}, {config.network.name} for {config.env.id}"
    # The champions do not fit: name the sizes if the sizes differ, otherwise the matrices.
    _check_size(weights, experiment, name)
    got = f"{name} with {_sizes(network.blocks)}"
    raise InputError("start_from", f"a genome of {_described(experiment)} with {_sizes(target.blocks)}", got)


def _check_size(weights: Float32, experiment: Experiment, source: str) -> None:
    """Raise InputError if weights [W] do not fit the network of an experiment. source: the source in words."""
    if len(weights) != experiment.network.num_weights:
        expected = f"a genome of {experiment.network.num_weights:,} weights for {_described(experiment)}"
        raise InputError("start_from", expected, f"{len(weights):,} weights of {source}")


def _check_normalization(normalized: bool, experiment: Experiment, source: str) -> None:
    """Raise InputError if only one of an experiment and its start normalizes observations.

    Args:
        normalized: Whether the start has evolved with normalized observations.
        experiment: The experiment.
        source: The source of the start, in words.
    """
    setting = experiment.config.normalize_observations
    if normalized != setting:
        expected = f"{str(normalized).lower()} as in {source}, because the genome evolved with such observations"
        raise InputError("normalize_observations", expected, str(setting).lower())


def _check_frozen(experiment: Experiment, start: Start | None) -> None:
    """Raise InputError if all generations should use the normalizer of the start, but the start has no normalizer."""
    if experiment.config.normalizer_generations == 0 and (start is None or start.normalizer is None):
        expected = "at least 1, or start_from a run with normalized observations"
        raise InputError("normalizer_generations", expected, 0)


def _described(experiment: Experiment) -> str:
    """Return the network of an experiment in words, such as "mlp (4 observations and 2 outputs)"."""
    network = experiment.network
    sizes = f"{network.observation_size} observations and {experiment.action_size} outputs"
    return f"{experiment.config.network.name} ({sizes})"


def _sizes(blocks: tuple[Block, ...]) -> str:
    """Return the sizes of the matrices of a network, in words."""
    return "matrices " + ", ".join(f"{block.rows} × {block.columns}" for block in blocks)
