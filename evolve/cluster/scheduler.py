"""Which worker has which episodes; what a lost worker had goes to others, and an episode that ends workers is found."""

from collections.abc import Callable, Iterator
from enum import IntEnum

import numpy as np

from evolve.cluster import messages
from evolve.cluster.messages import Chunk
from evolve.cluster.pending import PendingEpisodes
from evolve.cluster.transport import Transport
from evolve.rollouts import EpisodeBatch, EpisodeResults
from evolve.shapes import Int64

_SUSPECT = 2
"""Strikes from which on an episode is played alone, so that nothing else can be to blame."""
_GUILTY = 4
"""Strikes with which an episode that was alone counts as failed; a hang alone is enough."""
_NOBODY = 0  # rank 0 is the coordinator

ChunkSizes = Callable[[int, int], Iterator[int]]
"""Called with the number of episodes and of workers; yields the sizes of chunks."""


class Fate(IntEnum):
    """What has become of a worker; in strikes against the episodes that it had."""

    CUT_OFF = 0
    DEATH = 1
    HANG = 2


class Scheduler:
    """Hands a batch out in chunks, and keeps every worker one chunk ahead. Episodes are indices into the batch.

    Args:
        transport: To the workers.
        workers: Their ranks; modified: lost workers are removed.
        batch: N episodes.
        serial: The number of the evaluation, which workers send back.
        setup: The number of the setup whose rollout workers use.
        chunk_sizes: Yields the sizes of chunks.
    """

    def __init__(
        self,
        transport: Transport,
        workers: list[int],
        batch: EpisodeBatch,
        serial: int,
        setup: int,
        chunk_sizes: ChunkSizes,
    ) -> None:
        self._transport = transport
        self._workers = workers
        self._batch = batch
        self._serial = serial
        self._setup = setup
        self._chunk_sizes = chunk_sizes
        self._indices = _indices_by_key(batch)
        self._done = np.zeros(len(batch), np.bool_)
        self.unfinished = len(batch)
        """How many episodes have no result yet."""
        self._owner = np.full(len(batch), _NOBODY, np.int32)
        self._strikes = np.zeros(len(batch), np.int8)
        self._in_flight = dict.fromkeys(workers, 0)  # episodes sent to each worker, without results yet
        self.idle = len(workers)
        """How many workers have nothing to do."""
        self._silence = dict.fromkeys(workers, 0.0)  # seconds
        self._isolated: set[int] = set()  # workers that play a suspected episode, and nothing else
        self.pending = PendingEpisodes(len(batch))
        self.lost_last: Int64 = np.zeros(0, np.int64)
        """The episodes [n] that the last worker had when it was lost."""

    def start(self) -> None:
        """Send every worker a chunk, and one ahead; sizes begin anew."""
        self._sizes = self._chunk_sizes(len(self.pending), len(self._workers))
        self._next_size = next(self._sizes, 0)
        for worker in (*self._workers, *self._workers):
            self._send(worker)

    def mark_done(self, results: EpisodeResults) -> bool:
        """Note that episodes have results. Returns False if one had already: the results are then to be dropped."""
        indices = self._indices[results.genomes, results.episodes]
        if self._done[indices].any():
            return False
        self._done[indices] = True
        self.unfinished -= len(indices)
        return True

    def reset_silence(self, worker: int) -> None:
        """Note that a worker has sent something."""
        if worker in self._silence:
            self._silence[worker] = 0.0

    def refill(self, worker: int, completed: int) -> None:
        """Send a worker more, for it has completed some episodes."""
        if worker in self._in_flight:
            self._in_flight[worker] -= completed
            if completed and not self._in_flight[worker]:
                self.idle += 1
                self._isolated.discard(worker)
            while self._send(worker):
                pass

    def add_silence(self, seconds: float, timeout: Callable[[int], float]) -> list[int]:
        """Let time pass; return the workers that have episodes and were silent for longer than their timeout."""
        for worker in self._workers:
            self._silence[worker] = self._silence[worker] + seconds if self._in_flight[worker] else 0.0
        return [worker for worker in self._workers if self._silence[worker] > timeout(worker)]

    def remove(self, worker: int, fate: Fate) -> tuple[int, Int64]:
        """Remove a worker that is lost, and give its episodes to the others.

        Every episode that it had gets a strike for a death, two for a hang, none for a host cut off. With two it is
        played again alone; when it was alone, a hang or a fourth strike proves that it is what ends workers, and it
        counts as failed.

        Returns:
            How many episodes are played again, and those [n] that count as failed. With no worker left nobody plays
            them here; they are the last of `pending`.
        """
        self._workers.remove(worker)
        self.idle -= not self._in_flight.pop(worker)
        had = np.flatnonzero((self._owner == worker) & ~self._done)
        self._owner[had] = _NOBODY
        self._strikes[had] += fate
        if worker in self._isolated and len(had) == 1 and (fate == Fate.HANG or self._strikes[had[0]] >= _GUILTY):
            self._done[had] = True
            self.unfinished -= 1
            return 0, had
        if self._workers:
            self.pending.put_back(had, alone=bool(self._strikes[had].max(initial=0) >= _SUSPECT))
            self.start()
        else:
            self.pending.put_last(had)
            self.lost_last = had
        return len(had), had[:0]

    def _send(self, worker: int) -> bool:
        """Send a worker one chunk, if it may have one; return whether it was sent."""
        if not len(self.pending) or worker in self._isolated:
            return False
        suspected = self.pending.suspects > 0
        # An episode queued behind another would end late, so the last few go to workers that have nothing to do.
        few_left = len(self.pending) <= len(self._workers)
        allowed = 0 if suspected or few_left else self._next_size
        if self._in_flight[worker] > allowed:
            return False
        indices = self.pending.take(self._next_size)
        if suspected:
            self._isolated.add(worker)
        else:
            self._next_size = next(self._sizes, 1)
        self._owner[indices] = worker
        self.idle -= not self._in_flight[worker]
        self._in_flight[worker] += len(indices)
        chunk = Chunk(self._serial, self._setup, self._batch.take(indices))
        self._transport.send(worker, messages.encode(chunk))
        return True


def _indices_by_key(batch: EpisodeBatch) -> Int64:
    """Return [C, most episodes]: the index of each (genome, episode) in a batch."""
    indices = np.zeros((len(batch.genomes), int(batch.episodes.max(initial=0)) + 1), np.int64)
    indices[batch.rows, batch.episodes] = np.arange(len(batch))
    return indices
