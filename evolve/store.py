"""The run file `DIR/seed-S.h5`, the only room that imports h5py.

What is guaranteed: at every instant, after a kill or a full disk too, the path holds a complete and closed HDF5 file
that plain h5py opens. Each flush writes a new file beside it, syncs it, and renames it into place, which POSIX makes
atomic; a reader keeps the file it opened. A generation is on disk once `flush` has returned. To keep the cost of
rewriting below 5 % of the run, a flush may be put off until twenty times its last duration has passed, so a kill
loses that much work at most; a run that stops in any orderly way flushes first.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, expect

SCHEMA = 1
_RARITY = 20.0


def path_of(directory: Path, seed: int) -> Path:
    """Return the path of one seed's run file."""
    return directory / f"seed-{seed}.h5"


@dataclass(frozen=True)
class Record:
    """One generation: returns, lengths [P, E]; fitness, connections [P]; busy_seconds [R]; champion_… [W] or scalar."""

    returns: Float64
    lengths: Int32
    fitness: Float64
    connections: Int32
    digest: bytes  # 64 hexadecimal characters
    seconds: float
    steps: int
    busy_seconds: Float64
    champion_weights: Float32
    champion_mask: Bool
    champion_candidate: int
    champion_fitness: float


_PLACES: dict[str, tuple[str, Any]] = {
    "returns": ("generation/returns", np.float64), "lengths": ("generation/lengths", np.int32),
    "fitness": ("generation/fitness", np.float64), "connections": ("generation/connections", np.int32),
    "digest": ("generation/digest", "S64"), "seconds": ("generation/seconds", np.float64),
    "steps": ("generation/steps", np.int64), "busy_seconds": ("rank/busy_seconds", np.float64),
    "champion_weights": ("champion/weights", np.float32), "champion_mask": ("champion/mask", np.bool_),
    "champion_candidate": ("champion/candidate", np.int64), "champion_fitness": ("champion/fitness", np.float64),
}  # fmt: skip


@dataclass(frozen=True)
class HeldOut:
    """The final champion (weights, mask [W]) on N held-out episodes: returns, environment seeds [N]."""

    returns: Float64
    seeds: Int64
    weights: Float32
    mask: Bool


@dataclass(frozen=True)
class Header:
    """What does not change while a run goes on; config is TOML, manifest JSON."""

    config: str
    manifest: Mapping[str, Any]
    seed: int
    env: str


@dataclass(frozen=True)
class Run:
    """A run file as read: one array per `Record` field, generations along the first axis."""

    path: Path
    header: Header
    complete: bool
    records: tuple[Record, ...]
    checkpoint: dict[str, NDArray[Any]]
    held_out: HeldOut | None


@dataclass
class RunFile:
    """A run file being written."""

    path: Path
    header: Header
    records: list[Record] = field(default_factory=list)
    checkpoint: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    held_out: HeldOut | None = None
    complete: bool = False
    _flushed_at: float = -np.inf
    _flush_cost: float = 0.0

    def append(self, record: Record, checkpoint: Mapping[str, NDArray[Any]]) -> None:
        """Add a generation and the state after telling it; flush when that is due."""
        self.records.append(record)
        self.checkpoint = checkpoint
        if time.monotonic() - self._flushed_at >= _RARITY * self._flush_cost:
            self.flush()

    def flush(self) -> None:
        """Put everything on disk. Raises InputError when the directory cannot be written."""
        begin = time.monotonic()
        partial = self.path.with_name(f".{self.path.name}.partial")
        try:
            with h5py.File(partial, "w") as file:
                self._write(file)
            _sync(partial)
            os.replace(partial, self.path)
            _sync(self.path.parent)
        except OSError as wrong:
            partial.unlink(missing_ok=True)
            raise _unwritable(f"{self.path} ({wrong})") from wrong
        self._flushed_at = time.monotonic()
        self._flush_cost = self._flushed_at - begin

    def _write(self, file: h5py.File) -> None:
        header = self.header
        file.attrs.update(schema=SCHEMA, config=header.config, manifest=json.dumps(dict(header.manifest)),
                          seed=header.seed, env=header.env, complete=self.complete)  # fmt: skip
        if self.records:
            for name, (place, dtype) in _PLACES.items():
                file[place] = _column([getattr(record, name) for record in self.records], dtype)
        state = file.create_group("checkpoint")
        state.attrs["told"] = len(self.records)
        for name, array in self.checkpoint.items():
            state[name] = array
        if self.held_out is not None:
            for part in fields(self.held_out):
                file[f"evaluation/{part.name}"] = getattr(self.held_out, part.name)


