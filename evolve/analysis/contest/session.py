"""Plays the contest on the ranks of this job, and returns one row of the contest file.

First the known run of each leg is played, and its digest is compared with golden.json. Then repeats are timed until
their times agree, or `ContestSize.most_repeats` are done. A repeat consists of one or more passes, and a pass plays all
legs once.
"""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.analysis import contest
from evolve.analysis.contest import ContestSize, results
from evolve.cluster import Coordinator, Transport
from evolve.errors import RunError
from evolve.numerics.device import device
from evolve.store import Header, Record, RunLog
from evolve.training import Experiment, iterate
from evolve.training.manifest import LoadMeter, load_averages

TAG_DIGITS = 8
"""Hexadecimal digits of a candidate's tag in a generation: one half identifies its genome, the other its episodes."""
_MOST_MARKS = 32  # of a leg in a file
_MARK_DIGITS = 16  # hexadecimal digits of a mark in a file

Say = Callable[[str], None]
"""A function that shows a message to the user."""


class DifferentWorkError(RunError):
    """A digest is not the expected one: this machine or this build computes wrongly. The message names the place."""


@dataclass(frozen=True)
class PlayedLeg:
    """The result of playing a leg. The first generation is not timed, because ranks initialize in it.

    Attributes:
        work: The digests and the amount of work, as in the contest file.
        tags: [G], a text for each generation with `TAG_DIGITS` digits for each candidate. Empty unless `play` was
            called with `tagged`.
        seconds: The wall time of all timed generations together.
        busy_seconds: The busy time in the timed generations, summed over the ranks that play episodes.
    """

    work: results.LegDigest
    tags: tuple[str, ...]
    seconds: float
    busy_seconds: float


def play(experiment: Experiment, coordinator: Coordinator, seed: int, tagged: bool = False) -> PlayedLeg:
    """Play a leg from its first generation to the last. Raises Stopped, and RunError if a rank cannot go on.

    experiment: The experiment of the leg: `contest.known_experiment` or `contest.timed_experiment`.
    tagged: Whether to compute the tags by which `difference` finds the first candidate that differs.
    """
    marks: list[str] = []  # running digests: marks[g] identifies every bit of generations 0 to g
    tags: list[str] = []
    timed_steps = steps = episodes = 0
    busy = begin = 0.0
    config = experiment.config
    # The records go to memory, so that no disk affects the times.
    log = RunLog(Path("contest"), Header(config.to_toml(), {}, seed, config.env.id))
    for record in iterate(experiment, coordinator, log):
        if not marks:  # the clock starts when the first generation has ended
            begin = time.perf_counter()
        else:
            timed_steps += record.steps
            first_player = 1 if coordinator.workers else 0  # if there are workers, rank 0 only coordinates
            busy += float(record.busy_seconds[first_player:].sum())
        marks.append(_mark(marks[-1] if marks else "", record))
        steps += record.steps
        episodes += record.lengths.size
        if tagged:
            tags.append(_tags(record))
    seconds = time.perf_counter() - begin
    # The file has the marks of the generations `every` - 1, 2 · `every` - 1, …, and of the last generation.
    every, last = math.ceil(len(marks) / _MOST_MARKS), len(marks) - 1
    stored = tuple(marks[generation][:_MARK_DIGITS] for generation in [*range(every - 1, last, every), last])
    work = results.LegDigest(
        digest=marks[-1], marks=stored, every=every, steps=steps, timed_steps=timed_steps, episodes=episodes
    )
    return PlayedLeg(work, tuple(tags), seconds, busy)


def _mark(previous: str, record: Record) -> str:
    """Return the running digest after a generation. previous: The running digest before it."""
    # The digest of a generation does not cover the fingerprints, so the mark includes them.
    parts = previous.encode(), record.digest, record.fingerprints.tobytes(), record.genome_fingerprints.tobytes()
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _tags(record: Record) -> str:
    """Return the tags of all candidates of a generation, joined."""
    candidates = zip(record.genome_fingerprints, record.returns, record.lengths, record.fingerprints, strict=True)
    return "".join(_half_tag(genome) + _half_tag(*episodes) for genome, *episodes in candidates)


