"""Finds and reads run files. They may come from strangers, so everything is checked before memory is taken."""

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
_MAX_NAMES = 3  # in an error
_ATTEMPTS = 3  # to read a file that a flush on another host may replace meanwhile
_HEAP = b"GCOL\x01\0\0\0"  # the beginning of a heap of texts in HDF5: signature, version 1, three empty bytes
_BLOCK = 2**20  # bytes that are searched for heaps at once
_PLAIN_LAYOUTS = (h5d.CONTIGUOUS, h5d.COMPACT, h5d.CHUNKED)


class _ReplacedError(InputError):
    """A flush on another host replaced the file during the reading, and the file system does not keep the old one."""


class _FilterError(ValueError):
    """A dataset is compressed, or has another filter of HDF5."""


class Reader:
    """Reads plain arrays and texts from an open file.

    It reads at most as many bytes as the file has, so that a small file from a stranger cannot fill the memory.

    file: The open file. source: Its path, or its bytes.
    """

    def __init__(self, file: h5py.File, source: Path | io.BytesIO) -> None:
        self._source: Path | io.BytesIO | None = source  # None if its heaps of texts have been checked
        # Not the size of the file at the path, because a flush may have replaced that file.
        self._file, self._bytes_left = file, file.id.get_filesize()
        # Opened once: opening the group of a small dataset takes as long as reading the dataset.
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
        return StoredRun(path, header, self._complete(), records, checkpoint, held_out, has_population, validations)

    def _records(self) -> tuple[Record, ...]:
        """Return the records of all generations. Raises ValueError if their columns contradict one another."""
        columns: dict[str, Any] = self.columns(schema.COLUMNS)
        # First, because `_step_hashes` uses the numbers of the champions as indexes.
        _check(columns)
        columns["champion_step_hashes"] = self._step_hashes(columns)
        metrics = self.metrics("generation", "G P E", columns["returns"].shape)
        # The file has a column [G, ...] for each field; a record has row g of each column.
        generations = range(len(columns["returns"]))
        return tuple(Record(**_row(columns, g), metrics=_row(metrics, g)) for g in generations)

    def _validations(self, num_generations: int) -> dict[int, NDArray[Any]]:
        """Return the validation returns [N] by the number of generations before the validation."""
        if not self._has_item("validation"):
            return {}
        numbers, returns = self.columns(schema.VALIDATIONS).values()
        are_different = len(set(numbers.tolist())) == len(numbers)
        if not (are_different and ((numbers > 0) & (numbers <= num_generations)).all()):
            raise ValueError("validation/generations: not different numbers from 1 to the number of generations")
        return dict(zip(numbers.tolist(), returns, strict=True))

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
        return int(self._number(self._group("checkpoint"), "num_generations", "iu")), self._complete()

    def _complete(self) -> bool:
        return bool(self._number(self._file, "complete", "b"))

    def _step_hashes(self, columns: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the step hashes of each champion. The file has the hashes of all champions end to end."""
        hashes = self.columns({"step_hashes": schema.STEP_HASHES})["step_hashes"]
        parts = []
        for lengths, champion in zip(columns["lengths"], columns["champion_candidate"], strict=True):
            hashed_steps = np.minimum(lengths[champion], MAX_HASHED_STEPS)
            parts.append(int(hashed_steps.sum(dtype=np.int64)))
        if sum(parts) != len(hashes):
            raise ValueError(f"{schema.STEP_HASHES.path}: {len(hashes)} steps, not {sum(parts)}")
        return np.split(hashes, np.cumsum(parts)[:-1])

    def population(self, generation: int) -> Genomes:
        """Return the P candidates of a generation."""
        (G, P), (_, W) = (self._dataset(path).shape for path in ("generation/fitness", "champion/weights"))
        parts = []
        for place in schema.POPULATION.values():
            item = self._dataset(place.path)
            check_shape(item, place.path, place.symbols, np.dtype(place.dtype), G=G, P=P, W=W)
            # Only one generation is read, so the budget pays only for one.
            self._spend(place.path, P * W * item.dtype.itemsize, item.id.get_storage_size())
            parts.append(item[generation])
        return Genomes(*parts)

    def _check_schema(self, path: Path) -> None:
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

    def columns(self, places: Mapping[str, Column]) -> dict[str, NDArray[Any]]:
        """Return whole columns. Raises ValueError if their types or shapes contradict the schema or one another."""
        sizes: dict[str, int] = {}
        columns = {}
        for name, place in places.items():
            if place.optional and not self._has_item(place.path):
                continue
            column = columns[name] = self._array(place.path)
            check_shape(column, place.path, place.symbols, np.dtype(place.dtype), **sizes)
            # A letter has the same size in all columns.
            sizes |= dict(zip(place.symbols.split(), column.shape, strict=True))
        return columns

    def _checkpoint(self, num_generations: int) -> dict[str, NDArray[Any]]:
        group = self._group("checkpoint")
        if self._number(group, "num_generations", "iu") != num_generations:
            raise ValueError("its checkpoint belongs to another generation")
        if len(group) > schema.MOST_ENTRIES:
            raise ValueError(f"checkpoint: {len(group)} entries")
        return {name: self._array(f"checkpoint/{name}") for name in group}

    def _has_item(self, path: str) -> bool:
        """Return whether the file has an item, or a link to elsewhere, at a path. Raises errors as `_item` does."""
        # h5py's `in` would follow links, and opening another file, such as a pipe, may take forever.
        folder, _, name = path.rpartition("/")
        if folder and not self._has_item(folder):
            return False
        return bool(self._group(folder).id.links.exists(name.encode()))

    def _item(self, path: str, kind: type[Any]) -> Any:
        """Return a group or dataset. Raises KeyError if it is missing, or if its path has a soft or external link."""
        folder, _, name = path.rpartition("/")
        group, encoded = self._group(folder), name.encode()
        links = group.id.links
        if not (links.exists(encoded) and links.get_info(encoded).type == h5l.TYPE_HARD):
            raise KeyError(f"{path}: missing, or a link to elsewhere")
        item = group[name]
        if not isinstance(item, kind):
            raise TypeError(f"{path}: a {type(item).__name__}")
        return item

    def _group(self, path: str) -> Any:
        if path not in self._groups:
            self._groups[path] = self._item(path, h5py.Group)
        return self._groups[path]

    def _array(self, path: str) -> NDArray[Any]:
        item = self._dataset(path)
        self._spend(path, item.size * item.dtype.itemsize, item.id.get_storage_size())
        return item[()] if item.shape else np.asarray(item[()])

    def _dataset(self, path: str) -> h5py.Dataset:
        """Return a dataset of numbers or bytes. Raises an error if evolve would not have stored it in this way."""
        item = self._item(path, h5py.Dataset)
        dtype = item.dtype
        if item.shape is None or dtype.kind not in "biufS" or dtype.subdtype:
            raise TypeError(f"{path}: not an array of numbers")
        # Filters can expand a small file to any size, and external storage reads other files.
        stored = item.id.get_create_plist()
        layout = stored.get_layout()
        if stored.get_nfilters():
            raise _FilterError(f"{path} with the filter {stored.get_filter(0)[3].decode('ascii', 'replace')}")
        if layout not in _PLAIN_LAYOUTS or stored.get_external_count():
            raise ValueError(f"{path}: stored in another way than evolve stores it")
        chunks = stored.get_chunk() if layout == h5d.CHUNKED else ()
        if chunks and math.prod(chunks) * dtype.itemsize > schema.LARGEST_CHUNK:
            raise ValueError(f"{path}: stored in chunks of {chunks}")
        return item

    def _spend(self, what: str, size: int, stored: int) -> None:
        """Take `size` bytes from the budget. Raises ValueError if they exceed the `stored` bytes or the budget."""
        # An array may claim chunks that were never written. Then the file stores fewer bytes than the array has.
        self._bytes_left -= size
        if size > stored or self._bytes_left < 0:
            raise ValueError(f"{what}: {size} bytes claimed, more than the file holds")

    def text(self, name: str) -> str:
        """Return a text attribute of the file."""
        attribute = self._file.attrs.get_id(name)
        if attribute.shape != () or h5py.check_string_dtype(attribute.dtype) is None:
            raise TypeError(f"{name}: not a text")
        if self._source is not None:
            _check_heaps(self._source)
            self._source = None
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
        attribute = item.attrs.get_id(name)
        if attribute.shape != () or attribute.dtype.kind not in kinds:
            raise TypeError(f"{name}: not a single number of the expected type (NumPy kind {' or '.join(kinds)})")
        return item.attrs[name]


def _row(columns: Mapping[str, Any], g: int) -> dict[str, Any]:
    """Return row g of each column, by name."""
    return {name: column[g] for name, column in columns.items()}


def _check(columns: Mapping[str, NDArray[Any]]) -> None:
    """Raise ValueError if the columns of a run contradict one another."""
    candidates = columns["champion_candidate"]
    if not ((candidates >= 0) & (candidates < columns["returns"].shape[1])).all():
        raise ValueError("champion/candidate: not one of the population")
    if (columns["lengths"] < 0).any():
        raise ValueError("generation/lengths: negative")
    # NaN is valid: the columns of ranks have NaN where a part of the run had fewer ranks.
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
    try:
        # `read_progress` does not read the generations of a long run.
        return read_progress(path)[0] == 0 and read(path).num_generations == 0
    except InputError:
        return False


def check_free(path: Path, exclusive: bool = True) -> None:
    """Raise InputError if a new run at `path` could destroy a file.

    exclusive: Whether no other process can be writing the file. Only then may an empty run file be replaced.
    """
    if exists(path) and not (exclusive and is_empty(path)):
        raise already_exists(path)


def already_exists(path: Path) -> InputError:
    """Return the error for a new run at the path of an existing file, which may also be unreadable."""
    try:
        read(path)
    except InputError as error:
        return error
    resume, overwrite, another = Setting("resume", True), Setting("overwrite", True), Setting("output.directory")
    cure = "Continue it with ", resume, ", replace it with ", overwrite, ", or choose another ", another, "."
    return InputError.plainly("output.directory", f"{path} already exists. ", *cure)


def run_files(paths: Sequence[Path]) -> list[Path]:
    """Return the run files that paths name. A directory stands for all run files in or below it, in order.

    Raises InputError for a directory without run files.
    """
    found: list[Path] = []
    for path in paths:
        inside = run_files_in(path)
        if inside is None:
            found.append(path)
        else:
            known = set(found)  # a list would be searched once for each file
            found += [file for file in inside if file not in known]
    return found


def one_run_file(path: Path) -> Path:
    """Return `path`, or the only run file in or below a directory. Raises InputError for several files or none."""
    inside = run_files_in(path) or [path]
    if len(inside) > 1:
        shown = [str(file) for file in inside[:_MAX_NAMES]]
        if len(inside) > _MAX_NAMES:
            shown.append("…")
        cure = f"Name one of them: {', '.join(shown)}."
        raise InputError(str(path), "one run file, or a directory that holds one", f"{len(inside)} of them", cure)
    return inside[0]


def run_files_in(path: Path) -> list[Path] | None:
    """Return the run files in or below a directory; None for another path. Raises InputError if there are none."""
    if not os.path.isdir(path):  # Path.is_dir would raise an error in a directory that cannot be searched
        return None
    names = (Path(folder, name) for folder, files in _folders(path) for name in fnmatch.filter(files, "seed-*.h5"))
    found = sorted(filter(os.path.isfile, names), key=by_numbers)
    if not found:
        got = "none in it or below it" if os.access(path, os.R_OK | os.X_OK) else "no permission to read it"
        raise InputError(str(path), "a directory that holds run files (seed-S.h5)", got)
    return found


def _folders(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder in or below a directory once, with the names of its files."""

    def warn(error: OSError) -> None:
        _LOG.warning("%s is left out: %s", error.filename, error.strerror)

    # Folders behind symbolic links come last. So if a link leads to a folder that is also inside the directory, the
    # folder is yielded by its own name, and not by the name of the link. `seen` ends circles: a link may lead to a
    # folder above it. In Python 3.11 `rglob` would raise an error if `stat` fails, as for a link to too long a name.
    # Folders above the directory do not belong to it, even if a link in it leads there.
    waiting, seen = [str(path)], {str(above) for above in Path(os.path.realpath(path)).parents}
    while waiting:
        for folder, inner, files in os.walk(waiting.pop(0), onerror=warn):
            real = os.path.realpath(folder)
            if real in seen:
                inner.clear()
                continue
            seen.add(real)
            yield folder, files
            inner.sort()  # of two links to a folder, always the same one names its files
            waiting += filter(os.path.islink, (os.path.join(folder, name) for name in inner))


def by_numbers(path: Path) -> tuple[list[list[str | float]], str]:
    """Return a sort key that compares numbers in names as numbers: population=8 comes before population=16."""
    # Texts and numbers take turns, so texts are only compared with texts, and numbers with numbers.
    parts = [re.split(r"(\d+(?:\.\d+)?)", part) for part in path.parts]
    return [[float(word) if n % 2 else word for n, word in enumerate(part)] for part in parts], str(path)


def read(path: Path) -> StoredRun:
    """Read a run file. Raises InputError if it is missing, truncated, not a run file, or of another schema."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(_ReplacedError), open_file(path, "run file") as reader:
            return reader.run(path)
    # The error of the last attempt reaches the caller.
    with open_file(path, "run file") as reader:
        return reader.run(path)


def read_progress(path: Path) -> tuple[int, bool]:
    """Return the number of generations in a run file, and whether the run is complete. Does not read generations.

    Raises InputError if the file cannot be read.
    """
    with open_file(path, "run file") as reader:
        return reader.progress()


def read_image(path: Path, image: bytes) -> StoredRun:
    """Read a run file from its bytes in memory, a file image in the terms of HDF5. Raises InputError as `read` does.

    path: The path of the file, perhaps on another host.
    """
    with _opened(str(path), io.BytesIO(image), "run file") as reader:
        return reader.run(path)


@contextmanager
def open_file(path: Path, kind: str) -> Iterator[Reader]:
    """Yield a reader of a file. Raises InputError if the file is missing, or if reading finds it damaged.

    kind: the kind of file, for messages.
    """
    if os.path.isdir(path):
        raise InputError(str(path), f"a {kind}", "a directory", f"Name the files in it: {path / 'seed-*.h5'}.")
    if not os.path.isfile(path):
        raise InputError(str(path), f"a {kind}", why_missing(path) or "a device, pipe or socket")
    if path.suffix == ".toml":
        cure = f"python -m evolve.run {shlex.quote(str(path))} --resume --dry-run names the run files of an experiment."
        raise InputError(str(path), f"a {kind}", "a TOML file", cure)
    flush_before_reading(path)
    with _opened(str(path), path, kind) as reader:
        yield reader


def _opened_hdf5(source: Path | io.BytesIO) -> h5py.File:
    try:
        return h5py.File(source, "r")
    except OSError as error:
        # HDF5 locks the file, but some network file systems have no locks.
        if any(f"unable to lock file, errno = {number}," in str(error) for number in NO_LOCKS):
            return h5py.File(source, "r", locking=False)
        # If this process has the file open, as a notebook may, the argument `locking` must be the same.
        if "flag values don't match" not in str(error):
            raise
    with suppress(OSError):
        return h5py.File(source, "r", locking=False)
    return h5py.File(source, "r", locking=True)


def _check_heaps(source: Path | io.BytesIO) -> None:
    """Raise ValueError for a damaged heap of texts, in which the HDF5 library would search forever.

    A heap begins with its signature, a version and its size. In it each object has its number, its size and its bytes,
    and object 0 is the free rest ("Global Heap" in the HDF5 file format specification). The library goes from object
    to object by their sizes. Sectors that a crash has left empty make an object 0 of size 0.
    """
    # No memory map: if the file is truncated or replaced meanwhile, a read fails, but a map would end the process.
    with io.BytesIO(source.getvalue()) if isinstance(source, io.BytesIO) else source.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        # An object takes at least 16 bytes. So more objects than this overlap: a stranger has put heaps inside heaps,
        # and checking them all could take forever.
        objects_left = size // 16
        for start in range(0, size, _BLOCK):
            file.seek(start)
            block = file.read(_BLOCK + len(_HEAP) - 1)  # a signature may begin at the end of a block
            found = -1
            while (found := block.find(_HEAP, found + 1)) >= 0:
                objects_left = _check_heap(file, start + found, objects_left)


def _check_heap(file: BinaryIO, begin: int, objects_left: int) -> int:
    """Check the heap that begins at a byte; return how many further objects the file may have."""
    file.seek(begin + 8)
    place, end = begin + 16, begin + int.from_bytes(file.read(8), "little")
    while place + 16 <= end:
        file.seek(place)
        head = file.read(16)
        number, size = int.from_bytes(head[:2], "little"), int.from_bytes(head[8:], "little")
        objects_left -= 1
        if number == size == 0 or objects_left < 0:
            raise ValueError(f"a damaged heap of texts at byte {begin:,}")
        # The size of object 0 includes its 16 bytes of number and size. Other objects end at multiples of 8 bytes.
        place += size if number == 0 else 16 + ceil_div(size, 8) * 8
    return objects_left


@contextmanager
def _opened(argument: str, source: Path | io.BytesIO, kind: str) -> Iterator[Reader]:
    try:
        with _opened_hdf5(source) as file:
            yield Reader(file, source)
    except PermissionError:
        raise InputError(argument, f"a readable {kind}", "a file that this user must not read") from None
    except BlockingIOError:  # HDF5's own lock; evolve keeps no file open for writing
        got = "a file that another program has open to change it"
        raise InputError(argument, f"a readable {kind}", got, "Close it there.") from None
    # h5py raises both. A RecursionError, for deeply nested JSON, is a RuntimeError, too.
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
    # These come from contents that contradict the schema.
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, OverflowError, MemoryError) as error:
        raise InputError(argument, f"a complete {kind}", f"a damaged one ({error})", ANOTHER_FILE) from None


def population(path: Path, generation: int) -> Genomes:
    """Return the P candidates of a generation of a run that keeps all genomes. Raises InputError as `read` does."""
    with open_file(path, "run file") as reader:
        return reader.population(generation)
