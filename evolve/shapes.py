"""The letters of array shapes, the checks of an array's shape and type, and a division for sizes.

| letter | means |
|---|---|
| G, P, E | generations, candidates in the population, episodes per candidate |
| O, A | observation size, action size |
| W, T | weights of one genome, traces of one episode (W or 0) |
| B, k | slots in a batch, some of these slots |
| L | steps of an episode, or all logged steps of several episodes |
| N, n | items that the docstring names, such as episodes of a batch; some of these items |
| C | different genomes in a batch of episodes; in the physics, corners of a polygon |
| K | rows of traces; a genome may have several rows |
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
    return -(-number // divisor)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view of an array."""
    view = array.view()
    view.setflags(write=False)
    return view


def check_shape(array: NDArray[Any], argument: str, symbols: str, dtype: DTypeLike, **sizes: int) -> None:
    """Raise ValueError unless an array has the given shape and type. Raise TypeError for any other object.

    Args:
        array: The array.
        argument: The name of the array in the error.
        symbols: The shape: a letter or a length for each axis, separated by spaces, such as "P W" or "N 4".
        dtype: The type.
        **sizes: The lengths of letters. An axis with another letter may have any length.
    """
    if not hasattr(array, "ndim"):  # a dataset of a file has the attributes of an array
        raise TypeError(f"{argument}: expected an array, got {type(array).__name__}")
    names = symbols.split()
    lengths = [int(name) if name.isdigit() else sizes.get(name) for name in names]
    fits = array.ndim == len(names)
    # `zip` raises an error for different numbers of axes, so these are compared first.
    fits = fits and all(length in (None, found) for length, found in zip(lengths, array.shape, strict=True))
    if not fits or array.dtype != dtype:
        known = [f"{name}={length}" for name, length in zip(names, lengths, strict=True) if length is not None]
        where = f" ({', '.join(known)})" if known else ""
        expected = f"[{', '.join(names)}] {np.dtype(dtype)}{where}"
        raise ValueError(f"{argument}: expected {expected}, got {list(array.shape)} {array.dtype}")


def stored_array(
    arrays: Mapping[str, NDArray[Any]], name: str, symbols: str, dtype: DTypeLike, **sizes: int
) -> NDArray[Any]:
    """Return an array of a checkpoint.

    Args:
        arrays: The checkpoint.
        name: The name of the array.
        symbols: The shape of the array, as for `check_shape`: "P W".
        dtype: The type of the array.
        **sizes: The lengths of letters, as for `check_shape`.

    Raises:
        ValueError: The array is missing, or has another shape or type.
    """
    if name not in arrays:
        raise ValueError(f"checkpoint: {name} is missing")
    array = np.asarray(arrays[name])
    check_shape(array, name, symbols, dtype, **sizes)
    return array
