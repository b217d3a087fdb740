"""Plans runs from the arguments of Python calls, and predicts their size and their effect on files. It writes nothing.

`plan_from_arguments` serves `evolve.train` and `evolve.iterate`, `sweep_from_arguments` serves `evolve.sweep`. Both put
all arguments into one table of settings, of the form of an experiment file, and parse it. `plan_runs` then makes a
`PlannedRun` for each seed. `preview` tells the effect of a planned run on its file. `resume.py` creates the files.
"""

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
from evolve.training.stored import StartSource, with_start

_ExperimentArg = str | Path | Mapping[str, Any] | Config | None
"""The argument `experiment` of `evolve.train`, `evolve.iterate` and `evolve.sweep`."""
_OutputArg = str | Path | Mapping[str, Any] | None
"""The argument `output` of the same functions: a directory, or a table of settings."""
_EXPECTED_EXPERIMENT = "a TOML file, a table, a Config or a run file"
_SECTIONS = {*NAMED_SECTIONS, "compute", "output", "racing", "early_stop"}
"""The sections of settings. An empty table for a section changes nothing; for another setting it replaces the value."""


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
        action: The effect on the file of the run. "begin" creates the file. With "keep" the run is already complete.
        stored: The existing run file; None for "begin".
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
        InputError: The run cannot begin or be resumed, for the reasons of `check_and_create_runs`.
    """
    store.check_unlocked(run.path)
    # A run file without a generation may be replaced without `overwrite`, because nothing is lost.
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
    experiments: Sequence[Experiment], file: Path | None = None, resume: bool = False, source: StartSource | None = None
) -> list[PlannedRun]:
    """Return a run for each experiment and each of its seeds. Each begins with the genome of `start_from`, if any.

    Args:
        experiments: The experiments.
        file: The run file, if the caller resumes a run by the path of its file.
        resume: Whether existing runs are resumed.
        source: The source of the genome, if it is in memory.

    Raises:
        InputError: A genome cannot be read, or does not fit. Or a path is relative to a removed directory.
    """
    runs = []
    for experiment in experiments:
        by_digest: dict[str, Experiment] = {}  # runs that begin with the same genome share one experiment
        directory = experiment.config.directory()
        if file is None and not directory.is_absolute():
            try:
                os.getcwd()  # fails if the working directory was removed
            except FileNotFoundError:
                cure = "Change to another directory, or give an absolute path."
                raise InputError("output", "a directory", f"{directory} in a removed directory", cure) from None
        for seed in experiment.config.seeds:
            path = file or store.path_of(directory, seed)
            run = with_start(PlannedRun(experiment, seed, path), resume, source)
            digest = "" if run.experiment.start is None else run.experiment.start.digest
            runs.append(replace(run, experiment=by_digest.setdefault(digest, run.experiment)))
    return runs


def size_of(config: Config, completed: int = 0) -> RunSize:
    """Return the size of the remaining part of a run. completed: the number of complete generations."""
    # The episodes. A validation precedes each generation that is a multiple of `early_stop.every`, except generation 0.
    stop = config.early_stop
    per_generation = config.population * config.episodes
    training = max(0, config.generations - completed) * per_generation
    validations = 0
    if stop.mean_return is not None and completed < config.generations:
        validations = (config.generations - 1) // stop.every - max(0, completed - 1) // stop.every
    evaluation = validations * stop.episodes + config.held_out_episodes
    # The steps, if every episode lasts to its step limit.
    limit = environments.max_episode_steps(config.env)
    evaluation_limit = environments.max_episode_steps(config.in_evaluation().env)
    if limit is None or evaluation_limit is None:
        return RunSize(training + evaluation, None)
    training_steps = training * limit
    if config.early_max_episode_steps is not None:
        early_left = max(0, min(config.early_generations, config.generations) - completed)
        training_steps -= early_left * per_generation * max(0, limit - config.early_max_episode_steps)
    if stop.steps is not None:  # the run stops after the generation that reaches this number
        training_steps = min(training_steps, stop.steps + per_generation * limit)
    return RunSize(training + evaluation, training_steps + evaluation * evaluation_limit)


def file_bytes(experiment: Experiment) -> int:
    """Return the approximate bytes of a whole run file, without the state of the strategy.

    The step hashes of the champions count as if each of their episodes lasted to its step limit.
    """
    config, network = experiment.config, experiment.network
    steps = environments.max_episode_steps(config.env) or MAX_HASHED_STEPS
    # The lengths of the letters in the shapes of columns (`store.schema`), for a run on one rank.
    sizes = {"P": config.population, "E": config.episodes, "W": network.num_weights, "R": 1}
    sizes["L"] = config.episodes * min(steps, MAX_HASHED_STEPS)
    if config.normalize_observations:
        sizes["O"] = network.observation_size
    # Test the name, because a test of the options' class would import its module for every experiment.
    if config.strategy.name == "map-elites":
        sizes["C"] = math.prod(getattr(config.strategy.options, "cells", (0,)))
    return config.generations * schema.generation_bytes(sizes, config.output.genomes == "all")


def work_of(configs: Sequence[Config]) -> Work:
    """Return upper limits of the work of experiments, as if no run file existed, and the smallest number of threads."""
    episodes = max(config.population * config.episodes for config in configs)
    threads = min(map(num_threads, configs))
    # The steps are needed only if all environments are quick. For other environments, `size_of` would import modules,
    # though this process only starts the ranks. Test for exact tasks first, because `is_quick` imports Gymnasium.
    if not all(config.env.engine == "exact" or environments.is_quick(config.env) for config in configs):
        return Work(episodes, None, threads)
    sizes = [size_of(config) for config in configs for _ in config.seeds]
    return Work(episodes, sum(sizes, start=RunSize(0, 0)).steps, threads)


def threads_for(
    files: Iterable[Path], changes: Mapping[str, Any] | None = None, threads: int | str | None = None
) -> int:
    """Return the number of threads in which one process plays episodes: the smallest of the numbers for the files.

    Args:
        files: Run files and champion files, or directories with one run file.
        changes: Changed settings of the environments, see `EnvOptions.changed`.
        threads: The number of threads if the user gives it.

    Raises:
        InputError: A file cannot be read, or the number of threads is too large.
    """
    configs = [config_of(store.read_any(store.one_run_file(path))).with_env_changes(changes or {}) for path in files]
    # The settings `compute` in the files suit the machines on which they were written.
    compute = parse(ComputeOptions, {"threads": threads or "auto"}, "compute")
    return min(num_threads(config.model_copy(update={"compute": compute})) for config in configs)


def plan_from_arguments(
    experiment: _ExperimentArg, seed: int | None, output: _OutputArg, settings: Mapping[str, Any], resume: bool = False
) -> PlannedRun:
    """Return the run that the arguments of `evolve.train` or `evolve.iterate` describe. Raises InputError."""
    restore_ieee()  # for correct conversions of texts to numbers: a library may have changed the arithmetic
    # The experiment is a run file (.h5), or anything else that describes an experiment.
    path = Path(os.path.expanduser(experiment) if isinstance(experiment, str | Path) else "")
    file = path if path.suffix == ".h5" else None
    table = _table(experiment) if file is None else experiment_table(file)
    stored = None if file is None else parse(Config, table)
    # The call evolves one run, so both arguments must give a single seed.
    for name, argument in (("seeds", settings.get("seeds")), ("seed", seed)):
        seeds = plain(argument)
        if isinstance(seeds, Collection) and not isinstance(seeds, str) and len(seeds) > 1:
            cure = f"evolve.sweep({{}}, seeds={seeds}, …) evolves a run for each seed."
            raise InputError(name, "one number, as seed=1", seeds, cure)
    # Change the settings. One of them may be `start_from`, so take the source of the start afterwards.
    _override_all(table, output, settings, is_complete=isinstance(experiment, Config))
    source = _take_source(table)
    # Parse the table. If it comes from a file, it may have a sweep.
    configs = experiments(table, "sweep")
    if len(configs) > 1:
        raise InputError("experiment", "one experiment", f"a sweep of {len(configs)}", "Run it by evolve.sweep.")
    _check_not_swept(table, settings)
    config = configs[0].model_copy(update={"seeds": (configs[0].seeds[0] if seed is None else _checked_seed(seed),)})
    # The settings must not turn a resumed run into another run.
    if file is not None and stored is not None:
        check_same_run(config, stored, file)
    return plan_runs([prepare(config)], file, resume, source)[0]


def sweep_from_arguments(
    grid: Mapping[str, Any], experiment: _ExperimentArg, seeds: Any, output: _OutputArg, settings: Mapping[str, Any]
) -> list[tuple[dict[str, Any], Config]]:
    """Return the experiments that the arguments of `evolve.sweep` describe, each with its values of the sweep.

    The sweep consists of the grid and of the experiment's own sweep. Raises InputError.
    """
    if not isinstance(grid, Mapping) or not all(isinstance(key, str) for key in grid):
        raise InputError("grid", 'a table of lists, such as {"strategy.sigma": [0.1, 0.3]}', repr(grid))
    table = _table(experiment)
    # The table of a Config has all options of its network and strategy. `_sweep_section` drops them if the grid varies
    # this section. `_with_own_options` restores them in experiments that have the network or strategy of the Config.
    own = {section: table[section] for section in ("network", "strategy")} if isinstance(experiment, Config) else {}
    if isinstance(experiment, Config):
        grid = {key: _sweep_section(table, key, values) for key, values in grid.items()}
        # The runs of a grid must not share the directory of existing runs. A sweep without a grid consists of these
        # runs, so it keeps their directory.
        names_no_directory = output is None or (isinstance(output, Mapping) and "directory" not in output)
        if grid and names_no_directory and any(experiment.directory().glob("seed-*.h5")):
            table["output"].pop("directory", None)
    # Change the settings.
    _override_all(table, output, settings, is_complete=isinstance(experiment, Config))
    # Every run of the sweep can read a run or a champion file by its path. Other starts in memory have no path.
    if _take_source(table) is not None and not table["start_from"]:
        raise _start_in_memory()
    if seeds is not None:
        are_many = isinstance(seeds, Iterable) and not isinstance(seeds, str)
        table["seeds"] = plain(list(seeds) if are_many else seeds)
    # Put the grid into the sweep of the table, and parse the table.
    for key, values in grid.items():
        _add_to_sweep(table, grid, key, values)
    _check_not_swept(table, settings)
    title = Path(experiment).stem if isinstance(experiment, str | Path) else "sweep"
    # Both functions list the experiments in the same order.
    points = zip(combinations(table.get("sweep", {})), experiments(table, title), strict=True)
    return [(point, _with_own_options(config, point, table, own)) for point, config in points]


def _add_to_sweep(table: dict[str, Any], grid: Mapping[str, Any], key: str, values: Any) -> None:
    """Put a key of a grid into the sweep of a table. Raises InputError if another key of the grid sets it, too.

    The key of the sweep may differ from the key of the grid: names for "strategy" vary "strategy.name".
    """
    if key in ("seed", "seeds"):
        raise InputError("grid", "settings of the experiment", key, f"Seeds are an argument: seeds={values!r}.")
    sweep_key = key
    values = plain(list(values) if isinstance(values, range) else values)
    if isinstance(values, list):
        values = [_file_of_start(value) if key == "start_from" else plain_setting(key, value) for value in values]
        sweep_key = swept_key(key, values)
    if sweep_key != key and sweep_key in grid:
        raise InputError("grid", f"either {key} or {sweep_key}", "both")
    inner_keys = [other for other in grid if other.startswith(f"{key}.")]
    if sweep_key == key and inner_keys:
        cure = f"Put {inner_keys[0].removeprefix(f'{key}.')} into the tables of {key}."
        raise InputError("grid", f"either {key} or {inner_keys[0]}", "both", cure)
    set_key(table, f"sweep.{sweep_key}", values)


def _sweep_section(table: dict[str, Any], key: str, values: Any) -> Any:
    """Return the values of a key in a grid. Drop the options in the table that they must not inherit.

    Only keys of the network and the strategy need this. The table has all options of a network and a strategy.

    If every value of "network" or "strategy" has a name, each begins with the defaults of this name. So the options of
    the section are dropped. But a value without a name, such as {"sigma": 0.1}, changes these options, so they stay.
    In this case a name among the values becomes a table with this name, which replaces the whole section.
    """
    if isinstance(values, list | tuple) and any(lacks_name(key, value) for value in values):
        return [{NAMED_SECTIONS[key]: each} if isinstance(each, str) else each for each in values]
    _drop_options(table, key, None)
    return values


def _with_own_options(
    config: Config, point: Mapping[str, Any], table: Mapping[str, Any], own: Mapping[str, Table]
) -> Config:
    """Return an experiment of a sweep. A network or strategy of the swept configuration gets its own options back.

    Args:
        config: The experiment. In it, a network or strategy that the sweep names has default options.
        point: The values of the sweep.
        table: The settings that all experiments share.
        own: The sections network and strategy of the configuration that is swept.
    """
    for section, options in own.items():
        if point.get(f"{section}.name") == options["name"]:
            # The options of the configuration, then changed settings, then values of the sweep.
            restored = plain({section: {**options, **table[section]}})
            for key, value in point.items():
                if key.startswith(f"{section}."):
                    set_key(restored, key, value)
            config = config.model_copy(update={section: getattr(parse(Config, restored), section)})
    return config


def _check_not_swept(table: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise InputError for a setting without effect, because the table's sweep sets this setting in all experiments."""
    # The key of each section's name, such as "strategy.name".
    name_keys = {section: f"{section}.{name}" for section, name in NAMED_SECTIONS.items()}
    # Collect the keys that the values of the sweep set, also inside tables.
    swept: set[str] = set()
    for point in combinations(table.get("sweep", {})):
        for key, value in point.items():
            if lacks_name(key, value):
                swept |= {f"{key}.{part}" for part in value}
            else:
                swept.add(name_keys.get(key, key) if isinstance(value, str) else key)
    # A table of the sweep replaces a whole section, with all settings in it. But if the sweep also sets the name of the
    # section alone, the settings have an effect in the experiments with this name.
    replaced_sections = tuple(f"{key}." for key in swept if name_keys.get(key) not in swept)
    for key, value in settings.items():
        user_keys = [f"{key}.{part}" for part in value] if isinstance(value, Mapping) else [name_keys.get(key, key)]
        for user_key in user_keys:
            if user_key in swept or user_key.startswith(replaced_sections):
                raise InputError.plainly(user_key, f"{user_key} is given twice: as a setting, and in the sweep.")


