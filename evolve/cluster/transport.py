"""Sends buffers of bytes between ranks by MPI, and receives them. No other module imports mpi4py.

A blocking MPI receive keeps a whole core busy, so a waiting rank probes for messages and sleeps in between. Without a
launcher there is one rank, and mpi4py is never imported.
"""

import atexit
import ctypes
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evolve.cluster.watchdog import CoordinatorWatch, HostWatch
from evolve.store.disk import process_exists

Buffer = NDArray[np.uint8]

_TAG = 1  # of all messages
_SEARCH_EVERY = 0.2  # seconds between two searches for lost ranks
# If more messages than this are unsent, `send` tests which ones have been sent meanwhile. It tests rarely, because MPI
# may use each test to give a shared core to another rank.
_MOST_UNSENT = 256
SHORTEST_SLEEP, LONGEST_SLEEP = 2e-3, 5e-2
"""Bounds of the seconds that a waiting rank of a large job sleeps between two probes."""
# In a small job the shortest sleep is `_SHORTEST_PER_RANK` times the number of other ranks, because rank 0 often waits
# for one worker, and a long sleep would delay rank 0's answer.
_SHORTEST_PER_RANK = 1.5e-4  # seconds
SHARE_ASLEEP = 0.03
"""After t seconds without a message, a rank sleeps for this share of t, within the bounds above. So a message after a
long wait is noticed late by at most this share of the wait."""

PATIENCE, LONG_PATIENCE = 10, 60
"""Seconds that `kill_launcher_later` gives a launcher to end. `LONG_PATIENCE` is for a launcher that probably ends by
itself."""
_LAUNCHERS = ("prterun", "mpirun", "orterun")  # the process names of Open MPI's launchers
_FINALIZING = threading.Lock()
_NO_FABRIC = {"OMPI_MCA_btl": "^ofi", "OMPI_MCA_mtl": "^ofi"}  # "^" excludes a component of Open MPI
# A shell script: kill the process $1 and its children after $2 seconds, unless it has ended. The number of an ended
# process may be used again, so the script also checks the name.
_END_LAUNCHER = f"""
for _ in $(seq "$2"); do
    sleep 1
    read -r name < "/proc/$1/comm" || exit
    case $name in {"|".join(_LAUNCHERS)}) ;; *) exit ;; esac
done
kill -9 "$1" $(cat /proc/$1/task/*/children)
"""


class _Transfer(NamedTuple):
    """A message that is being sent or received: the other rank, MPI's request, and the buffer, which MPI may use."""

    rank: int
    request: Any
    buffer: Buffer


