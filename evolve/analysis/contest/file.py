"""The results of a contest and their file: JSON that says of itself whether somebody has changed it."""

import hashlib
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from evolve.analysis.contest.work import LEGS, LEGS_OF_VERSION, SIZES, WALKER, known_digests
from evolve.errors import InputError
from evolve.store.disk import atomic_write, check_writable, naming_output

LEAST, MOST = 3, 8
"""Repeats."""
WITHIN = 0.035
"""How far the last three may lie apart, as a share of the shortest."""


VALIDATED, UNVERIFIED, DIFFERENT = "validated", "unverified", "different work"
_PRICE = re.compile(r"([^\d\s./-]{0,4})(\d{1,7}(?:\.\d{1,6})?)/h")
_LARGEST = 2**24  # bytes
_SIGNATURE = "signature"
STEPS = 228_539_753
"""Environment steps of these 200 generations in the size "large"."""
PUBLISHED = "3,491 s (24 cores), 6,666 s (64 vCPUs)"


def enough(seconds: Sequence[float]) -> bool:
    """Return whether no further repeat is needed: the last three agree, or there are as many as there may be."""
    return len(seconds) >= MOST or agree(seconds)


def agree(seconds: Sequence[float]) -> bool:
    """Return whether the last three repeats agree."""
    return len(seconds) >= LEAST and spread(seconds[-LEAST:]) <= WITHIN


def spread(seconds: Sequence[float]) -> float:
    """Return how far repeats lie apart, as a share of the shortest."""
    return max(seconds) / min(seconds) - 1


def score(seconds: Sequence[float]) -> float:
    """Return the seconds that count: the median of all repeats, none left out."""
    return statistics.median(seconds)


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


def signature(contents: dict[str, Any]) -> str:
    """Return 64 hexadecimal digits that stand for the contents of a file, but for its signature."""
    rest = {name: value for name, value in contents.items() if name != _SIGNATURE}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_new(path: Path) -> None:
    """Raise InputError unless a new file can be written there: none is ever replaced."""
    if path.exists():
        raise InputError.plainly(str(path), f"{path} already exists. Choose another name with -o.")
    check_writable(path, (".json",))


def write(found: ContestFile, path: Path) -> None:
    """Write a signed file. Raises InputError when that cannot be done."""
    check_new(path)
    contents = found.model_dump(mode="json")
    contents[_SIGNATURE] = signature(contents)
    text = json.dumps(contents, indent=1, ensure_ascii=False)
    with naming_output(path), atomic_write(path) as partial:
        partial.write_text(f"{text}\n", encoding="utf-8")


def read(path: Path) -> ContestFile:
    """Return the contents of a file.

    Files of earlier versions can be read: the legs that they have are played in this version, too.

    Raises:
        InputError: The file was edited, is of an unknown version, or is of other work.
    """
    contents = _contents(path)
    version = contents.get("contest")
    if version not in [*LEGS_OF_VERSION]:
        known = " or ".join(str(number) for number in LEGS_OF_VERSION)
        cure = "Run the contest again, or get another version of evolve."
        raise InputError(str(path), f"a file of contest {known}", f"one of contest {version!r}", cure)
    if contents.pop(_SIGNATURE, None) != signature(contents):
        raise InputError.plainly(
            str(path), f"{path} was edited: its signature does not match. Run the contest again, or get the original."
        )
    try:
        found = ContestFile.model_validate_json(json.dumps(contents))
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(str(part) for part in wrong["loc"])
        raise InputError(str(path), f"a contest file ({where}: {wrong['msg']})", "another one") from None
    _check(found, path)
    return found


def _contents(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError(str(path), "a contest file", f"{path.stat().st_size:,} bytes")
        contents = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), "a file that can be read", error.strerror or str(error)) from None
    except (ValueError, RecursionError):
        contents = None
    if not isinstance(contents, dict) or _SIGNATURE not in contents:
        raise InputError(str(path), "a JSON file that evolve contest wrote", "another one")
    return contents


def _check(found: ContestFile, path: Path) -> None:
    """Raise InputError for contents that no contest writes."""
    legs = set(LEGS_OF_VERSION[found.contest])
    whole = found.size in SIZES and found.rows and all(row.repeats and set(row.legs) == legs for row in found.rows)
    if not whole or any(row.workers < 1 or min(row.times) <= 0 for row in found.rows):
        raise InputError(str(path), "a whole contest", "parts of one")
    verdict, why = found.assess()
    if verdict == DIFFERENT:
        raise InputError(str(path), "the work of the contest", f"different work ({why})")


@dataclass(frozen=True)
class Benchmark2020:
    """The seconds of all generations, and whether they were played; else they follow from `timed` generations."""

    seconds: float
    timed: int
    played: bool

    def __str__(self) -> str:
        generations = LEGS[WALKER]["generations"]
        took = f"{generations} generations took {self.seconds:,.0f} s here"
        if not self.played:
            took = (
                f"{generations} generations would take about {self.seconds:,.0f} s here (an extrapolation from "
                f"{self.timed} generations, by steps)"
            )
        return f"walker, the benchmark of 2020: {took}; published in 2020: {PUBLISHED}"


def benchmark_2020(found: ContestFile, row: ContestRow) -> Benchmark2020 | None:
    """Return how long the whole benchmark takes by the workers of a row, from its seconds per environment step.

    The first generation is not timed, so that its steps are taken to be as fast as all others. Returns None where the
    leg was not played, or with another population.
    """
    leg = row.legs.get(WALKER)
    population, generations = SIZES[found.size].walker
    if leg is None or not leg.timed_steps or population != LEGS[WALKER]["population"]:
        return None
    played = generations == LEGS[WALKER]["generations"]
    seconds = score([repeat.legs[WALKER] for repeat in row.repeats])
    steps = leg.steps if played else STEPS
    return Benchmark2020(seconds / leg.timed_steps * steps, generations - 1, played)
