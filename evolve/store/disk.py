"""Checks that files can be written, writes files that survive a crash, and locks a run file against other writers."""

import contextlib
import errno
import fcntl
import gc
import io
import os
import re
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evolve.errors import InputError, RunError, Setting, on_error

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # errors of file systems without locks
_NO_SYNC = (errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.EOPNOTSUPP)  # of file systems that sync no directories


class DeferredErrorFile(io.FileIO):
    """A file that keeps its first write error as `error`, and hides it from HDF5, which may crash on an error."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all data."""
        unwritten = memoryview(data)
        try:
            # The system may write only a part of the data.
            while unwritten and self.error is None:
                unwritten = unwritten[super().write(unwritten) :]
        except OSError as error:
            self.error = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Change the length of the file."""
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size or 0


def sync_directory(path: Path) -> None:
    """Write the entries of a directory to the disk, for example after a renaming. Do nothing if the system cannot."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def atomic_write(path: Path, is_locked: bool = False) -> Iterator[Path]:
    """Yield the path of a partial file. It replaces `path` when the block ends without an error.

    No process ever sees half a file: if the block fails, the partial file is removed, and `path` stays as it was. The
    partial file is in the same directory as `path` and has its suffix, because libraries choose the format by the
    suffix. If `path` is a symbolic link, its target is replaced. The permissions and the group of the file stay the
    same. Raises PermissionError for a read-only file.

    is_locked: Whether this process holds the `Lock` of the file. Then the partial file has the same name in every
        process, and replaces the partial file of a killed process. Otherwise the name has the number of the process,
        because two commands may write one output at a time.
    """
    _check_not_protected(path)
    path = without_links(path)
    partial = _partial_path(path, "" if is_locked else f".{os.getpid()}")
    # A folder from a stranger may have a symbolic link of this name, which would lead to another file of the user.
    partial.unlink(missing_ok=True)
    try:
        yield partial
        _copy_permissions(path, partial)
        # Nothing is synced here. If the file must survive a crash of the machine, the block syncs the partial file.
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _copy_permissions(old: Path, new: Path) -> None:
    """Give a new file the permissions and the group of the file that it will replace; for root, also the owner."""
    # There may be no old file, and some shared folders refuse to set permissions.
    with contextlib.suppress(OSError):
        before, after = old.stat(), new.stat()
        mode = stat.S_IMODE(before.st_mode)
        if (before.st_uid, before.st_gid) != (after.st_uid, after.st_gid):
            try:
                os.chown(new, before.st_uid if os.geteuid() == 0 else -1, before.st_gid)
            except OSError:  # this user is no member of the old group
                if before.st_gid != after.st_gid:
                    # The new group keeps only the permissions (0o070) that all other users (0o007) have, too.
                    mode &= 0o7707 | (mode & 0o007) << 3
        new.chmod(mode)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay the KeyboardInterrupt of Ctrl-C until the block has ended."""
    # Only the main thread gets KeyboardInterrupt. A handler that the user's program has set is not replaced.
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    delayed: list[int] = []
    try:
        signal.signal(signal.SIGINT, lambda number, _frame: delayed.append(number))
        yield
    finally:
        # Send the signal again, so that the usual handler raises KeyboardInterrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if delayed:
            signal.raise_signal(signal.SIGINT)


def without_links(path: Path) -> Path:
    """Return the target of a path through symbolic links."""
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for a circle of links


def is_protected(path: Path) -> bool:
    """Return whether a path is a read-only file, or a link to one.

    The system lets a process replace a read-only file in a directory that it may write. But the owner wants to keep the
    file. DVC and git-annex, for example, name such files by their content, so the content must never change.
    """
    return path.exists() and not path.stat().st_mode & 0o222  # the permissions of all users to write


def _check_not_protected(path: Path) -> None:
    if is_protected(path):
        raise PermissionError(errno.EACCES, "a read-only file", str(path))


def _partial_path(path: Path, process: str) -> Path:
    """Return the path of a partial file. process: the end of its name for one process, such as ".123"."""
    return path.with_name(f".{path.name}{process}.partial{path.suffix}")


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into an InputError that says why `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, _why_unwritable(path, error)) from None


def write_output(path: Path, content: bytes) -> None:
    """Write or replace a file, completely or not at all. Raises InputError if that fails."""
    with explain_write_errors(path), atomic_write(path) as partial, open(partial, "wb") as output:
        output.write(content)
        output.flush()
        os.fsync(output.fileno())


def check_writable(path: Path, suffixes: Sequence[str] = ()) -> None:
    """Raise InputError unless a file can be written at `path`. An existing file stays as it is.

    suffixes: The allowed suffixes of the name; empty if any is allowed.
    """
    if suffixes and path.suffix not in suffixes:
        raise _unwritable(path, f"the name has to end with {' or '.join(suffixes)}")
    with explain_write_errors(path):
        if path.is_dir():
            raise IsADirectoryError
        _check_not_protected(path)
        partial = _partial_path(without_links(path), f".{os.getpid()}")
        partial.unlink(missing_ok=True)  # a symbolic link of this name must not be followed, see `atomic_write`
        partial.open("xb").close()
        partial.unlink()


def _unwritable(path: Path, why: str) -> InputError:
    return InputError.plainly(str(path), f"{path} cannot be written: {why}. Choose another name or directory.")


def _why_unwritable(path: Path, error: OSError) -> str:
    if isinstance(error, IsADirectoryError):
        return "it is a directory"
    if isinstance(error, FileNotFoundError):
        parent = without_links(path).parent if path.is_symlink() else path.parent
        return f"{str(parent)!r} takes no files" if parent.is_dir() else f"no such directory {str(parent)!r}"
    return error.strerror or str(error)


def unwritable_directory(path: Path, error: BaseException | None) -> InputError:
    """Return the error for a path that is no writable directory; it may be a file or a link to nothing."""
    why: object = getattr(error, "strerror", None) or error
    if isinstance(error, FileExistsError):
        why = "it is a link to nothing" if path.is_symlink() and not path.exists() else "it is a file"
    return InputError("output.directory", "a directory that can be written", f"{path} ({why})")


def check_can_begin(path: Path) -> None:
    """Raise InputError unless the directory of a run file can be written or created. Nothing is written."""
    # `exists` is False for a link to nothing, but `mkdir` cannot create a directory there.
    nearest = next(parent for parent in path.absolute().parents if exists(parent) or parent.is_symlink())
    if not nearest.is_dir():
        raise unwritable_directory(nearest, FileExistsError())
    if not os.access(nearest, os.W_OK):
        raise unwritable_directory(nearest, PermissionError("no permission to write"))


def exists(path: Path) -> bool:
    """Return whether a file or a directory is there. Raises InputError if the system cannot tell."""
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        raise unwritable_directory(path, error) from None


def why_missing(path: Path) -> str:
    """Return the reason if the system finds nothing at a path, such as "no such file"; otherwise ""."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "no such file"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def check_unlocked(path: Path) -> None:
    """Raise InputError if this process or another one is writing a run file. Nothing is written."""
    # If there is no lock file, no process is writing. A lock file that this user may not open is ignored.
    with contextlib.suppress(OSError):
        descriptor = _open_lock(_lock_path(path), os.O_RDWR)
        try:
            _lock(path, descriptor)
        finally:
            os.close(descriptor)  # this also releases the lock


