"""Metrics: numbers that an environment reports in the `info` of the last step of an episode, named by `env.metrics`.

A metric has the type that the environment gives it: bool, int64 or float64. The worker encodes each number as its type
and its 64 bits. Rank 0 decodes one column for each metric, in the widest type that occurs in it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.config import nearest
from evolve.errors import InputError
from evolve.shapes import Int64

_NONE, _BOOL, _INT, _FLOAT = range(4)
_KINDS = {"b": _BOOL, "i": _INT, "u": _INT, "f": _FLOAT}
"""The code of a type, by NumPy's letter of the kind."""


def encode_metrics(info: Any, names: Sequence[str]) -> Int64:
    """Return the types and the bits of metrics, [2, M].

    Args:
        info: The `info` of the last step of an episode.
        names: The names of the M metrics.

    Raises:
        InputError: A metric is missing, or is not one number.
    """
    encoded = np.zeros((2, len(names)), np.int64)
    for place, name in enumerate(names):
        expected = f"a number {name} in the info of the last step of an episode"
        if not isinstance(info, Mapping) or name not in info:
            known = [key for key in info if isinstance(key, str)] if isinstance(info, Mapping) else []
            came = "an info without it" if known else "an empty info"
            raise InputError("env.metrics", expected, came, nearest(name, known))
        try:
            value = np.asarray(info[name])
            kind = _KINDS[value.dtype.kind] if value.shape == () else _NONE
            if kind == _FLOAT:
                # Every NaN becomes one quiet NaN, because CPUs differ in its sign.
                bits = np.float64(np.nan if np.isnan(value) else value).view(np.int64)
            else:
                bits = np.int64(value.item())
        except (KeyError, ValueError, TypeError, OverflowError):  # text, objects, numbers of more than 64 bits
            kind = _NONE
        if kind == _NONE:
            raise InputError("env.metrics", expected, repr(info[name]))
        encoded[:, place] = kind, bits
    return encoded


def decode_metrics(encoded: Int64, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the metrics by name, in arrays of shape […], from their types and bits […, 2, M].

    The type of an array is the widest type in it: bool, int64 or float64. An episode that failed or was not played has
    no metrics: it has False, 0 or NaN.
    """
    return {name: _column(encoded[..., 0, m], np.ascontiguousarray(encoded[..., 1, m])) for m, name in enumerate(names)}


def _column(kinds: Int64, bits: Int64) -> NDArray[Any]:
    widest = int(kinds.max(initial=_NONE))
    if widest == _BOOL:
        return bits.astype(np.bool_)
    if widest == _INT:
        return bits
    numbers = np.where(kinds == _NONE, np.nan, bits.astype(np.float64))
    return np.where(kinds == _FLOAT, bits.view(np.float64), numbers)
