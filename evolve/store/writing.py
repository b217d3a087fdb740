"""Writes run files (`RunFile`). Each flush replaces the file by a copy with the new generations appended.

`create` makes a new run file, `replace` makes one that replaces an old file, and `reopen` continues an old file.
"""

import atexit
import math
import os
import shutil
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from evolve.errors import InputError, RunError, Setting, on_error, pluralize
from evolve.genome import Genomes, GenomeSource
from evolve.shapes import ceil_div
from evolve.store import disk, schema
from evolve.store.disk import DeferredErrorFile, Lock, atomic_write, sync_directory, uninterrupted, without_links
from evolve.store.reading import check_free, read
from evolve.store.schema import LARGEST_CHUNK, Checkpoint, Column, Header, HeldOut, Record, RunLog, metric_column

# The interval between two flushes is `_USUAL_MULTIPLE` times the duration of a flush, but at most `_LONGEST_INTERVAL`,
# and at least `_LEAST_MULTIPLE` durations, see `evolve.store`.
_LEAST_MULTIPLE, _USUAL_MULTIPLE = 20.0, 200.0
_LONGEST_INTERVAL = 2.0  # seconds
CHEAP_FLUSH = 0.05
"""If other processes see each generation, each is flushed at once while a flush takes at most this number of seconds.
Slower flushes wait for the interval."""
MAX_BUFFERED = 2**26
"""Bytes of genomes, or of the strategy states from which genomes are computed, that may wait for a flush."""
_CHUNK = 2048  # bytes of each chunk of a checkpoint array
_MOST_CHUNKS = 64  # an array with more chunks gets larger chunks instead, if a reader accepts them
_LONGEST_PART = 2**18  # bytes; a larger generation is divided into parts, one chunk each

# Python stops daemon threads at exit. A thread that is stopped inside HDF5 keeps HDF5's lock, and the exit hangs.
# So the exit waits for a running write, and no other thread may begin one.
_WRITING = threading.RLock()


@atexit.register
def _end_writing() -> None:
    """Wait for a running write, write pending generations, and let no other thread append or write any more."""
    if not _WRITING.acquire(timeout=60):
        return
    for flush in list(disk.flush_of.values()):
        with suppress(RunError):  # the script, which reads the errors, has ended
            flush()


class _ChangedError(OSError):
    """Another process has replaced or changed the run file."""


