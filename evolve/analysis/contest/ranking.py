"""Contests of several machines side by side: who is faster, by how much, and for how much money."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evolve.analysis.contest.file import ContestFile, ContestRow, leg_difference, read
from evolve.analysis.statistics import ratio_interval, typical_ratio
from evolve.errors import InputError


@dataclass(frozen=True)
class RankedRow:
    """A row of a machine, and what it is beside others.

    Attributes:
        machine: The name of its machine, unlike that of any other.
        row: What was measured.
        verdict: Of the file.
        speedup: How many times as fast as one worker of the same machine; None where none was measured.
        cost: Of one pass; None without a price.
        currency: Of the cost.
        ratio: How many times as long as the first machine's shortest row it takes, by all repeats of both.
        interval: The 95 % interval of that; None for that row itself.
    """

    machine: str
    row: ContestRow
    verdict: str
    speedup: float | None
    cost: float | None
    currency: str
    ratio: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class ContestRanking:
    """Machines side by side, and the version and the size of their contest."""

    version: int
    size: str
    rows: tuple[RankedRow, ...]

    @property
    def machines(self) -> list[str]:
        """Their names, in the order of their files."""
        return list(dict.fromkeys(row.machine for row in self.rows))

    def of(self, machine: str) -> list[RankedRow]:
        """Return the rows of a machine."""
        return [row for row in self.rows if row.machine == machine]


def rank(paths: Sequence[Path]) -> ContestRanking:
    """Return what files say side by side.

    Raises:
        InputError: One was edited, is of another version or size than the first, or is of other work.
    """
    files = [read(path) for path in paths]
    first = files[0]
    for path, other in zip(paths, files, strict=True):
        if other.contest != first.contest:
            expected = f"a file of contest {first.contest}, as {paths[0]} is"
            raise InputError(str(path), expected, f"one of contest {other.contest}", "Compare files of one version.")
        if other.size != first.size:
            raise InputError(str(path), f"size {first.size}, that of {paths[0]}", other.size, "Compare one size.")
        found = leg_difference(first.legs, other.legs)
        if found:
            raise InputError(str(path), f"the work of {paths[0]}", f"different work ({found})")
    names = _distinct([found.name for found in files])
    rows = [row for name, found in zip(names, files, strict=True) for row in _rows(name, found, first.best)]
    return ContestRanking(first.contest, first.size, tuple(rows))


def rows_of(found: ContestFile) -> list[RankedRow]:
    """Return the rows of one machine, beside its own shortest."""
    return _rows(found.name, found, found.best)


def _rows(name: str, found: ContestFile, reference: ContestRow) -> list[RankedRow]:
    alone = next((row for row in found.rows if row.workers == 1 and not row.device), None)
    verdict, _ = found.assess()
    return [_ranked(name, found, row, alone, reference, verdict) for row in found.rows]


def _ranked(
    name: str, found: ContestFile, row: ContestRow, alone: ContestRow | None, reference: ContestRow, verdict: str
) -> RankedRow:
    times = np.array(row.times), np.array(reference.times)
    return RankedRow(
        machine=name,
        row=row,
        verdict=verdict,
        speedup=None if alone is None else alone.seconds / row.seconds,
        cost=None if found.price is None else found.price.of(row.seconds),
        currency="" if found.price is None else found.price.currency,
        ratio=typical_ratio(*times),
        interval=None if row is reference else ratio_interval(*times),
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names with a number behind those that occur more than once."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(f"{name} #{seen[name]}" if names.count(name) > 1 else name)
    return found


def money(cost: float, currency: str) -> str:
    """Return a small sum of money with three digits: "$0.0107"."""
    if not cost:
        return f"{currency}0"
    decimals = max(2, 2 - math.floor(math.log10(abs(cost))))
    return f"{currency}{cost:,.{decimals}f}"
