"""Playing a leg of the contest: what it came to, to the bit, and how long it took."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.cluster import Coordinator
from evolve.store import Header, HeldOut, Record
from evolve.training import Experiment, iterate

TAG = 8
"""Hexadecimal digits that stand for a candidate in a generation: half of them for its genome, half for its episodes."""


@dataclass(frozen=True)
class PlayedLeg:
    """What a leg came to.

    Attributes:
        marks: [G] of 64 hexadecimal digits, each of which stands for every bit of all generations up to its own.
        tags: [G] of TAG digits for each candidate; none unless they were asked for.
        seconds: How long all generations but the first took: in that one ranks make what they need.
        busy_seconds: How long those that play were at work in these, all together.
        timed_steps: Of the environment, in these.
        steps: Of the environment, in all generations.
        episodes: Likewise.
    """

    marks: tuple[str, ...]
    tags: tuple[str, ...]
    seconds: float
    busy_seconds: float
    timed_steps: int
    steps: int
    episodes: int

    @property
    def digest(self) -> str:
        """What stands for all of it."""
        return self.marks[-1]


def play(experiment: Experiment, coordinator: Coordinator, seed: int, tagged: bool = False) -> PlayedLeg:
    """Play a leg from its first generation to the last.

    Args:
        experiment: See `contest_work`.
        coordinator: Who has its episodes played.
        seed: Of the run.
        tagged: Whether candidates get tags, so that it can be said which of them differs.

    Raises:
        Stopped: It was asked to stop.
        RunError: A rank cannot go on.
    """
    marks: list[str] = []
    tags: list[str] = []
    timed_steps = steps = episodes = 0
    busy = begin = 0.0
    for record in iterate(experiment, coordinator, _Memory(experiment, seed)):
        if marks:
            timed_steps += record.steps
            busy += float(record.busy_seconds[1 if coordinator.workers else 0 :].sum())
        else:
            begin = time.perf_counter()
        marks.append(_mark(marks[-1] if marks else "", record))
        steps += record.steps
        episodes += record.lengths.size
        if tagged:
            tags.append(_tags(record))
    seconds = time.perf_counter() - begin
    return PlayedLeg(tuple(marks), tuple(tags), seconds, busy, timed_steps, steps, episodes)


def _bits(record: Record) -> tuple[bytes, ...]:
    """Return what a generation's digest leaves out: of all that networks saw and did, and of the genomes."""
    return record.digest, record.fingerprints.tobytes(), record.genome_fingerprints.tobytes()


def _mark(previous: str, record: Record) -> str:
    return hashlib.sha256(previous.encode() + b"".join(_bits(record))).hexdigest()


def _tags(record: Record) -> str:
    """Return TAG digits for each candidate."""
    genomes = [_short(genome) for genome in record.genome_fingerprints]
    parts = (record.returns, record.lengths, record.fingerprints)
    played = [_short(*(part[candidate] for part in parts)) for candidate in range(len(genomes))]
    return "".join(genome + episodes for genome, episodes in zip(genomes, played, strict=True))


def _short(*parts: NDArray[Any] | np.generic) -> str:
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[: TAG // 2]


class _Memory:
    """Takes the place of a run file, so that no disk takes part."""

    def __init__(self, experiment: Experiment, seed: int) -> None:
        config = experiment.config
        self.header = Header(config.to_toml(), {}, seed, config.env.id)
        self.path = Path("contest")
        self.checkpoint: Mapping[str, NDArray[Any]] = {}
        self.num_generations = 0
        self.steps = 0
        self.last: Record | None = None
        self.held_out: HeldOut | None = None
        self.complete = False

    def append(self, record: Record, checkpoint: Mapping[str, NDArray[Any]], *_: Any, **__: Any) -> None:
        """Add a generation."""
        self.num_generations += 1
        self.steps += record.steps
        self.checkpoint = checkpoint
        self.last = record

    def flush_if_due(self) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""
