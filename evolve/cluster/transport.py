"""The transport between ranks: send a buffer, probe for one, sleep in between. Sole importer of mpi4py.

A blocking MPI receive spins a whole core, so waiting is a probe and a short sleep. Without a launcher there is
one rank, and mpi4py is never imported.
"""

import os
import re
import socket
import sys
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.cluster.keepalive import CoordinatorWatch, HostWatch, Meeting
from evolve.cluster.start import end_launcher_later
from evolve.errors import InputError, how_to_install

Buffer = NDArray[np.uint8]

_TAG = 1
_LOST_EVERY = 0.2  # seconds between questions after the dead
_MOST_UNSENT = 256  # before they are looked at: under oversubscription each call of MPI may yield the core
_SHORTEST_SLEEP, _LONGEST_SLEEP = 2e-3, 5e-2
_SHORTEST_PER_RANK = 2.5e-4  # for each other rank, up to the above: few ranks wait for one another more
_SHARE_ASLEEP = 0.03  # of the wait so far: a message is noticed later than it came by at most that


class Transport:
    """R ranks that exchange byte buffers. `communicator` is None where there is only one."""

    def __init__(self, communicator: Any = None) -> None:
        self._comm = communicator
        self.rank: int = 0 if communicator is None else communicator.Get_rank()
        self.size: int = 1 if communicator is None else communicator.Get_size()
        self.host = socket.gethostname()
        self._unsent: deque[tuple[int, Any, Buffer]] = deque()  # receiver, request, buffer
        self._undeliverable: list[tuple[int, Any, Buffer]] = []  # MPI may still look at their buffers
        enabled = os.environ.get("OMPI_MCA_mpi_ft_enable")  # noqa: SIM112 - as mpirun --with-ft ulfm spells it
        self.tolerant = communicator is not None and enabled in ("1", "true")
        """Whether this MPI survives the death of a rank (User Level Failure Mitigation)."""
        self.gone: set[int] = set()
        """The ranks known to have died, or given up on."""
        self.abandoned: set[int] = set()
        """Those given up on, which may still be there."""
        self._asked = 0.0
        self.silent: set[str] = set()
        """The hosts that no longer answer, at rank 0."""
        self.hosts = [self.host] * self.size
        """The host of each rank, as rank 0 knows it once all are introduced."""
        self.pids = [os.getpid()] * self.size
        """The process of each rank, on its host, likewise."""
        self._host_watch: HostWatch | None = None
        self._coordinator_watch: CoordinatorWatch | None = None
        self._quiet_since = self._woke = time.monotonic()
        self._shortest_sleep = min(_SHORTEST_PER_RANK * (self.size - 1), _SHORTEST_SLEEP)
        self.bytes_moved = 0

    @property
    def library(self) -> str:
        """First line of the MPI library's version, or "none"."""
        if self._comm is None:
            return "none"
        from mpi4py import MPI  # noqa: PLC0415 - not needed by one rank

        return str(MPI.Get_library_version()).splitlines()[0].strip("\x00 ")

    @property
    def could_tolerate(self) -> bool:
        """Whether this MPI would survive the death of a rank if mpirun were asked to let it."""
        version = re.match(r"Open MPI v(\d+)", self.library)
        return not self.tolerant and version is not None and int(version[1]) >= 5

    def watch_hosts(self, watch: HostWatch) -> None:
        """Notice by a watch, at rank 0, when other hosts fall silent."""
        self._host_watch = watch

    def watch_coordinator(self, watch: CoordinatorWatch) -> None:
        """Notice by a watch, at another rank, when rank 0 is lost."""
        self._coordinator_watch = watch

    @property
    def meeting(self) -> Meeting | None:
        """Where rank 0 can be watched from, at rank 0, if it has a watch."""
        return None if self._host_watch is None else self._host_watch.meeting

    def send(self, rank: int, buffer: Buffer) -> None:
        """Send a buffer without waiting for it to arrive; it must not be changed afterwards."""
        if rank in self.gone:
            return
        self._unsent.append((rank, self._comm.Isend(buffer, dest=rank, tag=_TAG), buffer))
        self.bytes_moved += buffer.nbytes
        if len(self._unsent) > _MOST_UNSENT:
            self._drop_sent()

    def probe(self) -> tuple[int, Buffer] | None:
        """Return (source rank, buffer) of the next message, or None when there is none yet."""
        if self._comm is None:
            return None
        from mpi4py import MPI  # noqa: PLC0415 - not needed by one rank

        status, source = MPI.Status(), MPI.ANY_SOURCE if self.rank == 0 else 0
        try:
            message = self._comm.Improbe(source=source, tag=_TAG, status=status)
            if message is None:  # what had arrived may be seen only at the second look
                self._drop_sent()
                message = self._comm.Improbe(source=source, tag=_TAG, status=status)
            if message is None:
                return None
            buffer = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            message.Recv(buffer)
        except MPI.Exception:
            if not self.tolerant:
                raise
            self._asked = 0.0  # somebody died: `lost` is to say who
            return None
        self.bytes_moved += buffer.nbytes
        self._quiet_since = time.monotonic()
        return status.Get_source(), buffer

    def lost(self) -> list[int]:
        """Return the ranks that were lost since this was last asked.

        They are those that have died, where MPI survives that; and those whose host has fallen silent.
        """
        now = time.monotonic()
        if self.size == 1 or now - self._asked < _LOST_EVERY:
            return []
        self._asked = now
        ranks = self._failed_ranks() if self.tolerant else []
        new = sorted(set(ranks) - self.gone)
        self.abandoned.difference_update(ranks)
        self._forget(new)
        return new + self._silent_ranks()

    def _silent_ranks(self) -> list[int]:
        """Return the ranks of hosts that have fallen silent since this was last asked."""
        new = []
        if self._host_watch is not None:
            self.silent.update(self.hosts[rank] for rank in self._host_watch.silent())
            new = [rank for rank, host in enumerate(self.hosts) if host in self.silent and rank not in self.gone]
        elif self._coordinator_watch is not None and 0 not in self.gone and self._coordinator_watch.silent():
            new = [0]
        for rank in new:
            self.abandon(rank)
        return new

    def _failed_ranks(self) -> list[int]:
        failed = self._comm.Get_failed()
        size: int = failed.Get_size()
        if size == 0:
            return []  # the predefined empty group, which is not freed
        everybody = self._comm.Get_group()
        try:
            self._comm.Ack_failed(size)
            return [int(rank) for rank in failed.Translate_ranks(list(range(size)), everybody)]
        finally:
            failed.Free()
            everybody.Free()

    def abandon(self, rank: int) -> None:
        """Count a rank that does not answer among those that have gone."""
        self.abandoned.add(rank)
        self._forget([rank])

    def lose(self, ranks: Iterable[int]) -> None:
        """Count ranks among those that have died, whatever MPI knows of them."""
        self._forget(sorted(set(ranks) - self.gone))

    def _forget(self, ranks: list[int]) -> None:
        self.gone.update(ranks)
        self._undeliverable += [sent for sent in self._unsent if sent[0] in self.gone]
        self._unsent = deque(sent for sent in self._unsent if sent[0] not in self.gone)

    def backoff(self) -> None:
        """Sleep a moment, longer the longer there has been neither a message nor other work between sleeps."""
        now = time.monotonic()
        if now - self._woke > _LONGEST_SLEEP:
            self._quiet_since = now
        time.sleep(min(max(_SHARE_ASLEEP * (now - self._quiet_since), self._shortest_sleep), _LONGEST_SLEEP))
        self._woke = time.monotonic()

    def flush(self, patience: float) -> bool:
        """Wait at most `patience` seconds until everything sent has left; return whether it has."""
        deadline = time.monotonic() + patience
        while self._unsent and time.monotonic() < deadline:
            self._drop_sent()
            self.backoff()
        return not self._unsent

    def leave(self, exit_code: int) -> None:
        """End this process where MPI may have lost ranks: MPI_Finalize, which Python's end calls, may wait for them."""
        if self.tolerant:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(exit_code)

    def abort(self, exit_code: int) -> None:
        """End every rank of the job at once."""
        if self._comm is not None:
            end_launcher_later(waits=bool(self.silent) or 0 in self.gone)
            self._comm.Abort(exit_code)

    def _drop_sent(self) -> None:
        from mpi4py import MPI  # noqa: PLC0415 - not needed by one rank

        try:
            while self._unsent and self._unsent[0][1].Test():
                self._unsent.popleft()
        except MPI.Exception:
            if not self.tolerant:
                raise
            self._asked = 0.0  # its receiver died: `lost` is to say so, and takes it out


def check_mpi4py(argument: str) -> None:
    """Raise InputError, for an argument that needs it, where mpi4py is not installed; whether it works, ranks say."""
    try:
        import mpi4py  # noqa: F401, PLC0415 - not needed by one rank
    except ImportError as error:
        raise InputError(argument, "mpi4py", f"{type(error).__name__}: {error}", how_to_install("mpi")) from None


def uninitialized_mpi() -> Any:
    """Return the module MPI, not initialized, unless somebody has imported it before."""
    import mpi4py  # noqa: PLC0415 - not needed by one rank

    usual = mpi4py.rc.initialize
    mpi4py.rc.initialize = False
    try:
        from mpi4py import MPI  # noqa: PLC0415
    finally:
        mpi4py.rc.initialize = usual
    return MPI
