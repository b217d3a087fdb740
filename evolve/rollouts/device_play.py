"""Plays episodes on a device (a GPU), in two halves of slots, so that device and host work at the same time.

In a `RolloutInHalves` the device computes for one half of the slots, while the host steps the environments of the other
half. For exact tasks the halves are `DeviceRollout`s: the device plays whole episodes, while the host returns results
and prepares the next episodes. Tasks with rigid bodies have one `DeviceRollout` with all slots, see `tiles_together`.
`DevicePlay` calls the kernel of rollouts/play.cu. `evolve.training.rollouts` chooses the rollout of an experiment.
"""

import ctypes
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.environments import AnyTask, task_on_device
from evolve.networks.network import SlotArrays
from evolve.numerics.device import COPYING_PARTS, LARGEST_COPY, DeviceArrays, DeviceStep, device
from evolve.numerics.device_protocol import WIDTH, Memory
from evolve.numerics.hashing import MAX_HASHED_STEPS, coefficients
from evolve.numerics.native import ADDRESS, INT64
from evolve.rollouts.episodes import EpisodeBatch, EpisodeFailure, EpisodeResults
from evolve.rollouts.exact_rollout import ExactRollout, ThreadedRollout
from evolve.rollouts.native_play import Feed, InitialColumns, Played, fields_of_type, needs_step_hashes
from evolve.rollouts.queue import EpisodeQueue
from evolve.rollouts.results import quantize_traces
from evolve.rollouts.rollout import Rollout
from evolve.shapes import Int32, Int64, UInt8, ceil_div


class RolloutInHalves:
    """Two rollouts, the halves, that take turns and share one queue of episodes. It has the interface of `Rollout`.

    make_half: Makes a rollout that takes its episodes from a queue.
    """

    def __init__(self, make_half: "Callable[[EpisodeQueue], Rollout | DeviceRollout]") -> None:
        self.queue = EpisodeQueue()
        """The episodes that wait for a slot, of both halves."""
        self.halves = make_half(self.queue), make_half(self.queue)
        self.whole_episodes = self.halves[0].whole_episodes
        self.max_episode_seconds = self.halves[0].max_episode_seconds
        self.environment_seconds = 0.0
        """The seconds that environments have worked. If kernels play whole episodes, networks are included."""

    @property
    def pending(self) -> int:
        """The number of episodes that are queued or running."""
        return len(self.queue) + sum(half.running for half in self.halves)

    def submit(self, batch: EpisodeBatch) -> None:
        """Queue episodes. A half that is not in the middle of a tick takes at most an equal share of them at once."""
        self.queue.append(batch)
        idle = [half for half in self.halves if not half.begun]
        for i, half in enumerate(idle):
            half.fill(most=ceil_div(len(self.queue), len(idle) - i))  # `len(idle) - i` halves share the rest

    def tick(self) -> EpisodeResults | None:
        """Advance one half while the device works for the other half; return the results of ended episodes, or None."""
        current, other = self.halves
        self.halves = other, current
        # `tick` ends by beginning the next tick of its half. So only halves that `submit` has filled since begin here.
        for half in (current, other):
            if half.running and not half.begun:
                half.begin()
        # While this half steps its environments, the device computes the networks of the other half.
        results = current.finish() if current.begun else None
        # Episodes may have been submitted while both halves were in the middle of a tick. Spread them evenly.
        if len(self.queue):
            # With this share, both halves play equally many episodes.
            share = ceil_div(len(self.queue) + other.running - current.running, 2)
            current.fill(most=max(1, share))
        if current.running:
            current.begin()
        self.environment_seconds += current.environment_seconds
        current.environment_seconds = 0.0
        return results

    def take_failures(self) -> list[EpisodeFailure]:
        """Return the episodes that failed since the last call."""
        return [*self.halves[0].take_failures(), *self.halves[1].take_failures()]

    def clear(self) -> None:
        """Drop all episodes."""
        for half in self.halves:
            half.clear()

    def close(self) -> None:
        """Release every environment."""
        for half in self.halves:
            half.close()

    def call_on_fault(self, callback: Callable[[], None]) -> None:
        """Set a function to be called at every failure or interruption of an environment."""
        for half in self.halves:
            half.call_on_fault(callback)


