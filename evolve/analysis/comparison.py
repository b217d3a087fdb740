"""Groups of runs against one another: the scores of their seeds, with mean, interval and a rank test."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evolve.analysis import statistics
from evolve.analysis.groups import RunGroup
from evolve.errors import InputError, sanitize
from evolve.shapes import Float64
from evolve.store import StoredRun

HELD_OUT = "held-out champion's mean return"
TRAINING = "best fitness of the last generation, in training"
_FEWEST = 3  # seeds that have an interval
Interval = tuple[float, float]


@dataclass(frozen=True)
class Comparison:
    """The scores of a group of runs beside the best group of the same environment.

    Attributes:
        label: Of the group.
        env: Its environment.
        scores: [n], one for each seed that has one.
        missing: How many seeds have none.
        interval: 95 %, of their mean, cut where no return has ever been; None for fewer than three seeds.
        p: Of the two-sided rank test against the best group, with Holm's correction; None where there was no test.
        best: Whether this is the best group of its environment, of several.
        tied: Whether the best group and this one, or the best group and another, have the same mean.
    """

    label: str
    env: str
    scores: Float64
    missing: int
    interval: Interval | None
    p: float | None = None
    best: bool = False
    tied: bool = False

    @property
    def name(self) -> str:
        """The label without the environment."""
        return self.label.removeprefix(f"{self.env}, ")

    @property
    def mean(self) -> float:
        """The mean score; NaN where there is none."""
        return statistics.mean(self.scores)

    @property
    def against_best(self) -> str:
        """The result of the test in words; empty where there was none."""
        if self.tied:
            return "equal"
        if self.best:
            return "best"
        return "" if self.p is None else "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"


@dataclass(frozen=True)
class Ranking:
    """Groups compared: those of one environment together, best first.

    Attributes:
        score: What the scores are, in words.
        rows: The groups.
        notes: What has to be said about them: what is not evaluated, what was not tested, and why.
    """

    score: str
    rows: tuple[Comparison, ...]
    notes: tuple[str, ...]


def compare_groups(groups: Sequence[RunGroup]) -> Ranking:
    """Compare groups.

    A score is the mean return of the held-out champion. Seeds that were not evaluated are left out, and the notes say
    so. Only where none was, scores are the best fitness of the last generation.
    """
    evaluated = any(_held_out_mean(run) is not None for group in groups for run in group.runs)
    score = _held_out_mean if evaluated else _last_best
    by_env: dict[str, list[RunGroup]] = {}
    for group in groups:
        by_env.setdefault(group.config.env.id, []).append(group)
    notes = [_missing(groups, score)] if evaluated else [_NOT_EVALUATED]
    rows: list[Comparison] = []
    for own in by_env.values():
        within = _range([run for group in own for run in group.runs], evaluated)
        compared, note = _compare([_scored(group, score, within) for group in own])
        rows += compared
        notes.append(note)
    return Ranking(HELD_OUT if evaluated else TRAINING, tuple(rows), tuple(dict.fromkeys(filter(None, notes))))


def held_out_score(group: RunGroup) -> tuple[float, Interval | None] | None:
    """Return the held-out mean of a group and its interval: over seeds, or of one seed over its episodes.

    None where no seed was evaluated.
    """
    row = _scored(group, _held_out_mean, _range(group.runs, evaluated=True))
    if not len(row.scores):
        return None
    return row.mean, row.interval if len(group.runs) > 1 else held_out_interval(group.runs[0])


def held_out_interval(run: StoredRun) -> Interval | None:
    """Return the interval of the mean over a run's held-out episodes, cut where no return of the run has been."""
    if run.held_out is None:
        return None
    returns = run.held_out.returns[np.isfinite(run.held_out.returns)]
    return statistics.cut(statistics.interval(returns), *_range([run], evaluated=True))


def best_run(group: RunGroup) -> StoredRun:
    """Return the run that stands for a group: that with the best held-out mean, or else the best last generation."""
    evaluated = [run for run in group.runs if _held_out_mean(run) is not None]
    score = _held_out_mean if evaluated else _last_best

    def scored(run: StoredRun) -> float:
        found = score(run)
        return -np.inf if found is None else found

    return max(evaluated or group.runs, key=scored)


_NOT_EVALUATED = (
    "No run was evaluated on held-out episodes, so training fitness is compared, which flatters all of them. "
    "To evaluate: python -m evolve.evaluate FILE"
)


def _missing(groups: Iterable[RunGroup], score: Callable[[StoredRun], float | None]) -> str:
    left_out = [str(run.path) for group in groups for run in group.runs if score(run) is None]
    if not left_out:
        return ""
    files = ", ".join(map(sanitize, left_out))
    return f"Left out, since not evaluated on held-out episodes: {files}. To evaluate: python -m evolve.evaluate FILE"


def _scored(group: RunGroup, score: Callable[[StoredRun], float | None], within: Interval) -> Comparison:
    known = [found for run in group.runs if (found := score(run)) is not None]
    scores = np.array(known, np.float64)
    interval = statistics.cut(statistics.interval(scores), *within) if len(scores) >= _FEWEST else None
    return Comparison(group.label, group.config.env.id, scores, len(group.runs) - len(scores), interval)


def _held_out_mean(run: StoredRun) -> float | None:
    if run.held_out is None:
        return None
    known = run.held_out.returns[np.isfinite(run.held_out.returns)]
    return statistics.mean(known) if len(known) else None


def _last_best(run: StoredRun) -> float | None:
    last = run.records[-1].champion_fitness
    return float(last) if np.isfinite(last) else None


def _range(runs: Sequence[StoredRun], evaluated: bool) -> Interval:
    """Return the least and the largest return, or fitness, that is known of runs of one environment."""
    if evaluated:
        seen = [run.held_out.returns for run in runs if run.held_out is not None]
        seen += [record.returns for run in runs for record in run.records if record.returns is not None]
    else:
        seen = [np.array([record.champion_fitness]) for run in runs for record in run.records]
    known = [part[np.isfinite(part)] for part in seen]
    known = [part for part in known if part.size]
    if not known:
        return -np.inf, np.inf
    return float(min(part.min() for part in known)), float(max(part.max() for part in known))


def _compare(rows: Sequence[Comparison]) -> tuple[list[Comparison], str]:
    """Return the groups of one environment, best first, the others tested against it, and why some were not."""
    best, *others = sorted(rows, key=lambda row: np.nan_to_num(row.mean, nan=-np.inf), reverse=True)
    if not others:
        return [best], ""
    others = [replace(row, tied=row.mean == best.mean) for row in others]
    best = replace(best, best=True, tied=any(row.tied for row in others))
    tests = len(others)
    testable = [row for row in others if _testable(row, best, tests)]
    try:
        ps = statistics.holm([statistics.rank_test(row.scores, best.scores) for row in testable])
    except InputError as error:  # no SciPy
        return [best, *others], f"Nothing is tested: {error}"
    found = {id(row): p for row, p in zip(testable, ps, strict=True)}
    note = "" if len(testable) == tests else _untested(best, tests)
    return [best, *(replace(row, p=found.get(id(row))) for row in others)], note


def _testable(row: Comparison, best: Comparison, tests: int) -> bool:
    n, m = len(row.scores), len(best.scores)
    return not row.missing and not best.missing and statistics.can_be_significant(n, m, tests)


def _untested(best: Comparison, tests: int) -> str:
    enough = next(n for n in range(2, 1000) if statistics.can_be_significant(n, n, tests))
    return f"{best.env}: too few seeds to test against the best, whatever they score; that takes {enough} seeds each."
