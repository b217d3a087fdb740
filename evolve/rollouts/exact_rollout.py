"""Rollouts of exact tasks: kernels play whole episodes, many in one call.

A `Play` receives episodes in feeds, plays them in its slots, and returns their results. `NativePlay` plays on the host
with rollouts/kernels/play.h, and `DevicePlay` (`device_play`) on a GPU.
"""

import ctypes
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evolve.environments import AnyTask, CompiledSlots, slots_per_call
from evolve.networks.network import SlotArrays
from evolve.numerics import native, ordered_sum
from evolve.numerics.hashing import MAX_HASHED_STEPS, coefficients
from evolve.numerics.native import ADDRESS, INT64
from evolve.rollouts.episodes import EpisodeBatch, EpisodeFailure, EpisodeResults
from evolve.rollouts.queue import EpisodeQueue, EpisodesToBegin
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64

_CALL_SECONDS = 0.004
"""The intended duration of a call of `Play.run`: short, because a worker probes for messages only between calls."""
_RESULTS_SECONDS = 0.1
"""The time for which results may be held back: returning a few results costs as much as playing their episodes."""
_LEAST_STEPS = 16
"""The smallest limit of the steps of a call, since a call has a cost of its own."""
_BITS_OF_EPISODES = 32
"""A feed has one key for each episode: genome · 2³² + episode."""


@dataclass(frozen=True)
class Feed:
    """n episodes for the slots of a `Play`, which begin when slots are free, with C genomes.

    columns: the initial contents of the network's slot, [C, rows] for each column in `SlotArrays.held`, None for zeros.
    genomes: [n], the number of each episode's genome. seeds: [n], the seeds of the environments. keys: [n], which
    identify the episodes in the results. normalizers: [n, 2, O], O = 0 if observations are not normalized. mask:
    [C, T], the connections with traces to be returned; T = 0 for no traces. parameters: [n, D], the parameters of the
    task in each episode.
    """

    columns: tuple[Float32 | None, ...]
    genomes: Int32
    seeds: Int64
    keys: Int64
    normalizers: Float32
    mask: Bool
    parameters: Float64

    def contiguous(self) -> "Feed":
        """Return the same feed in contiguous arrays, as kernels need them."""
        return Feed(
            tuple(None if values is None else np.ascontiguousarray(values, np.float32) for values in self.columns),
            np.ascontiguousarray(self.genomes, np.int32),
            np.ascontiguousarray(self.seeds),
            np.ascontiguousarray(self.keys),
            np.ascontiguousarray(self.normalizers),
            np.ascontiguousarray(self.mask),
            np.ascontiguousarray(self.parameters),
        )


class Played(NamedTuple):
    """The results of N episodes that have ended; `keys` are the keys of the feed, the rest as in `EpisodeResults`.

    step_hashes: Of all N episodes. The next call of `Play.run` may overwrite this array.
    """

    keys: Int64
    returns: Float64
    lengths: Int32
    fingerprints: UInt64
    step_hashes: UInt8
    moments: Float64
    traces: Int64


class Play(Protocol):
    """Slots that play the episodes of feeds: `NativePlay` or `DevicePlay`."""

    shares_genomes: bool
    """Whether episodes of a feed may share a genome; if not, C = n, and episode i has genome i."""

    @property
    def slots(self) -> int:
        """The number of episodes that can run at a time."""

    @property
    def ready(self) -> bool:
        """Whether `feed` may be called."""

    @property
    def waiting(self) -> int:
        """The number of episodes of the feed that have not begun."""

    @property
    def running(self) -> int:
        """The number of episodes that have begun and that `take` would not return yet."""

    @property
    def finished(self) -> int:
        """The number of episodes that `take` would return."""

    def feed(self, feed: Feed) -> None:
        """Add the episodes of a feed; only if `ready`."""

    def run(self, steps: int, more: bool) -> int:
        """Play at most `steps` steps in each slot; return the number of steps made, summed over all episodes.

        more: Whether more episodes wait for a feed. The call may then return as soon as a slot is free.
        """

    def take(self) -> Played:
        """Return the results of the episodes that ended since the last call."""

    def clear(self) -> None:
        """Drop all episodes."""


