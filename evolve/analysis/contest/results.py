"""The contest file: the results of one machine, as JSON with a signature, a checksum that reveals any edit.

A `ContestFile` has a `ContestRow` for each measured number of workers, and for a GPU. A row has several `Repeat`s, each
with one or more timed passes. A pass plays all legs once, see `evolve.analysis.contest`.
"""

import hashlib
import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evolve.analysis import contest
from evolve.config.options import explain
from evolve.errors import InputError, pluralize
from evolve.store import disk

MIN_REPEATS = 3
"""The repeats end when the last three agree, or when there are `ContestSize.most_repeats`."""
MAX_SPREAD = 0.035
"""The last three repeats agree if their spread is at most this, see `spread`."""
VALIDATED, UNVERIFIED, DIFFERENT = "validated", "unverified", "different work"
"""The verdicts, see `ContestFile.assess`."""
_PRICE = re.compile(r"([^\d\s./-]{0,4})(\d{1,7}(?:\.\d{1,6})?)/h")  # a currency, and a number per hour
_MAX_BYTES = 2**24  # of a file; a contest file is much smaller
_SIGNATURE = "signature"


def repeats_suffice(seconds: Sequence[float], most_repeats: int) -> bool:
    """Return whether repeats with these times suffice: the last three agree, or no more repeats are allowed."""
    return len(seconds) >= most_repeats or repeats_agree(seconds)


def repeats_agree(seconds: Sequence[float]) -> bool:
    """Return whether the times of the last three repeats agree."""
    return len(seconds) >= MIN_REPEATS and spread(seconds[-MIN_REPEATS:]) <= MAX_SPREAD


def spread(seconds: Sequence[float]) -> float:
    """Return the difference between the longest and the shortest of some times, as a share of the shortest."""
    return max(seconds) / min(seconds) - 1


def score(seconds: Sequence[float]) -> float:
    """Return the median of the times of all repeats, the score."""
    return statistics.median(seconds)


