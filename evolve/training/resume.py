"""Creates, checks and reopens the run files of planned runs, and restores the state of a run from its checkpoint.

A command first calls `check_and_create_runs` for all runs, and then, when a run begins, `open_run` or `replace_run`.
The loop gets the state of a resumed run from `restore`, `restore_moments` and `champion_normalizer`.
"""

import logging
import shlex
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evolve import __version__, environments, store
from evolve.cluster import Transport
from evolve.config import Config, Table, differences
from evolve.errors import EpisodeError, InputError, Setting, Stopped, on_error, pluralize
from evolve.numerics.streams import Purpose
from evolve.rollouts import Moments
from evolve.shapes import Float32, check_shape
from evolve.store import Header, RunFile, RunLog, Stored, StoredRun, disk, reading
from evolve.strategies import STRATEGIES, Strategy, is_added
from evolve.training.experiment import Experiment, PlannedRun, compute_of_run, config_of, validate_new_run
from evolve.training.fitness import fitness_function
from evolve.training.manifest import (
    make_manifest,
    module_digests,
    packages_of,
    resumed_manifest,
    revision,
    short_revision,
    source_digest,
)

_LOG = logging.getLogger("evolve")

_DIRECTORY = Setting("output.directory")
CHAMPION_NORMALIZER = "champion_normalizer"
"""The name of an array in the checkpoint, [2, O]."""
OBSERVATION_ARRAYS = {CHAMPION_NORMALIZER, *Moments.none(0).to_arrays()}
"""The names of the arrays in a checkpoint that do not belong to the state of the strategy."""

RunState = RunLog | StoredRun
"""The state of a run: a run file that was read, or a log that is being written."""


def _damaged_checkpoint(run: RunState, error: Exception) -> InputError:
    return InputError(str(run.path), "an undamaged checkpoint", f"a damaged one ({error})")


def restore(experiment: Experiment, run: RunState) -> tuple[Strategy[Any], Any]:
    """Return the strategy of a run and its state after the last complete generation.

    Raises InputError if the checkpoint is damaged or contradicts the configuration.
    """
    strategy = experiment.strategy(run.header.seed)
    if not run.num_generations:
        return strategy, strategy.start()
    section = experiment.config.strategy
    arrays = {name: array for name, array in run.checkpoint.items() if name not in OBSERVATION_ARRAYS}
    # If a built-in strategy raises one of these errors, an array is missing or wrong. A strategy of another package may
    # raise any error by a fault of its own, for example if a version that it needs is not installed. So only its
    # ValueError means damage.
    damage: tuple[type[Exception], ...] = (ValueError,) if is_added(section) else (ValueError, LookupError, InputError)
    with STRATEGIES.as_input_error(section, "from_arrays") if is_added(section) else nullcontext():
        try:
            state = strategy.from_arrays(arrays)
            strategy.champion(state)  # fails if the arrays contradict one another
        except damage as error:
            raise _damaged_checkpoint(run, error) from None
    return strategy, state


def restore_moments(experiment: Experiment, run: RunState) -> Moments:
    """Return the moments of observations from which the next normalizer is computed.

    Raises InputError if the checkpoint is damaged.
    """
    size = experiment.network.observation_size
    if not experiment.config.normalize_observations:
        return Moments.none(size)
    # With normalizer_generations = 0 every generation uses the normalizer of `start_from`. Do not compute it from the
    # moments in the checkpoint, because it could differ in the last bit.
    if not run.num_generations or experiment.config.normalizer_generations == 0:
        start = experiment.start
        if start is None or start.normalizer is None:
            return Moments.none(size)
        return Moments.of_normalizer(start.normalizer, int(start.num_observations[0]))
    try:
        return Moments.from_arrays(run.checkpoint, size)
    except ValueError as error:
        raise _damaged_checkpoint(run, error) from None


def champion_normalizer(experiment: Experiment, run: RunState) -> Float32 | None:
    """Return the normalizer [2, O] of the champion's generation from the checkpoint of a run.

    None if observations are not normalized, if the strategy may evaluate its champion again (then the newest normalizer
    applies), or if an earlier version of evolve wrote the file. Raises InputError if the array is damaged.
    """
    normalizer = run.checkpoint.get(CHAMPION_NORMALIZER)
    if normalizer is not None:
        try:
            check_shape(normalizer, CHAMPION_NORMALIZER, "2 O", np.float32, O=experiment.network.observation_size)
        except ValueError as error:
            raise _damaged_checkpoint(run, error) from None
    return normalizer


SpotCheck = Callable[[StoredRun, Experiment], str | None]
"""Plays an episode of the newest champion again; returns its difference from the log or None. May raise Stopped.

`evolve.verification.spot_check` is such a function.
"""