class InitialColumns(ctypes.Structure):
    """The C structure `initial_columns` of kernels/rows.h."""

    _fields_ = (("columns", ADDRESS), ("rows", INT64), ("values", ADDRESS))


class _Structure(ctypes.Structure):
    """The C structure `play` of kernels/play.h. The caller keeps its arrays alive.

    room: the largest number of step hashes of an episode. prints: fingerprints. over: the number of finished episodes.
    hashed: the number of their step hashes.
    """

    _fields_ = (
        *((name, ADDRESS) for name in ("places", "advance", "settle", "network", "step", "begin", "at")),
        ("coefficients", ADDRESS), ("room", INT64), ("normalize", INT64), ("tiles", INT64),
        *((name, INT64) for name in ("next", "fed", "num_columns")),
        *((name, ADDRESS) for name in ("columns", "seeds", "keys", "normalizers", "masks")),
        *((name, ADDRESS) for name in ("live", "slot_masks", "slot_keys", "returns", "prints", "step_hashes")),
        *((name, ADDRESS) for name in ("slot_normalizers", "moments")),
        *((name, INT64) for name in ("over", "hashed", "num_traces")),
        *((name, ADDRESS) for name in ("traces", "result_keys", "result_returns", "result_moments", "result_lengths")),
        *((name, ADDRESS) for name in ("result_prints", "result_hashes", "result_traces")),
        ("num_parameters", INT64), ("parameters", ADDRESS),
    )  # fmt: skip


