"""Writing a run file: each flush replaces it by a copy that the new generations have been appended to."""

import atexit
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError, RunError
from evolve.genome import Genomes, GenomeSource
from evolve.store.columns import extend, extend_part, put, stack, write
from evolve.store.disk import DeferredErrorFile, Lock, atomic_write, sync, without_links
from evolve.store.reading import exists, is_empty, read, unwritable
from evolve.store.schema import COLUMNS, HELD_OUT, POPULATION, SCHEMA, STEP_HASHES, Header, HeldOut, Record

_MIN_INTERVAL = 20.0  # in durations of the last flush, so that flushing costs at most 5 % of a run
_MAX_BUFFERED = 2**26  # bytes of genomes, or of the states that they are made of

# At its exit Python stops daemon threads. One that is stopped inside HDF5 keeps the lock of that library, and the exit
# hangs: so the exit waits for a write, and lets no other thread begin one.
_WRITING = threading.RLock()
atexit.register(_WRITING.acquire, timeout=60)


@dataclass
class RunFile:
    """A run file being written, by this process alone until it is closed."""

    path: Path
    header: Header
    lock: Lock
    num_generations: int = 0
    """How many generations have been appended."""
    on_disk: int = 0
    """How many generations the file holds; the others wait for a flush."""
    last: Record | None = None
    """The newest record that has been appended."""
    checkpoint: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    held_out: HeldOut | None = None
    complete: bool = False
    replaces: bool = False
    """Whether another run's file is still in its place; the first generation that is flushed takes that."""
    flushes_each: bool = False
    """Whether every generation is flushed when it is appended, however long that takes."""
    _exists: bool = False
    has_population: bool = False
    """Whether the file held the genomes of all candidates when it was reopened."""
    _num_hashes: int = 0
    """How many step hashes the file holds."""
    steps: int = 0
    """Environment steps of all generations that have been appended."""
    best: tuple[float, int] = (np.nan, 0)
    """The best fitness of all generations, and the first of these that had it."""
    _pending: list[Record] = field(default_factory=list)
    _genomes: list[GenomeSource] = field(default_factory=list)
    _flushed_at: float = -np.inf
    _flush_cost: float = 0.0
    _flushed: tuple[object, ...] = ()
    """The content that the last flush wrote."""

    def append(
        self,
        record: Record,
        checkpoint: Mapping[str, NDArray[Any]],
        genomes: GenomeSource | None = None,
        flush: bool = True,
    ) -> None:
        """Add a generation and the state of the strategy after `tell`, and flush if it is time.

        Args:
            record: The generation.
            checkpoint: The state.
            genomes: Its P candidates; given in every generation of a run that keeps them, in none of another.
            flush: Whether to flush here if it is time. `flushes_each` flushes in any case.
        """
        self._pending.append(record)
        if genomes is not None:
            self._genomes.append(genomes)
        self._add_to_totals(record, self.num_generations)
        self.last = record
        self.num_generations += 1
        self.checkpoint = checkpoint
        if self.flushes_each:
            self.flush()
        elif flush:
            self.flush_if_due()

    def flush_if_due(self) -> None:
        """Flush if it is time, or too much waits. Raises RunError as `flush` does."""
        if self.on_disk == self.num_generations:
            return
        state = sum(array.nbytes for array in self.checkpoint.values())  # what genomes that are made anew hold on to
        buffered = sum(part.weights.nbytes if isinstance(part, Genomes) else state for part in self._genomes)
        if buffered > _MAX_BUFFERED or time.monotonic() - self._flushed_at >= _MIN_INTERVAL * self._flush_cost:
            self.flush()

    def _add_to_totals(self, record: Record, generation: int) -> None:
        self.steps += record.steps
        if np.isnan(self.best[0]) or record.champion_fitness > self.best[0]:
            self.best = record.champion_fitness, generation

    def flush(self) -> None:
        """Write the file, unless it has everything already: an interpreter that exits cannot write any more.

        Raises RunError when it cannot be written; the file then holds what it held.
        """
        content = self._content()
        if content == self._flushed or (self.replaces and not self.num_generations):
            return
        begin = time.monotonic()
        try:
            with _WRITING:
                self._replace()
        except OSError as error:
            cure = "Free disk space or mend the error, and continue with resume=True."
            raise RunError(f"{self.path} cannot be written ({error}). {cure}") from error
        self._flushed = content
        self._flushed_at = time.monotonic()
        self._flush_cost = self._flushed_at - begin

    def _content(self) -> tuple[object, ...]:
        """Return the parts of this run that change what a flush writes."""
        return self.num_generations, self.complete, self.header, self.held_out

    def close(self) -> None:
        """Release the lock; nothing is flushed."""
        self.lock.release()

    def _replace(self) -> None:
        num_hashes = self._num_hashes + sum(len(record.champion_step_hashes) for record in self._pending)
        with atomic_write(self.path) as partial:
            if self._exists:
                shutil.copyfile(self.path, partial)
            else:
                partial.write_bytes(self._beginning())
            self._append_to(partial)
        self._exists = True  # KeyboardInterrupt is raised at calls, so these six lines are atomic
        self.replaces = False
        self.on_disk = self.num_generations
        self._num_hashes = num_hashes
        self._pending = []
        self._genomes = []
        sync(without_links(self.path).parent)

    def _beginning(self) -> bytes:
        """Return a file that holds nothing but the header."""
        name = f"{self.path}, in memory"  # one of its own: HDF5 refuses two open files of one name, threads may write
        with h5py.File(name, "w", driver="core", backing_store=False) as file:
            file.attrs.update(schema=SCHEMA, config=self.header.config, manifest=json.dumps(dict(self.header.manifest)),
                              seed=self.header.seed, env=self.header.env, complete=False)  # fmt: skip
            file.create_group("checkpoint").attrs["num_generations"] = 0
            file.flush()
            image: bytes = file.id.get_file_image()
            return image

    def _append_to(self, partial: Path) -> None:
        with open(partial, "r+b", buffering=0) as disk:
            deferred = DeferredErrorFile(disk)
            with h5py.File(deferred, "r+") as file:
                # It may hold one flush more: an interrupt came after the renaming, before `on_disk` was set.
                if not self.on_disk <= file["checkpoint"].attrs["num_generations"] <= self.num_generations:
                    raise OSError(f"somebody else has changed it, and it no longer holds {self.on_disk} generations")
                self._write(file)
            if deferred.error is not None:
                raise deferred.error
            os.fsync(disk.fileno())

    def _write(self, file: h5py.File) -> None:
        if file.attrs["config"] != self.header.config:  # the old text stays in the file, so not every time
            file.attrs["config"] = self.header.config
        file.attrs.modify("complete", self.complete)
        if self._pending:
            hashes = np.concatenate([record.champion_step_hashes for record in self._pending])
            extend(file, STEP_HASHES, self._num_hashes, hashes)
        for name, column in COLUMNS.items():
            rows = [getattr(record, name) for record in self._pending]
            if rows and rows[0] is not None:
                extend(file, column, self.on_disk, stack(rows, column.dtype))
        for number, genomes in enumerate(self._genomes):
            self._write_population(file, self.on_disk + number, genomes)
        self._write_checkpoint(file)
        if "evaluation" in file:
            del file["evaluation"]
        if self.held_out is not None:
            for name, column in HELD_OUT.items():
                write(file, column, getattr(self.held_out, name))

    def _write_population(self, file: h5py.File, generation: int, genomes: GenomeSource) -> None:
        for first, some in _blocks(genomes):
            for name, column in POPULATION.items():
                extend_part(file, column, generation, first, len(genomes), getattr(some, name))

    def _write_checkpoint(self, file: h5py.File) -> None:
        state = file["checkpoint"]
        state.attrs.modify("num_generations", self.num_generations)
        for name in set(state) - set(self.checkpoint):
            del state[name]
        for name, array in self.checkpoint.items():
            put(state, name, array)


