"""Columns of a run file: how they are declared, arrays that grow by whole generations, and others that are replaced."""

from dataclasses import dataclass, field, fields
from typing import Any

import h5py
import numpy as np
from numpy.typing import DTypeLike, NDArray

LETTERS = {
    "G": "generations",
    "P": "candidates",
    "E": "episodes of each candidate",
    "W": "weights of a genome",
    "O": "observation size",
    "R": "ranks",
    "N": "held-out episodes",
    "L": "steps",
}
"""What the letters of a shape stand for."""

_CHUNK = 2048  # bytes of a checkpoint's array that are stored together
_MOST_CHUNKS = 64  # of such an array, if it is large


@dataclass(frozen=True)
class Column:
    """Where an array lies in the file, and what it is.

    Attributes:
        path: The path of its dataset.
        symbols: Its shape, in `LETTERS` and numbers.
        dtype: Its type.
        meaning: What it is, in words.
        unit: The unit of its numbers; empty where there is none.
        chunk: How many bytes are stored together, about.
        optional: Whether some runs have none.
    """

    path: str
    symbols: str
    dtype: Any
    meaning: str
    unit: str = ""
    chunk: int = 2048
    optional: bool = False

    @property
    def attributes(self) -> dict[str, str]:
        """Return what the dataset says of itself, by the names of its attributes."""
        shape = ", ".join(LETTERS.get(symbol, symbol) for symbol in self.symbols.split())
        return {"shape": shape, "unit": self.unit, "meaning": self.meaning}


def column(path: str, symbols: str, dtype: DTypeLike, meaning: str, unit: str = "", **more: Any) -> Any:
    """Declare a field that is a column of the run file; see `Column`."""
    declared = Column(path, symbols, np.dtype(dtype), meaning, unit, **more)
    metadata = {"column": declared}
    return field(default=None, metadata=metadata) if declared.optional else field(metadata=metadata)


def columns_of(record: type[Any]) -> dict[str, Column]:
    """Return the columns that the fields of a record declare, by name."""
    return {f.name: f.metadata["column"] for f in fields(record)}


def _chunks(shape: tuple[int, ...], itemsize: int, size: int) -> tuple[int, ...]:
    """Return the shape of about `size` bytes of a column: whole generations, or parts of one."""
    row = max(1, int(np.prod(shape[1:])) * itemsize)
    if row <= size or len(shape) == 1:
        return (max(1, size // row), *shape[1:])
    return (1, max(1, shape[1] * size // row), *shape[2:])


def stack(rows: list[Any], dtype: Any) -> NDArray[Any]:
    """Return rows as one array, the shorter ones filled up with zeros."""
    shape = np.max([np.shape(row) for row in rows], axis=0).astype(int)
    stacked: NDArray[Any] = np.zeros((len(rows), *shape), dtype)
    for n, row in enumerate(rows):
        place: Any = (n, *(slice(length) for length in np.shape(row)))
        stacked[place] = row
    return stacked


def extend(file: h5py.File, column: Column, before: int, rows: NDArray[Any]) -> None:
    """Put rows [n, …] behind the first `before` rows. Where lengths differ, the rest is zero, or NaN for reals."""
    if column.path not in file:
        _describe(_make(file, column.path, rows, column.chunk), column)
        return
    stored = file[column.path]
    if stored.chunks is None:  # somebody has copied it as one block, which cannot grow
        whole = stored[()]
        del file[column.path]
        stored = _describe(_make(file, column.path, whole, column.chunk), column)
    old = stored.shape
    stored.resize((before + len(rows), *map(max, old[1:], rows.shape[1:])))
    stored[(slice(before, None), *(slice(n) for n in rows.shape[1:]))] = rows
    if stored.dtype.kind == "f" and rows.ndim == 2:  # other numbers of ranks
        stored[before:, rows.shape[1] :] = np.nan
        stored[:before, old[1] :] = np.nan


def extend_part(
    file: h5py.File, column: Column, generation: int, first: int, population: int, rows: NDArray[Any]
) -> None:
    """Put rows [n, W] of some candidates, from `first` on, into a column of generations of P candidates [G, P, W]."""
    if column.path not in file:
        extend(file, column, generation, np.zeros((generation + 1, population, rows.shape[1]), rows.dtype))
    stored = file[column.path]
    if len(stored) <= generation:
        stored.resize(generation + 1, axis=0)
    stored[generation, first : first + len(rows)] = rows


def write(file: h5py.File, column: Column, array: NDArray[Any]) -> None:
    """Store a column that does not grow."""
    file[column.path] = array
    _describe(file[column.path], column)


def put(group: h5py.Group, name: str, array: NDArray[Any]) -> None:
    """Store an array in the place of the last one: a removed one would leave a hole in the file."""
    old = group.get(name)
    if old is not None and old.chunks and old.dtype == array.dtype and old.ndim == array.ndim:
        old.resize(array.shape)
        old[...] = array
        return
    if old is not None:
        del group[name]
    if array.size and array.ndim:
        _make(group, name, array, max(_CHUNK, array.nbytes // _MOST_CHUNKS))
    else:
        group[name] = array


def _make(group: h5py.Group, name: str, array: NDArray[Any], chunk: int = _CHUNK) -> h5py.Dataset:
    chunks = _chunks(array.shape, array.dtype.itemsize, chunk)
    return group.create_dataset(name, data=array, maxshape=(None,) * array.ndim, chunks=chunks)


def _describe(dataset: h5py.Dataset, column: Column) -> h5py.Dataset:
    """Let a dataset say its shape, unit and meaning by attributes, for readers without this package; return it."""
    dataset.attrs.update(column.attributes)
    return dataset
