"""Arrays by name as bytes: the answers that rank 0 gives to all ranks of a script."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from evolve.store import Record


def pack(**arrays: Any) -> bytes:
    """Return arrays as bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def unpack(packed: bytes) -> dict[str, Any]:
    """Return the arrays that `pack` has packed, by name."""
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays}


def record_to_arrays(record: Record) -> dict[str, Any]:
    """Return what a record has, by name."""
    return {name: np.asarray(value) for name, value in vars(record).items() if value is not None}


def record_from_arrays(arrays: Mapping[str, Any]) -> Record:
    """Return the record that `record_to_arrays` has taken apart."""
    return Record(**{name: value if value.shape else value.item() for name, value in arrays.items()})