def experiment_table(path: Path) -> Table:
    """Return the settings of a run file as a table, with which the run can be resumed on another machine.

    Raises InputError if the file is not a run file.
    """
    run = store.read(path)
    config = config_of(run)
    table: Table = config.model_dump(mode="json", exclude_none=True)
    table |= {"seeds": [run.header.seed], "compute": compute_of_run(config)}
    table["output"]["directory"] = str(path.parent)
    return table


def generations_on_disk(file: RunFile) -> str:
    """Return the part of a sentence that says how many generations are in a file."""
    if file.replaces:
        return f"no new generation is complete, so {file.path} is unchanged"
    if not file.path.exists():
        return f"{file.path} was moved or deleted, with {pluralize(file.on_disk, 'complete generation')}"
    verb = "is" if file.on_disk == 1 else "are"
    return f"{pluralize(file.on_disk, 'generation')} {verb} complete in {file.path}"


def replay_command(path: Path, error: EpisodeError) -> str:
    """Return the command line that plays a failed episode alone."""
    purpose, generation, candidate, episode = error.key
    if purpose == Purpose.EPISODE:
        which = f"--generation {generation} --candidate {candidate}"
    else:
        which = f"--{Purpose(purpose).title}"
    return f"python -m evolve.replay {shlex.quote(str(path))} {which} --episode {episode}"


def cures_of_failure(file: RunFile, error: EpisodeError) -> tuple[str | Setting, ...]:
    """Return the cures for a failed episode: play it alone, or let such episodes count as the worst."""
    # If a new run replaces a file, that file still has the old run until the first generation is complete.
    alone = "" if file.replaces else f"\nPlay it alone: {replay_command(file.path, error)}"
    return f"{alone}\nLet such episodes count as the worst: ", Setting("env.on_failure", "worst"), " (in a new run)"


def check_same_run(config: Config, stored: Config, path: Path) -> None:
    """Raise InputError if a run file cannot be resumed with a configuration, because that would be another run.

    The seeds, the directory, and the names of the network and the strategy must stay.

    Args:
        config: The configuration with the changed settings.
        stored: The configuration of the run file.
        path: The path of the run file.
    """
    _require_equal("seeds", _one_or_list(config.seeds), _one_or_list(stored.seeds), path)
    ours, theirs = Path(config.output.directory or "."), Path(stored.output.directory or ".")
    _require_equal("output.directory", str(ours), str(theirs), path)
    check_same_names({"network": config.network.table(), "strategy": config.strategy.table()}, stored, path)


def _one_or_list(seeds: Sequence[int]) -> int | list[int]:
    return list(seeds) if len(seeds) > 1 else seeds[0]


def check_same_names(table: Table, stored: Config, path: Path) -> None:
    """Raise InputError unless a table names the network and strategy of the configuration `stored` of a run file."""
    for section, choice in (("network", stored.network), ("strategy", stored.strategy)):
        _require_equal(f"{section}.name", table[section]["name"], choice.name, path)


def _require_equal(key: str, ours: object, theirs: object, path: Path, *cure: str | Setting) -> None:
    """Raise InputError unless a setting has the same value here (`ours`) and in a run file (`theirs`)."""
    if ours != theirs:
        raise InputError(key, f"{theirs!r} as in the run file", ours, *cure, where=f"resuming {path}")


def check_and_create_runs(
    runs: Sequence[PlannedRun], resume: bool, transport: Transport, spot_check: SpotCheck, overwrite: bool = False
) -> list[PlannedRun]:
    """Check the existing files of all runs; then create the files of new runs.

    Args:
        runs: The planned runs.
        resume: Whether to resume runs if their files exist.
        transport: The ranks that a new file's manifest describes.
        spot_check: Plays a logged episode of a resumed run.
        overwrite: Whether to replace runs if their files exist. `replace_run` replaces a file when its run begins.

    Returns:
        The runs of the created files.

    Raises:
        InputError: A file contradicts its run, exists already or cannot be written, or a new run has invalid settings.
        Stopped: `spot_check` was stopped.
    """
    new_runs = []
    for run in runs:
        if resume and disk.exists(run.path):
            _check_resumable(run, spot_check)
        elif overwrite and disk.exists(run.path) and not reading.is_empty(run.path):
            # Reopening raises InputError if another process holds the lock, or if the file is not a run file.
            with closing(store.reopen(run.path)) as file:
                _check_not_being_written(file)
        else:
            # The file does not exist, or is a run file without a generation. `check_free` refuses other files below.
            new_runs.append(run)
    # With `overwrite` the runs of existing files begin anew, too.
    for run in runs if overwrite else new_runs:
        validate_new_run(run.experiment)
    # Check all paths before the first file is created.
    for run in new_runs:
        store.check_unlocked(run.path)
        reading.check_free(run.path)
    for run in new_runs:
        store.create(run.path, _header(run, transport)).close()
    return new_runs


