"""Groups of runs that differ only in their seeds, and comparisons of such groups by mean, interval and rank test."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from evolve import environments, networks, store
from evolve.analysis import statistics
from evolve.analysis.generations import evaluation_of
from evolve.config import (
    Config,
    EnvOptions,
    Options,
    StartFromOptions,
    differences,
    flatten,
    names_function,
    quantile_of,
)
from evolve.errors import FAILURES, InputError, pluralize, sanitize
from evolve.shapes import Float64
from evolve.store import StoredRun
from evolve.training import config_of

HELD_OUT = "held-out champion's mean return"
TRAINING = "best fitness of the last generation, in training"
_LONGEST_LABEL = 240  # characters
_LONGEST_NOTE = 1000  # characters
_MOST_SETTINGS = 3  # in a label; the name of the directory replaces more settings
_MOST_SEEDS = 8  # listed one by one; more seeds are counted
_FEWEST_SCORES = 3  # fewer scores have no interval
_EVALUATION = {"evaluation_max_episode_steps", "evaluation_randomize"}  # settings of held-out episodes alone
_MACHINE = ("cpu", "host", "ranks", "threads")  # entries of a manifest
_LIMITS = {"generations", "early_stop", "held_out_episodes"}  # settings that end a run, and no part of an experiment
_HOW_TO_EVALUATE = "To evaluate: python -m evolve.evaluate FILE"
_NOT_EVALUATED = (
    "No run was evaluated on held-out episodes, so training fitness is compared, which flatters every run. "
    f"{_HOW_TO_EVALUATE}"
)


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

    @cached_property
    def mask_unit(self) -> str:
        """The unit of the entries of a mask, see `mask_unit`."""
        return mask_unit(self.config)


def mask_unit(config: Config) -> str:
    """Return the unit of the entries of a mask: "connections", or "coefficients" of learning rules."""
    try:
        span = networks.make(config.network, 1, 1).blocks[0].span  # the unit is the same for all sizes
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
    return group_runs([(run, config_of(run)) for run in runs if run.num_generations])


def group_runs(runs: Sequence[tuple[StoredRun, Config]]) -> list[RunGroup]:
    """Group runs by their configurations, including the settings of held-out episodes."""
    groups: list[tuple[Config, list[StoredRun]]] = []
    own_configs = {id(run): config for run, config in runs}
    for run, own_config in runs:
        config = _without_seed(own_config, run.header.seed)
        for known, members in reversed(groups):  # the seeds of one experiment usually follow one another
            if not differences(known, config) and known.evaluates_like(config):
                members.append(run)
                break
        else:
            groups.append((config, [run]))
    # Label each group by the names and settings in which the groups differ.
    distinctions = _distinctions([config for config, _ in groups])
    if any(len(settings) > _MOST_SETTINGS for _, settings in distinctions):
        # Names of directories replace the settings if each group has a directory of its own.
        directories = [{run.path.resolve().parent.name for run in members} for _, members in groups]
        if all(len(own) == 1 for own in directories) and len(set.union(*directories)) == len(groups):
            distinctions = [(names, [*own]) for (names, _), own in zip(distinctions, directories, strict=True)]
    labelled = []
    for (names, settings), (config, members) in zip(distinctions, groups, strict=True):
        parts = _by_limits([(run, own_configs[id(run)]) for run in members])
        for limits, some in parts:
            label = ", ".join(names + settings + limits) or f"{config.env.id}, {config.network.name}"
            # Each part has its own limits.
            part_config = _without_seed(own_configs[id(some[0])], some[0].header.seed) if len(parts) > 1 else config
            labelled.append(RunGroup(sanitize(label, _LONGEST_LABEL), part_config, some))
    return labelled


def _by_limits(runs: Sequence[tuple[StoredRun, Config]]) -> list[tuple[list[str], tuple[StoredRun, ...]]]:
    """Divide the runs of a group by the settings that end them, if these let a seed run more than once, as in a sweep.

    Return for each part the settings in words in which the parts differ, and its runs.
    """
    limits = [flatten(config.model_dump(mode="json", include=_LIMITS)) for _, config in runs]
    words = [{key: f"{key} {value}" for key, value in values.items() if value is not None} for values in limits]
    return _divide([run for run, _ in runs], words)


def _divide(
    runs: Sequence[StoredRun], words: Sequence[dict[str, str]]
) -> list[tuple[list[str], tuple[StoredRun, ...]]]:
    """Divide runs by words about each run, if a seed is in several parts; see `_by_limits`."""
    every = dict.fromkeys(key for each in words for key in each)
    keys = [key for key in every if len({each.get(key) for each in words}) > 1]
    parts: dict[tuple[str, ...], list[StoredRun]] = {}
    for run, each in zip(runs, words, strict=True):
        parts.setdefault(tuple(each[key] for key in keys if key in each), []).append(run)
    seeds = [{run.header.seed for run in part} for part in parts.values()]
    if sum(map(len, seeds)) == len(set.union(*seeds)):
        return [([], tuple(runs))]
    return [([*different], tuple(part)) for different, part in parts.items()]


def by_machine(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Divide groups by the machine and the processes, where a seed ran on several: for a picture of their speed."""
    found = []
    for group in groups:
        manifests = [run.header.manifest for run in group.runs]
        # Any program may have written a manifest.
        facts = [{key: statistics.words(manifest.get(key)) for key in _MACHINE} for manifest in manifests]
        if len({fact["cpu"] for fact in facts}) > 1:
            facts = [fact | {"host": ""} for fact in facts]
        words = [
            {key: text if key in ("cpu", "host") else f"{key} {text}" for key, text in fact.items()} for fact in facts
        ]
        for different, runs in _divide(group.runs, words):
            label = ", ".join([group.label, *different])
            found.append(replace(group, label=sanitize(label, _LONGEST_LABEL), runs=runs))
    return found


