"""Whether other hosts are still there: TCP connections whose ends the kernels ask after, however busy processes are.

Nothing is ever sent on them but a name at the beginning. A kernel answers for a process that computes, hangs or is
suspended, so a connection that fails means that a host, or the way to it, is lost. MPI would notice that only after
minutes, and only if it had something to send.
"""

import errno
import hmac
import os
import select
import socket
import struct
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_SIOCGIFADDR = 0x8915
_TOKEN_BYTES = 16
_GREETING = _TOKEN_BYTES + 4  # bytes: the token, and a rank
_PROBES = 4
_REACHED_WITHIN = 5.0  # seconds
_ENDED = (errno.ECONNRESET, errno.EPIPE)  # by a kernel that is there: the process has ended, and others see to that


@dataclass(frozen=True)
class Meeting:
    """Where rank 0 listens.

    Attributes:
        addresses: Of rank 0's host, the likeliest first.
        port: The port.
        token: What a rank proves with that it is one of this job.
        seconds: For how long a host may be silent.
    """

    addresses: tuple[str, ...]
    port: int
    token: bytes
    seconds: float


class HostWatch:
    """Rank 0's end of the connections to ranks on other hosts. seconds: for how long a host may be silent."""

    def __init__(self, seconds: float) -> None:
        self._listener = socket.create_server(("", 0), backlog=1024)
        self._listener.setblocking(False)
        self._unnamed: list[socket.socket] = []
        self._named: dict[int, socket.socket] = {}
        self.meeting = Meeting(
            tuple(own_addresses()), self._listener.getsockname()[1], os.urandom(_TOKEN_BYTES), seconds
        )

    def silent(self) -> list[int]:
        """Return the ranks whose hosts have fallen silent since this was last asked."""
        self._accept()
        for connection in list(self._unnamed):
            self._hear(connection)
        return [rank for rank in _with_news(self._named) if self._has_failed(rank)]

    @property
    def ranks(self) -> Collection[int]:
        """The ranks that have a connection."""
        return self._named.keys()

    def close(self) -> None:
        """Drop all connections."""
        for connection in (self._listener, *self._unnamed, *self._named.values()):
            connection.close()
        self._unnamed, self._named = [], {}

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setblocking(False)
            _keep_alive(connection, self.meeting.seconds)
            self._unnamed.append(connection)

    def _hear(self, connection: socket.socket) -> None:
        try:
            greeting = connection.recv(_GREETING)
        except BlockingIOError:
            return
        except OSError:
            greeting = b""
        self._unnamed.remove(connection)
        if len(greeting) == _GREETING and hmac.compare_digest(greeting[:_TOKEN_BYTES], self.meeting.token):
            self._named[struct.unpack("<I", greeting[_TOKEN_BYTES:])[0]] = connection
        else:
            connection.close()

    def _has_failed(self, rank: int) -> bool:
        state = _state(self._named[rank])
        if state is None:
            return False
        self._named.pop(rank).close()
        return state not in _ENDED


class CoordinatorWatch:
    """The other end, at a rank on another host: whether the host of rank 0 is there."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._connection = _reach(meeting)
        if self._connection is not None:
            _keep_alive(self._connection, meeting.seconds)
            self._connection.setblocking(False)
            with suppress(OSError):
                self._connection.send(meeting.token + struct.pack("<I", rank))

    def silent(self) -> bool:
        """Return whether rank 0 is lost, or its host silent."""
        if self._connection is None:
            return False
        return bool(_with_news({0: self._connection})) and _state(self._connection) is not None

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def own_addresses() -> list[str]:
    """Return the IPv4 addresses of this host, that of its name first, but for those that every host has."""
    found = []
    with suppress(OSError):
        found = [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex() if fcntl is not None else []:
            with suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return [address for address in dict.fromkeys(found) if not address.startswith("127.")]


def _keep_alive(connection: socket.socket, seconds: float) -> None:
    """Have the kernel fail a connection whose other end does not answer for so many seconds."""
    every = max(1, round(seconds / (2 * _PROBES)))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", max(1, round(seconds) - _PROBES * every)),
        ("TCP_KEEPINTVL", every),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", round(1000 * seconds)),
    ):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _reach(meeting: Meeting) -> socket.socket | None:
    """Return a connection to rank 0 by whichever of its addresses answers first; None where none does.

    An address that this host has too is another host's by chance, such as that of a bridge for containers.
    """
    trying = select.poll()
    waiting: dict[int, socket.socket] = {}
    ours = set(own_addresses())
    for address in meeting.addresses:
        if address not in ours:
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            connection.setblocking(False)
            with suppress(OSError):
                connection.connect_ex((address, meeting.port))
            waiting[connection.fileno()] = connection
            trying.register(connection, select.POLLOUT)
    while waiting:
        ready = trying.poll(1000 * _REACHED_WITHIN)
        for descriptor, _ in ready:
            trying.unregister(descriptor)
            connection = waiting.pop(descriptor)
            if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                for other in waiting.values():
                    other.close()
                return connection
            connection.close()
        if not ready:
            break
    for connection in waiting.values():
        connection.close()
    return None


def _with_news(connections: dict[int, socket.socket]) -> list[int]:
    """Return the ranks whose connections have ended or failed: nothing else ever comes."""
    poll = select.poll()
    ranks = {}
    for rank, connection in connections.items():
        ranks[connection.fileno()] = rank
        poll.register(connection, select.POLLIN)
    return [ranks[descriptor] for descriptor, _ in poll.poll(0)]


def _state(connection: socket.socket) -> int | None:
    """Return why a connection is over, as an error number; None while it is not."""
    try:
        return errno.ECONNRESET if connection.recv(1) == b"" else None
    except BlockingIOError:
        return None
    except OSError as error:
        return error.errno
