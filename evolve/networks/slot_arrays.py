"""The arrays of a batch of any network: each holds a column of numbers for each of B slots.

The arrays are where the back end computes: on the host, or on a device (`evolve.numerics.device`). The native kernel
processes a tile of slots at a time. With NumPy there is one tile, as wide as the batch.
"""

import ctypes
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from evolve.numerics import Backend, aligned, native
from evolve.numerics.native import ADDRESS, INT64
from evolve.shapes import Bool, Float32, Int64, Slots

_LARGE = 2**12  # numbers; an array operation writes fewer numbers faster than the native function


class Columns(Protocol):
    """A column of n numbers for each slot. A method for k slots takes their numbers [k], all different."""

    address: int
    rows: int
    """n."""

    def put(self, slots: Slots, values: NDArray[Any]) -> None:
        """Write the columns of slots, values [k, n]."""

    def clear(self, slots: Slots) -> None:
        """Write zeros into the columns of slots."""

    def take(self, slots: Slots) -> NDArray[Any]:
        """Return [k, n]: the columns of slots."""

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy the columns of the source slots to the target slots."""


class Kernel(Protocol):
    """The compiled step of a batch."""

    def __call__(self, observations: Float32) -> Float32:
        """Advance the first n slots by one step: observations [n, O] -> actions [n, A]."""

    def settle(self, slots: Slots) -> None:
        """Apply the pending updates of traces in the tiles of slots."""


class Arrays(Protocol):
    """Makes arrays for B slots, and the compiled step that works on them."""

    def columns(self, n: int) -> Columns:
        """Return columns of n zeros."""

    def zeros(self, n: int) -> int:
        """Return the address of n float32 for each slot, at first zeros."""

    def counters(self) -> int:
        """Return the address of an int64 for each tile, or for each slot of the tile, at first zero."""

    def constant(self, array: NDArray[Any]) -> int:
        """Return the address of a copy of an array."""

    def kernel(self, name: str, structure: ctypes.Structure, sizes: tuple[int, int, int]) -> Kernel:
        """Return the step `evolve_<name>` of a batch.

        structure: Its first argument. sizes: O, A, and the neurons of the widest layer.
        """


def structure(**parts: tuple[Any, Any]) -> ctypes.Structure:
    """Return the C structure of a kernel, whose fields have these types and values, in this order."""
    kind = type("Structure", (ctypes.Structure,), {"_fields_": [(name, part) for name, (part, _) in parts.items()]})
    made: ctypes.Structure = kind(**{name: value for name, (_, value) in parts.items()})
    return made


class HostColumns:
    """Columns in an array [tiles, n, lanes]: slots run along the last axis, so that each operation is wide."""

    def __init__(self, tiles: int, n: int, lanes: int, backend: Backend) -> None:
        self.array = aligned(tiles, n, lanes)
        self.rows = n
        self.address = self.array.ctypes.data
        self._lanes = lanes
        self._put = native.bind("put", [ADDRESS] * 3 + [INT64] * 2) if backend == "native" else None

    def put(self, slots: Slots, values: NDArray[Any]) -> None:
        """Write the columns of slots [k], values [k, n]."""
        if self._put is None or values.size < _LARGE:
            self.array[self._at(slots)] = values
        else:
            slots, values = np.ascontiguousarray(slots, np.int64), np.ascontiguousarray(values, np.float32)
            self._put(self.address, slots.ctypes.data, values.ctypes.data, *values.shape)

    def clear(self, slots: Slots) -> None:
        """Write zeros into the columns of slots [k]."""
        self.array[self._at(slots)] = 0

    def take(self, slots: Slots) -> Float32:
        """Return [k, n]: the columns of slots [k]."""
        return self.array[self._at(slots)]

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy the columns of the source slots to the target slots."""
        self.array[self._at(targets)] = self.array[self._at(sources)]

    def _at(self, slots: Slots) -> tuple[Slots, slice, Slots]:
        tile, lane = np.divmod(slots, self._lanes)
        return tile, slice(None), lane


