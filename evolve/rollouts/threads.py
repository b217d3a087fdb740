"""Rollouts of exact tasks in several threads of one process, which share the waiting episodes.

Each thread plays a *part*, a rollout with slots of its own. It takes episodes, generates and describes their genomes,
plays them, and takes the next. Kernels do not need Python's global lock, so threads play on several cores. Each episode
has its key, and no result depends on the thread that plays it.
"""

import math
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from threading import Event, Thread

from evolve.rollouts.episodes import EpisodeBatch, EpisodeFailure, EpisodeResults, join
from evolve.rollouts.exact_rollout import ExactRollout
from evolve.rollouts.queue import EpisodeQueue

_FEEDS_PER_THREAD = 2
"""With more feeds than threads, all threads end at about the same time, although some episodes are longer."""
_MIN_FEED_SECONDS, _MAX_FEED_SECONDS = 0.0005, 0.004
"""Only one thread can feed at a time. A feed that plays for less than the minimum costs more time than it saves. Feeds
that play for longer than the maximum are not better, so it limits the feeds by which a thread takes its fair share."""
_TICK_SECONDS = 0.004
"""The longest duration of a tick without results: short, because a worker probes for messages only between ticks."""


class ThreadedRollout:
    """Plays episodes of an exact task in several threads. It has the interface of `Rollout`.

    Args:
        make_part: Makes the rollout of one thread, which takes its episodes from a queue.
        threads: The number of threads, and of parts.
        least_feed: The smallest number of episodes in a feed while more wait: the slots that a kernel steps together.
    """

    whole_episodes = True

    def __init__(self, make_part: Callable[[EpisodeQueue], ExactRollout], threads: int, least_feed: int) -> None:
        self._queue = EpisodeQueue()
        queues = [self._queue, *(EpisodeQueue(shared_with=self._queue) for _ in range(threads - 1))]
        self._parts = [make_part(queue) for queue in queues]
        self.max_episode_seconds = self._parts[0].max_episode_seconds
        self._pending = 0
        self._playing: set[ExactRollout] = set()
        self._shared = Shared(self._queue, threads, least_feed)
        for _ in range(threads):
            # A daemon does not keep the process alive. No thread refers to this object, so its end stops them.
            Thread(target=self._shared.play, name="evolve-rollout", daemon=True).start()
        self._stop = weakref.finalize(self, self._shared.stop, threads)

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
        """Queue episodes, and let all threads play."""
        self._queue.append(batch)
        self._pending += len(batch)
        self._shared.fair_share = -(-self._pending // len(self._parts))
        self._start()

    def tick(self) -> EpisodeResults | None:
        """Wait for some milliseconds, or until there are results; return the results of finished episodes, if any."""
        self._start()
        found: list[EpisodeResults | None] = []
        try:
            while True:
                found.append(self._receive(wait=not found and bool(self._playing)))
        except Empty:
            if not found and self._shared.hangs(self.max_episode_seconds):
                # Wait without a limit: the watchdog of this thread then acts as if this thread hung in an episode.
                found.append(self._receive(wait=True, seconds=None))
        results = [result for result in found if result is not None]
        self._pending -= sum(map(len, results))
        return join(results) if results else None

    def take_failures(self) -> list[EpisodeFailure]:
        """Return an empty list: episodes of exact tasks cannot fail."""
        return []

    def clear(self) -> None:
        """Drop all episodes."""
        # A thread plays for some milliseconds only. Until then the arrays of its part must not change.
        self._shared.pausing.set()
        while self._playing:
            part, results, _ = self._shared.played.get()
            if results is None:
                self._playing.discard(part)
        self._shared.pausing.clear()
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
        """Do nothing: this process goes on, and shows that it is alive, while threads generate genomes."""

    def _start(self) -> None:
        """Let threads play: as many parts as have work among the waiting episodes."""
        if not len(self._queue):
            return
        idle = [part for part in self._parts if part not in self._playing]
        for part in idle[: -(-len(self._queue) // self._shared.feed_size())]:
            self._playing.add(part)
            self._shared.to_play.put(part)

    def _receive(self, wait: bool, seconds: float | None = _TICK_SECONDS) -> EpisodeResults | None:
        """Return results of a part; None if its thread found no more episodes. Raises Empty, or a thread's error."""
        part, results, error = self._shared.played.get(wait, seconds)
        if results is None:
            self._playing.discard(part)
            self._start()
        if error is not None:
            raise error
        return results


class Shared:
    """The state that the threads and their rollout share: queues of parts to play, and of their results.

    Attributes:
        to_play: Parts for idle threads; None ends a thread.
        played: (part, results, error). Without results, the part has no episodes left, or has failed with the error.
        pausing: Set while no thread may begin a feed.
        fair_share: The pending episodes divided by the number of threads.
        episode_seconds: The mean duration of the last episodes.
    """

    def __init__(self, queue: EpisodeQueue, threads: int, least_feed: int) -> None:
        self.to_play: SimpleQueue[ExactRollout | None] = SimpleQueue()
        self.played: SimpleQueue[tuple[ExactRollout, EpisodeResults | None, BaseException | None]] = SimpleQueue()
        self.pausing = Event()
        self.fair_share = 1
        self.episode_seconds = math.inf
        self._began: dict[ExactRollout, float] = {}  # the time at which a part began to play; inf for an idle part
        self._queue = queue
        self._feeds = _FEEDS_PER_THREAD * threads
        self._least_feed = least_feed

    def play(self) -> None:
        """Play parts until None comes."""
        while (part := self.to_play.get()) is not None:
            error: BaseException | None = None
            try:
                self._play_part(part)
            except BaseException as raised:
                error = raised
            self._began[part] = math.inf  # also after an error
            self.played.put((part, None, error))
            del part  # so that a thread that waits keeps no arrays

    def stop(self, threads: int) -> None:
        """End the threads."""
        self.pausing.set()
        for _ in range(threads):
            self.to_play.put(None)

    def _play_part(self, part: ExactRollout) -> None:
        """Play until no episode is left, or the rollout pauses."""
        while not self.pausing.is_set():
            part.feed(self.feed_size())
            if not part.occupied:
                break
            self._began[part] = time.monotonic()
            part.play_on()
            self._began[part] = math.inf
            results = part.take_results()
            if results is not None:
                self.episode_seconds = float(results.episode_seconds.mean())
                self.played.put((part, results, None))

    def hangs(self, limit: float) -> bool:
        """Return whether a call of a kernel, which should take milliseconds, takes more than `limit` seconds."""
        return time.monotonic() - min(tuple(self._began.values()), default=math.inf) > limit

    def feed_size(self) -> int:
        """Return the largest number of episodes of the next feed."""
        seconds = max(self.episode_seconds, 1e-9)
        short, long = int(_MIN_FEED_SECONDS / seconds), int(_MAX_FEED_SECONDS / seconds)
        return max(len(self._queue) // self._feeds, self._least_feed, short, min(self.fair_share, long))