def _lock_path(path: Path) -> Path:
    """Return the path of the lock file of a run file."""
    path = without_links(path)  # several links to a file share one lock
    return path.with_name(f".{path.name}.lock")


def _open_lock(lock: Path, flags: int) -> int:
    """Open a lock file. Raises OSError if this user may not even read it, or if it is a symbolic link."""
    # A link in a folder from a stranger may lead to another file of the user.
    if lock.is_symlink():
        raise OSError(errno.ELOOP, f"the lock file {lock.name} is a symbolic link: remove it")
    flags |= os.O_NOFOLLOW
    try:
        return os.open(lock, flags, 0o666)  # the system removes the permissions of the umask
    except PermissionError:
        # A killed process of another user may have left the file. A file that can be read can be locked. But a writer
        # must also be able to write the directory.
        if flags & os.O_CREAT and not os.access(lock.parent, os.W_OK):
            raise
        with contextlib.suppress(OSError):
            return os.open(lock, os.O_RDONLY | os.O_NOFOLLOW)
        raise


def _lock(path: Path, descriptor: int) -> bool:
    """Lock the open lock file of a run file; return False if its file system has no locks.

    Raises InputError if this process or another one holds the lock.
    """
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            gc.collect()  # closes unreferenced iterators that hold the lock, as after an error in a notebook's cell
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _locked_error(path, descriptor) from None
    except OSError as error:
        if error.errno == errno.EBADF:  # NFS locks no file that is only open for reading
            raise PermissionError(errno.EACCES, "a lock file of another user", str(_lock_path(path))) from None
        if error.errno not in NO_LOCKS:
            raise
        return False
    return True


def _locked_error(path: Path, descriptor: int) -> InputError:
    """Return the error for a run file that is locked. descriptor: the open lock file."""
    # `Lock` has written the name of the process into the lock file.
    holder = os.pread(descriptor, 400, 0).decode(errors="replace") or "another process"
    cure = "Wait for it to end, or choose another "
    match = re.fullmatch(rf"process (\d+) on {re.escape(socket.gethostname())}", holder)
    # The name may be old: a process of another user can lock a file that a killed process has left, but not write it.
    if match is not None and not process_exists(int(match[1])):
        holder = "another process"
    elif match is not None and _has_started(int(match[1])):
        open_iterator = "close the iterator of evolve.iterate, or wait for its thread"
        cure = f"This script has started that run: {open_iterator}, or choose another "
    got = f"{path}, which {holder} is writing"
    another = Setting("output.directory")
    return InputError("output.directory", "a run file that is not being written", got, cure, another, ".")


