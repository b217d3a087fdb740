"""CuPy's runtime and driver, as far as the engine calls them, over the emulated device: what `cupy.cuda` would be.

Functions have the names and the parameters of CuPy's, which are those of CUDA.
"""

import ctypes
import itertools

import numpy as np

from emulation.device import EmulatedDevice
from evolve.numerics.cupy_device import CupyDevice


class CudaError(RuntimeError):
    """One of CUDA's errors, with its number."""

    def __init__(self, status: int, name: str) -> None:
        super().__init__(name)
        self.status = status


class Runtime:
    """`cupy.cuda.runtime`, with one GPU; `fail` says which function raises what next."""

    def __init__(self, emulated: EmulatedDevice, total: int = 2**30) -> None:
        self.emulated = emulated
        self.memory = {}
        self.streams = {}
        self.fail: dict[str, CudaError] = {}
        self._total = total
        self._numbers = itertools.count(1)

    def _may_fail(self, name: str) -> None:
        if name in self.fail:
            raise self.fail[name]

    def getDeviceCount(self) -> int:  # noqa: N802 - CUDA's names
        self._may_fail("getDeviceCount")
        return 1

    def setDevice(self, device: int) -> None:  # noqa: N802
        assert device == 0

    def getDeviceProperties(self, device: int) -> dict[str, object]:  # noqa: N802
        return {"name": b"an emulated GPU"}

    def deviceGetAttribute(self, attrib: int, device: int) -> int:  # noqa: N802
        return {16: 132, 75: 9, 76: 0}[attrib]  # multiprocessors, and the compute capability

    def driverGetVersion(self) -> int:  # noqa: N802
        return 13000

    def runtimeGetVersion(self) -> int:  # noqa: N802
        return 13000

    def memGetInfo(self) -> tuple[int, int]:  # noqa: N802
        return self._total - sum(memory.nbytes for memory in self.memory.values()), self._total

    def malloc(self, size: int) -> int:
        self._may_fail("malloc")
        memory = self.emulated.allocate(size)
        ctypes.memset(memory.address, 0xAB, size)  # CUDA's is not clean
        self.memory[memory.address] = memory
        return memory.address

    def free(self, ptr: int) -> None:
        if ptr:
            for queue in self.streams.values():  # cudaFree waits for the work of all streams
                queue.wait()
            del self.memory[ptr]

    def memset(self, ptr: int, value: int, size: int) -> None:
        assert self.memory[ptr].nbytes >= size
        ctypes.memset(ptr, value, size)

    def memcpyAsync(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:  # noqa: N802
        self._may_fail("memcpyAsync")
        if kind == 3:
            assert self.memory[src].nbytes >= size <= self.memory[dst].nbytes
            ctypes.memmove(dst, src, size)
            return
        host = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(src if kind == 1 else dst))
        if kind == 1:
            self.streams[stream].upload(dst, host)
        else:
            assert kind == 2
            self.streams[stream].download(src, host)
        self.streams[stream].kept.append(host)

    def streamCreateWithFlags(self, flags: int) -> int:  # noqa: N802
        assert flags == 1
        number = next(self._numbers)
        self.streams[number] = self.emulated.queue()
        self.streams[number].kept = []
        return number

    def streamSynchronize(self, stream: int) -> None:  # noqa: N802
        self._may_fail("streamSynchronize")
        if stream:
            self.streams[stream].wait()
            self.streams[stream].kept.clear()

    def streamDestroy(self, stream: int) -> None:  # noqa: N802
        del self.streams[stream]


def _words(size: int) -> type[ctypes.Structure]:
    """Return a structure of that many words."""
    return type("Words", (ctypes.Structure,), {"_fields_": [("words", ctypes.c_int64 * size)]})


class Driver:
    """`cupy.cuda.driver`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._functions: list[str] = []

    def moduleLoadData(self, image: bytes) -> int:  # noqa: N802
        assert isinstance(image, bytes)
        return 77

    def moduleGetFunction(self, module: int, funcname: str) -> int:  # noqa: N802
        assert module == 77
        self._functions.append(funcname.removeprefix("evolve_"))
        return len(self._functions)

    def launchKernel(  # noqa: N802
        self, f, grid_dim_x, grid_dim_y, grid_dim_z, block_dim_x, block_dim_y, block_dim_z, shared_mem_bytes, stream,
        kernel_params, extra,
    ) -> None:  # fmt: skip
        name = self._functions[f - 1]
        assert (grid_dim_y, grid_dim_z, block_dim_x, shared_mem_bytes, extra) == (1, 1, 32, 0, 0)
        sizes = self._runtime.emulated.parameters(name)
        pointers = (ctypes.c_void_p * len(sizes)).from_address(kernel_params)
        arguments = [_words(size).from_address(pointer) for size, pointer in zip(sizes, pointers, strict=True)]
        self._runtime.streams[stream].launch(name, grid_dim_x, block_dim_y, *arguments, tiles=block_dim_z)


class Cuda:
    """`cupy.cuda`."""

    def __init__(self, emulated: EmulatedDevice, total: int = 2**30) -> None:
        self.runtime = Runtime(emulated, total)
        self.driver = Driver(self.runtime)

    @staticmethod
    def alloc_pinned_memory(size: int) -> bytearray:
        return bytearray(b"\xcd" * size)


class EmulatedGpu(CupyDevice):
    """An emulated device behind the door to CuPy. It needs no machine code, so nothing is compiled for it."""

    def __init__(self, capacity: int = 2**30) -> None:
        super().__init__(Cuda(EmulatedDevice(capacity=capacity), capacity), 0, processes=1)

    def _load(self, unit: str) -> int:
        return self.modules.setdefault(unit, 77)
