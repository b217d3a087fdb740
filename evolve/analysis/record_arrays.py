"""Records as arrays by name: what rank 0 tells all ranks of a script."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from evolve.store import Record


def record_to_arrays(record: Record) -> dict[str, Any]:
    """Return what a record has, by name."""
    return {name: np.asarray(value) for name, value in vars(record).items() if value is not None}


def record_from_arrays(arrays: Mapping[str, Any]) -> Record:
    """Return the record that `record_to_arrays` has taken apart."""
    return Record(**{name: value if value.shape else value.item() for name, value in arrays.items()})
