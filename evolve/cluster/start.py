"""Connects the ranks at the start of a job (`connect`). If a rank is missing, another rank names it, and all end.

The ranks wait for each other within a limit (`StartWatch`). Then each rank sends rank 0 its host and its cores, and
receives its share of the cores (`introduce`). The limits belong to a job and not to an experiment, so environment
variables set them.
"""

import ctypes
import json
import os
import shlex
import socket
import sys
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evolve.cluster.cores import Cores, set_share, shares, usable_cores
from evolve.cluster.supervision import CONNECT, connect_seconds, launched, limit_seconds, started_by
from evolve.cluster.transport import Buffer, Transport, initialize, kill_launcher_later, uninitialized_mpi
from evolve.cluster.watchdog import CoordinatorWatch, Endpoint, HostWatch, is_rank
from evolve.errors import InputError, RunError, how_to_install, one_line, pluralize

SILENCE = "EVOLVE_SILENCE_SECONDS"
"""The variable that sets the seconds for which a host may be silent."""
_DEFAULT_SILENCE = 30.0

# Constants of PMIx, the interface to the launcher of Open MPI.
_RUNNING, _CONNECTED, _TERMINATED, _ERROR, _ABORTING = 5, 6, 20, 50, 58  # PMIX_PROC_STATE_…
_STRING, _PROC_INFO, _DATA_ARRAY = 3, 38, 39  # types of data
_NAMESPACE = "PMIX_NAMESPACE"

WATCH_EVERY = 1.0
"""Seconds between two checks of whether all ranks still live."""
# If not all ranks come, one rank prints the reason and ends the job. Each rank waits for its turn, see `_turn`. Turn n
# begins n · `_TURN_SECONDS` after the rank has noticed that other ranks are missing.
_TURN_SECONDS = 3.0
_LAST_IN_ORDER = 9  # higher ranks have the same turn as this rank
_MOST_NAMED = 5  # ranks in a message
_MOST_WATCHED = 512  # ranks with a keepalive connection: a process may have a thousand open files
_UNKNOWN_HOST = "?"


def silence_seconds() -> float:
    """Return the seconds for which a host may be silent. Raises InputError if `SILENCE` is invalid."""
    return limit_seconds(SILENCE, _DEFAULT_SILENCE)


# Structures of PMIx.
class _Info(ctypes.Structure):
    _fields_ = (("key", ctypes.c_char * 512), ("flags", ctypes.c_uint64), ("type", ctypes.c_uint64),
                ("data", ctypes.c_void_p), ("unused", ctypes.c_char * 16))  # fmt: skip


class _Query(ctypes.Structure):
    _fields_ = (("keys", ctypes.POINTER(ctypes.c_char_p)), ("qualifiers", ctypes.POINTER(_Info)),
                ("num_qualifiers", ctypes.c_size_t))  # fmt: skip


class _Array(ctypes.Structure):
    _fields_ = (("type", ctypes.c_uint16), ("size", ctypes.c_size_t), ("array", ctypes.c_void_p))


class _Process(ctypes.Structure):
    _fields_ = (("namespace", ctypes.c_char * 256), ("rank", ctypes.c_uint32), ("host", ctypes.c_char_p),
                ("executable", ctypes.c_char_p), ("pid", ctypes.c_int), ("exit_code", ctypes.c_int),
                ("state", ctypes.c_uint8))  # fmt: skip


@dataclass(frozen=True)
class LaunchedRank:
    """A rank as its launcher knows it.

    Attributes:
        rank: Its number.
        host: The host on which it was started.
        has_come: Whether it has begun MPI_Init; None if the launcher's daemon on this host does not know.
        has_ended: Whether its process has ended.
        has_ended_job: Whether it has asked the launcher to end all ranks.
    """

    rank: int
    host: str
    has_come: bool | None
    has_ended: bool
    has_ended_job: bool


