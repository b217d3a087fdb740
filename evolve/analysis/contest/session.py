"""Plays the contest on the ranks of this job, for one row of its table.

First the short run of each leg is compared with its known digest in golden.json. Then the runs for the score are
repeated and timed, until the times agree or `most_repeats` are done. A repeat consists of one or more passes, and a
pass plays all legs once.
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

TAG = 8
"""Hexadecimal digits of a candidate's tag in a generation: half of them identify its genome, half its episodes."""
_MOST_MARKS = 32  # of a leg in a file
_MARK_DIGITS = 16  # hexadecimal digits of a mark in a file

Say = Callable[[str], None]


class DifferentWorkError(RunError):
    """The results of this machine or this build are wrong. The message names the first difference."""


@dataclass(frozen=True)
class PlayedLeg:
    """The result of playing a leg. The first generation is not timed, because ranks initialize in it.

    Attributes:
        work: The digest and the amount of work, as in the file.
        tags: [G], TAG digits for each candidate; empty unless they were asked for.
        seconds: The wall time of all timed generations.
        busy_seconds: The busy time in the timed generations, summed over the ranks that play episodes.
    """

    work: results.LegDigest
    tags: tuple[str, ...]
    seconds: float
    busy_seconds: float


def play(experiment: Experiment, coordinator: Coordinator, seed: int, tagged: bool = False) -> PlayedLeg:
    """Play a leg from its first generation to the last. Raises Stopped, and RunError if a rank cannot go on.

    experiment: The experiment of the leg, from `contest.known_experiment` or `contest.scored_experiment`.
    tagged: Whether to compute the tags by which `difference` finds the first candidate that differs.
    """
    marks: list[str] = []  # running digests: mark g identifies every bit of generations 0 to g
    tags: list[str] = []
    timed_steps = steps = episodes = 0
    busy = begin = 0.0
    config = experiment.config
    # The records go to memory, so that no disk affects the times.
    log = RunLog(Path("contest"), Header(config.to_toml(), {}, seed, config.env.id))
    for record in iterate(experiment, coordinator, log):
        if marks:  # the first generation is not timed
            timed_steps += record.steps
            # If there are workers, rank 0 only coordinates.
            busy += float(record.busy_seconds[1 if coordinator.workers else 0 :].sum())
        else:
            begin = time.perf_counter()
        marks.append(_mark(marks[-1] if marks else "", record))
        steps += record.steps
        episodes += record.lengths.size
        if tagged:
            tags.append(_tags(record))
    seconds = time.perf_counter() - begin
    # The file has a mark after every `every` generations and at the end.
    every, last = math.ceil(len(marks) / _MOST_MARKS), len(marks) - 1
    marked = [*range(every - 1, last, every), last]
    kept = tuple(marks[generation][:_MARK_DIGITS] for generation in marked)
    work = results.LegDigest(
        digest=marks[-1], marks=kept, every=every, steps=steps, timed_steps=timed_steps, episodes=episodes
    )
    return PlayedLeg(work, tuple(tags), seconds, busy)


def _mark(previous: str, record: Record) -> str:
    # The mark includes the fingerprints, which the digest of a generation does not cover.
    parts = previous.encode(), record.digest, record.fingerprints.tobytes(), record.genome_fingerprints.tobytes()
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _tags(record: Record) -> str:
    """Return TAG digits for each candidate, joined."""
    rows = zip(record.genome_fingerprints, record.returns, record.lengths, record.fingerprints, strict=True)
    return "".join(_half_tag(genome) + _half_tag(*episodes) for genome, *episodes in rows)