MOST_COLUMNS = 4
"""The largest number of state arrays (columns) of a network's slots, as in play.cu."""


class _Structure(ctypes.Structure):
    """The C structure `device_play` of play.cu, which documents its fields."""

    _fields_ = (
        *fields_of_type(ADDRESS, "coefficients"),
        *fields_of_type(INT64, "max_hashes normalize fed num_columns"),
        ("columns", InitialColumns * MOST_COLUMNS),
        *fields_of_type(ADDRESS, "genomes seeds normalizers begun over made"),
        *fields_of_type(ADDRESS, "episodes ending beginning over_lanes returns prints slot_normalizers moments"),
        *fields_of_type(INT64, "num_traces"),
        *fields_of_type(ADDRESS, "traces result_returns result_lengths result_prints"),
        *fields_of_type(ADDRESS, "result_hashes result_moments result_traces"),
        *fields_of_type(INT64, "num_parameters"),
        *fields_of_type(ADDRESS, "parameters"),
    )


MOST_TOGETHER = 12
"""The largest number of tiles that a block plays, as in worlds.h."""


def tiles_together(task: AnyTask, slots: int) -> int:
    """Return the number of tiles, of `WIDTH` slots each, that a thread block of the GPU plays.

    It is 1 without rigid bodies. The code of a rigid-body world is several times as large as the instruction cache of a
    multiprocessor. The tiles of a block make each step together, so they share the instructions in the cache.
    """
    tiles_per_multiprocessor = max(1, ceil_div(slots, WIDTH * device().multiprocessors))
    return min(MOST_TOGETHER, tiles_per_multiprocessor) if task.has_world else 1


def in_whole_blocks(task: AnyTask, slots: int) -> int:
    """Return a number of slots, rounded up to whole blocks if a block has several tiles."""
    block = WIDTH * tiles_together(task, slots)
    return slots if block == WIDTH else ceil_div(slots, block) * block


