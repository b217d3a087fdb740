"""Disks that fail: hiding their errors from HDF5 until it is safe, and making sure that what was written stays."""

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evolve.errors import InputError


class DeferredErrorFile:
    """A file that reports success to HDF5, which may crash of errors, and keeps the first one as `error`."""

    def __init__(self, disk: io.FileIO) -> None:
        self._disk = disk
        self.error: OSError | None = None
        self.seek = disk.seek
        self.tell = disk.tell
        self.read = disk.read
        self.readinto = disk.readinto

    def write(self, data: Any) -> int:
        """Write all of the data."""
        rest = memoryview(data)
        try:
            while rest and self.error is None:
                rest = rest[self._disk.write(rest) :]
        except OSError as error:
            self.error = error
        return len(data)

    def truncate(self, size: int) -> int:
        """Change the length of the file."""
        try:
            self._disk.truncate(size)
        except OSError as error:
            self.error = self.error or error
        return size

    def flush(self) -> None:
        """Do nothing: no data are held back."""


def sync(path: Path) -> None:
    """Have the entries of a directory written to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield the path of a partial file, which takes the place of `path` when the block ends without an error.

    Nobody ever meets half a file: where the block fails, the partial file is removed and `path` stays as it was. The
    partial file lies beside `path` and ends as it does, since libraries choose the format by that. Where `path` is a
    symbolic link, it stays one, and the file that it leads to is replaced.
    """
    path = without_links(path)
    partial = _partial(path)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def without_links(path: Path) -> Path:
    """Return the path of the file that symbolic links lead to."""
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError of links in a circle


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial{path.suffix}")


@contextmanager
def naming_output(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into an InputError that says that `path` cannot be written, and why."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, _why(path, error)) from None


def check_writable(path: Path, suffixes: Sequence[str] = ()) -> None:
    """Raise InputError unless a file can be written at `path`; a file that is there stays as it is.

    suffixes: one of which the name has to end with, if any are given.
    """
    if suffixes and path.suffix not in suffixes:
        raise _unwritable(path, f"the name has to end with {' or '.join(suffixes)}")
    with naming_output(path):
        if path.is_dir():
            raise IsADirectoryError
        partial = _partial(without_links(path))
        partial.open("wb").close()
        partial.unlink()


def _unwritable(path: Path, why: str) -> InputError:
    return InputError.plainly(str(path), f"{path} cannot be written: {why}. Choose another name or directory.")


def _why(path: Path, error: OSError) -> str:
    if isinstance(error, IsADirectoryError):
        return "it is a directory"
    if isinstance(error, FileNotFoundError):
        directory = str(path.parent)
        return f"{directory!r} takes no files" if path.parent.is_dir() else f"no such directory {directory!r}"
    return error.strerror or str(error)