def launched_ranks(library: ctypes.CDLL) -> list[LaunchedRank]:
    """Return all ranks, as the launcher's daemon on this host knows them; an empty list if it cannot be asked.

    library: The library of MPI, which includes PMIx's functions.
    """
    namespace = os.environ.get(_NAMESPACE)
    if namespace is None or not hasattr(library, "PMIx_Query_info"):
        return []
    # Ask for the table of all processes of this job.
    text = ctypes.create_string_buffer(namespace.encode())
    job_name = _Info(b"pmix.nspace", 0, _STRING, ctypes.cast(text, ctypes.c_void_p), b"")
    query = _Query((ctypes.c_char_p * 2)(b"pmix.qry.ptable", None), ctypes.pointer(job_name), 1)
    answer, count = ctypes.POINTER(_Info)(), ctypes.c_size_t()
    # The memory of the answer is never freed, because there are only a few answers.
    error = library.PMIx_Query_info(ctypes.byref(query), ctypes.c_size_t(1), ctypes.byref(answer), ctypes.byref(count))
    # A type of PMIx has only 16 bits. In `_Info` the field also covers the padding behind the type.
    if error or not count.value or answer[0].type & 0xFFFF != _DATA_ARRAY:
        return []
    array = ctypes.cast(answer[0].data, ctypes.POINTER(_Array))[0]
    if array.type != _PROC_INFO:
        return []
    processes = ctypes.cast(array.array, ctypes.POINTER(_Process))
    # If the name of the job begins with this host's name, the daemon here is the launcher itself, and knows all ranks.
    knows_all = namespace.startswith(f"prterun-{os.environ.get('PMIX_HOSTNAME', '?')}-")
    return [_as_rank(processes[i], knows_all) for i in range(array.size)]


def _as_rank(process: _Process, knows_all: bool) -> LaunchedRank:
    host = "an unknown host" if process.host is None else process.host.decode(errors="replace")
    if not knows_all and process.state < _RUNNING:  # the daemon does not know the states on other hosts
        return LaunchedRank(process.rank, host, has_come=None, has_ended=False, has_ended_job=False)
    has_ended = process.state == _TERMINATED or process.state >= _ERROR
    return LaunchedRank(process.rank, host, process.state >= _CONNECTED, has_ended, process.state == _ABORTING)


def end_job(library: ctypes.CDLL) -> None:
    """Ask the launcher to end all ranks, with exit code 1, if the library includes PMIx."""
    if hasattr(library, "PMIx_Abort"):
        library.PMIx_Abort(1, b"", None, ctypes.c_size_t(0))


class StartWatch:
    """Checks that all ranks come together. If not, one rank prints the missing ranks, and all end with code 1.

    Args:
        rank: The rank of this process.
        size: The number of ranks.
        host: The host of this process.
        library: The library of MPI.
    """

    def __init__(self, rank: int, size: int, host: str, library: ctypes.CDLL) -> None:
        self._rank = rank
        self._size = size
        self._host = host
        self._library = library
        self._limit = connect_seconds(size)
        self._begun_at = time.monotonic()
        self._asked_at = self._begun_at  # the time at which `find_lost` last asked the launcher
        self._is_over = threading.Event()  # all ranks have come, or this rank has failed
        # A thread, because the main thread waits in MPI_Init until all ranks have come.
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.missing: Callable[[], Sequence[int]] | None = None
        """Returns the ranks that have not come; None during MPI_Init, when only the launcher may know them."""

    def __enter__(self) -> "StartWatch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def find_lost(self, transport: Transport, ask: bool = False) -> set[int]:
        """Find and return the ranks that are lost, see `Transport.find_lost`.

        MPI never reports ranks that died before this rank started, but the launcher knows these ranks. If MPI survives
        deaths, this method asks the launcher every second, or at once (`ask`).
        """
        transport.find_lost()
        if transport.tolerant and (ask or time.monotonic() - self._asked_at > WATCH_EVERY):
            self._asked_at = time.monotonic()
            transport.mark_dead(rank.rank for rank in launched_ranks(self._library) if rank.has_ended)
        return transport.gone

    def _watch(self) -> None:
        late_since = None
        while not self._is_over.wait(WATCH_EVERY):
            ranks = launched_ranks(self._library) if self.missing is None else []
            now = time.monotonic()
            has_died = any(rank.has_ended for rank in ranks)
            # If a rank has died, not all can come, so the other ranks do not wait for the limit.
            if late_since is None and (has_died or now - self._begun_at > self._limit):
                late_since = now
            if any(rank.has_ended_job for rank in ranks):  # that rank has printed the reason
                os._exit(1)
            if late_since is not None and now - late_since >= self._turn(ranks) * _TURN_SECONDS:
                # After MPI_Init `ranks` is empty. Ask now, because the message also names hosts.
                self._end(ranks or launched_ranks(self._library))

    def _turn(self, ranks: Sequence[LaunchedRank]) -> float:
        """Return the turn in which this rank prints the reason. Ranks that know more have earlier turns.

        ranks: The ranks as the launcher knows them during MPI_Init; empty later, or if the launcher does not answer.
        """
        if not ranks:
            # After MPI_Init rank 0 knows the missing ranks. The next ranks have turns between 2 and 3, in their order.
            return 0 if self._rank == 0 else 2 + min(self._rank, _LAST_IN_ORDER) / _LAST_IN_ORDER
        turn = 0 if self._rank == 0 else 1
        # Only ranks on the launcher's host know the state of all ranks.
        if any(rank.has_come is None for rank in ranks):
            turn = 2
        # On each host, the first living rank has the earliest turn.
        here = [rank.rank for rank in ranks if rank.host == self._host and rank.has_come and not rank.has_ended]
        return turn if self._rank == min(here, default=0) else turn + 1

    def _end(self, ranks: Sequence[LaunchedRank]) -> None:
        """Print the reason, and end this process and the job. Do nothing if all ranks have come. ranks: see `_turn`."""
        # The last rank may have come while this thread asked the launcher.
        if self._is_over.is_set():
            return
        waited = time.monotonic() - self._begun_at
        print(f"evolve: the ranks did not come together: {self._reason(ranks)} ({waited:.0f} s after rank {self._rank} "
              f"on {self._host} came; {CONNECT}={self._limit:g}).", file=sys.stderr, flush=True)  # fmt: skip
        # The launcher should end the job. If it does not end in time, a new process kills it.
        kill_launcher_later()
        end_job(self._library)
        # The main thread may wait in MPI_Init forever, and an exception would end only this thread.
        os._exit(1)

    def _reason(self, ranks: Sequence[LaunchedRank]) -> str:
        """Return in words the ranks that have ended; if no rank has, the ranks that have not come."""
        hosts = {rank.rank: rank.host for rank in ranks}
        ended = [rank.rank for rank in ranks if rank.has_ended]
        if ended:
            return f"{_names(ended, hosts)} ended"
        missing = [rank.rank for rank in ranks if rank.has_come is False] if self.missing is None else self.missing()
        if missing:
            return f"{_names(missing, hosts)} did not come"
        return f"not all of the {pluralize(self._size, 'rank')} came, and the launcher does not say which"


