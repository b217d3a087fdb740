"""The work queue: which worker has which episodes or questions, and what is still to be handed out.

The work of a lost worker goes to others. An episode that ends several workers is found and counted as failed.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum

import numpy as np

from evolve.cluster import messages
from evolve.cluster.messages import Answer, Chunk, Message, Question
from evolve.cluster.transport import Buffer, Transport
from evolve.rollouts import EpisodeBatch, EpisodeResults
from evolve.shapes import Int64

_MOST_EPISODES = 2048  # in a chunk, unless there are more slots
_LONG_SECONDS, _SHARES = 0.5, 8
"""A chunk is larger than the slots if it takes no longer, and is no more than such a part of a worker's fair share."""


_SUSPECT = 2
"""Strikes from which on an episode is played alone, so that nothing else can be to blame."""
_GUILTY = 4
"""Strikes with which an episode that was alone counts as failed; a hang alone is enough."""
_NOBODY = 0  # rank 0 is the coordinator
_LOG = logging.getLogger("evolve")
_AHEAD = 2  # questions that a worker has at a time


def shrinking_sizes(episodes: int, workers: int, largest: int, least: int) -> Iterator[int]:
    """Yield the sizes of the chunks that some episodes are handed out in.

    Factoring (Hummel, Schonberg and Flynn, 1992): in each round every worker gets the same share of half of what is
    left.

    Args:
        episodes: How many there are.
        workers: How many take part.
        largest: No chunk is larger.
        least: A smaller chunk is not worth its handling while there is more.
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
    """Yield the sizes of the chunks of a batch: as large as is no risk, since each costs a message and an answer.

    Args:
        episodes: How many there are.
        workers: How many take part.
        slots: How many episodes a worker plays at a time.
        worthwhile_seconds: Less work is not worth its handling while there is more.
        episode_seconds: How long an episode took in the last batch; 0 where there was none.
        fewest: How many a chunk has at least while there are more, whatever they take.
    """
    if not episode_seconds:
        return shrinking_sizes(episodes, workers, max(slots, fewest), fewest)
    least = max(min(int(worthwhile_seconds / episode_seconds), _MOST_EPISODES), fewest)
    large = min(int(_LONG_SECONDS / episode_seconds), episodes // (_SHARES * workers), _MOST_EPISODES)
    return shrinking_sizes(episodes, workers, max(slots, least, large), least)


class PendingEpisodes:
    """Episodes that wait for a worker, as indices into their batch: N at first, in this order."""

    def __init__(self, episodes: int) -> None:
        self._indices: Int64 = np.arange(episodes)
        self.suspects = 0
        """How many of the first may be what hangs or kills a worker, and are to be handed out alone."""

    def __len__(self) -> int:
        return len(self._indices)

    def take(self, n: int) -> Int64:
        """Return the next episodes [n], at most n."""
        if self.suspects:
            n = 1
            self.suspects -= 1
        indices, self._indices = self._indices[:n], self._indices[n:]
        return indices

    def take_all(self) -> Int64:
        """Return all episodes that are left."""
        indices, self._indices = self._indices, self._indices[:0]
        return indices

    def put_last(self, indices: Int64) -> None:
        """Hand episodes out again, after all others, and none of them alone."""
        self._indices = np.concatenate([self._indices, indices])
        self.suspects = 0

    def put_back(self, indices: Int64, alone: bool) -> None:
        """Hand episodes out again, before any other (but those that are to be alone)."""
        self._indices = np.insert(self._indices, 0 if alone else self.suspects, indices)
        self.suspects += len(indices) if alone else 0


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


class Questions:
    """A round of questions.

    Args:
        transport: To the workers.
        workers: Their ranks; modified: lost workers are removed.
        questions: What is asked.
        serial: The number of the round, which workers send back.
        patience: How long a worker may take to answer, in seconds, before it is done without.
    """

    def __init__(
        self, transport: Transport, workers: list[int], questions: Sequence[Buffer], serial: int, patience: float
    ) -> None:
        self._transport = transport
        self._workers = workers
        self._questions = questions
        self._serial = serial
        self._patience = patience
        self._waiting = deque(range(len(questions)))
        self._asked: dict[int, list[int]] = {worker: [] for worker in workers}
        self._heard = dict.fromkeys(workers, time.monotonic())
        self.answers: list[tuple[int, Buffer] | None] = [None] * len(questions)
        """Who answered each question, and what."""
        for worker in workers * _AHEAD:
            self._ask(worker)

    @property
    def unanswered(self) -> int:
        """How many questions may still be answered; none without workers."""
        return self.answers.count(None) if self._workers else 0

    def take(self, worker: int, message: Message) -> bool:
        """Return whether a message is an answer, which is kept then; its worker is asked more."""
        if worker in self._heard:
            self._heard[worker] = time.monotonic()
        if not isinstance(message, Answer):
            return False
        if message.serial == self._serial and worker in self._asked and self.answers[message.number] is None:
            self.answers[message.number] = worker, message.content
            self._asked[worker].remove(message.number)
            self._ask(worker)
        return True

    def look(self) -> None:
        """Look once for dead and for silent workers; others are asked what they were asked."""
        for worker in self._transport.lost():
            self._do_without(worker, "was lost")
        now = time.monotonic()
        for worker in list(self._workers):
            if self._asked[worker] and now - self._heard[worker] > self._patience:
                self._transport.abandon(worker)
                self._do_without(worker, "no longer answers, and is given up")

    def _do_without(self, worker: int, how: str) -> None:
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        self._waiting.extendleft(self._asked.pop(worker))
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        _LOG.warning("%s: rank %d on %s %s; others do its work", when, worker, self._transport.hosts[worker], how)
        for other in self._workers * _AHEAD:
            self._ask(other)

    def _ask(self, worker: int) -> None:
        if self._waiting and len(self._asked[worker]) < _AHEAD:
            number = self._waiting.popleft()
            self._asked[worker].append(number)
            if len(self._asked[worker]) == 1:
                self._heard[worker] = time.monotonic()
            self._transport.send(worker, messages.encode(Question(self._serial, number, self._questions[number])))
