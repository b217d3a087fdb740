"""Writing a run file: each flush replaces it by a copy that the new generations have been appended to."""

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError, RunError
from evolve.genome import Genomes
from evolve.store.columns import extend, put, stack
from evolve.store.disk import BearingFile, sync
from evolve.store.layout import COLUMNS, HELD_OUT, NORMALIZER, POPULATION, SCHEMA, TRAIL, Header, HeldOut, Place, Record
from evolve.store.lock import Lock
from evolve.store.reading import exists, is_empty, read, unwritable

_RARITY = 20.0
_MOST_WAITING = 2**26  # bytes of genomes


@dataclass
class RunFile:
    """A run file being written, by this process alone until it is closed."""

    path: Path
    header: Header
    lock: Lock
    told: int = 0
    """How many generations have been appended."""
    on_disk: int = 0
    """How many of them the file holds."""
    last: Record | None = None
    """The newest of them."""
    checkpoint: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    held_out: HeldOut | None = None
    complete: bool = False
    _begun: bool = False
    has_population: bool = False
    """Whether the file holds genomes of all candidates."""
    _trailed: int = 0
    """How many steps of trails the file holds."""
    steps: int = 0
    """Environment steps of all generations that have been appended."""
    best: tuple[float, int] = (np.nan, 0)
    """The best fitness of any of them, and the first generation that had it."""
    _pending: list[Record] = field(default_factory=list)
    _genomes: list[Genomes] = field(default_factory=list)
    _flushed_at: float = -np.inf
    _flush_cost: float = 0.0

    def append(self, record: Record, checkpoint: Mapping[str, NDArray[Any]], genomes: Genomes | None = None) -> None:
        """Add a generation and the state after telling it; flush when that is due.

        genomes: its P candidates; given in every generation of a run that keeps them, in none of another.
        """
        self._pending.append(record)
        if genomes is not None:
            self._genomes.append(genomes)
        self._count(record, self.told)
        self.last, self.told, self.checkpoint = record, self.told + 1, checkpoint
        waiting = sum(part.weights.nbytes for part in self._genomes)
        if waiting > _MOST_WAITING or time.monotonic() - self._flushed_at >= _RARITY * self._flush_cost:
            self.flush()

    def _count(self, record: Record, generation: int) -> None:
        self.steps += record.steps
        if np.isnan(self.best[0]) or record.champion_fitness > self.best[0]:
            self.best = record.champion_fitness, generation

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
        self.lock.release()

    def _replace(self) -> None:
        partial = self.path.with_name(f".{self.path.name}.partial")
        try:
            if self._begun:
                shutil.copyfile(self.path, partial)
            else:
                partial.write_bytes(self._beginning())
            self._append_to(partial)
            os.replace(partial, self.path)
            trailed = self._trailed + sum(len(record.champion_trail) for record in self._pending)
            self._begun, self.on_disk, self._trailed, self._pending, self._genomes = True, self.told, trailed, [], []
            sync(self.path.parent)
        except OSError:
            partial.unlink(missing_ok=True)
            raise

    def _beginning(self) -> bytes:
        """Return a file that holds nothing but the header."""
        with h5py.File("memory", "w", driver="core", backing_store=False) as file:
            file.attrs.update(schema=SCHEMA, config=self.header.config, manifest=json.dumps(dict(self.header.manifest)),
                              seed=self.header.seed, env=self.header.env, complete=False)  # fmt: skip
            file.create_group("checkpoint").attrs["told"] = 0
            file.flush()
            image: bytes = file.id.get_file_image()
            return image

    def _append_to(self, partial: Path) -> None:
        with open(partial, "r+b", buffering=0) as disk:
            bearing = BearingFile(disk)
            with h5py.File(bearing, "r+") as file:
                # More than we know of: an interrupt came between the last replacing and our noting it.
                if not self.on_disk <= file["checkpoint"].attrs["told"] <= self.told:
                    raise OSError(f"somebody else has changed it, and it no longer holds {self.on_disk} generations")
                self._write(file)
            if bearing.wrong is not None:
                raise bearing.wrong
            os.fsync(disk.fileno())

    def _write(self, file: h5py.File) -> None:
        if file.attrs["config"] != self.header.config:  # the old text stays in the file, so not every time
            file.attrs["config"] = self.header.config
        file.attrs.modify("complete", self.complete)
        trails = [record.champion_trail for record in self._pending]
        if trails:
            extend(file, TRAIL, self._trailed, np.concatenate(trails))
        normalizers = [record for record in self._pending if record.normalizer is not None]
        kept: tuple[tuple[Mapping[str, Place], list[Any]], ...] = (
            (COLUMNS, self._pending), (POPULATION, self._genomes), ({"normalizer": NORMALIZER}, normalizers),
        )  # fmt: skip
        for columns, added in kept:
            for name, place in columns.items():
                if added:
                    extend(file, place, self.on_disk, stack([getattr(part, name) for part in added], place.dtype))
        state = file["checkpoint"]
        state.attrs.modify("told", self.told)
        for name in set(state) - set(self.checkpoint):
            del state[name]
        for name, array in self.checkpoint.items():
            put(state, name, array)
        if "evaluation" in file:
            del file["evaluation"]
        if self.held_out is not None:
            for name, place in HELD_OUT.items():
                file[place.path] = getattr(self.held_out, name)


def create(path: Path, header: Header) -> RunFile:
    """Return a new, empty run file that is already on disk.

    Raises InputError when the directory cannot be written or a file is there. None is ever overwritten, but for a run
    file without a told generation that nobody is writing.
    """
    _check_free(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = RunFile(path, header, Lock(path))
    except (OSError, ValueError) as wrong:
        raise unwritable(path.parent, wrong) from None
    try:
        _check_free(path, file.lock.holds)  # another process may have been quicker
        file.flush()
    except RunError as wrong:
        file.close()
        raise unwritable(path, wrong.__cause__) from None
    except InputError:
        file.close()
        raise
    return file


def _check_free(path: Path, alone: bool = True) -> None:
    """Raise InputError when a file is there from which something could be lost, or whose writer may be at work."""
    if exists(path) and not (alone and is_empty(path)):
        cure = "Continue it with --resume, or choose another directory with -o."
        raise InputError("output.directory (-o/--output)", "no run file of this seed yet", str(path), cure)


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
    last = run.records[-1] if run.records else None
    state = last, run.checkpoint, run.held_out, run.complete
    file = RunFile(path, run.header, lock, run.told, run.told, *state, _begun=True)
    for generation, record in enumerate(run.records):
        file._count(record, generation)
    file.has_population, file._trailed = run.has_population, sum(len(record.champion_trail) for record in run.records)
    return file
