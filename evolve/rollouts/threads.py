"""Rollouts of exact tasks in several threads of one process, which share one queue of episodes.

A kernel plays without Python's global lock, so threads play on several cores. Everything else, such as generating
genomes and sending messages, is done by the thread that calls `ThreadedRollout.tick`. Each episode has its key, and no
result depends on the thread that plays it.
"""

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import SimpleQueue
from threading import Thread

from evolve.rollouts.episodes import EpisodeBatch, EpisodeFailure, EpisodeResults, join
from evolve.rollouts.exact_rollout import ExactRollout
from evolve.rollouts.queue import EpisodeQueue

_SHARES = 2
"""Feeds into which the waiting episodes are divided for each thread, so that all threads end at about the same time."""

_Played = SimpleQueue[tuple[ExactRollout, BaseException | None]]


class ThreadedRollout:
    """Plays episodes of an exact task in several threads. It has the interface of `Rollout`.

    Args:
        make_part: Makes the rollout of one thread, which takes its episodes from a queue.
        threads: The number of threads, and of parts.
        least_feed: The smallest number of episodes in a feed while more wait: the slots that a kernel steps together.
    """

    def __init__(self, make_part: Callable[[EpisodeQueue], ExactRollout], threads: int, least_feed: int) -> None:
        self._queue = EpisodeQueue()
        self._parts = [make_part(self._queue) for _ in range(threads)]
        self._least_feed = least_feed
        self.max_episode_seconds = self._parts[0].max_episode_seconds
        self._pending = 0  # counted here, because a thread changes the counts of the part that it plays
        self._playing: set[ExactRollout] = set()
        self._to_play: SimpleQueue[ExactRollout | None] = SimpleQueue()
        self._played: _Played = SimpleQueue()
        for _ in range(threads):
            # A daemon does not keep the process alive. No thread refers to this object, so its end stops them.
            Thread(target=_play, args=(self._to_play, self._played), name="evolve-rollout", daemon=True).start()
        self._stop = weakref.finalize(self, _stop, self._to_play, threads)

    @property
    def environment_seconds(self) -> float:
        """The seconds of playing, in the mean of all threads."""
        return sum(part.environment_seconds for part in self._parts) / len(self._parts)

    @environment_seconds.setter
    def environment_seconds(self, seconds: float) -> None:
        for part in self._parts:
            part.environment_seconds = seconds

    @property
    def pending(self) -> int:
        """The number of episodes without returned results."""
        return self._pending

    @property
    def ticking(self) -> int:
        """The smallest number of episodes that the next tick steps."""
        return min(self.pending, 1)

    def submit(self, batch: EpisodeBatch) -> None:
        """Queue episodes."""
        self._queue.append(batch)
        self._pending += len(batch)

    def tick(self) -> EpisodeResults | None:
        """Wait until a thread has played for some milliseconds; return the results of finished episodes, if any."""
        for part in self._parts:
            if part not in self._playing:
                self._start(part)
        if not self._playing:
            return None
        results = [self._finish(*self._played.get())]
        while not self._played.empty():
            results.append(self._finish(*self._played.get()))
        found = [result for result in results if result is not None]
        self._pending -= sum(map(len, found))
        return join(found) if found else None

    def take_failures(self) -> list[EpisodeFailure]:
        """Return an empty list: episodes of exact tasks cannot fail."""
        return []

    def clear(self) -> None:
        """Drop all episodes."""
        # A thread plays for some milliseconds only. Until then the arrays of its part must not change.
        while self._playing:
            self._playing.discard(self._played.get()[0])
        for part in self._parts:
            part.clear()
        self._pending = 0

    def close(self) -> None:
        """End the threads."""
        self.clear()
        self._stop()

    def call_on_fault(self, callback: Callable[[], None]) -> None:
        """Do nothing: no environment fails."""

    def make_genomes_within(self, context: Callable[[], AbstractContextManager[object]]) -> None:
        """Generate genomes within a context: that time belongs to no episode."""
        self._queue.making = context

    def _start(self, part: ExactRollout) -> None:
        """Feed a part, and let a thread play it, unless it has no episodes."""
        share = len(self._queue) // (_SHARES * len(self._parts))
        part.feed(most=max(share, self._least_feed))
        if part.begun:
            self._playing.add(part)
            self._to_play.put(part)

    def _finish(self, part: ExactRollout, error: BaseException | None) -> EpisodeResults | None:
        """Return the results of a part that a thread has played, and let it play on. Raises the thread's error."""
        self._playing.discard(part)
        if error is not None:
            raise error
        results = part.take_results()
        self._start(part)
        return results


def _play(to_play: "SimpleQueue[ExactRollout | None]", played: _Played) -> None:
    """Play parts until None comes."""
    while (part := to_play.get()) is not None:
        error: BaseException | None = None
        try:
            part.play_on()
        except BaseException as raised:
            error = raised
        played.put((part, error))
        del part  # so that a thread that waits keeps no arrays


def _stop(to_play: "SimpleQueue[ExactRollout | None]", threads: int) -> None:
    for _ in range(threads):
        to_play.put(None)
