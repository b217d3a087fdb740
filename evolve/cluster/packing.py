"""Arrays by name as bytes: what one rank tells others where no record says what there is."""

import io
from typing import Any

import numpy as np


def pack(**arrays: Any) -> bytes:
    """Return arrays as bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def unpack(packed: bytes) -> dict[str, Any]:
    """Return the arrays that `pack` has packed, by name."""
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays}
