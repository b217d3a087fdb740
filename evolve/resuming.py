"""The run files of experiments: new ones, and those of earlier runs that are to go on."""

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from evolve import __version__, store, strategies
from evolve.cluster import World
from evolve.config import FLAGS, Config, Table, differences
from evolve.divergence import retold
from evolve.errors import EvolveError, InputError, Stopped, counted
from evolve.experiment import Experiment, check_sense, load_config, restore
from evolve.manifest import manifest, revision
from evolve.numerics import backend
from evolve.store import Header, RunFile

_LOG = logging.getLogger("evolve")
Queue = list[tuple[Experiment, list[RunFile]]]


def table_of(path: Path, resume: bool) -> Table:
    """Return the experiment of a run file that is to go on itself; how it is computed is chosen anew.

    Raises InputError when it is no run file, or not to be resumed.
    """
    if not resume:
        cure = f"To continue it: python -m evolve.run --resume {path}."
        raise InputError("EXPERIMENT.toml", "a TOML file", f"{path}, by its name a run file", cure)
    run = store.read(path)
    config = load_config(run.header.config, str(path))
    here: Table = {"seeds": [run.header.seed], "compute": {"check": config.compute.check}}
    table: Table = config.model_dump(mode="json", exclude_none=True) | here
    table["output"]["directory"] = str(path.parent)
    return table


def told_in(file: RunFile) -> str:
    """Return in words how many generations a file has."""
    return f"{counted(file.on_disk, 'generation')} {'is' if file.on_disk == 1 else 'are'} told in {file.path}"


def _place(config: Config) -> str:
    return str(Path(config.output.directory or "."))


def check_same(config: Config, before: Config, path: Path) -> None:
    """Raise InputError where flags want another seed, place, network or strategy than the run file that is to go on."""
    for key, ours, theirs in (
        ("seeds", config.seeds, before.seeds),
        ("output.directory", _place(config), _place(before)),
        ("network.name", config.network.get("name"), before.network.get("name")),
        ("strategy.name", config.strategy.get("name"), before.strategy.get("name")),
    ):
        if ours != theirs:
            expected = f"{theirs!r}, for that very file goes on"
            raise InputError(f"{key} ({FLAGS[key]}), resuming {path}", expected, ours)


def open_all(
    opened: ExitStack,
    experiments: Sequence[Experiment],
    resume: bool | Path,
    world: World,
    stopped: Callable[[], str | None],
) -> Queue:
    """Return experiments with their run files, one for each seed, which `opened` will close.

    resume: whether to continue those there are; a path is the file of the one seed of the one experiment. They are
    looked at before a new one is written. stopped: asked often; why to stop, or None. Raises InputError and Stopped.
    """
    wanted = {_path(made, seed, resume): (made, seed) for made in experiments for seed in made.config.seeds}
    store.allow(len(wanted))
    there = [path for path in wanted if resume and store.exists(path)]
    files = {path: opened.enter_context(closing(_continued(path, *wanted[path], stopped))) for path in there}
    absent = [path for path in wanted if path not in files]
    for path in absent:
        check_sense(wanted[path][0])
    files |= {path: opened.enter_context(closing(_new(path, *wanted[path], world))) for path in absent}
    if resume and absent:
        more = f", and {len(absent) - 1} more" if absent[1:] else ""
        print(f"evolve.run: nothing to resume, a new run begins: {absent[0]}{more}", file=sys.stderr, flush=True)
    return [(made, [files[_path(made, seed, resume)] for seed in made.config.seeds]) for made in experiments]


def _path(experiment: Experiment, seed: int, resume: bool | Path) -> Path:
    return resume if isinstance(resume, Path) else store.path_of(experiment.config.directory(), seed)


def _new(path: Path, experiment: Experiment, seed: int, world: World) -> RunFile:
    config = experiment.config
    about = manifest(world, backend(config.compute.backend), strategies.portable(config.strategy))
    return store.create(path, Header(config.to_toml(), about, seed, config.env.id))


