"""Rank 0 shares the items of a job among workers (`WorkQueue`), and notices lost workers (`Workers`).

An item is an episode of a batch, or a question of `Coordinator.ask`. The queue knows only the number of an item. The
items of a lost worker go to other workers. An item that kills or hangs several workers counts as failed.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from evolve.cluster import messages
from evolve.cluster.messages import Dismiss, Ended, Kill, Message, Setup
from evolve.cluster.start import SILENCE, silence_seconds
from evolve.cluster.transport import Transport
from evolve.cluster.watchdog import kill
from evolve.errors import HostLost
from evolve.rollouts import RolloutSpec
from evolve.shapes import Int64, ceil_div

_LONGEST_SETUP = 600.0  # seconds until a worker has made its environments
_SILENCE_INTERVAL = 0.1  # seconds between two updates of the time for which each worker has been silent
_LONGEST_PASSED = 0.5  # the most seconds that one update adds to this time, because rank 0 may have been suspended

# The largest chunk has the greatest of three sizes: one episode per slot of a worker; the fewest episodes that justify
# a message; and the episodes that take `_LONG_SECONDS`, but at most 1 / `_SHARES` of the episodes per worker. The last
# two sizes are at most `_MOST_EPISODES`.
_MOST_EPISODES = 8192
_LONG_SECONDS, _SHARES = 1.0, 8
_CHUNK_COST = 3e-4
"""Seconds that rank 0 needs for a chunk: a few messages of about 50 µs each. With n workers a chunk should last n times
as long, or rank 0 would always be busy. In simulations this value was best for 256 workers of 64 threads, and for 1,024
workers of one thread."""

_SUSPECT = 2
"""Each item of a lost worker gets strikes, see `Fate`. An item with this number of strikes is handed out alone: if its
next worker is lost, too, no other item can be the cause."""
_GUILTY = 4
"""An item that was handed out alone counts as failed if it then has this number of strikes, or if the worker hangs."""
_NO_WORKER = 0  # rank 0 is the coordinator

ChunkSizes = Callable[[int, int], Iterator[int]]
"""Called with the number of items and of workers; yields the sizes of chunks."""
Send = Callable[[int, Int64], None]
"""Sends items [n] to a worker; called with the worker and the items."""


def shrinking_sizes(episodes: int, workers: int, largest: int, least: int) -> Iterator[int]:
    """Yield the sizes of the chunks in which episodes are handed out.

    This is factoring (Hummel, Schonberg and Flynn, 1992): in each round the workers share half of the remaining
    episodes equally.

    Args:
        episodes: The number of episodes.
        workers: The number of workers.
        largest: The size of the largest chunk allowed.
        least: The size of the smallest chunk that is worth a message while more episodes are left.
    """
    while episodes:
        fair = ceil_div(episodes, workers)
        # A chunk has at least `least` episodes, but never more than a fair share of the rest.
        size = max(fair // 2, min(least, fair))
        size = max(1, min(size, largest))
        for _ in range(workers):
            if episodes:
                yield min(size, episodes)
                episodes -= min(size, episodes)


def suitable_sizes(episodes: int, workers: int, spec: RolloutSpec, episode_seconds: float) -> Iterator[int]:
    """Yield the sizes of the chunks of a batch: large, because each chunk costs messages, but balanced.

    Args:
        episodes: The number of episodes.
        workers: The number of workers.
        spec: The rollout of each worker.
        episode_seconds: The time of a worker in the last batch, per episode; 0 if there was no batch. It is shorter
            than an episode if a worker plays several side by side.
    """
    least = spec.least_chunk
    # If there was no batch, the time of an episode is unknown, so a chunk has at most one episode per slot, or `least`.
    if not episode_seconds:
        return shrinking_sizes(episodes, workers, max(spec.slots, least), least)
    worthwhile_seconds = max(spec.chunk_seconds, workers * _CHUNK_COST)
    least = max(min(int(worthwhile_seconds / episode_seconds), _MOST_EPISODES), least)
    large = min(int(_LONG_SECONDS / episode_seconds), episodes // (_SHARES * workers), _MOST_EPISODES)
    return shrinking_sizes(episodes, workers, max(spec.slots, least, large), least)


class PendingItems:
    """Items that wait for a worker: 0 to N - 1 at first, in this order."""

    def __init__(self, size: int) -> None:
        self.items: Int64 = np.arange(size)
        self.suspects = 0
        """The number of items at the front that may hang or kill a worker, and are handed out alone."""

    def __len__(self) -> int:
        return len(self.items)

    def take(self, n: int) -> Int64:
        """Return the next items, at most n; a suspect alone."""
        if self.suspects:
            n = 1
            self.suspects -= 1
        items, self.items = self.items[:n], self.items[n:]
        return items

    def put_last(self, items: Int64) -> None:
        """Append items, when no worker is left. Rank 0 plays all items itself, so no item is handed out alone."""
        self.items = np.concatenate([self.items, items])
        self.suspects = 0

    def put_back(self, items: Int64, alone: bool) -> None:
        """Insert suspects (`alone`) at the front, and other items directly after the suspects."""
        place = 0 if alone else self.suspects
        self.items = np.insert(self.items, place, items)
        if alone:
            self.suspects += len(items)


class Fate(IntEnum):
    """How a worker was lost. The value is the number of strikes against each item that the worker had."""

    CUT_OFF = 0  # its host is silent, or its script has ended
    DEATH = 1
    HANG = 2


class WorkQueue:
    """Hands the items of a job out in chunks, and keeps every worker one chunk ahead.

    Args:
        size: N; the items are numbered 0 to N - 1.
        workers: The ranks of the workers.
        chunk_sizes: Yields the sizes of chunks.
        send: Sends items to a worker.
        uneven: Whether items may take unequal times. Then only idle workers get the last few items, because an item
            behind a long one would end late.
    """

    def __init__(
        self, size: int, workers: Iterable[int], chunk_sizes: ChunkSizes, send: Send, uneven: bool = True
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

    @property
    def ahead(self) -> int:
        """The number of items that each worker has in advance. Rank 0 may sleep while a worker plays them.

        It is 0 if items take equal times, while suspects wait, and near the end of the job.
        """
        return self._most_in_hand() if self._uneven else 0

    def _most_in_hand(self) -> int:
        """Return the largest number of items that a worker may have when it gets another chunk."""
        # A suspect goes to an idle worker, alone. Otherwise a worker may have a chunk in hand when it gets the next.
        last_few = self._uneven and len(self.pending) <= len(self._in_hand)
        return 0 if self.pending.suspects or last_few else self._next_size

    def hand_out(self) -> None:
        """Send each worker a chunk, and a second one ahead, if it may have them. The sizes of chunks begin anew."""
        self._sizes = self._chunk_sizes(len(self.pending), len(self._in_hand))
        self._next_size = next(self._sizes, 0)
        # Each worker gets its first chunk before any worker gets a second one.
        for worker in (*self._in_hand, *self._in_hand):
            self._send_chunk(worker)

    def finish(self, worker: int, items: Int64) -> bool:
        """Record that a worker finished items, and send it more.

        Returns False if one of the items was finished before. Then none of them counts: a result counts only once.
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
        """Remove a lost worker. Its items are pending again: `hand_out` or `finish` sends them to other workers.

        Each item of the worker gets the strikes of the worker's fate. With two strikes an item is a suspect, and so are
        the worker's other items: they are handed out alone from now on. If a suspect hangs a worker, or has four
        strikes, it counts as failed.

        Items that are pending again are handed out first. If no worker is left, rank 0 plays them after all others.

        Returns:
            The number of items that are pending again, and the items [n] that count as failed.
        """
        del self._in_hand[worker]
        self.busy.discard(worker)
        had = np.flatnonzero((self._owner == worker) & ~self._done)
        self._owner[had] = _NO_WORKER
        self._strikes[had] += fate
        was_alone = worker in self._isolated and len(had) == 1
        # If an item hangs alone, it is to blame. A death may have another cause, so it proves less.
        if was_alone and (fate == Fate.HANG or self._strikes[had[0]] >= _GUILTY):
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
        if self._in_hand[worker] > self._most_in_hand():
            return False
        # `take` counts the suspects down, so read their number first.
        suspected = self.pending.suspects > 0
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


