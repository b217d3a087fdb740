"""Groups of runs that differ only in their seeds, with labels that distinguish the groups.

`read_groups` and `begun_groups` make the groups. `deduplicate_seeds` and `by_machine` change them for a comparison or a
figure. The other functions describe groups in words, for labels, titles and notes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from evolve import networks, store
from evolve.analysis import statistics
from evolve.config import Config, StartFromOptions, differences, flatten, names_function, quantile_of
from evolve.errors import FAILURES, pluralize, sanitize
from evolve.shapes import Float64
from evolve.store import StoredRun
from evolve.training import config_of

_LONGEST_LABEL = 240  # characters
_LONGEST_NOTE = 1000  # characters
_MOST_SETTINGS = 3  # in a label; if there are more, it has the name of the directory instead
_MOST_SEEDS = 8  # in a list of seeds; of more seeds only the number is given
_EVALUATION = {"evaluation_max_episode_steps", "evaluation_randomize"}  # settings of held-out episodes alone
_MACHINE = ("cpu", "host", "ranks", "threads")  # entries of a manifest
# Settings that end a run. Runs that differ only in these settings are of one experiment.
_LIMITS = {"generations", "early_stop", "held_out_episodes"}


@dataclass(frozen=True)
class RunGroup:
    """The runs of one configuration. `label` distinguishes the group from other groups."""

    label: str
    config: Config
    runs: tuple[StoredRun, ...]

    @property
    def name(self) -> str:
        """The label without the environment."""
        return self.label.removeprefix(f"{sanitize(self.config.env.id)}, ")

    @cached_property
    def num_generations(self) -> int:
        """G, the number of generations that all runs have completed."""
        return min(run.num_generations for run in self.runs)


def mask_unit(config: Config) -> str:
    """Return the unit of the entries of a network's mask: "connections", or "coefficients" of learning rules."""
    try:
        # The unit does not depend on the sizes of observations and actions, so make the smallest network.
        # Only a block of coefficients of learning rules has a span, the shape of its connections.
        span = networks.make(config.network, 1, 1).blocks[0].span
    except FAILURES:  # a network of another package, which is not installed or cannot have these sizes
        return "connections"
    return "coefficients" if span else "connections"


def read_groups(
    files: Sequence[Path], check: Callable[[], None] = lambda: None
) -> tuple[list[StoredRun], list[RunGroup]]:
    """Read run files. Return all runs, and the groups of those runs that have a complete generation.

    Raises InputError if a file cannot be read, and RunError if no run has a complete generation.

    check: Called before each file. It may raise Stopped.
    """
    runs = []
    for path in files:
        check()
        runs.append(store.read(path))
    return runs, begun_groups(runs)


def begun_groups(runs: Sequence[StoredRun]) -> list[RunGroup]:
    """Return the groups of the runs that have a complete generation. Raises RunError if there are none."""
    store.check_begun("there is nothing to draw", *runs)
    return group_runs({run: config_of(run) for run in runs if run.num_generations})


def group_runs(configs: Mapping[StoredRun, Config]) -> list[RunGroup]:
    """Return groups of the runs with equal configurations, including the settings of held-out episodes.

    configs: The configuration of each run.
    """
    groups: list[tuple[Config, list[StoredRun]]] = []
    for run, run_config in configs.items():
        config = _without_seed(run_config, run.header.seed)
        for group_config, members in reversed(groups):  # the seeds of one experiment usually follow one another
            if not differences(group_config, config) and group_config.evaluates_like(config):
                members.append(run)
                break
        else:
            groups.append((config, [run]))
    # Label each group by the names and settings in which the groups differ.
    distinctions = _distinctions([config for config, _ in groups])
    if any(len(settings) > _MOST_SETTINGS for _, settings in distinctions):
        # Names of directories replace the settings if each group has a directory of its own.
        directories = [{run.path.resolve().parent.name for run in members} for _, members in groups]
        if all(len(names) == 1 for names in directories) and len(set.union(*directories)) == len(groups):
            distinctions = [(names, [*own]) for (names, _), own in zip(distinctions, directories, strict=True)]
    labelled = []
    for (names, settings), (config, members) in zip(distinctions, groups, strict=True):
        # If a seed ran with several limits (a sweep), divide the group by the limits.
        limits = [flatten(configs[run].model_dump(mode="json", include=_LIMITS)) for run in members]
        texts = [{key: f"{key} {value}" for key, value in values.items() if value is not None} for values in limits]
        for distinctive, part in _divide(members, texts):
            label = ", ".join(names + settings + distinctive) or f"{config.env.id}, {config.network.name}"
            part_config = _without_seed(configs[part[0]], part[0].header.seed)
            labelled.append(RunGroup(sanitize(label, _LONGEST_LABEL), part_config, part))
    return labelled


