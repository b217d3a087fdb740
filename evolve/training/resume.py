"""The run files of experiments: new runs are checked and begun, earlier ones are resumed."""

import logging
import shlex
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from evolve import __version__, environments, store, strategies
from evolve.cluster import Transport
from evolve.config import Config, Table, differences
from evolve.errors import InputError, Stopped, pluralize
from evolve.networks import NETWORKS
from evolve.store import Header, RunFile, StoredRun
from evolve.strategies import STRATEGIES
from evolve.training.experiment import Experiment, PlannedRun, is_portable, load_config
from evolve.training.manifest import manifest, revision
from evolve.training.run_log import RunState, restore

_LOG = logging.getLogger("evolve")


def validate_new_run(experiment: Experiment) -> None:
    """Raise InputError for settings that have no effect, or defeat themselves; runs that have begun may have them."""
    config = experiment.config
    NETWORKS.validate(config.network)
    STRATEGIES.validate(config.strategy, experiment.network)
    rounds, E = config.racing.rounds, config.episodes
    if rounds and rounds[-1] >= E:
        raise InputError("racing.rounds", f"fewer episodes than a candidate has, {E} (episodes)", list(rounds))
    _check_growth(experiment)
    _check_step_limits(experiment)
    if config.connection_cost and strategies.shared_mask(config.strategy):
        expected = f"0 with {config.strategy.name}, whose candidates all have the same connections"
        raise InputError("connection_cost", expected, config.connection_cost)


def _check_growth(experiment: Experiment) -> None:
    """Raise InputError for a population that is to grow, and cannot."""
    config = experiment.config
    least, most, steps = config.least_population, config.population, config.num_interactions
    if least is None and steps is None:
        return
    if steps is None:
        raise InputError("num_interactions", "steps until which the population grows from least_population", "none")
    if least is None or least >= most or least % 2 or most % 2:
        expected = "two even numbers, the smaller first, between which it grows until num_interactions"
        raise InputError("least_population, population", expected, f"{'none' if least is None else least}, {most}")
    if config.racing.rounds:
        raise InputError("racing.rounds", "none where the population grows", list(config.racing.rounds))
    strategy = experiment.strategy(0)
    traces = strategies.wanted_traces(strategy, experiment.network.num_traces)
    if not strategy.grows or traces != "none":
        expected = "openai-es or pgpe, without pruning by traces, where the population grows"
        raise InputError("strategy.name", expected, config.strategy.name)


def _check_step_limits(experiment: Experiment) -> None:
    """Raise InputError for limits of steps of training episodes that shorten nothing, or defeat something else."""
    config = experiment.config
    early, usual = config.early_max_episode_steps, environments.max_episode_steps(config.env)
    if early is None and config.early_generations != Config.model_fields["early_generations"].default:
        expected = f"the steps that episodes have at most in the first {config.early_generations:,} generations"
        raise InputError("early_max_episode_steps", expected, "none")
    if early is not None and usual is not None and early >= usual:
        expected = f"fewer steps than an episode may have later, {usual:,}"
        raise InputError("early_max_episode_steps", expected, f"{early:,}")
    for name in ("early_max_episode_steps", "episode_cap"):
        value = getattr(config, name)
        if value is not None and config.env.wrappers:  # they may skip steps, or show how many are left
            expected = "none with env.wrappers, for these count steps in another way"
            raise InputError(name, expected, value)
    if early is not None:
        _check_scores_in_early_episodes(experiment)


def _check_scores_in_early_episodes(experiment: Experiment) -> None:
    """Raise InputError for a strategy that compares the returns of short episodes at first with those of later ones."""
    config = experiment.config
    options = config.strategy.table()
    if experiment.strategy(0).compares_generations:
        expected = f"none with {config.strategy.name}, which compares returns with those of earlier generations"
        raise InputError("early_max_episode_steps", expected, config.early_max_episode_steps)
    if options.get("restart_after", 0):
        expected = "0 where episodes are short at first, for their returns are compared with those of longer ones"
        raise InputError("strategy.restart_after", expected, options["restart_after"])
    if options.get("starts", 1) > 1:
        all_starts = options["starts"] * options.get("start_generations", 0)
        _check_lengths_of_starts(config.early_generations, all_starts, options.get("pruning_every", 0))


def _check_lengths_of_starts(early: int, all_starts: int, pruning_every: int) -> None:
    """Raise InputError unless all starts of a search, also of one after a round of pruning, are of one length."""
    one_length = "so that all starts have episodes of one length"
    if early < all_starts:
        expected = f"starts × start_generations, {all_starts:,}, or more, {one_length}"
        raise InputError("early_generations", expected, early)
    if pruning_every and 0 < early % pruning_every < all_starts:
        least = early - early % pruning_every
        expected = f"{least:,}, or {least + all_starts:,} or more, for each round begins with its starts, {one_length}"
        raise InputError("early_generations", expected, early)


