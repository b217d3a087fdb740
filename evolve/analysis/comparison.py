"""Groups of runs against one another: the scores of their seeds, with mean, interval and a rank test."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from evolve.analysis import statistics
from evolve.analysis.groups import RunGroup
from evolve.errors import InputError
from evolve.shapes import Float64
from evolve.store import StoredRun

FEW_SEEDS = "few seeds"
"""Said of a p that could not have been below 0.05, whatever the scores."""


@dataclass(frozen=True)
class Comparison:
    """The scores of a group of runs beside the best group of the same environment.

    Attributes:
        label: Of the group.
        env: Its environment.
        scores: [n], one for each seed.
        interval: 95 %, of their mean; None for one seed, and where a seed has no score.
        p: Of the two-sided rank test against the best group, with Holm's correction; None where there was no test.
        against_best: The result of that test in words, "best", or why there was no test.
    """

    label: str
    env: str
    scores: Float64
    interval: tuple[float, float] | None
    p: float | None = None
    against_best: str = ""

    @property
    def mean(self) -> float:
        """The mean score; NaN where a seed has no score."""
        return statistics.mean(self.scores) if np.isfinite(self.scores).all() else float("nan")


def compare_groups(groups: Sequence[RunGroup]) -> tuple[str, list[Comparison]]:
    """Return what the scores are, in words, and the groups compared: those of one environment together, best first.

    A score is the mean return of the held-out champion, where every run has one. Otherwise it is the best fitness of
    the last generation. Without SciPy nothing is tested.
    """
    runs = [run for group in groups for run in group.runs]
    held_out = all(run.held_out is not None and np.isfinite(run.held_out.returns).any() for run in runs)
    score = _held_out_mean if held_out else _last_best
    by_env: dict[str, list[Comparison]] = {}
    for group in groups:
        env = group.config.env.id
        scores = np.array([score(run) for run in group.runs])
        interval = statistics.interval(scores) if np.isfinite(scores).all() else None
        by_env.setdefault(env, []).append(Comparison(group.label, env, scores, interval))
    compared = [row for rows in by_env.values() for row in _compare(rows)]
    return "held-out champion's mean return" if held_out else "best fitness of the last generation", compared


def _held_out_mean(run: StoredRun) -> float:
    assert run.held_out is not None
    returns = run.held_out.returns
    return statistics.mean(returns[np.isfinite(returns)])


def _last_best(run: StoredRun) -> float:
    return run.records[-1].champion_fitness


def _compare(rows: Sequence[Comparison]) -> list[Comparison]:
    """Return the groups of one environment, best first, the others tested against it."""
    best, *others = sorted(rows, key=lambda row: np.nan_to_num(row.mean, nan=-np.inf), reverse=True)
    if not others:
        return [best]
    best = replace(best, against_best="best")
    reasons = [_why_untestable(row.scores, best.scores) for row in others]
    testable = [row for row, reason in zip(others, reasons, strict=True) if not reason]
    try:
        ps = iter(statistics.holm([statistics.rank_test(row.scores, best.scores) for row in testable]))
    except InputError:  # no SciPy
        return [best, *(replace(row, against_best="not tested: no SciPy") for row in others)]
    compared = [best]
    for row, reason in zip(others, reasons, strict=True):
        compared.append(replace(row, against_best=reason) if reason else _tested(row, best, next(ps), len(testable)))
    return compared


def _why_untestable(one: Float64, other: Float64) -> str:
    """Return why two samples cannot be tested; empty where they can be."""
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return "a seed without a score"
    return "one seed" if min(len(one), len(other)) < 2 else ""


def _tested(row: Comparison, best: Comparison, p: float, tests: int) -> Comparison:
    text = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    if not statistics.can_be_significant(len(row.scores), len(best.scores), tests):
        text = f"{text}, {FEW_SEEDS}"
    return replace(row, p=p, against_best=text)
