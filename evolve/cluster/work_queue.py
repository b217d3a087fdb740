"""The work queue: which worker has which items of a job, and the items that are still to be handed out.

An item is an episode of a batch or a question; the queue knows only its number. The items of a lost worker go to other
workers. An item that ends several workers is found and counts as failed.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum

import numpy as np

from evolve.shapes import Int64

# A chunk has more episodes than a worker has slots only if it takes no longer than `_LONG_SECONDS`, has no more than
# `_MOST_EPISODES`, and is at most one of `_SHARES` parts of the worker's fair share.
_MOST_EPISODES = 2048
_LONG_SECONDS, _SHARES = 0.5, 8

_SUSPECT = 2
"""Strikes from which on an item is handed out alone, so that no other item can have ended the worker."""
_GUILTY = 4
"""Strikes with which an item that was handed out alone counts as failed. A hang of an item alone is enough."""
_NO_WORKER = 0  # rank 0 is the coordinator

ChunkSizes = Callable[[int, int], Iterator[int]]
"""Called with the number of items and of workers; yields the sizes of chunks."""


def shrinking_sizes(episodes: int, workers: int, largest: int, least: int) -> Iterator[int]:
    """Yield the sizes of the chunks in which episodes are handed out.

    Factoring (Hummel, Schonberg and Flynn, 1992): in each round every worker gets an equal share of half of the
    episodes that are left.

    Args:
        episodes: The number of episodes.
        workers: The number of workers.
        largest: The size of the largest chunk allowed.
        least: The size of the smallest chunk that is worth a message while more episodes are left.
    """
    while episodes:
        fair = -(-episodes // workers)
        size = max(1, min(largest, max(fair // 2, min(least, fair))))
        for _ in range(workers):
            if episodes:
                yield min(size, episodes)
                episodes -= min(size, episodes)


def suitable_sizes(
    episodes: int, workers: int, slots: int, worthwhile_seconds: float, episode_seconds: float, fewest: int = 1
) -> Iterator[int]:
    """Yield the sizes of the chunks of a batch: large, as each chunk costs a message and an answer, but balanced.

    Args:
        episodes: The number of episodes.
        workers: The number of workers.
        slots: The number of episodes that a worker plays side by side.
        worthwhile_seconds: The duration of the smallest chunk that is worth a message while more episodes are left.
        episode_seconds: The mean duration of an episode in the last batch; 0 if there was no batch.
        fewest: The size of the smallest chunk while more episodes are left, regardless of its duration.
    """
    if not episode_seconds:
        return shrinking_sizes(episodes, workers, max(slots, fewest), fewest)
    least = max(min(int(worthwhile_seconds / episode_seconds), _MOST_EPISODES), fewest)
    large = min(int(_LONG_SECONDS / episode_seconds), episodes // (_SHARES * workers), _MOST_EPISODES)
    return shrinking_sizes(episodes, workers, max(slots, least, large), least)


class PendingItems:
    """Items that wait for a worker: 0 to N - 1 at first, in this order."""

    def __init__(self, size: int) -> None:
        self._items: Int64 = np.arange(size)
        self.suspects = 0
        """The number of items at the front that may hang or kill a worker, and are handed out alone."""

    def __len__(self) -> int:
        return len(self._items)

    def take(self, n: int) -> Int64:
        """Return the next items, at most n; a suspect alone."""
        if self.suspects:
            n = 1
            self.suspects -= 1
        items, self._items = self._items[:n], self._items[n:]
        return items

    def take_all(self) -> Int64:
        """Return all items that are left."""
        items, self._items = self._items, self._items[:0]
        return items

    def put_last(self, items: Int64) -> None:
        """Append items, and hand none of the pending items out alone any more."""
        self._items = np.concatenate([self._items, items])
        self.suspects = 0

    def put_back(self, items: Int64, alone: bool) -> None:
        """Insert items at the front, but after the suspects unless the items are suspects themselves (`alone`)."""
        self._items = np.insert(self._items, 0 if alone else self.suspects, items)
        self.suspects += len(items) if alone else 0


class Fate(IntEnum):
    """How a worker was lost. The value is the number of strikes against each item that the worker had."""

    CUT_OFF = 0
    DEATH = 1
    HANG = 2


class WorkQueue:
    """Hands the items of a job out in chunks, and keeps every worker one chunk ahead.

    Args:
        size: N; the items are numbered 0 to N - 1.
        workers: The ranks of the workers.
        chunk_sizes: Yields the sizes of chunks.
        send: Sends items [n] to a worker.
        uneven: Whether items may take unequal times. An item queued behind a long one would end late, so the last few
            then go to idle workers only.
    """

    def __init__(
        self,
        size: int,
        workers: Iterable[int],
        chunk_sizes: ChunkSizes,
        send: Callable[[int, Int64], None],
        uneven: bool = True,
    ) -> None:
        self._chunk_sizes = chunk_sizes
        self._send = send
        self._uneven = uneven
        self._done = np.zeros(size, np.bool_)
        self.unfinished = size
        """The number of items without a result."""
        self._owner = np.full(size, _NO_WORKER, np.int32)
        self._strikes = np.zeros(size, np.int8)
        self._in_hand = dict.fromkeys(workers, 0)  # the number of unfinished items that were sent to each worker
        self.busy: set[int] = set()
        """The workers that have items in hand."""
        self._isolated: set[int] = set()  # workers that have a suspect, and nothing else
        self.pending = PendingItems(size)
        self.last_in_hand: Int64 = np.zeros(0, np.int64)
        """The items [n] that the last worker had when it was lost."""

    @property
    def idle(self) -> int:
        """The number of workers without items."""
        return len(self._in_hand) - len(self.busy)

    def hand_out(self) -> None:
        """Send every worker a chunk, and a second one ahead; the sizes of chunks begin anew."""
        workers = tuple(self._in_hand)
        if not workers:
            return
        self._sizes = self._chunk_sizes(len(self.pending), len(workers))
        self._next_size = next(self._sizes, 0)
        for worker in (*workers, *workers):
            self._send_chunk(worker)

    def finish(self, worker: int, items: Int64) -> bool:
        """Record that a worker finished items, and send it more.

        Returns False, and records nothing, if one of the items was finished before: a result counts only once.
        """
        new = not self._done[items].any()
        if new:
            self._done[items] = True
            self.unfinished -= len(items)
        if worker in self._in_hand:
            self._in_hand[worker] -= len(items)
            if not self._in_hand[worker]:
                self.busy.discard(worker)
                self._isolated.discard(worker)
            while self._send_chunk(worker):
                pass
        return new

    def remove(self, worker: int, fate: Fate) -> tuple[int, Int64]:
        """Remove a lost worker; its items are pending again until the next `hand_out`.

        Every item in the worker's hand gets a strike for a death, two for a hang, and no strike if the worker's host
        was cut off. An item with two strikes is handed out alone. If it was alone, a hang or the fourth strike proves
        that this item ends workers, and it counts as failed.

        Returns:
            The number of items that are pending again, and the items [n] that count as failed. If no worker is left,
            the former are the last of `pending`.
        """
        del self._in_hand[worker]
        self.busy.discard(worker)
        had = np.flatnonzero((self._owner == worker) & ~self._done)
        self._owner[had] = _NO_WORKER
        self._strikes[had] += fate
        if worker in self._isolated and len(had) == 1 and (fate == Fate.HANG or self._strikes[had[0]] >= _GUILTY):
            self._done[had] = True
            self.unfinished -= 1
            return 0, had
        if self._in_hand:
            self.pending.put_back(had, alone=bool(self._strikes[had].max(initial=0) >= _SUSPECT))
        else:
            self.pending.put_last(had)
            self.last_in_hand = had
        return len(had), had[:0]

    def _send_chunk(self, worker: int) -> bool:
        """Send a worker one chunk if it may have one; return whether it was sent."""
        if not len(self.pending) or worker in self._isolated:
            return False
        # A suspect goes to an idle worker, and alone. Else a worker may have one chunk ahead of the one it works on.
        suspected = self.pending.suspects > 0
        last_few = self._uneven and len(self.pending) <= len(self._in_hand)
        allowed = 0 if suspected or last_few else self._next_size
        if self._in_hand[worker] > allowed:
            return False
        items = self.pending.take(self._next_size)
        if suspected:
            self._isolated.add(worker)
        else:
            self._next_size = next(self._sizes, 1)
        self._owner[items] = worker
        self._in_hand[worker] += len(items)
        self.busy.add(worker)
        self._send(worker, items)
        return True