@dataclass(eq=False)
class RunFile(RunLog):
    """A run file that this process alone writes, until it is closed."""

    lock: Lock = field(kw_only=True)
    on_disk: int = 0
    """The number of generations in the file. Later ones wait for a flush."""
    replaces: bool = False
    """Whether the path still has the file of an earlier run. The first flush of a generation replaces it."""
    serves_script: bool = False
    """Whether a script sees each generation, see `flush_for_script`. The interval is then 20 durations of a flush."""
    cheap_flush: float = -1.0
    """Each generation is flushed at once while a flush takes at most this number of seconds; never if negative."""
    has_population: bool = False
    """Whether the file had the genomes of all candidates when it was reopened."""
    best: tuple[float, int] = (np.nan, 0)
    """The best fitness of all generations, and the first generation with it. NaN if no fitness is a number."""
    flush_cost: float = 0.0
    """The seconds of the quicker one of the last two flushes, so that one slow flush does not count."""
    flushed_at: float = -np.inf
    """The monotonic time of the last flush."""
    _last_duration: float = np.inf  # seconds of the last flush
    _exists: bool = False  # whether the path has a file of this run
    _num_hashes: int = 0  # step hashes in the file
    _num_validations: int = 0  # validations in the file
    _pending: list[Record] = field(default_factory=list)  # the appended records that wait for a flush
    _genomes: list[GenomeSource] = field(default_factory=list)  # of the pending records, if the run stores all genomes
    _flushed_content: tuple[object, ...] = ()  # what the last flush has written, see `flush`

    def __post_init__(self) -> None:
        self._writer = os.getpid()
        # An absolute path, because a script or an environment may change the current directory.
        self._target = without_links(self.path)

    def flush_for_script(self, seen_elsewhere: bool) -> None:
        """Flush more often from now on, and flush pending generations before this process reads the file or ends.

        seen_elsewhere: Whether other processes see the generations, too. This process does not know when they read the
            file, so each generation is flushed at once while that is cheap (`CHEAP_FLUSH`).
        """
        self.serves_script = True
        self.cheap_flush = CHEAP_FLUSH if seen_elsewhere else -1.0
        disk.flush_of[self._target] = self.flush

    def append(
        self, record: Record, checkpoint: Checkpoint, genomes: GenomeSource | None = None, flush: bool = True
    ) -> None:
        """Add a generation as `RunLog.append` does.

        flush: Whether to flush now if a flush is due. A file that serves a script is then flushed in any case.

        Raises InputError for arrays that a reader would refuse, and RunError as `flush` does.
        """
        if os.getpid() != self._writer:
            raise RunError(f"{self.path} is written by process {self._writer}, so its fork cannot go on with the run")
        if len(checkpoint) > schema.MOST_ENTRIES:
            expected = f"at most {schema.MOST_ENTRIES:,} arrays in the run file"
            raise InputError("strategy.name", expected, len(checkpoint))
        self._check_selection(record)
        # A signal handler or a reading thread may call `flush`. In the middle of this block that would damage the file.
        with _WRITING, uninterrupted():
            self._pending.append(record)
            if genomes is not None:
                self._genomes.append(genomes)
            self._compare_with_best(record, self.num_generations)
            super().append(record, checkpoint)
        if self.flush_cost <= self.cheap_flush:
            self.flush()
        elif flush or self.serves_script:
            self.flush_if_due()

    def _check_selection(self, record: Record) -> None:
        """Raise InputError if the columns of a strategy have other shapes than declared, or than in the last record."""
        # Strategies of other packages may give any shape, but a reader would refuse the file.
        for name in ("measures", "front", "archive"):
            values = getattr(record, name)
            symbols = schema.COLUMNS[name].symbols.split()[1:]  # without the axis G
            shape = np.shape(values)  # () if it is None
            if self.last is not None:
                fits = shape == np.shape(getattr(self.last, name))
            else:
                fits = values is None or (len(shape) == len(symbols) and 0 not in shape)
            if values is not None and "P" in symbols:
                fits = fits and shape[:1] == record.fitness.shape  # P is the first axis
            if not fits:
                expected = f"a strategy whose {name} is an array [{', '.join(symbols)}], the same in all generations"
                got = "none" if values is None else f"an array of shape {list(shape)}"
                raise InputError("strategy.name", expected, got)

    def flush_if_due(self) -> None:
        """Flush if the last flush is long enough ago, or too many bytes wait. Raises RunError as `flush` does."""
        if self.on_disk == self.num_generations:
            return
        # A lazy genome source keeps the state of its generation in memory.
        state_bytes = sum(array.nbytes for array in self.checkpoint.values())
        buffered = sum(part.weights.nbytes if isinstance(part, Genomes) else state_bytes for part in self._genomes)
        interval = _LEAST_MULTIPLE * self.flush_cost  # for scripts, and for the first generation, which is written soon
        if self.on_disk and not self.serves_script:
            interval = max(interval, min(_USUAL_MULTIPLE * self.flush_cost, _LONGEST_INTERVAL))
        if self.serves_script and not self.on_disk:  # a script may be killed after the first generation that it sees
            interval = 0.0
        if buffered > MAX_BUFFERED or time.monotonic() - self.flushed_at >= interval:
            self.flush()

    def _compare_with_best(self, record: Record, generation: int) -> None:
        best_fitness, _ = self.best
        if np.isnan(best_fitness) or record.champion_fitness > best_fitness:
            self.best = record.champion_fitness, generation

    def flush(self) -> None:
        """Write everything that is not in the file yet.

        Raises RunError if that fails. The path then has the old file or, if only the last step failed, the new one.
        """
        # A fork that ends must not write what its parent still writes.
        if os.getpid() != self._writer:
            return
        # An exiting interpreter may call this when it can no longer write. So return if there is nothing to write.
        content = self.num_generations, self.complete, self.header, self.held_out, len(self.validations)
        if content == self._flushed_content or (self.replaces and not self.num_generations):
            return
        begin = time.monotonic()
        try:
            with _WRITING, uninterrupted():  # HDF5 may crash if a method of `DeferredErrorFile` raises
                self._replace_file()
        except OSError as error:
            advice = "Free disk space or mend the error"
            if isinstance(error, PermissionError):
                advice = "Allow writing to the file and its directory"
            if not self._target.parent.exists():
                advice = "Put its directory back"
            # No other file has the earlier generations of the run.
            elif isinstance(error, _ChangedError) or (self._exists and not self._target.exists()):
                advice = "Put the file back"
            # Until the first flush the path has the run that this one replaces.
            verb, option = ("begin again", "overwrite") if self.replaces else ("continue", "resume")
            cure = f"{advice}, and {verb} with ", Setting(option, True), "."
            raise RunError(f"{self.path} cannot be written ({error}). ", *cure) from error
        self._flushed_content = content
        self.flushed_at = time.monotonic()
        duration = self.flushed_at - begin
        self.flush_cost = min(duration, self._last_duration)
        self._last_duration = duration

    def forget_validations(self) -> None:
        """Drop all validations. The next flush removes them from the file."""
        self.validations = {}
        self._num_validations = 0

    def close(self) -> None:
        """Release the lock, without a flush."""
        disk.flush_of.pop(self._target, None)
        self.lock.release()

    def _replace_file(self) -> None:
        """Replace the file by a copy with all pending changes."""
        with atomic_write(self._target, is_locked=True) as partial:
            if self._exists:
                shutil.copyfile(self._target, partial)
            self._append_to(partial)
        # Set all this before `sync_directory`: the path has the new file, even if `sync_directory` fails.
        self._exists = True
        self.replaces = False
        self.on_disk = self.num_generations
        self._num_hashes += sum(len(record.champion_step_hashes) for record in self._pending)
        self._num_validations = len(self.validations)
        self._pending = []
        self._genomes = []
        sync_directory(self._target.parent)  # otherwise a crash of the machine could undo the renaming

    def _append_to(self, partial: Path) -> None:
        """Write all pending changes into the partial file; if it does not exist yet, begin it with the header."""
        with DeferredErrorFile(partial, "r+" if self._exists else "w+") as output:  # HDF5 may crash on a write error
            with h5py.File(output, "r+" if self._exists else "w") as file:
                if not self._exists:
                    file.attrs.update(self.header.attributes(), schema=schema.SCHEMA, complete=False)
                    file.create_group("checkpoint").attrs["num_generations"] = 0
                    write_start(file, self.header)
                # The file may have more generations than `on_disk`, if the last flush was interrupted after the
                # renaming. If another process has put another HDF5 file there, it has no checkpoint.
                num_stored = file["checkpoint"].attrs.get("num_generations", -1) if "checkpoint" in file else -1
                if not self.on_disk <= num_stored <= self.num_generations:
                    length = pluralize(self.on_disk, "generation")
                    raise _ChangedError(f"another process has changed it: it no longer holds {length}")
                self._update(file)
            if output.error is not None:
                raise output.error
            os.fsync(output.fileno())

    def _update(self, file: h5py.File) -> None:
        """Append rows to a copy of the file, and replace its checkpoint and its evaluation."""
        # HDF5 does not reuse the bytes of a replaced text. So a text is written only if it has changed, as in a resumed
        # run, or is missing, as "spaces" may be.
        for name, text in self.header.attributes().items():
            if name in ("config", "manifest", "spaces") and file.attrs.get(name) != text:
                file.attrs[name] = text
        file.attrs.modify("complete", self.complete)
        # Rows are written behind the first `on_disk` rows. So if a flush was interrupted after the renaming, the next
        # flush writes the same rows in the same places again.
        if self._pending:
            hashes = np.concatenate([record.champion_step_hashes for record in self._pending])
            _append_rows(file, schema.STEP_HASHES, self._num_hashes, hashes)
            for name, column in schema.COLUMNS.items():
                rows = [getattr(record, name) for record in self._pending]
                if rows[0] is not None:  # None if this run does not store the column
                    _append_rows(file, column, self.on_disk, np.array(rows, column.dtype))
            for name in self._pending[0].metrics:
                values = np.stack([record.metrics[name] for record in self._pending])
                _append_rows(file, metric_column("generation", "G P E", name, values.dtype), self.on_disk, values)
        for number, genomes in enumerate(self._genomes):
            self._write_population(file, self.on_disk + number, genomes)
        self._write_validations(file)
        group = file["checkpoint"]
        group.attrs.modify("num_generations", self.num_generations)
        for name in set(group) - set(self.checkpoint):
            del group[name]
        for name, array in self.checkpoint.items():
            _replace_array(group, name, array)
        # The file may have the evaluation of an earlier champion.
        if "evaluation" in file:
            del file["evaluation"]
        if self.held_out is not None:
            write_held_out(file, self.held_out)

    def _write_validations(self, file: h5py.File) -> None:
        """Append new validations. First remove all validations if `forget_validations` was called."""
        if not self._num_validations and "validation" in file:
            del file["validation"]
        new_validations = list(self.validations.items())[self._num_validations :]
        for number, (generations, returns) in enumerate(new_validations, self._num_validations):
            _append_rows(file, schema.VALIDATIONS["generations"], number, np.array([generations]))
            _append_rows(file, schema.VALIDATIONS["returns"], number, returns[None])

    def _write_population(self, file: h5py.File, generation: int, genomes: GenomeSource) -> None:
        """Write the genomes of a generation into the columns [G, P, W], in parts that fit in memory."""
        P = len(genomes)
        # A part has at most MAX_BUFFERED bytes. A weight and its entry of the mask have 5 bytes, but count as 8.
        at_once = max(1, MAX_BUFFERED // max(1, 8 * genomes.num_weights))
        for first in range(0, P, at_once):
            part = genomes.take(np.arange(first, min(first + at_once, P)))
            for name, column in schema.POPULATION.items():
                rows = getattr(part, name)
                if column.path not in file:
                    _create_column(file, column, np.zeros((generation + 1, P, rows.shape[1]), rows.dtype))
                stored = file[column.path]
                if len(stored) <= generation:
                    stored.resize(generation + 1, axis=0)
                stored[generation, first : first + len(rows)] = rows


def create(path: Path, header: Header) -> RunFile:
    """Return a new, empty run file that is already on disk.

    It may replace a run file without a generation, unless a process is writing that file. Raises InputError if another
    file is there, or if the directory cannot be written.
    """
    check_free(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = RunFile(path, header, lock=Lock(path))
    except (OSError, ValueError) as error:  # ValueError: the path has a null character
        raise disk.unwritable_directory(path.parent, error) from None
    with on_error(file.close):
        # Check again, because another process may have created the file before this process took the lock.
        check_free(path, file.lock.is_effective)
        try:
            file.flush()
        except RunError as error:
            raise disk.unwritable_directory(path, error.__cause__) from None
    return file


def replace(path: Path, header: Header) -> RunFile:
    """Return a new run file. It replaces the file at `path` when its first generation is flushed.

    Raises InputError if another process is writing the old file, or the directory cannot be written.
    """
    try:
        return RunFile(path, header, lock=Lock(path), replaces=True)
    except OSError as error:
        raise disk.unwritable_directory(path.parent, error) from None


def reopen(path: Path) -> RunFile:
    """Open an existing run file to append to it. Raises InputError if it cannot be read or written."""
    # Lock the file before it is read, so that no other process changes it in between.
    try:
        lock = Lock(path)
    except OSError as error:
        got = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        expected = "a run file and a directory that can be written"
        raise InputError(str(path), expected, got, "Change the permissions, or copy the run file.") from None
    with on_error(lock.release):
        run = read(path)
    file = RunFile(path, run.header, run.num_generations, run.steps, run.checkpoint, lock=lock, complete=run.complete,
                   last=run.last, on_disk=run.num_generations, held_out=run.held_out,
                   has_population=run.has_population, validations=dict(run.validations), _exists=True,
                   _num_hashes=sum(len(record.champion_step_hashes) for record in run.records),
                   _num_validations=len(run.validations))  # fmt: skip
    for generation, record in enumerate(run.records):
        file._compare_with_best(record, generation)
    return file


def chunk_shape(shape: tuple[int, ...], itemsize: int, size: int) -> tuple[int, ...]:
    """Return the shape of the chunks of an array [G, …]. A row is the part of the array for one generation.

    A chunk has several rows, about `size` bytes, or one larger row. A row of more bytes than the larger of `size`
    and `_LONGEST_PART` is divided into parts, one chunk each. A part has less than twice as many bytes. Parts are few,
    because HDF5 takes about 15 µs to add a chunk. They have equal lengths, because HDF5 stores the last chunk in full.
    """
    row_bytes = max(1, math.prod(shape[1:]) * itemsize)
    if row_bytes <= size:
        return (max(1, size // row_bytes), *shape[1:])
    limit = max(size, _LONGEST_PART)
    # Divide the axis after G. Its parts may be too long even if their length is 1: then divide the next axis, too.
    chunk = [1, *shape[1:]]
    for axis in range(1, len(shape)):
        num_parts = ceil_div(math.prod(chunk) * itemsize, limit)
        chunk[axis] = ceil_div(shape[axis], min(num_parts, shape[axis]))
        if chunk[axis] > 1:
            break
    return tuple(chunk)


def _append_rows(file: h5py.File, column: Column, before: int, rows: NDArray[Any]) -> None:
    """Write rows [n, …] behind the first `before` rows. Pad shorter rows by zeros, or by NaN if they are floats."""
    try:
        stored = h5py.h5d.open(file.id, column.path.encode())
    except KeyError:
        _create_column(file, column, rows)
        return
    # Write the dataset anew if new values of a metric need a larger type, or if the dataset cannot grow: another
    # program has copied the file, and has stored the dataset as one block.
    dtype = np.result_type(stored.dtype, rows.dtype)
    if stored.dtype != dtype or not _can_grow(stored):
        values = h5py.Dataset(stored)[()].astype(dtype)
        del file[column.path]
        stored = _create_column(file, column, values).id
    old_shape = stored.shape
    _write_rows(stored, before, rows, (before + len(rows), *map(max, old_shape[1:], rows.shape[1:])))
    # A resumed run may have another number of ranks or of validation episodes, so rows may differ in length. HDF5 pads
    # the shorter rows with zeros. Replace the zeros by NaN if the values are floats.
    if stored.dtype.kind == "f" and rows.ndim == 2 and rows.shape[1] != old_shape[1]:
        padded = h5py.Dataset(stored)
        padded[before:, rows.shape[1] :] = np.nan  # empty unless the new rows are shorter
        padded[:before, old_shape[1] :] = np.nan  # empty unless the old rows are shorter


def _can_grow(stored: h5py.h5d.DatasetID) -> bool:
    """Return whether a dataset has chunks, so that it can grow."""
    return stored.get_create_plist().get_layout() == h5py.h5d.CHUNKED


def _write_rows(stored: h5py.h5d.DatasetID, before: int, rows: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Give a dataset a new shape, and write rows [n, …] behind its first `before` rows."""
    # For a few rows, h5py's datasets would take more than twice as long as HDF5's own functions.
    stored.set_extent(shape)
    if rows.size:
        target = stored.get_space()
        target.select_hyperslab((before, *(0 for _ in shape[1:])), rows.shape)  # the first index, and the shape
        stored.write(h5py.h5s.create_simple(rows.shape), target, np.ascontiguousarray(rows))


def write_held_out(file: h5py.File, held_out: HeldOut) -> None:
    """Write a held-out evaluation."""
    write_columns(file, schema.HELD_OUT, vars(held_out))
    columns = {name: metric_column("evaluation", "N", name, values.dtype) for name, values in held_out.metrics.items()}
    write_columns(file, columns, held_out.metrics)


def write_start(file: h5py.File, header: Header) -> None:
    """Write the genome with which a run began, if there is one."""
    if header.start is not None:
        write_columns(file, schema.START, vars(header.start))


def write_columns(file: h5py.File, columns: Mapping[str, Column], arrays: Mapping[str, NDArray[Any] | None]) -> None:
    """Write arrays into columns that do not grow, by name. A column with None is not written."""
    for name, column in columns.items():
        if (array := arrays[name]) is not None:
            file[column.path] = array
            file[column.path].attrs.update(column.attributes)


def _replace_array(group: h5py.Group, name: str, array: NDArray[Any]) -> None:
    """Write an array under a name, in place of an array with this name."""
    # A removed dataset leaves a hole in the file, so the old dataset is reused if possible.
    if name in group:
        old = h5py.h5d.open(group.id, name.encode())
        if _can_grow(old) and old.dtype == array.dtype and old.rank == array.ndim:
            _write_rows(old, 0, array, array.shape)
            return
        del group[name]
    if array.size and array.ndim:
        # A chunk may have twice this size (`chunk_shape`), and a reader refuses chunks above LARGEST_CHUNK.
        chunk = max(_CHUNK, array.nbytes // _MOST_CHUNKS)
        _create_dataset(group, name, array, min(chunk, LARGEST_CHUNK // 2))
    else:
        # HDF5 has no chunks for scalars and empty arrays.
        group[name] = array


def _create_dataset(group: h5py.Group, name: str, array: NDArray[Any], chunk: int) -> h5py.Dataset:
    """Create a dataset that can grow along every axis, in chunks of about `chunk` bytes."""
    chunks = chunk_shape(array.shape, array.dtype.itemsize, chunk)
    return group.create_dataset(name, data=array, maxshape=(None,) * array.ndim, chunks=chunks)


def _create_column(file: h5py.File, column: Column, rows: NDArray[Any]) -> h5py.Dataset:
    """Create the dataset of a column that can grow, with attributes that describe it to other programs."""
    dataset = _create_dataset(file, column.path, rows, column.chunk)
    dataset.attrs.update(column.attributes)
    return dataset
