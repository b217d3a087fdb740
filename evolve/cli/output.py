"""Output that nobody reads: a pipe whose reader has left, or a disk that is full."""

import os
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


def discard(stream: TextIO) -> None:
    """Have a stream that cannot be written lead nowhere, so that not even the end of this process complains."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
