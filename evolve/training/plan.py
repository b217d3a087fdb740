"""Plans runs from arguments, and predicts their size and their effect on files. Nothing here writes."""

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from evolve import environments, store
from evolve.cluster.cores import Work
from evolve.config import (
    NAMED_SECTIONS,
    Choice,
    ComputeOptions,
    Config,
    Options,
    StartFromOptions,
    Table,
    parse,
    plain,
    read_file,
    set_key,
)
from evolve.config.documents import combinations, experiments, lacks_name, swept_key
from evolve.errors import InputError, Setting
from evolve.genome import Genomes, one_genome
from evolve.numerics import restore_ieee
from evolve.numerics.hashing import MAX_HASHED_STEPS
from evolve.store import Start, Stored, StoredRun, disk, reading, schema
from evolve.training.experiment import (
    Experiment,
    PlannedRun,
    config_of,
    num_threads,
    prepare,
    validate_new_run,
)
from evolve.training.fitness import setting_of
from evolve.training.resume import check_configuration, check_same_run, experiment_table, is_unfinished
from evolve.training.stored import Source, with_start

_Given = str | Path | Mapping[str, Any] | Config | None
"""The argument `experiment` of `evolve.train`, `evolve.iterate` and `evolve.sweep`."""
_Output = str | Path | Mapping[str, Any] | None
"""The argument `output` of the same functions: a directory, or a table of settings."""
_EXPERIMENT = "a TOML file, a table, a Config or a run file"
_SECTIONS = {*NAMED_SECTIONS, "compute", "output", "racing", "early_stop"}
"""An empty table for one of these sections changes nothing. An empty table for another setting replaces its value."""


@dataclass(frozen=True)
class RunSize:
    """Upper limits of the work of a run. An early stop and racing can make the work less.

    Attributes:
        episodes: The number of episodes, with validation and held-out episodes.
        steps: The environment steps of these episodes; None if the environment has no known step limit.
    """

    episodes: int
    steps: int | None

    def __add__(self, other: "RunSize") -> "RunSize":
        steps = None if self.steps is None or other.steps is None else self.steps + other.steps
        return RunSize(self.episodes + other.episodes, steps)


@dataclass(frozen=True)
class RunPreview:
    """A run, and its effect on an existing file.

    Attributes:
        run: The run.
        action: The effect on the file of the run. "begin" creates the file. "keep" means that nothing is left to do.
        stored: The existing run file; None if the file is created.
    """

    run: PlannedRun
    action: Literal["begin", "resume", "replace", "keep"]
    stored: StoredRun | None = None

    @property
    def size(self) -> RunSize:
        """The upper limits of the remaining work."""
        if self.action == "keep":
            return RunSize(0, 0)
        completed = self.stored.num_generations if self.stored is not None and self.action == "resume" else 0
        return size_of(self.run.experiment.config, completed)


def preview(run: PlannedRun, resume: bool, overwrite: bool) -> RunPreview:
    """Return a preview of a run, without writing anything.

    Args:
        run: The planned run.
        resume: Whether to resume a run if its file exists.
        overwrite: Whether to replace an existing file.

    Raises:
        InputError: The run would be refused.
    """
    store.check_unlocked(run.path)
    # A run file without a generation may be replaced at once, as in `check_and_create_runs`.
    if not disk.exists(run.path) or (not resume and reading.is_empty(run.path)):
        validate_new_run(run.experiment)
        disk.check_can_begin(run.path)
        return RunPreview(run, "begin")
    if not (resume or overwrite):
        raise reading.already_exists(run.path)
    stored = store.read(run.path)
    if overwrite:
        validate_new_run(run.experiment)
        return RunPreview(run, "replace", stored)
    check_configuration(run, stored)
    return RunPreview(run, "resume" if is_unfinished(stored, run.experiment.config) else "keep", stored)