def _divide(
    runs: Sequence[StoredRun], texts: Sequence[dict[str, str]]
) -> list[tuple[list[str], tuple[StoredRun, ...]]]:
    """Divide runs into parts with equal texts. If no seed is in several of these parts, return all runs as one part.

    Return each part with the texts that distinguish it from other parts.

    texts: For each run, texts by key. A key may be missing.
    """
    keys = dict.fromkeys(key for texts_of_run in texts for key in texts_of_run)  # in their order, each once
    distinctive = [key for key in keys if len({texts_of_run.get(key) for texts_of_run in texts}) > 1]
    parts: dict[tuple[str, ...], list[StoredRun]] = {}
    for run, texts_of_run in zip(runs, texts, strict=True):
        parts.setdefault(tuple(texts_of_run[key] for key in distinctive if key in texts_of_run), []).append(run)
    seeds = [{run.header.seed for run in part} for part in parts.values()]
    # If no seed is in several parts, the union of the seeds is as large as the parts together.
    if sum(map(len, seeds)) == len(set.union(*seeds)):
        return [([], tuple(runs))]
    return [([*texts_of_part], tuple(part)) for texts_of_part, part in parts.items()]


def by_machine(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Divide a group by machine, number of ranks and number of threads if any of its seeds ran with several of them.

    Figures of the speed need such groups.
    """
    divided = []
    for group in groups:
        machines = []
        for run in group.runs:
            # Any program may have written the manifest, so an entry may be missing or of any type.
            entries = {key: statistics.words(run.header.manifest.get(key)) for key in _MACHINE}
            machines.append(entries | {key: f"{key} {entries[key]}" for key in ("ranks", "threads")})
        # If the processors differ, their names distinguish the machines, so leave out the names of the hosts.
        if len({machine["cpu"] for machine in machines}) > 1:
            machines = [machine | {"host": ""} for machine in machines]
        for distinctive, runs in _divide(group.runs, machines):
            label = ", ".join([group.label, *distinctive])
            divided.append(replace(group, label=sanitize(label, _LONGEST_LABEL), runs=runs))
    return divided


def _without_seed(config: Config, seed: int) -> Config:
    """Return `config`. But if each seed began with its own file of a directory, `start_from` names the directory.

    So the runs of all seeds of an experiment have the same configuration.
    """
    start = config.start_from
    if start is None or start.file is None:
        return config
    path = Path(start.file)
    if path.name == store.path_of(path.parent, seed).name:
        path = path.parent
    elif path.suffix in (".h5", ".champion"):  # all seeds began with one file
        return config
    # `path` is a directory. Each seed began with its own file there, so the seeds have different digests.
    return config.with_section("start_from", file=str(path), digest=None)


def _distinctions(configs: Sequence[Config]) -> list[tuple[list[str], list[str]]]:
    """Return for each configuration the names and the settings, in words, that distinguish it from the others.

    The names are the names of environment, network and strategy, without a name that all configurations share. The
    settings are the ones in which configurations with the same three names differ.
    """
    names_differ = [len(set(column)) > 1 for column in zip(*map(_names, configs), strict=True)]
    short_names: dict[tuple[str, str, str], dict[str, str]] = {}  # by the three names: short names of settings
    distinctions = []
    for config in configs:
        names = _names(config)
        alike = [other for other in configs if _names(other) == names]
        if names not in short_names:
            # The settings in which any configuration with these names differs from the first such configuration.
            keys = {key for other in alike for key, _, _ in group_differences(alike[0], other)}
            short_names[names] = _short_names(sorted(keys))
        # `group_differences` has one key for a whole start, `start_from`. So a start needs one text.
        values = flatten(config.model_dump(mode="json", exclude={"start_from"}))
        values["start_from"] = _start_in_words(config.start_from, [other.start_from for other in alike])
        own_names = [name for name, differs in zip(names, names_differ, strict=True) if differs]
        settings = [f"{name} {values[key]}" for key, name in short_names[names].items() if values.get(key) is not None]
        distinctions.append((own_names, settings))
    return distinctions


def _start_in_words(start: StartFromOptions | None, starts: Iterable[StartFromOptions | None]) -> str:
    """Return the start of the runs of a group: its file, and the setting that chose a genome in the file.

    Different genomes can have the same words: genomes from a script have no file, and a file may be replaced between
    two runs. The words of such a genome end with the first characters of its digest.

    starts: The starts of all compared groups. Different starts get different words.
    """
    if start is None:
        return "random genomes"
    named = start.model_copy(update={"digest": None})
    chosen = named.model_dump(mode="json", exclude={"file"}, exclude_none=True)
    words = " ".join([start.file or "a given genome", *(f"{name} {value}" for name, value in chosen.items())])
    # The digests of all starts that have these words.
    digests = {other.digest for other in starts if other and other.model_copy(update={"digest": None}) == named}
    return words if len(digests) == 1 else f"{words} {str(start.digest)[:8]}"


def group_differences(ours: Config, theirs: Config) -> list[tuple[str, object, object]]:
    """Return each differing setting as (key, our value, their value), including the settings of held-out episodes."""
    found = differences(ours, theirs)  # leaves out the settings of held-out episodes
    if not ours.evaluates_like(theirs):
        a = flatten(ours.model_dump(mode="json", include=_EVALUATION))
        b = flatten(theirs.model_dump(mode="json", include=_EVALUATION))
        found += [(key, a.get(key), b.get(key)) for key in sorted(a | b) if a.get(key) != b.get(key)]
    return found


def _short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return the shortest ending of each dotted key that no other key has: "gravity" of "env.kwargs.gravity"."""
    names = {}
    for key in keys:
        parts = key.split(".")
        others = [other.split(".") for other in keys if other != key]
        n = 1  # the number of parts of the ending
        while n < len(parts) and any(other[-n:] == parts[-n:] for other in others):
            n += 1
        names[key] = ".".join(parts[-n:])
    return names


def _names(config: Config) -> tuple[str, str, str]:
    """Return the names of environment, network and strategy."""
    return config.env.id, config.network.name, config.strategy.name


def describe_groups(groups: Sequence[RunGroup]) -> str:
    """Return the environments, networks, strategies and seeds of groups in words."""
    experiments = [pluralize(len(groups), "experiment")] if len(groups) > 1 else []
    seeds = seeds_in_words([run for group in groups for run in group.runs])
    return sanitize(", ".join([describe_searches(groups), *experiments, seeds]), _LONGEST_NOTE)


def seeds_in_words(runs: Sequence[StoredRun]) -> str:
    """Return the seeds of runs in words, such as "seeds 1, 2", or only their number if there are many."""
    seeds = sorted({run.header.seed for run in runs})
    if len(seeds) > _MOST_SEEDS:
        return f"{len(seeds)} seeds"
    noun = "seed" if len(seeds) == 1 else "seeds"
    return f"{noun} {', '.join(map(str, seeds))}"


def describe_searches(groups: Sequence[RunGroup]) -> str:
    """Return the environments, networks and strategies of groups in words, such as "Env-v0: lstm evolved by ga"."""
    columns = zip(*(_names(group.config) for group in groups), strict=True)
    envs, nets, strategies = (list(dict.fromkeys(column)) for column in columns)
    return f"{', '.join(envs)}: {_one_or_many(nets, 'networks')} evolved by {_one_or_many(strategies, 'strategies')}"


def _one_or_many(names: Sequence[str], plural: str) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} {plural}"


