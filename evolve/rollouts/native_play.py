"""Lets kernels play whole episodes of an exact task. This module has the interface `Play`, and `NativePlay`.

A `Play` receives many episodes at a time (a `Feed`), plays them in its slots, and returns their results (`Played`).
`NativePlay` plays on the host with rollouts/kernels/play.h, and `DevicePlay` (`device_play`) on a GPU. `exact_rollout`
has the rollouts that use them.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evolve.environments import AnyTask, CompiledSlots
from evolve.networks.network import SlotArrays
from evolve.numerics import native, ordered_sum, restore_ieee
from evolve.numerics.hashing import MAX_HASHED_STEPS, coefficients
from evolve.numerics.native import ADDRESS, INT64
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64

BITS_OF_EPISODES = 32
"""The number of bits of the episode number in a key. The key of an episode is genome id · 2³² + episode number."""


@dataclass(frozen=True)
class Feed:
    """n episodes of C genomes for the slots of a `Play`. An episode begins when a slot is free.

    Attributes:
        columns: The contents of a slot when an episode begins: [C, rows] for each column in `SlotArrays.held`, or None
            for zeros.
        genomes: [n], the number of each episode's genome in `columns` and `mask`.
        seeds: [n], the seeds of the environments.
        keys: [n], the keys of the episodes, see `BITS_OF_EPISODES`.
        normalizers: [n, 2, O]; O = 0 if observations are not normalized.
        mask: [C, T], True for the connections whose traces the results need; T = 0 if they need none.
        parameters: [n, D], the parameters of the task in each episode.
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
        columns = [None if values is None else np.ascontiguousarray(values, np.float32) for values in self.columns]
        others = {name: np.ascontiguousarray(getattr(self, name)) for name in _FEED_ARRAYS}
        return Feed(tuple(columns), **others)


class Played(NamedTuple):
    """The results of N episodes that have ended: their keys, and quantities of `EpisodeResults`."""

    keys: Int64
    returns: Float64
    lengths: Int32
    fingerprints: UInt64
    hashed: Bool
    step_hashes: UInt8
    moments: Float64
    traces: Int64


class Play(Protocol):
    """Slots that play the episodes of feeds: `NativePlay` or `DevicePlay`."""

    task: AnyTask
    batch: SlotArrays
    """The networks of the slots. They compute the initial contents of a slot from a genome."""
    feed_size: int
    """The largest number of episodes in a feed."""
    slots: int
    """The number of episodes that can run at a time."""

    @property
    def ready(self) -> bool:
        """Whether `feed` may be called."""

    @property
    def waiting(self) -> int:
        """The number of episodes of the feed that have not begun."""

    @property
    def running(self) -> int:
        """The number of episodes that have begun, but that `take` would not return yet."""

    @property
    def finished(self) -> int:
        """The number of episodes that `take` would return."""

    def feed(self, feed: Feed) -> None:
        """Add the episodes of a feed; only if `ready`."""

    def run(self, steps: int, more: bool) -> int:
        """Play at most `steps` steps in each slot; return the number of steps made, summed over all episodes.

        more: Whether episodes wait for the next feed. Then the call may return as soon as a slot is free.
        """

    def take(self, best_of: int) -> Played:
        """Return the results of the episodes that ended since the last call. best_of: see `needs_step_hashes`."""

    def clear(self) -> None:
        """Drop all episodes."""


class InitialColumns(ctypes.Structure):
    """The C structure `initial_columns` of kernels/rows.h."""

    _fields_ = (("columns", ADDRESS), ("rows", INT64), ("values", ADDRESS))


def fields_of_type(kind: type[Any], names: str) -> tuple[tuple[str, type[Any]], ...]:
    """Return fields of a C structure that all have the type `kind`. names: Separated by spaces."""
    return tuple((name, kind) for name in names.split())


class _Structure(ctypes.Structure):
    """The C structure `play` of kernels/play.h, which has the shapes. The caller keeps its arrays alive.

    max_hashes: The largest number of step hashes of an episode.
    prints: The fingerprints of the slots.
    over: The number of finished episodes.
    hashed: The number of their step hashes.
    """

    _fields_ = (
        *fields_of_type(ADDRESS, "places advance settle network step begin task coefficients"),
        *fields_of_type(INT64, "max_hashes normalize tiles next fed num_columns"),
        *fields_of_type(ADDRESS, "columns genomes seeds keys normalizers mask"),
        *fields_of_type(ADDRESS, "live slot_masks slot_keys returns prints step_hashes slot_normalizers moments"),
        *fields_of_type(INT64, "over hashed num_traces"),
        *fields_of_type(ADDRESS, "traces result_keys result_returns result_moments result_lengths"),
        *fields_of_type(ADDRESS, "result_prints result_hashes result_traces"),
        *fields_of_type(INT64, "num_parameters"),
        *fields_of_type(ADDRESS, "parameters"),
    )