def _header(run: PlannedRun, transport: Transport) -> Header:
    """Return the header of a new run file."""
    config = run.experiment.config
    manifest = make_manifest(run.experiment, transport)
    start, spaces = run.experiment.start, run.experiment.spaces.to_json()
    return Header(config.to_toml(), manifest, run.seed, config.env.id, start, spaces)


def _check_not_being_written(file: RunFile) -> None:
    """Raise InputError for a run file that is not complete and has no lock: another process may be writing it."""
    if not file.lock.is_effective and not file.complete:
        message = f"{file.path} is not complete, and may be being written: its file system has no locks."
        cure = "Remove it yourself, or choose another "
        raise InputError.plainly("output.directory", f"{message} {cure}", _DIRECTORY, ".")


def replace_run(run: PlannedRun, transport: Transport) -> RunFile:
    """Return the file of a run that begins anew. Its first generation replaces the existing file.

    Raises InputError if the existing file is being written, or is no longer a run file.
    """
    file = store.replace(run.path, _header(run, transport))
    with on_error(file.close):
        # The first flush will replace the existing file, so make sure that it is still a run file.
        if disk.exists(run.path):
            store.read(run.path)
    return file


def open_run(run: PlannedRun, transport: Transport) -> RunFile:
    """Reopen the checked file of a run, and give it the present configuration.

    If generations or held-out episodes are missing, the run is no longer complete, and its manifest also describes this
    process. If the environment of evaluation has changed, the held-out evaluation and the validations are dropped.

    Raises:
        InputError: The file belongs to another experiment now.
    """
    file = store.reopen(run.path)
    with on_error(file.close):
        config = run.experiment.config
        # Check again, because the file has not been locked since the first check.
        check_configuration(run, file)
        manifest = file.header.manifest
        if is_unfinished(file, config):
            file.complete = False
            now = make_manifest(run.experiment, transport)
            # The process that created the file may have played only other seeds. If this file has no generation, the
            # process here plays all of them.
            manifest = resumed_manifest(manifest, now, file.num_generations) if file.num_generations else now
        if not config_of(file).evaluates_like(config):
            file.held_out = None
            file.forget_validations()
        spaces = run.experiment.spaces.to_json()
        file.header = replace(file.header, config=config.to_toml(), manifest=manifest, spaces=spaces)
    return file


def is_unfinished(file: RunFile | StoredRun, config: Config) -> bool:
    """Return whether a run lacks generations or held-out episodes that a configuration asks for."""
    if not file.complete:
        return True
    stored = config_of(file)
    # A complete run with fewer generations than its configuration asks for has met its early stop. With the same early
    # stop it would end at the same generation again.
    stopped_early = file.num_generations < stored.generations
    would_stop_again = stopped_early and stored.early_stop == config.early_stop
    num_held_out = 0 if file.held_out is None else len(file.held_out.returns)
    lacks_evaluation = num_held_out < config.held_out_episodes or not stored.evaluates_like(config)
    return lacks_evaluation or (file.num_generations < config.generations and not would_stop_again)


def is_finished(run: PlannedRun) -> bool:
    """Return whether the file of a run has everything that the configuration of the run asks for."""
    # First call `read_progress`, which reads no generations, and is enough if the run is not complete.
    _, complete = store.read_progress(run.path)
    return complete and not is_unfinished(store.read(run.path), run.experiment.config)


def _check_resumable(run: PlannedRun, spot_check: SpotCheck) -> None:
    """Raise InputError unless a run can be resumed from its existing file. May raise Stopped."""
    store.check_unlocked(run.path)
    if is_finished(run):  # nothing will be written, so the file may be read-only
        check_configuration(run, store.read(run.path))
        return
    # Reopening raises InputError if the file cannot be locked or written.
    with closing(store.reopen(run.path)) as file:
        check_configuration(run, file)
        if not file.num_generations:
            return
        changed_code = _warn_of_other_code(file, run.experiment.config)
    if run.experiment.config.compute.check:
        _check_episode(run, file, spot_check, changed_code)


