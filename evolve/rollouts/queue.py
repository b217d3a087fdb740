"""The queue of episodes that wait for a free slot. It generates their genomes, a window of genomes at a time.

A rollout appends each `EpisodeBatch` to its `EpisodeQueue`, and takes `EpisodesToBegin` whenever slots are free.
"""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.genome import Genomes, describe
from evolve.rollouts.episodes import EpisodeBatch
from evolve.rollouts.results import no_descriptions
from evolve.shapes import Bool, Float32, Int32, Int64

WINDOW_BYTES = 2**24
"""The size of a window in bytes. A larger genome has a window of its own."""
LARGEST_WINDOW = 2**28
"""The size in bytes to which a window may grow for a feed, the episodes that a device gets at once."""
Described = dict[str, NDArray[Any]]
"""Ids and descriptions of genomes, as fields of `EpisodeResults`."""
_NOTHING_DESCRIBED: Described = {"described": np.zeros(0, np.int32), **vars(no_descriptions(0))}


@dataclass(frozen=True)
class EpisodesToBegin:
    """k episodes of one batch that begin together.

    genomes: The C genomes that play them.
    numbers: [k], the number of each episode's genome among these genomes.
    seeds: [k], the seeds of the environments.
    normalizers: [k, 2, O], the normalizer of each episode's observations.
    genome_ids: [k], the genome id of each episode, see `EpisodeBatch`.
    episodes: [k], the number of each episode among the episodes of its genome.
    traces, best_of: See `EpisodeBatch`.
    """

    genomes: Genomes
    numbers: Int64
    seeds: Int64
    normalizers: Float32
    genome_ids: Int32
    episodes: Int32
    traces: str
    best_of: int

    def __len__(self) -> int:
        return len(self.seeds)

    def genome_of_each(self) -> Genomes:
        """Return k genomes, one for each episode. They are no copies if each episode has its own genome."""
        k = len(self)
        if len(self.genomes) == k and (k == 1 or np.array_equal(self.numbers, np.arange(k))):
            return self.genomes
        return self.genomes.take(self.numbers)


class EpisodeQueue:
    """Batches with episodes that have not begun.

    shared_with: The queue of another thread. Both queues then take from the same batches.
    """

    def __init__(self, shared_with: "EpisodeQueue | None" = None) -> None:
        self.generating: Callable[[], AbstractContextManager[object]] = nullcontext
        """Returns a context manager in which genomes are generated. It can pause a watchdog, as this may take long."""
        self._waiting: _WaitingBatches = _WaitingBatches() if shared_with is None else shared_with._waiting
        self._feed_size = 1  # in episodes, see `fill_feeds`
        # With several threads, another thread will probably play the next genomes, so do not generate them ahead.
        self._ahead = shared_with is None
        if shared_with is not None:
            shared_with._ahead = False
        self._window: GenomeWindow | None = None  # over the genomes of the batch of the last `take`
        self._described: list[Described] = []

    def __len__(self) -> int:
        return self._waiting.episodes

    def fill_feeds(self, episodes: int) -> None:
        """Let each `take` generate the genomes of a device's feed, and no others, because the device waits meanwhile.

        episodes: The largest number of episodes in a feed.
        """
        self._feed_size, self._ahead = episodes, False

    def append(self, batch: EpisodeBatch) -> None:
        """Append the episodes of a batch."""
        to_describe = np.zeros(len(batch.genomes), np.bool_)
        if batch.describe:
            to_describe[batch.rows[batch.episodes == 0]] = True  # the genomes whose episode 0 is in this batch
        waiting = WaitingBatch(batch, batch.environment_seeds(), to_describe)
        with self._waiting.lock:
            self._waiting.batches.append(waiting)
            self._waiting.episodes += len(batch)

    def take(self, limit: int) -> EpisodesToBegin | None:
        """Return at most `limit` of the next episodes, of one batch and one window; None if no episode waits."""
        with self._waiting.lock:
            if not self._waiting.batches:
                return None
            waiting = self._waiting.batches[0]
            batch = waiting.batch
            # A window belongs to one batch, so another batch needs another window.
            if self._window is None or self._window.waiting is not waiting:
                self._window = GenomeWindow(waiting, self._ahead, self._waiting.lock, self._described, self._feed_size)
            # Only episodes with genomes in one window begin together, so few genomes are in memory at a time.
            count = self._window.count_leading(batch.rows[waiting.begun : waiting.begun + limit])
            part = slice(waiting.begun, waiting.begun + count)
            waiting.begun = part.stop
            self._waiting.episodes -= count
            if part.stop == len(batch):
                self._waiting.batches.popleft()
        # Genomes are generated without the lock, so that other threads can take episodes meanwhile.
        rows = batch.rows[part]
        genomes, numbers = self._window.take(rows.astype(np.int64), self.generating)
        return EpisodesToBegin(
            genomes=genomes,
            numbers=numbers,
            seeds=waiting.seeds[part],
            normalizers=batch.normalizers[rows],
            genome_ids=batch.genome_ids[rows],
            episodes=batch.episodes[part],
            traces=batch.traces,
            best_of=batch.best_of,
        )

    def take_descriptions(self) -> Described:
        """Return the descriptions of the genomes that were described since the last call."""
        parts = self._described or [_NOTHING_DESCRIBED]
        joined = {name: np.concatenate([part[name] for part in parts]) for name in _NOTHING_DESCRIBED}
        self._described.clear()
        return joined

    def clear(self) -> None:
        """Drop all episodes."""
        with self._waiting.lock:
            self._waiting.batches.clear()
            self._waiting.episodes = 0
        self._window = None
        self._described.clear()