_FEED_ARRAYS = ("genomes", "seeds", "keys", "normalizers", "mask", "parameters")
"""The arrays of a `Feed` except `columns`. The C structure has fields of the same names."""
# The buffers with state of slots, which `give` copies.
_BY_SLOT = ("slot_masks", "slot_keys", "returns", "step_hashes")  # [slots, …]
_BY_TILE = ("prints", "slot_normalizers", "moments")  # [tiles, rows, lanes]


class NativePlay:
    """Slots on the host. One native function steps all of them together.

    Args:
        task: The task.
        slots: The number of slots: one tile (`native.lanes()` slots), or several tiles if the task needs them.
        batch: The networks of the slots, with native kernels.
        feed_size: The largest number of episodes in a feed.
        normalize: Whether networks see normalized observations.
    """

    def __init__(self, task: AnyTask, slots: int, batch: SlotArrays, feed_size: int, normalize: bool) -> None:
        assert isinstance(batch.kernel, native.NativeStep)
        self.task, self.batch, self.feed_size = task, batch, feed_size
        O = task.observation_size
        traces = batch.kept_traces
        num_traces = self._num_traces = 0 if traces is None else traces.rows
        self.slots = slots
        self._environments = CompiledSlots(task, slots, per_call=slots)
        columns = [InitialColumns(held.address, held.rows) for held in batch.held]
        self._columns = (InitialColumns * len(columns))(*columns)  # an array of C
        # The structure below has only addresses; this attribute and `batch` keep the arrays alive.
        self._coefficients = coefficients(max(O, task.action_size))
        self._last_feed: Feed | None = None
        max_hashes = min(task.step_limit, MAX_HASHED_STEPS)  # of an episode
        lanes = native.lanes()
        tiles = slots // lanes
        self._structure = _Structure(
            **batch.kernel.addresses,
            **self._environments.addresses,
            coefficients=self._coefficients.ctypes.data,
            max_hashes=max_hashes,
            normalize=normalize,
            tiles=tiles,
            num_columns=len(batch.held),
            columns=ctypes.addressof(self._columns),
            traces=0 if traces is None else traces.address,
        )
        # The caller takes all results before it adds a feed. So before the next `take`, at most the episodes of a feed
        # and the episodes in the slots can end.
        n = feed_size + slots
        normalizer_size = O if normalize else 0
        # The arrays of the slots and of the results, by field of the structure.
        self._buffers: dict[str, NDArray[Any]] = {
            "live": self._environments.active,
            "slot_masks": np.zeros((slots, num_traces), np.bool_),
            "slot_keys": np.zeros(slots, np.int64),
            "returns": np.zeros(slots),
            "prints": np.zeros((tiles, 2, lanes), np.uint64),
            "step_hashes": np.zeros((slots, max_hashes, 2), np.uint8),
            "slot_normalizers": np.zeros((tiles, 2 * normalizer_size, lanes), np.float32),
            "moments": np.zeros((tiles, 2 * normalizer_size, lanes)),
            "result_keys": np.zeros(n, np.int64),
            "result_returns": np.zeros(n),
            "result_lengths": np.zeros(n, np.int32),
            "result_prints": np.zeros((n, 2), np.uint64),
            "result_hashes": np.zeros((n * max_hashes, 2), np.uint8),
            "result_moments": np.zeros((n, 2, normalizer_size)),
            "result_traces": np.zeros((n, num_traces), np.int64),
        }
        self._set(**{name: array.ctypes.data for name, array in self._buffers.items()})
        self._play = native.bind("play", [ADDRESS, INT64, INT64], INT64)

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
        # The kernel gets only addresses, so the attribute keeps the arrays alive.
        self._last_feed = feed = feed.contiguous()
        for column, values in zip(self._columns, feed.columns, strict=True):
            column.values = None if values is None else values.ctypes.data
            # Factors (`FactoredGenomes`) may take fewer rows than the weights that they replace.
            column.rows = column.rows if values is None else values.shape[1]
        self._set(
            next=0,
            fed=len(feed.seeds),
            num_traces=self._num_traces if feed.mask.shape[1] else 0,
            num_parameters=feed.parameters.shape[1],
            **{name: vars(feed)[name].ctypes.data for name in _FEED_ARRAYS},
        )

    def run(self, steps: int, more: bool) -> int:
        """Play at most `steps` steps in each slot; return the number of steps made, summed over all episodes.

        The call ends early if no episode runs, or if a slot is free and more episodes wait for a feed (`more`).
        """
        restore_ieee()
        return self._play(ctypes.addressof(self._structure), steps, more)

    def take(self, best_of: int) -> Played:
        """Return the results of the episodes that ended since the last call. best_of: see `needs_step_hashes`."""
        n, num_hashes, buffers = self._structure.over, self._structure.hashed, self._buffers
        self._set(over=0, hashed=0)
        # Copy the results, since the next call of `run` overwrites these arrays. Most step hashes are not needed.
        names = "keys", "returns", "lengths", "prints", "moments"
        keys, returns, lengths, prints, moments = (buffers[f"result_{name}"][:n].copy() for name in names)
        hashed = needs_step_hashes(keys, returns, best_of)
        hashes = _hashes_of(hashed, lengths, buffers["result_hashes"][:num_hashes])
        traces = buffers["result_traces"][:n, : self._structure.num_traces].copy()
        return Played(keys, returns, lengths, prints, hashed, hashes, moments, traces)

    def give(self, other: "NativePlay", count: int) -> int:
        """Move `count` of the running episodes to free slots of another play of the same task and network.

        Return the number of steps that these episodes have made.
        """
        sources = np.flatnonzero(self._buffers["live"])[-count:]
        targets = np.flatnonzero(~other._buffers["live"])[:count]
        # Copy the state of the network, of the environment, and of the slots in the buffers of this object.
        self.batch.give(other.batch, sources, targets)
        self._environments.move(sources, targets, other._environments)
        lanes = native.lanes()
        (tile, lane), (to_tile, to_lane) = np.divmod(sources, lanes), np.divmod(targets, lanes)
        for name in _BY_TILE:
            other._buffers[name][to_tile, :, to_lane] = self._buffers[name][tile, :, lane]
        for name in _BY_SLOT:
            other._buffers[name][targets] = self._buffers[name][sources]
        other._set(num_traces=self._structure.num_traces)
        # Change the live slots last: after an error before this line, no episode is lost or played twice.
        other._buffers["live"][targets] = True
        self._buffers["live"][sources] = False
        return sum(self._environments.seed_and_steps(slot)[1] for slot in sources.tolist())

    def clear(self) -> None:
        """Drop all episodes."""
        self._set(next=0, fed=0, over=0, hashed=0)
        self._buffers["live"][:] = False
        self._last_feed = None

    def _set(self, **values: int) -> None:
        """Set fields of the C structure."""
        for name, value in values.items():
            setattr(self._structure, name, value)


