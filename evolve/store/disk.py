"""Disks that fail: what HDF5 is not told of them, and how what was written is made to stay."""

import io
import os
from pathlib import Path
from typing import Any


class BearingFile:
    """A file that bears a failing disk: HDF5, which may crash of it, is told that all went well.

    wrong: the first error.
    """

    def __init__(self, disk: io.FileIO) -> None:
        self._disk = disk
        self.wrong: OSError | None = None
        self.seek, self.tell, self.read, self.readinto = disk.seek, disk.tell, disk.read, disk.readinto

    def write(self, data: Any) -> int:
        """Write all of the data."""
        rest = memoryview(data)
        try:
            while rest and self.wrong is None:
                rest = rest[self._disk.write(rest) :]
        except OSError as wrong:
            self.wrong = wrong
        return len(data)

    def truncate(self, size: int) -> int:
        """Change the length of the file."""
        try:
            self._disk.truncate(size)
        except OSError as wrong:
            self.wrong = self.wrong or wrong
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
