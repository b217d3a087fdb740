"""Reading run files, wherever they come from: what is missing, damaged or something else is refused in one sentence."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.store.reader import ANOTHER_FILE, Reader
from evolve.store.schema import POPULATION, StoredRun

_LARGEST_EMPTY = 8_000_000  # bytes: an experiment has a megabyte at most


def unwritable(path: Path, error: BaseException | None) -> InputError:
    """Return the refusal of a place that cannot be written."""
    why = "it is a file" if isinstance(error, FileExistsError) else error
    return InputError("output.directory", "a directory that can be written", f"{path} ({why})")


def check_can_begin(path: Path) -> None:
    """Raise InputError unless the directory of a run file is there, or can be made, as far as can be known so far.

    Nothing is written to find that out.
    """
    nearest = next(parent for parent in path.absolute().parents if exists(parent))
    if not nearest.is_dir():
        raise unwritable(nearest, FileExistsError())
    if not os.access(nearest, os.W_OK):
        raise unwritable(nearest, PermissionError("it takes no files"))


def exists(path: Path) -> bool:
    """Return whether something is there. Raises InputError where that cannot be known."""
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from None


def is_empty(path: Path) -> bool:
    """Return whether a file is a whole run file in which no generation is complete."""
    if path.is_file() and path.stat().st_size > _LARGEST_EMPTY:
        return False
    try:
        return read(path).num_generations == 0
    except InputError:
        return False


def read(path: Path) -> StoredRun:
    """Read a run file. Raises InputError when it is missing, truncated, not a run file, or of another schema."""
    with open_file(path, "run file") as reader:
        return reader.run(path)


def how_far(path: Path) -> tuple[int, bool]:
    """Return how many generations a run file holds, and whether it is complete, without reading them.

    Raises InputError when it cannot be read.
    """
    try:
        with h5py.File(path, "r") as file:
            return Reader(file, _size(file, path)).how_far()
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise InputError(str(path), "a readable run file", f"a damaged or foreign one ({error})") from None


def read_image(path: Path, image: bytes) -> StoredRun:
    """Read the bytes of the run file that is at `path`, perhaps on another host. Raises InputError as `read` does."""
    with _opened(str(path), io.BytesIO(image), "run file") as reader:
        return reader.run(path)


@contextmanager
def open_file(path: Path, kind: str) -> Iterator[Reader]:
    """Yield a reader of a file of some kind; what the block finds damaged raises InputError, as a missing file does."""
    if not exists(path) or not path.is_file():
        came = "a directory" if path.is_dir() else "no such file"
        cure = f"Name the files in it: {path / 'seed-*.h5'}." * path.is_dir()
        raise InputError(str(path), f"a {kind}", came, cure)
    with _opened(str(path), path, kind) as reader:
        yield reader


@contextmanager
def _opened(argument: str, source: Path | io.BytesIO, kind: str) -> Iterator[Reader]:
    try:
        with h5py.File(source, "r") as file:
            yield Reader(file, _size(file, source))
    except (OSError, RuntimeError) as error:
        raise InputError(
            argument, f"a readable {kind}", f"a truncated or foreign file ({error})", ANOTHER_FILE
        ) from None
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, OverflowError, MemoryError) as error:
        raise InputError(argument, f"a complete {kind}", f"a damaged one ({error})", ANOTHER_FILE) from None


def _size(file: h5py.File, source: Path | io.BytesIO) -> int:
    """Return the bytes of an open file: those of its path may already be another file's, which a flush put there."""
    if isinstance(source, io.BytesIO):
        return source.getbuffer().nbytes
    return os.fstat(file.id.get_vfd_handle()).st_size


def population(path: Path, generation: int) -> Genomes:
    """Return the P candidates of a generation of a run that keeps them. Raises InputError when they cannot be read."""
    try:
        with h5py.File(path, "r") as file:
            reader = Reader(file, _size(file, path))
            G, P = reader.shape("generation/fitness")
            sizes = {"G": G, "P": P, "W": reader.shape("champion/weights")[1]}
            return Genomes(*(reader.generation(place, generation, sizes) for place in POPULATION.values()))
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, IndexError) as error:
        expected = f"a run file with the genomes of generation {generation}"
        raise InputError(str(path), expected, f"none, or damaged ones ({error})") from None
