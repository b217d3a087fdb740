"""NVIDIA GPUs, as devices of `device_protocol`. Only this module imports CuPy.

NVRTC, NVIDIA's library for compilation at run time, compiles the kernels in rollouts/*.cu to machine code, which is
cached on disk. `open_device` returns the GPU of this process, which runs the kernels.
"""

import ctypes
import ctypes.util
import hashlib
import importlib
import math
import os
import re
import site
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError, RunError, Setting, how_to_install, one_line
from evolve.numerics.device_protocol import WIDTH, DeviceMemoryError, local_ranks

_PACKAGE = Path(__file__).parents[1]
_PLAY_KERNEL = re.compile(r"play_(\w+?)_on_(\w+)")  # network, task
EXACT_OPTIONS = ("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--std=c++17")
"""The compiler options that make results equal to the results of the CPU, to the bit."""
_HASH_BYTES = 32  # of a sha256
Output = Literal["PTX", "CUBIN", "ProgramLog"]
"""The outputs of NVRTC: assembly, machine code, and messages of the compiler."""
_TO_DEVICE, _TO_HOST = 1, 2  # cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost
_NON_BLOCKING = 1  # cudaStreamNonBlocking
_MULTIPROCESSORS = 16  # cudaDevAttrMultiProcessorCount
_CAPABILITY = 75, 76  # cudaDevAttrComputeCapabilityMajor and Minor
_USE_CPU = "Or use ", Setting("compute.backend", "auto"), ": its results are the same to the bit."  # parts of a cure
_USABLE_SHARE = 0.9  # of all memory of a GPU, and of its free memory
_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
_NO_DEVICE = 100  # cudaErrorNoDevice


def how_to_install_gpu() -> str:
    """Return sentences on how to install CuPy together with NVRTC."""
    return f"{how_to_install('gpu')} For CUDA 12 the extra is gpu-cuda12, not gpu."


def unit_of(kernel: str) -> str:
    """Return the name of a kernel's compilation unit: "NETWORK, TASK" for play_NETWORK_on_TASK, otherwise ""."""
    match = _PLAY_KERNEL.fullmatch(kernel)
    return ", ".join(match.groups()) if match else ""


def source_files(unit: str = "") -> dict[str, str]:
    """Return source texts by file name: first the text of a compilation unit, then all headers.

    unit: The name of the compilation unit, see `unit_of`. "NETWORK, TASK" consists of `play.cu`, the headers NETWORK.h
        and TASK.h, and a last line that defines the kernel. "" consists of `kernels.cu` and the headers of all
        networks.
    """
    headers = {path.name: path.read_text() for path in sorted(_PACKAGE.glob("*/kernels/*.h"))}
    if unit:
        name, last_line = "play.cu", f"PLAY({unit})\n"
        included = [f"{network_or_task}.h" for network_or_task in unit.split(", ")]
    else:
        name, last_line = "kernels.cu", ""
        included = sorted(path.name for path in _PACKAGE.glob("networks/kernels/*.h"))
    text = (_PACKAGE / "rollouts" / name).read_text()
    includes = "".join(f'#include "{header}"\n' for header in included)
    return {name: f"{text}\n{includes}{last_line}", **headers}


def machine_code(architecture: str, unit: str = "") -> bytes:
    """Return the machine code of a unit's kernels (CUBIN), from the user's cache on disk or newly compiled.

    Args:
        architecture: The architecture of the device, such as "sm_90".
        unit: The name of the compilation unit, see `unit_of`.

    Raises:
        InputError: NVRTC is missing, or cannot compile for this architecture.
    """
    files = source_files(unit)
    # The key covers all inputs of the compiler, so a changed header or another NVRTC never finds old code.
    inputs = repr((files, EXACT_OPTIONS, architecture, nvrtc_version()))
    key = hashlib.sha256(inputs.encode()).hexdigest()
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cached = Path(cache) / "evolve" / f"{key[:32]}.cubin"
    # The file has the sha256 of the code, and then the code.
    with suppress(OSError):
        content = cached.read_bytes()
        digest, code = content[:_HASH_BYTES], content[_HASH_BYTES:]
        if hashlib.sha256(code).digest() == digest:
            return code
    code = compile_source(files, architecture, "CUBIN")
    # Without a home directory, `expanduser` leaves the "~", and the path would begin in the working directory.
    if cached.is_absolute():
        _write_cached(cached, hashlib.sha256(code).digest() + code)
    return code