def _half_tag(*parts: NDArray[Any] | np.generic) -> str:
    """Return `TAG_DIGITS` / 2 digits that identify arrays."""
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[: TAG_DIGITS // 2]


def play_known(size: ContestSize, coordinator: Coordinator, backend: str) -> dict[str, PlayedLeg]:
    """Play the known run of each leg, with tags. Raises Stopped, and RunError if a rank cannot go on."""
    experiments = {leg: contest.known_experiment(leg, backend) for leg in contest.LEGS}
    return {leg: play(known, coordinator, size.known_seed, tagged=True) for leg, known in experiments.items()}


def difference(size: str, played: Mapping[str, PlayedLeg]) -> str:
    """Return the first difference between played known runs and `golden.json`, in words; "" without a difference."""
    for leg, expected in contest.golden()["sizes"][size].items():
        if played[leg].work.digest != expected["digest"]:
            return f"{leg}, {_place_of_difference(expected['tags'], played[leg].tags)}"
    return ""


def _place_of_difference(expected: list[str], played: tuple[str, ...]) -> str:
    """Return the first generation and candidate whose tags differ, in words. Both arguments: tags [G] of one leg."""
    half = TAG_DIGITS // 2
    for generation, (expected_tags, tags) in enumerate(zip(expected, played, strict=True)):
        for candidate in range(len(expected_tags) // TAG_DIGITS):
            digits = slice(candidate * TAG_DIGITS, (candidate + 1) * TAG_DIGITS)
            expected_tag, tag = expected_tags[digits], tags[digits]
            if expected_tag != tag:
                is_genome = expected_tag[:half] != tag[:half]
                what = "another genome" if is_genome else "other episodes of the same genome"
                return f"generation {generation}, candidate {candidate}: {what}"
    return "other digests, although the tags of all candidates are equal"


def validate(coordinator: Coordinator, size: ContestSize, backend: str) -> dict[str, str]:
    """Play the known runs; return their digests by leg. Raises DifferentWorkError if a digest differs."""
    played = play_known(size, coordinator, backend)
    if place := difference(size.name, played):
        raise DifferentWorkError(f"different work: {place}, compared with the known run of contest size {size.name}.")
    return {leg: result.work.digest for leg, result in played.items()}


def measure(
    coordinator: Coordinator, transport: Transport, size: ContestSize, backend: str, check_known: bool, say: Say
) -> results.ContestRow:
    """Play the contest on the ranks of this job; return its row.

    check_known: Whether to compare the known runs with their digests. Otherwise known runs only warm up the ranks.
    say: Called with messages about the progress.

    Raises DifferentWorkError if a known run or a repeat differs, Stopped, and RunError if a rank cannot go on.
    """
    # The known runs come first, because work that differs need not be timed.
    known: dict[str, str] = {}
    if check_known:
        known = validate(coordinator, size, backend)
        say("the known runs: validated")
    else:
        for leg in contest.LEGS:
            play(contest.known_experiment(leg, backend), coordinator, size.seed)
    # Play the timed repeats. Each must have the digests of the first one.
    legs: Mapping[str, results.LegDigest] = {}
    repeats: list[results.Repeat] = []
    while not results.repeats_suffice([repeat.seconds for repeat in repeats], size.most_repeats):
        repeat, legs = _play_repeat(coordinator, size, backend, legs)
        repeats.append(repeat)
        passes = f" ({repeat.passes} passes)" if repeat.passes > 1 else ""
        say(f"repeat {len(repeats)}: {repeat.seconds:.4g} s{passes}")
    # Of several ranks, rank 0 only coordinates. The file has no names of hosts, only their numbers of ranks.
    return results.ContestRow(
        workers=max(1, transport.size - 1),
        hosts=tuple(Counter(transport.hosts).values()),
        mpi=transport.library,
        backend=backend,
        device=device().name if backend == "cupy" else "",
        known=known,
        legs=dict(legs),
        repeats=tuple(repeats),
    )


def _play_repeat(
    coordinator: Coordinator, size: ContestSize, backend: str, expected: Mapping[str, results.LegDigest]
) -> tuple[results.Repeat, Mapping[str, results.LegDigest]]:
    """Play passes for at least `size.least_seconds`; return the repeat, and the work of each leg.

    expected: The work of each leg in an earlier repeat; empty in the first repeat.
    """
    meter = LoadMeter()
    seconds = dict.fromkeys(contest.LEGS, 0.0)
    busy, passes = 0.0, 0
    # The time of a short pass is uncertain, so a repeat has several short passes.
    while not passes or sum(seconds.values()) < size.least_seconds:
        work: dict[str, results.LegDigest] = {}
        for leg in contest.LEGS:
            played = play(contest.timed_experiment(leg, size, backend), coordinator, size.seed)
            work[leg] = played.work
            seconds[leg] += played.seconds
            busy += played.busy_seconds
        passes += 1
        # The first pass of the first repeat has nothing to be compared with. All other passes must equal it.
        if not expected:
            expected = work
        if place := results.leg_difference(expected, work):
            raise DifferentWorkError(f"different work: {place} is not the same in each repeat.")
    total = sum(seconds.values())
    machine_busy, stolen = meter.cores()
    load = load_averages()
    repeat = results.Repeat(
        seconds=total / passes,
        passes=passes,
        legs={leg: spent / passes for leg, spent in seconds.items()},
        playing=round(busy / total, 3),
        machine_busy=machine_busy,
        stolen=stolen,
        load=load[0] if load else None,
    )
    return repeat, expected