class DevicePlay:
    """Slots that play whole episodes of a task on the device of this process; implements the protocol `Play`.

    Args:
        task: The task.
        batch: The networks of the slots, with a step on the device.
        num_weights: W, of a genome.
        feed_size: The largest number of episodes in a feed.
        normalize: Whether networks see normalized observations.

    Raises:
        DeviceMemoryError: There is too little memory.
    """

    def __init__(self, task: AnyTask, batch: SlotArrays, num_weights: int, feed_size: int, normalize: bool) -> None:
        assert isinstance(batch.kernel, DeviceStep)
        self.task, self.batch, self.feed_size = task, batch, feed_size
        self._step = batch.kernel
        self._kernel = f"play_{self._step.name}_on_{task.kernel}"
        # A rigid-body world takes nearly all of the time, and one thread steps it. Other threads of the slot would only
        # wait and occupy registers.
        self._parts = 1 if task.has_world else self._step.parts
        assert self._step.arrays.tiles % tiles_together(task, self._step.arrays.slots) == 0, "see in_whole_blocks"
        self.arrays = DeviceArrays(feed_size)
        """The arrays with an element for each episode of a feed."""
        self._num_traces = 0 if batch.kept_traces is None else batch.kept_traces.rows
        self._current_feed: Feed | None = None
        self._tiles = self._together = 0  # the number of the feed's tiles, and the number of tiles in a block
        # Three int64 of the feed: [0] episodes begun, [1] episodes over, [2] steps made.
        self._counts = self.arrays.allocate(24)
        # Until `finish`, a download may write to `_new_counts`, so properties read `_counts_now`.
        self._new_counts: Int64 = self.arrays.device.host_array((3,), np.int64)
        self._counts_now = self._new_counts.copy()
        self._steps_before = 0  # steps made before the call that was begun last
        normalizer_size = task.observation_size if normalize else 0
        num_parameters = len(task.parameters(task.options))
        self._inputs = _Inputs(self.arrays, batch, num_weights, normalizer_size, num_parameters)
        max_hashes = min(task.step_limit, MAX_HASHED_STEPS)
        self._results = _Results(self.arrays, max_hashes, normalizer_size, self._num_traces)
        self.slots = WIDTH * self._step.arrays.tiles
        """The number of episodes that can run at a time."""
        self._no_episodes = np.full(self.slots, -1, np.int64)  # the episode of each slot if all are free
        self._task_structure = task_on_device(task, self._step.arrays)
        self._structure = _Structure(
            coefficients=self.arrays.constant(coefficients(max(task.observation_size, task.action_size))),
            max_hashes=max_hashes,
            normalize=normalize,
            num_columns=len(batch.held),
            columns=self._inputs.columns,
            num_parameters=num_parameters,
            traces=0 if batch.kept_traces is None else batch.kept_traces.address,
            begun=self._counts.address,
            over=self._counts.address + 8,
            made=self._counts.address + 16,
            **self._slot_arrays(normalizer_size),
            **self._inputs.addresses,
            **self._results.addresses,
        )
        self._step.arrays.wait()

    def _slot_arrays(self, normalizer_size: int) -> dict[str, int]:
        """Allocate the arrays of slots that belong neither to the network nor to the task.

        normalizer_size: O, or 0 without normalization. Return the addresses by field of `_Structure`.
        """
        sizes = {"episodes": 8, "ending": 8, "beginning": 8, "over_lanes": 8, "returns": 8, "prints": 16}  # in bytes
        sizes |= {"slot_normalizers": 4 * 2 * normalizer_size, "moments": 8 * 2 * normalizer_size}
        return {name: self._step.arrays.allocate(size * self.slots).address for name, size in sizes.items()}

    @property
    def ready(self) -> bool:
        """Whether `feed` may be called: all results of the last feed were taken."""
        return self._current_feed is None

    @property
    def waiting(self) -> int:
        """The number of episodes of the feed that have not begun."""
        # A slot that finds no more episode adds 1 to the count, too, so the difference may be negative.
        return max(0, self._size - int(self._counts_now[0]))

    @property
    def running(self) -> int:
        """The number of episodes that have begun, but that `take` would not return yet."""
        return self._size - self.waiting - self.finished

    @property
    def finished(self) -> int:
        """The number of episodes that `take` would return: all of the feed once all have ended, else 0."""
        return self._size if self._counts_now[1] == self._size else 0

    @property
    def _size(self) -> int:
        """The number of episodes of the feed."""
        return 0 if self._current_feed is None else len(self._current_feed.seeds)

    def feed(self, feed: Feed) -> None:
        """Copy the episodes of a feed to the device; only if `ready`."""
        self._current_feed = feed = feed.contiguous()
        allocated = self._step.arrays.tiles
        self._tiles = min(allocated, ceil_div(self._size, WIDTH))
        # A small feed has blocks of fewer tiles, to occupy all multiprocessors. Every block has `_together` tiles, so a
        # launch may have a few more tiles than the feed needs, but not more than were allocated.
        self._together = tiles_together(self.task, WIDTH * self._tiles)
        while ceil_div(self._tiles, self._together) * self._together > allocated:
            self._together -= 1
        self._structure.fed = self._size
        # A mask without columns requests no traces.
        self._structure.num_traces = self._num_traces if feed.mask.shape[1] else 0
        # The kernel counts on the device. The counts begin at zero, and every slot is free.
        self.arrays.queue.upload(self._counts.address, np.zeros(3, np.int64))
        self.arrays.queue.upload(self._structure.episodes, self._no_episodes)
        self._inputs.upload(feed)

    def run(self, steps: int, more: bool) -> int:
        """Play at most `steps` steps in each slot; return the number of steps made, summed over all episodes.

        `more` has no effect: a device gets the next feed when all episodes of this one have ended.
        """
        self.begin(steps)
        return self.finish()

    def begin(self, steps: int) -> None:
        """Begin to play at most `steps` steps in each slot. The next call must be `finish` or `clear`."""
        self._steps_before = int(self._counts_now[2])
        if self._current_feed is not None:
            blocks = ceil_div(self._tiles, self._together)
            arguments = self._step.structure, self._task_structure, self._structure, steps
            self.arrays.queue.launch(self._kernel, blocks, self._parts, *arguments, tiles=self._together)
            self.arrays.queue.download(self._counts.address, self._new_counts)

    def finish(self) -> int:
        """Wait for the end of the call that `begin` began; return the number of its steps, summed over all episodes."""
        self.arrays.wait()
        self._counts_now[:] = self._new_counts
        return int(self._counts_now[2]) - self._steps_before

    def take(self, best_of: int) -> Played:
        """Return the results of the feed, after all its episodes have ended. best_of: see `needs_step_hashes`."""
        assert self._current_feed is not None
        played = self._results.download(self._current_feed, best_of, has_traces=bool(self._structure.num_traces))
        self.clear()
        return played

    def clear(self) -> None:
        """Drop all episodes."""
        # A download may still write to `_new_counts`, which is cleared below.
        self.arrays.wait()
        self._current_feed = None
        self._counts_now[:] = self._new_counts[:] = 0


