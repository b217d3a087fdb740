"""What a contest has found on one machine, as it stands in a file; and what is to be thought of it."""

import re
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from evolve.analysis.contest.golden import known_digests
from evolve.analysis.contest.repeats import agree, score, spread
from evolve.errors import InputError

VALIDATED, UNVERIFIED, DIFFERENT = "validated", "unverified", "different work"
_PRICE = re.compile(r"([^\d\s./-]{0,4})(\d{1,7}(?:\.\d{1,6})?)/h")


class StoredPart(BaseModel):
    """Base of all that a file holds: frozen, and nothing unknown in it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class LegDigest(StoredPart):
    """What a leg of the score came to.

    digest: stands for every bit of it.
    marks: the first digits of the digests after some of its generations, the last one included.
    every: how many generations lie between two marks.
    steps: of the environment.
    timed_steps: of these, the steps after the first generation, which is not timed; None in files of version 1.
    episodes: how many.
    """

    digest: str
    marks: tuple[str, ...]
    every: int
    steps: int
    timed_steps: int | None = None
    episodes: int


class Repeat(StoredPart):
    """One timed repeat.

    seconds: of one pass of all legs, in the mean.
    passes: how many there were.
    legs: the seconds of each leg in one pass, in the mean.
    playing: how many cores' time those that play were at work, in the mean.
    machine_busy: how many cores of rank 0's host were busy, whoever with, in the mean.
    stolen: how many of these cores' time the host of this virtual machine took for others.
    load: the load average at the end.
    """

    seconds: float
    passes: int
    legs: dict[str, float]
    playing: float
    machine_busy: float | None = None
    stolen: float | None = None
    load: float | None = None


class ContestRow(StoredPart):
    """What some workers, or a device, have shown.

    workers: how many processes played.
    hosts: how many ranks each host has, hosts in the order of their first rank; no host is named.
    mpi: by which MPI the ranks talk.
    backend: by which kernels.
    device: the GPU, "" for none.
    known: the digests of the short run whose digest is known; none where it was left out.
    legs: what the score came to.
    repeats: all of them.
    """

    workers: int
    hosts: tuple[int, ...]
    mpi: str
    backend: str
    device: str
    known: dict[str, str]
    legs: dict[str, LegDigest]
    repeats: tuple[Repeat, ...]

    @property
    def times(self) -> list[float]:
        """Seconds of each repeat."""
        return [repeat.seconds for repeat in self.repeats]

    @property
    def seconds(self) -> float:
        """The score."""
        return score(self.times)

    @property
    def spread(self) -> float:
        """How far all repeats lie apart, as a share of the shortest."""
        return spread(self.times)

    @property
    def agrees(self) -> bool:
        """Whether the last repeats agree, as they have to unless there were as many as there may be."""
        return agree(self.times)

    @property
    def title(self) -> str:
        """Who played, in words."""
        if self.device and self.workers == 1:
            return self.device
        where = f" on {len(self.hosts)} hosts" if len(self.hosts) > 1 else ""
        who = f"{self.workers} worker{'s' * (self.workers > 1)}{where}"
        return f"{self.device}, {who}" if self.device else who


class Price(StoredPart):
    """What an hour of the machine costs. currency: "" where none was named."""

    currency: str
    hour: float

    def of(self, seconds: float) -> float:
        """Return the price of some seconds."""
        return self.hour * seconds / 3600


class ContestFile(StoredPart):
    """What a contest has found on one machine.

    contest: the version of the work.
    size: of the contest.
    name: what the machine is called.
    date: when it ended, in UTC.
    verdict: what is to be thought of it; whoever reads it looks again.
    line: all of it in one line.
    price: of an hour, if it was given.
    load_before: the load averages over 1, 5 and 15 minutes before it began.
    system: the machine and its software.
    rows: what was measured.
    """

    contest: int
    size: str
    name: str
    date: str
    verdict: str
    line: str
    price: Price | None
    load_before: tuple[float, ...]
    system: dict[str, str | int | float | None]
    rows: tuple[ContestRow, ...]

    @property
    def best(self) -> ContestRow:
        """The row of the shortest time."""
        return min(self.rows, key=lambda row: row.seconds)

    @property
    def legs(self) -> Mapping[str, LegDigest]:
        """What the score came to."""
        return self.rows[0].legs

    def assess(self) -> tuple[str, str]:
        """Return the verdict, and why; "" for none that needs words."""
        for row in self.rows:
            found = leg_difference(self.legs, row.legs)
            if found:
                return DIFFERENT, f"{row.title} against {self.rows[0].title}: {found}"
            if row.known and row.known != known_digests(self.size, self.contest):
                return DIFFERENT, f"{row.title}: not the known digests"
        missing = [row.title for row in self.rows if not row.known]
        return (UNVERIFIED, f"nobody looked with {missing[0]}") if missing else (VALIDATED, "")


def leg_difference(ours: Mapping[str, LegDigest], theirs: Mapping[str, LegDigest]) -> str:
    """Return where two scores differ first, in words; "" where they are equal."""
    for leg, one in ours.items():
        other = theirs.get(leg)
        if other is None:
            return f"{leg} is missing"
        if one.digest != other.digest:
            place = next((n for n, (a, b) in enumerate(zip(one.marks, other.marks, strict=False)) if a != b), None)
            if place is None:
                return f"{leg}, after its last mark"
            first, last = place * one.every, (place + 1) * one.every - 1
            if first == last:
                return f"{leg}, generation {first}"
            is_last = place + 1 == len(one.marks)  # which stands for as many as are left
            return f"{leg}, generation {first} or later" if is_last else f"{leg}, generations {first} to {last}"
    return ""


def read_price(text: str) -> Price:
    """Return a price such as "1.28/h" or "$1.28/h". Raises InputError for another text."""
    found = _PRICE.fullmatch(text)
    if found is None:
        raise InputError("--price", 'a price of an hour, such as "1.28/h" or "$1.28/h"', text)
    return Price(currency=found[1], hour=float(found[2]))