class StoredPart(BaseModel):
    """Base of all parts of a file: immutable. Unknown fields, NaN and infinity are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class LegDigest(StoredPart):
    """The amount of work in a leg, and digests that identify it.

    digest: identifies every bit of the leg.
    marks: the first digits of the running digest after `every` generations, 2 · `every` generations, and so on, and
        after the last generation.
    every: the number of generations from one mark to the next. The last mark may follow after fewer generations.
    steps: the number of environment steps.
    timed_steps: the steps without the first generation, which is not timed; None in files of version 1.
    episodes: the number of episodes.
    """

    digest: str
    marks: tuple[str, ...]
    every: int
    steps: int
    timed_steps: int | None = None
    episodes: int


class Repeat(StoredPart):
    """One timed repeat. Fields without a value could not be measured.

    seconds: the mean time of a pass.
    passes: the number of passes.
    legs: the mean time of each leg, in seconds.
    playing: the mean number of cores that the playing processes kept busy.
    machine_busy: the mean number of cores on rank 0's host that all processes kept busy.
    stolen: the mean number of cores that the hypervisor gave to other virtual machines.
    load: the load average of the host at the end of the repeat.
    """

    seconds: Annotated[float, Field(gt=1e-6, lt=1e9)]  # because ratios of times must be finite
    passes: int
    legs: dict[str, float]
    playing: float
    machine_busy: float | None = None
    stolen: float | None = None
    load: float | None = None


class ContestRow(StoredPart):
    """The result of one number of workers on processors, or on a GPU.

    workers: the number of processes that played.
    hosts: the number of ranks on each host, in the order of their first ranks.
    mpi: the MPI library between the ranks.
    backend: the back end of the networks.
    device: the name of the GPU, or "".
    known: the digest of the known run of each leg (`contest.known_experiment`); empty if known runs were left out.
    legs: the work of each leg in a timed pass.
    repeats: the timed repeats, in order.
    """

    workers: Annotated[int, Field(ge=1, lt=2**20)]
    hosts: tuple[int, ...]
    mpi: str
    backend: str
    device: str
    known: dict[str, str]
    legs: dict[str, LegDigest]
    repeats: Annotated[tuple[Repeat, ...], Field(min_length=1)]

    @property
    def times(self) -> list[float]:
        """The time of a pass in each repeat, in seconds."""
        return [repeat.seconds for repeat in self.repeats]

    @property
    def seconds(self) -> float:
        """The score: the median of `times`."""
        return score(self.times)

    @property
    def spread(self) -> float:
        """The spread of `times`, see the function `spread`."""
        return spread(self.times)

    @property
    def agrees(self) -> bool:
        """Whether the last three repeats agree. If not, the repeats ended at their largest number."""
        return repeats_agree(self.times)

    @property
    def title(self) -> str:
        """The device and the number of workers, in words. A single worker with a device is not mentioned."""
        if self.device and self.workers == 1:
            return self.device
        hosts = f" on {len(self.hosts)} hosts" if len(self.hosts) > 1 else ""
        workers = pluralize(self.workers, "worker") + hosts
        return f"{self.device}, {workers}" if self.device else workers


class Price(StoredPart):
    """The price of an hour of the machine. currency: a sign or word before the number, such as "$"; may be ""."""

    currency: Annotated[str, Field(pattern=r"^[^\pC\pZ]*$")]
    hour: Annotated[float, Field(ge=0, lt=1e7)]

    def cost(self, seconds: float) -> float:
        """Return the cost of some seconds."""
        return self.hour * seconds / 3600

    def cost_in_words(self, seconds: float) -> str:
        """Return the cost of some seconds with the currency and at least three significant digits: "$0.0107"."""
        cost = self.cost(seconds)
        # A cost of 0.0107 has the decimal exponent -2, so three significant digits need four decimals.
        decimals = max(2, 2 - math.floor(math.log10(cost))) if cost else 0
        return f"{self.currency}{cost:,.{decimals}f}"


class ContestFile(StoredPart):
    """The result of a contest on one machine, which may have several hosts.

    contest: the version of the work.
    size: the name of the contest's size.
    name: the name of the machine.
    date: the time of the end, in UTC.
    verdict: `VALIDATED` or `UNVERIFIED`, as assessed by the machine. A reader assesses the rows again.
    line: the result in one line, for quotation.
    price: the price of an hour of the machine; None if no price was given.
    load_before: the load averages over 1, 5 and 15 minutes before the contest.
    system: the machine and its software.
    rows: the measurements, in order.
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
    rows: Annotated[tuple[ContestRow, ...], Field(min_length=1)]

    @property
    def best(self) -> ContestRow:
        """The row with the shortest time."""
        return min(self.rows, key=lambda row: row.seconds)

    @property
    def legs(self) -> Mapping[str, LegDigest]:
        """The work of each leg in the first row. All other rows must have equal work, see `assess`."""
        return self.rows[0].legs

    def assess(self) -> tuple[str, str]:
        """Return the verdict and its reason.

        The verdict is `DIFFERENT` if the rows have different work or a known run has a wrong digest, `UNVERIFIED` if
        known runs were left out, and otherwise `VALIDATED`, whose reason is "".
        """
        for row in self.rows:
            if difference := leg_difference(self.legs, row.legs):
                return DIFFERENT, f"{row.title} against {self.rows[0].title}: {difference}"
            # `self.contest` is the version of the file, and `contest` is the module.
            if row.known and row.known != contest.known_digests(self.size, self.contest):
                return DIFFERENT, f"{row.title}: not the known digests"
        for row in self.rows:
            if not row.known:
                return UNVERIFIED, f"the known runs were not played with {row.title}"
        return VALIDATED, ""