class NativePlay:
    """Slots on the host, which one native function steps together: a tile, or several tiles if the task needs them.

    Args:
        task: The task.
        batch: The networks of the slots, on the native back end.
        episodes: The largest number of episodes in a feed.
        normalize: Whether networks see normalized observations.
    """

    shares_genomes = False

    def __init__(self, task: AnyTask, batch: SlotArrays, episodes: int, normalize: bool) -> None:
        assert isinstance(batch.kernel, native.NativeStep)
        O, A = task.observation_size, task.action_size
        traces = batch.kept_traces
        self._num_traces = 0 if traces is None else traces.rows
        self._lanes = slots_per_call(task)
        self._slots = CompiledSlots(task, self._lanes)
        self._columns = (InitialColumns * len(batch.held))(*(InitialColumns(c.address, c.rows) for c in batch.held))
        # The structure below has only addresses; these attributes keep the arrays alive.
        self._pointed_to = batch, coefficients(max(O, A))
        self._buffers: dict[str, NDArray[Any]] = {}
        self._fed: Feed | None = None
        room = min(task.step_limit, MAX_HASHED_STEPS)
        self._structure = _Structure(
            **batch.kernel.addresses,
            **self._slots.addresses,
            coefficients=self._pointed_to[1].ctypes.data,
            room=room,
            normalize=normalize,
            tiles=self._lanes // native.lanes(),
            num_columns=len(batch.held),
            columns=ctypes.addressof(self._columns),
            traces=0 if traces is None else traces.address,
        )
        self._make_slots(room, 2 * O if normalize else 0)
        self._make_results(episodes + self._lanes, room, O if normalize else 0)
        self._play = native.bind("play", [ADDRESS, INT64, INT64], INT64)

    @property
    def slots(self) -> int:
        """The number of episodes that can run at a time."""
        return self._lanes

    @property
    def ready(self) -> bool:
        """Whether `feed` may be called: every episode of the last feed has begun."""
        return not self.waiting

    @property
    def waiting(self) -> int:
        """The number of episodes of the feed that have not begun."""
        return int(self._structure.fed - self._structure.next)

    @property
    def running(self) -> int:
        """The number of episodes that are running."""
        return int(np.count_nonzero(self._buffers["live"]))

    @property
    def finished(self) -> int:
        """The number of episodes that have ended since the last `take`."""
        return int(self._structure.over)

    def feed(self, feed: Feed) -> None:
        """Add the episodes of a feed; only if `ready`."""
        self._fed = fed = feed.contiguous()
        for column, values in zip(self._columns, fed.columns, strict=True):
            column.values = None if values is None else values.ctypes.data
            # Factors take fewer rows than the weights that they replace.
            column.rows = column.rows if values is None else values.shape[1]
        self._set(
            next=0,
            fed=len(fed.seeds),
            num_traces=self._num_traces if fed.mask.shape[1] else 0,
            seeds=fed.seeds.ctypes.data,
            keys=fed.keys.ctypes.data,
            normalizers=fed.normalizers.ctypes.data,
            masks=fed.mask.ctypes.data,
            num_parameters=fed.parameters.shape[1],
            parameters=fed.parameters.ctypes.data,
        )

    def run(self, steps: int, more: bool) -> int:
        """Play at most `steps` steps in each slot; return the number of steps made, summed over all episodes.

        It ends early if no episode runs, or if a slot is free while `more` episodes wait for a feed.
        """
        steps_made: int = self._play(ctypes.addressof(self._structure), steps, more)
        return steps_made

    def take(self) -> Played:
        """Return the results of the episodes that ended since the last call."""
        n, hashed, buffers = self._structure.over, self._structure.hashed, self._buffers
        self._set(over=0, hashed=0)
        # The results are copied, since the next call overwrites these arrays. Most step hashes are not wanted.
        traces = buffers["result_traces"].reshape(-1)[: n * self._structure.num_traces]
        return Played(
            buffers["result_keys"][:n].copy(),
            buffers["result_returns"][:n].copy(),
            buffers["result_lengths"][:n].copy(),
            buffers["result_prints"][:n].copy(),
            buffers["result_hashes"][:hashed],
            buffers["result_moments"][:n].copy(),
            traces.reshape(n, -1).copy() if n else traces.reshape(0, self._structure.num_traces),
        )

    def clear(self) -> None:
        """Drop all episodes."""
        self._set(next=0, fed=0, over=0, hashed=0)
        self._buffers["live"][:] = False
        self._fed = None

    def _make_slots(self, room: int, normalizer: int) -> None:
        lanes = self._lanes
        self._attach(
            live=self._slots.active,
            slot_masks=np.zeros((lanes, self._num_traces), np.bool_),
            slot_keys=np.zeros(lanes, np.int64),
            returns=np.zeros(lanes),
            prints=np.zeros(2 * lanes, np.uint64),
            step_hashes=np.zeros((lanes, room, 2), np.uint8),
            slot_normalizers=np.zeros(normalizer * lanes, np.float32),
            moments=np.zeros(normalizer * lanes),
        )

    def _make_results(self, n: int, room: int, observations: int) -> None:
        self._attach(
            result_keys=np.zeros(n, np.int64),
            result_returns=np.zeros(n),
            result_lengths=np.zeros(n, np.int32),
            result_prints=np.zeros((n, 2), np.uint64),
            result_hashes=np.zeros((n * room, 2), np.uint8),
            result_moments=np.zeros((n, 2, observations)),
            result_traces=np.zeros((n, self._num_traces), np.int64),
        )

    def _attach(self, **arrays: NDArray[Any]) -> None:
        """Keep a reference to arrays, and write their addresses into the structure."""
        self._buffers |= arrays
        self._set(**{name: array.ctypes.data for name, array in arrays.items()})

    def _set(self, **values: int) -> None:
        """Set fields of the structure."""
        for name, value in values.items():
            setattr(self._structure, name, value)