class DeviceRollout(ExactRollout):
    """Plays whole episodes on a device, alone or as a half of a `RolloutInHalves`."""

    play: DevicePlay
    begun = False
    """Whether a tick was begun but not finished, as in `Rollout`."""

    def begin(self) -> None:
        """Begin to play for some milliseconds. The next call must be `finish` or `clear`."""
        self._begun_slots, self._began_at = self._busy_slots, time.perf_counter()
        self.play.begin(self.steps)
        self.begun = True

    def finish(self) -> EpisodeResults | None:
        """Wait for the end of the call that `begin` began; return the results of ended episodes, or None."""
        waited_from = time.perf_counter()
        steps_made = self.play.finish()
        self.begun = False
        now = time.perf_counter()
        # If the device had finished before this call, the time since `begin` is an upper bound of its playing time.
        self._count(steps_made, self._begun_slots, now - self._began_at, now - waited_from)
        return self.take_results()

    def clear(self) -> None:
        """Drop all episodes."""
        super().clear()
        self.begun = False


class _Inputs:
    """Device arrays with the inputs of the episodes of a feed.

    Args:
        arrays: Allocates the arrays. `arrays.slots` is the largest number of episodes in a feed, as in `DevicePlay`.
        batch: The networks of the slots.
        num_weights: W, of a genome.
        normalizer_size: O if observations are normalized, else 0.
        num_parameters: The number of the task's parameters.

    Attributes:
        addresses: The addresses of the arrays, by field of `_Structure`.
        columns: The state arrays of the network's slots, each with the address of its initial values.
    """

    def __init__(
        self, arrays: DeviceArrays, batch: SlotArrays, num_weights: int, normalizer_size: int, num_parameters: int
    ) -> None:
        self.arrays = arrays
        # The initial values of one genome show the columns that need memory, and their sizes. Other columns begin as 0.
        weights, mask = np.zeros((1, num_weights), np.float32), np.ones((1, num_weights), np.bool_)
        initial = batch.initial(weights, mask, np.zeros(1, np.int64))
        self._values = [None if values is None else self._allocate(4 * values.shape[1]) for values in initial]
        columns = []
        for held, memory in zip(batch.held, self._values, strict=True):
            columns.append(InitialColumns(held.address, held.rows, None if memory is None else memory.address))
        self.columns = (InitialColumns * MOST_COLUMNS)(*columns)
        # In bytes, of an episode.
        sizes = {"genomes": 4, "seeds": 8, "normalizers": 4 * 2 * normalizer_size, "parameters": 8 * num_parameters}
        self.addresses = {name: self._allocate(nbytes).address for name, nbytes in sizes.items()}

    def _allocate(self, nbytes: int) -> Memory:
        """Allocate `nbytes` bytes for each episode."""
        return self.arrays.allocate(self.arrays.slots * nbytes)

    def upload(self, feed: Feed) -> None:
        """Copy a feed to the device."""
        for name, address in self.addresses.items():
            self.arrays.queue.upload(address, getattr(feed, name))
        for memory, values in zip(self._values, feed.columns, strict=True):
            if memory is not None and values is not None:
                self.arrays.queue.upload(memory.address, values)


