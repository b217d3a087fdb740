"""The rows of a machine: each is a contestant with a number of ranks and threads. A JSON file holds them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ppo_parts.records import write

SCHEMA = 1
PPO, EVOLUTION = "PPO", "evolution"
EPOCHS, GENERATIONS = 1000, 200
"""The whole runs of 2020."""
SEED = 13
"""Of evolution, as in 2020."""
STEPS = {PPO: EPOCHS * 40_000, EVOLUTION: 235_144_740}
"""The environment steps of the whole runs. Evolution's were counted in the whole run of `SEED`."""


@dataclass(frozen=True)
class Row:
    """A measured share of a contestant's run.

    Attributes:
        contestant: `PPO` or `EVOLUTION`.
        ranks: The ranks that play: PPO's ranks or evolution's workers; 0 for one process without MPI.
        threads: The threads of each of them.
        rounds: The timed epochs or generations.
        seconds: Their wall time.
        steps: Their environment steps.
        cores: The cores of the machine.
        digest: After the last round.
        split: The share of each part of the time, the mean over PPO's ranks; empty for evolution.
        loads: The machine's load before and afterwards.
        date: The time of the end, in UTC.
        real_time: Whether it ran at real-time priority, so that other work hardly took its cores.
    """

    contestant: str
    ranks: int
    threads: int
    rounds: int
    seconds: float
    steps: int
    cores: int
    digest: str
    split: dict[str, float] = field(default_factory=dict)
    loads: tuple[float, float] = (0.0, 0.0)
    date: str = ""
    real_time: bool = False

    @property
    def disturbed(self) -> bool:
        """Whether other work took the cores: more of it was ready than there are cores."""
        return not self.real_time and min(self.loads) > self.cores + self.players

    @property
    def players(self) -> int:
        """The number of threads that play at the same time."""
        return max(1, self.ranks) * self.threads

    @property
    def whole(self) -> float:
        """The seconds of the whole run of 2020, extrapolated by environment steps."""
        return self.seconds / self.steps * STEPS[self.contestant]

    @property
    def title(self) -> str:
        """The ranks and threads in words: "2 workers", "one process, 2 threads"."""
        noun = "rank" if self.contestant == PPO else "worker"
        players = "one process" if not self.ranks else f"{self.ranks} {noun}{'s' * (self.ranks > 1)}"
        return players + (f", {self.threads} threads" if self.threads > 1 else "")

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells a row of a machine from its other rows."""
        return self.contestant, self.ranks, self.threads


@dataclass(frozen=True)
class Point:
    """The mean held-out return of PPO's policy or evolution's champion after a number of environment steps."""

    steps: int
    mean: float


@dataclass(frozen=True)
class Curve:
    """The returns of one run. about: the run in words."""

    contestant: str
    points: tuple[Point, ...]
    episodes: int
    about: str


@dataclass(frozen=True)
class Machine:
    """The rows and curves of a machine. about: its processor, cores and versions; its price of an hour, if known."""

    name: str
    rows: tuple[Row, ...] = ()
    curves: tuple[Curve, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)

    def of(self, contestant: str) -> list[Row]:
        """Return the rows of a contestant, fewest players first."""
        found = [row for row in self.rows if row.contestant == contestant]
        return sorted(found, key=lambda row: (row.players, row.ranks, row.threads))

    def alone(self, contestant: str) -> Row | None:
        """Return the row with one player, to which others are compared; None if it was not measured."""
        return next((row for row in self.of(contestant) if row.players == 1), None)

    def best(self, contestant: str) -> Row | None:
        """Return the fastest row of a contestant."""
        return min(self.of(contestant), key=lambda row: row.whole, default=None)

    def with_row(self, row: Row) -> "Machine":
        """Return the machine with another row, or with a row measured again."""
        rows = [old for old in self.rows if old.key != row.key]
        return replace(self, rows=(*rows, row))

    def with_curve(self, curve: Curve) -> "Machine":
        """Return the machine with the curve of a contestant replaced."""
        curves = [old for old in self.curves if old.contestant != curve.contestant]
        return replace(self, curves=(*curves, curve))


def check_work(rows: Sequence[Row]) -> None:
    """End the process with a message if evolution's rows of equal length have different digests."""
    known: dict[int, Row] = {}
    for row in rows:
        first = known.setdefault(row.rounds, row)
        if row.digest != first.digest:
            raise SystemExit(
                f"Evolution with {row.title} played other work ({row.digest[:12]}…) than with {first.title} "
                f"({first.digest[:12]}…). This is an error of evolve: please report it."
            )


def save(machine: Machine, path: Path) -> None:
    """Write a machine to its file."""
    write(path, {"schema": SCHEMA} | asdict(machine))


def load(path: Path) -> Machine:
    """Return the machine of a file. Ends the process with a message if it is not such a file."""
    try:
        table = json.loads(path.read_text())
        if table.pop("schema") != SCHEMA:
            raise ValueError("another schema")
        rows = tuple(Row(**row | {"loads": tuple(row["loads"])}) for row in table["rows"])
        curves = tuple(
            Curve(**curve | {"points": tuple(Point(**point) for point in curve["points"])}) for curve in table["curves"]
        )
        return Machine(table["name"], rows, curves, table["about"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SystemExit(f"{path}: expected a file of benchmarks/contest_2020.py, got: {error}.") from None
