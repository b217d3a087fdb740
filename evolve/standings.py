"""Experiments against one another: the scores of their seeds, with mean, interval and a rank test."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evolve.errors import InputError
from evolve.figures import Experiment
from evolve.shapes import Float64
from evolve.statistics import interval, rank_test
from evolve.store import Run


@dataclass(frozen=True)
class Standing:
    """An experiment's scores, one for each seed [n].

    interval: 95 %, of their mean. p: of the two-sided rank test against the experiment with the best mean, None for
    that one. Both None without SciPy.
    """

    label: str
    scores: Float64
    interval: tuple[float, float] | None
    p: float | None

    @property
    def mean(self) -> float:
        """The mean score."""
        return float(self.scores.mean())


def standings(experiments: Sequence[Experiment]) -> tuple[str, list[Standing]]:
    """Return what scores are, in words, and where experiments stand, in their order.

    A score is the champion's mean return on held-out episodes where every run has these, otherwise its fitness in the
    last generation that was told.
    """
    runs = [run for experiment in experiments for run in experiment.runs]
    judged = all(run.held_out is not None and np.isfinite(run.held_out.returns).any() for run in runs)
    score = _held_out if judged else _last_fitness
    samples = [np.array([score(run) for run in experiment.runs]) for experiment in experiments]
    best = int(np.argmax([np.nan_to_num(sample.mean(), nan=-np.inf) for sample in samples]))
    found = [
        Standing(experiment.label, sample, *_tested(sample, None if n == best else samples[best]))
        for n, (experiment, sample) in enumerate(zip(experiments, samples, strict=True))
    ]
    return "mean return on held-out episodes" if judged else "fitness of the last champion", found


def _held_out(run: Run) -> float:
    assert run.held_out is not None
    return float(np.nanmean(run.held_out.returns))


def _last_fitness(run: Run) -> float:
    return run.records[-1].champion_fitness


def _tested(sample: Float64, best: Float64 | None) -> tuple[tuple[float, float] | None, float | None]:
    try:
        between = interval(sample) if np.isfinite(sample).all() else None
        return between, None if best is None else rank_test(sample, best)
    except InputError:  # no SciPy
        return None, None
