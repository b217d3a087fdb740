"""Studies of many runs: complete runs are not run again, and the time of the missing runs is estimated."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import evolve
from evolve.analysis.runs import script_ranks
from evolve.config import Config, parse


@dataclass(frozen=True)
class Job:
    """One run: the experiment, the seed, and the directory of its file, below that of the study."""

    settings: dict[str, Any]
    seed: int
    directory: str

    @property
    def kind(self) -> tuple[str, ...]:
        """The settings that decide how fast it is."""
        return (self.directory,)

    def generations(self, steps: float) -> float:
        """Return the largest number of its generations, if each takes `steps` environment steps."""
        config = parse(Config, self.settings)
        return min(config.generations, (config.early_stop.steps or np.inf) / steps)

    def run(self, out: Path) -> evolve.Run:
        """Evolve it, or resume it."""
        return evolve.train(self.settings, seed=self.seed, output=out / self.directory, resume=True)

    def load(self, out: Path) -> evolve.Run | None:
        """Return the run if it is complete and has all generations, otherwise None."""
        path = out / self.directory / f"seed-{self.seed}.h5"
        found = evolve.load(path) if path.exists() else None
        whole = isinstance(found, evolve.Run) and found.complete
        return found if whole and found.config.generations >= parse(Config, self.settings).generations else None


class Clock:
    """Estimates the time of the missing runs from complete runs of the same kind.

    Args:
        out: The folder of the runs.
        jobs: All runs of the study.
    """

    def __init__(self, out: Path, jobs: Sequence[Job]) -> None:
        self._out = out
        self._left = [job for job in jobs if job.load(out) is None]
        self._seen: dict[tuple[str, ...], list[tuple[float, float]]] = {}  # seconds and steps of a generation
        for job in jobs:
            if job not in self._left and len(self._seen.get(job.kind, ())) < 3:
                run = job.load(out)
                assert run is not None
                self.saw(job, run)

    def left(self, directory: str = "") -> list[Job]:
        """Return the missing runs, all or those below a directory."""
        return [job for job in self._left if not directory or job.directory.split("/")[0] == directory]

    def try_kinds(self) -> None:
        """Play two generations of a run of every kind without a complete run."""
        for job in self._left:
            if job.kind not in self._seen:
                trial = self._out / "trials" / job.directory
                # The run with which it is to begin may be missing, too.
                settings = {key: value for key, value in job.settings.items() if key != "start_from"}
                settings |= {"generations": 2, "held_out_episodes": 1}
                self.saw(job, evolve.train(settings, seed=job.seed, output=trial, resume=True))

    def saw(self, job: Job, run: evolve.Run) -> None:
        """Note how long a run took."""
        records = [generation.record for generation in run.generations]
        means = (float(np.mean([getattr(record, what) for record in records])) for what in ("seconds", "steps"))
        self._seen.setdefault(job.kind, []).append(tuple(means))

    def done(self, job: Job) -> None:
        """Remove a run from the missing runs."""
        self._left.remove(job)

    def seconds(self, jobs: Sequence[Job] | None = None) -> float:
        """Return the estimated seconds of some jobs, by default of all missing runs, held-out episodes included."""
        return sum(self._estimate(job) for job in (self._left if jobs is None else jobs))

    def _estimate(self, job: Job) -> float:
        seconds, steps = np.mean(self._seen[job.kind], axis=0)
        return float(seconds) * job.generations(float(steps)) + 0.3


Kind = TypeVar("Kind", bound=Job)


def run_all(jobs: Sequence[Kind], out: Path, say: Callable[[str], None]) -> Iterator[tuple[Kind, evolve.Run]]:
    """Evolve the missing runs; yield every run. Prints an estimate of the time, and the result of each run."""
    clock = Clock(out, jobs)
    clock.try_kinds()
    say(f"{len(clock.left())} of {len(jobs)} runs are left: about {in_words(clock.seconds())}")
    for job in jobs:
        before = time.perf_counter()
        new = job.load(out) is None
        run = job.run(out)
        if new:
            clock.saw(job, run)
            clock.done(job)
            took = time.perf_counter() - before
            score = "" if run.held_out is None else f"held-out mean {run.held_out.mean:.4g}, "
            rest = f"{len(clock.left())} left, {in_words(clock.seconds())}"
            say(f"{job.directory} seed {job.seed}: {score}{took:.1f} s; {rest}")
        yield job, run


def in_words(seconds: float) -> str:
    """Return a duration as text."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def announcer(study: str) -> Callable[[str], None]:
    """Return a function that prints a line about a study on stderr, on rank 0."""

    def say(text: str) -> None:
        if script_ranks().is_rank_0:
            print(f"{study}: {text}", file=sys.stderr, flush=True)

    return say