SpotCheck = Callable[[StoredRun, Experiment, Callable[[], str | None]], str | None]
"""Plays one logged episode again; returns how it differs from the log, None for not at all."""


def experiment_table(path: Path) -> Table:
    """Return the experiment of a run file as a table, to resume it; `compute` is default again, all but `check`.

    Raises InputError when it is no run file.
    """
    run = store.read(path)
    config = load_config(run.header.config, str(path))
    table: Table = config.model_dump(mode="json", exclude_none=True)
    table |= {"seeds": [run.header.seed], "compute": {"check": config.compute.check}}
    table["output"]["directory"] = str(path.parent)
    return table


def generations_on_disk(file: RunFile) -> str:
    """Return in words how many generations a file holds."""
    if file.replaces:
        return f"no new generation is complete, so {file.path} is what it was"
    are = "is" if file.on_disk == 1 else "are"
    return f"{pluralize(file.on_disk, 'generation')} {are} complete in {file.path}"


def check_same_run(config: Config, stored: Config, path: Path) -> None:
    """Raise InputError unless seed, directory, network and strategy are those of the run file that is resumed."""
    _require_equal("seeds", config.seeds, stored.seeds, path)
    _require_equal("output.directory", _directory(config), _directory(stored), path)
    check_same_names({"network": config.network.table(), "strategy": config.strategy.table()}, stored, path)


def check_same_names(table: Table, stored: Config, path: Path) -> None:
    """Raise InputError unless a table names the network and strategy of the run file that is resumed."""
    for section, choice in (("network", stored.network), ("strategy", stored.strategy)):
        _require_equal(f"{section}.name", table[section]["name"], choice.name, path)


def _require_equal(key: str, ours: object, theirs: object, path: Path) -> None:
    if ours != theirs:
        raise InputError(f"{key}, resuming {path}", f"{theirs!r} as in the run file", ours)


def _directory(config: Config) -> str:
    return str(Path(config.output.directory or "."))


def check_and_create_runs(
    runs: Sequence[PlannedRun],
    resume: bool,
    transport: Transport,
    stop_reason: Callable[[], str | None],
    spot_check: SpotCheck,
    overwrite: bool = False,
) -> list[PlannedRun]:
    """Check all files before anything is computed: those that are there, then new ones, which are created empty.

    Args:
        runs: What is planned.
        resume: Whether runs whose files exist are resumed.
        transport: Whose ranks a new file's manifest describes.
        stop_reason: Called often; returns why to stop, or None.
        spot_check: Plays a logged episode of a run that is resumed.
        overwrite: Whether runs whose files exist are replaced: by `replace_run`, when it is their turn.

    Returns:
        The runs that are new.

    Raises:
        InputError: A file cannot be continued so, or is there already, or cannot be written.
        Stopped: Somebody asked for it.
    """
    there = {run.path for run in runs if _is_kept(run, resume, overwrite)}
    for run in runs:
        if run.path in there and resume:
            _check_continuation(run, stop_reason, spot_check)
        elif run.path in there:
            with closing(store.reopen(run.path)) as file:
                check_replaceable(run, file)
                _check_nobody_writes(file)
    new = [run for run in runs if run.path not in there]
    for run in runs if overwrite else new:
        validate_new_run(run.experiment)
    for run in new:  # none is made where another cannot be
        store.check_free(run.path)
    for run in new:
        store.create(run.path, _header(run, transport)).close()
    return new


def _is_kept(run: PlannedRun, resume: bool, overwrite: bool) -> bool:
    """Return whether the file of a run is there, to be resumed; or to be replaced, unless nothing can be lost."""
    return (resume or overwrite) and store.exists(run.path) and (resume or not store.is_empty(run.path))


def _header(run: PlannedRun, transport: Transport) -> Header:
    config = run.experiment.config
    about = manifest(transport, run.experiment.backend, is_portable(config))
    return Header(config.to_toml(), about, run.seed, config.env.id)


def check_replaceable(run: PlannedRun, there: RunState) -> None:
    """Raise InputError unless what is in the place of a run is a run of the same experiment and seed."""
    other: list[tuple[str, object, object]] = []
    if there.header.seed != run.seed:
        other.append(("seed", run.seed, there.header.seed))
    other += differences(run.experiment.config, load_config(there.header.config, str(there.path)))
    if other:
        key, ours, theirs = other[0]
        what = f"{there.path} is of another experiment: {key} is {theirs!r} in it, and {ours!r} here."
        cure = (
            "overwrite=True replaces runs of the same experiment only. Choose another output.directory, or remove it."
        )
        raise InputError.plainly("output.directory", f"{what} {cure}")


def _check_nobody_writes(file: RunFile) -> None:
    """Raise InputError for an unfinished run file on a file system without locks: its writer may be at work."""
    if not (file.lock.holds or file.complete):
        message = (
            f"{file.path} is not complete, and its file system has no locks to tell whether somebody is writing it."
        )
        raise InputError.plainly(
            "output.directory", f"{message} Remove it yourself, or choose another output.directory."
        )


