"""What the batches of all networks share: arrays that hold a column of numbers for each of B slots."""

import numpy as np

from evolve.numerics import Backend, aligned, native
from evolve.shapes import Float32, Slots


class SlotArrays:
    """Arrays [tiles, n, lanes] of B slots: slots run along the last axis, so that each operation is wide.

    With the native back end a tile is what the kernel works on at a time; with NumPy there is only one, as wide as the
    batch.
    """

    def __init__(self, slots: int, backend: Backend) -> None:
        self._lanes = native.lanes() if backend == "native" else slots
        self._tiles = -(-slots // self._lanes)
        self._held: list[Float32] = []

    def _hold(self, n: int) -> Float32:
        """Return a new array of zeros whose columns move with their slots."""
        self._held.append(aligned(self._tiles, n, self._lanes))
        return self._held[-1]

    def _at(self, slots: Slots) -> tuple[Slots, slice, Slots]:
        """Return the index of the columns of slots [k]: they are read and written as [k, n]."""
        tile, lane = np.divmod(slots, self._lanes)
        return tile, slice(None), lane

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy all that slots hold onto others."""
        there = self._at(targets)
        here = self._at(sources)
        for array in self._held:
            array[there] = array[here]
