"""A start that ends: all ranks come together within a limit, or each of them ends, and it is said who is missing.

A rank that dies before all have come leaves the others in MPI_Init for ever where MPI is to survive deaths, and so does
one that cannot read its files. A thread watches; it can, since MPI_Init is called in a way that lets Python go on.
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
from pathlib import Path
from types import TracebackType
from typing import Any

from evolve.cluster.limits import CONNECT, connect_seconds
from evolve.cluster.process_table import LaunchedRank, end_job, launched_ranks
from evolve.errors import pluralize

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