def needs_step_hashes(keys: Int64, returns: Float64, best_of: int) -> Bool:
    """Return [N]: whether the results need the step hashes of each episode, see `EpisodeBatch.best_of`.

    They need the hashes if the genome of the episode may have the best mean return of the whole population. The first
    of several genomes with equal means counts as best, as in `strategies.ranking`.

    Args:
        keys: [N], genome id · 2³² + episode number.
        returns: [N].
        best_of: The number of episodes of each genome; 0 if the results need the step hashes of all genomes.
    """
    needed = np.ones(len(keys), np.bool_)
    # `argmax` below would return the place of a NaN.
    if not best_of or np.isnan(returns).any():
        return needed
    order = np.argsort(keys)
    genomes = keys[order] >> BITS_OF_EPISODES
    # A genome is complete if all its episodes are here. Only then its mean is known. Sorted by key, its episodes are
    # adjacent: the one `best_of` - 1 places after the first belongs to the genome, too. `firsts` are the places in
    # `order` of the first episodes of complete genomes.
    lasts = genomes[best_of - 1 :]  # empty if there are fewer than `best_of` episodes
    firsts = np.flatnonzero(lasts == genomes[: len(lasts)])
    if len(firsts):
        # [complete genomes, best_of]: indices in `keys`. Of these genomes, only the best can be the best of all.
        places = order[firsts[:, None] + np.arange(best_of)]
        best = int(np.argmax(ordered_sum(returns[places]) / best_of))
        needed[places] = False
        needed[places[best]] = True
    return needed


def _hashes_of(needed: Bool, lengths: Int32, hashes: UInt8) -> UInt8:
    """Return a copy of the step hashes of the needed episodes, end to end. hashes: [L, 2], of all N episodes."""
    if needed.all():
        return hashes.copy()
    num_hashes = np.minimum(lengths, MAX_HASHED_STEPS)
    ends = np.cumsum(num_hashes, dtype=np.int64)
    begins = ends - num_hashes
    ranges = zip(begins[needed].tolist(), ends[needed].tolist(), strict=True)
    # `concatenate` needs an array, so begin with an empty one, even if no episode is needed.
    return np.concatenate([hashes[:0], *(hashes[begin:end] for begin, end in ranges)])
