"""Measurements of a complete run: its champion's lives with and without learning, and when it reached the aim."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ppo_parts.records import write

import evolve
from evolve import store
from evolve.genome import Genomes
from evolve.numerics.streams import Purpose, environment_seeds
from evolve.training import chosen_genome, reload
from lifetime_parts.lives import by_trial, play
from lifetime_parts.presets import OFF
from lifetime_parts.runs import Job

LIVES = 1000
"""The number of held-out lives; the run file has the first hundred."""
_VALIDATION = 200  # lives, which decide whether the aim was reached
_EVERY = 5  # generations
_NEAR = 0.95  # of the aim: if the champion is below it, no generation is checked


@dataclass(frozen=True)
class Measured:
    """A run, measured.

    Attributes:
        seed: The seed of the run.
        digest: The digest of its last generation.
        mean: The held-out mean of its first hundred lives, which the run file has.
        long_mean: The held-out mean of a thousand lives.
        off: The mean of the same thousand lives of the same genome without learning; None if it cannot learn.
        steps: Environment steps of all generations.
        seconds: Their duration.
        reached: Steps and seconds until the best of a generation reached the aim; None if none did.
        curve: The mean reward of each trial of a life.
    """

    seed: int
    digest: str
    mean: float
    long_mean: float
    off: float | None
    steps: int
    seconds: float
    reached: tuple[int, float] | None
    curve: list[float]


def measure(job: Job, out: Path) -> Measured:
    """Return the measurements of a complete run, which are kept in a file beside it."""
    run = job.load(out)
    assert run is not None, f"{job.directory} seed {job.seed} is not complete"
    kept = run.path.with_suffix(".json")
    if kept.exists():
        found = Measured(**json.loads(kept.read_text()))
        if found.digest == run.digest:
            return found
    found = _measure(job, run)
    write(kept, asdict(found))
    return found


def _measure(job: Job, run: evolve.Run) -> Measured:
    stored = store.read(run.path)
    experiment = reload(stored)
    champion, _ = chosen_genome(experiment, stored)
    seeds = _seeds(run.seed, Purpose.HELD_OUT, 0, LIVES)
    lives = play(experiment, champion, seeds)
    config = experiment.config
    network = config.network.name
    off = OFF.get(network)
    curve = by_trial(config.env.id, dict(config.env.kwargs), lives).mean(axis=0)
    return Measured(
        seed=run.seed,
        digest=run.digest,
        mean=float(lives.returns[:100].mean()),
        long_mean=float(lives.returns.mean()),
        off=None if off is None else float(play(reload(stored, network=off), champion, seeds).returns.mean()),
        steps=stored.steps,
        seconds=sum(float(generation.record.seconds) for generation in run.generations),
        reached=_reached(job, stored, run) if lives.returns.mean() >= _NEAR * job.task.aim else None,
        curve=[float(value) for value in curve],
    )


def _reached(job: Job, stored: store.StoredRun, run: evolve.Run) -> tuple[int, float] | None:
    """Return the steps and seconds up to the first generation, of every fifth, whose best reaches the aim."""
    steps, seconds = 0, 0.0
    for number, record in enumerate(stored.records):
        steps += int(record.steps)
        seconds += float(record.seconds)
        if number % _EVERY == 0:
            best = Genomes(record.champion_weights[None], record.champion_mask[None])
            lives = play(run.experiment, best, _seeds(run.seed, Purpose.VALIDATION, number, _VALIDATION))
            if lives.returns.mean() >= job.task.aim:
                return steps, seconds
    return None


def _seeds(seed: int, purpose: Purpose, generation: int, episodes: int) -> NDArray[np.int64]:
    zeros = np.zeros(episodes, np.int64)
    return environment_seeds(seed, purpose, zeros + generation, zeros, np.arange(episodes))
