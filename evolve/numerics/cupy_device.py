"""A GPU, through CuPy: the door to it.

CuPy is used for what it wraps of CUDA's runtime and driver (allocate, copy, launch, wait), not for its arrays: each of
their operations would compile a kernel of its own, and could hide a copy.
"""

import ctypes
import importlib
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError, RunError, one_line
from evolve.numerics import device_code
from evolve.numerics.device import WIDTH, DeviceMemoryError, Transfers

_UP, _DOWN = 1, 2  # cudaMemcpyHostToDevice and back
_NON_BLOCKING = 1  # cudaStreamNonBlocking
_MAJOR, _MINOR = 75, 76  # cudaDevAttrComputeCapabilityMajor and Minor
_OTHERWISE = 'Or use compute.backend="native": the bits are the same.'
_SPARE = 0.9  # of the free memory
_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
_NO_DEVICE = 100  # cudaErrorNoDevice
_LOCAL = (  # where launchers say the rank of a process on its host, and how many are there
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    ("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)
_GONE = (RuntimeError, AttributeError, TypeError)  # what the end of a process, or a GPU that has failed, raises


def open_device() -> "CupyDevice":
    """Return the GPU of this process: ranks of one host take its GPUs in turn, by their local rank.

    Raises:
        InputError: CuPy, a driver, a GPU or NVRTC is missing; says which, and how to get it.
    """
    cuda = _import()
    try:
        count = int(cuda.runtime.getDeviceCount())
    except RuntimeError as error:
        if _status(error) == _NO_DEVICE:
            raise InputError("compute.backend", "a GPU", "none that this process may use", _OTHERWISE) from None
        cure = f"Install a driver of NVIDIA's that is new enough for CuPy. {_OTHERWISE}"
        raise InputError("compute.backend", "a driver that finds a GPU", str(error), cure) from None
    rank, ranks = local_ranks()
    number = rank % count
    try:
        return CupyDevice(cuda, number, sharing=len(range(number, ranks, count)))
    except RuntimeError as error:  # a GPU that others have to themselves, say
        raise InputError("compute.backend", f"GPU {number} to be usable", str(error), _OTHERWISE) from None


def local_ranks() -> tuple[int, int]:
    """Return the rank of this process on its host, and how many ranks are there, as the launcher says; or (0, 1)."""
    for pair in _LOCAL:
        rank, size = (re.match(r"\d+", os.environ.get(name, "")) for name in pair)  # SLURM says "8(x2)"
        if rank and size:
            return int(rank[0]), max(int(rank[0]) + 1, int(size[0]))
    return 0, 1


class CupyDevice:
    """GPU `number`, which `sharing` processes use; each has its share of the memory. See `device.Device`."""

    def __init__(self, cuda: Any, number: int, sharing: int) -> None:
        self._runtime = runtime = cuda.runtime
        self._driver = cuda.driver
        self._pinned = cuda.alloc_pinned_memory
        self._number = number
        runtime.setDevice(number)
        self._thread = threading.get_ident()
        self.name = runtime.getDeviceProperties(number)["name"].decode()
        self.allocated = 0
        runtime.free(0)  # makes the context
        self._budget = int(runtime.memGetInfo()[1] * _SPARE) // sharing
        major, minor = (int(runtime.deviceGetAttribute(which, number)) for which in (_MAJOR, _MINOR))
        self._architecture = f"sm_{major}{minor}"
        self._modules: dict[str, Any] = {}
        self._load("")
        self._functions: dict[str, int] = {}

    def allocate(self, nbytes: int) -> "CupyMemory":
        """Return memory full of zeros. Raises DeviceMemoryError when there is too little."""
        free = self.free_memory()
        if nbytes > free:
            raise DeviceMemoryError(nbytes, free)
        with _failures("allocating memory", nbytes, free):
            address = int(self._runtime.malloc(nbytes))
            self._runtime.memset(address, 0, nbytes)
            self._runtime.streamSynchronize(0)  # other streams do not wait for this one
        self.allocated += nbytes
        return CupyMemory(self, address, nbytes)

    def release(self, memory: "CupyMemory") -> None:
        """Free memory."""
        self.allocated -= memory.nbytes
        self.enter()
        self._runtime.free(memory.address)

    def host_array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return zeros on the host, page-locked."""
        kind = np.dtype(dtype)
        count = int(np.multiply.reduce(shape, dtype=np.int64))
        nbytes = max(1, count * kind.itemsize)
        with _failures("locking pages of the host", nbytes, 0):
            array: NDArray[Any] = np.frombuffer(self._pinned(nbytes), kind, count=count)
        array[:] = 0
        return array.reshape(shape)

    def queue(self) -> "CupyQueue":
        """Return an empty queue: a CUDA stream."""
        return CupyQueue(self, self._runtime, self._driver)

    def free_memory(self) -> int:
        """Return how many bytes this process may still allocate."""
        self.enter()
        with _failures("asking for its memory"):
            return max(0, min(self._budget - self.allocated, int(self._runtime.memGetInfo()[0] * _SPARE)))

    def function(self, kernel: str) -> int:
        """Return the handle of `evolve_<kernel>`."""
        if kernel not in self._functions:
            module = self._load(device_code.unit_of(kernel))
            self._functions[kernel] = int(self._driver.moduleGetFunction(module, f"evolve_{kernel}"))
        return self._functions[kernel]

    def _load(self, unit: str) -> Any:
        """Return the module of a compilation unit; it is compiled when it is first needed."""
        if unit not in self._modules:
            self._modules[unit] = self._driver.moduleLoadData(device_code.machine_code(self._architecture, unit=unit))
        return self._modules[unit]

    def enter(self) -> None:
        """Let calls of this thread be for this GPU: each thread has one of its own."""
        if threading.get_ident() != self._thread:
            self._runtime.setDevice(self._number)
            self._thread = threading.get_ident()


class CupyMemory:
    """Memory of a GPU, freed with this object."""

    def __init__(self, device: CupyDevice, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self._device = device

    def __del__(self, gone: tuple[type[Exception], ...] = _GONE) -> None:
        try:  # noqa: SIM105 - when the process ends, contextlib may be gone, too
            self._device.release(self)
        except gone:
            pass


class CupyQueue:
    """A CUDA stream. See `device.Queue`."""

    def __init__(self, device: CupyDevice, runtime: Any, driver: Any) -> None:
        self.transfers = Transfers()
        self._device = device
        self._runtime = runtime
        self._driver = driver
        self._under_way: list[NDArray[Any]] = []  # page-locked memory would be used again while a copy writes to it
        device.enter()
        with _failures("making a stream"):
            self._stream = int(runtime.streamCreateWithFlags(_NON_BLOCKING))

    def upload(self, target: int, source: NDArray[Any]) -> None:
        """Copy an array of the host to an address of the device."""
        self.transfers.add(up=source.nbytes)
        self._copy(target, source.ctypes.data, source, _UP)

    def download(self, source: int, target: NDArray[Any]) -> None:
        """Copy from an address of the device into an array of the host."""
        self.transfers.add(down=target.nbytes)
        self._copy(target.ctypes.data, source, target, _DOWN)

    def _copy(self, target: int, source: int, array: NDArray[Any], way: int) -> None:
        self._under_way.append(array)
        self._device.enter()
        with _failures("copying"):
            self._runtime.memcpyAsync(target, source, array.nbytes, way, self._stream)

    def launch(self, kernel: str, blocks: int, parts: int, *arguments: int) -> None:
        """Run a kernel on blocks of WIDTH × parts threads."""
        values = (ctypes.c_int64 * len(arguments))(*arguments)
        first = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * len(arguments))(*range(first, first + 8 * len(arguments), 8))
        grid, block = (blocks, 1, 1), (WIDTH, parts, 1)
        self._device.enter()
        with _failures(f"starting {kernel}"):
            function = self._device.function(kernel)
            self._driver.launchKernel(function, *grid, *block, 0, self._stream, ctypes.addressof(pointers), 0)

    def wait(self) -> None:
        """Return when all of it is done."""
        with _failures("computing"):
            self._runtime.streamSynchronize(self._stream)
        self._under_way.clear()

    def __del__(self, gone: tuple[type[Exception], ...] = _GONE) -> None:
        try:
            self._runtime.streamSynchronize(self._stream)
            self._runtime.streamDestroy(self._stream)
        except gone:
            pass


@contextmanager
def _failures(what: str, nbytes: int = 0, free: int = 0) -> Iterator[None]:
    """Turn CUDA's errors into RunError; or into DeviceMemoryError, where so many bytes were asked for."""
    try:
        yield
    except RuntimeError as error:
        if nbytes and _status(error) == _OUT_OF_MEMORY:
            raise DeviceMemoryError(nbytes, free) from None
        raise RunError(f"the GPU failed while {what}: {error}") from None


def _status(error: RuntimeError) -> int | None:
    """Return the number of one of CUDA's errors."""
    return getattr(error, "status", None)


def _import() -> Any:
    """Return `cupy.cuda`."""
    try:
        cupy = importlib.import_module("cupy")
    except (ImportError, RuntimeError) as error:
        cure = f"{device_code.how_to_install_gpu()} {_OTHERWISE}"
        raise InputError("compute.backend", "a working CuPy", one_line(error), cure) from None
    return cupy.cuda