class Transport:
    """R ranks that exchange byte buffers.

    communicator: The MPI communicator of the ranks; None if there is only one rank.
    """

    def __init__(self, communicator: Any = None) -> None:
        self._comm = communicator
        self.rank: int = 0 if communicator is None else communicator.Get_rank()
        self.size: int = 1 if communicator is None else communicator.Get_size()
        self.host = socket.gethostname()
        self._unsent: deque[_Transfer] = deque()
        self._stuck: list[_Transfer] = []  # from or to dead ranks; kept, because MPI may still use their buffers
        enabled = os.environ.get("OMPI_MCA_mpi_ft_enable")  # noqa: SIM112 - as mpirun --with-ft ulfm spells it
        self._has_ulfm = hasattr(communicator, "Get_failed")  # older versions of mpi4py lack ULFM's functions
        self.tolerant = self._has_ulfm and enabled in ("1", "true")
        """Whether this MPI survives the death of a rank (User Level Failure Mitigation, ULFM)."""
        self.gone: set[int] = set()
        """The ranks that died, were abandoned or, at rank 0, ended their scripts."""
        self.abandoned: set[int] = set()
        """The ranks that do not answer, although their processes may still exist."""
        self.ended: set[int] = set()
        """The ranks that have sent `messages.Ended`, because their scripts have ended."""
        self.leaving: set[int] = set()
        """The ranks that were dismissed and have not confirmed it yet; known at rank 0."""
        self._searched_at = 0.0  # the time of the last search for lost ranks; 0 to search at once
        self.silent: set[str] = set()
        """The hosts that no longer answer; known at rank 0."""
        self.hosts = [self.host] * self.size
        """The host of each rank, "?" for a rank that was lost early. Known at rank 0 after the introductions."""
        self.pids = [os.getpid()] * self.size
        """The process number of each rank on its host, 0 for a rank that was lost early. Known like `hosts`."""
        self.arguments: dict[int, list[str]] = {}
        """The command-line arguments of the other ranks, by rank. Known like `hosts`."""
        self.neighbours: dict[int, int] = {}
        """The process numbers of ranks on this host: at rank 0 of all other ranks, elsewhere only of rank 0."""
        self._vanished: set[int] = set()  # ranks that had no process in the last search
        self.host_watch: HostWatch | None = None
        """Notices silent hosts, at rank 0, if there are other hosts."""
        self.coordinator_watch: CoordinatorWatch | None = None
        """Notices the loss of rank 0, at a rank on another host."""
        self._active_at = time.monotonic()  # the time of the last message, or of other work
        self._woke_at = self._active_at  # the end of the last sleep
        self._shortest_sleep = min(_SHORTEST_PER_RANK * (self.size - 1), SHORTEST_SLEEP)
        self.bytes_moved = 0
        """The bytes of all messages that this rank has sent and received."""

    @property
    def library(self) -> str:
        """The first line of the MPI library's version, or "none"."""
        if self._comm is None:
            return "none"
        from mpi4py import MPI  # noqa: PLC0415 - not needed by one rank

        return str(MPI.Get_library_version()).splitlines()[0].strip("\x00 ")

    @property
    def could_tolerate(self) -> bool:
        """Whether this MPI would survive the death of a rank if mpirun had got the option `--with-ft ulfm`."""
        version = re.match(r"Open MPI v(\d+)", self.library)
        return not self.tolerant and self._has_ulfm and version is not None and int(version[1]) >= 5

    def send(self, rank: int, buffer: Buffer) -> None:
        """Send a buffer without waiting until it arrives; the caller must not change it afterwards.

        Nothing is sent to a rank in `gone`.
        """
        if rank in self.gone:
            return
        # MPI reads the buffer until the request is complete, so the queue keeps the buffer alive.
        self._unsent.append(_Transfer(rank, self._comm.Isend(buffer, dest=rank, tag=_TAG), buffer))
        self.bytes_moved += buffer.nbytes
        if len(self._unsent) > _MOST_UNSENT:
            self._drop_sent()

    def probe(self) -> tuple[int, Buffer] | None:
        """Return the next message as (source rank, buffer); None if no message has arrived.

        Rank 0 receives from all other ranks. The other ranks receive only from rank 0.
        """
        if self._comm is None:
            return None
        from mpi4py import MPI  # noqa: PLC0415 - not needed by one rank

        status = MPI.Status()
        source = MPI.ANY_SOURCE if self.rank == 0 else 0
        try:
            message = self._comm.Improbe(source=source, tag=_TAG, status=status)
            if message is None:  # the first probe may only make MPI fetch a message, which the second one then finds
                self._drop_sent()
                message = self._comm.Improbe(source=source, tag=_TAG, status=status)
            if message is None:
                return None
            buffer = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            sender, request = status.Get_source(), message.Irecv(buffer)
            while not request.Test():  # the rest of a large message never comes if its sender has died
                self.find_lost()
                if sender in self.gone:
                    self._stuck.append(_Transfer(sender, request, buffer))
                    return None
        except MPI.Exception:
            if not self.tolerant:
                raise
            self._searched_at = 0.0  # a rank died: the next `find_lost` searches at once
            return None
        self.bytes_moved += buffer.nbytes
        self._active_at = time.monotonic()
        return sender, buffer

    def find_lost(self) -> None:
        """Add lost ranks to `gone`. Do nothing if the last search began less than `_SEARCH_EVERY` seconds ago.

        A rank is lost if its host is silent. If MPI survives the death of ranks, a rank that died is lost, too. Rank 0
        notices all silent hosts. A worker notices only the silence of rank 0's host.

        Open MPI 5.0 does not report a rank that ends by `exit(3)`. So this function also looks for the processes of
        ranks on this host, and for ended connections of ranks on other hosts.
        """
        now = time.monotonic()
        if self.size == 1 or now - self._searched_at < _SEARCH_EVERY:
            return
        self._searched_at = now
        if self.tolerant:
            failed = self._failed_ranks()
            self.abandoned.difference_update(failed)  # their processes do not exist any more
            self.mark_dead(failed)
        on_silent_hosts = []
        if self.host_watch is not None:
            self.silent.update(self.hosts[rank] for rank in self.host_watch.find_silent())
            on_silent_hosts = [rank for rank, host in enumerate(self.hosts) if host in self.silent]
        elif self.coordinator_watch is not None and self.coordinator_watch.is_silent():
            on_silent_hosts = [0]
        if self.tolerant:
            self._mark_vanished()  # after `find_silent`, which also finds ended connections
        for rank in on_silent_hosts:
            if rank not in self.gone:
                self.abandon(rank)

    def _mark_vanished(self) -> None:
        """Mark ranks dead that had no process in this search and in the last one."""
        vanished = {rank for rank, pid in self.neighbours.items() if not process_exists(pid)}
        if self.host_watch is not None:
            vanished |= self.host_watch.ended
        vanished -= self.gone
        # Wait for a second search, because the last message of a rank that ended normally may not have arrived yet.
        self.mark_dead(vanished & self._vanished)
        self._vanished = vanished

    def _failed_ranks(self) -> list[int]:
        """Return the ranks that MPI knows to be dead."""
        failed = self._comm.Get_failed()
        size = failed.Get_size()
        if size == 0:
            return []  # the group is MPI's predefined empty group, and must not be freed
        group = self._comm.Get_group()
        try:
            # Until a death is acknowledged, each receive from `ANY_SOURCE` raises an error.
            self._comm.Ack_failed(size)
            ranks = failed.Translate_ranks(list(range(size)), group)
            return [int(rank) for rank in ranks]
        finally:
            failed.Free()
            group.Free()

    def abandon(self, rank: int) -> None:
        """Treat a rank that does not answer as lost."""
        self.abandoned.add(rank)
        self.mark_dead([rank])

    def mark_ended(self, rank: int) -> None:
        """Treat a rank as dead because its script has ended."""
        self.ended.add(rank)
        self.mark_dead([rank])

    def mark_dead(self, ranks: Iterable[int]) -> None:
        """Treat ranks as dead, even if MPI does not know it."""
        self.gone.update(ranks)
        # Requests to a dead rank never complete, and `_drop_sent` would stop at the first of them.
        self._stuck += [transfer for transfer in self._unsent if transfer.rank in self.gone]
        self._unsent = deque(transfer for transfer in self._unsent if transfer.rank not in self.gone)

    def backoff(self, least: float = 0.0) -> None:
        """Sleep for a moment. The sleep grows with the time since the last message or other work of this rank.

        least: The shortest sleep in seconds.
        """
        # Much time since the last sleep means that this rank did other work. Then messages may come soon, so sleeps are
        # short again.
        now = time.monotonic()
        if now - self._woke_at > LONGEST_SLEEP:
            self._active_at = now
        seconds = SHARE_ASLEEP * (now - self._active_at)
        time.sleep(min(max(seconds, self._shortest_sleep, least), LONGEST_SLEEP))
        self._woke_at = time.monotonic()

    def flush(self, patience: float) -> bool:
        """Wait at most `patience` seconds until MPI has sent all messages; return whether it has."""
        deadline = time.monotonic() + patience
        while self._unsent and time.monotonic() < deadline:
            self._drop_sent()
            self.find_lost()  # it also drops the messages to lost ranks, which MPI can never send
            self.backoff()
        return not self._unsent

    def leave(self, exit_code: int) -> None:
        """End this process without MPI_Finalize if this MPI survives the death of ranks; otherwise do nothing."""
        # Python calls MPI_Finalize at exit. That would wait forever for ranks that have died.
        if self.tolerant:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(exit_code)

    def abort(self, exit_code: int) -> None:
        """End every rank of the job at once; do nothing if there is only this rank."""
        if self._comm is not None:
            # Only rank 0 knows the silent hosts. At another rank, the loss of rank 0 may be the loss of its host.
            kill_launcher_later(launcher_may_hang=bool(self.silent) or 0 in self.gone)
            self._comm.Abort(exit_code)
            # MPICH only asks its launcher to kill this process, but the launcher's host may be lost.
            os._exit(exit_code)

    def _drop_sent(self) -> None:
        """Remove sent messages from the front of the queue, up to the first message that was not sent yet."""
        from mpi4py import MPI  # noqa: PLC0415 - not needed by one rank

        try:
            while self._unsent and self._unsent[0].request.Test():
                self._unsent.popleft()
        except MPI.Exception:
            if not self.tolerant:
                raise
            self._searched_at = 0.0  # the receiver died: the next `find_lost` searches at once, and drops the message


