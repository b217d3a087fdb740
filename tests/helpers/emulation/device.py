"""`EmulatedDevice`: a device as `evolve.numerics.device` describes it, on the host and without mercy.

Mistakes that a real device may ignore, or report later, are errors here at once, such as a kernel that reads memory of
the host, or a host array that changes before its copy is made. Work is done as late as possible: in `wait`.
"""

import ctypes
import itertools
import threading
import weakref
from bisect import insort
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emulation import compiled
from emulation.instructions import Form
from emulation.ptx import translate
from evolve.errors import RunError
from evolve.numerics import cupy_device, device
from evolve.numerics.device_protocol import MOST_PARTS, WIDTH, DeviceMemoryError

_POISON = 0xFE
"""The value of bytes that must not be read: as a float32 -1.7e38, as an address invalid."""
_ALIGNMENT = 256
_BURIED = 2**24
"""Bytes of freed memory that are kept from being used for something else."""
_SMALL = 40_000
"""Kernels of fewer characters, in C, are compiled together; the others when they are needed."""


class KernelError(RunError):
    """A kernel did something forbidden."""


class EmulatedMemory:
    """Memory of an emulated device."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes


class _Unit:
    """The kernels of a compilation unit, in C, by name."""

    def __init__(self, kernels: Mapping[str, str], counted: bool) -> None:
        self.kernels = kernels
        self._counted = counted
        self._small = "\n".join(function for function in kernels.values() if len(function) < _SMALL)

    def library(self, name: str) -> ctypes.PyDLL:
        """Return a library that has a kernel."""
        function = self.kernels[name]
        return compiled.library(self._small if len(function) < _SMALL else function, self._counted)


class EmulatedDevice:
    """Executes the PTX of the kernels' sources. Queued work is done in `wait`.

    Args:
        architecture: The one to compile for.
        capacity: The bytes it has.
        files: The compilation unit and its headers, by default `cupy_device.source_files()`.
        options: Those of the compiler, by default the exact ones.
        allow: Inexact instructions to be executed all the same.
        check_races: Whether accesses of several threads to a byte are errors when no barrier lies between; slower.
        counted: Whether it counts instructions; slower.
        seed: Of the orders in which threads take turns.

    Attributes:
        ptx: What it executes.
        check_races: As above.
        executed: The kernels that have run.
        executed_by_warps: [2], the instructions of all warps and of the longest one of each block, if they are counted.
        lost_barriers: The names of barriers, 0 to 63, at which threads do not wait.
    """

    name = "an emulated device"
    multiprocessors = 2

    def __init__(
        self,
        architecture: str = "sm_90",
        *,
        capacity: int = 2**30,
        files: Mapping[str, str] | None = None,
        options: tuple[str, ...] = cupy_device.EXACT_OPTIONS,
        allow: Mapping[str, Form] | None = None,
        check_races: bool = False,
        counted: bool = False,
        seed: int = 0,
    ) -> None:
        self.ptx = compiled.ptx(architecture, dict(files) if files else None, options)
        self._counted = counted
        self.executed_by_warps = np.zeros(2, np.int64)
        self._given = _Unit(_translated(self.ptx) if allow is None else translate(self.ptx, allow), counted)
        self._units: dict[str, _Unit] = {}
        self.architecture = architecture
        self.check_races = check_races
        self._seeds = itertools.count(seed * 2**32)
        self.capacity = capacity
        self._alive: list[tuple[int, int]] = []  # [begin, end), in order
        self._buried: list[Any] = []
        self._thread = threading.get_ident()
        self.executed: set[str] = set()
        self.lost_barriers: set[int] = set()

    @property
    def allocated(self) -> int:
        """How many bytes are allocated now."""
        return sum(end - begin for begin, end in self._alive)

    @property
    def allocations(self) -> int:
        """How many pieces of memory have not been freed."""
        return len(self._alive)

    def allocate(self, nbytes: int) -> EmulatedMemory:
        """Return memory full of zeros. Raises DeviceMemoryError when there is too little."""
        self.check_thread()
        if nbytes > self.free_memory():
            raise DeviceMemoryError(nbytes, self.free_memory())
        held = ctypes.create_string_buffer(nbytes + _ALIGNMENT)
        address = -(-ctypes.addressof(held) // _ALIGNMENT) * _ALIGNMENT
        memory = EmulatedMemory(address, nbytes)
        insort(self._alive, (address, address + nbytes))
        weakref.finalize(memory, self._free, held, (address, address + nbytes)).atexit = False
        return memory

    def host_array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return zeros on the host."""
        return np.zeros(shape, dtype)

    def queue(self) -> "EmulatedQueue":
        """Return an empty queue."""
        self.check_thread()
        return EmulatedQueue(self)

    def free_memory(self) -> int:
        """Return how many bytes may still be allocated."""
        return self.capacity - self.allocated

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Be the device of this process during a block."""
        before = device.use(self)
        try:
            yield
        finally:
            device.use(before)

    def check_thread(self) -> None:
        """Raise RuntimeError unless the calling thread is the one that has opened this device."""
        if threading.get_ident() != self._thread:
            raise RuntimeError("a device is for the thread that has opened it")

    def check_range(self, address: int, nbytes: int, what: str) -> None:
        """Raise KernelError unless all these bytes are memory of the device."""
        if nbytes and not any(begin <= address and address + nbytes <= end for begin, end in self._alive):
            raise KernelError(f"{what} of {nbytes:,} bytes at {address:#x}, which is not memory of the device")

    def parameters(self, kernel: str) -> list[int]:
        """Return the sizes of a kernel's parameters, in words of 64 bits."""
        library, name = self._library(kernel), f"evolve_{kernel}_parameters"
        return list(itertools.takewhile(bool, (ctypes.c_int * 32).in_dll(library, name)))

    def most_threads(self, kernel: str) -> int:
        """Return the largest number of threads of a block for which a kernel was compiled."""
        limit = ctypes.c_int.in_dll(self._library(kernel), f"evolve_{kernel}_most_threads").value
        return limit or WIDTH * MOST_PARTS

    def run(self, kernel: str, blocks: int, parts: int, tiles: int, arguments: bytes) -> None:
        """Run a kernel. Raises KernelError if it does something forbidden.

        arguments: All parameters, end to end.
        """
        self.executed.add(kernel)
        library = self._library(kernel)
        ctypes.c_uint64.in_dll(library, "lost_barriers").value = sum(1 << name for name in self.lost_barriers)
        entry = ctypes.cast(getattr(library, f"evolve_{kernel}"), ctypes.c_void_p)
        values = (ctypes.c_uint64 * (len(arguments) // 8)).from_buffer_copy(arguments)
        ranges = (ctypes.c_uint64 * (2 * len(self._alive)))(*itertools.chain.from_iterable(self._alive))
        counts = ctypes.c_uint64(len(self._alive)), ctypes.c_uint64(next(self._seeds))
        size = ctypes.c_uint64(len(arguments))
        counters = [ctypes.c_uint64.in_dll(library, name) for name in ("warp_instructions", "longest_warp")]
        for counter in counters:
            counter.value = 0
        failure = library.launch(entry, blocks, parts, tiles, values, size, ranges, *counts, self.check_races)
        self.executed_by_warps += [counter.value for counter in counters]
        if failure:
            raise KernelError(f"evolve_{kernel}: {failure.decode()}")

    def _library(self, kernel: str) -> ctypes.PyDLL:
        """Return the library of a kernel: of the sources that were given or, if they lack it, of the engine's own."""
        name = f"evolve_{kernel}"
        unit = cupy_device.unit_of(kernel)
        if name in self._given.kernels:
            return self._given.library(name)
        if unit not in self._units:
            kernels = _translated(compiled.ptx(self.architecture, cupy_device.source_files(unit)))
            self._units[unit] = _Unit(kernels, self._counted)
        return self._units[unit].library(name)

    def _free(self, held: Any, span: tuple[int, int]) -> None:
        self._alive.remove(span)
        ctypes.memset(held, _POISON, len(held))
        self._buried.append(held)
        while sum(map(len, self._buried)) > _BURIED:
            del self._buried[0]


class EmulatedQueue:
    """Work on an emulated device, which is done in `wait` and not before."""

    def __init__(self, owner: EmulatedDevice) -> None:
        self._device = owner
        self._work: list[Callable[[], None]] = []

    def upload(self, target: int, source: NDArray[Any]) -> None:
        """Copy an array of the host to an address of the device."""
        before = self._checked(source).tobytes()

        def copy() -> None:
            if source.tobytes() != before:
                raise KernelError("an upload of an array that was changed after it was queued")
            self._device.check_range(target, source.nbytes, "an upload")
            ctypes.memmove(target, before, source.nbytes)

        self._work.append(copy)

    def download(self, source: int, target: NDArray[Any]) -> None:
        """Copy from an address of the device into an array of the host, which until then holds nonsense."""
        self._checked(target).reshape(-1).view(np.uint8)[:] = _POISON

        def copy() -> None:
            self._device.check_range(source, target.nbytes, "a download")
            ctypes.memmove(target.ctypes.data, source, target.nbytes)

        self._work.append(copy)

    def launch(self, kernel: str, blocks: int, parts: int, *arguments: int | ctypes.Structure, tiles: int = 1) -> None:
        """Run a kernel, `evolve_<kernel>`, on blocks of 32 × parts × tiles threads."""
        self._device.check_thread()
        given = [bytes(a) if isinstance(a, ctypes.Structure) else (a % 2**64).to_bytes(8, "little") for a in arguments]
        if (sizes := [len(a) // 8 for a in given]) != (wanted := self._device.parameters(kernel)):
            raise TypeError(f"evolve_{kernel} has parameters of {wanted} words, got {sizes}")
        if blocks < 1 or not 1 <= parts <= MOST_PARTS:
            raise ValueError(f"expected blocks from 1 on and parts from 1 to {MOST_PARTS}, got {blocks} and {parts}")
        if (threads := WIDTH * parts * tiles) > self._device.most_threads(kernel):
            raise ValueError(f"evolve_{kernel} was compiled for fewer than {threads} threads of a block")
        self._work.append(lambda: self._device.run(kernel, blocks, parts, tiles, b"".join(given)))

    def wait(self) -> None:
        """Do the work. Raises KernelError at the first mistake, and then drops the rest of the work."""
        self._device.check_thread()
        work, self._work = self._work, []
        for do in work:
            do()

    def _checked(self, array: NDArray[Any]) -> NDArray[Any]:
        self._device.check_thread()
        if not array.flags.c_contiguous:
            raise ValueError("expected a C-contiguous array")
        return array


@cache
def _translated(ptx: str) -> dict[str, str]:
    return translate(ptx)