def plan_runs(
    experiments: Sequence[Experiment], file: Path | None = None, resume: bool = False, source: Source | None = None
) -> list[PlannedRun]:
    """Return the runs of experiments, one for each seed, with their first genomes.

    Args:
        experiments: The experiments.
        file: The run file, if the caller resumes a run by the path of its file.
        resume: Whether existing runs are resumed.
        source: The source of the first genome, if it is in memory.

    Raises:
        InputError: A genome cannot be read, or does not fit. Or a path is relative to a removed directory.
    """
    runs = []
    for experiment in experiments:
        same: dict[str, Experiment] = {}  # runs that begin with the same genome share one experiment
        directory = experiment.config.directory()
        if file is None and not directory.is_absolute():
            try:
                # A relative path names no place if there is no working directory.
                os.getcwd()
            except FileNotFoundError:
                cure = "Change to another directory, or give an absolute path."
                raise InputError("output", "a directory", f"{directory} in a removed directory", cure) from None
        for seed in experiment.config.seeds:
            path = file or store.path_of(directory, seed)
            run = with_start(PlannedRun(experiment, seed, path), resume, source)
            digest = "" if run.experiment.start is None else run.experiment.start.digest
            runs.append(replace(run, experiment=same.setdefault(digest, run.experiment)))
    return runs


def size_of(config: Config, completed: int = 0) -> RunSize:
    """Return the size of the rest of a run. completed: the number of complete generations."""
    stop = config.early_stop
    per_generation = config.population * config.episodes
    training = max(0, config.generations - completed) * per_generation
    validations = 0
    if stop.mean_return is not None and completed < config.generations:
        # A validation precedes each generation, except 0, that is a multiple of `every`. Count the ones that are left.
        validations = (config.generations - 1) // stop.every - max(0, completed - 1) // stop.every
    evaluation = validations * stop.episodes + config.held_out_episodes
    longest = environments.max_episode_steps(config.env)
    longest_evaluated = environments.max_episode_steps(config.in_evaluation().env)
    if longest is None or longest_evaluated is None:
        return RunSize(training + evaluation, None)
    steps = training * longest
    if config.early_max_episode_steps is not None:
        # Episodes of the early generations that are left are shorter.
        early = max(0, min(config.early_generations, config.generations) - completed)
        steps -= early * per_generation * max(0, longest - config.early_max_episode_steps)
    if stop.steps is not None:  # the run stops after the generation that reaches this number
        steps = min(steps, stop.steps + per_generation * longest)
    return RunSize(training + evaluation, steps + evaluation * longest_evaluated)


def file_bytes(experiment: Experiment) -> int:
    """Return the approximate bytes of a whole run file, without the state of the strategy.

    The step hashes of the champions count as if each of their episodes lasted to its step limit.
    """
    config, network = experiment.config, experiment.network
    steps = environments.max_episode_steps(config.env) or MAX_HASHED_STEPS
    sizes = {"P": config.population, "E": config.episodes, "W": network.num_weights, "R": 1}
    sizes["L"] = config.episodes * min(steps, MAX_HASHED_STEPS)
    if config.normalize_observations:
        sizes["O"] = network.observation_size
    # Not by the class of the options, because its module would be imported for every experiment.
    if config.strategy.name == "map-elites":
        sizes["C"] = math.prod(getattr(config.strategy.options, "cells", (0,)))
    return config.generations * schema.generation_bytes(sizes, config.output.genomes == "all")


def work_of(configs: Sequence[Config]) -> Work:
    """Return upper limits of the work of experiments, as if no run file existed, and their fewest threads."""
    at_once = max(config.population * config.episodes for config in configs)
    threads = min(map(num_threads, configs))
    # `is_quick` imports Gymnasium, which exact tasks do not need. The steps of environments that are not quick stay
    # unknown: `size_of` would import their modules, and this process only starts the ranks.
    if not all(config.env.engine == "exact" or environments.is_quick(config.env) for config in configs):
        return Work(at_once, None, threads)
    sizes = [size_of(config) for config in configs for _ in config.seeds]
    return Work(at_once, sum(sizes, start=RunSize(0, 0)).steps, threads)


