"""What a device is to the rest of the engine: memory, queues of work, and the kernels of rollouts/*.cu.

A device is a machine of its own beside the host: nothing is copied unless somebody says so, every copy is counted, and
work goes on while the host does something else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

WIDTH = 32
"""The slots of one tile on a device, as in kernels/lanes.h."""
MOST_PARTS = 8
"""How many threads may share the columns of a slot."""


class Memory(Protocol):
    """Memory on a device, which is freed with this object."""

    address: int
    nbytes: int


class Queue(Protocol):
    """Work on a device, done in its order, while the host goes on.

    Arrays are C-contiguous. Until `wait` the caller keeps them alive, and nobody changes what is copied.
    """

    transfers: "Transfers"

    def upload(self, target: int, source: NDArray[Any]) -> None:
        """Copy an array of the host to an address of the device."""

    def download(self, source: int, target: NDArray[Any]) -> None:
        """Copy from an address of the device into an array of the host."""

    def launch(self, kernel: str, blocks: int, parts: int, *arguments: int) -> None:
        """Run a kernel, `evolve_<kernel>`, on blocks of WIDTH × parts threads; play_<network>_on_<task> is one, too.

        arguments: addresses and whole numbers, all of 64 bits.
        """

    def wait(self) -> None:
        """Return when all of it is done. Raises RunError when the device has failed."""


class Device(Protocol):
    """A device; every call is for the thread that has opened it."""

    name: str
    """What it is, for people."""

    allocated: int
    """Bytes that are allocated now."""

    def allocate(self, nbytes: int) -> Memory:
        """Return memory full of zeros. Raises DeviceMemoryError when there is too little."""

    def host_array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return zeros on the host, from where and to where copies are fast (page-locked)."""

    def queue(self) -> Queue:
        """Return an empty queue."""

    def free_memory(self) -> int:
        """Return how many bytes this process may still allocate."""


class DeviceMemoryError(Exception):
    """A device has too little memory. `needed` and `free` are in bytes."""

    def __init__(self, needed: int, free: int) -> None:
        self.needed = needed
        self.free = free
        super().__init__(f"{needed:,} bytes needed, {free:,} free")


class UnannouncedCopyError(Exception):
    """The device check has found a copy that nobody has announced."""


@dataclass
class Transfers:
    """How many bytes went to a device and came from it."""

    up: int = 0
    down: int = 0
    limit: tuple[int, int] | None = None
    """While a tick is checked: what `up` and `down` may reach."""

    def add(self, up: int = 0, down: int = 0) -> None:
        """Count a copy. Raises UnannouncedCopyError when it was not announced."""
        self.up += up
        self.down += down
        if self.limit is not None and (self.up > self.limit[0] or self.down > self.limit[1]):
            raise UnannouncedCopyError(f"a copy of {up or down:,} bytes {'to' if up else 'from'} the device")

    @contextmanager
    def announced(self, up: int, down: int) -> Iterator[None]:
        """Refuse copies beyond these in what follows."""
        before = self.limit
        self.limit = self.up + up, self.down + down
        try:
            yield
        finally:
            self.limit = before