class GenomeWindow:
    """Sliding window over C genomes. A contiguous range is in memory, because most batches take genomes in order.

    As in `EpisodeBatch`, a row is the index of a genome.

    Args:
        waiting: The batch of the genomes.
        ahead: Whether `take` also generates the next genomes, until the window is full.
        lock: Protects the batch from other threads.
        described: A list to which the window appends descriptions of genomes.
        feed_size: The largest number of episodes in a device's feed; 1 on the host. The window holds the genomes of a
            whole feed, up to `LARGEST_WINDOW`.
    """

    def __init__(
        self, waiting: "WaitingBatch", ahead: bool, lock: Lock, described: list[Described], feed_size: int = 1
    ) -> None:
        self.waiting = waiting
        self._source = source = waiting.batch.genomes
        self._ahead = ahead
        self._lock = lock
        genome_bytes = max(1, 5 * source.num_weights)  # 4 bytes for the value of a weight, and 1 for the mask
        self._capacity = max(1, WINDOW_BYTES // genome_bytes, min(feed_size, LARGEST_WINDOW // genome_bytes))
        self._feed_size = feed_size
        self._first = 0  # the index of the first genome in memory
        self._in_memory: Genomes | None = None
        self._described = described

    def count_leading(self, rows: Int32) -> int:
        """Return the number of leading rows of `rows` [n] that have their genomes in one window, at least 1.

        The window in memory counts if it has the genome of the first row. Otherwise a new window counts, which begins
        with this genome. For a device, the larger number of the two windows counts if both have this genome.
        """
        if len(rows) == 1:
            return 1
        first = int(rows[0])
        stop = self._first + (0 if self._in_memory is None else len(self._in_memory))
        if not self._first <= first < stop:
            stop = first + self._capacity
        elif self._feed_size > 1:
            stop = max(stop, first + self._capacity)
        is_outside = (rows < first) | (rows >= stop)
        return int(is_outside.argmax()) if is_outside.any() else len(rows)

    def take(
        self, rows: Int64, generating: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> tuple[Genomes, Int64]:
        """Return the genomes of rows [n], at most n genomes, and the number [n] of each row's genome among them.

        generating: See `EpisodeQueue`.
        """
        first, stop = int(rows.min()), int(rows.max()) + 1
        if self._in_memory is None or first < self._first or stop > self._first + len(self._in_memory):
            window_stop = max(stop, first + self._capacity) if self._ahead else stop
            self._in_memory = self._generate(slice(first, min(window_stop, len(self._source))), generating)
            self._first = first
        if stop - first > len(rows):  # some genomes between the first and the last have no row: copy the others
            return self._in_memory.take(rows - self._first), np.arange(len(rows))
        return self._in_memory.take(slice(first - self._first, stop - self._first)), rows - first

    def _generate(self, rows: slice, generating: Callable[[], AbstractContextManager[object]]) -> Genomes:
        """Return the genomes of a contiguous range of rows, and describe those that must still be described."""
        with generating():
            # A slice of genomes in memory gives views. Other sources take only numbers of genomes.
            source, numbers = self._source, np.arange(rows.start, rows.stop)
            genomes = source.take(rows) if isinstance(source, Genomes) else source.take(numbers)
            # Several threads may generate the same genome, but only one of them describes it.
            with self._lock:
                places = np.flatnonzero(self.waiting.to_describe[rows])
                self.waiting.to_describe[rows] = False
            if len(places):
                described = genomes if len(places) == len(genomes) else genomes.take(places)
                ids = self.waiting.batch.genome_ids[rows.start + places]
                self._described.append({"described": ids, **vars(describe(described))})
        return genomes


@dataclass
class WaitingBatch:
    """A batch whose episodes have not all begun.

    seeds: [N], the seeds of the environments.
    to_describe: [C], whether a genome must still be described.
    begun: The number of episodes that have begun. They are the first ones of the batch.
    """

    batch: EpisodeBatch
    seeds: Int64
    to_describe: Bool
    begun: int = 0


class _WaitingBatches:
    """The batches of one queue, or of the queues of several threads, and the number of their waiting episodes."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.batches: deque[WaitingBatch] = deque()
        self.episodes = 0