def check_configuration(run: PlannedRun, file: RunFile | StoredRun) -> None:
    """Raise InputError unless a file has the seed and the experiment of a run, and at most its number of generations.

    The stored metrics, the checkpoint, and the sizes of the environment must fit, too.
    """
    config = run.experiment.config
    path = run.path
    cure: tuple[str | Setting, ...] = "Or start anew in another ", _DIRECTORY, "."
    # The settings.
    _require_equal("seed", run.seed, file.header.seed, path)
    stored = config_of(file)
    for key, ours, theirs in differences(config, stored):
        _require_equal(key, ours, theirs, path, *cure)
    if file.num_generations:
        # A file without a generation has no genomes yet, so the setting may still change.
        _require_equal("output.genomes", config.output.genomes, stored.output.genomes, path, *cure)
    # The contents of the file.
    if file.num_generations and config.output.genomes == "all" and not file.has_population:
        raise InputError(str(path), "the genomes of all candidates, as its configuration says", "none", *cure)
    if file.num_generations > config.generations:
        least = f"at least {file.num_generations}, the generations already complete in {path}"
        raise InputError("generations", least, config.generations)
    fitness_function(config.fitness)  # raises InputError for a function that cannot be imported
    if file.last is not None and set(file.last.metrics) != set(config.env.metrics):
        expected = "the metrics that its configuration names (env.metrics)"
        raise InputError(str(path), expected, list(file.last.metrics), *cure)
    if file.num_generations and (sizes := changed_sizes(file, run.experiment)):
        expected, got = sizes
        restore_it = "The environment has changed since the run. Restore it. "
        raise InputError("env.id", expected, got, restore_it, *cure, where=f"resuming {path}")
    restore(run.experiment, file)  # raises InputError for a checkpoint of another shape


def changed_sizes(run: RunFile | Stored, experiment: Experiment) -> tuple[str, str] | None:
    """Return the texts "expected" and "got" of an error if a file's environment has other sizes on this machine.

    The sizes are the numbers of observations and actions. None if they are equal, or if the spaces in the file are
    damaged or missing.
    """
    env = config_of(run).env
    try:
        stored = environments.Codec(env, environments.Spaces.from_json(run.header.spaces))
    except (ValueError, TypeError, KeyError, AttributeError, InputError):
        return None
    stored_sizes = stored.observation_size, stored.action_size
    sizes = experiment.network.observation_size, experiment.action_size
    if stored_sizes == sizes:
        return None
    in_file, here = (
        f"{pluralize(observations, 'observation')} and {pluralize(actions, 'action')}"
        for observations, actions in (stored_sizes, sizes)
    )
    return f"an environment of {in_file}, as in {run.path}", f"{env.id}, of {here}"


def _warn_of_other_code(file: RunFile, config: Config) -> str:
    """Warn if the file was written with another version of evolve, or with other code of the user or of packages.

    Other code may give other candidates or episodes, even if the one episode of the spot check is equal.

    Return the user's modules and the packages with other code, in words; "" if there are none.
    """
    cure = f"python -m evolve.verify --full {shlex.quote(str(file.path))} tests whether both give the same bits"
    theirs = file.header.manifest.get("evolve"), file.header.manifest.get("revision")
    ours = __version__, revision()
    if theirs != ours:
        written, here = (f"{version} {short_revision(commit)}".rstrip() for version, commit in (theirs, ours))
        _LOG.warning("%s was written by evolve %s, and this is %s: %s", file.path, written, here, cure)
    elif file.header.manifest.get("source") != source_digest():  # earlier versions recorded no digest
        _LOG.warning("%s was written by the same version of evolve with other source files: %s", file.path, cure)
    # Compare the user's modules. Any program may have written the file, so its entries may have any type.
    digests = file.header.manifest.get("modules")
    digests = digests if isinstance(digests, dict) else {}
    changed = [name for name, digest in module_digests(config).items() if digests.get(name, digest) != digest]
    # Compare the versions of the packages that define the environment, or that the user's modules import.
    packages = file.header.manifest.get("packages")
    packages = packages if isinstance(packages, dict) else {}
    for name, version in packages_of(config).items():
        if packages.get(name, version) != version:
            changed.append(f"{name} {packages[name]} (now {version})")
    if changed:
        _LOG.warning("%s was written with other code of %s: %s", file.path, ", ".join(changed), cure)
    return ", ".join(changed)


def _check_episode(run: PlannedRun, file: RunFile, spot_check: SpotCheck, changed_code: str) -> None:
    """Raise InputError if a logged episode cannot be repeated, because the log would mix two tasks. May raise Stopped.

    changed_code: The modules and packages with other code than in the file, in words.
    """
    try:
        difference = spot_check(store.read(run.path), run.experiment)
    except Stopped as stop:
        message = f"{stop}: {generations_on_disk(file)}; continue with "
        raise type(stop)(message, Setting("resume", True), ".") from None
    if difference is not None:
        expected = "code with which the newest champion plays as its log says"
        reason = f"It was written with other code of {changed_code}" if changed_code else "The environment has changed"
        cure = (
            f"{reason}, or this machine's arithmetic differs: "
            f"python -m evolve.verify {shlex.quote(str(run.path))} finds the first difference. To resume nevertheless, "
            "with a log that cannot be repeated: "
        )
        check = Setting("compute.check", False)
        raise InputError(str(run.path), expected, difference, cure, check, ".")