def fitness_in_words(groups: Sequence[RunGroup]) -> str:
    """Return the definition of the fitness in words, such as "mean return", without the cost of connections."""
    return " or ".join(dict.fromkeys(_fitness_of(group.config.fitness) for group in groups))


def _fitness_of(setting: str) -> str:
    if names_function(setting):
        return f"result of {setting}"
    known = {"mean": "mean return", "min": "smallest return", "median": "median return"}
    return known.get(setting) or f"{quantile_of(setting):g} quantile of the returns"


def constant_connections(group: RunGroup) -> int | None:
    """Return the number of connections that all candidates of all generations have; None if candidates differ."""
    first = int(group.runs[0].records[0].connections[0])
    same = all((record.connections == first).all() for run in group.runs for record in run.records)
    return first if same else None


def connections_vary(groups: Sequence[RunGroup]) -> bool:
    """Return whether the number of connections differs within any group. If so, figures of curves show it."""
    return any(constant_connections(group) is None for group in groups)


def selects_by_return(group: RunGroup) -> bool:
    """Return whether the fitness of a group has the scale of returns, without a user's function and without costs."""
    return not (names_function(group.config.fitness) or group.config.connection_cost > 0)


def costs_connections(groups: Sequence[RunGroup]) -> bool:
    """Return whether connections reduce the fitness in any group. If so, fitness differs from the mean return."""
    return any(group.config.connection_cost > 0 for group in groups)