def leg_difference(ours: Mapping[str, LegDigest], theirs: Mapping[str, LegDigest]) -> str:
    """Return the first leg in which two passes differ, and the generations, in words; "" if the passes are equal."""
    for leg, one in ours.items():
        other = theirs[leg]
        if one.digest != other.digest:
            # A mark depends on all generations so far, so the first difference lies between the last equal mark and the
            # first different mark. A pass may have more generations, and thus more marks, than the other.
            pairs = zip(one.marks, other.marks, strict=False)
            place = next((n for n, (mark, other_mark) in enumerate(pairs) if mark != other_mark), None)
            if place is None:  # all common marks are equal
                return f"{leg}, after its last mark"
            first, last = place * one.every, (place + 1) * one.every - 1
            if first == last:
                return f"{leg}, generation {first}"
            if place + 1 == len(one.marks):  # the last mark may cover fewer generations
                return f"{leg}, generation {first} or later"
            return f"{leg}, generations {first} to {last}"
    return ""


def read_price(text: str) -> Price:
    """Return a price such as "1.28/h" or "$1.28/h". Raises InputError for another text."""
    match = _PRICE.fullmatch(text)
    # A text that is not printable may hold a lone surrogate, which cannot be written to a UTF-8 file.
    if match is None or not text.isprintable():
        raise InputError("--price", 'a price of an hour, such as "1.28/h" or "$1.28/h"', text)
    currency, hour = match.groups()
    return Price(currency=currency, hour=float(hour))


def signature(contents: dict[str, Any]) -> str:
    """Return 64 hexadecimal digits that identify the contents of a file without its signature."""
    text = json.dumps(contents, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_new(path: Path) -> None:
    """Raise InputError unless a new .json file can be written at `path`. Existing files are never replaced."""
    if path.exists():
        raise InputError.plainly(str(path), f"{path} already exists. Choose another name with -o.")
    disk.check_writable(path, (".json",))


def write(file: ContestFile, path: Path) -> Path:
    """Write a contest file with its signature. Return its path: `path`, or with a number if `path` exists by now.

    Raises InputError if the file cannot be written.
    """
    # Another contest may have taken the name meanwhile. A long contest must not lose its result for that.
    free, number = path, 1
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    contents = file.model_dump(mode="json")
    contents[_SIGNATURE] = signature(contents)
    disk.write_output(free, f"{json.dumps(contents, indent=1, ensure_ascii=False)}\n".encode())
    return free


def read(path: Path) -> ContestFile:
    """Return a contest file of this version or an earlier one.

    Raises InputError if the file cannot be read, is not a contest file, was edited, or is of an unknown version, and
    for the verdict `DIFFERENT`.
    """
    contents = _contents(path)
    # Check the version first: a file of another version may have other fields.
    version = contents.get("contest")
    if version not in list(contest.LEGS_OF_VERSION):  # a list, because `version` may be an unhashable value
        known = " or ".join(map(str, contest.LEGS_OF_VERSION))
        cure = "Run the contest again, or get another version of evolve."
        raise InputError(str(path), f"a file of contest {known}", f"one of contest {version!r}", cure)
    stored_signature = contents.pop(_SIGNATURE, None)
    if stored_signature != signature(contents):
        message = f"{path} was edited: its signature does not match. Run the contest again, or get the original."
        raise InputError.plainly(str(path), message)
    try:
        # Strict models accept a list for a tuple only in JSON.
        file = ContestFile.model_validate_json(json.dumps(contents))
    except ValidationError as error:
        raise InputError.plainly(str(path), f"{path}: {explain(ContestFile, error)}") from None
    legs = set(contest.LEGS_OF_VERSION[version])
    if file.size not in contest.SIZES or any(set(row.legs) != legs for row in file.rows):
        raise InputError(str(path), "a whole contest", "missing parts, or an unknown size")
    verdict, reason = file.assess()
    if verdict == DIFFERENT:
        raise InputError(str(path), "the work of the contest", f"different work ({reason})")
    return file


def _contents(path: Path) -> dict[str, Any]:
    """Return the table in a JSON file. Raises InputError if the file cannot be read, or is not a contest file."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(str(path), "a contest file", f"{path.stat().st_size:,} bytes")
        contents = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), "a file that can be read", error.strerror or str(error)) from None
    except (ValueError, RecursionError):  # no UTF-8, no JSON, or JSON that is nested too deeply
        contents = None
    if not isinstance(contents, dict) or _SIGNATURE not in contents:
        raise InputError(str(path), "a JSON file that evolve contest wrote", "another one")
    return contents
