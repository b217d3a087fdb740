"""Episodes that wait for a free slot, the genomes that play them, and the feeds of exact tasks."""

import ctypes
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from evolve.genome import GenomeDescriptions, Genomes, GenomeSource, describe
from evolve.numerics.native import ADDRESS, INT64
from evolve.rollouts.episodes import EpisodeBatch
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64

_AHEAD = 2**24  # bytes; at least one genome


@dataclass(frozen=True)
class EpisodesToBegin:
    """k episodes, each with a genome [k, W], the seed of its environment, a normalizer [k, 2, O], and its key."""

    genomes: Genomes
    seeds: Int64
    normalizers: Float32
    genome_ids: Int32
    episodes: Int32
    traces: str

    def __len__(self) -> int:
        return len(self.seeds)


class EpisodeQueue:
    """Batches of episodes of which some have not begun."""

    def __init__(self) -> None:
        self.making: Callable[[], AbstractContextManager[object]] = nullcontext
        """Returns what is entered while genomes are made."""
        self._batches: deque[_Waiting] = deque()
        self._length = 0
        self._described: list[tuple[Int32, GenomeDescriptions]] = []

    def __len__(self) -> int:
        return self._length

    def append(self, batch: EpisodeBatch) -> None:
        """Let the episodes of a batch wait."""
        to_describe = np.zeros(len(batch.genomes), np.bool_)
        if batch.describe:
            to_describe[batch.rows[batch.episodes == 0]] = True
        window = GenomeWindow(batch.genomes, to_describe, self.making)
        self._batches.append(_Waiting(batch, window, batch.environment_seeds()))
        self._length += len(batch)

    def take(self, limit: int) -> EpisodesToBegin:
        """Return the next episodes, all of one batch, at most `limit`: those whose genomes are made together."""
        waiting = self._batches[0]
        batch = waiting.batch
        count = waiting.window.reach(batch.rows[waiting.begun : waiting.begun + limit])
        part = slice(waiting.begun, waiting.begun + count)
        waiting.begun = part.stop
        self._length -= part.stop - part.start
        rows = batch.rows[part]
        genomes = waiting.window.take(rows.astype(np.int64))
        self._described += [(batch.genome_ids[which], said) for which, said in waiting.window.take_descriptions()]
        if part.stop == len(batch):
            self._batches.popleft()
        return EpisodesToBegin(
            genomes,
            waiting.seeds[part],
            batch.normalizers[rows],
            batch.genome_ids[rows],
            batch.episodes[part],
            batch.traces,
        )

    def take_descriptions(self) -> list[tuple[Int32, GenomeDescriptions]]:
        """Return the genomes [n] that were described since this was last asked, and what was said of them."""
        described, self._described = self._described, []
        return described

    def clear(self) -> None:
        """Forget them all."""
        self._batches.clear()
        self._described.clear()
        self._length = 0


