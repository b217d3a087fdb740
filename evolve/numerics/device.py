"""The device (GPU) of this process, with arrays and the network step of B slots.

A slot has the state of one running episode. `DeviceArrays` allocates arrays with a column of numbers for each slot.
`DeviceStep` advances the networks of all slots by one step. `device_protocol` defines what a device does, and
`cupy_device` opens a GPU.
"""

import ctypes
import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError
from evolve.numerics.device_protocol import MOST_PARTS, WIDTH, Device, Memory, Queue
from evolve.shapes import Float32, Slots, ceil_div

_OPEN: list[Device] = []  # the device of this process, once it is open
# The number of columns of a weight matrix that one thread sums if a batch has many tiles, as in kernels/sums.h.
_COLUMNS_PER_THREAD = 4
COPYING_PARTS = 4
"""The `parts` of `Queue.launch` for copying kernels: the WIDTH × 4 threads of a block copy one slot or one episode."""
STAGING = 2**18
"""The initial number of bytes of staging memory: device memory for data that kernels then copy to or from the slots."""
_ALIGNMENT = 256  # bytes
LARGEST_COPY = 2**22
"""The largest number of bytes in one copy through the staging memory. Larger arrays are copied in parts, but a part has
at least one slot or episode, however large it is."""
MOST_STAGING = 2 * LARGEST_COPY
"""The approximate maximum of staging memory, in bytes: while it grows, the old and the new memory both exist."""


def device() -> Device:
    """Return the device of this process; the first call opens it.

    Raises:
        InputError: There is no usable device. The message names the missing part, and how to get it.
    """
    if not _OPEN:
        from evolve.numerics.cupy_device import open_device  # noqa: PLC0415 - CuPy takes a second to import

        _OPEN.append(open_device())
    return _OPEN[0]


def has_device() -> bool:
    """Return whether this process can use a device. The first call opens the device if CuPy is installed."""
    if not _OPEN and importlib.util.find_spec("cupy") is None:
        return False
    try:
        device()
    except InputError:
        return False
    return True


def use(other: Device | None) -> Device | None:
    """Use another device in this process, such as the emulated device of the tests; return the previous device.

    With None, the next call of `device` opens a device.
    """
    before = _OPEN[0] if _OPEN else None
    _OPEN[:] = [] if other is None else [other]
    return before