def process_exists(pid: int) -> bool:
    """Return whether a process of this number exists on this host."""
    try:
        os.kill(pid, 0)  # sends no signal
    except OSError as error:
        return error.errno != errno.ESRCH  # another error means a process of another user
    return True


def _has_started(pid: int) -> bool:
    """Return whether a process is this one, or one that this process has started, directly or through others."""
    # An iterator with workers starts mpirun, which starts rank 0. So go from parent to parent.
    with contextlib.suppress(OSError):  # the process has ended, or this is not Linux
        while pid > 1:
            if pid == os.getpid():
                return True
            # "pid (name) state parent …"; the name may have spaces and brackets.
            _, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            pid = int(parent)
    return False


_HELD: dict[int, "Lock"] = {}
"""The locks that this process holds, by the descriptors of their open lock files."""
flush_of: dict[Path, Callable[[], None]] = {}
"""For each run file that this process writes for a script, the function that flushes it."""


def flush_before_reading(path: Path) -> None:
    """Flush a file if this process writes it for a script, so that a reader finds all that the script has seen."""
    flush = flush_of.get(without_links(path)) if flush_of else None
    if flush is not None:
        with contextlib.suppress(RunError):  # the writer tries again, and raises the error
            flush()


def _close_in_fork() -> None:
    """Close the locks of the parent in a forked process, which may outlive the parent."""
    flush_of.clear()
    # A fork shares the lock of its parent, and the lock lasts until both have closed the file.
    while _HELD:
        os.close(_HELD.popitem()[0])  # the key, a descriptor


os.register_at_fork(after_in_child=_close_in_fork)


class Lock:
    """The lock of a run file. It is held from construction until `release`, or until the process ends in any way.

    Raises InputError if it is held already, and OSError if the directory cannot be written or the file is protected.
    """

    def __init__(self, path: Path) -> None:
        _check_not_protected(path)
        self._path = _lock_path(path)
        self._descriptor = -1  # of the open lock file
        self._thread = threading.get_ident()
        # If Ctrl-C raises KeyboardInterrupt, no caller gets this lock, so release it here.
        with on_error(self.release), uninterrupted():
            while not self._take(path):  # the last owner removed the lock file after this process had opened it
                os.close(self._descriptor)
            # On a full disk, or in the file of another user, the lock is valid without the name of its owner.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)  # a killed process leaves its name behind
                os.write(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
            _HELD[self._descriptor] = self

    def _take(self, path: Path) -> bool:
        """Open and lock the lock file of a run file; return whether it is still in its place."""
        # Without O_TRUNC, because the file has the name of its owner until the lock is taken.
        self._descriptor = _open_lock(self._path, os.O_RDWR | os.O_CREAT)
        with on_error(lambda: os.close(self._descriptor)):
            self.is_effective = _lock(path, self._descriptor)
            """Whether the lock is effective. Some file systems have no locks."""
        return self._is_in_place()

    def _is_in_place(self) -> bool:
        """Return whether the path still names the lock file that is open."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))
        return False

    def release(self) -> None:
        """Release the lock, and remove its file. Do nothing if this process does not hold the lock."""
        with uninterrupted():
            # The lock was released before, or was never taken, or this process is a fork of its owner. Another lock may
            # have got the descriptor.
            if _HELD.get(self._descriptor) is not self:
                return
            with contextlib.suppress(OSError):
                # If this lock file was removed, another process may have made a new one. Remove the file before the
                # lock is released: afterwards another process could have locked it.
                if self._is_in_place():
                    self._path.unlink()
            del _HELD[self._descriptor]
            os.close(self._descriptor)
            self._descriptor = -1  # another lock may get the same descriptor

    def is_of(self, path: Path, thread: int) -> bool:
        """Return whether this is the lock of a run file, taken by a thread (`threading.get_ident`)."""
        return self._path == _lock_path(path) and self._thread == thread


class LocksReleased:
    """A context manager that releases the locks of a run file that its block has taken and not released.

    Ctrl-C may raise KeyboardInterrupt between the call that opens a file and the `with` that would close it. This is
    not a `contextmanager` function, because such a function sets attributes of exceptions, and some refuse attributes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = threading.get_ident()
        self._earlier = list(_HELD.values())

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        for lock in list(_HELD.values()):
            if lock not in self._earlier and lock.is_of(self._path, self._thread):
                lock.release()