def compile_source(
    files: dict[str, str], architecture: str, output: Output, options: tuple[str, ...] = EXACT_OPTIONS
) -> bytes:
    """Compile by NVRTC; return the output, assembly or machine code.

    Args:
        files: Source texts by file name: first the compilation unit, then its headers.
        architecture: The architecture of the device, such as "sm_90".
        output: "PTX" for assembly, "CUBIN" for machine code.
        options: The options of the compiler.

    Raises:
        InputError: NVRTC is missing, or cannot compile the unit.
    """
    nvrtc = _nvrtc()
    (name, unit), *headers = ((name.encode(), text.encode()) for name, text in files.items())
    texts = (ctypes.c_char_p * len(headers))(*(text for _, text in headers))
    names = (ctypes.c_char_p * len(headers))(*(name for name, _ in headers))
    program = ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), unit, name, len(headers), texts, names), "create a program")
    try:
        flags = [option.encode() for option in (f"--gpu-architecture={architecture}", *options)]
        status = nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
        if status:
            log = _output(nvrtc, program, "ProgramLog").decode(errors="replace").strip()
            raise InputError("compute.backend", f"kernels that compile for {architecture}", log or f"error {status}")
        return _output(nvrtc, program, output)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _output(nvrtc: Any, program: ctypes.c_void_p, name: Output) -> bytes:
    """Return an output of a program, without the zero byte that ends a text (PTX and the log)."""
    size = ctypes.c_size_t()
    _check(getattr(nvrtc, f"nvrtcGet{name}Size")(program, ctypes.byref(size)), f"return {name}")
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc, f"nvrtcGet{name}")(program, buffer), f"return {name}")
    return buffer.raw if name == "CUBIN" else buffer.raw.rstrip(b"\0")


def _check(status: int, purpose: str) -> None:
    """Raise InputError if a call of NVRTC failed: if the status that it returned is not 0."""
    if status:
        raise InputError("compute.backend", f"an NVRTC that can {purpose}", f"error {status}")


def _nvrtc() -> Any:
    nvrtc = load_nvrtc()
    if nvrtc is None:
        expected = "NVRTC, which compiles the kernels of a GPU"
        raise InputError("compute.backend", expected, "no library that can be loaded", how_to_install_gpu())
    return nvrtc


@cache
def load_nvrtc() -> Any:
    """Return the library NVRTC; None if it cannot be loaded."""
    for path in nvrtc_candidates():
        try:
            library = ctypes.CDLL(path)
            # To compile, NVRTC needs a second library, its builtins, which some wheels do not find (13.0.88). So load
            # the builtins here.
            if "/" in path:
                for builtins in Path(path).parent.glob("libnvrtc-builtins.so.*"):
                    ctypes.CDLL(str(builtins))
        except OSError:
            continue
        return library
    return None


def nvrtc_candidates() -> list[str]:
    """Return paths to try for NVRTC: in wheels, in a CUDA toolkit, and names that the system's loader searches for."""
    wheels: list[str] = []
    for folder in {*site.getsitepackages(), site.getusersitepackages(), *sys.path}:
        wheels += map(str, Path(folder).glob("nvidia/*/lib/libnvrtc.so.*"))
    # Wheels also hold the builtins, and another build of NVRTC (.alt).
    wheels = [path for path in wheels if "builtins" not in path and ".alt." not in path]
    # In reverse order, a wheel of CUDA 12 (cuda_nvrtc/lib) comes before a wheel of CUDA 13 (cu13/lib).
    wheels.sort(reverse=True)
    toolkits = [f"{os.environ[name]}/lib64/libnvrtc.so" for name in ("CUDA_PATH", "CUDA_HOME") if name in os.environ]
    by_name = ctypes.util.find_library("nvrtc")
    return [*wheels, *toolkits, *([by_name] if by_name else []), "libnvrtc.so.13", "libnvrtc.so.12"]


@cache
def nvrtc_version() -> tuple[int, int]:
    """Return the version of NVRTC (major, minor). Raises InputError if it cannot be loaded."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "say its version")
    return major.value, minor.value


def _write_cached(path: Path, content: bytes) -> None:
    """Write a file of the cache. Errors are ignored: a run does not need the cache."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Rename within one file system, so that a process that reads the cache never finds half a file. Each process
        # has its own temporary folder, because several ranks may compile at once.
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            partial = Path(folder) / path.name
            partial.write_bytes(content)
            partial.replace(path)