def threads_for(
    files: Iterable[Path], changes: Mapping[str, Any] | None = None, threads: int | str | None = None
) -> int:
    """Return the number of threads in which one process plays episodes: the smallest number of all files.

    Args:
        files: Run files and champion files, or directories with one run file.
        changes: Changed settings of the environments, see `EnvOptions.changed`.
        threads: The number of threads if the user gives it.

    Raises:
        InputError: A file cannot be read, or the number of threads is too large.
    """
    configs = [config_of(store.read_any(store.one_run_file(path))).with_env_changes(changes or {}) for path in files]
    here = {"compute": parse(ComputeOptions, {"threads": threads or "auto"}, "compute")}  # not the files' settings
    return min(num_threads(config.model_copy(update=here)) for config in configs)


def plan_from_arguments(
    experiment: _Given, seed: int | None, output: _Output, settings: Mapping[str, Any], resume: bool = False
) -> PlannedRun:
    """Return the run that the arguments of `evolve.train` or `evolve.iterate` describe. Raises InputError."""
    restore_ieee()  # Python's own conversion of texts to numbers needs it, too
    path = Path(os.path.expanduser(experiment) if isinstance(experiment, str | Path) else "")
    file = path if path.suffix == ".h5" else None
    table = _table(experiment) if file is None else experiment_table(file)
    stored = None if file is None else parse(Config, table)
    # The call evolves one run, so both arguments must give a single seed.
    for name, given in (("seeds", settings.get("seeds")), ("seed", seed)):
        seeds = plain(given)
        if isinstance(seeds, Collection) and not isinstance(seeds, str) and len(seeds) > 1:
            cure = f"evolve.sweep({{}}, seeds={seeds}, …) evolves a run for each seed."
            raise InputError(name, "one number, as seed=1", seeds, cure)
    _override_all(table, output, settings, complete=isinstance(experiment, Config))
    # After the settings, because the settings may contain `start_from`.
    source = _take_source(table)
    # An experiment file may have a sweep.
    found = experiments(table, "sweep")
    if len(found) > 1:
        raise InputError("experiment", "one experiment", f"a sweep of {len(found)}", "Run it by evolve.sweep.")
    _check_not_swept(table, settings)
    config = found[0].model_copy(update={"seeds": (found[0].seeds[0] if seed is None else _seed(seed),)})
    # The settings must not turn a resumed run into another run.
    if file is not None and stored is not None:
        check_same_run(config, stored, file)
    return plan_runs([prepare(config)], file, resume, source)[0]


