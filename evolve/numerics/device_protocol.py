"""The interface of a device, such as a GPU: memory, queues of work, and launches of kernels.

A device has its own memory, and works while the host goes on. Only calls of `Queue.upload` and `Queue.download` copy
data between host and device. `CupyDevice` implements `Device` for GPUs; the tests have an emulated device.
"""

import ctypes
import os
import re
from typing import Any, Protocol

from numpy.typing import NDArray

WIDTH = 32
"""The number of slots (networks side by side) that a device processes as one tile, as in numerics/kernels/lanes.h."""
MOST_PARTS = 8
"""The largest `parts` of `Queue.launch`, the threads that share the work of a slot. Each computes some neurons of a
layer."""
# The environment variables of launchers: the rank of a process on its host, and the number of ranks on the host.
LOCAL_RANKS = (
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
    ("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)


class Memory(Protocol):
    """Memory of a device: `nbytes` bytes at an address. When this object is deleted, the memory is freed."""

    address: int
    nbytes: int


class Queue(Protocol):
    """Work for a device. The device does it in the order of the calls, while the host goes on.

    Arrays must be C-contiguous. Until `wait` returns, the queue keeps them alive, and the caller must not change them.
    """

    def upload(self, target: int, source: NDArray[Any]) -> None:
        """Copy an array of the host to an address of the device."""

    def download(self, source: int, target: NDArray[Any]) -> None:
        """Copy from an address of the device into an array of the host."""

    def launch(self, kernel: str, blocks: int, parts: int, *arguments: int | ctypes.Structure, tiles: int = 1) -> None:
        """Run the kernel `evolve_<kernel>` with `blocks` blocks of threads.

        A block has `tiles` tiles, and each tile has WIDTH × `parts` threads.

        kernel: The name without `evolve_`. `rollouts/play.cu` defines `play_<network>_on_<task>`, and
            `rollouts/kernels.cu` defines all other kernels.
        arguments: Addresses and whole numbers, all of 64 bits, and structures. The call copies the structures.
        """

    def wait(self) -> None:
        """Wait for all work of this queue. Raises RunError if the device has failed."""


class Device(Protocol):
    """A device. Only the thread that has opened it may call its methods."""

    name: str
    """The name for users."""

    allocated: int
    """The number of allocated bytes."""

    multiprocessors: int
    """The number of blocks that the device can run without sharing a processor."""

    def allocate(self, nbytes: int) -> Memory:
        """Return memory filled with zeros. Raises DeviceMemoryError if there is not enough."""

    def host_array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return zeros in page-locked memory of the host, which is fast to copy."""

    def queue(self) -> Queue:
        """Return an empty queue."""

    def free_memory(self) -> int:
        """Return the number of bytes that this process may still allocate."""


class DeviceMemoryError(Exception):
    """A device does not have enough memory. `needed` and `free` are in bytes."""

    def __init__(self, needed: int, free: int) -> None:
        super().__init__(f"{needed:,} bytes needed, {free:,} free")


def local_ranks() -> tuple[int, int]:
    """Return the rank of this process on its host, and an upper bound on the number of ranks there.

    The result is (0, 1) if no launcher has set the variables of `LOCAL_RANKS`.
    """
    for rank_variable, size_variable in LOCAL_RANKS:
        ranks = re.findall(r"\b\d+", os.environ.get(rank_variable, ""))
        # SLURM lists the sizes of all hosts, but not which host this is: "4,8(x2)" means 4, 8 and 8 ranks. The pattern
        # skips the 2, which follows a letter.
        sizes = re.findall(r"\b\d+", os.environ.get(size_variable, ""))
        if ranks and sizes:
            # Take the largest size: a rank that assumed too few ranks could use more than its share of a device's
            # memory. A host with rank r has at least r + 1 ranks.
            return int(ranks[0]), max(int(ranks[0]) + 1, *map(int, sizes))
    return 0, 1
