"""What Open MPI's launcher knows of the ranks it has started: which host each is on, and what has become of it.

MPI can tell nothing of ranks before all of them have come to MPI_Init; PMIx can, from any thread. Under launchers
without PMIx nothing is known.
"""

import ctypes
import os
from dataclasses import dataclass

_RUNNING, _CONNECTED, _TERMINATED, _ERROR, _ABORTING = 5, 6, 20, 50, 58  # PMIX_PROC_STATE_…
_STRING = 3
_DATA_ARRAY, _PROC_INFO = 39, 38
_NAMESPACE = "PMIX_NAMESPACE"


class _Info(ctypes.Structure):
    _fields_ = (
        ("key", ctypes.c_char * 512),
        ("flags", ctypes.c_uint64),
        ("type", ctypes.c_uint64),
        ("data", ctypes.c_void_p),
        ("rest", ctypes.c_char * 16),
    )


class _Query(ctypes.Structure):
    _fields_ = (
        ("keys", ctypes.POINTER(ctypes.c_char_p)),
        ("qualifiers", ctypes.POINTER(_Info)),
        ("num_qualifiers", ctypes.c_size_t),
    )


class _Array(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint16), ("size", ctypes.c_size_t), ("array", ctypes.c_void_p))


class _Process(ctypes.Structure):
    _fields_ = (
        ("namespace", ctypes.c_char * 256),
        ("rank", ctypes.c_uint32),
        ("host", ctypes.c_char_p),
        ("executable", ctypes.c_char_p),
        ("pid", ctypes.c_int),
        ("exit_code", ctypes.c_int),
        ("state", ctypes.c_uint8),
    )


@dataclass(frozen=True)
class LaunchedRank:
    """A rank as its launcher knows it.

    Attributes:
        rank: Its number.
        host: Where it was started.
        has_come: Whether it has begun MPI_Init; None where the launcher's daemon on this host does not know.
        has_ended: Whether it is there no more.
        has_ended_job: Whether it has asked the launcher to end all ranks.
    """

    rank: int
    host: str
    has_come: bool | None
    has_ended: bool
    has_ended_job: bool


def launched_ranks(library: ctypes.CDLL) -> list[LaunchedRank]:
    """Return all ranks, as the launcher's daemon on this host knows them; none where it cannot be asked.

    library: MPI's, which has PMIx's functions with it.
    """
    namespace = os.environ.get(_NAMESPACE)
    if namespace is None or not hasattr(library, "PMIx_Query_info"):
        return []
    text = ctypes.create_string_buffer(namespace.encode())
    about = _Info(b"pmix.nspace", 0, _STRING, ctypes.cast(text, ctypes.c_void_p), b"")
    query = _Query((ctypes.c_char_p * 2)(b"pmix.qry.ptable", None), ctypes.pointer(about), 1)
    found, count = ctypes.POINTER(_Info)(), ctypes.c_size_t()
    failed = library.PMIx_Query_info(
        ctypes.byref(query), ctypes.c_size_t(1), ctypes.byref(found), ctypes.byref(count)
    )  # what it allocates is never freed: this is asked a few times only
    if failed or not count.value or found[0].type & 0xFFFF != _DATA_ARRAY:
        return []
    array = ctypes.cast(found[0].data, ctypes.POINTER(_Array))[0]
    if array.type != _PROC_INFO:
        return []
    processes = ctypes.cast(array.array, ctypes.POINTER(_Process))
    return [_as_rank(processes[i], _knows_all(namespace)) for i in range(array.size)]


def end_job(library: ctypes.CDLL) -> None:
    """Have the launcher end all ranks, with exit code 1, if PMIx can."""
    if hasattr(library, "PMIx_Abort"):
        library.PMIx_Abort(1, b"", None, ctypes.c_size_t(0))


def _knows_all(namespace: str) -> bool:
    """Return whether the daemon of this host is the launcher itself, which has named its job after its host."""
    return namespace.startswith(f"prterun-{os.environ.get('PMIX_HOSTNAME', '?')}-")


def _as_rank(process: _Process, known: bool) -> LaunchedRank:
    has_come = process.state >= _CONNECTED
    if not known and process.state < _RUNNING:
        return LaunchedRank(process.rank, _text(process.host), None, False, False)
    has_ended = process.state == _TERMINATED or process.state >= _ERROR
    return LaunchedRank(process.rank, _text(process.host), has_come, has_ended, process.state == _ABORTING)


def _text(name: bytes | None) -> str:
    return "an unknown host" if name is None else name.decode(errors="replace")