def _continued(path: Path, experiment: Experiment, seed: int, stopped: Callable[[], str | None]) -> RunFile:
    """Return the file of a run that is to go on, or that is complete. Raises InputError where it cannot go on so."""
    file = store.reopen(path)
    try:
        _check_continuation(experiment, file, seed)
        _prepare(experiment, file)
        if file.told and not file.complete:
            _warn_of_other_code(file)
            if _is_to_be_checked(experiment.config):
                _check_episode(experiment, file, stopped)
    except EvolveError:
        file.close()
        raise
    return file


def _prepare(experiment: Experiment, file: RunFile) -> None:
    """Let a file be of this experiment, and complete only if nothing is left to do."""
    config = experiment.config
    judged = 0 if file.held_out is None else len(file.held_out.returns)
    before = load_config(file.header.config, str(file.path))
    enough = file.complete and file.told < before.generations and before.early_stop == config.early_stop
    unjudged = judged < config.held_out_episodes or not before.judges_like(config)
    if (file.told < config.generations and not enough) or unjudged:
        file.complete, file.held_out = False, None
    file.header = Header(config.to_toml(), file.header.manifest, file.header.seed, file.header.env)


def _check_continuation(experiment: Experiment, file: RunFile, seed: int) -> None:
    """Raise InputError unless the run file is of this seed and experiment, and no longer than asked for."""
    config, path = experiment.config, file.path
    if file.header.seed != seed:
        raise InputError(f"seed (-s/--seed), resuming {path}", f"{file.header.seed} as in the run file", seed)
    before, anew = load_config(file.header.config, str(path)), "Or start anew with -o DIR."
    for key, ours, theirs in differences(config, before):
        raise InputError(f"{key}, resuming {path}", f"{theirs!r} as in the run file", ours, anew)
    if file.told and config.output.genomes != before.output.genomes:
        kept = f"{before.output.genomes!r} as in the run file"
        raise InputError(f"output.genomes, resuming {path}", kept, config.output.genomes, anew)
    if file.told and config.output.genomes == "all" and not file.has_population:
        raise InputError(str(path), "the genomes of all candidates, as its configuration says", "none", anew)
    if file.told > config.generations:
        told = f"at least {file.told}, the generations already told in {path}"
        raise InputError("generations (-g/--generations)", told, config.generations)
    restore(experiment, file)


def _is_to_be_checked(config: Config) -> bool:
    """Return whether an episode can be expected to repeat itself: used environments may remember earlier ones."""
    return config.compute.check and config.env.reuse is not True


def _warn_of_other_code(file: RunFile) -> None:
    """Say so where another version of this package has told what is there: what it asks for may be something else."""
    theirs = file.header.manifest.get("evolve"), file.header.manifest.get("revision")
    ours = __version__, revision()
    if theirs != ours:
        written, here = (" ".join(str(part)[:12] for part in version if part) for version in (theirs, ours))
        cure = f"python -m evolve.verify --full {file.path} tells whether both do the same"
        _LOG.warning("%s was written by evolve %s, and this is %s: %s", file.path, written, here, cure)


def _check_episode(experiment: Experiment, file: RunFile, stopped: Callable[[], str | None]) -> None:
    """Raise InputError when the task is not played as it was when the file was written: two would make one log."""
    try:
        apart = retold(store.read(file.path), experiment, stopped)
    except Stopped as why:
        raise Stopped(f"stopped by {why}: {told_in(file)}; continue with --resume.") from None
    if apart is not None:
        expected = "an environment in which the newest champion plays as the log says"
        cure = (
            "The environment's code or version has changed, or this machine does other arithmetic: "
            f"python -m evolve.verify {file.path} tells where they part. To go on all the same, with a log that "
            "cannot be repeated: --set compute.check=false."
        )
        raise InputError(f"env.id (-e/--env), resuming {file.path}", expected, apart, cure)