def _override_all(table: dict[str, Any], output: _OutputArg, settings: Mapping[str, Any], is_complete: bool) -> None:
    """Set settings, and the directory or the table of the output. Raises InputError.

    is_complete: Whether the table has all settings, including defaults. Then a network or strategy of another name
        must not inherit the options in the table.
    """
    for key, value in settings.items():
        if is_complete:
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
    """Empty the section "network" or "strategy" of a table, unless its name is `name` already.

    key: The section, or the setting of its name, such as "strategy.name". For other keys nothing happens.
    """
    key = key.removesuffix(".name")
    section = table.get(key)
    if key in ("network", "strategy") and isinstance(section, dict) and name != section.get("name"):
        table[key] = {}


def _take_source(table: dict[str, Any]) -> StartSource | None:
    """Replace `start_from` in a table by plain values, as in TOML; return the start itself if it is in memory."""
    start = table.get("start_from")
    if start is None:
        return None
    table["start_from"], source = _start_setting(start)
    return source


def _start_setting(start: Any) -> tuple[Table, StartSource | None]:
    """Return the setting `start_from` as a table of plain values, and the start itself if it is in memory, or None.

    start: A path, a table, a run, or a champion file; or in memory the start of a run, a policy, a genome, or weights.
    """
    # `Run`, `ChampionFile` and `Policy` belong to a higher package, so this module cannot import them. The first two
    # hold their file's content as `_stored`.
    start = getattr(start, "_stored", start)
    if isinstance(start, str | Path):
        return {"file": str(start)}, None
    if isinstance(start, StartFromOptions):
        return start.model_dump(exclude_none=True), None
    if isinstance(start, Mapping):
        return {key: str(value) if isinstance(value, Path) else value for key, value in start.items()}, None
    # The content of the file is in memory already, and need not be read again.
    if isinstance(start, Stored):
        return {"file": str(start.path)}, start
    if isinstance(start, Start):
        return {}, start
    cure = 'Give the run itself, or {"file": …} with "generation", "connections", "member" or "cell".'
    if hasattr(start, "genome") and hasattr(start, "normalizer"):  # a policy
        if start.normalizer is not None:
            expected = "a source that records how many observations its normalizer is computed from"
            raise InputError("start_from", expected, "a policy with a normalizer", cure)
        start = start.genome
    if not isinstance(start, Genomes | Collection):
        expected = "a run, a champion file or its path, a table with file, a policy, or a vector of numbers"
        raise InputError("start_from", expected, repr(start), cure)
    return {}, one_genome(start, "start_from")


