"""Finds and reads run files: `run_files` finds the files that paths name, and `read` returns the run in a file.

A file may come from a stranger. So a `Reader` checks everything before it allocates memory for it.
"""

import errno
import fnmatch
import io
import json
import logging
import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np
from h5py import h5d, h5l
from numpy.typing import NDArray

from evolve.errors import InputError, Setting
from evolve.genome import Genomes
from evolve.numerics.hashing import MAX_HASHED_STEPS
from evolve.shapes import ceil_div, check_shape
from evolve.store import schema
from evolve.store.disk import NO_LOCKS, exists, flush_before_reading, why_missing
from evolve.store.schema import Column, Header, HeldOut, Record, Start, StoredRun

_LOG = logging.getLogger("evolve")
ANOTHER_FILE = "Name another file, or move this one away to begin its run anew."
_MAX_NAMES = 3  # of files in an error
_ATTEMPTS = 3  # to read a file that a flush on another host may replace meanwhile
_HEAP_START = b"GCOL\x01\0\0\0"  # of a heap of texts in HDF5: signature, version 1, three empty bytes
_BLOCK = 2**20  # bytes that are searched for heaps at once
_PLAIN_LAYOUTS = (h5d.CONTIGUOUS, h5d.COMPACT, h5d.CHUNKED)  # all bytes of the dataset are in the file


class _ReplacedError(InputError):
    """A flush on another host has replaced the file while it was read, and the file system has not kept the old one."""


class _FilterError(ValueError):
    """A dataset is compressed, or has another filter of HDF5."""


