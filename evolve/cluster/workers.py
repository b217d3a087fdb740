"""Rank 0 hands out the items of a job to workers (`WorkQueue`), and notices lost workers (`Workers`).

An item is an episode of a batch, or a question of `Coordinator.ask`. The queue knows only the numbers of items. Other
workers get the items of a lost worker. An item that kills or hangs several workers counts as failed.
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

_LONGEST_SETUP = 600.0  # seconds that a worker may take to make its environments
_SILENCE_INTERVAL = 0.1  # seconds between two updates of the time for which each worker has been silent
_LONGEST_PASSED = 0.5  # the most seconds that one update adds to this time, because rank 0 may have been suspended

# Limits of a chunk, see `suitable_sizes`.
_MOST_EPISODES = 8192
_LONG_SECONDS = 1.0
_FEWEST_CHUNKS = 8  # of each worker in a batch
_CHUNK_COST = 3e-4
"""Seconds that rank 0 needs for a chunk: a few messages of about 50 µs each. With n workers a chunk should last n times
as long, or rank 0 would always be busy. In simulations this value was best for 256 workers of 64 threads, and for 1,024
workers of one thread."""

_SUSPECT_STRIKES = 2
"""Each item of a lost worker gets strikes, see `Fate`. An item with this number of strikes is handed out alone: if its
next worker is lost, too, no other item can be the cause."""
_GUILTY_STRIKES = 4
"""An item that was handed out alone counts as failed if it then has this number of strikes, or if the worker hangs."""
_NO_WORKER = 0  # the rank of the coordinator

ChunkSizes = Callable[[int, int], Iterator[int]]
"""Called with the numbers of items and of workers; yields the sizes of chunks."""
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
        least: The size of the smallest chunk that is worth a message. Chunks near the end may be smaller.
    """
    while episodes:
        equal_share = ceil_div(episodes, workers)
        # A chunk has at least `least` episodes, but never more than an equal share of the remaining episodes.
        size = max(equal_share // 2, min(least, equal_share))
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
        spec: The settings of each worker's rollout.
        episode_seconds: The seconds that a worker was busy in the last batch, per episode; 0 if there was no batch. An
            episode lasts longer if a worker plays several side by side.
    """
    least = spec.least_chunk
    # If there was no batch, the time of an episode is unknown, so a chunk has at most one episode per slot, or `least`.
    if not episode_seconds:
        return shrinking_sizes(episodes, workers, max(spec.slots, least), least)
    # The smallest chunk takes so long that its messages are worth their cost.
    worthwhile_seconds = max(spec.chunk_seconds, workers * _CHUNK_COST)
    least = max(min(int(worthwhile_seconds / episode_seconds), _MOST_EPISODES), least)
    # The largest chunk takes `_LONG_SECONDS`, if every worker then gets enough chunks for a good balance. It may be
    # larger to fill the slots of a worker.
    large = min(int(_LONG_SECONDS / episode_seconds), episodes // (_FEWEST_CHUNKS * workers), _MOST_EPISODES)
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
        """Remove and return the next items: a suspect alone, or at most n other items."""
        if self.suspects:
            n = 1
            self.suspects -= 1
        items, self.items = self.items[:n], self.items[n:]
        return items

    def put_last(self, items: Int64) -> None:
        """Append items when no worker is left. Rank 0 then plays all items itself, so no item is a suspect any more."""
        self.items = np.concatenate([self.items, items])
        self.suspects = 0

    def put_back(self, items: Int64, are_suspects: bool) -> None:
        """Insert suspects at the front, and other items directly after the suspects."""
        place = 0 if are_suspects else self.suspects
        self.items = np.insert(self.items, place, items)
        if are_suspects:
            self.suspects += len(items)


class Fate(IntEnum):
    """The way in which a worker was lost. The value is the number of strikes that each of its items gets."""

    CUT_OFF = 0  # its host is silent, or its script has ended
    DEATH = 1
    HANG = 2


class WorkQueue:
    """Hands out the items of a job in chunks. A worker gets the next chunk while it works on one.

    Args:
        size: N; the items are numbered 0 to N - 1.
        workers: The ranks of the workers.
        chunk_sizes: Called by `hand_out`; yields the sizes of chunks.
        send: Sends items to a worker.
        uneven: Whether items may take unequal times. Then only idle workers get the last few items, because an item
            that waits for a long one would end late.
    """

    def __init__(
        self, size: int, workers: Iterable[int], chunk_sizes: ChunkSizes, send: Send, uneven: bool = True
    ) -> None:
        self._chunk_sizes = chunk_sizes
        self._send = send
        self._uneven = uneven
        self._done = np.zeros(size, np.bool_)  # whether each item has a result
        self.unfinished = size
        """The number of items without a result."""
        self._owner = np.full(size, _NO_WORKER, np.int32)  # the worker that has each item
        self._strikes = np.zeros(size, np.int8)
        self._in_hand = dict.fromkeys(workers, 0)  # the number of unfinished items that were sent to each worker
        self.busy: set[int] = set()
        """The workers that have items in hand."""
        self._isolated: set[int] = set()  # workers that have a suspect, and no other item
        self.pending = PendingItems(size)
        self.items_of_last_worker: Int64 = np.zeros(0, np.int64)
        """The unfinished items [n] of the last worker, when it was lost."""

    @property
    def num_idle(self) -> int:
        """The number of workers without items."""
        return len(self._in_hand) - len(self.busy)

    @property
    def items_ahead(self) -> int:
        """The number of items that each worker has in advance. Rank 0 may sleep while a worker plays them.

        It is 0 for questions, while suspects wait, and near the end of the job.
        """
        return self._most_in_hand() if self._uneven else 0

    def _most_in_hand(self) -> int:
        """Return the largest number of unfinished items with which a worker may get another chunk."""
        # Only an idle worker gets a suspect. Another worker may have a chunk in hand when it gets the next one.
        last_few = self._uneven and len(self.pending) <= len(self._in_hand)
        return 0 if self.pending.suspects or last_few else self._next_size

    def hand_out(self) -> None:
        """Send each worker a chunk, and a second one in advance, if it may have them.

        Call this at the start of a job and after losses of workers: it computes new sizes of chunks.
        """
        self._sizes = self._chunk_sizes(len(self.pending), len(self._in_hand))
        self._next_size = next(self._sizes, 0)
        # Each worker gets its first chunk before any worker gets a second one.
        for worker in (*self._in_hand, *self._in_hand):
            self._send_chunk(worker)

    def finish(self, worker: int, items: Int64) -> bool:
        """Record that a worker finished items, and send it more.

        Returns False if one of the items was finished before. Then none of them counts: a result counts only once.
        """
        are_new = not self._done[items].any()
        if are_new:
            self._done[items] = True
            self.unfinished -= len(items)
        if worker in self._in_hand:
            self._in_hand[worker] -= len(items)
            if not self._in_hand[worker]:
                self.busy.discard(worker)
                self._isolated.discard(worker)
            while self._send_chunk(worker):
                pass
        return are_new

    def remove(self, worker: int, fate: Fate) -> tuple[int, Int64]:
        """Remove a lost worker. Its items are pending again: `hand_out` or `finish` sends them to other workers.

        Each item of the worker gets the strikes of the worker's fate. If an item then has two strikes, all items of the
        worker are suspects: they are handed out alone from now on. If a suspect hangs a worker, or has four strikes, it
        counts as failed.

        Items that are pending again are handed out first. If no worker is left, rank 0 plays them after all other
        items.

        Returns:
            The number of items that are pending again, and the items [n] that count as failed.
        """
        del self._in_hand[worker]
        self.busy.discard(worker)
        items = np.flatnonzero((self._owner == worker) & ~self._done)
        self._owner[items] = _NO_WORKER
        self._strikes[items] += fate
        was_alone = worker in self._isolated and len(items) == 1
        # If a worker hangs with only one item, this item is the cause. A death may have another cause.
        if was_alone and (fate == Fate.HANG or self._strikes[items[0]] >= _GUILTY_STRIKES):
            self._done[items] = True
            self.unfinished -= 1
            return 0, items
        if self._in_hand:
            self.pending.put_back(items, are_suspects=bool(self._strikes[items].max(initial=0) >= _SUSPECT_STRIKES))
        else:
            self.pending.put_last(items)
            self.items_of_last_worker = items
        return len(items), items[:0]  # no item counts as failed

    def _send_chunk(self, worker: int) -> bool:
        """Send a worker one chunk if it may have one; return whether it was sent."""
        if not len(self.pending) or worker in self._isolated:
            return False
        if self._in_hand[worker] > self._most_in_hand():
            return False
        # `take` reduces the number of suspects, so read it first.
        is_suspect = self.pending.suspects > 0
        items = self.pending.take(self._next_size)
        if is_suspect:
            self._isolated.add(worker)
        else:
            self._next_size = next(self._sizes, 1)  # 1 if no items are left
        self._owner[items] = worker
        self._in_hand[worker] += len(items)
        self.busy.add(worker)
        self._send(worker, items)
        return True


@dataclass(frozen=True)
class Loss:
    """The loss of a worker, with a description for a warning."""

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
            # its messages belong to an earlier job. Look before `note_farewell` changes `gone` and `leaving`.
            is_ignored = worker in self._transport.gone or worker in self._transport.leaving
            note_farewell(self._transport, worker, message)
            if not (is_ignored or isinstance(message, Ended)):
                self._ready.add(worker)
                self._silence[worker] = 0.0
                return worker, message
        return None

    def reset_silence(self) -> None:
        """Count the silence of all workers from 0, because a new job begins."""
        self._silence = dict.fromkeys(self.ranks, 0.0)  # seconds
        self._checked_at = time.monotonic()

    def remove_lost(self, busy: Collection[int], patience: float) -> list[Loss]:
        """Remove the workers that died, ended or hang; return their losses.

        A busy worker that is silent for too long counts as hanging, see `_abandon`.

        Args:
            busy: The workers that have work. The silence of other workers does not count.
            patience: The seconds for which a busy worker may be silent; longer while it makes its environments.

        Raises:
            HostLost: See `check_silence`.
        """
        self._transport.find_lost()
        check_silence(self._transport)
        gone = [worker for worker in self.ranks if worker in self._transport.gone]
        self._remove(gone)
        silent = self._update_silence(busy, patience)
        self._remove(silent)
        # First remove all lost workers, because `_abandon` sends a message to one of the other workers.
        return [self._loss_of_gone(worker) for worker in gone] + [self._abandon(worker) for worker in silent]

    def _update_silence(self, busy: Collection[int], patience: float) -> list[int]:
        """Update the silence of all workers; return the busy workers that are silent for too long."""
        passed = time.monotonic() - self._checked_at
        if passed < _SILENCE_INTERVAL:  # with many workers, updates at each call would take longer than receiving
            return []
        self._checked_at += passed
        for worker in self.ranks:
            silence = self._silence[worker] + min(passed, _LONGEST_PASSED)
            self._silence[worker] = silence if worker in busy else 0.0
        setup_patience = max(patience, _LONGEST_SETUP)
        limits = {worker: patience if worker in self._ready else setup_patience for worker in self.ranks}
        return [worker for worker, limit in limits.items() if self._silence[worker] > limit]

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
            workers_there = [rank for rank in self.ranks if transport.hosts[rank] == host]
            if host == transport.host:
                kill(pid)
            elif workers_there:
                self.send(workers_there[0], Kill(pid))
        return Loss(worker, Fate.HANG, "no longer answers, and is given up")


def note_farewell(transport: Transport, worker: int, message: Message) -> None:
    """Note in the transport if a message confirms a worker's dismissal, or says that the worker's script has ended."""
    if isinstance(message, Dismiss | Ended):
        transport.leaving.discard(worker)
    if isinstance(message, Ended):
        transport.mark_ended(worker)


def check_silence(transport: Transport) -> None:
    """Raise HostLost if hosts are silent, and MPI does not survive their loss or no other host answers."""
    if not transport.silent:
        return
    answering = {host for rank, host in enumerate(transport.hosts) if rank not in transport.gone}
    # If no other host answers, this host may be the one that is cut off.
    if not transport.tolerant or answering <= {transport.host}:
        silent = ", ".join(sorted(transport.silent))
        raise HostLost(f"stopped by the silence of {silent}, for {silence_seconds():g} s ({SILENCE})")
