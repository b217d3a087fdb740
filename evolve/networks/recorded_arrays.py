"""Arrays that record a batch's memory, so that it can be written into a C file instead of being stepped here.

They stand in for host or device arrays with one slot. Every array gets a number in place of an address, and the
structure that a network gives its kernel refers to arrays by these numbers.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.shapes import Float32, Slots


@dataclass
class RecordedArray:
    """One array of the slot.

    Attributes:
        address: The number that stands for its address in the structure.
        start: Its values at the start of an episode, [n].
        constant: Whether the kernel only reads it.
    """

    address: int
    start: NDArray[Any]
    constant: bool = False

    @property
    def rows(self) -> int:
        """The number n of values."""
        return len(self.start)

    def put(self, slots: Slots, values: NDArray[Any]) -> None:
        """Record the values [1, n] at the start of an episode."""
        self.start = np.array(values[0], self.start.dtype)

    def clear(self, slots: Slots) -> None:
        """Record zeros."""
        self.start = np.zeros_like(self.start)

    def take(self, slots: Slots) -> Float32:
        """Return the recorded values [1, n]."""
        return self.start[None]

    def move(self, sources: Slots, targets: Slots) -> None:
        """Refuse: there is only one slot."""
        raise NotImplementedError


class RecordedArrays:
    """Records the arrays of one slot and the kernel that steps it.

    Attributes:
        made: All arrays, in the order of their creation.
        kernel_name: The kernel's name without the prefix `evolve_`.
        structure: The kernel's first argument.
    """

    def __init__(self) -> None:
        self.made: list[RecordedArray] = []
        self.kernel_name = ""
        self.structure: ctypes.Structure | None = None

    def columns(self, n: int) -> RecordedArray:
        """Record n float32 values that the batch may set at the start of an episode."""
        return self._record(np.zeros(n, np.float32))

    def zeros(self, n: int) -> int:
        """Record n float32 values that start at zero; return the number of the array."""
        return self.columns(n).address

    def counters(self) -> int:
        """Record one int64 counter that starts at zero; return the number of the array."""
        return self._record(np.zeros(1, np.int64)).address

    def constant(self, array: NDArray[Any]) -> int:
        """Record an array that the kernel only reads; return its number."""
        return self._record(np.array(array).ravel(), constant=True).address

    def kernel(self, name: str, structure: ctypes.Structure, sizes: tuple[int, int, int]) -> "_NoStep":
        """Record the kernel and its structure."""
        self.kernel_name = name
        self.structure = structure
        return _NoStep()

    def _record(self, start: NDArray[Any], constant: bool = False) -> RecordedArray:
        self.made.append(RecordedArray(len(self.made) + 1, start, constant))  # 0 is the null pointer
        return self.made[-1]


class _NoStep:
    """Stands for the kernel of a batch that is not stepped here."""

    def __call__(self, observations: Float32) -> Float32:
        raise NotImplementedError

    def settle(self, slots: Slots) -> None:
        """Do nothing: no update waits before the first step."""
