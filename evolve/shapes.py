"""The alphabet of array shapes, and the check that a boundary makes.

G generations, P candidates, E episodes per candidate, O observation size, A action size, W weights of one
genome, T trace values of one episode (W or 0), L steps of a trail, B batch slots, R MPI ranks.
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


def expect(array: NDArray[Any], argument: str, symbols: str, dtype: DTypeLike, **sizes: int) -> None:
    """Raise ValueError unless `array` has the shape that `symbols` ("P W") spell and the `dtype`.

    A symbol without a value in `sizes` may have any length, unless it is a number.
    """
    names = symbols.split()
    wanted = [int(name) if name.isdigit() else sizes.get(name) for name in names]
    fits = array.ndim == len(names) and all(
        want is None or want == have for want, have in zip(wanted, array.shape, strict=False)
    )
    if not fits or array.dtype != dtype:
        numbers = ", ".join(f"{n}={w}" for n, w in zip(names, wanted, strict=True) if w is not None)
        raise ValueError(
            f"{argument}: expected [{', '.join(names)}] {np.dtype(dtype)} ({numbers}), "
            f"got {list(array.shape)} {array.dtype}"
        )
