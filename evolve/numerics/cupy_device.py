"""A GPU, through CuPy: the door to it.

CuPy is used for what it wraps of CUDA's runtime and driver (allocate, copy, launch, wait), not for its arrays: each of
their operations would compile a kernel of its own, and could hide a copy.
"""

import ctypes
import importlib
import os
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError, RunError, one_line
from evolve.numerics import device_code
from evolve.numerics.device import WIDTH, DeviceMemoryError, Transfers

_UP, _DOWN = 1, 2  # cudaMemcpyHostToDevice and back
_NON_BLOCKING = 1  # cudaStreamNonBlocking
_MULTIPROCESSORS = 16  # cudaDevAttrMultiProcessorCount
_MAJOR, _MINOR = 75, 76  # cudaDevAttrComputeCapabilityMajor and Minor
_INSTALL = "Install it: pip install 'evolve[gpu]' (CUDA 13) or 'evolve[gpu-cuda12]'."
_OTHERWISE = 'Or use compute.backend="native": the bits are the same.'
_SPARE = 0.9  # of the free memory
_LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "PMI_LOCAL_RANK")
_LOCAL_SIZE = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE", "PMI_LOCAL_SIZE")


def open_device() -> "CupyDevice":
    """Return the GPU of this process: ranks of one host take its GPUs in turn, by their local rank.

    Raises:
        InputError: CuPy, a driver, a GPU or NVRTC is missing; says which, and how to get it.
    """
    cuda = _import()
    try:
        count = int(cuda.runtime.getDeviceCount())
    except RuntimeError as error:
        cure = f"Install a driver of NVIDIA's that is new enough for CuPy. {_OTHERWISE}"
        raise InputError("compute.backend", "a driver that finds a GPU", str(error), cure) from None
    if not count:
        raise InputError("compute.backend", "a GPU", "none on this machine", _OTHERWISE)
    rank, ranks = _from_environment(_LOCAL_RANK, 0), _from_environment(_LOCAL_SIZE, 1)
    number = rank % count
    sharing = len(range(number, ranks, count)) or 1
    try:
        return CupyDevice(cuda, number, sharing)
    except RuntimeError as error:  # a GPU that others have to themselves, say
        raise InputError("compute.backend", f"GPU {number} to be usable", str(error), _OTHERWISE) from None


