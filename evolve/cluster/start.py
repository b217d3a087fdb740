"""The start of a job: who launched it, how long ranks wait for one another, and who is missing.

All ranks come together within a limit, or each of them ends and the missing ones are named. The limits belong to a job
and not to an experiment, so environment variables set them.
"""

import atexit
import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from evolve.errors import InputError, pluralize

CONNECT = "EVOLVE_CONNECT_SECONDS"
"""The variable that says how long the ranks may take to come together."""
SILENCE = "EVOLVE_SILENCE_SECONDS"
"""The variable that says for how long a host may be silent."""
_LEAST, _PER_RANK = 60.0, 0.5
_SILENCE = 30.0


# What launchers tell their processes, as (number of ranks, rank).
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),  # Open MPI
    ("PMI_SIZE", "PMI_RANK"),  # MPICH and Intel MPI
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),  # srun
    ("PALS_SIZE", "PALS_RANKID"),  # HPE Cray
)
_RUNNING, _CONNECTED, _TERMINATED, _ERROR, _ABORTING = 5, 6, 20, 50, 58  # PMIX_PROC_STATE_…
_STRING = 3
_DATA_ARRAY, _PROC_INFO = 39, 38
_NAMESPACE = "PMIX_NAMESPACE"
_LOOK_EVERY = 1.0
_LATER = 3.0  # seconds, so that those speak first who know most
_MPIRUN = ("prterun", "mpirun", "orterun")
_PATIENCE, _LONG_PATIENCE = 10, 60  # seconds until a launcher is killed that has been asked to end the job
_END_LAUNCHER = f"""
for _ in $(seq "$2"); do
    sleep 1
    read -r name < "/proc/$1/comm" || exit
    case $name in {"|".join(_MPIRUN)}) ;; *) exit ;; esac
done
kill -9 "$1" $(cat /proc/$1/task/*/children)
"""
_NAMED = 5  # missing ranks, in a sentence
_LAST = 9  # of the ranks that speak one after another where the launcher says nothing


def connect_seconds(size: int) -> float:
    """Return how long so many ranks may take to come together. Raises InputError for a setting that is no duration."""
    return _seconds(CONNECT, _LEAST + _PER_RANK * size)


def silence_seconds() -> float:
    """Return for how long a host may be silent. Raises InputError for a setting that is no duration."""
    return _seconds(SILENCE, _SILENCE)


def _seconds(variable: str, usual: float) -> float:
    text = os.environ.get(variable)
    if text is None:
        return usual
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 1 <= seconds < 1e6:
        raise InputError(variable, "seconds, from 1 on", text)
    return seconds


def launched() -> tuple[int, int]:
    """Return (size, rank) as the launcher announced them, (1, 0) without a launcher."""
    for size, rank in _LAUNCHERS:
        if os.environ.get(size, "").isdigit():
            return int(os.environ[size]), int(os.environ.get(rank, "0"))
    return 1, 0


def started_by() -> str | None:
    """Return what has started this process as a rank, None for nothing: SLURM's batch script is a step of one task."""
    for size, _ in _LAUNCHERS:
        ranks = os.environ.get(size, "")
        if ranks.isdigit() and not (size.startswith("SLURM") and int(ranks) == 1):
            return f"{'srun' if size.startswith('SLURM') else 'mpirun'} -n {ranks}"
    return None


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


def initialize(MPI: Any) -> None:
    """Initialize MPI as mpi4py does, but let other threads of Python go on meanwhile. MPI: the module."""
    if MPI.Is_initialized():
        return
    provided = ctypes.c_int()
    ctypes.CDLL(MPI.__file__).MPI_Init_thread(None, None, int(MPI.THREAD_MULTIPLE), ctypes.byref(provided))
    for communicator in (MPI.COMM_WORLD, MPI.COMM_SELF):
        communicator.Set_errhandler(MPI.ERRORS_RETURN)  # mpi4py raises them
    atexit.register(lambda: MPI.Is_finalized() or MPI.Finalize())