def _half_tag(*parts: NDArray[Any] | np.generic) -> str:
    """Return TAG / 2 digits that identify arrays."""
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[: TAG // 2]


def play_known(size: ContestSize, coordinator: Coordinator, backend: str) -> dict[str, PlayedLeg]:
    """Play the short run of every leg, whose digest is known. Raises Stopped and RunError."""
    known = {leg: contest.known_experiment(leg, backend) for leg in contest.LEGS}
    return {leg: play(run, coordinator, size.known_seed, tagged=True) for leg, run in known.items()}


def difference(size: str, played: Mapping[str, PlayedLeg]) -> str:
    """Return the first difference from the known runs in words; "" without a difference."""
    for leg, expected in contest.golden()["sizes"][size].items():
        if played[leg].work.digest != expected["digest"]:
            return f"{leg}, {_place_of_difference(expected['tags'], played[leg].tags)}"
    return ""


def _place_of_difference(expected: list[str], got: tuple[str, ...]) -> str:
    """Return the first generation and candidate with another tag, in words."""
    for generation, (right_tags, tags) in enumerate(zip(expected, got, strict=True)):
        # The text has TAG digits for each candidate, in the order of the candidates.
        for at in range(0, len(right_tags), TAG):
            right, tag = right_tags[at : at + TAG], tags[at : at + TAG]
            if right != tag:
                half = TAG // 2
                what = "another genome" if right[:half] != tag[:half] else "other episodes of the same genome"
                return f"generation {generation}, candidate {at // TAG}: {what}"
    return "other digests, although the tags of all candidates are equal"


def validate(coordinator: Coordinator, size: ContestSize, backend: str) -> dict[str, str]:
    """Play the known runs; return their digests by leg. Raises DifferentWorkError if a digest differs."""
    played = play_known(size, coordinator, backend)
    if found := difference(size.name, played):
        raise DifferentWorkError(f"different work: {found}, compared with the known run of contest size {size.name}.")
    return {leg: result.work.digest for leg, result in played.items()}


def measure(
    coordinator: Coordinator, transport: Transport, size: ContestSize, backend: str, check_known: bool, say: Say
) -> results.ContestRow:
    """Play the contest on the ranks of this job; return its row.

    check_known: Whether to compare the short runs with their known digests. If not, they only warm up the ranks.
    say: Called with messages about the progress.

    Raises DifferentWorkError if a known run or a repeat differs, Stopped, and RunError if a rank cannot go on.
    """
    # The known run comes first, because a row with different work is not timed.
    digests: dict[str, str] = {}
    if check_known:
        digests = validate(coordinator, size, backend)
        say("the known run: validated")
    else:
        for leg in contest.LEGS:
            play(contest.known_experiment(leg, backend), coordinator, size.seed)
    # The timed repeats. Each must have the digests of the first one.
    legs: dict[str, results.LegDigest] = {}
    repeats: list[results.Repeat] = []
    while not results.enough([repeat.seconds for repeat in repeats], size.most_repeats):
        repeat, legs = _repeat(coordinator, size, backend, legs)
        repeats.append(repeat)
        passes = f" ({repeat.passes} passes)" if repeat.passes > 1 else ""
        say(f"repeat {len(repeats)}: {repeat.seconds:.4g} s{passes}")
    # Of several ranks, rank 0 only coordinates. The file counts the hosts, and does not name them.
    return results.ContestRow(
        workers=max(1, transport.size - 1),
        hosts=tuple(Counter(transport.hosts).values()),
        mpi=transport.library,
        backend=backend,
        device=device().name if backend == "cupy" else "",
        known=digests,
        legs=legs,
        repeats=tuple(repeats),
    )


def _repeat(
    coordinator: Coordinator, size: ContestSize, backend: str, expected: Mapping[str, results.LegDigest]
) -> tuple[results.Repeat, dict[str, results.LegDigest]]:
    """Play passes for at least `size.least_seconds`; return the repeat, and the digests of the legs by name.

    expected: The digests of an earlier repeat; empty in the first repeat.
    """
    meter = LoadMeter()
    seconds = dict.fromkeys(contest.LEGS, 0.0)
    busy, passes = 0.0, 0
    digests: dict[str, results.LegDigest] = dict(expected)
    # The time of a short pass is uncertain, so short passes are repeated.
    while not passes or sum(seconds.values()) < size.least_seconds:
        of_this_pass = {}
        for leg in contest.LEGS:
            played = play(contest.scored_experiment(leg, size, backend), coordinator, size.seed)
            of_this_pass[leg] = played.work
            seconds[leg] += played.seconds
            busy += played.busy_seconds
        passes += 1
        # All passes must have the digests of the first pass of the first repeat.
        digests = digests or of_this_pass
        if found := results.leg_difference(digests, of_this_pass):
            raise DifferentWorkError(f"different work: {found} is not the same in each repeat.")
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
    return repeat, digests