class DeviceColumns:
    """A column of n numbers for each slot, on a device: an array [tiles, n, WIDTH].

    It has the methods of `evolve.networks.network.HostColumns`.

    Args:
        arrays: The arrays of the batch.
        n: The number of numbers in a column.
        dtype: The type of the numbers, of 2, 4 or 8 bytes.

    Attributes:
        rows: n.
        address: The address of the array on the device.
    """

    def __init__(self, arrays: "DeviceArrays", n: int, dtype: Any) -> None:
        self._arrays = arrays
        self.rows = n
        self._dtype = np.dtype(dtype)
        self._bits = 8 * self._dtype.itemsize
        self.address = arrays.allocate(arrays.tiles * WIDTH * n * self._dtype.itemsize).address

    def put(self, slots: Slots, values: NDArray[Any]) -> None:
        """Write the columns of slots [k], values [k, n]."""
        for part in self._slices(len(slots), self.rows):
            written = np.ascontiguousarray(values[part], self._dtype)
            self._launch("put", len(written), *self._arrays.uploads(_as_int64(slots[part]), written))

    def clear(self, slots: Slots) -> None:
        """Write zeros into the columns of slots [k]."""
        self._launch("clear", len(slots), *self._arrays.uploads(_as_int64(slots)))

    def take(self, slots: Slots, count: int | None = None) -> NDArray[Any]:
        """Return [k, count]: the first `count` numbers of slots [k], by default all n. The call waits for the queue."""
        count = self.rows if count is None else count
        values = np.empty((len(slots), count), self._dtype)
        for part in self._slices(len(slots), count):
            read = values[part]
            # `gathered` is valid until the next `wait`. Keep enough memory free for the slot numbers, 8 bytes each, so
            # that their upload does not wait.
            gathered = self._arrays.scratch(read.nbytes, keep_free=8 * len(read))
            self._launch("take", len(read), *self._arrays.uploads(_as_int64(slots[part])), gathered, count)
            self._arrays.queue.download(gathered, read)
        self._arrays.wait()
        return values

    def move(self, sources: Slots, targets: Slots) -> None:
        """Copy the columns of slots `sources` to slots `targets`."""
        self._launch("move", len(sources), *self._arrays.uploads(_as_int64(sources), _as_int64(targets)))

    @property
    def max_staged_bytes(self) -> int:
        """The most bytes of staging memory that a copy needs, for the values and the slot numbers."""
        column = self.rows * self._dtype.itemsize
        # A column that is longer than LARGEST_COPY is copied whole, see `_slices`.
        values = _aligned(min(self._arrays.slots * column, max(LARGEST_COPY, column)))
        slot_numbers = 2 * _aligned(8 * self._arrays.slots)  # of sources and targets, in `move`
        return values + slot_numbers

    def _slices(self, k: int, count: int) -> list[slice]:
        """Return slices of range(k). With `count` numbers per slot, each fits into LARGEST_COPY, or has only one slot.

        There are none if `count` is 0.
        """
        if not count:
            return []
        at_once = max(1, LARGEST_COPY // (count * self._dtype.itemsize))
        return [slice(n, n + at_once) for n in range(0, k, at_once)]

    def _launch(self, kernel: str, k: int, *arguments: int) -> None:
        """Run a kernel with a block for each of k slots."""
        if k:  # a device cannot run 0 blocks
            name = f"{kernel}_{self._bits}"
            self._arrays.queue.launch(name, k, COPYING_PARTS, self.address, self.rows, *arguments)


class DeviceArrays:
    """Makes arrays for B slots on a device, and owns the queue for work on these arrays.

    Raises:
        DeviceMemoryError: There is not enough memory.
    """

    def __init__(self, slots: int) -> None:
        self.device: Device = device()
        self.queue: Queue = self.device.queue()
        self.slots = slots
        self.tiles = ceil_div(slots, WIDTH)
        self._memory: list[Memory] = []  # keeps the memory of all arrays allocated
        self._staging = self.device.allocate(STAGING)
        self._used = 0  # bytes of the staging memory that are in use

    def columns(self, n: int, dtype: Any = np.float32) -> DeviceColumns:
        """Return a column of n zeros for each slot."""
        columns = DeviceColumns(self, n, dtype)
        self.reserve(columns.max_staged_bytes)
        return columns

    def zeros(self, n: int) -> int:
        """Return the address of n float32 for each slot, initially 0."""
        return self.allocate(4 * n * WIDTH * self.tiles).address

    def counters(self) -> int:
        """Return the address of an int64 for each slot, initially 0."""
        return self.allocate(8 * WIDTH * self.tiles).address

    def constant(self, array: NDArray[Any]) -> int:
        """Return the address of a copy of an array."""
        # Upload a copy, because the queue reads the array later, and the caller may change it meanwhile.
        address = self.allocate(array.nbytes).address
        self.queue.upload(address, np.array(array))
        return address

    def structure(self, structure: ctypes.Structure) -> int:
        """Return the address of a copy of a structure, which holds addresses of the device."""
        return self.constant(np.frombuffer(bytes(structure), np.uint8))

    def compiled_step(self, name: str, structure: ctypes.Structure, sizes: tuple[int, int, int]) -> "DeviceStep":
        """Return the step of a batch, which calls the kernel `evolve_<name>`; see `DeviceStep`."""
        return DeviceStep(self, name, structure, sizes)

    def allocate(self, nbytes: int) -> Memory:
        """Return memory filled with zeros that lives as long as this object."""
        self._memory.append(self.device.allocate(max(nbytes, 1)))
        return self._memory[-1]

    def scratch(self, nbytes: int, keep_free: int = 0) -> int:
        """Return the address of staging memory that is valid until the next `wait`.

        If too little memory is left, this call first waits, and may replace the memory by a larger one.

        keep_free: The number of bytes that the next calls can take without waiting.
        """
        needed = _aligned(nbytes) + _aligned(keep_free)
        if self._used + needed > self._staging.nbytes:
            # After the wait no queued work needs the staging memory, so it is used from its beginning again.
            self.wait()
            self.reserve(needed)
        address = self._staging.address + self._used
        self._used += _aligned(nbytes)
        return address

    def reserve(self, nbytes: int) -> None:
        """Make sure that the staging memory has at least `nbytes` bytes."""
        if nbytes > self._staging.nbytes:
            # Queued work may still use the old memory, which is freed when `_staging` is replaced.
            self.wait()
            self._staging = self.device.allocate(nbytes)

    def uploads(self, *arrays: NDArray[Any]) -> list[int]:
        """Return the addresses of copies of arrays, all valid until the next `wait`."""
        later = sum(_aligned(array.nbytes) for array in arrays)  # the bytes of the later arrays
        addresses = []
        for array in arrays:
            # If the upload of a later array waited, the addresses of the earlier ones would no longer be valid.
            later -= _aligned(array.nbytes)
            addresses.append(self.scratch(array.nbytes, keep_free=later))
            self.queue.upload(addresses[-1], array)
        return addresses

    def wait(self) -> None:
        """Wait for all queued work. The staging memory is free afterwards."""
        self.queue.wait()
        self._used = 0


class DeviceStep:
    """The step of a batch on a device, with the observations and actions of its slots on the host.

    Args:
        arrays: The arrays of the batch.
        name: The name of the kernel.
        structure: The first argument of the kernel, with the addresses of the batch's arrays.
        sizes: O, A, and the number of neurons of the widest layer, which the threads of a slot share.

    Attributes:
        arrays: The arrays of the batch.
        name: The name of the kernel.
        structure: The first argument of the kernel.
        observations: [slots, O], on the host; the caller writes them before `begin`.
        actions: [slots, A], on the host.
        input: The address of the observations on the device.
        parts: The number of threads for each slot.
    """

    def __init__(
        self, arrays: DeviceArrays, name: str, structure: ctypes.Structure, sizes: tuple[int, int, int]
    ) -> None:
        O, A, widest = sizes
        self.arrays = arrays
        self.observations: Float32 = arrays.device.host_array((arrays.slots, O), np.float32)
        self.actions: Float32 = arrays.device.host_array((arrays.slots, A), np.float32)
        self.input = arrays.allocate(self.observations.nbytes).address
        self._output = arrays.allocate(self.actions.nbytes).address
        self.name = name
        self.structure = structure
        # With few tiles most of a device is idle, so use more threads, with one column each.
        columns_per_thread = 1 if arrays.tiles < arrays.device.multiprocessors else _COLUMNS_PER_THREAD
        self.parts = max(1, min(MOST_PARTS, ceil_div(widest, columns_per_thread)))

    def begin(self, n: int, normalization: int = 0, fingerprints: int = 0) -> None:
        """Begin a step of the first n slots, for the present `observations`.

        normalization, fingerprints: The addresses of the structures that the kernel needs to normalize observations and
            to update fingerprints (`evolve.rollouts.inference`). With 0 it does not do so.
        """
        self.arrays.queue.upload(self.input, self.observations[:n])
        self.launch(n, normalization, fingerprints)
        self.arrays.queue.download(self._output, self.actions[:n])

    def launch(self, n: int, normalization: int = 0, fingerprints: int = 0) -> None:
        """Queue the kernel for the observations that the device already has."""
        arguments = self.structure, normalization, fingerprints, self.input, self._output, n
        self.arrays.queue.launch(self.name, ceil_div(n, WIDTH), self.parts, *arguments)

    def finish(self, n: int) -> Float32:
        """Wait for the end of a step; return its actions [n, A], valid until the next step begins."""
        self.arrays.wait()
        return self.actions[:n]

    def __call__(self, observations: Float32) -> Float32:
        """Advance the first n slots by one step: observations [n, O] -> actions [n, A]."""
        n = len(observations)
        self.observations[:n] = observations
        self.begin(n)
        return self.finish(n).copy()

    def settle(self, slots: Slots) -> None:
        """Apply the trace updates that the kernel has delayed, in all tiles that contain the given slots."""
        tiles = np.unique(slots // WIDTH)
        if len(tiles):
            (tiles_address,) = self.arrays.uploads(_as_int64(tiles))
            self.arrays.queue.launch(f"{self.name}_settle", len(tiles), self.parts, self.structure, tiles_address)


def _aligned(nbytes: int) -> int:
    """Return a number of bytes, rounded up to a multiple of `_ALIGNMENT`."""
    return ceil_div(nbytes, _ALIGNMENT) * _ALIGNMENT


def _as_int64(numbers: Slots) -> NDArray[Any]:
    return np.ascontiguousarray(numbers, np.int64)