def _without_seed(config: Config, seed: int) -> Config:
    """Return a configuration that is the same for the runs of all seeds.

    If each seed began with its own file of a directory, `start_from` then names the directory instead of the file.
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
    return config.model_copy(update={"start_from": start.model_copy(update={"file": str(path), "digest": None})})


def _distinctions(configs: Sequence[Config]) -> list[tuple[list[str], list[str]]]:
    """Return for each configuration the names and the settings, in words, that distinguish it from the others.

    Names of environments, networks and strategies are left out if all configurations share them. The settings are those
    in which configurations with the same three names differ.
    """
    names_differ = [len(set(column)) > 1 for column in zip(*map(_names, configs), strict=True)]
    short_names: dict[tuple[str, str, str], dict[str, str]] = {}
    found = []
    for config in configs:
        names = _names(config)
        alike = [other for other in configs if _names(other) == names]
        if names not in short_names:
            # All settings in which any configuration with these names differs from the first one.
            keys = {key for other in alike for key, _, _ in group_differences(alike[0], other)}
            short_names[names] = _short_names(sorted(keys))
        # `differences` compares a start as a whole, under the key `start_from`, so a start has one text.
        values = flatten(config.model_dump(mode="json", exclude={"start_from"}))
        values["start_from"] = _start_in_words(config.start_from, [other.start_from for other in alike])
        own_names = [name for name, differs in zip(names, names_differ, strict=True) if differs]
        settings = [f"{name} {values[key]}" for key, name in short_names[names].items() if values.get(key) is not None]
        found.append((own_names, settings))
    return found


def _start_in_words(start: StartFromOptions | None, starts: Iterable[StartFromOptions | None]) -> str:
    """Return the start of the runs of a group: its file, and the setting that chose a genome in the file.

    Different genomes can have the same words: genomes from a script have no file, and a file may be replaced between
    two runs. The words of such a genome end with the first characters of its digest.

    starts: The starts of all groups from which the words must distinguish this start.
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
    found = differences(ours, theirs)
    if not ours.evaluates_like(theirs):  # `differences` leaves out these settings
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
        n = 1
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
    """Return whether the number of connections differs within any group. If so, curves have a panel for it."""
    return any(constant_connections(group) is None for group in groups)


