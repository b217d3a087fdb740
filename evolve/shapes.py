"""The letters that array shapes are written in, and the check that is made where an array comes in.

| letter | means |
|---|---|
| G, P, E | generations, candidates in the population, episodes per candidate |
| O, A | observation size, action size |
| W, T | weights of one genome, traces of one episode (W or 0) |
| B, k | slots in a batch, some of these |
| L | steps of an episode, or all logged steps of several |
| N, n | all of something, some of these (episodes of a batch, members of an elite) |
| C | different genomes in a batch of episodes |
| K | genomes that have a row of traces |
| R | MPI ranks |
"""

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
"""Numbers of slots, [k], all different."""


def check_shape(array: NDArray[Any], argument: str, symbols: str, dtype: DTypeLike, **sizes: int) -> None:
    """Raise ValueError unless an array has the given shape and type.

    Args:
        array: The array.
        argument: What the error calls it.
        symbols: The shape, one letter or number for each axis: "P W", "N 4".
        dtype: The type.
        **sizes: The length that a letter stands for. A letter that is left out may have any length.
    """
    names = symbols.split()
    wanted = [int(name) if name.isdigit() else sizes.get(name) for name in names]
    fits = array.ndim == len(names) and all(
        want is None or want == have for want, have in zip(wanted, array.shape, strict=False)
    )
    if not fits or array.dtype != dtype:
        lengths = ", ".join(f"{name}={want}" for name, want in zip(names, wanted, strict=True) if want is not None)
        expected = f"[{', '.join(names)}] {np.dtype(dtype)}{f' ({lengths})' if lengths else ''}"
        raise ValueError(f"{argument}: expected {expected}, got {list(array.shape)} {array.dtype}")
