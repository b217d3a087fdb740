"""Several runs of the Python interface: comparisons of experiments, and the runs of a sweep."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from evolve import store
from evolve.analysis import comparison, exhibits, figures, statistics
from evolve.analysis.runs import Run, script_ranks
from evolve.analysis.statistics import between, number, words
from evolve.cluster.script import all_ranks
from evolve.config import Config
from evolve.errors import InputError, pluralize
from evolve.store import StoredRun
from evolve.verification.verdict import html_rows


class RunComparison(exhibits.Picture):
    """Experiments side by side: the scores of their seeds, means with intervals, and tests against the best.

    Args:
        runs: The runs. Runs that differ in their seeds only are one experiment.
    """

    def __init__(self, runs: Sequence[StoredRun]) -> None:
        self._runs = runs
        groups, left_out = comparison.deduplicate_seeds(comparison.begun_groups(runs))
        self._ranking = comparison.compare_groups(groups)
        self.notes = tuple(filter(None, (*self._ranking.notes, left_out, comparison.uneven_lengths(groups))))
        """Remarks: runs that were left out or not evaluated, and tests that cannot be made."""
        title = f"{pluralize(len(groups), 'experiment')}, {self._ranking.score}"
        super().__init__(figures.draw_comparison(self._ranking), title)

    def table(self) -> dict[str, list[Any]]:
        """Return columns by experiment, best first (`pandas.DataFrame(comparison.table())`).

        `low` and `high` are the 95 % interval of the mean over seeds, `p` is the two-sided rank test against the best
        with Holm's correction; they are NaN if there are too few seeds.
        """
        rows = self._ranking.rows
        intervals = [row.interval or (np.nan, np.nan) for row in rows]
        return {
            "experiment": [row.name for row in rows],
            "environment": [row.env for row in rows],
            "seeds": [len(row.scores) for row in rows],
            "mean": [row.mean for row in rows],
            "low": [low for low, _ in intervals],
            "high": [high for _, high in intervals],
            "p": [np.nan if row.p is None else row.p for row in rows],
            "best": [row.best for row in rows],
        }

    def curves(self, over: str = "generation", load: bool = False) -> exhibits.Picture:
        """Return the curves of the experiments in one picture, with the arguments of `Run.plot`."""
        return exhibits.plot(self._runs, over, load)

    def report(self, quick: bool = False) -> exhibits.Page:
        """Return a page about all runs, see `Run.report`."""
        return exhibits.report(self._runs, script_ranks(), quick)


def compare(runs: Iterable[Run | str | Path]) -> RunComparison:
    """Return a comparison of experiments as a picture, which a notebook shows; `save` writes PNG, SVG or PDF.

    A score is the mean return of a seed's champion on held-out episodes.

    Args:
        runs: Runs, or the paths of run files and directories; a directory stands for all run files in or below it.
            Runs that differ in their seeds only are one experiment.

    Raises:
        InputError: A run is of another type, a file cannot be read, or matplotlib is not installed.
        RunError: No run has a complete generation.
    """
    if isinstance(runs, str | Path | Run) or not isinstance(runs, Iterable):
        raise InputError("runs", "a list of runs, or of paths of run files", repr(runs))
    return RunComparison([stored for run in runs for stored in _stored(run)])


def _stored(run: Any) -> list[StoredRun]:
    if isinstance(run, Run):
        return [run._stored]
    if isinstance(run, str | Path):
        return [store.read(path) for path in store.run_files([Path(run)])]
    raise InputError("runs", "a list of runs, or of paths of run files", f"one with {run!r}")


def announce(number: int, runs: int, config: Config, seed: int) -> None:
    """Print the heading of one of several runs of a sweep on rank 0. The name of the directory names the experiment.

    number: from 1 on.
    """
    if runs > 1 and all_ranks().rank == 0:
        file = store.path_of(Path(config.output.directory or "."), seed)
        print(f"run {number} of {runs}: {file.parent.resolve().name}/{file.name}", file=sys.stderr, flush=True)


class Sweep(Sequence[Run]):
    """The runs of a sweep, in the order of the grid and, for each of its points, of the seeds.

    Args:
        runs: The runs.
        points: For each run, the values of the settings that the sweep varies.
    """

    def __init__(self, runs: Sequence[Run], points: Sequence[Mapping[str, Any]]) -> None:
        self.runs = tuple(runs)
        self.points = tuple(points)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Run, ...]: ...
    def __getitem__(self, index: int | slice) -> Run | tuple[Run, ...]:
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def table(self) -> dict[str, list[Any]]:
        """Return columns by run (`pandas.DataFrame(sweep.table())`).

        The first columns are the varied settings. `held_out_low` and `held_out_high` are the 95 % interval of the
        champion's mean return on held-out episodes; NaN without such episodes.
        """
        columns: dict[str, list[Any]] = {key: [point[key] for point in self.points] for key in self.points[0]}
        last = [run.generations[-1] if run.generations else None for run in self.runs]
        held_out = [run.held_out for run in self.runs]
        nothing = (np.nan, np.nan)
        intervals = [nothing if found is None else found.interval or nothing for found in held_out]
        return columns | {
            "seed": [run.seed for run in self.runs],
            "generations": [len(run.generations) for run in self.runs],
            "best_fitness": [np.nan if generation is None else generation.best for generation in last],
            "mean_fitness": [np.nan if generation is None else generation.mean for generation in last],
            "held_out_mean": [np.nan if found is None else found.mean for found in held_out],
            "held_out_low": [low for low, _ in intervals],
            "held_out_high": [high for _, high in intervals],
            "steps": [run._stored.steps for run in self.runs],
            "seconds": [run._stored.seconds for run in self.runs],
            "digest": ["" if generation is None else generation.digest for generation in last],
            "file": [str(run.path) for run in self.runs],
        }

    def compare(self) -> RunComparison:
        """Return the comparison of the experiments, see `evolve.compare`."""
        return compare(self.runs)

    def _repr_html_(self) -> str:
        """Return a table with a row for each point of the grid, best first: the held-out means of its seeds."""
        by_point: dict[tuple[str, ...], list[float]] = {}
        for point, run in zip(self.points, self.runs, strict=True):
            scores = by_point.setdefault(tuple(words(value) for value in point.values()), [])
            if run.held_out is not None:
                scores.append(run.held_out.mean)
        means = {point: statistics.mean(np.array(scores)) for point, scores in by_point.items()}
        rows = [
            (*point, number(means[point]), _spread(by_point[point]))
            for point in sorted(means, key=lambda point: np.nan_to_num(means[point], nan=-np.inf), reverse=True)
        ]
        seeds = pluralize(len({run.seed for run in self.runs}), "seed")
        return html_rows(
            f"{pluralize(len(self), 'run')}, {seeds}", (*self.points[0], "held-out mean", "of seeds"), rows
        )

    def __repr__(self) -> str:
        over = f" over {', '.join(self.points[0])}" if self.points[0] else ""
        return f"<Sweep: {pluralize(len(self), 'run')}{over}>"


def _spread(scores: Sequence[float]) -> str:
    """Return the range of the scores of several seeds in words."""
    return between((min(scores), max(scores))) if len(scores) > 1 else ""
