"""Writing a run file: each flush replaces it by a whole new one."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError, RunError
from evolve.store.layout import COLUMNS, HELD_OUT, SCHEMA, Header, HeldOut, Record
from evolve.store.lock import Lock
from evolve.store.reading import exists, read, unwritable

_RARITY = 20.0


@dataclass
class RunFile:
    """A run file being written, by this process alone until it is closed."""

    path: Path
    header: Header
    records: list[Record] = field(default_factory=list)
    checkpoint: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    held_out: HeldOut | None = None
    complete: bool = False
    on_disk: int = 0
    """How many generations the file holds."""
    lock: Lock | None = None
    _flushed_at: float = -np.inf
    _flush_cost: float = 0.0

    def append(self, record: Record, checkpoint: Mapping[str, NDArray[Any]]) -> None:
        """Add a generation and the state after telling it; flush when that is due."""
        self.records.append(record)
        self.checkpoint = checkpoint
        if time.monotonic() - self._flushed_at >= _RARITY * self._flush_cost:
            self.flush()

    def flush(self) -> None:
        """Put everything on disk. Raises RunError when that cannot be done; what was there is left as it was."""
        begin = time.monotonic()
        try:
            self._replace()
        except OSError as wrong:
            cure = "Make room or repair that, and continue with --resume."
            raise RunError(f"{self.path} cannot be written ({wrong}). {cure}") from wrong
        self._flushed_at = time.monotonic()
        self._flush_cost = self._flushed_at - begin

    def close(self) -> None:
        """Let others write the file."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    def _replace(self) -> None:
        partial = self.path.with_name(f".{self.path.name}.partial")
        try:
            _put(self._image(), partial)
            os.replace(partial, self.path)
            _sync(self.path.parent)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        self.on_disk = len(self.records)

    def _image(self) -> bytes:
        """Return the bytes of the HDF5 file."""
        with h5py.File("image", "w", driver="core", backing_store=False) as file:
            self._write(file)
            file.flush()
            image: bytes = file.id.get_file_image()
            return image

    def _write(self, file: h5py.File) -> None:
        header = self.header
        file.attrs.update(schema=SCHEMA, config=header.config, manifest=json.dumps(dict(header.manifest)),
                          seed=header.seed, env=header.env, complete=self.complete)  # fmt: skip
        if self.records:
            for name, place in COLUMNS.items():
                file[place.path] = _column([getattr(record, name) for record in self.records], place.dtype)
        state = file.create_group("checkpoint")
        state.attrs["told"] = len(self.records)
        for name, array in self.checkpoint.items():
            state[name] = array
        if self.held_out is not None:
            for name, place in HELD_OUT.items():
                file[place.path] = getattr(self.held_out, name)


def _column(values: list[Any], dtype: Any) -> NDArray[Any]:
    """Stack one field of all generations; rows of unlike length (another rank count) are filled up with NaN."""
    lengths = {np.shape(value) for value in values}
    if len(lengths) > 1:
        width = max(shape[0] for shape in lengths)
        values = [np.concatenate([v, np.full(width - len(v), np.nan)]) for v in values]
    return np.asarray(values, dtype=dtype)


def _put(content: bytes, path: Path) -> None:
    with open(path, "wb", buffering=0) as file:
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create(path: Path, header: Header) -> RunFile:
    """Return a new, empty run file that is already on disk.

    Raises InputError when the directory cannot be written or the file exists: it is never overwritten.
    """
    if exists(path):
        cure = "Continue it with --resume, or choose another directory with -o."
        raise InputError("output.directory (-o/--output)", "no run file of this seed yet", str(path), cure)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = RunFile(path, header, lock=Lock(path))
    except (OSError, ValueError) as wrong:
        raise unwritable(path.parent, wrong) from None
    try:
        if exists(path):  # another process was quicker
            raise InputError("output.directory (-o/--output)", "no run file of this seed yet", str(path))
        file.flush()
    except RunError as wrong:
        file.close()
        raise unwritable(path, wrong.__cause__) from None
    except InputError:
        file.close()
        raise
    return file


def reopen(path: Path) -> RunFile:
    """Return the file of a run that is to go on. Raises InputError when it cannot be read or written."""
    try:
        lock = Lock(path)
    except OSError as wrong:
        raise unwritable(path, wrong) from None
    try:
        run = read(path)
    except InputError:
        lock.release()
        raise
    done = len(run.records)
    return RunFile(path, run.header, list(run.records), run.checkpoint, run.held_out, run.complete, done, lock)