class _Results:
    """Device arrays with the results of a feed's episodes.

    Args:
        arrays: Allocates the arrays.
        max_hashes: The largest number of step hashes of an episode.
        normalizer_size: O if observations are normalized, else 0.
        num_traces: T.

    Attributes:
        addresses: The addresses of the arrays, by field of `_Structure`.
    """

    def __init__(self, arrays: DeviceArrays, max_hashes: int, normalizer_size: int, num_traces: int) -> None:
        self._max_hashes = max_hashes
        self._arrays = arrays
        # The shape and the type of each result of an episode. The step hashes of a step are one uint16.
        self._shapes: dict[str, tuple[tuple[int, ...], Any]] = {
            "returns": ((), np.float64),
            "lengths": ((), np.int32),
            "prints": ((2,), np.uint64),
            "moments": ((2, normalizer_size), np.float64),
            "traces": ((num_traces,), np.float32),
            "hashes": ((max_hashes,), np.uint16),
        }
        # In bytes, of an episode.
        sizes = {name: math.prod(shape) * np.dtype(dtype).itemsize for name, (shape, dtype) in self._shapes.items()}
        self.addresses = {f"result_{name}": arrays.allocate(arrays.slots * n).address for name, n in sizes.items()}
        # Staging memory for `_hashes`: hashes, and the places where episodes end.
        arrays.reserve(LARGEST_COPY + 8 * arrays.slots)

    def download(self, feed: Feed, best_of: int, has_traces: bool) -> Played:
        """Wait for and return the results of a feed. best_of: see `needs_step_hashes`."""
        n = len(feed.seeds)
        names = "returns", "lengths", "prints", "moments"
        returns, lengths, prints, moments = (self._begin_download(name, n) for name in names)
        traces = self._begin_download("traces", n if has_traces else 0)
        self._arrays.wait()
        # Most step hashes are not needed. Together they would be nearly all bytes of the download.
        hashed = needs_step_hashes(feed.keys, returns, best_of)
        hashes = self._hashes(np.where(hashed, np.minimum(lengths, self._max_hashes), 0))
        quantized = np.zeros((n, traces.shape[1] if has_traces else 0), np.int64)
        if has_traces:
            # Quantize some episodes at a time, because the intermediate arrays are larger than the result.
            at_once = max(1, LARGEST_COPY // traces.shape[1])
            for start in range(0, n, at_once):
                part = slice(start, start + at_once)
                mask = feed.mask[feed.genomes[part]]
                quantized[part] = quantize_traces(np.where(mask, traces[part], np.float32(0)))
        return Played(feed.keys, returns, lengths, prints, hashed, hashes, moments, quantized)

    def _begin_download(self, name: str, n: int) -> NDArray[Any]:
        """Begin to download results of n episodes. Return their array, which has its values after the next `wait`."""
        shape, dtype = self._shapes[name]
        values = np.empty((n, *shape), dtype)
        self._arrays.queue.download(self.addresses[f"result_{name}"], values)
        return values

    def _hashes(self, counts: Int32) -> UInt8:
        """Wait for and return [Σ counts, 2]: the first `counts` step hashes of each episode, concatenated."""
        # The hashes of episode i are values[bounds[i] : bounds[i + 1]]. A step has two bytes of hashes, one uint16.
        bounds = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        values = np.empty(int(bounds[-1]), np.uint16)
        first = 0
        while first < len(counts):
            # Copy the episodes from `first` to `stop` - 1: as many as fit into LARGEST_COPY, but at least one.
            num_fitting = int(np.searchsorted(bounds, bounds[first] + LARGEST_COPY // 2, "right")) - 1 - first
            stop = first + max(1, num_fitting)
            part = values[bounds[first] : bounds[stop]]
            target = self._arrays.scratch(part.nbytes, keep_free=8 * (stop + 1 - first))
            (part_bounds,) = self._arrays.uploads(bounds[first : stop + 1])
            source = self.addresses["result_hashes"] + 2 * self._max_hashes * first
            arguments = source, self._max_hashes, part_bounds, target
            self._arrays.queue.launch("end_to_end", stop - first, COPYING_PARTS, *arguments)
            self._arrays.queue.download(target, part)
            first = stop
        self._arrays.wait()
        return values.view(np.uint8).reshape(-1, 2)


AnyRollout = Rollout | RolloutInHalves | ExactRollout | ThreadedRollout
"""Any rollout that `make_rollout` returns."""