def deduplicate_seeds(groups: Sequence[RunGroup]) -> tuple[list[RunGroup], list[str]]:
    """Return groups with only the longest run of each seed, and a note about omitted runs."""
    deduplicated = []
    left_out = []
    for group in groups:
        longest_of: dict[int, StoredRun] = {}  # by seed
        for run in sorted(group.runs, key=_extent, reverse=True):
            longest = longest_of.setdefault(run.header.seed, run)  # the first run of a seed is the longest one
            if longest is not run:
                left_out.append(_why_left_out(run, longest))
        # Restore the order of the group.
        seeds = dict.fromkeys(run.header.seed for run in group.runs)
        deduplicated.append(replace(group, runs=tuple(longest_of[seed] for seed in seeds)))
    note = f"a seed counts once, so these are left out: {'; '.join(left_out)}"
    return deduplicated, [sanitize(note, _LONGEST_NOTE)] if left_out else []


def _extent(run: StoredRun) -> tuple[int, bool, int]:
    """Return a sort key: the number of generations, whether the run is complete, the number of held-out episodes."""
    episodes = 0 if run.held_out is None else len(run.held_out.returns)
    return run.num_generations, run.complete, episodes


def _why_left_out(run: StoredRun, kept: StoredRun) -> str:
    """Return the path of a run, and its relation to the kept run of the same seed."""
    # A digest covers all generations so far. So if the last digest of the run, which is not the longer one, is equal in
    # the kept run, all generations of the run are equal.
    if kept.records[run.num_generations - 1].digest != run.records[-1].digest:
        return f"{run.path} (another run than {kept.path}: evolve.verify finds the first difference)"
    if run.num_generations < kept.num_generations:
        return f"{run.path} ({run.num_generations} of the {kept.num_generations} generations of {kept.path})"
    return f"{run.path} (equal to {kept.path})"


def uneven_lengths(groups: Sequence[RunGroup]) -> str:
    """Return a line about groups with seeds of different numbers of generations; empty if there are none."""
    uneven = []
    for group in groups:
        lengths = [run.num_generations for run in group.runs]
        if min(lengths) < max(lengths):
            seeds = f"{group.name}: seeds" if len(groups) > 1 else "seeds"
            uneven.append(f"{seeds} have {min(lengths):,} to {max(lengths):,} generations")
    return f"{'; '.join(uneven)}: curves stop at the shortest run" if uneven else ""


def failed_candidates(groups: Sequence[RunGroup]) -> str:
    """Return a line about candidates that failed in training, which curves leave out; empty if there are none."""
    failed = played = 0
    for group in groups:
        for run in group.runs:
            for fitness in fitness_of_played(run, group.config):
                failed += int(np.isnan(fitness).sum())
                played += len(fitness)
    return f"{failed:,} of {pluralize(played, 'candidate')} failed (not in the curves)" if failed else ""


def fitness_of_played(run: StoredRun, config: Config) -> list[Float64]:
    """Return for each generation the fitness [n] of the candidates that played.

    All candidates play, except in a growing population: the last candidates may not play yet.
    """
    if config.least_population is None:
        return [record.fitness for record in run.records]
    return [record.fitness[record.lengths.any(axis=1)] for record in run.records]


def by_environment(groups: Iterable[RunGroup]) -> list[list[RunGroup]]:
    """Return a list of the groups of each environment. The environments have the order of their first groups."""
    found: dict[str, list[RunGroup]] = {}
    for group in groups:
        found.setdefault(group.config.env.id, []).append(group)
    return list(found.values())
