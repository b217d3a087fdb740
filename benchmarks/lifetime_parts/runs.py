"""The runs of the study: which there are, in which order, and how long they take."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import evolve
from lifetime_parts.presets import (
    TASKS,
    Settings,
    Task,
    chosen,
    label,
    pairs,
    settings_of,
)

SWEEP_NETWORKS = ("hebbian-dag", "elman", "hebbian-lstm")
SWEEP_CUES = (2, 4, 6, 12)
SWEEP_PRESENTATIONS = (2, 4, 8, 16)
SWEEP_SEEDS = (1,)
SWEEP_GENERATIONS = 50
LONG_SEEDS = (1, 2)


@dataclass(frozen=True)
class Job:
    """One run: what it is for, the task, the experiment, the seed, and the directory of its file."""

    part: str
    task: Task
    settings: Settings
    seed: int
    directory: str

    @property
    def kind(self) -> tuple[str, ...]:
        """What decides how fast it is."""
        return self.task.name, self.part, self.settings["network"]["name"]

    @property
    def weight(self) -> int:
        """How many generations it has, by which runs of one kind take longer or shorter."""
        return int(self.settings["generations"])

    def run(self, out: Path) -> evolve.Run:
        """Evolve it, or take up what has been evolved of it."""
        return evolve.train(self.settings, seed=self.seed, output=out / self.directory, resume=True)

    def load(self, out: Path) -> evolve.Run | None:
        """Return the run if it is complete, and no shorter than it is to be."""
        path = out / self.directory / f"seed-{self.seed}.h5"
        found = evolve.load(path) if path.exists() else None
        whole = isinstance(found, evolve.Run) and found.complete and len(found.generations) == self.weight
        return found if whole else None


def tuning(task: Task, network: str) -> list[Job]:
    """Return the runs that choose the settings of a network: as many for each."""
    return [
        Job("tune", task, settings_of(task, *pair, task.tuning_generations), seed,
            f"tune/{task.name}/{label(pair[0])}/{label(pair[1])}")
        for pair in pairs(network)
        for seed in task.tuning_seeds
    ]  # fmt: skip


def judged(task: Task, network: str, seeds: Sequence[int]) -> list[Job]:
    """Return the runs of a network with what was chosen for it. Raises KeyError before it was."""
    settings = settings_of(task, *chosen(task.name, network))
    return [Job("judge", task, settings, seed, f"judge/{task.name}/{network}") for seed in seeds]


def sweep(network: str) -> list[Job]:
    """Return the runs of a network over numbers of cues and lengths of lives."""
    task = TASKS["cues"]
    return [
        Job("sweep", task,
            settings_of(
                task, *chosen("cues", network), SWEEP_GENERATIONS, {"cues": cues, "presentations": presentations}
            ),
            seed, f"sweep/{network}/{cues}-cues-{presentations}-times")
        for cues in SWEEP_CUES
        for presentations in SWEEP_PRESENTATIONS
        for seed in SWEEP_SEEDS
    ]  # fmt: skip


def long_controls() -> dict[str, list[Job]]:
    """Return runs of networks with memory on the cues that are ten times as long as those judged."""
    task = TASKS["cues"]
    longer = 10 * int(task.settings["generations"])
    return {
        network: [
            Job("long", task, settings_of(task, *chosen("cues", network), longer), seed, f"long/{network}")
            for seed in LONG_SEEDS
        ]
        for network in ("elman", "hebbian-lstm")
    }


def choose(task: Task, networks: Sequence[str], out: Path) -> dict[str, dict[str, Settings]]:
    """Return what tuning has found best for networks of a task: by the mean over its seeds of 1,000 lives."""
    best = {}
    for network in networks:
        scores: dict[str, list[float]] = {}
        settings = {}
        for job in tuning(task, network):
            scores.setdefault(job.directory, []).append(job.run(out).evaluate(1000).mean)
            settings[job.directory] = job.settings
        means = {name: float(np.mean(each)) for name, each in scores.items()}
        winner = max(means, key=lambda name: means[name])
        best[network] = {
            "network": settings[winner]["network"],
            "strategy": settings[winner]["strategy"],
            "tuning": {
                "mean": means[winner],
                "best": max(means.values()),
                "median": float(np.median([*means.values()])),
            },
        }
    return best


def seconds_of(run: evolve.Run) -> float:
    """Return how long the generations of a run took."""
    return sum(float(generation.record.seconds) for generation in run.generations)


class Clock:
    """How long the runs that are left will take, by those of their kind that were seen.

    Args:
        out: Where the runs are.
        jobs: All of them.
    """

    def __init__(self, out: Path, jobs: Sequence[Job]) -> None:
        self._out = out
        self._left = [job for job in jobs if job.load(out) is None]
        self._rates: dict[tuple[str, ...], list[float]] = {}  # seconds of a generation
        for job in jobs:
            if job not in self._left and len(self._rates.get(job.kind, ())) < 3:
                run = job.load(out)
                assert run is not None
                self.saw(job, run)

    @property
    def left(self) -> int:
        """How many runs are left."""
        return len(self._left)

    def try_kinds(self) -> None:
        """Play two generations of a run of every kind that was not seen yet."""
        for job in self._left:
            if job.kind not in self._rates:
                trial = self._out / "trials" / job.directory
                settings = {**job.settings, "generations": 2, "held_out_episodes": 1}
                self.saw(job, evolve.train(settings, seed=job.seed, output=trial, resume=True))

    def saw(self, job: Job, run: evolve.Run) -> None:
        """Remember how long a run took."""
        self._rates.setdefault(job.kind, []).append(seconds_of(run) / len(run.generations))

    def done(self, job: Job) -> None:
        """Take a run from those that are left."""
        self._left.remove(job)

    def seconds(self) -> float:
        """Return the estimate, held-out episodes and the rest of a run included."""
        return sum(float(np.mean(self._rates[job.kind])) * job.weight + 0.3 for job in self._left)


def run_all(jobs: Sequence[Job], out: Path, say: Callable[[str], None]) -> Iterator[tuple[Job, evolve.Run]]:
    """Evolve what is left of the runs; yield each. Says how long it will take, and what has become of each."""
    clock = Clock(out, jobs)
    clock.try_kinds()
    say(f"{clock.left} of {len(jobs)} runs are left: about {in_words(clock.seconds())}")
    for job in jobs:
        before = time.perf_counter()
        new = job.load(out) is None
        run = job.run(out)
        if new:
            clock.saw(job, run)
            clock.done(job)
            took = time.perf_counter() - before
            score = "" if run.held_out is None else f"held-out mean {run.held_out.mean:.4g}, "
            say(f"{job.directory} seed {job.seed}: {score}{took:.1f} s; {clock.left} left, {in_words(clock.seconds())}")
        yield job, run


def in_words(seconds: float) -> str:
    """Return a duration in words."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