class CupyDevice:
    """GPU `number`, which `sharing` processes use; each has its share of the memory. See `device.Device`."""

    def __init__(self, cuda: Any, number: int, sharing: int) -> None:
        self._runtime = runtime = cuda.runtime
        self._driver = cuda.driver
        self._pinned = cuda.alloc_pinned_memory
        self._number = number
        runtime.setDevice(number)
        properties = runtime.getDeviceProperties(number)
        self.name = properties["name"].decode()
        self.multiprocessors = int(runtime.deviceGetAttribute(_MULTIPROCESSORS, number))
        self.transfers = Transfers()
        self.allocated = 0
        runtime.free(0)  # makes the context
        self._budget = int(runtime.memGetInfo()[0] * _SPARE) // sharing
        major, minor = (int(runtime.deviceGetAttribute(which, number)) for which in (_MAJOR, _MINOR))
        self.architecture = f"sm_{major}{minor}"
        self._module = self._driver.moduleLoadData(device_code.machine_code(self.architecture))
        self._functions: dict[str, int] = {}

    def allocate(self, nbytes: int) -> "CupyMemory":
        """Return memory full of zeros. Raises DeviceMemoryError when there is too little."""
        if nbytes > self.free_memory():
            raise DeviceMemoryError(nbytes, self.free_memory())
        try:
            address = int(self._runtime.malloc(nbytes))
        except RuntimeError:
            raise DeviceMemoryError(nbytes, self.free_memory()) from None
        self._runtime.memset(address, 0, nbytes)
        self._runtime.streamSynchronize(0)  # other streams do not wait for this one
        self.allocated += nbytes
        return CupyMemory(self, address, nbytes)

    def release(self, memory: "CupyMemory") -> None:
        """Free memory."""
        self.allocated -= memory.nbytes
        self._runtime.free(memory.address)

    def host_array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return zeros on the host, page-locked."""
        kind = np.dtype(dtype)
        nbytes = max(1, int(kind.itemsize * np.multiply.reduce(shape, dtype=np.int64)))
        array: NDArray[Any] = np.frombuffer(self._pinned(nbytes), kind, count=nbytes // kind.itemsize)
        array[:] = 0
        return array.reshape(shape)

    def queue(self) -> "CupyQueue":
        """Return an empty queue: a CUDA stream."""
        self._runtime.setDevice(self._number)  # each thread has its own
        return CupyQueue(self, self._runtime, self._driver)

    def free_memory(self) -> int:
        """Return how many bytes this process may still allocate."""
        return int(min(self._budget - self.allocated, self._runtime.memGetInfo()[0] * _SPARE))

    def function(self, kernel: str) -> int:
        """Return the handle of `evolve_<kernel>`."""
        if kernel not in self._functions:
            self._functions[kernel] = int(self._driver.moduleGetFunction(self._module, f"evolve_{kernel}"))
        return self._functions[kernel]


class CupyMemory:
    """Memory of a GPU, freed with this object."""

    def __init__(self, device: CupyDevice, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self._device = device

    def __del__(self) -> None:
        with suppress(RuntimeError, AttributeError, TypeError):  # the process ends, or the GPU has failed
            self._device.release(self)


class CupyQueue:
    """A CUDA stream. See `device.Queue`."""

    def __init__(self, device: CupyDevice, runtime: Any, driver: Any) -> None:
        self._device = device
        self._runtime = runtime
        self._driver = driver
        self._stream = int(runtime.streamCreateWithFlags(_NON_BLOCKING))

    def upload(self, target: int, source: NDArray[Any]) -> None:
        """Copy an array of the host to an address of the device."""
        self._device.transfers.add(up=source.nbytes)
        self._copy(target, source.ctypes.data, source.nbytes, _UP)

    def download(self, source: int, target: NDArray[Any]) -> None:
        """Copy from an address of the device into an array of the host."""
        self._device.transfers.add(down=target.nbytes)
        self._copy(target.ctypes.data, source, target.nbytes, _DOWN)

    def _copy(self, target: int, source: int, nbytes: int, way: int) -> None:
        try:
            self._runtime.memcpyAsync(target, source, nbytes, way, self._stream)
        except RuntimeError as error:
            raise RunError(f"the GPU failed while copying: {one_line(error)}") from None

    def launch(self, kernel: str, blocks: int, parts: int, *arguments: int) -> None:
        """Run a kernel on blocks of WIDTH × parts threads."""
        values = (ctypes.c_int64 * len(arguments))(*arguments)
        first = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * len(arguments))(*range(first, first + 8 * len(arguments), 8))
        function = self._device.function(kernel)
        try:
            self._driver.launchKernel(
                function, blocks, 1, 1, WIDTH, parts, 1, 0, self._stream, ctypes.addressof(pointers), 0
            )
        except RuntimeError as error:
            raise RunError(f"the GPU failed to start {kernel}: {one_line(error)}") from None

    def wait(self) -> None:
        """Return when all of it is done."""
        try:
            self._runtime.streamSynchronize(self._stream)
        except RuntimeError as error:
            raise RunError(f"the GPU failed: {one_line(error)}") from None

    def __del__(self) -> None:
        with suppress(RuntimeError, AttributeError, TypeError):  # the process ends, or the GPU has failed
            self._runtime.streamSynchronize(self._stream)
            self._runtime.streamDestroy(self._stream)


def _import() -> Any:
    """Return `cupy.cuda`."""
    try:
        cupy = importlib.import_module("cupy")
    except (ImportError, RuntimeError) as error:
        raise InputError("compute.backend", "a working CuPy", one_line(error), f"{_INSTALL} {_OTHERWISE}") from None
    return cupy.cuda


def _from_environment(names: tuple[str, ...], default: int) -> int:
    """Return the first of these environment variables that holds a number."""
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdigit()), default)