def _column(values: list[Any], dtype: Any) -> NDArray[Any]:
    """Stack one field of all generations; rows of unlike length (another rank count) are filled up with NaN."""
    lengths = {np.shape(value) for value in values}
    if len(lengths) > 1:
        width = max(shape[0] for shape in lengths)
        values = [np.concatenate([v, np.full(width - len(v), np.nan)]) for v in values]
    return np.asarray(values, dtype=dtype)


def _unwritable(what: str) -> InputError:
    return InputError("output.directory (-o/--output)", "a directory that can be written", what)


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as wrong:
        raise _unwritable(f"{path.parent} ({wrong})") from None
    if exists(path):
        cure = "Continue it with --resume, or choose another directory with -o."
        raise InputError("output.directory (-o/--output)", "no run file of this seed yet", str(path), cure)
    file = RunFile(path, header)
    file.flush()
    return file


def exists(path: Path) -> bool:
    """Return whether something is there. Raises InputError where that cannot be known."""
    try:
        return path.exists()
    except (OSError, ValueError) as wrong:
        raise _unwritable(f"{path} ({wrong})") from None


def reopen(run: Run) -> RunFile:
    """Return the file of a run that was read, to go on writing it."""
    return RunFile(run.path, run.header, list(run.records), run.checkpoint, run.held_out, run.complete)


def read(path: Path) -> Run:
    """Read a run file. Raises InputError when it is missing, truncated, not a run file, or of another schema."""
    argument = str(path)
    if not exists(path) or path.is_dir():
        raise InputError(argument, "a run file", "no such file")
    try:
        with h5py.File(path, "r") as file:
            if "schema" not in file.attrs:
                raise InputError(argument, "a run file of evolve", "an HDF5 file of something else")
            if file.attrs["schema"] != SCHEMA:
                raise InputError(argument, f"schema {SCHEMA}", f"schema {file.attrs['schema']}")
            return _read(path, file)
    except (OSError, RuntimeError) as wrong:
        raise InputError(argument, "a readable run file", f"a truncated or foreign file ({wrong})") from None
    except (KeyError, ValueError, TypeError, AttributeError, IndexError) as wrong:
        raise InputError(argument, "a complete run file", f"a damaged one ({wrong})") from None


_SHAPES = {
    "returns": "G P E", "lengths": "G P E", "fitness": "G P", "connections": "G P", "digest": "G", "seconds": "G",
    "steps": "G", "busy_seconds": "G R", "champion_weights": "G W", "champion_mask": "G W", "champion_candidate": "G",
    "champion_fitness": "G",
}  # fmt: skip


def _check(columns: dict[str, NDArray[Any]]) -> None:
    """Raise ValueError unless the columns have the types and shapes of the layout, and agree with one another."""
    sizes: dict[str, int] = {}
    for name, column in columns.items():
        place, dtype = _PLACES[name]
        expect(column, place, _SHAPES[name], np.dtype(dtype), **sizes)
        sizes |= dict(zip(_SHAPES[name].split(), column.shape, strict=True))
    if columns:
        candidates = columns["champion_candidate"]
        if not ((candidates >= 0) & (candidates < sizes["P"])).all():
            raise ValueError("champion/candidate: not one of the population")
        for digest in columns["digest"]:
            if len(bytes.fromhex(digest.decode("ascii"))) != 32:
                raise ValueError("generation/digest: not 64 hexadecimal characters")


def _read(path: Path, file: h5py.File) -> Run:
    attrs = file.attrs
    header = Header(str(attrs["config"]), json.loads(attrs["manifest"]), int(attrs["seed"]), str(attrs["env"]))
    columns = {name: file[place][()] for name, (place, _) in _PLACES.items()} if "generation" in file else {}
    _check(columns)
    records = tuple(Record(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True))
    checkpoint = {name: array[()] for name, array in file["checkpoint"].items()}
    if file["checkpoint"].attrs["told"] != len(records):
        raise ValueError("its checkpoint belongs to another generation")
    held_out = None
    if "evaluation" in file:
        held_out = HeldOut(**{part.name: file[f"evaluation/{part.name}"][()] for part in fields(HeldOut)})
    return Run(path, header, bool(attrs["complete"]), records, checkpoint, held_out)