@dataclass(frozen=True)
class Loss:
    """A lost worker, its fate, and a description of the loss."""

    worker: int
    fate: Fate
    description: str


class Workers:
    """The worker ranks of a transport that are not lost. This object exchanges messages with these workers."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.ranks = tuple(rank for rank in range(1, transport.size) if rank not in transport.gone)
        """The ranks that are left, in ascending order."""
        # The workers that have sent a message since the setup. The others may still make environments.
        self._ready: set[int] = set()
        self.reset_silence()

    def __len__(self) -> int:
        return len(self.ranks)

    def send(self, worker: int, message: Message) -> None:
        """Send a message to one worker."""
        self._transport.send(worker, messages.encode(message))

    def send_all(self, message: Message, skip: int = 0) -> None:
        """Send a message to all workers except the rank `skip`. With skip = 0, which is no worker, send it to all."""
        frame = messages.encode(message)
        for worker in self.ranks:
            if worker != skip:
                self._transport.send(worker, frame)

    def set_up(self, setup: Setup) -> None:
        """Send a setup to all workers. No worker is ready until it answers: environments may take long to make."""
        self._ready.clear()
        self.send_all(setup)

    def receive(self) -> tuple[int, Message] | None:
        """Return the next message of a worker that is not lost, with its rank; None if there is none yet."""
        while (received := self._transport.probe()) is not None:
            worker, frame = received
            message = messages.decode(frame)
            # Ignore a lost worker, because other workers do its work. Ignore a worker that is still leaving, because
            # its messages belong to an earlier job.
            # Compute `is_heard` before the call of `note_farewell`, which changes `leaving` and `gone`.
            is_heard = worker not in self._transport.gone and worker not in self._transport.leaving
            note_farewell(self._transport, worker, message)
            if is_heard and not isinstance(message, Ended):
                self._ready.add(worker)
                self._silence[worker] = 0.0
                return worker, message
        return None

    def reset_silence(self) -> None:
        """Count the silence of all workers from now on, because a new job begins."""
        self._silence = dict.fromkeys(self.ranks, 0.0)  # seconds
        self._checked_at = time.monotonic()

    def remove_lost(self, busy: Collection[int], patience: float) -> list[Loss]:
        """Remove the workers that died, ended or hang; return how each was lost.

        A busy worker that is silent for too long counts as hanging, see `_abandon`.

        Args:
            busy: The workers that have work. The silence of other workers does not count.
            patience: Seconds that a busy worker may be silent; a worker that makes its environments has more.

        Raises:
            HostLost: Hosts are silent, and this MPI cannot go on without them, or no other host answers.
        """
        self._transport.find_lost()
        check_silence(self._transport)
        gone = [worker for worker in self.ranks if worker in self._transport.gone]
        self._remove(gone)
        silent = self._silent(busy, patience)
        self._remove(silent)
        # All lost workers are removed by now, so `_abandon` finds no lost rank in `ranks`.
        return [self._loss_of_gone(worker) for worker in gone] + [self._abandon(worker) for worker in silent]

    def _silent(self, busy: Collection[int], patience: float) -> list[int]:
        """Update the silence of all workers; return the busy workers that are silent for too long."""
        passed = time.monotonic() - self._checked_at
        if passed < _SILENCE_INTERVAL:  # with many workers, updates at each call would take longer than receiving
            return []
        self._checked_at += passed
        for worker in self.ranks:
            silence = self._silence[worker] + min(passed, _LONGEST_PASSED)
            self._silence[worker] = silence if worker in busy else 0.0
        return [worker for worker in self.ranks if self._silence[worker] > self._longest_silence(worker, patience)]

    def _longest_silence(self, worker: int, patience: float) -> float:
        return patience if worker in self._ready else max(patience, _LONGEST_SETUP)

    def _remove(self, workers: Collection[int]) -> None:
        self.ranks = tuple(rank for rank in self.ranks if rank not in workers)

    def _loss_of_gone(self, worker: int) -> Loss:
        if worker in self._transport.ended:
            return Loss(worker, Fate.CUT_OFF, "has ended its script")
        if self._transport.hosts[worker] in self._transport.silent:
            return Loss(worker, Fate.CUT_OFF, "was lost: its host is silent")
        return Loss(worker, Fate.DEATH, "was lost")

    def _abandon(self, worker: int) -> Loss:
        """Give up a worker that hangs. Another rank of the same host kills the worker if the job survives a death."""
        transport = self._transport
        transport.abandon(worker)
        if transport.tolerant:
            host, pid = transport.hosts[worker], transport.pids[worker]
            beside = [other for other in self.ranks if transport.hosts[other] == host]
            if host == transport.host:
                kill(pid)
            elif beside:
                self.send(beside[0], Kill(pid))
        return Loss(worker, Fate.HANG, "no longer answers, and is given up")


def note_farewell(transport: Transport, worker: int, message: Message) -> None:
    """Update the transport if a message confirms a worker's dismissal, or says that the worker's script has ended."""
    if isinstance(message, Dismiss | Ended):
        transport.leaving.discard(worker)
    if isinstance(message, Ended):
        transport.mark_ended(worker)


def check_silence(transport: Transport) -> None:
    """Raise HostLost if hosts are silent and this job cannot go on without them."""
    if not transport.silent:
        return
    answering = {host for rank, host in enumerate(transport.hosts) if rank not in transport.gone}
    # If no other host answers, this host may be the one that is cut off.
    if not transport.tolerant or answering <= {transport.host}:
        silent = ", ".join(sorted(transport.silent))
        raise HostLost(f"stopped by the silence of {silent}, for {silence_seconds():g} s ({SILENCE})")