def end_launcher_later(waits: bool = True) -> None:
    """Have the launcher that started this process killed, with its ranks here, if it is still there in a while.

    waits: Whether it is known to wait for a lost host. Else it has longer: Open MPI's ends by itself, but once did not.
    """
    patience = _PATIENCE if waits else _LONG_PATIENCE
    parent = os.getppid()
    with suppress(OSError):
        if Path(f"/proc/{parent}/comm").read_text().strip() in _MPIRUN:
            subprocess.Popen(
                ["sh", "-c", _END_LAUNCHER, "sh", str(parent), str(patience)],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )


class StartWatch:
    """Watches that all ranks come together; where they do not, it says so and ends this process with exit code 1.

    Args:
        rank: That of this process.
        size: How many ranks there are.
        host: That of this process.
        library: MPI's.
    """

    def __init__(self, rank: int, size: int, host: str, library: ctypes.CDLL) -> None:
        self._rank = rank
        self._size = size
        self._host = host
        self._library = library
        self._limit = connect_seconds(size)
        self._begun = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.missing: Callable[[], Sequence[int]] | None = None
        """Returns the ranks that have not come; None while MPI alone knows."""

    def __enter__(self) -> "StartWatch":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def ended(self) -> set[int]:
        """Return the ranks that are there no more, as far as the launcher tells."""
        return {rank.rank for rank in launched_ranks(self._library) if rank.has_ended}

    def _watch(self) -> None:
        seen = None
        while not self._over.wait(_LOOK_EVERY):
            ranks = launched_ranks(self._library) if self.missing is None else []
            now = time.monotonic()
            has_died = any(rank.has_ended for rank in ranks)
            if seen is None and (has_died or now - self._begun > self._limit):
                seen = now
            if any(rank.has_ended_job for rank in ranks):  # and has said why
                os._exit(1)
            if seen is not None and now - seen >= self._wait(ranks):
                self._end(ranks if has_died else launched_ranks(self._library))

    def _wait(self, ranks: Sequence[LaunchedRank]) -> float:
        """Return how many seconds to leave the word to others: those beside the launcher know of all ranks."""
        if not ranks:
            return self._rank and 2 * _LATER + min(self._rank, _LAST) * _LATER / _LAST
        knows_all = all(rank.has_come is not None for rank in ranks)
        here = [rank.rank for rank in ranks if rank.host == self._host and rank.has_come and not rank.has_ended]
        first = self._rank == min(here, default=0)
        return (0.0 if knows_all and self._rank == 0 else _LATER) + (0.0 if first else _LATER)

    def _end(self, ranks: Sequence[LaunchedRank]) -> None:
        if self._over.is_set():
            return
        took = time.monotonic() - self._begun
        print(f"evolve: the ranks did not come together: {self._who(ranks)} ({took:.0f} s after rank {self._rank} on "
              f"{self._host} had; {CONNECT}={self._limit:g}).", file=sys.stderr, flush=True)  # fmt: skip
        end_launcher_later()
        end_job(self._library)
        os._exit(1)

    def _who(self, ranks: Sequence[LaunchedRank]) -> str:
        """Return in words who has died, or else who has not come."""
        hosts = {rank.rank: rank.host for rank in ranks}
        ended = [rank.rank for rank in ranks if rank.has_ended]
        if ended:
            return f"{_listed(ended, hosts)} ended"
        missing = [rank.rank for rank in ranks if rank.has_come is False] if self.missing is None else self.missing()
        if missing:
            return f"{_listed(missing, hosts)} did not come"
        return f"not all of the {pluralize(self._size, 'rank')} came, and the launcher does not say which"


def _listed(ranks: Sequence[int], hosts: dict[int, str]) -> str:
    named = [f"rank {rank} on {hosts[rank]}" if rank in hosts else f"rank {rank}" for rank in ranks[:_NAMED]]
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return ", ".join(named) + more