class GenomeWindow:
    """C genomes of which a few that lie side by side are in memory; most batches take them in order.

    Args:
        source: What makes them.
        to_describe: [C], those to be described when they are made.
        making: Returns what is entered while some are made.
    """

    def __init__(
        self,
        source: GenomeSource,
        to_describe: Bool,
        making: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._making = making
        self._source = source
        self._to_describe = to_describe
        self._at_once = max(1, _AHEAD // max(1, 5 * source.num_weights))
        self._first = 0
        self._held: Genomes | None = None
        self._described: list[tuple[Int64, GenomeDescriptions]] = []

    def reach(self, rows: Int32) -> int:
        """Return how many of rows [n], from the first on, are in memory, or can be made at once; at least one."""
        if len(rows) == 1:
            return 1
        first, stop = int(rows[0]), self._first + (0 if self._held is None else len(self._held))
        if not self._first <= first < stop:
            stop = first + self._at_once
        beyond = (rows < first) | (rows >= stop)
        return int(beyond.argmax()) if beyond.any() else len(rows)

    def take(self, rows: Int64) -> Genomes:
        """Return genomes by their rows [n]."""
        first, last = int(rows.min()), int(rows.max())
        if self._held is None or first < self._first or last >= self._first + len(self._held):
            if last - first >= max(self._at_once, 2 * len(rows)):  # scattered
                needed, places = np.unique(rows, return_inverse=True)
                return self._make(needed).take(places)
            self._first = first
            self._held = self._make(np.arange(first, min(max(last + 1, first + self._at_once), len(self._source))))
        return _taken(self._held, rows - self._first)

    def take_descriptions(self) -> list[tuple[Int64, GenomeDescriptions]]:
        """Return the rows [n] of the genomes that were described since this was last asked, and what was said."""
        described, self._described = self._described, []
        return described

    def _make(self, rows: Int64) -> Genomes:
        with self._making():
            made = self._source.take(rows)
            places = np.flatnonzero(self._to_describe[rows])
            if len(places):
                whole = len(places) == len(rows)
                self._described.append((rows[places], describe(made if whole else made.take(places))))
                self._to_describe[rows] = False
        return made


def _taken(genomes: Genomes, rows: Int64) -> Genomes:
    """Return some genomes [n]; those that lie side by side are not copied."""
    first = int(rows[0])
    if np.array_equal(rows, np.arange(first, first + len(rows))):
        return Genomes(genomes.weights[first : first + len(rows)], genomes.mask[first : first + len(rows)])
    return genomes.take(rows)


@dataclass
class _Waiting:
    """A batch, the seeds of its environments [N], and how many of its episodes have begun."""

    batch: EpisodeBatch
    window: GenomeWindow
    seeds: Int64
    begun: int = 0


@dataclass(frozen=True)
class Feed:
    """n episodes that may begin.

    columns: what a slot of the network holds at first, [n, rows] for each of the columns held, None for zeros.
    seeds: [n], of the environments. keys: [n], which come back with the results. normalizers: [n, 2, O], O = 0 where
    observations are not normalized. mask: [n, T], the connections whose traces are wanted; T = 0 for none.
    """

    columns: tuple[Float32 | None, ...]
    seeds: Int64
    keys: Int64
    normalizers: Float32
    mask: Bool

    def contiguous(self) -> "Feed":
        """Return the same, as kernels take it."""
        return Feed(
            tuple(None if values is None else np.ascontiguousarray(values, np.float32) for values in self.columns),
            np.ascontiguousarray(self.seeds),
            np.ascontiguousarray(self.keys),
            np.ascontiguousarray(self.normalizers),
            np.ascontiguousarray(self.mask),
        )


class Played(NamedTuple):
    """N episodes that have ended, in the order of the results; see `EpisodeResults` for the quantities."""

    keys: Int64
    returns: Float64
    lengths: Int32
    fingerprints: UInt64
    step_hashes: UInt8
    moments: Float64
    traces: Int64


class Play(Protocol):
    """Slots that play the episodes of feeds: `NativePlay`, or `DevicePlay`."""

    @property
    def ready(self) -> bool:
        """Whether the next feed may come."""

    @property
    def waiting(self) -> int:
        """Episodes of the feed that have not begun."""

    @property
    def running(self) -> int:
        """Episodes that have begun, and are not among those that `take` would return."""

    @property
    def over(self) -> int:
        """Episodes that `take` would return."""

    def feed(self, feed: Feed) -> None:
        """Let episodes wait."""

    def run(self, steps: int, more: bool) -> int:
        """Play for so many steps of all slots at most; return how many steps of episodes were made.

        more: Whether episodes wait that were not fed.
        """

    def take(self) -> Played:
        """Return the episodes that have ended since this was last called."""

    def clear(self) -> None:
        """Forget every episode."""


class InitialColumns(ctypes.Structure):
    """`initial_columns` of kernels/rows.h."""

    _fields_ = (("columns", ADDRESS), ("rows", INT64), ("values", ADDRESS))
