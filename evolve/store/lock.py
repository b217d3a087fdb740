"""The right to write a run file, which one process at a time can have."""

import contextlib
import errno
import os
import socket
from pathlib import Path

from evolve.errors import InputError
from evolve.store.disk import without_links

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_CANNOT = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def check_unlocked(path: Path) -> None:
    """Raise InputError when another process is writing a run file; nothing is written to find that out."""
    try:
        descriptor = os.open(_lock_of(path), os.O_RDWR)
    except OSError:  # nobody has begun to write
        return
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _held(path, descriptor) from None
    except OSError:  # a file system without locks
        return
    finally:
        os.close(descriptor)


def _lock_of(path: Path) -> Path:
    path = without_links(path)  # one lock for a file, by whichever of them it is opened
    return path.with_name(f".{path.name}.lock")


def _held(path: Path, descriptor: int) -> InputError:
    """Return the refusal of a run file whose lock, open as `descriptor`, another process holds."""
    holder = os.pread(descriptor, 400, 0).decode(errors="replace") or "another process"
    cure = "Wait for it to end, or choose another output.directory."
    if f"process {os.getpid()} on {socket.gethostname()}" in holder:
        cure = "It is this process: close the iterator of evolve.iterate, or choose another output.directory."
    came = f"{path}, which {holder} is writing"
    return InputError("output.directory", "a run file that nobody else is writing", came, cure)


class Lock:
    """Held from its making until `release`, or until the process ends, however it does.

    Raises InputError when another process has it, and OSError when the directory cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.holds = fcntl is not None
        """Whether the file system keeps others out."""
        self._path = _lock_of(path)
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
            refusal = _held(path, self._descriptor)
            os.close(self._descriptor)
            raise refusal from None
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
