"""The tables and sentences of a report, and the films and verification results that it shows."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from evolve.analysis import comparison, run_groups, statistics
from evolve.analysis.comparison import Ranking
from evolve.analysis.figures import DrawnNetwork
from evolve.analysis.generations import Evaluation, evaluation_of
from evolve.analysis.run_groups import RunGroup
from evolve.analysis.statistics import between, duration, number, words
from evolve.config import flatten, without_implied
from evolve.errors import pluralize, sanitize
from evolve.store import StoredRun
from evolve.training import config_of

MOST_CHECKED = 10
"""The largest number of generations of a run from which a report evaluates the champions again."""

Key = TypeVar("Key")

_MAX_LINE = 1000  # characters


@dataclass(frozen=True)
class Clip:
    """A short film.

    Attributes:
        mp4: The film.
        jpeg: A still of it, shown before it is played.
        caption: The champion, the episode and its return.
    """

    mp4: bytes
    jpeg: bytes
    caption: str


@dataclass(frozen=True)
class RunSummary:
    """A run with at least one complete generation, its film, and the result of its verification.

    Attributes:
        run: The run file.
        film: A film of its champion, or None.
        why_no_film: The reason for a missing film; empty if there is a film, or if another run is filmed instead.
        equal: Whether the parts of the run that were repeated on this machine are equal; None if no part was repeated.
        verification: The result in words: the compared parts, and the first difference. If nothing can be compared, the
            reason. Empty if no verification was requested.
    """

    run: StoredRun
    film: Clip | None = None
    why_no_film: str = ""
    equal: bool | None = None
    verification: str = ""


@dataclass(frozen=True)
class ReportedChampion:
    """The champion of a run, as a report describes it.

    Attributes:
        title: "held-out champion" or "best of generation 9".
        connections: The remaining and all connections or coefficients, such as "31 of 32 acting connections".
        network: Its network. If the network cannot be drawn, the reason replaces it.
    """

    title: str
    connections: str
    network: DrawnNetwork | str


def conclude(groups: Sequence[RunGroup], summaries: Sequence[RunSummary], connections: Mapping[str, str]) -> list[str]:
    """Return the conclusion of a report: a line for each environment, and whether the champions repeat their episodes.

    groups: The groups to compare, with one run for each seed (`deduplicate_seeds`).
    summaries: The summaries of all runs of the page.
    connections: By the labels of groups, the connections of the best champion: "31 of 32 acting connections".
    """
    lines = []
    by_environment = run_groups.by_environment(groups)
    for env_groups in by_environment:
        group = env_groups[0]
        result = (
            _compared_result(env_groups) if len(env_groups) > 1 else _single_result(group, connections[group.label])
        )
        lines.append(sanitize(result, _MAX_LINE))
    lines += _repetition_sentence(summaries)
    # The page shows each line as a paragraph. The sentences about a single environment are one paragraph.
    return [" ".join(lines)] if len(by_environment) == 1 else lines


def _single_result(group: RunGroup, connections: str) -> str:
    """Return a sentence about the only group of an environment."""
    score = comparison.held_out_score(group)
    evolved = run_groups.describe_searches([group])
    # Without a held-out mean, the sentence is about the training.
    if score is None:
        done = f"{group.num_generations:,} of {group.config.generations:,} generations"
        # `fmax` ignores NaN, the best fitness of a run in which no candidate has a fitness.
        best = float(np.fmax.reduce([run.best_fitness for run in group.runs]))
        fitness = "no fitness" if np.isnan(best) else f"a best training fitness of {number(best)}"
        evaluated = any(run.held_out is not None for run in group.runs)
        held_out = "every held-out episode failed" if evaluated else "held-out episodes were not played yet"
        return f"{evolved} has {fitness} after {done}; {held_out}."
    mean, interval, evaluated_seeds = score
    spread = f", 95 % interval {between(interval)}" if interval is not None and interval[0] < interval[1] else ""
    seeds = f"seed {group.runs[0].header.seed}"
    if len(group.runs) > 1:
        which = "" if evaluated_seeds == len(group.runs) else f"{evaluated_seeds} of "
        seeds = f"over {which}{len(group.runs)} seeds"
    reached = f"reaches a mean return of {number(mean)} on held-out episodes ({seeds}{spread})"
    champion = "the best champion with" if len(group.runs) > 1 else "with"
    return f"{evolved} {reached}, {champion} {connections} left."


def _compared_result(groups: Sequence[RunGroup]) -> str:
    """Return a sentence that compares the groups of an environment."""
    evaluated = comparison.any_evaluated(run for group in groups for run in group.runs)
    # If the scores have different meanings, no group is the best.
    if note := comparison.why_incomparable(groups, evaluated):
        return note
    ranking = comparison.compare_groups(groups)
    best, second, *_ = ranking.rows
    if not len(best.scores):
        return f"{best.env}: none of {len(groups)} experiments has a score."
    played = "on held-out episodes" if evaluated else "in training, as no champion has a held-out return"
    if best.role == "equal":
        equals = " and ".join(row.name for row in ranking.rows if row.role)
        same = f"are equally good, with a mean of {number(best.mean)} {played}"
        return f"{best.env}: of {len(groups)} experiments {equals} {same}."
    mean = f"a mean of {number(best.mean)} over {pluralize(len(best.scores), 'seed')}"
    text = f"{best.env}: of {len(groups)} experiments {best.name} is best, with {mean}"
    if len(second.scores):
        text += f" against {number(second.mean)} of {second.name}"
    # A test needs enough seeds, a score of each seed, and SciPy.
    if second.p is None:
        can_differ = statistics.can_be_significant(len(second.scores), len(best.scores), len(groups) - 1)
        why = "the difference was not tested" if can_differ else "there are too few seeds for a significant difference"
        return f"{text} {played}; {why}."
    if second.p > 0.05:
        return f"{text} {played}; {second.against_reference}, so chance may be the reason."
    return f"{text} {played} ({second.against_reference})."


def _repetition_sentence(summaries: Sequence[RunSummary]) -> list[str]:
    """Return a list with a sentence on whether champions repeat their episodes here; empty if no run was checked."""
    equal = [summary.equal for summary in summaries if summary.equal is not None]
    if not equal:
        return []
    if all(equal):
        runs = "the run" if len(equal) == 1 else f"all {len(equal)} runs"
        longest = max(summary.run.num_generations for summary in summaries)
        if longest > MOST_CHECKED:
            runs = f"{MOST_CHECKED} generations of {runs if len(equal) == 1 else f'each of {runs}'}"
        return [f"The champions of {runs} repeat their episodes on this machine, to the bit."]
    return [f"{equal.count(False)} of {pluralize(len(equal), 'run')} could not be repeated on this machine."]


TableColumn = tuple[str, str]
"""The name of a column, and its class in the style sheet; the class may be empty."""


@dataclass(frozen=True)
class ReportTable:
    """Rows of texts under columns."""

    caption: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[str, ...], ...]


def _number_columns(*names: str) -> tuple[TableColumn, ...]:
    return tuple((name, "number") for name in names)


def differing_settings(groups: Sequence[RunGroup]) -> ReportTable | None:
    """Return a table of the settings in which groups differ; None if they do not differ.

    A row is an experiment. If there are more settings than experiments, a row is a setting. Options that only one
    network or strategy has are left out.
    """
    first, *others = groups
    differing = [run_groups.group_differences(first.config, other.config) for other in others]
    of_first = {key: value for found in differing for key, value, _ in found}
    if not of_first:
        return None
    # The settings of each group. Where a group has no difference, it has the value of the first group.
    settings = [of_first, *(of_first | {key: value for key, _, value in found} for found in differing)]
    # Two groups of one kind have the same network and the same strategy. `without_implied` drops the options that only
    # one of two kinds has. But groups of one kind may differ in such an option. So compare each group with the first
    # group of each kind, and not only with `first`.
    configs = [group.config for group in groups]
    # The last entry of a key stays in a dictionary, so `reversed` keeps the first group of each kind.
    kinds = {(config.network.name, config.strategy.name): config for config in reversed(configs)}.values()
    pairs = [run_groups.group_differences(kind, config) for kind in kinds for config in configs]
    shown = {key for found in pairs for key, _, _ in without_implied(found)}
    # "network.name" is sorted as "network.", so that it comes before the options of the network.
    keys = sorted(shown, key=lambda key: key.removesuffix("name"))
    labels = [group.label for group in groups]
    cells = [[words(table[key]) for key in keys] for table in settings]
    corner, row_names, column_names = ("experiment", "name"), labels, keys
    if len(keys) > len(labels):
        corner, row_names, column_names = ("setting", ""), keys, labels
        cells = [list(column) for column in zip(*cells, strict=True)]
    columns = (corner, *((name, "key") for name in column_names))
    rows = tuple((name, *values) for name, values in zip(row_names, cells, strict=True))
    return ReportTable("Settings in which the experiments differ", columns, rows)


def manifest_values(names: Mapping[StoredRun, str]) -> dict[str, dict[str, str]]:
    """Return the values of each entry of the manifests, and the names of the runs with each value.

    The keys of nested tables are dotted.
    """
    named = [(name, _flat(run.header.manifest)) for run, name in names.items()]
    keys = dict.fromkeys(key for _, table in named for key in table)
    return {key: names_by((table.get(key, "none"), name) for name, table in named) for key in keys}


def names_by(pairs: Iterable[tuple[Key, str]]) -> dict[Key, str]:
    """Return the names that belong to each key, as one text (`listed`). pairs: keys and names."""
    names: dict[Key, list[str]] = {}
    for key, name in pairs:
        names.setdefault(key, []).append(name)
    return {key: statistics.listed(own) for key, own in names.items()}


def _flat(manifest: Mapping[str, object]) -> dict[str, str]:
    """Return the values of a manifest as texts. They are sanitized, as any program may have written the file."""
    return {sanitize(key): words(value, " " if key == "command" else ", ") for key, value in flatten(manifest).items()}


def experiments_table(groups: Sequence[RunGroup]) -> ReportTable:
    """Return a table of the experiments, a row for each group."""
    rows = []
    has_starts = any(group.config.start_from is not None for group in groups)
    for group in groups:
        config = group.config
        start = "random genomes" if config.start_from is None else config.start_from.describe()
        seeds = run_groups.seeds_in_words(group.runs).removeprefix("seeds ").removeprefix("seed ")
        hidden = config.network.table().get("hidden")
        network = f"{config.network.name}, hidden {words(hidden)}" if hidden else config.network.name
        names = [group.label, config.env.id, network, config.strategy.name]
        if has_starts:
            names.append(start)
        rows.append((*map(sanitize, names), f"{config.population:,}", f"{config.episodes:,}", seeds))
    title = "seeds" if any(len(group.runs) > 1 for group in groups) else "seed"
    # The column of starts is left out if all runs began with random genomes.
    texts = [("experiment", "name"), ("environment", ""), ("network", ""), ("strategy", "")]
    if has_starts:
        texts.append(("start", ""))
    columns = (*texts, *_number_columns("candidates (P)", "episodes each (E)", title))
    first = 1 if len(rows) == 1 else 0  # the name of the only experiment would repeat the other columns
    return ReportTable("Experiments", columns[first:], tuple(row[first:] for row in rows))


def training_table(names: Mapping[StoredRun, str]) -> ReportTable:
    """Return a table of the progress of each named run, its best fitness and its costs."""
    rows = []
    for run, name in names.items():
        # The runs of a group may differ in their number of generations.
        wanted = config_of(run).generations
        state = "not complete"
        if run.complete:
            state = "complete" if run.num_generations == wanted else "stopped early"
        done = f"{run.num_generations:,} of {wanted:,}, {state}"
        ranks = f"{_ranks(run)} on {words(run.header.manifest.get('host', 'unknown'))}"
        rows.append((name, done, number(run.best_fitness), f"{run.steps:,}", duration(run.seconds), ranks))
    names_of_numbers = ("generations completed", "best fitness in any generation", "environment steps", "wall time")
    columns = (("run", "name"), *_number_columns(*names_of_numbers), ("ranks", ""))
    return ReportTable("Training", columns, tuple(rows))


def _ranks(run: StoredRun) -> str:
    """Return the number of ranks of a run in words: "4", or "3 to 4" if it changed."""
    # A rank that was absent from a generation has NaN.
    numbers = sorted({np.count_nonzero(~np.isnan(record.busy_seconds)) for record in run.records})
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else str(numbers[0])


def champion_table(names: Mapping[StoredRun, str], champions: Mapping[StoredRun, ReportedChampion]) -> ReportTable:
    """Return a table of the champion of each named run: its held-out return, and its remaining connections."""
    rows = []
    for run, name in names.items():
        found = evaluation_of(run)
        score = "not evaluated" if found is None else _mean(found)
        # The evaluation of a run that is not complete may be of another genome than the best of its last generation.
        if found is not None and not run.complete:
            score = f"not complete; evaluated {score}"
        rows.append((name, champions[run].title, score, champions[run].connections))
    mean = "its mean held-out return, 95 % interval"
    columns = (("run", "name"), ("champion", ""), (mean, "number"), ("left after pruning", ""))
    return ReportTable("Champions", columns, tuple(rows))


def _mean(found: Evaluation) -> str:
    if np.isnan(found.mean):
        return "no episode has a return"
    spread = f" ({between(found.interval)})" if found.interval else ""
    return f"{number(found.mean)}{spread}"


def comparison_table(ranking: Ranking, groups: Sequence[RunGroup]) -> ReportTable:
    """Return a comparison of groups as a table, with the means of their metrics."""
    names = ("seeds", "mean", "95 % interval", f"against {ranking.reference}")
    columns = (("experiment", "name"), *_number_columns(*names))
    # The last cell of a row is `against_reference`, which gets a dash if it is empty.
    texts = [(sanitize(row.label), *row.cells[:-1], row.against_reference or "–") for row in ranking.rows]
    # The last column is left out if no row is compared with the reference.
    shown = len(columns) if any(row.against_reference for row in ranking.rows) else len(columns) - 1
    evaluations = {group.label: [found for found in map(evaluation_of, group.runs) if found] for group in groups}
    metrics, means = _metric_columns([evaluations[row.label] for row in ranking.rows])
    rows = tuple((*text[:shown], *own) for text, own in zip(texts, means, strict=True))
    return ReportTable(f"Comparison: {ranking.score}", (*columns[:shown], *metrics), rows)


def _metric_columns(rows: Sequence[Sequence[Evaluation]]) -> tuple[tuple[TableColumn, ...], list[list[str]]]:
    """Return a column for each metric, and its cells in each row: the mean over the evaluations of the row."""
    means = [[statistics.metrics_means(found.metrics, found.returns) for found in row] for row in rows]
    names = sorted({name for row in means for found in row for name in found})
    cells = []
    for row in means:
        values = [np.array([found.get(name, np.nan) for found in row]) for name in names]
        cells.append([number(statistics.mean(of_seeds)) for of_seeds in values])
    return _number_columns(*(f"mean {sanitize(name)}" for name in names)), cells


def file_table(names: Mapping[StoredRun, str]) -> ReportTable:
    """Return a table of the file of each named run, and of its last digest."""
    files = statistics.short_names([run.path for run in names])
    rows = tuple((name, file, run.digest) for (run, name), file in zip(names.items(), files, strict=True))
    columns = (("run", "name"), ("file", "name"), ("sha256, chained", "digest"))
    return ReportTable("Files, and digests of the last complete generation", columns, rows)


def held_out_table(names: Mapping[StoredRun, str]) -> ReportTable | None:
    """Return a table of the held-out returns of the champions of named runs, and of the means of their metrics.

    Return None if no run was evaluated.
    """
    evaluations = [(name, found) for run, name in names.items() if (found := evaluation_of(run)) is not None]
    if not evaluations:
        return None
    rows = []
    metrics, means = _metric_columns([[found] for _, found in evaluations])
    for (name, found), own in zip(evaluations, means, strict=True):
        spread = [number(f(found.returns)) for f in (statistics.median, np.fmin.reduce, np.fmax.reduce)]
        interval = between(found.interval) if found.interval else "none"
        returns = number(found.mean), interval, *spread, f"{found.failed:,}"
        rows.append((name, f"{len(found.returns):,}", *returns, *own))
    numbers = "episodes", "mean", "95 % interval", "median", "worst", "best", "failed"
    columns = (("run", "name"), *_number_columns(*numbers), *metrics)
    return ReportTable("Returns of the held-out champion", columns, tuple(rows))


def verification_table(names: Mapping[StoredRun, str], summaries: Sequence[RunSummary]) -> ReportTable:
    """Return a table of the verification of each run: its result, or the command that verifies the run."""
    rows = []
    for summary in summaries:
        answer = {None: "not checked", True: "equal", False: "different"}[summary.equal]
        command = f"python -m evolve.verify {file_argument(summary.run)}"
        rows.append((names[summary.run], answer, words(summary.verification or command)))
    return ReportTable("Can it be repeated?", (("run", "name"), ("result", ""), ("details", "long")), tuple(rows))


def file_argument(run: StoredRun) -> str:
    """Return the path of a run file, quoted for a shell."""
    return sanitize(shlex.quote(str(run.path)))
