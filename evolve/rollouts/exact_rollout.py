"""Plays episodes of exact tasks in one thread or in several. One call of a kernel plays many whole episodes.

`ExactRollout` gives a *feed*, many episodes at a time, to a `Play`. The `Play` is a `NativePlay` on the host, or a
`DevicePlay` on a GPU, and plays them in its slots.

`ThreadedRollout` plays in several threads, which share the waiting episodes. One of them is the thread that calls
`tick`. Each thread plays a *part*: an `ExactRollout` with its own slots, which takes episodes, generates their genomes,
and plays them. When no episodes wait, an idle thread gets half of the running episodes of another thread, if the task
has rigid bodies. Kernels run without Python's global lock, so threads play on several cores. No result depends on the
thread that plays an episode.
"""

import math
import sys
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread, stack_size

import numpy as np

from evolve.rollouts.episodes import EpisodeBatch, EpisodeFailure, EpisodeResults, join
from evolve.rollouts.native_play import BITS_OF_EPISODES, Feed, NativePlay, Play
from evolve.rollouts.queue import EpisodeQueue, EpisodesToBegin
from evolve.rollouts.results import genomes_of_traces
from evolve.shapes import Int64, ceil_div

CALL_SECONDS = 0.004
"""The intended duration of a call of `Play.run`: short, because a worker probes for messages only between calls."""
_RESULTS_SECONDS = 0.1
"""The time for which results may be held back, because returning only a few takes as long as playing their episodes."""
LEAST_STEPS = 16
"""The smallest limit of the steps of a call, because each call costs time."""
_FEEDS_PER_THREAD = 2
"""With more feeds than threads, all threads end at about the same time, although some episodes are longer."""
_MIN_FEED_SECONDS, _MAX_FEED_SECONDS = 0.001, 0.004
"""The shortest and the longest time that a thread should need for a feed. A shorter feed is not worth another thread. A
longer feed saves no more time. If a thread's share of the episodes takes longer, it is divided into several feeds."""
LEAST_GIVEN = 4
"""The smallest number of running episodes that a thread gives to another thread, and that it keeps itself."""
POLL_SECONDS = 0.002
"""The interval at which a thread without episodes checks whether another thread can still give some."""
_GIVE_SECONDS = 1.0
"""The longest time that a pausing thread waits for episodes that another thread gives. Giving takes milliseconds."""
_STACK_BYTES = 2**23
"""The stack of a thread. Rigid-body kernels need 400 kB; a script may have set less."""
_TICK_SECONDS = 0.004
"""The longest duration of a tick without results: short, because a worker probes for messages only between ticks."""


class _WholeEpisodes:
    """The methods of `Rollout` that are the same in all rollouts of exact tasks."""

    whole_episodes = True
    """Whether a tick plays many steps, and an episode cannot fail."""

    def take_failures(self) -> list[EpisodeFailure]:
        """Return an empty list: episodes of exact tasks cannot fail."""
        return []

    def call_on_fault(self, callback: Callable[[], None]) -> None:
        """Do nothing: no environment fails."""