def replace_run(run: PlannedRun, transport: Transport) -> RunFile:
    """Return the file of a run that begins anew: it takes the place of the one that is there with its first generation.

    Raises InputError when somebody is writing that one, or it is another experiment's by now.
    """
    file = store.replace(run.path, _header(run, transport))
    try:
        if store.exists(run.path):
            check_replaceable(run, store.read(run.path))
    except InputError:
        file.close()
        raise
    return file


def open_run(run: PlannedRun) -> RunFile:
    """Reopen the file of a run that has been checked, with the present configuration.

    If generations or held-out episodes are left to do, it is no longer complete and its held-out evaluation is dropped.
    Raises InputError when it is another experiment's by now: nobody has locked it since it was checked.
    """
    file = store.reopen(run.path)
    config = run.experiment.config
    try:
        check_configuration(run, file)
    except InputError:
        file.close()
        raise
    if not file.complete or has_more_to_do(file, config):
        file.complete = False
        file.held_out = None
    file.header = Header(config.to_toml(), file.header.manifest, file.header.seed, file.header.env)
    return file


def has_more_to_do(file: RunFile | StoredRun, config: Config) -> bool:
    """Return whether a complete run lacks generations or held-out episodes of its present configuration."""
    stored = load_config(file.header.config, str(file.path))
    stopped_early = file.num_generations < stored.generations  # it was complete all the same
    stops_again = stopped_early and stored.early_stop == config.early_stop
    held_out = 0 if file.held_out is None else len(file.held_out.returns)
    unevaluated = held_out < config.held_out_episodes or not stored.evaluates_like(config)
    return unevaluated or (file.num_generations < config.generations and not stops_again)


def _check_continuation(run: PlannedRun, stop_reason: Callable[[], str | None], spot_check: SpotCheck) -> None:
    with closing(store.reopen(run.path)) as file:
        check_configuration(run, file)
        unfinished = not file.complete or has_more_to_do(file, run.experiment.config)
        if not (file.num_generations and unfinished):
            return
        _warn_of_other_code(file)
    if _can_repeat_episodes(run.experiment.config):
        _check_episode(run, file, stop_reason, spot_check)


def check_configuration(run: PlannedRun, file: RunFile | StoredRun) -> None:
    """Raise InputError unless the file is of this seed and experiment, and no longer than asked for."""
    config = run.experiment.config
    path = run.path
    anew = "Or start anew in another output.directory."
    if file.header.seed != run.seed:
        raise InputError(f"seed, resuming {path}", f"{file.header.seed} as in the run file", run.seed)
    stored = load_config(file.header.config, str(path))
    for key, ours, theirs in differences(config, stored):
        raise InputError(f"{key}, resuming {path}", f"{theirs!r} as in the run file", ours, anew)
    if file.num_generations and config.output.genomes != stored.output.genomes:
        kept = f"{stored.output.genomes!r} as in the run file"
        raise InputError(f"output.genomes, resuming {path}", kept, config.output.genomes, anew)
    if file.num_generations and config.output.genomes == "all" and not file.has_population:
        raise InputError(str(path), "the genomes of all candidates, as its configuration says", "none", anew)
    if file.num_generations > config.generations:
        least = f"at least {file.num_generations}, the generations already complete in {path}"
        raise InputError("generations", least, config.generations)
    restore(run.experiment, file)  # raises InputError for a checkpoint of another shape


def _can_repeat_episodes(config: Config) -> bool:
    """Return whether an episode can be played again alone: not where environments are reused on the user's word."""
    return config.compute.check and config.env.reuse is not True


def _warn_of_other_code(file: RunFile) -> None:
    """Warn if another version wrote the file: it may ask for other candidates."""
    theirs = file.header.manifest.get("evolve"), file.header.manifest.get("revision")
    ours = __version__, revision()
    if theirs != ours:
        written, here = (" ".join(str(part)[:12] for part in version if part) for version in (theirs, ours))
        cure = f"python -m evolve.verify --full {shlex.quote(str(file.path))} tells whether both do the same"
        _LOG.warning("%s was written by evolve %s, and this is %s: %s", file.path, written, here, cure)


def _check_episode(
    run: PlannedRun, file: RunFile, stop_reason: Callable[[], str | None], spot_check: SpotCheck
) -> None:
    """Raise InputError if an episode is not played as it was: one log would hold two different tasks."""
    try:
        difference = spot_check(store.read(run.path), run.experiment, stop_reason)
    except Stopped as why:
        raise type(why)(f"stopped by {why}: {generations_on_disk(file)}; continue with resume=True.") from None
    if difference is not None:
        expected = "an environment in which the newest champion plays as the log says"
        cure = (
            "The environment's code or version has changed, or this machine does other arithmetic: "
            f"python -m evolve.verify {shlex.quote(str(run.path))} finds the first difference. To resume all the same, "
            "with a log that cannot be repeated: compute.check=false."
        )
        raise InputError(f"env.id, resuming {run.path}", expected, difference, cure)