def sweep_from_arguments(
    grid: Mapping[str, Any], experiment: _Given, seeds: Any, output: _Output, settings: Mapping[str, Any]
) -> list[tuple[dict[str, Any], Config]]:
    """Return the experiments that the arguments of `evolve.sweep` describe, each with its values of the sweep.

    The sweep consists of the grid and of the experiment's own sweep. Raises InputError.
    """
    if not isinstance(grid, Mapping) or not all(isinstance(key, str) for key in grid):
        raise InputError("grid", 'a table of lists, such as {"strategy.sigma": [0.1, 0.3]}', repr(grid))
    table = _table(experiment)
    # If the grid varies the network or the strategy, `_for_complete_table` drops the options of that section from the
    # table. `_with_own` restores the options in experiments that have the network or strategy of the configuration.
    own = {section: table[section] for section in ("network", "strategy")} if isinstance(experiment, Config) else {}
    if isinstance(experiment, Config):
        grid = {key: _for_complete_table(table, key, values) for key, values in grid.items()}
        # The runs of a grid must not share the directory of existing runs. A sweep without a grid consists of these
        # runs, so it keeps their directory.
        keeps = output is None or (isinstance(output, Mapping) and "directory" not in output)
        if grid and keeps and any(experiment.directory().glob("seed-*.h5")):
            table["output"].pop("directory", None)
    _override_all(table, output, settings, complete=isinstance(experiment, Config))
    # Every run of the sweep can read a run or a champion file by its path. Other starts in memory have no path.
    if _take_source(table) is not None and not table["start_from"]:
        raise _start_in_memory()
    if seeds is not None:
        are_many = isinstance(seeds, Iterable) and not isinstance(seeds, str)
        table["seeds"] = plain(list(seeds) if are_many else seeds)
    # Put the grid into the sweep of the table. Refuse keys that set the same setting twice. The key of the sweep may
    # differ from the key of the grid: names for "strategy" vary "strategy.name".
    for key, values in grid.items():
        if key in ("seed", "seeds"):
            raise InputError("grid", "settings of the experiment", key, f"Seeds are an argument: seeds={values!r}.")
        swept = key
        varied = plain(list(values) if isinstance(values, range) else values)
        if isinstance(varied, list):
            varied = [_file_of_start(value) if key == "start_from" else plain_setting(key, value) for value in varied]
            swept = swept_key(key, varied)
        if swept != key and swept in grid:
            raise InputError("grid", f"either {key} or {swept}", "both")
        inner = [other for other in grid if other.startswith(f"{key}.")]
        if swept == key and inner:
            cure = f"Put {inner[0].removeprefix(f'{key}.')} into the tables of {key}."
            raise InputError("grid", f"either {key} or {inner[0]}", "both", cure)
        set_key(table, f"sweep.{swept}", varied)
    _check_not_swept(table, settings)
    title = Path(experiment).stem if isinstance(experiment, str | Path) else "sweep"
    # Both list the experiments in the same order.
    found = zip(combinations(table.get("sweep", {})), experiments(table, title), strict=True)
    return [(point, _with_own(config, point, table, own)) for point, config in found]


def _for_complete_table(table: dict[str, Any], key: str, values: Any) -> Any:
    """Return the values of a swept key. Remove options from the table that another network or strategy would inherit.

    The table of a configuration has all options. If every value of "network" or "strategy" names one, each begins with
    its own defaults, so the options of this section leave the table. But a value without a name, such as
    {"sigma": 0.1}, changes these options, so they stay. The names beside such a value become tables, because a table
    replaces the whole section.
    """
    if isinstance(values, list | tuple) and any(lacks_name(key, value) for value in values):
        return [{NAMED_SECTIONS[key]: each} if isinstance(each, str) else each for each in values]
    _drop_options(table, key, None)
    return values


def _with_own(config: Config, point: Mapping[str, Any], table: Mapping[str, Any], own: Mapping[str, Table]) -> Config:
    """Return an experiment of a sweep. A network or strategy of the swept configuration keeps its options.

    Args:
        config: The experiment. In it, a network or strategy that the sweep names has default options.
        point: The values of the sweep.
        table: The settings that all experiments share.
        own: The sections network and strategy of the configuration that is swept.
    """
    for section, options in own.items():
        if point.get(f"{section}.name") == options["name"]:
            whole = plain({section: {**options, **table[section]}})
            for key, value in point.items():
                if key.startswith(f"{section}."):
                    set_key(whole, key, value)
            config = config.model_copy(update={section: getattr(parse(Config, whole), section)})
    return config


