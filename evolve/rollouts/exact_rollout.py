"""Rollouts of exact tasks: kernels play whole episodes, many in one call.

A `Play` takes feeds of episodes and returns the ones that ended. `NativePlay` is the one on the host, the counterpart
of rollouts/kernels/play.h; `DevicePlay` (`device_play`) is the one on a GPU.
"""

import ctypes
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evolve.environments import AnyTask, CompiledSlots, lanes_of
from evolve.networks.slot_arrays import SlotArrays
from evolve.numerics import native
from evolve.numerics.hashing import MAX_HASHED_STEPS, coefficients
from evolve.numerics.native import ADDRESS, INT64
from evolve.rollouts.episodes import EpisodeBatch, EpisodeFailure, EpisodeResults
from evolve.rollouts.queue import EpisodeQueue
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64

_CALL_SECONDS = 0.004
"""The duration that a call should have, so that a worker probes for messages often enough."""
_RESULTS_SECONDS = 0.1
"""The time for which results may be held back to be returned together: returning few costs as much as playing them."""
_MOST_STEPS = 2**20
"""The largest number of steps of a call, for episodes so short that the clock sets no limit."""
_KEY = np.int64(2**32)


@dataclass(frozen=True)
class Feed:
    """n episodes that may begin.

    columns: the initial values of a slot of the network, [n, rows] for each of the columns held, None for zeros.
    seeds: [n], of the environments. keys: [n], which come back with the results. normalizers: [n, 2, O], O = 0 if
    observations are not normalized. mask: [n, T], the connections whose traces are wanted; T = 0 if no traces are.
    """

    columns: tuple[Float32 | None, ...]
    seeds: Int64
    keys: Int64
    normalizers: Float32
    mask: Bool

    def contiguous(self) -> "Feed":
        """Return the same feed in contiguous arrays, as kernels need them."""
        return Feed(
            tuple(None if values is None else np.ascontiguousarray(values, np.float32) for values in self.columns),
            np.ascontiguousarray(self.seeds),
            np.ascontiguousarray(self.keys),
            np.ascontiguousarray(self.normalizers),
            np.ascontiguousarray(self.mask),
        )


class Played(NamedTuple):
    """N episodes that have ended, in the order of the results; see `EpisodeResults` for the quantities."""

    keys: Int64
    returns: Float64
    lengths: Int32
    fingerprints: UInt64
    step_hashes: UInt8
    moments: Float64
    traces: Int64


class Play(Protocol):
    """Slots that play the episodes of feeds: `NativePlay` or `DevicePlay`."""

    @property
    def ready(self) -> bool:
        """Whether the next feed may come."""

    @property
    def waiting(self) -> int:
        """Episodes of the feed that have not begun."""

    @property
    def running(self) -> int:
        """The number of episodes that have begun, without the ones that `take` would return."""

    @property
    def over(self) -> int:
        """Episodes that `take` would return."""

    def feed(self, feed: Feed) -> None:
        """Append episodes."""

    def run(self, steps: int, more: bool) -> int:
        """Play at most `steps` steps of all slots; return the number of steps made, over all episodes.

        more: Whether episodes wait that are not in a feed yet.
        """

    def take(self) -> Played:
        """Return the episodes that ended since the last call."""

    def clear(self) -> None:
        """Drop all episodes."""


class InitialColumns(ctypes.Structure):
    """`initial_columns` of kernels/rows.h."""

    _fields_ = (("columns", ADDRESS), ("rows", INT64), ("values", ADDRESS))


class _Structure(ctypes.Structure):
    """`play` of kernels/play.h; the caller keeps the arrays that it points to alive."""

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
    )  # fmt: skip