class ExactRollout:
    """Plays episodes of an exact task, which cannot fail or hang. It has the interface of `Rollout`.

    Args:
        task: The task.
        play: The slots.
        batch: The networks of the slots, which compute the initial contents of a slot from a genome.
        feed_size: The largest number of episodes in a feed.
        max_episode_seconds: The attribute of all rollouts; no exact episode takes that long.
        queue: The queue from which it takes episodes, which other rollouts may share; by default its own.
    """

    whole_episodes = True
    """Whether a tick plays many steps, and an episode cannot fail."""

    def __init__(
        self,
        task: AnyTask,
        play: Play,
        batch: SlotArrays,
        feed_size: int,
        max_episode_seconds: float,
        queue: EpisodeQueue | None = None,
    ) -> None:
        self.max_episode_seconds = max_episode_seconds
        self.environment_seconds = 0.0
        """The seconds of playing; a kernel does environments and networks in one, so both are included."""
        self._task = task
        self._batch = batch
        self._feed_size = feed_size
        self.play = play
        self._queue = EpisodeQueue() if queue is None else queue
        self._held: EpisodesToBegin | None = None  # until the slots are free
        self._traces = "none"
        self._best_of = 0
        self.steps = 64
        """The limit of steps of the next call of `Play.run`; each tick adapts it to `_CALL_SECONDS`."""
        self.longest_call = 0.0
        """The seconds of the longest call of `Play.run`. On a device the first call may include compilation."""
        # Since results were last returned: environment steps, summed over all episodes, and the time that they took.
        self._steps_played = 0
        self._seconds_played = 0.0

    @property
    def pending(self) -> int:
        """The number of episodes that are queued or running."""
        return len(self._queue) + self._num_held + self.play.waiting + self.play.running

    @property
    def _num_held(self) -> int:
        return 0 if self._held is None else len(self._held)

    @property
    def occupied(self) -> bool:
        """Whether it took episodes from the queue whose results it has not returned."""
        return self._num_held + self.play.waiting + self.play.running + self.play.finished > 0

    @property
    def ticking(self) -> int:
        """The smallest number of episodes that the next tick steps."""
        return self.play.running or min(self.pending, 1)

    def submit(self, batch: EpisodeBatch) -> None:
        """Queue episodes."""
        self._queue.append(batch)

    def tick(self) -> EpisodeResults | None:
        """Play for some milliseconds; return the results of finished episodes, or None if there are none yet.

        Results are held back for at most `_RESULTS_SECONDS`, to return many at a time.
        """
        self.feed()
        self.play_on()
        return self.take_results()

    def feed(self, most: int | None = None) -> None:
        """Give the next episodes of the queue to `play`, if it is ready.

        most: The largest number of episodes; by default the feed size.
        """
        if self.play.ready:
            episodes = self._held
            if episodes is None:
                episodes = self._queue.take(self._feed_size if most is None else min(most, self._feed_size))
            if episodes is not None:
                # Genomes of two generations may not share slots. They meet only if results came late.
                waits = self.play.running > 0 and not self._batch.fits(episodes.genomes)
                self._held = episodes if waits else None
                if not waits:
                    self._feed(episodes)

    def play_on(self) -> None:
        """Play for some milliseconds."""
        busy = self._busy
        begin = time.perf_counter()
        made = self.play.run(self.steps, more=len(self._queue) > 0 and self._held is None)
        seconds = time.perf_counter() - begin
        self._count(made, busy, seconds, seconds)

    @property
    def _busy(self) -> int:
        """The number of slots in which the next call plays."""
        return min(self.play.slots, self.play.waiting + self.play.running)

    def _count(self, made: int, busy: int, seconds: float, waited: float) -> None:
        """Count the steps that a call has made in `busy` slots; limit the steps of the next one.

        seconds: The duration of the call. waited: The part of it in which this process did nothing else.
        """
        seconds = max(seconds, 1e-6)
        self.longest_call = max(self.longest_call, seconds)
        self._steps_played += made
        self._seconds_played += waited
        self.environment_seconds += waited
        if not made:
            return
        # The next call gets as many steps as would have taken `_CALL_SECONDS` in this one, at most twice as many.
        # The episodes of this call may have ended long before its limit, so the steps that were made predict the time.
        fitting = int(made / busy * _CALL_SECONDS / seconds)
        self.steps = max(_LEAST_STEPS, min(2 * self.steps, fitting))

    def take_results(self) -> EpisodeResults | None:
        """Return the results of finished episodes; None if there are none, or if they may be held back."""
        due = not self.play.waiting or self._seconds_played > _RESULTS_SECONDS
        return self._results() if due and self.play.finished else None

    def take_failures(self) -> list[EpisodeFailure]:
        """Return an empty list: episodes of exact tasks cannot fail."""
        return []

    def clear(self) -> None:
        """Drop all episodes."""
        self._queue.clear()
        self._held = None
        self.play.clear()
        self._steps_played, self._seconds_played = 0, 0.0

    def close(self) -> None:
        """Do nothing: there are no environments."""

    def call_on_fault(self, callback: Callable[[], None]) -> None:
        """Do nothing: no environment fails."""

    def make_genomes_within(self, context: Callable[[], AbstractContextManager[object]]) -> None:
        """Generate genomes within a context: that time belongs to no episode."""
        self._queue.making = context

    def _feed(self, episodes: EpisodesToBegin) -> None:
        """Give episodes to `play`."""
        seeds = episodes.seeds
        if self.play.shares_genomes and not self._batch.seeded:
            genomes, numbers = episodes.genomes, episodes.numbers.astype(np.int32)
        else:
            genomes, numbers = episodes.genome_of_each(), np.arange(len(seeds), dtype=np.int32)
        self._traces, self._best_of = episodes.traces, episodes.best_of
        keys: Int64 = (episodes.genome_ids.astype(np.int64) << _BITS_OF_EPISODES) + episodes.episodes
        columns = self._batch.columns_of(genomes, seeds)
        # A mask without columns requests no traces.
        mask = genomes.mask if self._traces != "none" else genomes.mask[:, :0]
        parameters = self._task.parameters_of(seeds).T
        self.play.feed(Feed(columns, numbers, seeds, keys, episodes.normalizers, mask, parameters))

    def _results(self) -> EpisodeResults:
        # A call plays all episodes together, so each gets a share of the time in proportion to its steps.
        seconds_per_step = self._seconds_played / max(self._steps_played, 1)
        self._steps_played, self._seconds_played = 0, 0.0
        played = self.play.take()
        genomes = (played.keys >> _BITS_OF_EPISODES).astype(np.int32)
        # For the "mean" all traces count for genome 0, so that the collector sums them in one row.
        traced = {"each": genomes, "mean": np.zeros_like(genomes), "none": genomes[:0]}[self._traces]
        hashed = may_be_best(played.keys, played.returns, self._best_of)
        return EpisodeResults(
            genomes=genomes,
            episodes=played.keys.astype(np.int32),  # the lower half
            returns=played.returns,
            lengths=played.lengths,
            fingerprints=played.fingerprints,
            moments=played.moments,
            episode_seconds=(played.lengths * seconds_per_step).astype(np.float32),
            encoded_metrics=np.zeros((len(genomes), 2, 0), np.int64),
            hashed=hashed,
            step_hashes=_hashes_of(hashed, played),
            traced=traced,
            traces=played.traces[: len(traced)],
            **self._queue.take_descriptions(),
        )