def _blocks(genomes: GenomeSource) -> Iterator[tuple[int, Genomes]]:
    """Yield all genomes, a few at a time, each time with the number of the first."""
    at_once = max(1, _MAX_BUFFERED // max(1, 8 * genomes.num_weights))
    for first in range(0, len(genomes), at_once):
        yield first, genomes.take(np.arange(first, min(first + at_once, len(genomes))))


def create(path: Path, header: Header) -> RunFile:
    """Return a new, empty run file that is already on disk.

    Raises InputError when the directory cannot be written or a file is there. None is ever overwritten, but for a run
    file without a generation that nobody is writing.
    """
    check_free(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = RunFile(path, header, Lock(path))
    except (OSError, ValueError) as error:
        raise unwritable(path.parent, error) from None
    try:
        check_free(path, file.lock.holds)  # another process may have been quicker
        file.flush()
    except RunError as error:
        file.close()
        raise unwritable(path, error.__cause__) from None
    except InputError:
        file.close()
        raise
    return file


def check_free(path: Path, alone: bool = True) -> None:
    """Raise InputError when a file is there from which something could be lost, or whose writer may be at work."""
    if exists(path) and not (alone and is_empty(path)):
        raise taken(path)


def taken(path: Path) -> InputError:
    """Return the refusal of a new run whose file is there already, or of a file that is not a run's."""
    try:
        read(path)
    except InputError as error:
        return error
    cure = "Continue it with resume=True, replace it with overwrite=True, or choose another output.directory."
    return InputError.plainly("output.directory", f"{path} already exists. {cure}")


def replace(path: Path, header: Header) -> RunFile:
    """Return a new run file for the place of one that is there, which stays until the first generation is flushed.

    Raises InputError when somebody is writing that one, or the directory cannot be written.
    """
    try:
        return RunFile(path, header, Lock(path), replaces=True)
    except OSError as error:
        raise unwritable(path.parent, error) from None


def reopen(path: Path) -> RunFile:
    """Reopen the file of a run, to append to it. Raises InputError when it cannot be read or written."""
    try:
        lock = Lock(path)
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        run = read(path)
    except InputError:
        lock.release()
        raise
    file = RunFile(
        path,
        run.header,
        lock,
        num_generations=run.num_generations,
        on_disk=run.num_generations,
        last=run.records[-1] if run.records else None,
        checkpoint=run.checkpoint,
        held_out=run.held_out,
        complete=run.complete,
        has_population=run.has_population,
        _exists=True,
        _num_hashes=sum(len(record.champion_step_hashes) for record in run.records),
    )
    for generation, record in enumerate(run.records):
        file._add_to_totals(record, generation)
    return file
