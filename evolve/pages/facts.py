"""What a page says of runs, in words: tables of texts, which the template escapes."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evolve.config import Config
from evolve.drawings import champion_of
from evolve.errors import InputError, plain
from evolve.figures import Experiment, number, what_masks_count
from evolve.pages.words import duration, words
from evolve.shapes import Float64
from evolve.standings import Standing
from evolve.statistics import interval
from evolve.store import Run


@dataclass(frozen=True)
class Verdict:
    """The answer to whether a run can be repeated: `told` says what was compared, or what differs first.

    equal: None where it cannot be checked, and `told` says why.
    """

    equal: bool | None
    told: str


@dataclass(frozen=True)
class Story:
    """A run that has told a generation, and what else is known of it.

    film: an mp4 of its champion, or None, and no_film says why; filmed: what it shows. verdict: None where nobody has
    asked.
    """

    run: Run
    film: bytes | None = None
    no_film: str = "No film: pip install 'evolve[video]'"
    verdict: Verdict | None = None
    filmed: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of texts under columns: (name, kind) each; the kind, how the style sheet sets them, may be empty."""

    caption: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Judged:
    """The returns of a champion on N held-out episodes: those that are finite [n ≤ N], and the interval of their mean.

    interval: None without SciPy.
    """

    name: str
    returns: Float64
    failed: int
    interval: tuple[float, float] | None


def labels(paths: Sequence[Path]) -> list[str]:
    """Return what tells run files apart: their paths without the folders that all of them share."""
    parts = [path.parts for path in paths]
    shared = 0
    while all(len(p) > shared + 1 and p[shared] == parts[0][shared] for p in parts):
        shared += 1
    return [plain("/".join(p[shared:])) for p in parts]


def evolved(experiments: Sequence[Experiment]) -> Table:
    """Return what was evolved, a row for each experiment."""
    rows = []
    for experiment in experiments:
        config, seeds = experiment.config, (str(run.header.seed) for run in experiment.runs)
        hidden = config.network.get("hidden")
        network = f"{config.network['name']}, hidden {words(hidden)}" if hidden else str(config.network["name"])
        texts = experiment.label, config.env.id, network, str(config.strategy["name"])
        sizes = f"{config.population:,}", f"{config.episodes:,}", ", ".join(seeds)
        rows.append((*map(plain, texts), *sizes))
    columns = (("experiment", ""), ("environment", ""), ("network", ""), ("strategy", ""),
               ("candidates (P)", "number"), ("episodes each (E)", "number"), ("seeds", "number"))  # fmt: skip
    alone = len(rows) == 1  # its name would only say again what follows
    return Table("What was evolved", columns[alone:], tuple(row[alone:] for row in rows))


def came_to(names: Sequence[str], runs: Sequence[Run], configs: Sequence[Config], judged: Sequence[Judged]) -> Table:
    """Return what each run has come to."""
    means = {each.name: _mean(each) for each in judged}
    rows, kinds = [], sorted({what_masks_count(config) for config in configs}, reverse=True)
    for name, run, config in zip(names, runs, configs, strict=True):
        kind = f"\n{what_masks_count(config)}" if len(kinds) > 1 else ""
        mask, manifest = champion_of(run).mask, run.header.manifest
        state = "complete" if run.complete else "not complete"
        ranks = sorted({np.count_nonzero(~np.isnan(record.busy_seconds)) for record in run.records})
        rows.append((
            name,
            f"{run.told:,} of {config.generations:,},\n{state}",
            number(max((r.champion_fitness for r in run.records), key=lambda f: -math.inf if math.isnan(f) else f)),
            means.get(name, "not evaluated"),
            f"{np.count_nonzero(mask):,} of {len(mask):,}{kind}",
            f"{sum(record.steps for record in run.records):,}",
            duration(sum(record.seconds for record in run.records)),
            f"{' to '.join(map(str, ranks[:: max(1, len(ranks) - 1)]))}\non {words(manifest.get('host', 'unknown'))}",
        ))  # fmt: skip
    columns = (("run", "run"), ("generations told", "number"), ("best fitness", "number"),
               ("held-out mean,\n95 % interval", "number"), (f"{' or '.join(kinds)} left", "number"),
               ("environment steps", "number"), ("wall time", "number"), ("ranks", ""))  # fmt: skip
    return Table("What came of it", columns, tuple(rows))


def stands(axis: str, found: Sequence[Standing]) -> Table:
    """Return where experiments stand."""
    rows = []
    for each in found:
        unknown = "none" if len(each.scores) < 2 else "not known"
        between = unknown if each.interval is None else " to ".join(map(number, each.interval))
        rows.append((plain(each.label), f"{len(each.scores)}", number(each.mean), between, each.against or "none"))
    columns = (("experiment", ""), ("seeds", "number"), ("mean", "number"), ("95 % interval", "number"),
               ("test against the best", "number"))  # fmt: skip
    return Table(f"Where they stand: {axis}", columns, tuple(rows))


def digests(names: Sequence[str], runs: Sequence[Run]) -> Table:
    """Return the last digest of each run."""
    rows = tuple((name, run.records[-1].digest.decode()) for name, run in zip(names, runs, strict=True))
    return Table("Digest of the last generation told", (("run", "run"), ("sha256, chained", "digest")), rows)


def judge(name: str, run: Run) -> Judged | None:
    """Return the returns of a run's champion on held-out episodes; None where it was not evaluated."""
    if run.held_out is None or not len(run.held_out.returns):
        return None
    returns = run.held_out.returns[np.isfinite(run.held_out.returns)]
    try:
        found = interval(returns) if len(returns) else None
    except InputError:
        found = None
    return Judged(name, returns, len(run.held_out.returns) - len(returns), found)


def held_out(judged: Sequence[Judged]) -> Table:
    """Return mean, interval, median, worst and best of each champion's returns."""
    rows = []
    for each in judged:
        known = each.returns
        values = [number(float(f(known))) for f in (np.mean, np.median, np.min, np.max)] if len(known) else ["none"] * 4
        between = f"{number(each.interval[0])} to {number(each.interval[1])}" if each.interval else "not known"
        rows.append((each.name, f"{len(known) + each.failed:,}", values[0], between, *values[1:], f"{each.failed:,}"))
    columns = ("run", "run"), *((name, "number") for name in (
        "episodes", "mean", "95 % interval", "median", "worst", "best", "failed"))  # fmt: skip
    return Table("Returns on held-out episodes", tuple(columns), tuple(rows))


def verdicts(names: Sequence[str], stories: Sequence[Story]) -> Table:
    """Return what checking each run has said."""
    rows = []
    for name, story in zip(names, stories, strict=True):
        verdict = story.verdict
        known = None if verdict is None else verdict.equal
        answer = "not checked" if known is None else "equal" if known else "different"
        told = f"python -m evolve.verify {file_of(story.run)}" if verdict is None else words(verdict.told)
        rows.append((name, answer, told))
    return Table("Can it be repeated?", (("run", "run"), ("verdict", ""), ("how it is known", "long")), tuple(rows))


def file_of(run: Run) -> str:
    """Return a run file as a word of a command line."""
    return plain(shlex.quote(str(run.path)))


def _mean(each: Judged) -> str:
    if not len(each.returns):
        return "no episode has a return"
    mean = number(float(each.returns.mean()))
    return mean if each.interval is None else f"{mean}\n({number(each.interval[0])} to {number(each.interval[1])})"
