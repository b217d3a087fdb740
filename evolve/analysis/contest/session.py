"""A row of the contest from beginning to end: the known short run, then repeats until their times agree.

`python benchmarks/contest.py --golden` makes golden.json anew when the work of the contest has another version.
"""

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.analysis.contest.file import ContestRow, LegDigest, Repeat, enough, leg_difference
from evolve.analysis.contest.work import LEGS, SIZES, VERSION, ContestSize, definition, golden, known, scored
from evolve.cluster import Coordinator, Transport
from evolve.errors import RunError
from evolve.numerics.device import device
from evolve.store import Header, HeldOut, Record
from evolve.training import Experiment, iterate, make_rollout

_IDLE = (3, 4)  # idle, and waiting for a disk
_STOLEN = 7
_COUNTED = 8  # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already


TAG = 8
"""Hexadecimal digits that stand for a candidate in a generation: half of them for its genome, half for its episodes."""
_MOST_MARKS = 32
_MARK = 16  # hexadecimal digits


def load_averages() -> tuple[float, ...]:
    """Return the load averages over 1, 5 and 15 minutes; none where the system does not say."""
    try:
        return tuple(round(load, 2) for load in os.getloadavg())
    except OSError:
        return ()


class LoadMeter:
    """Counts from its making on how many cores of this machine are busy, and how many are stolen."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._before = _ticks()

    def cores(self) -> tuple[float, float] | tuple[None, None]:
        """Return how many cores were busy in the mean, and how many others had taken; None where nobody says."""
        after = _ticks()
        seconds = time.monotonic() - self._begin
        if self._before is None or after is None or seconds <= 0:
            return None, None
        spent = [(b - a) / os.sysconf("SC_CLK_TCK") / seconds for a, b in zip(self._before, after, strict=True)]
        stolen = spent[_STOLEN]
        busy = sum(share for n, share in enumerate(spent) if n not in (*_IDLE, _STOLEN))
        return round(busy, 2), round(stolen, 2)


def _ticks() -> list[int] | None:
    """Return what all cores together have spent with each kind of work."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0]
        counted = [int(number) for number in first.split()[1 : 1 + _COUNTED]]
    except (OSError, ValueError):
        return None
    return counted if len(counted) == _COUNTED else None


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
        experiment: See `work`.
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


def play_known(size: ContestSize, coordinator: Coordinator, backend: str) -> dict[str, PlayedLeg]:
    """Play the short run of every leg. Raises Stopped and RunError."""
    return {leg: play(known(leg, backend), coordinator, size.known_seed, tagged=True) for leg in LEGS}


def difference(size: str, played: Mapping[str, PlayedLeg]) -> str:
    """Return the first difference from what is known, in words; "" where there is none."""
    for leg, expected in golden()["sizes"][size].items():
        if played[leg].digest != expected["digest"]:
            return f"{leg}, {_where(expected['tags'], played[leg].tags)}"
    return ""