def _check_not_swept(table: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise InputError for a setting without effect, because the table's sweep sets this setting in all experiments."""
    named = {section: f"{section}.{name}" for section, name in NAMED_SECTIONS.items()}
    # Collect the settings that the values of the sweep set, also inside tables.
    swept: set[str] = set()
    for point in combinations(table.get("sweep", {})):
        for key, value in point.items():
            if lacks_name(key, value):
                swept |= {f"{key}.{part}" for part in value}
            else:
                swept.add(named.get(key, key) if isinstance(value, str) else key)
    # If a sweep varies a whole section by names and by tables, the setting has an effect in experiments with names.
    replaced = tuple(f"{key}." for key in swept if named.get(key) not in swept)
    for key, value in settings.items():
        keys = [f"{key}.{part}" for part in value] if isinstance(value, Mapping) else [named.get(key, key)]
        for given in keys:
            if given in swept or given.startswith(replaced):
                raise InputError.plainly(given, f"{given} is given twice: as a setting, and in the sweep.")


def _override_all(table: dict[str, Any], output: _Output, settings: Mapping[str, Any], complete: bool) -> None:
    """Set settings, and the directory or the table of the output. Raises InputError.

    complete: Whether the table has all settings, including defaults. Then a network or strategy of another name begins
        with its own defaults.
    """
    for key, value in settings.items():
        if complete:
            name = value.get("name") if isinstance(value, Mapping) else value
            if name is not None:
                _drop_options(table, key, name)
        _override(table, key, value)
    if isinstance(output, Mapping):
        _override(table, "output", output)
    elif output is not None:
        if not isinstance(output, str | Path):
            raise InputError("output", "a directory, or a table of settings", repr(output))
        set_key(table, "output.directory", str(output))


def _drop_options(table: dict[str, Any], key: str, name: Any) -> None:
    """Empty the network or the strategy in a table if a key names that section, unless the section's name is `name`."""
    key = key.removesuffix(".name")
    section = table.get(key)
    if key in ("network", "strategy") and isinstance(section, dict) and name != section.get("name"):
        table[key] = {}


def _take_source(table: dict[str, Any]) -> Source | None:
    """Replace `start_from` in a table by plain values, as in TOML; return the start itself if it is in memory."""
    given = table.get("start_from")
    if given is None:
        return None
    table["start_from"], source = _start_setting(given)
    return source


def _start_setting(given: Any) -> tuple[Table, Source | None]:
    """Return the setting `start_from` for an argument of `evolve.train`, and the start itself if it is in memory.

    given: A path, a table, a run, or a champion file; or in memory the start of a run, a policy, a genome, or weights.
    """
    # `Run`, `ChampionFile` and `Policy` belong to a higher package, so this module cannot import them.
    given = getattr(given, "_stored", given)
    if isinstance(given, str | Path):
        return {"file": str(given)}, None
    if isinstance(given, StartFromOptions):
        return given.model_dump(exclude_none=True), None
    if isinstance(given, Mapping):
        return {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}, None
    # The file is in memory already, and need not be read again.
    if isinstance(given, Stored):
        return {"file": str(given.path)}, given
    if isinstance(given, Start):
        return {}, given
    cure = 'Give the run itself, or {"file": …} with "generation", "connections", "member" or "cell".'
    if hasattr(given, "genome") and hasattr(given, "normalizer"):  # a policy
        if given.normalizer is not None:
            expected = "a source that records how many observations its normalizer is computed from"
            raise InputError("start_from", expected, "a policy with a normalizer", cure)
        given = given.genome
    if not isinstance(given, Genomes | Collection):
        expected = "a run, a champion file or its path, a table with file, a policy, or a vector of numbers"
        raise InputError("start_from", expected, repr(given), cure)
    return {}, one_genome(given, "start_from")


def _file_of_start(given: Any) -> str | Table | None:
    """Return a value of `start_from` in a sweep: a path, a table with a path, or None. Raises InputError."""
    if given is None:  # random genomes
        return None
    setting, _ = _start_setting(given)
    if not setting:
        raise _start_in_memory()
    return setting["file"] if setting.keys() == {"file"} else setting


def _start_in_memory() -> InputError:
    cure = "Give it to evolve.train for each experiment."
    return InputError("start_from", "a file in a sweep, such as a run or its path", "a genome in memory", cure)


def _table(experiment: Any) -> dict[str, Any]:
    """Return an experiment as a new table. Raises InputError for anything else, such as a run or champion file."""
    if experiment is None:
        return {}
    if isinstance(experiment, Config):
        return experiment.model_dump(mode="json", exclude_none=True)
    if isinstance(experiment, str | Path):
        path = Path(os.path.expanduser(experiment))
        # `plan_from_arguments` resumes run files, so only a sweep gets here with a run file.
        if path.suffix in (".h5", ".champion"):
            kind = "a run file" if path.suffix == ".h5" else "a champion file"
            cure = f"Give its configuration: evolve.load({str(path)!r}).config."
            got = f"{path}, which is named like {kind}"
            raise InputError("experiment", "a TOML file, a table or a Config", got, cure)
        if path.suffix != ".toml" and not os.path.isfile(path):
            if os.path.isdir(path):
                raise InputError("experiment", _EXPERIMENT, f"{path}, a directory")
            hint = "An environment is named with its setting: ", Setting("env", str(experiment)), "."
            raise InputError("experiment", _EXPERIMENT, f"{path}, which does not exist", *hint)
        return read_file(path)
    # The class, the function or the object of an environment.
    if callable(experiment) or hasattr(experiment, "reset"):
        name = getattr(experiment, "__name__", '"module:Name-v0"')
        cure = f"An environment is named with its setting: env={name}."
        raise InputError("experiment", _EXPERIMENT, repr(experiment), cure)
    if not isinstance(experiment, Mapping):
        cure = "Give its attribute `config`." if isinstance(getattr(experiment, "config", None), Config) else ""
        raise InputError("experiment", _EXPERIMENT, repr(experiment), cure)
    table: dict[str, Any] = {}
    # Entry by entry, like settings, so that names and classes are converted.
    for key, value in experiment.items():
        _override(table, key, value)
    return table


def _seed(seed: Any) -> int:
    try:
        return parse(Config, {"seeds": [plain(seed)]}).seeds[0]
    except InputError as error:
        raise InputError("seed", error.expected, error.got, *error.cure) from None


def _override(table: dict[str, Any], key: str, value: Any) -> None:
    """Set a setting. A text sets the name of an env, network or strategy. A table is merged into the setting's table.

    For an empty table see `_SECTIONS`.
    """
    if key == "start_from":  # any object; `_take_source` replaces it
        table[key] = value
        return
    value = plain_setting(key, value)
    if isinstance(value, Mapping) and (value or key in _SECTIONS):
        for part, inner in value.items():
            set_key(table, f"{key}.{part}", inner)
    else:
        set_key(table, key, value)


def plain_setting(key: str, value: Any) -> Any:
    """Return the value of a setting with the types of TOML, and with names in place of classes and functions.

    Raises InputError for an environment that is neither named nor described.
    """
    if key in ("env", "fitness") and callable(value):
        return setting_of(value, key)
    if isinstance(value, Options | Choice):  # a section of a configuration
        return value.table() if isinstance(value, Choice) else value.model_dump(mode="json")
    if str(key).startswith("env."):  # a key may be a number, which is refused later
        part = key.removeprefix("env.")
        value = _named_classes({part: value})[part]
    elif key == "env" and isinstance(value, Mapping):
        value = _named_classes(value)
    elif key == "env" and not isinstance(value, str):
        expected = "the id of an environment, its class, a function that makes it, or a table of settings"
        raise InputError(
            "env", expected, repr(value), "An object is refused, because a run makes many environments: name the id."
        )
    return plain(value)


def _named_classes(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of an environment with names in place of classes and functions. Raises InputError."""
    table = dict(env)
    if callable(table.get("id")):
        table["id"] = setting_of(table["id"], "env")
    if isinstance(wrappers := table.get("wrappers"), list | tuple):
        table["wrappers"] = [_named_wrapper(each) for each in wrappers]
    return table


def _named_wrapper(wrapper: Any) -> Any:
    """Return a wrapper with a name in place of its class. The names of Gymnasium's wrappers have no module."""
    if isinstance(wrapper, Mapping) and isinstance(wrapper.get("name"), type):
        return {**wrapper, "name": _named_wrapper(wrapper["name"])}
    if not isinstance(wrapper, type):
        return wrapper
    name = setting_of(wrapper, "env.wrappers")
    return wrapper.__name__ if name.startswith("gymnasium.wrappers.") else name