def open_device() -> "CupyDevice":
    """Return the GPU of this process. Its number is the local rank modulo the number of GPUs.

    Raises:
        InputError: CuPy, a driver, a GPU or NVRTC is missing or does not work. The message says what to install.
    """
    try:
        cuda = importlib.import_module("cupy").cuda
    except Exception as error:  # a damaged installation may raise anything
        cure = f"{how_to_install_gpu()} ", *_USE_CPU
        raise InputError("compute.backend", "a working CuPy", one_line(error), *cure) from None
    try:
        count = int(cuda.runtime.getDeviceCount())
    except RuntimeError as error:
        if getattr(error, "status", None) == _NO_DEVICE:
            raise InputError("compute.backend", "a GPU", "no GPU that this process may use", *_USE_CPU) from None
        install = "Install an NVIDIA driver that is new enough for CuPy. "
        raise InputError("compute.backend", "a driver that finds a GPU", str(error), install, *_USE_CPU) from None
    # The ranks of a host take its GPUs in turn.
    rank, ranks = local_ranks()
    number = rank % count
    ranks_of_gpu = range(number, ranks, count)
    try:
        return CupyDevice(cuda, number, processes=len(ranks_of_gpu))
    except RuntimeError as error:  # another process may use the GPU exclusively
        raise InputError("compute.backend", f"GPU {number} to be usable", str(error), *_USE_CPU) from None


class CupyDevice:
    """A GPU, a `device_protocol.Device`.

    Args:
        cuda: The module `cupy.cuda`.
        number: The number of the GPU on this host.
        processes: The number of processes that use the GPU. Each may allocate an equal share of the memory.

    Attributes:
        runtime: `cupy.cuda.runtime`.
        driver: `cupy.cuda.driver`.
        architecture: The name of the architecture, such as "sm_90".
        multiprocessors: The number of multiprocessors.
    """

    def __init__(self, cuda: Any, number: int, processes: int) -> None:
        self.runtime = runtime = cuda.runtime
        self.driver = cuda.driver
        self._alloc_pinned = cuda.alloc_pinned_memory
        self._number = number
        runtime.setDevice(number)
        self._thread = threading.current_thread()  # the last thread that selected this GPU
        self.name = runtime.getDeviceProperties(number)["name"].decode()
        self.allocated = 0
        runtime.free(0)  # creates the CUDA context
        _, total_memory = runtime.memGetInfo()
        self._budget = int(total_memory * _USABLE_SHARE) // processes  # in bytes
        major, minor = (int(runtime.deviceGetAttribute(attribute, number)) for attribute in _CAPABILITY)
        self.architecture = f"sm_{major}{minor}"
        self.multiprocessors = int(runtime.deviceGetAttribute(_MULTIPROCESSORS, number))
        self.modules: dict[str, Any] = {}
        """The loaded modules by compilation unit, in the order of loading."""
        self._load("")  # if kernels cannot be compiled, fail here, before a run
        self._functions: dict[str, int] = {}

    def allocate(self, nbytes: int) -> "CupyMemory":
        """Return memory filled with zeros. Raises DeviceMemoryError if there is not enough."""
        free = self.free_memory()
        if nbytes > free:
            raise DeviceMemoryError(nbytes, free)
        # This may still fail, because other processes allocate memory of this GPU, too.
        with _failures("allocating memory", nbytes, free):
            address = int(self.runtime.malloc(nbytes))
            self.runtime.memset(address, 0, nbytes)
            self.runtime.streamSynchronize(0)  # the streams of queues do not wait for the memset in stream 0
        self.allocated += nbytes
        return CupyMemory(self, address, nbytes)

    def release(self, address: int, nbytes: int) -> None:
        """Free memory."""
        self.allocated -= nbytes
        with suppress(RuntimeError):  # after the GPU has failed
            self.select()
            self.runtime.free(address)

    def host_array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return zeros on the host, page-locked."""
        dtype = np.dtype(dtype)
        count = math.prod(shape)
        nbytes = max(1, count * dtype.itemsize)
        self.select()
        with _failures("locking pages of the host", nbytes):
            array: NDArray[Any] = np.frombuffer(self._alloc_pinned(nbytes), dtype, count=count)
        array[:] = 0
        return array.reshape(shape)

    def queue(self) -> "CupyQueue":
        """Return an empty queue: a CUDA stream."""
        return CupyQueue(self)

    def free_memory(self) -> int:
        """Return the number of bytes that this process may still allocate."""
        self.select()
        with _failures("asking for its memory"):
            free, _ = self.runtime.memGetInfo()
        # Other programs may use the GPU, too, so the share of this process is not always free.
        return max(0, min(self._budget - self.allocated, int(free * _USABLE_SHARE)))

    def function(self, kernel: str) -> int:
        """Return the driver's handle of the kernel `evolve_<kernel>`."""
        if kernel not in self._functions:
            module = self._load(unit_of(kernel))
            self._functions[kernel] = int(self.driver.moduleGetFunction(module, f"evolve_{kernel}"))
        return self._functions[kernel]

    def _load(self, unit: str) -> Any:
        """Return the module of a compilation unit, compiled on first use."""
        if unit not in self.modules:
            self.modules[unit] = self.driver.moduleLoadData(machine_code(self.architecture, unit))
        return self.modules[unit]

    def facts(self) -> dict[str, str | int]:
        """Return facts about the GPU and the versions of its software, for reports of the machine."""
        return {
            "architecture": self.architecture,
            "multiprocessors": self.multiprocessors,
            "free_bytes": self.free_memory(),
            "driver": int(self.runtime.driverGetVersion()),
            "runtime": int(self.runtime.runtimeGetVersion()),
            "NVRTC": ".".join(map(str, nvrtc_version())),
        }

    def select(self) -> None:
        """Select this GPU for the calling thread: each thread has its own current GPU."""
        # Compare the thread objects, because a new thread may have the identifier of one that has ended.
        if threading.current_thread() is not self._thread:
            self.runtime.setDevice(self._number)
            self._thread = threading.current_thread()


