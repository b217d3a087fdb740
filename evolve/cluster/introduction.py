"""Connect the ranks of a job: each tells rank 0 its host and process, and hears where rank 0 can be watched from.

Ranks are introduced one by one and not by a collective operation of MPI, which waits for the dead. The launcher is
asked about the dead as well, because MPI never tells a rank about those that died before its own start was over.
"""

import ctypes
import json
import os
import socket
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np

from evolve.cluster.keepalive import CoordinatorWatch, HostWatch, Meeting
from evolve.cluster.start import StartWatch, initialize, launched, silence_seconds, started_by
from evolve.cluster.transport import Buffer, Transport, uninitialized_mpi
from evolve.errors import InputError, RunError, how_to_install

_MOST_WATCHED = 512  # ranks: a process may have a thousand files
_UNKNOWN = "?"
_CALL_EVERY = 1.0  # seconds


def introduce(transport: Transport, watch: StartWatch) -> None:
    """Have all ranks meet; those that die meanwhile, where MPI survives that, are done without.

    Raises RunError when rank 0 is lost, and InputError for a limit that is no duration.
    """
    if transport.rank:
        watch.missing = lambda: [0]
        _present(transport, watch)
    else:
        _welcome(transport, watch)


class _Roll:
    """Who has been lost, as MPI and, every second, the launcher know it; that is asked only where MPI survives it."""

    def __init__(self, transport: Transport, watch: StartWatch) -> None:
        self._transport = transport
        self._watch = watch
        self._called = time.monotonic()

    def lost(self) -> set[int]:
        """Return the ranks that are known to be lost."""
        self._transport.lost()
        if time.monotonic() - self._called > _CALL_EVERY:
            self.call()
        return self._transport.gone

    def call(self) -> None:
        """Ask the launcher."""
        self._called = time.monotonic()
        if self._transport.tolerant:
            self._transport.lose(self._watch.ended())


def _present(transport: Transport, watch: StartWatch) -> None:
    transport.send(0, _packed({"host": transport.host, "pid": os.getpid()}))
    answer = None
    roll = _Roll(transport, watch)
    while answer is None:
        answer = transport.probe()
        if answer is None and 0 in roll.lost():
            raise RunError("rank 0 was lost before there was anything to do")
        if answer is None:
            transport.backoff()
    heard = json.loads(answer[1].tobytes())
    if heard:
        meeting = Meeting(tuple(heard["addresses"]), heard["port"], bytes.fromhex(heard["token"]), heard["seconds"])
        transport.watch_coordinator(CoordinatorWatch(meeting, transport.rank))


def _welcome(transport: Transport, watch: StartWatch) -> None:
    seconds = silence_seconds()
    hosts = [transport.host] + [_UNKNOWN] * (transport.size - 1)
    pids = [os.getpid()] + [0] * (transport.size - 1)
    missing = set(range(1, transport.size))
    watch.missing = lambda: sorted(missing)
    roll = _Roll(transport, watch)
    while missing:
        heard = transport.probe()
        missing -= roll.lost()
        if heard is None:
            transport.backoff()
            continue
        card = json.loads(heard[1].tobytes())
        hosts[heard[0]], pids[heard[0]] = card["host"], card["pid"]
        missing.discard(heard[0])
    roll.call()  # once more: from now on MPI hears of everybody
    transport.hosts, transport.pids = hosts, pids
    elsewhere = _watched(hosts)
    if elsewhere:
        transport.watch_hosts(HostWatch(seconds))
    for rank in range(1, transport.size):
        transport.send(rank, _packed(_meeting(transport) if rank in elsewhere else {}))


def _meeting(transport: Transport) -> dict[str, object]:
    meeting = transport.meeting
    assert meeting is not None
    return {
        "addresses": meeting.addresses,
        "port": meeting.port,
        "token": meeting.token.hex(),
        "seconds": meeting.seconds,
    }


def _watched(hosts: list[str]) -> set[int]:
    """Return the ranks on other hosts that are to be connected: all of a few, the first ones of each host of many."""
    elsewhere = [rank for rank, host in enumerate(hosts) if host not in (hosts[0], _UNKNOWN)]
    each = max(1, _MOST_WATCHED // max(1, len({hosts[rank] for rank in elsewhere})))
    met: Counter[str] = Counter()
    chosen = set()
    for rank in elsewhere:
        met[hosts[rank]] += 1
        if met[hosts[rank]] <= each:
            chosen.add(rank)
    return chosen


def _packed(contents: dict[str, object]) -> Buffer:
    return np.frombuffer(json.dumps(contents).encode(), np.uint8)


def connect() -> Transport:
    """Join the ranks that this process was launched with.

    Raises InputError when a launcher started several processes but they cannot see one another, and RunError when rank
    0 is lost. When not all of them come together in time, this process ends.
    """
    size, rank = launched()
    if size == 1:
        return Transport()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # mpi4py's own guess at what is refused below
            MPI = uninitialized_mpi()
    except (ImportError, RuntimeError) as error:
        raise InputError(
            f"mpirun -n {size}", "a working mpi4py", f"{type(error).__name__}: {error}", how_to_install("mpi")
        ) from None
    with StartWatch(rank, size, socket.gethostname(), ctypes.CDLL(MPI.__file__)) as watch:
        initialize(MPI)
        _check_ranks(MPI, size)
        transport = Transport(MPI.COMM_WORLD)
        introduce(transport, watch)
    return transport


def _check_ranks(MPI: Any, size: int) -> None:
    """Raise InputError where the library that mpi4py has loaded does not belong to the launcher."""
    if MPI.COMM_WORLD.Get_size() == 1:
        library = str(MPI.Get_library_version()).split(",")[0].split("\n")[0].strip()
        argument = started_by() or f"mpirun -n {size}"
        if argument.startswith("srun"):
            cure = "Say srun --mpi=pmix where SLURM has it (srun --mpi=list), or start mpirun in the batch script."
            raise InputError(argument, f"a way to tell {library} of the other ranks", "none", cure)
        cure = "Use the mpirun that belongs to it, or set MPI4PY_LIBMPI to the library that belongs to your mpirun."
        raise InputError(argument, f"the mpirun of {library}, which mpi4py loaded", "another MPI's", cure)
