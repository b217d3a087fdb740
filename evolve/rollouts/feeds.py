"""What plays whole episodes of an exact task gets and gives: feeds of episodes, and those that have been played."""

import ctypes
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from evolve.numerics.native import ADDRESS, INT64
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64


@dataclass(frozen=True)
class Feed:
    """n episodes that may begin.

    columns: what a slot of the network holds at first, [n, rows] for each of the columns held, None for zeros.
    seeds: [n], of the environments. keys: [n], which come back with the results. normalizers: [n, 2, O], O = 0 where
    observations are not normalized. mask: [n, T], the connections whose traces are wanted; T = 0 for none.
    """

    columns: tuple[Float32 | None, ...]
    seeds: Int64
    keys: Int64
    normalizers: Float32
    mask: Bool

    def contiguous(self) -> "Feed":
        """Return the same, as kernels take it."""
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
    """Slots that play the episodes of feeds: `NativePlay`, or `DevicePlay`."""

    @property
    def ready(self) -> bool:
        """Whether the next feed may come."""

    @property
    def waiting(self) -> int:
        """Episodes of the feed that have not begun."""

    @property
    def running(self) -> int:
        """Episodes that have begun, and are not among those that `take` would return."""

    @property
    def over(self) -> int:
        """Episodes that `take` would return."""

    def feed(self, feed: Feed) -> None:
        """Let episodes wait."""

    def run(self, steps: int, more: bool) -> int:
        """Play for so many steps of all slots at most; return how many steps of episodes were made.

        more: Whether episodes wait that were not fed.
        """

    def take(self) -> Played:
        """Return the episodes that have ended since this was last called."""

    def clear(self) -> None:
        """Forget every episode."""


class InitialColumns(ctypes.Structure):
    """`initial_columns` of kernels/rows.h."""

    _fields_ = (("columns", ADDRESS), ("rows", INT64), ("values", ADDRESS))