def uninitialized_mpi() -> Any:
    """Import and return the module MPI without initializing MPI. (An earlier import may have initialized it.)"""
    import mpi4py  # noqa: PLC0415 - not needed by one rank

    # The module MPI reads this setting when it is imported.
    mpi4py.rc.initialize = False
    from mpi4py import MPI  # noqa: PLC0415

    return MPI


def skip_fabric_search() -> None:
    """If all ranks are on this machine, tell Open MPI not to search for a network fabric, which takes a second."""
    size = os.environ.get("OMPI_COMM_WORLD_SIZE")
    user_has_chosen = any(name in os.environ for name in (*_NO_FABRIC, "OMPI_MCA_pml"))
    if size is not None and size == os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") and not user_has_chosen:
        os.environ.update(_NO_FABRIC)


def initialize(MPI: Any) -> None:
    """Initialize MPI as mpi4py does, but let other threads of Python run meanwhile. MPI: the module."""
    if MPI.Is_initialized():
        return
    skip_fabric_search()
    provided = ctypes.c_int()
    # mpi4py would hold the lock of the interpreter until all ranks have started; a call by ctypes releases it. mpi4py's
    # module is linked with the MPI library, so ctypes finds the function through the module's file.
    ctypes.CDLL(MPI.__file__).MPI_Init_thread(None, None, int(MPI.THREAD_MULTIPLE), ctypes.byref(provided))
    for communicator in (MPI.COMM_WORLD, MPI.COMM_SELF):
        communicator.Set_errhandler(MPI.ERRORS_RETURN)  # MPI returns errors, and mpi4py raises them as exceptions
    # With `rc.initialize = False`, mpi4py does not call MPI_Finalize at exit.
    atexit.register(finalize)


def finalize() -> None:
    """Finalize MPI if this process has initialized it. Several threads may call this."""
    MPI = sys.modules.get("mpi4py.MPI")
    with _FINALIZING:
        if MPI is not None and MPI.Is_initialized() and not MPI.Is_finalized():
            MPI.Finalize()


def kill_launcher_later(launcher_may_hang: bool = True) -> None:
    """Start a process that kills the launcher and its ranks on this host if the launcher does not end in time.

    Do nothing if the parent of this process is not one of Open MPI's launchers.

    launcher_may_hang: Whether the launcher may wait for a lost host. Otherwise it gets more time, because it nearly
        always ends by itself.
    """
    patience = PATIENCE if launcher_may_hang else LONG_PATIENCE
    parent = os.getppid()
    with suppress(OSError):
        if Path(f"/proc/{parent}/comm").read_text().strip() in _LAUNCHERS:
            subprocess.Popen(
                ["sh", "-c", _END_LAUNCHER, "sh", str(parent), str(patience)],
                # A signal to the process group of this rank must not end the script.
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