def _names(ranks: Sequence[int], hosts: dict[int, str]) -> str:
    """Return the names of the first ranks, with their hosts if these are known, and the number of the other ranks."""
    names = [f"rank {rank} on {hosts[rank]}" if rank in hosts else f"rank {rank}" for rank in ranks[:_MOST_NAMED]]
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return ", ".join(names) + more


def introduce(transport: Transport, watch: StartWatch) -> None:
    """Send the host, the cores and the arguments of each rank to rank 0, which answers with the rank's share of cores.

    The answer also has the endpoint at which a rank on another host watches rank 0. Rank 0 receives the introductions
    one by one, because a collective operation of MPI would wait for dead ranks. If MPI survives deaths, ranks that die
    meanwhile are left out. Raises RunError if rank 0 is lost.
    """
    if transport.rank:
        _introduce_to_rank_0(transport, watch)
    else:
        _receive_introductions(transport, watch)


def _introduce_to_rank_0(transport: Transport, watch: StartWatch) -> None:
    """Send an introduction, and apply the answer of rank 0."""
    watch.missing = lambda: [0]
    introduction = {"host": transport.host, "pid": os.getpid(), "cores": usable_cores(), "arguments": sys.argv[1:]}
    transport.send(0, _packed(introduction))
    while (received := transport.probe()) is None:
        if 0 in watch.find_lost(transport):
            raise RunError("rank 0 was lost before there was anything to do")
        transport.backoff()
    answer = json.loads(received[1].tobytes())
    set_share(answer.pop("share"))
    host, pid = answer.pop("rank_0")
    if host == transport.host and is_rank(pid):
        transport.neighbours = {0: pid}
    if answer:  # it still has the fields of the endpoint, if this rank has to watch rank 0
        transport.coordinator_watch = CoordinatorWatch(Endpoint(**answer), transport.rank)