def may_be_best(keys: Int64, returns: Float64, best_of: int) -> Bool:
    """Return [N]: whether the genome of an episode may have the best mean return of all genomes, here and elsewhere.

    Of equal means the one of the first genome counts as best, as in `strategies.ranking`.

    Args:
        keys: [N], genome · 2³² + episode.
        returns: [N].
        best_of: The number of episodes of each genome; 0 if the step hashes of all genomes are wanted.
    """
    needed = np.ones(len(keys), np.bool_)
    if not best_of or np.isnan(returns).any():
        return needed
    order = np.argsort(keys)
    genomes = keys[order] >> _BITS_OF_EPISODES
    first = np.flatnonzero(np.diff(genomes, prepend=-1))
    # The mean is known of genomes with all their episodes here.
    whole = first[np.diff(first, append=len(keys)) == best_of]
    if len(whole):
        places = order[whole[:, None] + np.arange(best_of)]
        best = int(np.argmax(ordered_sum(returns[places]) / best_of))
        needed[places] = False
        needed[places[best]] = True
    return needed


def _hashes_of(hashed: Bool, played: Played) -> UInt8:
    """Return a copy of the step hashes of the chosen episodes [N], end to end."""
    if hashed.all():
        return played.step_hashes.copy()
    kept = np.minimum(played.lengths, MAX_HASHED_STEPS)
    ends = np.cumsum(kept, dtype=np.int64)
    spans = zip((ends - kept)[hashed].tolist(), ends[hashed].tolist(), strict=True)
    return np.concatenate([played.step_hashes[:0], *(played.step_hashes[start:end] for start, end in spans)])
