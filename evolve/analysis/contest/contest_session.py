"""A row of the contest from beginning to end: the known run, then repeats until their times agree."""

from collections import Counter
from collections.abc import Callable, Mapping

from evolve.analysis.contest.contest_play import PlayedLeg, play
from evolve.analysis.contest.contest_result import ContestRow, LegDigest, Repeat, leg_difference
from evolve.analysis.contest.contest_work import LEGS, ContestSize, known, scored
from evolve.analysis.contest.golden import difference, play_known
from evolve.analysis.contest.repeat_load import LoadMeter, load_averages
from evolve.analysis.contest.repeats import enough
from evolve.cluster import Coordinator, Transport
from evolve.errors import RunError
from evolve.numerics.device import device

_MOST_MARKS = 32
_MARK = 16  # hexadecimal digits

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