class NativePlay:
    """The slots of a task that are stepped together, and play its episodes.

    Args:
        task: The task.
        batch: The network, in as many slots of the native back end.
        episodes: The largest number of episodes in a feed.
        normalize: Whether networks see normalized observations.
    """

    def __init__(self, task: AnyTask, batch: SlotArrays, episodes: int, normalize: bool) -> None:
        assert isinstance(batch.kernel, native.NativeStep)
        O, A = task.observation_size, task.action_size
        traces = batch.kept_traces
        self._num_traces = 0 if traces is None else traces.rows
        self._lanes = lanes_of(task)
        self._slots = CompiledSlots(task, self._lanes)
        self._columns = (InitialColumns * len(batch.held))(*(InitialColumns(c.address, c.rows) for c in batch.held))
        self._alive = batch, coefficients(max(O, A))
        self._kept: dict[str, NDArray[Any]] = {}
        self._fed: Feed | None = None
        room = min(task.step_limit, MAX_HASHED_STEPS)
        self._structure = _Structure(
            **batch.kernel.addresses,
            **self._slots.addresses,
            coefficients=self._alive[1].ctypes.data,
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
    def ready(self) -> bool:
        """Whether the next feed may come."""
        return not self.waiting

    @property
    def waiting(self) -> int:
        """The number of episodes of the feed that have not begun."""
        return int(self._structure.fed - self._structure.next)

    @property
    def running(self) -> int:
        """The number of episodes that are running."""
        return int(np.count_nonzero(self._kept["live"]))

    @property
    def over(self) -> int:
        """The number of episodes that ended and were not taken."""
        return int(self._structure.over)

    def feed(self, feed: Feed) -> None:
        """Take the next episodes; none may wait."""
        self._fed = fed = feed.contiguous()
        for column, values in zip(self._columns, fed.columns, strict=True):
            column.values = None if values is None else values.ctypes.data
        self._set(
            next=0,
            fed=len(fed.seeds),
            num_traces=fed.mask.shape[1] and self._num_traces,
            seeds=fed.seeds.ctypes.data,
            keys=fed.keys.ctypes.data,
            normalizers=fed.normalizers.ctypes.data,
            masks=fed.mask.ctypes.data,
        )

    def run(self, steps: int, more: bool) -> int:
        """Play at most `steps` steps of all slots; return the number of steps made, over all episodes.

        It ends early if no episode runs, or if a slot is free while `more` episodes wait that are not in a feed yet.
        """
        made: int = self._play(ctypes.addressof(self._structure), steps, more)
        return made

    def take(self) -> Played:
        """Return the episodes that ended since the last call."""
        n, hashed, kept = self._structure.over, self._structure.hashed, self._kept
        self._set(over=0, hashed=0)
        # The results are copied, since the next call overwrites these arrays.
        traces = kept["result_traces"].reshape(-1)[: n * self._structure.num_traces]
        return Played(
            kept["result_keys"][:n].copy(),
            kept["result_returns"][:n].copy(),
            kept["result_lengths"][:n].copy(),
            kept["result_prints"][:n].copy(),
            kept["result_hashes"][:hashed].copy(),
            kept["result_moments"][:n].copy(),
            traces.reshape(n, -1).copy() if n else traces.reshape(0, self._structure.num_traces),
        )

    def clear(self) -> None:
        """Drop all episodes."""
        self._set(next=0, fed=0, over=0, hashed=0)
        self._kept["live"][:] = False
        self._fed = None

    def _make_slots(self, room: int, normalizer: int) -> None:
        lanes = self._lanes
        self._keep(
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
        self._keep(
            result_keys=np.zeros(n, np.int64),
            result_returns=np.zeros(n),
            result_lengths=np.zeros(n, np.int32),
            result_prints=np.zeros((n, 2), np.uint64),
            result_hashes=np.zeros((n * room, 2), np.uint8),
            result_moments=np.zeros((n, 2, observations)),
            result_traces=np.zeros((n, self._num_traces), np.int64),
        )

    def _keep(self, **arrays: NDArray[Any]) -> None:
        """Keep arrays alive, and make the structure point to them."""
        self._kept |= arrays
        self._set(**{name: array.ctypes.data for name, array in arrays.items()})

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            setattr(self._structure, name, value)


class ExactRollout:
    """Plays episodes of an exact task, which cannot fail or hang. It has the interface of `Rollout`.

    Args:
        play: The slots of the task and the batch.
        batch: The network's slots.
        waiting: The number of episodes in a feed.
        max_episode_seconds: The limit in messages of workers; no episode takes that long.
    """

    def __init__(self, play: Play, batch: SlotArrays, waiting: int, max_episode_seconds: float) -> None:
        self.max_episode_seconds = max_episode_seconds
        self.environment_seconds = 0.0
        """The seconds for which episodes were played, by environments and networks together."""
        self._batch = batch
        self._waiting = waiting
        self.play = play
        self._queue = EpisodeQueue()
        self._traces = "none"
        self.steps = 64
        """The largest number of steps of the next call; each call adapts it to `_CALL_SECONDS`."""
        self._made = 0  # the steps of episodes since results were last returned
        self._seconds = 0.0  # the duration of these steps

    @property
    def pending(self) -> int:
        """The number of episodes that are queued or running."""
        return len(self._queue) + self.play.waiting + self.play.running

    @property
    def ticking(self) -> int:
        """The smallest number of episodes that the next tick steps."""
        return self.play.running or min(self.pending, 1)

    def submit(self, batch: EpisodeBatch) -> None:
        """Queue episodes."""
        self._queue.append(batch)

    def tick(self) -> EpisodeResults | None:
        """Play for some milliseconds; return the results of episodes that ended, None for none, or not yet."""
        if self.play.ready and len(self._queue):
            self._feed()
        begin = time.perf_counter()
        self._made += self.play.run(self.steps, more=len(self._queue) > 0)
        seconds = time.perf_counter() - begin
        self._seconds += seconds
        self.environment_seconds += seconds
        # The next call gets as many steps as would have taken `_CALL_SECONDS` in this one, at most twice as many.
        wanted = int(self.steps * _CALL_SECONDS / max(seconds, 1e-6))
        self.steps = max(16, min(2 * self.steps, wanted, _MOST_STEPS))
        due = not self.play.waiting or self._seconds > _RESULTS_SECONDS
        return self._results() if due and self.play.over else None

    def take_failures(self) -> list[EpisodeFailure]:
        """Return no episodes, since none can fail."""
        return []

    def clear(self) -> None:
        """Drop all episodes."""
        self._queue.clear()
        self.play.clear()
        self._made, self._seconds = 0, 0.0

    def close(self) -> None:
        """Do nothing: there are no environments."""

    def call_on_fault(self, callback: Callable[[], None]) -> None:
        """Do nothing: no environment fails."""

    def make_genomes_within(self, context: Callable[[], AbstractContextManager[object]]) -> None:
        """Generate genomes within a context: that time belongs to no episode."""
        self._queue.making = context

    def _feed(self) -> None:
        """Prepare the next episodes."""
        episodes = self._queue.take(self._waiting)
        genomes = episodes.genomes
        self._traces = episodes.traces
        keys: Int64 = episodes.genome_ids * _KEY + episodes.episodes
        columns = self._batch.initial(genomes.weights, genomes.mask, episodes.seeds)
        mask = genomes.mask if self._traces != "none" else genomes.mask[:, :0]
        self.play.feed(Feed(columns, episodes.seeds, keys, episodes.normalizers, mask))

    def _results(self) -> EpisodeResults:
        # A call plays all episodes together, so each gets a share of the time in proportion to its steps.
        seconds_per_step = self._seconds / max(self._made, 1)
        self._made, self._seconds = 0, 0.0
        played = self.play.take()
        genomes = (played.keys >> 32).astype(np.int32)
        traced = {"each": genomes, "mean": np.zeros_like(genomes), "none": genomes[:0]}[self._traces]
        return EpisodeResults(
            genomes=genomes,
            episodes=(played.keys & (_KEY - 1)).astype(np.int32),
            returns=played.returns,
            lengths=played.lengths,
            fingerprints=played.fingerprints,
            moments=played.moments,
            episode_seconds=(played.lengths * seconds_per_step).astype(np.float32),
            step_hashes=played.step_hashes,
            traced=traced,
            traces=played.traces[: len(traced)],
            **self._queue.take_descriptions(),
        )