def selects_by_return(group: RunGroup) -> bool:
    """Return whether the fitness of a group has the scale of returns: no function of the user, and no costs."""
    return not (names_function(group.config.fitness) or group.config.connection_cost > 0)


def costs_connections(groups: Sequence[RunGroup]) -> bool:
    """Return whether connections reduce the fitness in any group. If so, fitness differs from the mean return."""
    return any(group.config.connection_cost > 0 for group in groups)


def deduplicate_seeds(groups: Sequence[RunGroup]) -> tuple[list[RunGroup], list[str]]:
    """Return groups with only the longest run of each seed, and a note about omitted runs."""
    kept_groups = []
    left_out = []
    for group in groups:
        # The longest run of a seed comes first and is kept.
        kept: dict[int, StoredRun] = {}
        for run in sorted(group.runs, key=_extent, reverse=True):
            longest = kept.setdefault(run.header.seed, run)
            if longest is not run:
                left_out.append(_why_left_out(run, longest))
        # The kept runs have the order of the group again, not the order of their lengths.
        seeds = dict.fromkeys(run.header.seed for run in group.runs)
        kept_groups.append(replace(group, runs=tuple(kept[seed] for seed in seeds)))
    notes = [f"a seed counts once, so these are left out: {'; '.join(left_out)}"] if left_out else []
    return kept_groups, [sanitize(note, _LONGEST_NOTE) for note in notes]


def _extent(run: StoredRun) -> tuple[int, bool, int]:
    """Return a sort key: generations, whether the run is complete, and held-out episodes."""
    episodes = 0 if run.held_out is None else len(run.held_out.returns)
    return run.num_generations, run.complete, episodes


def _why_left_out(run: StoredRun, kept: StoredRun) -> str:
    """Return the path of a run, and its relation to the kept run of the same seed."""
    # Digests are chained: if the digests of a generation are equal, so are all generations before it. The kept run is
    # never the shorter one.
    if kept.records[run.num_generations - 1].digest != run.records[-1].digest:
        return f"{run.path} (another run than {kept.path}: evolve.verify finds the first difference)"
    if run.num_generations < kept.num_generations:
        return f"{run.path} ({run.num_generations} of the {kept.num_generations} generations of {kept.path})"
    return f"{run.path} (equal to {kept.path})"


def uneven_lengths(groups: Sequence[RunGroup]) -> str:
    """Return a line about groups whose seeds have different numbers of generations; empty if there are none."""
    uneven = []
    for group in groups:
        lengths = [run.num_generations for run in group.runs]
        if min(lengths) < max(lengths):
            seeds = f"{group.name}: seeds" if len(groups) > 1 else "seeds"
            uneven.append(f"{seeds} have {min(lengths):,} to {max(lengths):,} generations")
    return f"{'; '.join(uneven)}: curves stop at the shortest run" if uneven else ""


def _mixed_lengths(groups: Sequence[RunGroup]) -> str:
    """Return a note if a mean is of champions of different lengths of training; empty otherwise."""
    # If any run has held-out episodes, means are of such runs only.
    is_evaluated = any(run.held_out is not None for group in groups for run in group.runs)
    mixed = []
    for group in groups:
        counted = [run for run in group.runs if run.held_out is not None or not is_evaluated]
        lengths = [run.num_generations for run in counted]
        # Seeds that have used up one budget of steps were trained for equal lengths.
        budget = group.config.early_stop.steps
        if lengths and min(lengths) < max(lengths) and not (budget and all(run.steps >= budget for run in counted)):
            mixed.append(f"{group.name} ({min(lengths):,} to {max(lengths):,} generations)")
    return f"Means mix champions that were trained for different lengths: {statistics.listed(mixed)}." if mixed else ""


