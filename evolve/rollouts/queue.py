"""The queue of episodes that wait for a free slot, with a window over the genomes that play them."""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.genome import GenomeDescriptions, Genomes, GenomeSource, describe
from evolve.rollouts.episodes import EpisodeBatch
from evolve.rollouts.results import join_descriptions
from evolve.shapes import Bool, Float32, Int32, Int64

WINDOW_BYTES = 2**24
"""The size of the window, which has at least one genome."""


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
    """Batches with episodes that have not begun."""

    def __init__(self) -> None:
        self.making: Callable[[], AbstractContextManager[object]] = nullcontext
        """Returns a context in which genomes are generated."""
        self._batches: deque[_Waiting] = deque()
        self._length = 0
        self._described: list[tuple[Int32, GenomeDescriptions]] = []

    def __len__(self) -> int:
        return self._length

    def append(self, batch: EpisodeBatch) -> None:
        """Append the episodes of a batch."""
        to_describe = np.zeros(len(batch.genomes), np.bool_)
        if batch.describe:
            to_describe[batch.rows[batch.episodes == 0]] = True
        window = GenomeWindow(batch.genomes, to_describe, self.making)
        self._batches.append(_Waiting(batch, window, batch.environment_seeds()))
        self._length += len(batch)

    def take(self, limit: int) -> EpisodesToBegin:
        """Return the next episodes, at most `limit`, of one batch and with genomes that are generated together."""
        # Episodes whose genomes lie in one window begin together, so that few genomes are in memory at a time.
        waiting = self._batches[0]
        batch = waiting.batch
        count = waiting.window.reach(batch.rows[waiting.begun : waiting.begun + limit])
        part = slice(waiting.begun, waiting.begun + count)
        waiting.begun = part.stop
        self._length -= part.stop - part.start
        rows = batch.rows[part]
        genomes = waiting.window.take(rows.astype(np.int64))
        self._described += [(batch.genome_ids[which], found) for which, found in waiting.window.take_descriptions()]
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

    def take_descriptions(self) -> dict[str, NDArray[Any]]:
        """Return the genomes that were described since the last call, as fields of `EpisodeResults`."""
        described, found = join_descriptions(self._described)
        self._described = []
        return {
            "described": described,
            "digests": found.digests,
            "connections": found.connections,
            "genome_fingerprints": found.fingerprints,
        }

    def clear(self) -> None:
        """Drop all episodes."""
        self._batches.clear()
        self._described.clear()
        self._length = 0


class GenomeWindow:
    """Sliding window over C genomes; one contiguous run is materialized. Most batches take genomes in order.

    Args:
        source: Generates the genomes.
        to_describe: [C], whether a genome is described when it is generated.
        making: Returns a context in which genomes are generated.
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
        self._at_once = max(1, WINDOW_BYTES // max(1, 5 * source.num_weights))
        self._first = 0
        self._held: Genomes | None = None
        self._described: list[tuple[Int64, GenomeDescriptions]] = []

    def reach(self, rows: Int32) -> int:
        """Return the number of leading rows of [n] that are in memory or can be generated at once, at least one."""
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
            # Scattered rows are generated by themselves, since a run that includes them would be mostly unused.
            if last - first >= max(self._at_once, 2 * len(rows)):
                needed, places = np.unique(rows, return_inverse=True)
                return self._make(needed).take(places)
            self._first = first
            self._held = self._make(np.arange(first, min(max(last + 1, first + self._at_once), len(self._source))))
        return _taken(self._held, rows - self._first)

    def take_descriptions(self) -> list[tuple[Int64, GenomeDescriptions]]:
        """Return the rows [n] of the genomes that were described since the last call, with their descriptions."""
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
    """Return genomes [n] by their rows, as views if the rows are consecutive."""
    first = int(rows[0])
    if np.array_equal(rows, np.arange(first, first + len(rows))):
        return Genomes(genomes.weights[first : first + len(rows)], genomes.mask[first : first + len(rows)])
    return genomes.take(rows)


@dataclass
class _Waiting:
    """A batch, the seeds of its environments [N], and the number of its episodes that have begun."""

    batch: EpisodeBatch
    window: GenomeWindow
    seeds: Int64
    begun: int = 0