class ExactRollout(_WholeEpisodes):
    """Plays episodes of an exact task. It has the interface of `Rollout`.

    Args:
        play: Plays the episodes in its slots.
        max_episode_seconds: The limit of an episode's wall time. Exact episodes are too short to reach it.
        queue: The queue from which the rollout takes episodes.
    """

    def __init__(self, play: Play, max_episode_seconds: float, queue: EpisodeQueue) -> None:
        self.max_episode_seconds = max_episode_seconds
        self.environment_seconds = 0.0
        """The seconds of playing. A kernel steps environments and networks together, so both are included."""
        self.play = play
        self.queue = queue
        """The episodes that wait for a feed. Other rollouts may share them."""
        self._held: EpisodesToBegin | None = None  # taken from the queue; they wait until no episode runs
        self._traces = "none"
        self._best_of = 0
        self.most_running = sys.maxsize
        """The largest number of episodes that run at a time while others wait, see `ThreadsState.most_running_of`."""
        self.steps = 64
        """The limit of steps of the next call of `Play.run`. After each call it is adapted to `CALL_SECONDS`."""
        self.longest_call = 0.0
        """The seconds of the longest call of `Play.run`. On a device the first call may include compilation."""
        # The steps of the episodes whose results were not returned yet, and the seconds that these steps took.
        self._steps_played = 0
        self._seconds_played = 0.0
        self._seconds_since_results = 0.0  # seconds of playing

    @property
    def pending(self) -> int:
        """The number of episodes that have not ended: queued, held, waiting or being played."""
        return len(self.queue) + self.running - self.play.finished

    @property
    def running(self) -> int:
        """The number of episodes that have left the queue, but whose results were not returned.

        They include episodes that `play.running` does not count: held, waiting and finished ones.
        """
        held = 0 if self._held is None else len(self._held)
        return held + self.play.waiting + self.play.running + self.play.finished

    def submit(self, batch: EpisodeBatch) -> None:
        """Queue episodes."""
        self.queue.append(batch)

    def tick(self) -> EpisodeResults | None:
        """Play for some milliseconds; return the results of finished episodes, or None if there are none yet.

        While episodes of a feed wait, results are held back for about `_RESULTS_SECONDS`, to return many at a time.
        """
        self.fill()
        self.play_on()
        return self.take_results()

    def fill(self, most: int = sys.maxsize) -> None:
        """If `play` is ready, give it at most `most` of the next episodes of the queue."""
        may_begin = self.most_running - self.play.running
        if not self.play.ready or may_begin <= 0:
            return
        # Held episodes come first.
        episodes, self._held = self._held, None
        if episodes is None:
            episodes = self.queue.take(min(most, self.play.feed_size, may_begin))
        if episodes is None:
            return
        # Slots with factors (`FactoredGenomes`) share one centre. Genomes of another centre wait until no episode runs.
        if self.play.running and not self.play.batch.fits(episodes.genomes):
            self._held = episodes
        else:
            self._feed(episodes)

    def play_on(self) -> None:
        """Play for some milliseconds."""
        busy_slots = self._busy_slots
        began_at = time.perf_counter()
        # End the call at a free slot only if `fill` can use it: if no episodes are held, and the limit is not reached.
        more = len(self.queue) > 0 and self._held is None and self.play.running < self.most_running
        steps_made = self.play.run(self.steps, more)
        seconds = time.perf_counter() - began_at
        self._count(steps_made, busy_slots, seconds, seconds)

    @property
    def _busy_slots(self) -> int:
        """The number of slots in which the next call plays."""
        return min(self.play.slots, self.play.waiting + self.play.running)

    def _count(self, steps_made: int, busy_slots: int, seconds: float, waited: float) -> None:
        """Count the steps and the time of a call of `Play.run`, and set the limit of steps of the next call.

        busy_slots: The number of slots in which the call played. seconds: The duration of the call. waited: The same
            without the time in which this process did other work.
        """
        seconds = max(seconds, 1e-6)  # prevents a division by 0
        self.longest_call = max(self.longest_call, seconds)
        self._steps_played += steps_made
        self._seconds_played += waited
        self._seconds_since_results += waited
        self.environment_seconds += waited
        if not steps_made:
            return
        # The next call should take `CALL_SECONDS` at the speed of this one. Episodes may have ended long before the
        # limit of this call, so the speed follows from the steps that were made. The limit at most doubles, so that a
        # wrong speed does not make the next call long.
        fitting = int(steps_made / busy_slots * CALL_SECONDS / seconds)
        self.steps = max(LEAST_STEPS, min(2 * self.steps, fitting))

    def take_results(self) -> EpisodeResults | None:
        """Return the results of finished episodes; None if there are none, or if they may be held back."""
        due = not self.play.waiting or self._seconds_since_results > _RESULTS_SECONDS
        return self._results() if due and self.play.finished else None

    @property
    def can_give(self) -> bool:
        """Whether running episodes can go on in another rollout, and whether that saves time."""
        # A kernel steps a few rigid-body worlds in less time than many. In other tasks it always steps whole tiles, so
        # nothing would be saved.
        return self.play.task.has_world and self.play.batch.can_give

    def give(self, other: "ExactRollout") -> None:
        """Give half of the running episodes to an empty rollout of the same task and network.

        `can_give` must be True for both rollouts.
        """
        assert isinstance(self.play, NativePlay)
        assert isinstance(other.play, NativePlay)
        steps = self.play.give(other.play, self.play.running // 2)
        other._steps_played += steps
        other._seconds_played += self._take_seconds(steps)
        other._traces, other._best_of = self._traces, self._best_of

    def clear(self) -> None:
        """Drop all episodes."""
        self.queue.clear()
        self._held = None
        self.play.clear()
        self._steps_played, self._seconds_played, self._seconds_since_results = 0, 0.0, 0.0

    def close(self) -> None:
        """Do nothing: there are no environments."""

    def _feed(self, episodes: EpisodesToBegin) -> None:
        """Give episodes to `play`."""
        seeds = episodes.seeds
        if self.play.batch.seeded:
            # The initial columns depend on the seed, so each episode needs its own, even if a genome plays several.
            genomes, numbers = episodes.genome_of_each(), np.arange(len(seeds), dtype=np.int32)
        else:
            genomes, numbers = episodes.genomes, episodes.numbers.astype(np.int32)
        self._traces, self._best_of = episodes.traces, episodes.best_of
        keys: Int64 = (episodes.genome_ids.astype(np.int64) << BITS_OF_EPISODES) + episodes.episodes
        columns = self.play.batch.columns_of(genomes, seeds)
        # A mask without columns requests no traces.
        mask = genomes.mask if self._traces != "none" else genomes.mask[:, :0]
        parameters = self.play.task.parameters_of(seeds).T
        self.play.feed(Feed(columns, numbers, seeds, keys, episodes.normalizers, mask, parameters))

    def _take_seconds(self, steps: int) -> float:
        """Remove `steps` steps from the counts of played steps and seconds; return their seconds.

        All steps are assumed to take the same time.
        """
        seconds = self._seconds_played * steps / max(self._steps_played, 1)
        self._steps_played -= steps
        self._seconds_played -= seconds
        return seconds

    def _results(self) -> EpisodeResults:
        """Return the results of finished episodes."""
        self._seconds_since_results = 0.0
        played = self.play.take(self._best_of)
        # The running episodes keep their share of the seconds.
        steps = int(played.lengths.sum(dtype=np.int64))
        seconds_per_step = self._take_seconds(steps) / max(steps, 1)
        genomes = (played.keys >> BITS_OF_EPISODES).astype(np.int32)
        traced = genomes_of_traces(genomes, self._traces)
        return EpisodeResults(
            genomes=genomes,
            episodes=played.keys.astype(np.int32),  # the lower half of the key
            returns=played.returns,
            lengths=played.lengths,
            fingerprints=played.fingerprints,
            moments=played.moments,
            episode_seconds=(played.lengths * seconds_per_step).astype(np.float32),
            encoded_metrics=np.zeros((len(genomes), 2, 0), np.int64),
            hashed=played.hashed,
            step_hashes=played.step_hashes,
            traced=traced,
            traces=played.traces[: len(traced)],
            **self.queue.take_descriptions(),
        )


class ThreadedRollout(_WholeEpisodes):
    """Plays episodes of an exact task in several threads. It has the interface of `Rollout`.

    The thread that calls `tick` plays the first part, so it does not wait until another thread has woken up. That would
    take longer than a small generation.

    Args:
        make_part: Makes the rollout of one thread, which takes its episodes from a queue.
        threads: The number of threads, including the thread that calls `tick`. Each has a part.
        least_feed: The smallest number of episodes in a feed while more wait.
    """

    def __init__(self, make_part: Callable[[EpisodeQueue], ExactRollout], threads: int, least_feed: int) -> None:
        self.queue = EpisodeQueue()
        """The queue of the thread that calls `tick`. The queues of the other threads take from the same batches."""
        queues = [self.queue, *(EpisodeQueue(shared_with=self.queue) for _ in range(threads - 1))]
        self._parts = [make_part(queue) for queue in queues]
        self._own, *self._others = self._parts
        self.max_episode_seconds = self._parts[0].max_episode_seconds
        self.pending = 0
        """The number of episodes whose results were not returned yet."""
        self._playing: set[ExactRollout] = set()  # the parts that other threads play now
        self._shared = ThreadsState(self.queue, threads, least_feed)
        # The size applies to all threads that this process starts later, so it is restored below.
        earlier_size = stack_size(_STACK_BYTES)
        try:
            for _ in self._others:
                # A daemon thread does not keep the process alive. The threads refer to `_shared`, but not to this
                # object, so the finalizer below can run and end them.
                Thread(target=self._shared.play_parts, name="evolve-rollout", daemon=True).start()
        finally:
            stack_size(earlier_size)
        self._stop = weakref.finalize(self, self._shared.stop, len(self._others))

    @property
    def environment_seconds(self) -> float:
        """The seconds of playing, averaged over the threads."""
        return sum(part.environment_seconds for part in self._parts) / len(self._parts)

    @environment_seconds.setter
    def environment_seconds(self, seconds: float) -> None:
        for part in self._parts:
            part.environment_seconds = seconds

    def submit(self, batch: EpisodeBatch) -> None:
        """Queue episodes, and let other threads play them."""
        self.queue.append(batch)
        self.pending += len(batch)
        self._shared.fair_share = ceil_div(self.pending, len(self._parts))
        for part in self._parts:
            part.most_running = self._shared.most_running_of(part)

    def tick(self) -> EpisodeResults | None:
        """Play for some milliseconds; return the results of finished episodes, or None if there are none yet."""
        received: list[EpisodeResults | None] = []
        # Take episodes before waking threads: they take Python's global lock, and this thread would wait for it.
        can_play = self._shared.fill(self._own, patience=_TICK_SECONDS)
        self._start()
        if can_play:
            received.append(self._shared.play_on(self._own))
        try:
            while True:
                # If nothing was received yet, wait for another thread. Then take all that others have sent.
                received.append(self._receive(wait=not received and bool(self._playing)))
        except Empty:
            if not received and self._shared.hangs(self.max_episode_seconds):
                # Wait without a limit: the watchdog of this thread then acts as if this thread hung in an episode.
                received.append(self._receive(wait=True, seconds=None))
        results = [result for result in received if result is not None]
        self.pending -= sum(map(len, results))
        return join(results) if results else None

    def clear(self) -> None:
        """Drop all episodes."""
        # Other threads play on for some milliseconds. Until they pause, the arrays of their parts must not change.
        self._shared.pausing.set()
        while self._playing:
            part, results, _ = self._shared.played.get()
            if results is None:
                self._playing.discard(part)
        self._shared.reset()
        for part in self._parts:
            part.clear()
        self.pending = 0

    def close(self) -> None:
        """End the threads."""
        self.clear()
        self._stop()

    def _start(self) -> None:
        """Let idle threads play, one for each feed that the waiting episodes fill."""
        if not len(self.queue):
            return
        idle = [part for part in self._others if part not in self._playing]
        num_feeds = ceil_div(len(self.queue), self._shared.feed_size())
        # If the part of this thread has no episodes, it takes a feed in the next tick.
        own_feeds = 0 if self._own.running else 1
        for part in idle[: num_feeds - own_feeds]:
            self._playing.add(part)
            self._shared.to_play.put(part)

    def _receive(self, wait: bool, seconds: float | None = _TICK_SECONDS) -> EpisodeResults | None:
        """Return results of a part; None if a thread has stopped playing it. Raises Empty, or the error of a thread."""
        part, results, error = self._shared.played.get(wait, seconds)
        if results is None:
            self._playing.discard(part)
            self._start()
        if error is not None:
            raise error
        return results


class ThreadsState:
    """The state that the threads and their rollout share: queues of parts to play, and of their results.

    Attributes:
        to_play: Parts for idle threads, but not the part of the thread that calls `ThreadedRollout.tick`. None ends a
            thread.
        played: Triples (part, results, error). If the results are None, the thread has stopped playing the part. The
            error is None if there is none.
        pausing: Set while no thread may begin a call of a kernel.
        fair_share: The number of pending episodes per thread after the last `submit`.
        episode_seconds: The mean duration of the episodes that were returned last; infinity at the beginning.
        empty: Parts without episodes, each with an event. The thread of the part waits for the event. Another thread
            gives running episodes to the part, and then sets the event.
    """

    def __init__(self, queue: EpisodeQueue, threads: int, least_feed: int) -> None:
        self.to_play: SimpleQueue[ExactRollout | None] = SimpleQueue()
        self.played: SimpleQueue[tuple[ExactRollout, EpisodeResults | None, BaseException | None]] = SimpleQueue()
        self.pausing = Event()
        self.fair_share = 1
        self.episode_seconds = math.inf
        self.empty: list[tuple[ExactRollout, Event]] = []
        self._empty_lock = Lock()
        # The number of running episodes of each part after its last call of a kernel; during a call also waiting ones.
        self._running: dict[ExactRollout, int] = {}
        # The time at which each part's call of a kernel began; infinity between calls.
        self._began_at: dict[ExactRollout, float] = {}
        self._queue = queue
        self._num_feeds = _FEEDS_PER_THREAD * threads
        self._least_feed = least_feed

    def play_parts(self) -> None:
        """Play parts from `to_play` until None comes. Each thread that this module starts runs this function."""
        while (part := self.to_play.get()) is not None:
            error: BaseException | None = None
            try:
                self._play_part(part)
            except BaseException as raised:
                error = raised
            # An error may have left other values.
            self._began_at[part], self._running[part] = math.inf, 0
            self.played.put((part, None, error))

    def stop(self, threads: int) -> None:
        """End the threads. threads: Their number."""
        self.pausing.set()
        for _ in range(threads):
            self.to_play.put(None)

    def _play_part(self, part: ExactRollout) -> None:
        """Play until no episode is left, or the rollout pauses."""
        while not self.pausing.is_set() and self.fill(part):
            results = self.play_on(part)
            if results is not None:
                self.played.put((part, results, None))

    def fill(self, part: ExactRollout, patience: float = math.inf) -> bool:
        """Give waiting episodes to a part, or running ones of another thread; return whether the part can play.

        patience: The seconds to wait for episodes of another thread.
        """
        part.fill(self.feed_size())
        while not part.running:
            if self.pausing.is_set() or not self._wait_for_episodes(part, patience):
                return False
            part.fill(self.feed_size())
        return True

    def play_on(self, part: ExactRollout) -> EpisodeResults | None:
        """Play a part for some milliseconds; return the results of finished episodes, or None if there are none yet."""
        # Count waiting episodes, too. They begin during the call, and an idle thread can then get some of them.
        self._running[part] = part.play.running + part.play.waiting
        self._began_at[part] = time.monotonic()
        part.play_on()
        self._began_at[part] = math.inf
        results = part.take_results()
        if results is not None:
            self.episode_seconds = float(results.episode_seconds.mean())
        self._running[part] = part.play.running
        self._give(part)
        return results

    def reset(self) -> None:
        """Let threads play again after a pause, with empty parts."""
        self.empty.clear()
        self._running.clear()
        self._began_at.clear()
        self.pausing.clear()

    def _give(self, part: ExactRollout) -> None:
        """Give half of a part's running episodes to an empty part, if there is one.

        Give none if episodes wait in the queue, if the running ones are few, or if another part has more than twice as
        many.
        """
        # A copy of the values, because other threads change the dictionary.
        largest = max(tuple(self._running.values()))
        least = max(2 * LEAST_GIVEN, largest // 2)
        if not self.empty or not part.can_give or len(self._queue) or self._running[part] < least:
            return
        given = None
        try:
            with self._empty_lock:
                # Another thread may have taken the last empty part since the test above.
                if not self.empty:
                    return
                other, given = self.empty.pop()
            part.give(other)
            self._running[part], self._running[other] = part.play.running, other.play.running
        finally:
            # Also after an error, because the other thread waits for this event.
            if given is not None:
                given.set()

    def _wait_for_episodes(self, part: ExactRollout, patience: float) -> bool:
        """Wait until another thread gives running episodes to a part, or episodes wait in the queue.

        Return False if no thread can give episodes, if the rollout pauses and no episode waits, or after `patience`
        seconds.
        """
        if not part.can_give:
            return False
        self._running[part] = 0
        given = Event()
        end = time.monotonic() + patience
        with self._empty_lock:
            self.empty.append((part, given))
        while not given.wait(POLL_SECONDS):
            # If no part has enough episodes to give, polling until the end of the generation would be useless.
            can_be_given = max(tuple(self._running.values())) >= 2 * LEAST_GIVEN
            if len(self._queue) or self.pausing.is_set() or not can_be_given or time.monotonic() >= end:
                with self._empty_lock:
                    if (part, given) in self.empty:  # else another thread is giving
                        self.empty.remove((part, given))
                        return len(self._queue) > 0
                # If Ctrl-C ends `_give` in the main thread, the event may never be set. Then the rollout pauses.
                if self.pausing.is_set() and not given.wait(_GIVE_SECONDS):
                    return False
        return True

    def most_running_of(self, part: ExactRollout) -> int:
        """Return the limit of episodes that run at a time in a part while others wait."""
        if self.fair_share >= part.play.slots:
            return sys.maxsize
        # Other parts would be idle if this part filled its slots.
        return max(self.fair_share, self._least_feed)

    def hangs(self, limit: float) -> bool:
        """Return whether a call of a kernel, which should take milliseconds, has taken more than `limit` seconds."""
        return time.monotonic() - min(tuple(self._began_at.values()), default=math.inf) > limit

    def feed_size(self) -> int:
        """Return the largest number of episodes of the next feed.

        It is the largest of four numbers: the waiting episodes divided by the intended number of feeds; `least_feed`;
        the episodes that fill `_MIN_FEED_SECONDS`; and a thread's fair share, or the episodes that fill
        `_MAX_FEED_SECONDS` if these are fewer.
        """
        seconds = max(self.episode_seconds, 1e-9)
        shortest, longest = int(_MIN_FEED_SECONDS / seconds), int(_MAX_FEED_SECONDS / seconds)
        fair = min(self.fair_share, longest)
        return max(len(self._queue) // self._num_feeds, self._least_feed, shortest, fair)