class CupyMemory:
    """Memory of a GPU. When this object is deleted, the memory is freed."""

    def __init__(self, device: CupyDevice, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes
        # atexit=False, because the driver frees the memory when the process ends.
        weakref.finalize(self, device.release, address, nbytes).atexit = False


class CupyQueue:
    """A CUDA stream, a `device_protocol.Queue`."""

    def __init__(self, device: CupyDevice) -> None:
        self._device = device
        # The arrays of running copies. Without a reference, page-locked memory could be reused during the copy.
        self._under_way: list[NDArray[Any]] = []
        device.select()
        with _failures("making a stream"):
            self._stream = int(device.runtime.streamCreateWithFlags(_NON_BLOCKING))
        weakref.finalize(self, _destroy, device.runtime, self._stream, self._under_way).atexit = False

    def upload(self, target: int, source: NDArray[Any]) -> None:
        """Copy an array of the host to an address of the device."""
        self._copy(target, source.ctypes.data, source, _TO_DEVICE)

    def download(self, source: int, target: NDArray[Any]) -> None:
        """Copy from an address of the device into an array of the host."""
        self._copy(target.ctypes.data, source, target, _TO_HOST)

    def _copy(self, target: int, source: int, array: NDArray[Any], direction: int) -> None:
        self._under_way.append(array)
        self._device.select()
        with _failures("copying"):
            self._device.runtime.memcpyAsync(target, source, array.nbytes, direction, self._stream)

    def launch(self, kernel: str, blocks: int, parts: int, *arguments: int | ctypes.Structure, tiles: int = 1) -> None:
        """Run a kernel on blocks of WIDTH × parts × tiles threads."""
        # The driver reads the arguments through an array of their addresses, and copies them during the call.
        values = [ctypes.c_int64(value) if isinstance(value, int) else value for value in arguments]
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        grid, block = (blocks, 1, 1), (WIDTH, parts, tiles)
        self._device.select()
        with _failures(f"starting {kernel}"):
            function = self._device.function(kernel)
            self._device.driver.launchKernel(function, *grid, *block, 0, self._stream, ctypes.addressof(pointers), 0)

    def wait(self) -> None:
        """Wait for all work of this queue."""
        with _failures("computing"):
            self._device.runtime.streamSynchronize(self._stream)
        self._under_way.clear()


def _destroy(runtime: Any, stream: int, _under_way: list[NDArray[Any]]) -> None:
    """Destroy a stream after its running copies. Until then the argument `_under_way` keeps their arrays alive."""
    with suppress(RuntimeError):  # after the GPU has failed
        runtime.streamSynchronize(stream)
        runtime.streamDestroy(stream)


@contextmanager
def _failures(action: str, nbytes: int = 0, free: int = 0) -> Iterator[None]:
    """Turn an error of CUDA into RunError, or into DeviceMemoryError if memory was allocated and there is too little.

    action: For the message: "the GPU failed while …". nbytes: The number of bytes to allocate, or 0. free: The number
        of free bytes of the GPU; 0 if the memory is on the host.
    """
    try:
        yield
    except RuntimeError as error:
        if nbytes and getattr(error, "status", None) == _OUT_OF_MEMORY:
            raise DeviceMemoryError(nbytes, free) from None
        raise RunError(f"the GPU failed while {action}: {error}") from None
