"""Keepalive: TCP connections over which the kernels of hosts check one another, even if processes are busy.

A rank sends a greeting at the beginning and nothing later. A kernel answers for a process that computes, hangs or is
suspended, so a connection that fails means that a host, or the network to it, is lost. MPI would notice that only after
minutes, and only if it had a message to send.
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
_GREETING_BYTES = _TOKEN_BYTES + 4  # the token, and a rank
_PROBES = 4
_CONNECT_SECONDS = 5.0
# The errors of a connection whose process has ended on a host that answers. The launcher or MPI notices that loss.
_ENDED = (errno.ECONNRESET, errno.EPIPE)


@dataclass(frozen=True)
class Endpoint:
    """The endpoint at which rank 0 listens.

    Attributes:
        addresses: The addresses of rank 0's host, the likeliest first.
        port: The port.
        token: A secret, by which a rank proves that it belongs to this job.
        seconds: For how long a host may be silent.
    """

    addresses: tuple[str, ...]
    port: int
    token: bytes
    seconds: float


class HostWatch:
    """Watches other hosts, at rank 0, over connections from their ranks. seconds: for how long a host may be silent."""

    def __init__(self, seconds: float) -> None:
        self._listener = socket.create_server(("", 0), backlog=1024)
        self._listener.setblocking(False)
        self._unnamed: list[socket.socket] = []  # have not sent their greeting yet
        self._named: dict[int, socket.socket] = {}  # by rank
        self.endpoint = Endpoint(
            tuple(own_addresses()), self._listener.getsockname()[1], os.urandom(_TOKEN_BYTES), seconds
        )

    def silent(self) -> list[int]:
        """Return the ranks whose hosts fell silent since the last call."""
        self._accept()
        for connection in list(self._unnamed):
            self._read_greeting(connection)
        return [rank for rank in readable(self._named) if self._has_failed(rank)]

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
            _keep_alive(connection, self.endpoint.seconds)
            self._unnamed.append(connection)

    def _read_greeting(self, connection: socket.socket) -> None:
        try:
            greeting = connection.recv(_GREETING_BYTES)
        except BlockingIOError:
            return
        except OSError:
            greeting = b""
        self._unnamed.remove(connection)
        if len(greeting) == _GREETING_BYTES and hmac.compare_digest(greeting[:_TOKEN_BYTES], self.endpoint.token):
            self._named[struct.unpack("<I", greeting[_TOKEN_BYTES:])[0]] = connection
        else:
            connection.close()

    def _has_failed(self, rank: int) -> bool:
        state = state_of(self._named[rank])
        if state is None:
            return False
        self._named.pop(rank).close()
        return state not in _ENDED


class CoordinatorWatch:
    """Watches the host of rank 0, at a rank on another host."""

    def __init__(self, endpoint: Endpoint, rank: int) -> None:
        self._connection = _connect(endpoint)
        if self._connection is not None:
            _keep_alive(self._connection, endpoint.seconds)
            self._connection.setblocking(False)
            with suppress(OSError):
                self._connection.send(endpoint.token + struct.pack("<I", rank))

    def silent(self) -> bool:
        """Return whether rank 0 is lost or its host is silent."""
        if self._connection is None:
            return False
        return bool(readable({0: self._connection})) and state_of(self._connection) is not None

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def own_addresses() -> list[str]:
    """Return the IPv4 addresses of this host, the one of its name first, without the loopback addresses."""
    found = []
    with suppress(OSError):
        found = [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex() if fcntl is not None else []:
            with suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return [address for address in dict.fromkeys(found) if not address.startswith("127.")]


def _keep_alive(connection: socket.socket, seconds: float) -> None:
    """Have the kernel fail a connection if its other end does not answer for a number of seconds."""
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


def _connect(endpoint: Endpoint) -> socket.socket | None:
    """Return a connection to rank 0 at the first of its addresses that answers; None if no address does."""
    poll = select.poll()
    waiting: dict[int, socket.socket] = {}
    ours = set(own_addresses())
    for address in endpoint.addresses:
        # Two hosts may have an address in common by chance, such as the address of a bridge for containers.
        if address not in ours:
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            connection.setblocking(False)
            with suppress(OSError):
                connection.connect_ex((address, endpoint.port))
            waiting[connection.fileno()] = connection
            poll.register(connection, select.POLLOUT)
    while waiting:
        ready = poll.poll(1000 * _CONNECT_SECONDS)
        for descriptor, _ in ready:
            poll.unregister(descriptor)
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


def readable(connections: dict[int, socket.socket]) -> list[int]:
    """Return the ranks whose connections are readable: these ended or failed, since no data is sent on them."""
    poll = select.poll()
    ranks = {}
    for rank, connection in connections.items():
        ranks[connection.fileno()] = rank
        poll.register(connection, select.POLLIN)
    return [ranks[descriptor] for descriptor, _ in poll.poll(0)]


def state_of(connection: socket.socket) -> int | None:
    """Return the error number with which a connection ended; None if it has not ended."""
    try:
        return errno.ECONNRESET if connection.recv(1) == b"" else None
    except BlockingIOError:
        return None
    except OSError as error:
        return error.errno
