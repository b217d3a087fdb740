"""Experiments against one another: the scores of their seeds, with mean, interval and a rank test."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evolve.errors import InputError, plain
from evolve.figures import FILE, Experiment, Sheet, stand
from evolve.shapes import Float64
from evolve.statistics import can_tell, holm, interval_of_seeds, rank_test
from evolve.store import Run

_LONGEST = 1000  # characters of a note

FEW = "few seeds"
"""Said of a p that could not have been below 0.05, whatever the scores."""


@dataclass(frozen=True)
class Standing:
    """An experiment's scores, one for each seed [n], in its environment.

    interval: 95 %, of their mean; None for one seed, and without SciPy. p: of the two-sided rank test against the best
    mean of the same environment, with Holm's correction, or None; `against` says either, or why there is none.
    """

    label: str
    env: str
    scores: Float64
    interval: tuple[float, float] | None
    p: float | None = None
    against: str = ""

    @property
    def mean(self) -> float:
        """The mean score."""
        return float(self.scores.mean())


def once(experiments: Sequence[Experiment]) -> tuple[list[Experiment], str]:
    """Return experiments with one run for each seed, that of most generations, and in one line what was left out.

    The line is empty where nothing was.
    """
    found, lost = [], []
    for experiment in experiments:
        longest: dict[int, Run] = {}
        for run in sorted(experiment.runs, key=_length, reverse=True):
            if (kept := longest.setdefault(run.header.seed, run)) is not run:
                lost.append(_why(run, kept))
        seeds = dict.fromkeys(run.header.seed for run in experiment.runs)
        found.append(replace(experiment, runs=tuple(longest[seed] for seed in seeds)))
    return found, plain(f"a seed counts once, so these are left out: {'; '.join(lost)}", _LONGEST) if lost else ""


def _length(run: Run) -> tuple[int, bool, int]:
    return run.told, run.complete, 0 if run.held_out is None else len(run.held_out.returns)


def _why(run: Run, kept: Run) -> str:
    """Return what a run is to the one of the same experiment and seed that is kept."""
    if kept.records[run.told - 1].digest != run.records[-1].digest:
        return f"{run.path} (another run than {kept.path}: evolve.verify says where they part)"
    if run.told < kept.told:
        return f"{run.path} ({run.told} of the {kept.told} generations of {kept.path})"
    return f"{run.path} (equal to {kept.path})"


def standings(experiments: Sequence[Experiment]) -> tuple[str, list[Standing]]:
    """Return what scores are, in words, and where experiments stand: those of one environment together, best first.

    A score is the champion's mean return on held-out episodes where every run has these, otherwise its fitness in the
    last generation that was told.
    """
    runs = [run for experiment in experiments for run in experiment.runs]
    judged = all(run.held_out is not None and np.isfinite(run.held_out.returns).any() for run in runs)
    score = _held_out if judged else _last_fitness
    rows: dict[str, list[Standing]] = {}
    for experiment in experiments:
        env, scores = experiment.config.env.id, np.array([score(run) for run in experiment.runs])
        rows.setdefault(env, []).append(Standing(experiment.label, env, scores, _interval(scores)))
    found = [row for same in rows.values() for row in _compared(same)]
    return "mean return on held-out episodes" if judged else "fitness of the last champion", found


def draw_standings(axis: str, found: Sequence[Standing], sheet: Sheet = FILE) -> Any:
    """Return the figure of what `standings` returns."""
    tasks = ", ".join(dict.fromkeys(row.env for row in found))
    return stand([(row.label, row.scores, row.interval, row.against) for row in found], tasks, axis, sheet)


def _held_out(run: Run) -> float:
    assert run.held_out is not None
    return float(np.nanmean(run.held_out.returns))


def _last_fitness(run: Run) -> float:
    return run.records[-1].champion_fitness


def _interval(scores: Float64) -> tuple[float, float] | None:
    try:
        return interval_of_seeds(scores) if np.isfinite(scores).all() else None
    except InputError:  # no SciPy
        return None


def _compared(rows: Sequence[Standing]) -> list[Standing]:
    """Return experiments of one environment, the best first, and the others tested against it."""
    best, *others = sorted(rows, key=lambda row: np.nan_to_num(row.mean, nan=-np.inf), reverse=True)
    why = [_untestable(row.scores, best.scores) for row in others]
    try:
        ps = iter(holm([rank_test(row.scores, best.scores) for row, no in zip(others, why, strict=True) if not no]))
    except InputError:
        return [best, *others]
    tells = [can_tell(len(row.scores), len(best.scores), why.count("")) for row in others]
    tested = [
        replace(row, against=no) if no else _with(row, next(ps), enough)
        for row, no, enough in zip(others, why, tells, strict=True)
    ]
    return [replace(best, against="best" if others else ""), *tested]


def _untestable(one: Float64, other: Float64) -> str:
    """Return why two samples cannot be tested, empty where they can be."""
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return "a seed without a score"
    return "one seed" if min(len(one), len(other)) < 2 else ""


def _with(row: Standing, p: float, tells: bool) -> Standing:
    words = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    return replace(row, p=p, against=words if tells else f"{words}, {FEW}")