def _receive_introductions(transport: Transport, watch: StartWatch) -> None:
    """Receive the introductions of all living ranks at rank 0, and answer them."""
    hosts = [transport.host] + [_UNKNOWN_HOST] * (transport.size - 1)
    pids = [os.getpid()] + [0] * (transport.size - 1)
    cores: dict[int, Cores] = {}
    missing = set(range(1, transport.size))
    watch.missing = lambda: sorted(missing)
    while missing:
        received = transport.probe()
        missing -= watch.find_lost(transport)
        if received is None:
            transport.backoff()
            continue
        rank, content = received
        introduction = json.loads(content.tobytes())
        hosts[rank], pids[rank] = introduction["host"], introduction["pid"]
        cores[rank] = Cores(*introduction["cores"])
        transport.arguments[rank] = introduction["arguments"]
        missing.discard(rank)
    watch.find_lost(transport, ask=True)  # for the last time: MPI reports all later deaths
    transport.hosts, transport.pids = hosts, pids
    # A rank in its own container may see the same host name as rank 0, but other process numbers.
    ranks_here = (rank for rank in cores if hosts[rank] == transport.host)
    transport.neighbours = {rank: pids[rank] for rank in ranks_here if is_rank(pids[rank])}
    # Watch other hosts, share the cores among the living ranks, and answer each of them.
    watched = _watched_ranks(hosts)
    endpoint = {}
    if watched:
        transport.host_watch = HostWatch(silence_seconds(), watched)
        endpoint = asdict(transport.host_watch.endpoint)
    share_of = shares(hosts, {rank: cores[rank] for rank in sorted(cores.keys() - transport.gone)})
    if share_of:  # rank 0 plays only after all workers are lost, and then may use as many cores as a worker had
        set_share(max(share_of.values()))
    for rank, share in share_of.items():
        answer = {"share": share, "rank_0": (transport.host, os.getpid())}
        transport.send(rank, _packed(answer | (endpoint if rank in watched else {})))


def _watched_ranks(hosts: list[str]) -> set[int]:
    """Return the ranks that connect to rank 0: the first ranks of each other host, or all if they are few."""
    ranks_of = defaultdict(list)
    for rank, host in enumerate(hosts):
        if host not in (hosts[0], _UNKNOWN_HOST):
            ranks_of[host].append(rank)
    most_per_host = max(1, _MOST_WATCHED // max(1, len(ranks_of)))
    return set().union(*(ranks[:most_per_host] for ranks in ranks_of.values()))


def check_arguments(transport: Transport) -> None:
    """Raise InputError at rank 0 if a rank has other arguments, such as another seed. They would have no effect."""
    for rank, words in transport.arguments.items():
        if words != sys.argv[1:]:
            cure = "Give one command all seeds (-s 1 2 3), or start a job for each seed."
            expected = "the arguments of rank 0, because all ranks work on one command"
            raise InputError(f"rank {rank}", expected, shlex.join(words) or "none", cure)


def _packed(contents: dict[str, Any]) -> Buffer:
    return np.frombuffer(json.dumps(contents).encode(), np.uint8)


def connect() -> Transport:
    """Join the ranks that this process was launched with. If not all come together in time, this process ends.

    Raises:
        InputError: mpi4py is missing, MPI does not connect the launched processes, or a limit is invalid.
        RunError: Rank 0 is lost.
    """
    size, rank = launched()
    if size == 1:
        return Transport()
    silence_seconds()  # all ranks refuse an invalid limit here; if only rank 0 did, the others would wait
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # mpi4py may warn before it fails, but the error below explains more
            MPI = uninitialized_mpi()
    except (ImportError, RuntimeError) as error:
        # The MPI of a cluster may have another file name or ABI than those that mpi4py's wheels look for.
        cure = f"{how_to_install('mpi')} Or build mpi4py with your MPI: pip install --no-binary mpi4py mpi4py"
        if isinstance(error, RuntimeError) and "MPI4PY_LIBMPI" in os.environ:
            cure = "MPI4PY_LIBMPI names this library: unset it, or set it to the library of your mpirun."
        raise InputError(f"mpirun -n {size}", "a working mpi4py", one_line(error), cure) from None
    with StartWatch(rank, size, socket.gethostname(), ctypes.CDLL(MPI.__file__)) as watch:
        initialize(MPI)
        check_ranks(MPI, size)
        transport = Transport(MPI.COMM_WORLD)
        introduce(transport, watch)
    return transport


def check_ranks(MPI: Any, size: int) -> None:
    """Raise InputError if the library that mpi4py has loaded does not belong to the launcher of `size` ranks."""
    # The launcher has announced several ranks, but the library finds only this rank.
    if MPI.COMM_WORLD.Get_size() == 1:
        library = str(MPI.Get_library_version()).split(",")[0].split("\n")[0].strip()
        argument = started_by() or f"mpirun -n {size}"
        if argument.startswith("srun"):
            cure = "Use srun --mpi=pmix if SLURM has it (srun --mpi=list), or start mpirun in the batch script."
            if "MPICH" in library:  # the MPICH of a wheel does not support PMIx
                cure = "Start mpirun in the batch script."
            cure += " For a single process, as in a shell, run unset SLURM_STEP_NUM_TASKS first."
            raise InputError(argument, f"a way to tell {library} of the other ranks", "none", cure)
        cure = "Use the mpirun that belongs to it, or set MPI4PY_LIBMPI to the library that belongs to your mpirun."
        raise InputError(argument, f"the mpirun of {library}, which mpi4py loaded", "another MPI's", cure)