@dataclass(frozen=True)
class Comparison:
    """The scores of a group of runs, compared with the best group of the same environment.

    Attributes:
        label: The label of the group.
        env: The environment, without control characters.
        scores: [n], the scores of the seeds that have one.
        missing: The number of seeds without a score.
        interval: The 95 % interval of the mean score; None for fewer than three scores. It is cut at a bound of the
            task, see `_bounds`.
        p: The p value of the two-sided rank test against the best group (with Holm's correction); None without a test.
        effect: The probability that a seed of this group has a higher score than a seed of the best group, where equal
            scores count half (A of Vargha and Delaney, 2000); None without a test.
        best: Whether no group of its environment has a higher mean; False if this is the only group, or has no score.
        tied: Whether another group is the best, too.
    """

    label: str
    env: str
    scores: Float64
    missing: int
    interval: statistics.Interval | None
    p: float | None = None
    effect: float | None = None
    best: bool = False
    tied: bool = False

    @property
    def name(self) -> str:
        """The label without the environment."""
        return self.label.removeprefix(f"{self.env}, ")

    @property
    def mean(self) -> float:
        """The mean score; NaN if there are no scores."""
        return statistics.mean(self.scores)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The texts of a row: the number of scores, the mean, the interval, and `against_best`."""
        interval = "–" if self.interval is None else statistics.between(self.interval)
        return str(len(self.scores)), statistics.number(self.mean), interval, self.against_best

    @property
    def against_best(self) -> str:
        """p and A (`effect`) against the best group; "best" or "equal" for a best group; empty without a test."""
        if self.tied:
            return "equal"
        if self.best:
            return "best"
        if self.p is None:
            return ""
        p = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        return f"{p}, A = {self.effect:.2f}"


@dataclass(frozen=True)
class Ranking:
    """A comparison of groups, ordered by environment, best first.

    Attributes:
        score: The kind of score, in words.
        rows: The groups.
        notes: Sentences about runs without a score, failed episodes, different tasks, and groups without a test.
    """

    score: str
    rows: tuple[Comparison, ...]
    notes: tuple[str, ...]


def compare_groups(groups: Sequence[RunGroup], metric: str | None = None) -> Ranking:
    """Compare groups.

    A score is the held-out mean, the champion's mean return on held-out episodes. Seeds without a held-out mean are
    left out, with a note. If no seed has a held-out mean, scores are the best fitness of the last generation.

    metric: The name of a metric of `env.metrics`. A score is then the champion's mean of the metric over held-out
        episodes, and the largest mean counts as the best.

    Raises InputError if a run with held-out episodes lacks the metric, or if no run has held-out episodes.
    """
    runs = [run for group in groups for run in group.runs]
    evaluated = any_evaluated(runs)
    score, kind = (_held_out_mean, HELD_OUT) if evaluated else (_last_best, TRAINING)
    if metric is not None:
        _check_metric(runs, metric)
        score = partial(_held_out_mean, metric=metric)
        kind = f"held-out champion's mean {sanitize(metric)}"
    # A run whose held-out episodes have all failed was evaluated, but has no held-out mean.
    notes = [_note_on_missing(runs)] if any(run.held_out is not None for run in runs) else [_NOT_EVALUATED]
    rows: list[Comparison] = []
    for groups_of_env in by_environment(groups):
        compared, note = _compare([_unranked(group, score, metric) for group in groups_of_env])
        rows += compared
        notes += [different_tasks(groups_of_env, evaluated), different_budgets(groups_of_env)]
        notes += [_different_code(groups_of_env), _mixed_lengths(groups_of_env), note]
    return Ranking(kind, tuple(rows), tuple(dict.fromkeys(filter(None, notes))))


def _check_metric(runs: Sequence[StoredRun], metric: str) -> None:
    known = [sorted(run.held_out.metrics) for run in runs if run.held_out is not None]
    if not known or any(metric not in names for names in known):
        common = sorted(set.intersection(*map(set, known))) if known else []
        expected = f"a metric that all runs have in held-out episodes ({', '.join(common) or 'they have none'})"
        raise InputError("metric", expected, repr(metric), "`env.metrics` names the metrics of a run.")


def by_environment(groups: Iterable[RunGroup]) -> list[list[RunGroup]]:
    """Return a list of the groups of each environment. The environments have the order of their first groups."""
    found: dict[str, list[RunGroup]] = {}
    for group in groups:
        found.setdefault(group.config.env.id, []).append(group)
    return list(found.values())


def different_budgets(groups: Sequence[RunGroup]) -> str:
    """Return a note if groups in one environment have different budgets; empty otherwise.

    The budget of a group is `early_stop.steps`, or the number of episodes of all generations.
    """
    env = sanitize(groups[0].config.env.id)
    limits = [group.config.early_stop.steps for group in groups]
    steps = sorted({limit for limit in limits if limit is not None})
    if len(steps) == 1 and None not in limits:
        return ""
    if steps:
        least = f"{steps[0]:,}" if None not in limits else "no limit"
        return f"{env}: the experiments have different budgets, of {least} to {steps[-1]:,} steps (early_stop.steps)."
    budgets = [group.config.population * group.config.episodes * group.config.generations for group in groups]
    if min(budgets) == max(budgets):
        return ""
    return f"{env}: the experiments have different budgets, of {min(budgets):,} to {max(budgets):,} episodes in a run."


def different_tasks(groups: Sequence[RunGroup], evaluated: bool) -> str:
    """Return a note if the scores of groups in one environment cannot be compared; empty otherwise.

    evaluated: Whether the scores are returns of held-out episodes, and not fitness in training.
    """
    configs = [group.config for group in groups]
    trained = [config.env for config in configs]
    played = [config.in_evaluation().env for config in configs] if evaluated else trained
    env = sanitize(trained[0].id)
    # A setting that differs in `played` but not in `trained` was set for held-out episodes alone (evaluation_…).
    different = [
        f"env.{name}" if _differ(trained, name) else f"evaluation_{name}"
        for name in ("kwargs", "randomize", "wrappers", "max_episode_steps") if _differ(played, name)
    ]  # fmt: skip
    if _engines_differ(trained):
        different.append("env.engine")
    if different:
        return f"{env}: the experiments differ in {' and '.join(different)}, so their returns are of different tasks."
    different = [] if evaluated else [name for name in ("fitness", "connection_cost") if _differ(configs, name)]
    if different:
        return f"{env}: the experiments differ in {' and '.join(different)}, so their fitness has different meanings."
    return ""


def _engines_differ(envs: Sequence[EnvOptions]) -> bool:
    """Return whether experiments have engines that play different episodes."""
    if {env.engine for env in envs} == {"exact", "gymnasium"}:
        exact = next(env for env in envs if env.engine == "exact")
        try:
            return not environments.exact_task(exact).has_world  # Gymnasium plays the same episodes of such a task
        except InputError:  # a task of another package, which is not installed here
            return True
    return _differ(envs, "engine")


def _different_code(groups: Sequence[RunGroup]) -> str:
    """Return a note if runs in one environment used different versions of a module of the user; empty otherwise."""
    digests: dict[str, set[str]] = {}
    for run in (run for group in groups for run in group.runs):
        modules = run.header.manifest.get("modules")
        for name, digest in modules.items() if isinstance(modules, dict) else ():  # any program may have written it
            digests.setdefault(name, set()).add(str(digest))
    changed = [sanitize(name) for name, known in sorted(digests.items()) if len(known) > 1]
    if not changed:
        return ""
    env = sanitize(groups[0].config.env.id)
    return f"{env}: the runs were made with different versions of {statistics.listed(changed)}."


def _differ(tables: Sequence[Options], name: str) -> bool:
    return any(getattr(table, name) != getattr(tables[0], name) for table in tables)


def held_out_score(group: RunGroup) -> tuple[float, statistics.Interval | None, int] | None:
    """Return the held-out mean of a group, its interval, and the number of evaluated seeds; None if there are none.

    The interval is over seeds, and needs three. In a group of a single run, the interval is over episodes.
    """
    row = _unranked(group, _held_out_mean)
    if not len(row.scores):
        return None
    alone = evaluation_of(group.runs[0]) if len(group.runs) == 1 else None
    interval = row.interval if alone is None else alone.interval
    return row.mean, interval, len(row.scores)


def best_run(group: RunGroup) -> StoredRun:
    """Return the run of a group with the best held-out mean, or with the best last generation if none was evaluated."""
    score = _held_out_mean if any_evaluated(group.runs) else _last_best
    # A comparison with NaN is always false, so `max` could return a run without a score.
    return max(group.runs, key=lambda run: score(run) if np.isfinite(score(run)) else -np.inf)


def best_groups(groups: Sequence[RunGroup], most: int) -> list[RunGroup]:
    """Return at most `most` groups, in their order: the best of each environment, then the second best of each, …"""
    evaluated = any_evaluated(run for group in groups for run in group.runs)
    score = _held_out_mean if evaluated else _last_best
    # The place of each group in its environment, from 0 on.
    places: dict[str, int] = {}
    for own in by_environment(groups):
        means = {group.label: statistics.mean(np.array([score(run) for run in group.runs])) for group in own}
        ranked = sorted(means, key=lambda label: np.nan_to_num(means[label], nan=-np.inf), reverse=True)
        places |= {label: place for place, label in enumerate(ranked)}
    best = sorted(places, key=lambda label: places[label])[:most]
    return [group for group in groups if group.label in best]


def any_evaluated(runs: Iterable[StoredRun]) -> bool:
    """Return whether any run has a held-out mean. Otherwise runs are compared by their fitness in training."""
    return any(np.isfinite(_held_out_mean(run)) for run in runs)


def _held_out_mean(run: StoredRun, metric: str | None = None) -> float:
    """Return the mean return, or the mean of a metric, in held-out episodes; NaN without them."""
    if run.held_out is None:
        return np.nan
    returns, metrics = run.held_out.returns, run.held_out.metrics
    return statistics.mean(returns) if metric is None else statistics.metrics_means(metrics, returns)[metric]


def _last_best(run: StoredRun) -> float:
    return float(run.records[-1].champion_fitness)


def _note_on_missing(runs: Sequence[StoredRun]) -> str:
    """Return a note about runs without a held-out mean and about failed held-out episodes; it may be empty."""
    all_failed, some_failed, early = [], [], []
    not_evaluated: list[str] = []
    incomplete: list[str] = []
    for run in runs:
        path = sanitize(str(run.path))
        if run.held_out is None:
            (not_evaluated if run.complete else incomplete).append(path)
        elif np.isnan(_held_out_mean(run)):
            all_failed.append(path)
        else:
            if failed := np.count_nonzero(np.isnan(run.held_out.returns)):
                some_failed.append(f"{path} ({failed} of {len(run.held_out.returns)})")
            if not run.complete:
                early.append(f"{path} ({pluralize(run.num_generations, 'generation')})")
    notes = []
    if all_failed:
        notes.append(f"Every held-out episode failed: {statistics.listed(all_failed)}.")
    # The beginning of the next two notes. If no run has a held-out mean, no run is left out.
    left_out = "Left out, since not" if any_evaluated(runs) else "Not"
    if not_evaluated:
        named = statistics.listed(not_evaluated)
        notes.append(f"{left_out} evaluated on held-out episodes: {named}. {_HOW_TO_EVALUATE}")
    # A champion after fewer generations must not be compared with the others, so the cure is to complete the run.
    how_to_complete = "To complete: python -m evolve.run --resume FILE"
    if incomplete:
        notes.append(f"{left_out} complete: {statistics.listed(incomplete)}. {how_to_complete}")
    if early:
        notes.append(f"Evaluated before the run was complete: {statistics.listed(early)}. {how_to_complete}")
    if some_failed:
        notes.append(f"Held-out episodes that failed are left out of the means: {statistics.listed(some_failed)}.")
    return " ".join(notes)


def _unranked(group: RunGroup, score: Callable[[StoredRun], float], metric: str | None = None) -> Comparison:
    """Return the scores of a group before any test.

    score: Returns the score of a run; a number that is not finite counts as no score.
    metric: The name of the metric of which the score is the mean; None for returns.
    """
    scores = statistics.finite(np.array([score(run) for run in group.runs]))
    few = len(scores) < _FEWEST_SCORES
    # Fitness in training has no bounds: it need not be a mean of returns.
    bounds = _bounds(group, metric) if any_evaluated(group.runs) else ()
    interval = None if few else statistics.interval(scores, *bounds)
    return Comparison(group.label, sanitize(group.config.env.id), scores, len(group.runs) - len(scores), interval)


def _bounds(group: RunGroup, metric: str | None) -> statistics.Interval:
    """Return the smallest and the largest return, or value of a metric, in all episodes of a group.

    A bound is infinite if only one seed reaches it. A value that several seeds reach is assumed to be a bound of the
    task, like 500 in CartPole-v1. No mean can be beyond a bound. Other groups do not count, so a group has the same
    interval beside any others.
    """
    lows, highs = [], []
    for run in group.runs:
        played = [(record.returns, record.metrics) for record in run.records]
        if run.held_out is not None:
            played.append((run.held_out.returns, run.held_out.metrics))
        if metric is None:
            seen = [returns for returns, _ in played]
        else:  # a failed episode has no values of metrics
            seen = [metrics[metric][np.isfinite(returns)] for returns, metrics in played if metric in metrics]
        known = [statistics.finite(values.astype(np.float64)) for values in seen]
        lows.append(min((values.min(initial=np.inf) for values in known), default=np.inf))
        highs.append(max((values.max(initial=-np.inf) for values in known), default=-np.inf))
    low, high = min(lows), max(highs)
    return low if lows.count(low) > 1 else -np.inf, high if highs.count(high) > 1 else np.inf


def _compare(rows: Sequence[Comparison]) -> tuple[list[Comparison], str]:
    """Sort the groups of one environment, best first, and test each group against the best.

    Return the sorted groups with their p values, and a note about tests that could not be made.
    """
    # A group without scores has the mean NaN, and comes last.
    best, *others = sorted(rows, key=lambda row: np.nan_to_num(row.mean, nan=-np.inf), reverse=True)
    if not others:
        return [best], ""
    others = [replace(row, best=row.mean == best.mean, tied=row.mean == best.mean) for row in others]
    best = replace(best, best=len(best.scores) > 0, tied=any(row.tied for row in others))
    tests = len(others)
    # A group is tested only if each seed of this group and of the best group has a score, and if the two groups have
    # enough seeds for a significant difference.
    whole = [row for row in others if not (row.missing or best.missing)]
    testable = [row for row in whole if statistics.can_be_significant(len(row.scores), len(best.scores), tests)]
    try:
        ps = statistics.holm([statistics.rank_test(row.scores, best.scores) for row in testable])
    except InputError as error:  # no SciPy
        return [best, *others], f"Nothing is tested: {error}"
    # Rows hold arrays, which `==` cannot compare, so a row is found by its identity.
    found = {id(row): p for row, p in zip(testable, ps, strict=True)}
    reasons = []
    if len(whole) < tests:
        reasons.append("a group is tested against the best only if each seed of both has a score")
    if len(testable) < len(whole):
        # The least number of seeds with which two groups of equal size can differ significantly.
        enough = next(n for n in range(2, 1000) if statistics.can_be_significant(n, n, tests))
        cure = f"{enough} seeds in each group are enough"
        reasons.append(f"too few seeds for a significant difference from the best: {cure}")
    note = f"{best.env}: {'; '.join(reasons)}." if reasons else ""
    for n, row in enumerate(others):
        if id(row) in found:
            others[n] = replace(row, p=found[id(row)], effect=statistics.superiority(row.scores, best.scores))
    return [best, *others], note