def _file_of_start(start: Any) -> str | Table | None:
    """Return a value of `start_from` in a sweep: a path, a table with a path, or None. Raises InputError."""
    if start is None:  # random genomes
        return None
    setting, _ = _start_setting(start)
    if not setting:
        raise _start_in_memory()
    return setting["file"] if setting.keys() == {"file"} else setting


def _start_in_memory() -> InputError:
    """Return the error for a start in a sweep that has no path."""
    cure = "Give it to evolve.train for each experiment."
    return InputError("start_from", "a file in a sweep, such as a run or its path", "a genome in memory", cure)


def _table(experiment: Any) -> dict[str, Any]:
    """Return the argument `experiment` as a new table of settings.

    Raises InputError for a run file or a champion file, and for anything else that is no experiment.
    """
    if experiment is None:
        return {}
    if isinstance(experiment, Config):
        return experiment.model_dump(mode="json", exclude_none=True)
    if isinstance(experiment, str | Path):
        path = Path(os.path.expanduser(experiment))
        # `plan_from_arguments` accepts a run file and resumes it. A sweep cannot.
        if path.suffix in (".h5", ".champion"):
            kind = "a run file" if path.suffix == ".h5" else "a champion file"
            cure = f"Give its configuration: evolve.load({str(path)!r}).config."
            got = f"{path}, which is named like {kind}"
            raise InputError("experiment", "a TOML file, a table or a Config", got, cure)
        if path.suffix != ".toml" and not os.path.isfile(path):
            if os.path.isdir(path):
                raise InputError("experiment", _EXPECTED_EXPERIMENT, f"{path}, a directory")
            hint = "An environment is named with its setting: ", Setting("env", str(experiment)), "."
            raise InputError("experiment", _EXPECTED_EXPERIMENT, f"{path}, which does not exist", *hint)
        return read_file(path)
    # The class or the object of an environment, or a function that makes it.
    if callable(experiment) or hasattr(experiment, "reset"):
        name = getattr(experiment, "__name__", '"module:Name-v0"')
        cure = f"An environment is named with its setting: env={name}."
        raise InputError("experiment", _EXPECTED_EXPERIMENT, repr(experiment), cure)
    if not isinstance(experiment, Mapping):
        cure = "Give its attribute `config`." if isinstance(getattr(experiment, "config", None), Config) else ""
        raise InputError("experiment", _EXPECTED_EXPERIMENT, repr(experiment), cure)
    # Set each entry as a setting, because `_override` replaces classes and functions by names.
    table: dict[str, Any] = {}
    for key, value in experiment.items():
        _override(table, key, value)
    return table


