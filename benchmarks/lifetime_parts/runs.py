"""The runs of the study, in their order."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import resumable

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
SWEEP_SEEDS = (1, 2, 3, 4, 5)
SWEEP_GENERATIONS = 50
LONG_SEEDS = (1, 2)


@dataclass(frozen=True)
class Job(resumable.Job):
    """One run of this study, with its purpose and its task."""

    part: str
    task: Task

    @property
    def kind(self) -> tuple[str, ...]:
        """The settings that decide how fast it is."""
        return self.task.name, self.part, self.settings["network"]["name"]


def tuning(task: Task, network: str) -> list[Job]:
    """Return the runs that choose the settings of a network, the same number for each tuned network."""
    if network in task.by_hand:
        return []
    return [
        Job(settings_of(task, *pair, task.tuning_generations), seed,
            f"tune/{task.name}/{label(pair[0])}/{label(pair[1])}", "tune", task)
        for pair in pairs(network)
        for seed in task.tuning_seeds
    ]  # fmt: skip


def judged(task: Task, network: str, seeds: Sequence[int]) -> list[Job]:
    """Return the runs of a network with its chosen settings. Raises KeyError if none are chosen yet."""
    settings = settings_of(task, *chosen(task.name, network))
    return [Job(settings, seed, f"judge/{task.name}/{network}", "judge", task) for seed in seeds]


def sweep(network: str) -> list[Job]:
    """Return the runs of a network over numbers of cues and lengths of lives."""
    task = TASKS["cues"]
    return [
        Job(settings_of(
                task, *chosen("cues", network), SWEEP_GENERATIONS, {"cues": cues, "presentations": presentations}
            ),
            seed, f"sweep/{network}/{cues}-cues-{presentations}-times", "sweep", task)
        for cues in SWEEP_CUES
        for presentations in SWEEP_PRESENTATIONS
        for seed in SWEEP_SEEDS
    ]  # fmt: skip


def long_controls() -> dict[str, list[Job]]:
    """Return runs of networks with memory on the cues, ten times as long as the published ones."""
    task = TASKS["cues"]
    longer = 10 * int(task.settings["generations"])
    return {
        network: [
            Job(settings_of(task, *chosen("cues", network), longer), seed, f"long/{network}", "long", task)
            for seed in LONG_SEEDS
        ]
        for network in ("elman", "hebbian-lstm")
    }


def choose(task: Task, networks: Sequence[str], out: Path) -> dict[str, dict[str, Settings]]:
    """Return the best settings for networks of a task, by the mean over seeds of 1,000 lives."""
    best = {}
    for network in networks:
        if network in task.by_hand:
            continue
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
