"""The tables and sentences of a report.

`RunSummary`, `Clip` and `ReportedChampion` are the results for one run, from `evolve.analysis.html`. `conclude` returns
the sentences at the top of the page, and each function `…_table` a `ReportTable`. Many functions take `names`, the runs
of the page and their names.
"""

import itertools
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
from evolve.config import Config, flatten, without_implied
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
        connections: The number of connections or coefficients that are left: "31 of 32 acting connections".
        network: Its network. If the network cannot be drawn, the reason replaces it.
    """

    title: str
    connections: str
    network: DrawnNetwork | str


def conclude(groups: Sequence[RunGroup], summaries: Sequence[RunSummary], connections: Mapping[str, str]) -> list[str]:
    """Return the conclusion of a report as paragraphs: one for each environment, and one about the verification.

    groups: The groups to compare, with one run for each seed (`deduplicate_seeds`).
    summaries: The summaries of all runs of the page.
    connections: By the labels of groups, the connections of the best champion: "31 of 32 acting connections".
    """
    paragraphs = []
    by_environment = run_groups.by_environment(groups)
    for env_groups in by_environment:
        if len(env_groups) > 1:
            result = _compared_result(env_groups)
        else:
            result = _single_result(env_groups[0], connections[env_groups[0].label])
        paragraphs.append(sanitize(result, _MAX_LINE))
    paragraphs += _repetition_sentence(summaries)
    # For a single environment, all sentences are one paragraph.
    return [" ".join(paragraphs)] if len(by_environment) == 1 else paragraphs


def _single_result(group: RunGroup, connections: str) -> str:
    """Return a sentence about the only group of an environment."""
    score = comparison.held_out_score(group)
    subject = run_groups.describe_searches([group])
    # Without a held-out mean, the sentence is about the training.
    if score is None:
        done = f"{group.num_generations:,} of {group.config.generations:,} generations"
        # `fmax` ignores NaN, the best fitness of a run in which no candidate has a fitness.
        best = float(np.fmax.reduce([run.best_fitness for run in group.runs]))
        fitness = "no fitness" if np.isnan(best) else f"a best training fitness of {number(best)}"
        is_evaluated = any(run.held_out is not None for run in group.runs)
        held_out = "every held-out episode failed" if is_evaluated else "held-out episodes were not played yet"
        return f"{subject} has {fitness} after {done}; {held_out}."
    mean, interval, num_evaluated = score
    spread = f", 95 % interval {between(interval)}" if interval is not None and interval[0] < interval[1] else ""
    seeds, with_words = f"seed {group.runs[0].header.seed}", "with"
    if len(group.runs) > 1:
        share = "" if num_evaluated == len(group.runs) else f"{num_evaluated} of "
        seeds, with_words = f"over {share}{len(group.runs)} seeds", "the best champion with"
    reached = f"reaches a mean return of {number(mean)} on held-out episodes ({seeds}{spread})"
    return f"{subject} {reached}, {with_words} {connections} left."


def _compared_result(groups: Sequence[RunGroup]) -> str:
    """Return a sentence that compares the groups of an environment."""
    is_evaluated = comparison.any_evaluated(run for group in groups for run in group.runs)
    # If the scores have different meanings, no group is the best.
    if note := comparison.why_incomparable(groups, is_evaluated):
        return note
    ranking = comparison.compare_groups(groups)
    best, second, *_ = ranking.rows
    if not len(best.scores):
        return f"{best.env}: none of {len(groups)} experiments has a score."
    played = "on held-out episodes" if is_evaluated else "in training, as no champion has a held-out return"
    if best.role == "equal":
        equally_good = " and ".join(row.name for row in ranking.rows if row.role)
        mean = f"a mean of {number(best.mean)} {played}"
        return f"{best.env}: of {len(groups)} experiments {equally_good} are equally good, with {mean}."
    mean = f"a mean of {number(best.mean)} over {pluralize(len(best.scores), 'seed')}"
    text = f"{best.env}: of {len(groups)} experiments {best.name} is best, with {mean}"
    if len(second.scores):
        text += f" against {number(second.mean)} of {second.name}"
    # A test needs enough seeds, a score of each seed, and SciPy.
    if second.p is None:
        is_enough = statistics.can_be_significant(len(second.scores), len(best.scores), len(groups) - 1)
        why = "the difference was not tested" if is_enough else "there are too few seeds for a significant difference"
        return f"{text} {played}; {why}."
    if second.p > 0.05:
        return f"{text} {played}; {second.against_reference}, so chance may be the reason."
    return f"{text} {played} ({second.against_reference})."


def _repetition_sentence(summaries: Sequence[RunSummary]) -> list[str]:
    """Return a list with one sentence: whether champions repeat their episodes here. Empty if no run was checked."""
    equal = [summary.equal for summary in summaries if summary.equal is not None]
    if not equal:
        return []
    if all(equal):
        runs = "the run" if len(equal) == 1 else f"all {len(equal)} runs"
        if max(summary.run.num_generations for summary in summaries) > MOST_CHECKED:
            each_of = "" if len(equal) == 1 else "each of "
            runs = f"{MOST_CHECKED} generations of {each_of}{runs}"
        return [f"The champions of {runs} repeat their episodes on this machine, to the bit."]
    return [f"{equal.count(False)} of {pluralize(len(equal), 'run')} could not be repeated on this machine."]


TableColumn = tuple[str, str]
"""The name of a column, and the class of its cells in `report.css`; the class may be empty."""


@dataclass(frozen=True)
class ReportTable:
    """Rows of texts. Each row has a text for each column."""

    caption: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[str, ...], ...]


def _number_columns(*names: str) -> tuple[TableColumn, ...]:
    """Return columns of numbers with these names."""
    return tuple((name, "number") for name in names)


def differing_settings(groups: Sequence[RunGroup]) -> ReportTable | None:
    """Return a table of the settings in which groups differ; None if they do not differ.

    A row is an experiment. If there are more settings than experiments, a row is a setting. Options that only one
    network or strategy has are left out.
    """
    # The settings in which each other group differs from the first: keys, values of the first, own values.
    first, *others = groups
    differences = [run_groups.group_differences(first.config, other.config) for other in others]
    of_first = {key: value for key, value, _ in itertools.chain.from_iterable(differences)}
    if not of_first:
        return None
    # The settings of all groups. If a group has no difference, it has the value of the first group.
    settings = [of_first, *(of_first | {key: value for key, _, value in found} for found in differences)]
    # A kind of group is a network and a strategy. `without_implied` drops the options that only one of two kinds has.
    # But two groups of one kind may differ in such an option. So compare each group with the first group of each kind,
    # and not only with `first`.
    configs = [group.config for group in groups]
    first_of_kind: dict[tuple[str, str], Config] = {}
    for config in configs:
        first_of_kind.setdefault((config.network.name, config.strategy.name), config)
    shown: set[str] = set()
    for kind in first_of_kind.values():
        for config in configs:
            shown |= {key for key, _, _ in without_implied(run_groups.group_differences(kind, config))}
    # "network.name" is sorted as "network.", so that it comes before the options of the network.
    keys = sorted(shown, key=lambda key: key.removesuffix("name"))
    labels = [group.label for group in groups]
    cells = [[words(table[key]) for key in keys] for table in settings]
    corner, row_names, column_names = ("experiment", "name"), labels, keys
    if len(keys) > len(labels):  # a row for each setting
        corner, row_names, column_names = ("setting", ""), keys, labels
        cells = [list(column) for column in zip(*cells, strict=True)]
    columns = (corner, *((name, "key") for name in column_names))
    rows = tuple((name, *values) for name, values in zip(row_names, cells, strict=True))
    return ReportTable("Settings in which the experiments differ", columns, rows)


def manifest_values(names: Mapping[StoredRun, str]) -> dict[str, dict[str, str]]:
    """Return for each key of the manifests its values, and for each value the names of the runs that have it.

    The keys of nested tables are dotted.
    """
    manifests = [(name, _flat(run.header.manifest)) for run, name in names.items()]
    keys: dict[str, None] = {}  # in order
    for _, manifest in manifests:
        keys |= dict.fromkeys(manifest)
    return {key: names_by((manifest.get(key, "none"), name) for name, manifest in manifests) for key in keys}


def names_by(pairs: Iterable[tuple[Key, str]]) -> dict[Key, str]:
    """Return the names that belong to each key, as one text (`listed`). pairs: The key and the name of each pair."""
    names: dict[Key, list[str]] = {}
    for key, name in pairs:
        names.setdefault(key, []).append(name)
    return {key: statistics.listed(names_of_key) for key, names_of_key in names.items()}


def _flat(manifest: Mapping[str, object]) -> dict[str, str]:
    """Return the values of a manifest as texts, by dotted keys. They are sanitized: any program may write a file."""
    return {sanitize(key): words(value, " " if key == "command" else ", ") for key, value in flatten(manifest).items()}


def experiments_table(groups: Sequence[RunGroup]) -> ReportTable:
    """Return a table of the experiments, a row for each group."""
    rows = []
    # The column of starts is left out if all runs began with random genomes.
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
    seeds_title = "seeds" if any(len(group.runs) > 1 for group in groups) else "seed"
    texts = [("experiment", "name"), ("environment", ""), ("network", ""), ("strategy", "")]
    if has_starts:
        texts.append(("start", ""))
    columns = (*texts, *_number_columns("candidates (P)", "episodes each (E)", seeds_title))
    if len(rows) == 1:  # the name of the only experiment would repeat the other columns
        columns, rows = columns[1:], [rows[0][1:]]
    return ReportTable("Experiments", columns, tuple(rows))


def training_table(names: Mapping[StoredRun, str]) -> ReportTable:
    """Return a table of the progress of each named run, its best fitness and its costs."""
    rows = []
    for run, name in names.items():
        # The runs of a group may differ in their number of generations.
        planned = config_of(run).generations
        state = "not complete"
        if run.complete:
            state = "complete" if run.num_generations == planned else "stopped early"
        done = f"{run.num_generations:,} of {planned:,}, {state}"
        ranks = f"{_ranks(run)} on {words(run.header.manifest.get('host', 'unknown'))}"
        rows.append((name, done, number(run.best_fitness), f"{run.steps:,}", duration(run.seconds), ranks))
    numbers = ("generations completed", "best fitness in any generation", "environment steps", "wall time")
    columns = (("run", "name"), *_number_columns(*numbers), ("ranks", ""))
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
        evaluation = evaluation_of(run)
        score = "not evaluated" if evaluation is None else _mean_in_words(evaluation)
        # The evaluation of a run that is not complete may be of another genome than the best of its last generation.
        if evaluation is not None and not run.complete:
            score = f"not complete; evaluated {score}"
        rows.append((name, champions[run].title, score, champions[run].connections))
    mean = "its mean held-out return, 95 % interval"
    columns = (("run", "name"), ("champion", ""), (mean, "number"), ("left after pruning", ""))
    return ReportTable("Champions", columns, tuple(rows))


def _mean_in_words(evaluation: Evaluation) -> str:
    """Return the mean return of an evaluation and its interval."""
    if np.isnan(evaluation.mean):
        return "no episode has a return"
    spread = f" ({between(evaluation.interval)})" if evaluation.interval else ""
    return f"{number(evaluation.mean)}{spread}"


def comparison_table(ranking: Ranking, groups: Sequence[RunGroup]) -> ReportTable:
    """Return a comparison of groups as a table, with the means of their metrics."""
    evaluations = {group.label: list(filter(None, map(evaluation_of, group.runs))) for group in groups}
    metrics, means = _metric_columns([evaluations[row.label] for row in ranking.rows])
    # The last column before the metrics is left out if no row is compared with the reference.
    is_compared = any(row.against_reference for row in ranking.rows)
    names = ["seeds", "mean", "95 % interval", *([f"against {ranking.reference}"] if is_compared else [])]
    rows = []
    for row, means_of_row in zip(ranking.rows, means, strict=True):
        seeds, mean, interval, against_reference = row.cells
        against = [against_reference or "–"] if is_compared else []
        rows.append((sanitize(row.label), seeds, mean, interval, *against, *means_of_row))
    columns = (("experiment", "name"), *_number_columns(*names), *metrics)
    return ReportTable(f"Comparison: {ranking.score}", columns, tuple(rows))


def _metric_columns(rows: Sequence[Sequence[Evaluation]]) -> tuple[tuple[TableColumn, ...], list[list[str]]]:
    """Return a column for each metric, and for each row its cells.

    A cell is the mean of the metric over the evaluations of the row, one for each seed.
    """
    means = [[statistics.metrics_means(each.metrics, each.returns) for each in row] for row in rows]
    names = sorted({name for row in means for means_of_seed in row for name in means_of_seed})
    cells = []
    for row in means:
        values = [np.array([means_of_seed.get(name, np.nan) for means_of_seed in row]) for name in names]
        cells.append([number(statistics.mean(values_of_seeds)) for values_of_seeds in values])
    return _number_columns(*(f"mean {sanitize(name)}" for name in names)), cells


def file_table(names: Mapping[StoredRun, str]) -> ReportTable:
    """Return a table of the file and the last digest of each named run."""
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
    metrics, means = _metric_columns([[evaluation] for _, evaluation in evaluations])
    for (name, evaluation), own_means in zip(evaluations, means, strict=True):
        returns = evaluation.returns
        interval = between(evaluation.interval) if evaluation.interval else "none"
        # `fmin` and `fmax` ignore NaN, the return of a failed episode.
        spread = statistics.median(returns), np.fmin.reduce(returns), np.fmax.reduce(returns)
        cells = f"{len(returns):,}", number(evaluation.mean), interval, *map(number, spread), f"{evaluation.failed:,}"
        rows.append((name, *cells, *own_means))
    numbers = "episodes", "mean", "95 % interval", "median", "worst", "best", "failed"
    columns = (("run", "name"), *_number_columns(*numbers), *metrics)
    return ReportTable("Returns of the held-out champion", columns, tuple(rows))


def verification_table(names: Mapping[StoredRun, str], summaries: Sequence[RunSummary]) -> ReportTable:
    """Return a table of the verification of each run: its result, or the command that verifies the run."""
    rows = []
    for summary in summaries:
        result = {None: "not checked", True: "equal", False: "different"}[summary.equal]
        command = f"python -m evolve.verify {file_argument(summary.run)}"
        rows.append((names[summary.run], result, words(summary.verification or command)))
    return ReportTable("Can it be repeated?", (("run", "name"), ("result", ""), ("details", "long")), tuple(rows))


def file_argument(run: StoredRun) -> str:
    """Return the path of a run file, quoted for a shell."""
    return sanitize(shlex.quote(str(run.path)))
