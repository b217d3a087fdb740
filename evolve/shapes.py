"""Array shapes: the letters for their axes, aliases of array types, and checks of an array's shape and type.

A docstring gives a shape as letters in brackets: [P, W]. A *slot* is a place in which an engine plays one episode at a
time.

| letter | means |
|---|---|
| G, P, E | generations, candidates in the population, episodes per candidate |
| O, A | observation size, action size |
| W, T | weights of one genome, traces of one episode (W or 0) |
| B, k | all slots, and some of these slots |
| L | steps of an episode, or of several episodes end to end |
| N, n | items that the docstring names, such as episodes, and some of these items |
| C | genomes in a batch of episodes; in the physics, corners of a polygon |
| K | rows of traces (a genome may have several rows) |
| R | MPI ranks |

A docstring may define further letters.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]
UInt8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]
Slots = NDArray[np.intp]
"""[k], the numbers of k different slots."""


def ceil_div(number: int, divisor: int) -> int:
    """Return number / divisor, rounded up."""
    return -(-number // divisor)  # `//` rounds down


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view of an array."""
    view = array.view()
    view.setflags(write=False)
    return view


def check_shape(array: NDArray[Any], argument: str, symbols: str, dtype: DTypeLike, **sizes: int) -> None:
    """Raise ValueError unless an array has the expected shape and type. Raise TypeError unless it is an array.

    Args:
        array: The array.
        argument: The name of the array in the error.
        symbols: The expected shape: a letter or a length for each axis, separated by spaces, such as "P W" or "N 4".
        dtype: The expected type.
        **sizes: The lengths of some letters (P=4). An axis with any other letter may have any length.
    """
    if not hasattr(array, "ndim"):  # not `isinstance`: a dataset of HDF5 is no ndarray, but has the attributes of one
        raise TypeError(f"{argument}: expected an array, got {type(array).__name__}")
    axes = symbols.split()
    lengths = [int(axis) if axis.isdigit() else sizes.get(axis) for axis in axes]  # None: any length
    fits = array.ndim == len(axes) and array.dtype == dtype
    if not fits or any(length not in (None, actual) for length, actual in zip(lengths, array.shape, strict=True)):
        known = [f"{axis}={length}" for axis, length in zip(axes, lengths, strict=True) if length is not None]
        known_lengths = f" ({', '.join(known)})" if known else ""
        expected = f"[{', '.join(axes)}] {np.dtype(dtype)}{known_lengths}"
        raise ValueError(f"{argument}: expected {expected}, got {list(array.shape)} {array.dtype}")


def stored_array(
    arrays: Mapping[str, NDArray[Any]], name: str, symbols: str, dtype: DTypeLike, **sizes: int
) -> NDArray[Any]:
    """Return an array of a checkpoint, after a check of its shape and type.

    Args:
        arrays: The checkpoint: its arrays by name.
        name: The name of the array.
        symbols: The expected shape, as for `check_shape`: "P W".
        dtype: The expected type.
        **sizes: The lengths of letters, as for `check_shape`.

    Raises:
        ValueError: The array is missing, or has another shape or type.
    """
    if name not in arrays:
        raise ValueError(f"checkpoint: {name} is missing")
    array = np.asarray(arrays[name])
    check_shape(array, name, symbols, dtype, **sizes)
    return array