class HostArrays:
    """Arrays of B slots on the host."""

    def __init__(self, slots: int, backend: Backend) -> None:
        self._backend = backend
        self._lanes = native.lanes() if backend == "native" else slots
        self._tiles = -(-slots // self._lanes)
        self._kept: list[NDArray[Any]] = []

    def columns(self, n: int) -> HostColumns:
        """Return columns of n zeros."""
        return HostColumns(self._tiles, n, self._lanes, self._backend)

    def zeros(self, n: int) -> int:
        """Return the address of n float32 for each slot, at first zeros."""
        return self._keep(aligned(self._tiles, n, self._lanes))

    def counters(self) -> int:
        """Return the address of an int64 for each tile, at first zero."""
        return self._keep(np.zeros(self._tiles, np.int64))

    def constant(self, array: NDArray[Any]) -> int:
        """Return the address of a copy of an array."""
        return self._keep(np.array(array))

    def kernel(self, name: str, structure: ctypes.Structure, sizes: tuple[int, int, int]) -> native.NativeStep:
        """Return the native step `evolve_<name>` of a batch."""
        return native.NativeStep(name, structure, sizes[1], self._lanes)

    def _keep(self, array: NDArray[Any]) -> int:
        self._kept.append(array)
        return int(array.ctypes.data)


class SlotArrays:
    """Base of the batches of networks: the arrays of B slots. Columns that `_hold` returns move with their slots.

    Attributes:
        held: The columns that move with their slots.
        kept_traces: The column of traces that an episode leaves for the strategy; None if it leaves no traces.
        kernel: The compiled step. None with the back end numpy: there array operations are the step. They are the
            reference, and the definition.
    """

    def __init__(self, slots: int, backend: Backend) -> None:
        self._compiled = backend != "numpy"
        self._arrays = _arrays(slots, backend)
        self.held: list[Columns] = []
        self.kept_traces: Columns | None = None
        self.kernel: Kernel | None = None

    def _hold(self, n: int) -> Any:
        """Return new columns of n zeros that move with their slots: `HostColumns`, but for a device."""
        self.held.append(self._arrays.columns(n))
        return self.held[-1]

    def initial(self, weights: Float32, mask: Bool, seeds: Int64) -> tuple[Float32 | None, ...]:
        """Return the contents of slots at the start of an episode, [k, n] for each of the columns held; None for zeros.

        Args:
            weights: [k, W] of the genomes, as in `load`.
            mask: [k, W] of the genomes.
            seeds: [k], of the episodes' environments.
        """
        raise NotImplementedError

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64) -> None:
        """Put genomes [k, W] into slots, and clear all other state of these slots."""
        self._settle(slots)
        for columns, values in zip(self.held, self.initial(weights, mask, seeds), strict=True):
            columns.clear(slots) if values is None else columns.put(slots, values)

    def traces(self, slots: Slots) -> Float32:
        """Return [k, T]: the traces of slots; T = 0 if the network has no traces."""
        if self.kept_traces is None:
            return np.zeros((len(slots), 0), np.float32)
        self._settle(slots)
        taken: Float32 = self.kept_traces.take(slots)
        return taken

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy the genomes and the state of the source slots to the target slots."""
        self._settle(np.concatenate([sources, targets]))
        for columns in self.held:
            columns.move(sources, targets)

    def step(self, observations: Float32) -> Float32:
        """Advance the first n slots by one step: observations [n, O] -> new actions [n, A]."""
        return self._reference(observations) if self.kernel is None else self.kernel(observations)

    def _reference(self, observations: Float32) -> Float32:
        raise NotImplementedError

    def _settle(self, slots: Slots) -> None:
        """Apply the pending updates of traces in the tiles of slots."""
        if self.kernel is not None and self.kept_traces is not None:
            self.kernel.settle(slots)


def _arrays(slots: int, backend: Backend | Arrays) -> Arrays:
    if not isinstance(backend, str):
        return backend
    if backend != "cupy":
        return HostArrays(slots, backend)
    from evolve.numerics.device import DeviceArrays  # noqa: PLC0415 - only where there is a device

    return DeviceArrays(slots)