class Reader:
    """Reads plain arrays and texts from an open file.

    It reads at most as many bytes as the file has, so that a small file from a stranger cannot fill the memory.

    Args:
        file: The open file.
        source: The path or the bytes of the file.
    """

    def __init__(self, file: h5py.File, source: Path | io.BytesIO) -> None:
        self._file = file
        self._unchecked_source: Path | io.BytesIO | None = source  # None if its heaps of texts have been checked
        # Not the size of the file at the path, because a flush may have replaced that file.
        self._bytes_left = file.id.get_filesize()
        # The open groups, by path: to open a group takes as long as to read a small dataset.
        self._groups: dict[str, Any] = {"": file}

    def run(self, path: Path) -> StoredRun:
        """Return the whole run. path: the path of the file, for messages."""
        self._check_schema(path)
        header = self.header()
        records = self._records() if self._has_item("generation") else ()
        checkpoint = self._checkpoint(len(records))
        held_out = self.held_out() if self._has_item("evaluation") else None
        if held_out is not None:
            check_held_out(held_out, len(records[0].champion_weights) if records else 0)
        has_population = self._has_item("population")
        validations = self._validations(len(records))
        return StoredRun(path, header, self._is_complete(), records, checkpoint, held_out, has_population, validations)

    def _records(self) -> tuple[Record, ...]:
        """Return the records of all generations. Raises ValueError if their columns contradict one another."""
        columns: dict[str, Any] = self.columns(schema.COLUMNS)
        # Check first, because `_step_hashes` uses the numbers of the champions as indices.
        _check_consistent(columns)
        columns["champion_step_hashes"] = self._step_hashes(columns)
        metrics = self.metrics("generation", "G P E", columns["returns"].shape)
        # The file has a column [G, …] for each field. The record of generation g has row g of each column.
        generations = range(len(columns["returns"]))
        return tuple(Record(**_row(columns, g), metrics=_row(metrics, g)) for g in generations)

    def _validations(self, num_generations: int) -> dict[int, NDArray[Any]]:
        """Return the returns [N] of each validation, by the number of complete generations before it."""
        if not self._has_item("validation"):
            return {}
        columns = self.columns(schema.VALIDATIONS)
        numbers = columns["generations"].tolist()
        if len(set(numbers)) < len(numbers) or not all(0 < number <= num_generations for number in numbers):
            raise ValueError("validation/generations: not different numbers from 1 to the number of generations")
        return dict(zip(numbers, columns["returns"], strict=True))

    def header(self) -> Header:
        """Return the header of a run file or a champion file."""
        manifest = json.loads(self.text("manifest"))
        if not isinstance(manifest, dict):
            raise ValueError("manifest: not a JSON object")
        start = Start(**self.columns(schema.START)) if self._has_item("start") else None
        spaces = json.loads(self.text("spaces")) if self.has("spaces") else None
        header = Header(self.text("config"), manifest, self.integer("seed"), self.text("env"), start, spaces)
        if not 0 <= header.seed < 2**63:
            raise ValueError("seed: not in [0, 2**63)")
        return header

    def held_out(self) -> HeldOut:
        """Return the held-out evaluation of a run file or a champion file."""
        columns = self.columns(schema.HELD_OUT)
        return HeldOut(**columns, metrics=self.metrics("evaluation", "N", columns["returns"].shape))

    def metrics(self, group: str, symbols: str, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Return the columns of metrics in a group, by name. Raises ValueError if their types or shapes are wrong.

        Args:
            group: "generation" or "evaluation".
            symbols: The letters of their axes, such as "G P E".
            shape: The sizes of these axes.
        """
        if not self._has_item(f"{group}/metrics"):
            return {}
        names = list(self._group(f"{group}/metrics"))
        if len(names) > schema.MOST_ENTRIES:
            raise ValueError(f"{group}/metrics: {len(names)} entries")
        columns = {name: self._array(f"{group}/metrics/{name}") for name in names}
        sizes = dict(zip(symbols.split(), shape, strict=True))
        for name, column in columns.items():
            if column.dtype not in schema.METRIC_TYPES:
                raise ValueError(f"{group}/metrics/{name}: {column.dtype}, which no metric has")
            check_shape(column, name, symbols, column.dtype, **sizes)
        return columns

    def has(self, name: str) -> bool:
        """Return whether the file has an attribute."""
        return name in self._file.attrs

    def progress(self) -> tuple[int, bool]:
        """Return the number of generations, and whether the run is complete."""
        return int(self._number(self._group("checkpoint"), "num_generations", "iu")), self._is_complete()

    def _is_complete(self) -> bool:
        return bool(self._number(self._file, "complete", "b"))

    def _step_hashes(self, columns: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the step hashes of each champion. The file has the hashes of all champions end to end."""
        hashes = self.columns({"step_hashes": schema.STEP_HASHES})["step_hashes"]
        counts = []
        for lengths, champion in zip(columns["lengths"], columns["champion_candidate"], strict=True):
            hashed_steps = np.minimum(lengths[champion], MAX_HASHED_STEPS)
            counts.append(int(hashed_steps.sum(dtype=np.int64)))
        if sum(counts) != len(hashes):
            raise ValueError(f"{schema.STEP_HASHES.path}: {len(hashes)} steps, not {sum(counts)}")
        return np.split(hashes, np.cumsum(counts)[:-1])  # at the inner boundaries

    def population(self, generation: int) -> Genomes:
        """Return the P candidates of a generation."""
        G, P = self._dataset("generation/fitness").shape
        _, W = self._dataset("champion/weights").shape
        arrays = []
        for column in schema.POPULATION.values():
            dataset = self._dataset(column.path)
            check_shape(dataset, column.path, column.symbols, np.dtype(column.dtype), G=G, P=P, W=W)
            # Only one generation is read, so take only its bytes from the budget.
            self._spend(column.path, P * W * dataset.dtype.itemsize, dataset.id.get_storage_size())
            arrays.append(dataset[generation])
        return Genomes(*arrays)

    def _check_schema(self, path: Path) -> None:
        """Raise InputError unless the file is a run file of this version of the schema."""
        if self.has("champion_schema"):
            cure = "The generations of its run are not in it."
            raise InputError(str(path), "a run file", "a champion file", cure)
        if not self.has("schema"):
            raise InputError(str(path), "a run file of evolve", "an HDF5 file of something else", ANOTHER_FILE)
        version = self.integer("schema")
        if version != schema.SCHEMA:
            is_newer = version > schema.SCHEMA
            cure = "Read it with a newer evolve." if is_newer else "Run the experiment again: its results are the same."
            raise InputError(str(path), f"a run file of schema {schema.SCHEMA}", f"schema {version}", cure)

    def columns(self, declared: Mapping[str, Column]) -> dict[str, NDArray[Any]]:
        """Return the arrays of columns, by name. Raises ValueError if their types or shapes are not as declared."""
        sizes: dict[str, int] = {}
        arrays = {}
        for name, column in declared.items():
            if column.optional and not self._has_item(column.path):
                continue
            array = arrays[name] = self._array(column.path)
            check_shape(array, column.path, column.symbols, np.dtype(column.dtype), **sizes)
            # A letter must have the same size in all columns.
            sizes |= dict(zip(column.symbols.split(), array.shape, strict=True))
        return arrays

    def _checkpoint(self, num_generations: int) -> dict[str, NDArray[Any]]:
        group = self._group("checkpoint")
        if self._number(group, "num_generations", "iu") != num_generations:
            raise ValueError("its checkpoint belongs to another generation")
        if len(group) > schema.MOST_ENTRIES:
            raise ValueError(f"checkpoint: {len(group)} entries")
        return {name: self._array(f"checkpoint/{name}") for name in group}

    def _has_item(self, path: str) -> bool:
        """Return whether a path has a group, a dataset, or a link, which `_item` refuses."""
        # h5py's `in` would follow links, and to open another file, such as a pipe, may take forever.
        parent, _, name = path.rpartition("/")
        if parent and not self._has_item(parent):
            return False
        return bool(self._group(parent).id.links.exists(name.encode()))

    def _item(self, path: str, item_type: type[Any]) -> Any:
        """Return a group or dataset. Raises KeyError if it is missing, or if its path has a soft or external link."""
        parent, _, name = path.rpartition("/")
        group, encoded = self._group(parent), name.encode()
        links = group.id.links
        if not (links.exists(encoded) and links.get_info(encoded).type == h5l.TYPE_HARD):
            raise KeyError(f"{path}: missing, or a link to elsewhere")
        item = group[name]
        if not isinstance(item, item_type):
            raise TypeError(f"{path}: a {type(item).__name__}")
        return item

    def _group(self, path: str) -> Any:
        if path not in self._groups:
            self._groups[path] = self._item(path, h5py.Group)
        return self._groups[path]

    def _array(self, path: str) -> NDArray[Any]:
        """Return the whole array of a dataset."""
        dataset = self._dataset(path)
        self._spend(path, dataset.size * dataset.dtype.itemsize, dataset.id.get_storage_size())
        return np.asarray(dataset[()])  # h5py returns a scalar as a number

    def _dataset(self, path: str) -> h5py.Dataset:
        """Return a dataset of numbers or bytes. Raises an error if evolve would not have stored it in this way."""
        dataset = self._item(path, h5py.Dataset)
        dtype = dataset.dtype
        if dataset.shape is None or dtype.kind not in "biufS" or dtype.subdtype:
            raise TypeError(f"{path}: not an array of numbers")
        # Filters can expand a small file to any size, and external storage reads other files.
        properties = dataset.id.get_create_plist()
        layout = properties.get_layout()
        if properties.get_nfilters():
            _, _, _, name = properties.get_filter(0)
            raise _FilterError(f"{path} with the filter {name.decode('ascii', 'replace')}")
        if layout not in _PLAIN_LAYOUTS or properties.get_external_count():
            raise ValueError(f"{path}: stored in another way than evolve stores it")
        chunk_shape = properties.get_chunk() if layout == h5d.CHUNKED else ()
        if chunk_shape and math.prod(chunk_shape) * dtype.itemsize > schema.LARGEST_CHUNK:
            raise ValueError(f"{path}: stored in chunks of {chunk_shape}")
        return dataset

    def _spend(self, path: str, size: int, stored: int) -> None:
        """Take `size` bytes from the budget of this reader. Raises ValueError if they exceed the budget.

        stored: The bytes that the file has of the array. They are fewer than `size` if an array from a stranger claims
            chunks that were never written. This is an error, too.
        """
        self._bytes_left -= size
        if size > stored or self._bytes_left < 0:
            raise ValueError(f"{path}: {size} bytes claimed, more than the file holds")

    def text(self, name: str) -> str:
        """Return a text attribute of the file."""
        attribute = self._file.attrs.get_id(name)
        if attribute.shape != () or h5py.check_string_dtype(attribute.dtype) is None:
            raise TypeError(f"{name}: not a text")
        if self._unchecked_source is not None:
            _check_heaps(self._unchecked_source)
            self._unchecked_source = None
        text = self._file.attrs[name]
        return text.decode() if isinstance(text, bytes) else str(text)

    def integer(self, name: str) -> int:
        """Return an integer attribute of the file."""
        return int(self._number(self._file, name, "iu"))

    def real(self, name: str) -> float:
        """Return a real attribute of the file."""
        return float(self._number(self._file, name, "f"))

    @staticmethod
    def _number(item: Any, name: str, kinds: str) -> Any:
        """Return a numeric attribute of a group or of the file. kinds: NumPy's kinds of the allowed types, as "iu"."""
        attribute = item.attrs.get_id(name)
        if attribute.shape != () or attribute.dtype.kind not in kinds:
            raise TypeError(f"{name}: not a single number of the expected type (NumPy kind {' or '.join(kinds)})")
        return item.attrs[name]


def _row(columns: Mapping[str, Any], g: int) -> dict[str, Any]:
    """Return row g of each column, by name."""
    return {name: column[g] for name, column in columns.items()}


def _check_consistent(columns: Mapping[str, NDArray[Any]]) -> None:
    """Raise ValueError if the columns of a run contradict one another."""
    candidates = columns["champion_candidate"]
    if not ((candidates >= 0) & (candidates < columns["returns"].shape[1])).all():
        raise ValueError("champion/candidate: not one of the population")
    if (columns["lengths"] < 0).any():
        raise ValueError("generation/lengths: negative")
    # NaN is valid: if a run was resumed with another number of ranks, the columns of ranks have NaN for missing ranks.
    for name in ("seconds", "busy_seconds", "environment_seconds"):
        if np.isinf(columns[name]).any():
            raise ValueError(f"{name} of a generation: infinite")
    if 0 in columns["returns"].shape:
        raise ValueError("generation/returns: empty")
    for digest in columns["digest"]:
        if len(bytes.fromhex(digest.decode("ascii"))) != 32:
            raise ValueError("generation/digest: not 64 hexadecimal characters")


def check_held_out(held_out: HeldOut, num_weights: int) -> None:
    """Raise ValueError unless a held-out evaluation has episodes, and a champion of `num_weights` weights."""
    if not (len(held_out.returns) and num_weights):
        raise ValueError("evaluation/returns: empty, or of no champion")
    if len(held_out.weights) != num_weights:
        raise ValueError("evaluation/weights: not of the champions' size")


def is_empty(path: Path) -> bool:
    """Return whether a file is an undamaged run file without a complete generation."""
    with suppress(InputError):
        # Look at the progress first, because to read the generations of a long run takes time.
        num_generations, _ = read_progress(path)
        return num_generations == 0 and read(path).num_generations == 0
    return False


def check_free(path: Path, is_exclusive: bool = True) -> None:
    """Raise InputError if a new run at `path` could destroy a file.

    is_exclusive: Whether no other process can be writing the file. Only then may an empty run file be replaced.
    """
    if exists(path) and not (is_exclusive and is_empty(path)):
        raise already_exists(path)


def already_exists(path: Path) -> InputError:
    """Return the error for a new run at the path of an existing file. If the file is unreadable, the error says so."""
    try:
        read(path)
    except InputError as error:
        return error
    resume, overwrite, another = Setting("resume", True), Setting("overwrite", True), Setting("output.directory")
    cure = "Continue it with ", resume, ", replace it with ", overwrite, ", or choose another ", another, "."
    return InputError.plainly("output.directory", f"{path} already exists. ", *cure)


def run_files(paths: Sequence[Path]) -> list[Path]:
    """Return the run files that paths name. A directory stands for all run files in or below it, in order.

    A run file that several directories contain occurs only once. Raises InputError for a directory without run files.
    """
    files: list[Path] = []
    for path in paths:
        inside = run_files_in(path)
        if inside is None:
            files.append(path)
        else:
            earlier = set(files)  # the search in a list would take long for many files
            files += [file for file in inside if file not in earlier]
    return files


def one_run_file(path: Path) -> Path:
    """Return `path`, or the only run file in or below a directory. Raises InputError for several files or none."""
    files = run_files_in(path) or [path]
    if len(files) > 1:
        names = [str(file) for file in files[:_MAX_NAMES]]
        if len(files) > _MAX_NAMES:
            names.append("…")
        cure = f"Name one of them: {', '.join(names)}."
        raise InputError(str(path), "one run file, or a directory that holds one", f"{len(files)} of them", cure)
    return files[0]


def run_files_in(path: Path) -> list[Path] | None:
    """Return the run files in or below a directory; None for another path. Raises InputError if there are none."""
    if not os.path.isdir(path):  # Path.is_dir would raise an error in a directory that cannot be searched
        return None
    paths: list[Path] = []
    for folder, names in _folders(path):
        paths += [Path(folder, name) for name in fnmatch.filter(names, "seed-*.h5")]
    files = sorted(filter(os.path.isfile, paths), key=by_numbers)
    if not files:
        got = "none in it or below it" if os.access(path, os.R_OK | os.X_OK) else "no permission to read it"
        raise InputError(str(path), "a directory that holds run files (seed-S.h5)", got)
    return files


def _folders(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder in or below a directory once, with the names of its files."""

    def warn(error: OSError) -> None:
        _LOG.warning("%s is left out: %s", error.filename, error.strerror)

    # `os.walk` does not follow symbolic links, so folders behind links come last. If a link leads to a folder inside
    # the directory, the folder thus has its own name, and not the name of the link. (In Python 3.11 `Path.rglob`
    # raises an error if `stat` fails, for example because the target of a link has too long a name.)
    to_visit = [str(path)]
    # A link may lead to a folder above itself. So each folder is yielded once, and no folder above the directory.
    visited = {str(above) for above in Path(os.path.realpath(path)).parents}
    while to_visit:
        for folder, subfolders, files in os.walk(to_visit.pop(0), onerror=warn):
            real = os.path.realpath(folder)
            if real in visited:
                subfolders.clear()  # so `os.walk` does not enter them
                continue
            visited.add(real)
            yield folder, files
            subfolders.sort()  # of two links to one folder, always the same one comes first
            to_visit += filter(os.path.islink, (os.path.join(folder, name) for name in subfolders))


def by_numbers(path: Path) -> tuple[list[list[str | float]], str]:
    """Return a sort key that compares numbers in names as numbers: population=8 comes before population=16."""
    key: list[list[str | float]] = []
    for part in path.parts:
        # The texts at even indices and the numbers at odd indices take turns, so equal indices have equal types.
        words = re.split(r"(\d+(?:\.\d+)?)", part)
        key.append([float(word) if index % 2 else word for index, word in enumerate(words)])
    return key, str(path)


def read(path: Path) -> StoredRun:
    """Read a run file. Raises InputError if it is missing, truncated, not a run file, or of another schema."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(_ReplacedError), open_file(path, "run file") as reader:
            return reader.run(path)
    # The last attempt: its error is raised.
    with open_file(path, "run file") as reader:
        return reader.run(path)


def read_progress(path: Path) -> tuple[int, bool]:
    """Return the number of generations in a run file, and whether the run is complete, without reading generations.

    Raises InputError if the file cannot be read.
    """
    with open_file(path, "run file") as reader:
        return reader.progress()


def read_image(path: Path, image: bytes) -> StoredRun:
    """Read a run file from its bytes in memory, a file image in the terms of HDF5. Raises InputError as `read` does.

    path: The path of the file, perhaps on another host.
    """
    with _open_reader(str(path), io.BytesIO(image), "run file") as reader:
        return reader.run(path)


@contextmanager
def open_file(path: Path, kind: str) -> Iterator[Reader]:
    """Yield a reader of a file. Raises InputError if the file is missing, or if the block finds it damaged.

    kind: The kind of file in errors, such as "run file".
    """
    if os.path.isdir(path):
        raise InputError(str(path), f"a {kind}", "a directory", f"Name the files in it: {path / 'seed-*.h5'}.")
    if not os.path.isfile(path):
        raise InputError(str(path), f"a {kind}", why_missing(path) or "a device, pipe or socket")
    if path.suffix == ".toml":
        cure = f"python -m evolve.run {shlex.quote(str(path))} --resume --dry-run names the run files of an experiment."
        raise InputError(str(path), f"a {kind}", "a TOML file", cure)
    flush_before_reading(path)
    with _open_reader(str(path), path, kind) as reader:
        yield reader


def _open_hdf5(source: Path | io.BytesIO) -> h5py.File:
    """Open a file for reading. Try without HDF5's lock if the file cannot be locked, or is already open."""
    try:
        return h5py.File(source, "r")
    except OSError as error:
        # HDF5 locks the file, but some network file systems have no locks.
        if any(f"unable to lock file, errno = {number}," in str(error) for number in NO_LOCKS):
            return h5py.File(source, "r", locking=False)
        # If this process has the file open, as a notebook may, the argument `locking` must be the same as there.
        if "flag values don't match" not in str(error):
            raise
    with suppress(OSError):
        return h5py.File(source, "r", locking=False)
    return h5py.File(source, "r", locking=True)


def _check_heaps(source: Path | io.BytesIO) -> None:
    """Raise ValueError for a damaged heap of texts, in which the HDF5 library would search forever.

    A heap begins with its signature, a version and its size. Then come objects, each with its number, its size and its
    bytes. Object 0 is the free space ("Global Heap" in the HDF5 file format specification). The library goes from
    object to object by their sizes. It would never leave an object of number 0 and size 0, as in sectors that a crash
    has left empty.
    """
    # No memory map: if the file is truncated or replaced meanwhile, a read fails, but a map would end the process.
    with io.BytesIO(source.getvalue()) if isinstance(source, io.BytesIO) else source.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        # An object takes at least 16 bytes. If there are more objects than this, they overlap: a stranger has put heaps
        # inside heaps, and to check all of them could take forever.
        objects_left = size // 16
        for start in range(0, size, _BLOCK):
            file.seek(start)
            block = file.read(_BLOCK + len(_HEAP_START) - 1)  # a heap may begin at the end of a block
            index = -1
            while (index := block.find(_HEAP_START, index + 1)) >= 0:
                objects_left = _check_heap(file, start + index, objects_left)


def _check_heap(file: BinaryIO, begin: int, objects_left: int) -> int:
    """Check the heap at byte `begin`; return the number of further objects that the file may have."""
    # A heap begins with 8 bytes of `_HEAP_START`, and 8 bytes with the size of the heap.
    file.seek(begin + 8)
    position, end = begin + 16, begin + int.from_bytes(file.read(8), "little")
    while position + 16 <= end:
        # An object begins with 2 bytes of its number, 6 other bytes, and 8 bytes of its size.
        file.seek(position)
        head = file.read(16)
        number, size = int.from_bytes(head[:2], "little"), int.from_bytes(head[8:], "little")
        objects_left -= 1
        if number == size == 0 or objects_left < 0:
            raise ValueError(f"a damaged heap of texts at byte {begin:,}")
        # The size of object 0 includes these 16 bytes. Other objects end at multiples of 8 bytes.
        position += size if number == 0 else 16 + ceil_div(size, 8) * 8
    return objects_left


@contextmanager
def _open_reader(argument: str, source: Path | io.BytesIO, kind: str) -> Iterator[Reader]:
    """Yield a reader; turn each error of the block into an InputError that names the argument and a cure."""
    try:
        with _open_hdf5(source) as file:
            yield Reader(file, source)
    except PermissionError:
        raise InputError(argument, f"a readable {kind}", "a file that this user must not read") from None
    except BlockingIOError:  # HDF5's own lock; evolve keeps no file open for writing
        got = "a file that another program has open to change it"
        raise InputError(argument, f"a readable {kind}", got, "Close it there.") from None
    # h5py raises OSError and RuntimeError. A RecursionError, for deeply nested JSON, is a RuntimeError, too.
    except (OSError, RuntimeError) as error:
        # HDF5 gives the error number of the system only in the text of the error.
        if getattr(error, "errno", None) == errno.ESTALE or f"errno = {errno.ESTALE}," in str(error):
            got = "a file that another host has replaced meanwhile"
            raise _ReplacedError(argument, f"a readable {kind}", got, "Read it again.") from None
        got = f"a truncated or foreign file ({error})"
        cure = "If it was copied in part, copy it again. "
        raise InputError(argument, f"a readable {kind}", got, cure, ANOTHER_FILE) from None
    except _FilterError as error:
        cure = f"h5repack -f NONE {shlex.quote(argument)} COPY makes a copy that can be read."
        raise InputError(argument, f"a {kind} without compression or other filters", str(error), cure) from None
    # Contents that contradict the schema raise these errors.
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, OverflowError, MemoryError) as error:
        raise InputError(argument, f"a complete {kind}", f"a damaged one ({error})", ANOTHER_FILE) from None


def population(path: Path, generation: int) -> Genomes:
    """Return the P candidates of a generation of a run that keeps all genomes. Raises InputError as `read` does."""
    with open_file(path, "run file") as reader:
        return reader.population(generation)