def _where(expected: list[str], came: tuple[str, ...]) -> str:
    for generation, (ours, theirs) in enumerate(zip(expected, came, strict=True)):
        for candidate in range(len(ours) // TAG):
            a, b = (tags[candidate * TAG : (candidate + 1) * TAG] for tags in (ours, theirs))
            if a != b:
                half = TAG // 2
                what = "another genome" if a[:half] != b[:half] else "other episodes of the same genome"
                return f"generation {generation}, candidate {candidate}: {what}"
    return "in what its candidates' short digests do not show"


def make() -> dict[str, Any]:
    """Return what golden.json is to hold, played here by arrays, which define all others."""
    coordinator = Coordinator(Transport(), make_rollout)
    sizes: dict[str, Any] = {}
    for size in SIZES.values():
        played = play_known(size, coordinator, "numpy")
        sizes[size.name] = {leg: {"digest": found.digest, "tags": found.tags} for leg, found in played.items()}
    return {"contest": VERSION, "definition": definition(), "sizes": sizes}


Say = Callable[[str], None]


class DifferentWorkError(RunError):
    """This machine, or this build, plays something else than the contest; the message says where it differs first."""


def validate(coordinator: Coordinator, size: ContestSize, backend: str) -> dict[str, str]:
    """Play the run whose digest is known; return the digests by leg. Raises DifferentWorkError for others."""
    played = play_known(size, coordinator, backend)
    found = difference(size.name, played)
    if found:
        raise DifferentWorkError(f"different work: {found} than the known ones of contest size {size.name}.")
    return {leg: result.digest for leg, result in played.items()}


def measure(
    coordinator: Coordinator, transport: Transport, size: ContestSize, backend: str, looking: bool, say: Say
) -> ContestRow:
    """Return the row of the ranks that there are.

    Args:
        coordinator: Who has episodes played.
        transport: To the workers, if there are any.
        size: What is played.
        backend: By which kernels.
        looking: Whether the known run is played; else one that is as short warms up, and nobody looks.
        say: Called with what goes on.

    Raises:
        DifferentWorkError: The known run, or a repeat, differs.
        Stopped: It was asked to stop.
        RunError: A rank cannot go on.
    """
    digests: dict[str, str] = {}
    if looking:
        digests = validate(coordinator, size, backend)
        say("the known run: validated")
    else:
        for leg in LEGS:
            play(known(leg, backend), coordinator, size.seed)
    legs: dict[str, LegDigest] = {}
    repeats: list[Repeat] = []
    while not enough([repeat.seconds for repeat in repeats]):
        repeat, came = _repeat(coordinator, size, backend, legs)
        legs = legs or came
        repeats.append(repeat)
        passes = f" ({repeat.passes} passes)" if repeat.passes > 1 else ""
        say(f"repeat {len(repeats)}: {repeat.seconds:.4g} s{passes}")
    return ContestRow(
        workers=max(1, transport.size - 1),
        hosts=tuple(Counter(transport.hosts).values()),
        mpi=transport.library,
        backend=backend,
        device=_device(backend),
        known=digests,
        legs=legs,
        repeats=tuple(repeats),
    )


def _repeat(
    coordinator: Coordinator, size: ContestSize, backend: str, expected: Mapping[str, LegDigest]
) -> tuple[Repeat, dict[str, LegDigest]]:
    """Play passes until they have lasted long enough; return the repeat, and what the legs came to."""
    meter = LoadMeter()
    seconds = dict.fromkeys(LEGS, 0.0)
    busy, passes = 0.0, 0
    came: dict[str, LegDigest] = dict(expected)
    while not passes or sum(seconds.values()) < size.least_seconds:
        played = {leg: play(scored(leg, size, backend), coordinator, size.seed) for leg in LEGS}
        passes += 1
        for leg, result in played.items():
            seconds[leg] += result.seconds
            busy += result.busy_seconds
        now = {leg: _digest_of(result) for leg, result in played.items()}
        came = came or now
        found = leg_difference(came, now)
        if found:
            raise DifferentWorkError(f"different work: {found} is not the same in each repeat.")
    total = sum(seconds.values())
    machine_busy, stolen = meter.cores()
    load = load_averages()
    repeat = Repeat(
        seconds=total / passes,
        passes=passes,
        legs={leg: spent / passes for leg, spent in seconds.items()},
        playing=round(busy / total, 3),
        machine_busy=machine_busy,
        stolen=stolen,
        load=load[0] if load else None,
    )
    return repeat, came


def _digest_of(played: PlayedLeg) -> LegDigest:
    every = -(-len(played.marks) // _MOST_MARKS)
    last = len(played.marks) - 1
    ends = [*range(every - 1, last, every), last]
    marks = tuple(played.marks[end][:_MARK] for end in ends)
    return LegDigest(
        digest=played.digest,
        marks=marks,
        every=every,
        steps=played.steps,
        timed_steps=played.timed_steps,
        episodes=played.episodes,
    )


def _device(backend: str) -> str:
    return device().name if backend == "cupy" else ""
