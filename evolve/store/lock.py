"""The right to write a run file, which one process at a time can have."""

import contextlib
import errno
import os
import socket
from pathlib import Path

from evolve.errors import InputError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_CANNOT = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Lock:
    """Held from its making until `release`, or until the process ends, however it does.

    Raises InputError when another process has it, and OSError when the directory cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.holds = fcntl is not None
        """Whether the file system keeps others out."""
        self._path = path.with_name(f".{path.name}.lock")
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        while not self._take(path):  # the one we had opened was removed by its last owner
            os.close(self._descriptor)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(self._descriptor, 0)
        with contextlib.suppress(OSError):  # a full disk: nobody will read whose it is
            os.write(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())

    def _take(self, path: Path) -> bool:
        try:
            if fcntl is not None:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 400, 0).decode(errors="replace") or "another process"
            os.close(self._descriptor)
            cure = "Wait for it to end, or choose another directory with -o."
            came = f"{path}, which {holder} is writing"
            raise InputError("output.directory", "a run file that nobody else is writing", came, cure) from None
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            self.holds = False
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others write."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)