def _checked_seed(seed: Any) -> int:
    """Return the argument `seed` as a number. Raises InputError for an invalid seed."""
    try:
        return parse(Config, {"seeds": [plain(seed)]}).seeds[0]
    except InputError as error:
        raise InputError("seed", error.expected, error.got, *error.cure) from None


def _override(table: dict[str, Any], key: str, value: Any) -> None:
    """Set a setting in a table. A text for a section of `NAMED_SECTIONS` sets its name; other settings in it stay.

    A table of settings is merged into the table that the setting has. For an empty table see `_SECTIONS`.
    """
    if key == "start_from":  # any object; `_take_source` replaces it later
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

    Raises InputError for an environment that is an object.
    """
    if key in ("env", "fitness") and callable(value):
        return setting_of(value, key)
    if isinstance(value, Options | Choice):  # a section of a configuration
        return value.table() if isinstance(value, Choice) else value.model_dump(mode="json")
    if str(key).startswith("env."):  # a key of the user may be a number, which `set_key` refuses later
        name = key.removeprefix("env.")
        value = _named_classes({name: value})[name]
    elif key == "env" and isinstance(value, Mapping):
        value = _named_classes(value)
    elif key == "env" and not isinstance(value, str):
        expected = "the id of an environment, its class, a function that makes it, or a table of settings"
        cure = "An object is refused, because a run makes many environments: name the id."
        raise InputError("env", expected, repr(value), cure)
    return plain(value)


def _named_classes(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of an environment with names in place of classes and functions. Raises InputError."""
    table = dict(env)
    if callable(table.get("id")):
        table["id"] = setting_of(table["id"], "env")
    if isinstance(wrappers := table.get("wrappers"), list | tuple):
        table["wrappers"] = [_named_wrapper(each) for each in wrappers]
    return table


def _named_wrapper(wrapper: Any) -> Any:
    """Return a wrapper with a name in place of its class.

    The name is `module:Class`. For wrappers of Gymnasium the class alone is enough.
    """
    if isinstance(wrapper, Mapping) and isinstance(wrapper.get("name"), type):
        return {**wrapper, "name": _named_wrapper(wrapper["name"])}
    if not isinstance(wrapper, type):
        return wrapper
    name = setting_of(wrapper, "env.wrappers")
    return wrapper.__name__ if name.startswith("gymnasium.wrappers.") else name
