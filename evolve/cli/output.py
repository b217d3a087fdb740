"""Output that nobody reads: a pipe whose reader has left, or a disk that is full."""

import os
from contextlib import suppress
from typing import Any, TextIO


class BestEffortStream:
    """Stands in for stdout where the results are in a file: when nobody reads it or it is full, the work goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        try:
            self._stream.write(text)
        except OSError:
            discard(self._stream)
        return len(text)

    def flush(self) -> None:
        """Write what is held back, or drop it."""
        try:
            self._stream.flush()
        except OSError:
            discard(self._stream)


def write_past_mpirun(text: str) -> None:
    """Write a text to where the stderr of Open MPI's mpirun leads, since after Ctrl-C it drops what its ranks say.

    It also kills them a quarter of a second later. Nothing is written where that mpirun is not this process's parent.
    """
    if "OMPI_COMM_WORLD_SIZE" not in os.environ:
        return
    with suppress(OSError):
        descriptor = os.open(f"/proc/{os.getppid()}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
        try:
            begin = "\x1b[?25h\n" if os.isatty(descriptor) else ""  # the display has hidden the cursor
            os.write(descriptor, (begin + text).encode("utf-8", "backslashreplace"))
        finally:
            os.close(descriptor)


def discard(stream: TextIO) -> None:
    """Have a stream that cannot be written lead nowhere, so that not even the end of this process complains."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
