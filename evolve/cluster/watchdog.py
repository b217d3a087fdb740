"""Watchdogs notice environments that hang (`Watchdog`), and hosts that are lost (`HostWatch`, `CoordinatorWatch`).

If an environment hangs in Python, an alarm interrupts it with `EpisodeTimeout`, and only that episode fails. Nothing
can interrupt an environment that hangs in C, or that catches the exception and goes on. Then a traceback on stderr
shows where it hangs. If the process is a worker, the coordinator abandons it. Any other process ends, if its watchdog
is `fatal`.

Ranks on other hosts have a TCP connection with keepalive to rank 0. The operating systems check these connections, even
if a process computes, hangs or is suspended. So if an operating system does not answer, its host or the network is
lost. MPI would notice that only after minutes, and only if it had a message to send.
"""

import errno
import faulthandler
import fcntl
import hmac
import math
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from evolve.errors import EpisodeTimeout, Interrupted
from evolve.store.disk import uninterrupted

SOON = 1.0
"""After `interrupt_soon`, watched code is interrupted if it does not call `pat` for this number of seconds."""
# Between two calls of `pat`, an EpisodeTimeout delays the traceback at most this number of times. Once is not enough,
# because the trial before a run may raise several.
_MOST_RAISED = 4
_SIOCGIFADDR = 0x8915  # the request to Linux for the address of a network interface
_TOKEN_CHARACTERS = 32
_GREETING_BYTES = _TOKEN_CHARACTERS + 4  # the token, and a rank
_LONGEST_PAUSE = 32_767  # the largest number of seconds between two keepalive probes in Linux
_PROBES = 4  # unanswered keepalive probes after which a host counts as silent
_CONNECT_SECONDS = 5.0
# The errors of a connection if the process at the other end has ended, but its host answers.
_PROCESS_ENDED = (errno.ECONNRESET, errno.EPIPE)


class Watchdog:
    """Raises EpisodeTimeout in code that does not call `pat` for `limit` + max(1, `limit` / 10) seconds.

    Native code delays the exception. So after `patience(limit)` seconds the watchdog prints a traceback.

    The first `pat` arms the watchdog, and `disarm` disarms it. A `with` statement does both. Outside the main thread
    the watchdog does nothing.

    While it is armed, the watchdog uses SIGALRM, the interval timer, and the timer of `faulthandler`. The user's
    program may use the first two itself: `disarm` restores its handler and the remaining time of its timer, and
    `deliver_alarm` delivers an alarm of the program that is due while the watchdog is armed. After a suspension by
    SIGTSTP (Ctrl-Z, SLURM) the watchdog counts from 0 again, unless the program handles or ignores this signal.

    Args:
        limit: The limit of an episode in seconds.
        fatal: Whether the process ends after the traceback, with exit code 1. If stderr has no file descriptor, there
            is no traceback, and the process goes on.
    """

    def __init__(self, limit: float, fatal: bool) -> None:
        self._limit = limit
        self._fatal = fatal
        self._grace = max(1.0, limit / 10)  # seconds between alarms, after the first
        self._pat_interval = min(0.1, limit / 20)  # seconds after a `pat` in which further calls do nothing
        # The times (`time.monotonic`) of the last `pat` and of the last `_delay_traceback`; -infinity if disarmed.
        self._patted_at = self._delayed_at = -math.inf
        self._first_alarm_came = False  # `_interrupt` raises EpisodeTimeout at the second alarm
        self._num_raised = 0  # EpisodeTimeouts since the last `pat`
        self._paused = False
        self._watched: FrameType | None = None  # the frame of the `with` block; None if `pat` armed the watchdog
        self._handles_suspension = False
        self._interrupts_soon = False  # whether alarms come after `SOON` seconds and raise Interrupted
        # The time at which the alarm of the program is due, and the seconds between its later alarms.
        self._program_alarm_at, self._program_interval = math.inf, 0.0

    @property
    def _is_armed(self) -> bool:
        return self._patted_at > -math.inf

    def pat(self) -> None:
        """Reset the watchdog, because the watched code makes progress. It costs little, so it may be called often."""
        now = time.monotonic()
        # Only the main thread can set the handlers of signals.
        if now - self._patted_at < self._pat_interval or threading.current_thread() is not threading.main_thread():
            return
        if not self._is_armed:
            with uninterrupted():
                self._arm(now)
        else:
            self._set_alarm()
            if now - self._delayed_at > patience(self._limit):  # the traceback was due meanwhile
                _explain_traceback(now - self._patted_at)
        self._patted_at = now
        self._first_alarm_came, self._num_raised = False, 0
        # The traceback is delayed more rarely than the alarm, because its timer starts a thread.
        if now - self._delayed_at > 5 * self._pat_interval:
            self._delay_traceback(now)

    def deliver_alarm(self) -> None:
        """Deliver the alarm that the program had set before the watchdog was armed, if it is due.

        The program's handler may raise anything. So call this where no environment runs, and where an exception leaves
        the watched code.
        """
        now = time.monotonic()
        # Inside another watchdog, the alarm that was set before is the alarm of that watchdog.
        if not self._is_armed or now < self._program_alarm_at or len(_WATCHING) > 1:
            return
        self._program_alarm_at = now + self._program_interval if self._program_interval else math.inf
        self.disarm()  # the handler may set another alarm, which `pat` takes over
        signal.raise_signal(signal.SIGALRM)
        self.pat()

    def disarm(self) -> None:
        """Watch nothing until the next call of `pat`. Give timers and signal handlers back."""
        if self not in _WATCHING:
            return
        with uninterrupted():
            _WATCHING.remove(self)
            faulthandler.cancel_dump_traceback_later()
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._earlier_handler)
            if self._handles_suspension:
                signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            if self._program_alarm_at < math.inf:
                # The alarm may be due already. A time of 0 s would switch the timer off.
                seconds = max(self._program_alarm_at - time.monotonic(), 1e-3)
                signal.setitimer(signal.ITIMER_REAL, seconds, self._program_interval)
            self._patted_at = self._delayed_at = -math.inf
            if _WATCHING:  # a process has only one timer of tracebacks: start it again for the outer watchdog
                _WATCHING[-1]._delay_traceback(time.monotonic())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not interrupt the block. It is code of evolve that may take long, such as the generation of genomes."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            if self._is_armed:
                self.pat()

    def __enter__(self) -> "Watchdog":
        # Python calls no `__exit__` if Ctrl-C raises KeyboardInterrupt here.
        try:
            self._watched = sys._getframe(1)
            self.pat()
            return self
        except BaseException:
            self.disarm()
            raise

    def __exit__(self, *error: object) -> None:
        self.disarm()
        self._watched = None  # a frame keeps all its variables alive

    def _arm(self, now: float) -> None:
        """Take over timers and signal handlers. Keep the old ones, which `disarm` restores."""
        # The program's alarm may ring in any line here, and its handler may raise an exception. So keep everything that
        # `disarm` restores, before anything is taken over.
        self._interrupts_soon = self._handles_suspension = False
        earlier = signal.getsignal(signal.SIGALRM)
        self._earlier_handler = signal.SIG_DFL if earlier is None else earlier  # None: installed by C
        self._keep_program_alarm(now, *signal.getitimer(signal.ITIMER_REAL))
        _WATCHING.append(self)
        self._patted_at = now
        signal.signal(signal.SIGALRM, self._interrupt)
        # The alarm may have rung since it was kept.
        self._keep_program_alarm(now, *signal.setitimer(signal.ITIMER_REAL, self._limit, self._grace))
        # If the program handles or ignores SIGTSTP itself, leave that as it is.
        self._handles_suspension = signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL
        if self._handles_suspension:
            signal.signal(signal.SIGTSTP, self._suspend)

    def _keep_program_alarm(self, now: float, remaining: float, interval: float) -> None:
        """Keep the alarm of the program: the seconds until it rings, 0 without an alarm, and between later alarms."""
        self._program_alarm_at = now + remaining if remaining else math.inf
        self._program_interval = interval

    def _suspend(self, _number: int, _frame: FrameType | None) -> None:
        """Stop this process until SIGCONT. Then count from 0, because the time of the suspension does not count."""
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)  # the timer also runs while a process is stopped
        os.kill(os.getpid(), signal.SIGSTOP)
        self._set_alarm()
        self._first_alarm_came = False
        self._delay_traceback(time.monotonic())

    def _set_alarm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, SOON if self._interrupts_soon else self._limit, self._grace)

    def _delay_traceback(self, now: float) -> None:
        """Start the timer of the traceback anew. A thread of `faulthandler` prints the traceback when it is due."""
        self._delayed_at = now
        descriptor = _stderr()
        if descriptor is not None:
            faulthandler.dump_traceback_later(patience(self._limit), exit=self._fatal, file=descriptor)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Interrupt the watched code at the second alarm.

        The first alarm may be due only because SIGSTOP, which no process can handle, has stopped this process.
        """
        if self._watched is not None and not _is_running(self._watched):
            # Ctrl-C has ended the block in the one moment before `__exit__` can disarm the watchdog. An exception now
            # would end other code, such as a notebook's kernel.
            self.__exit__()
            return
        if self._paused:
            # During the pause alarms come at intervals. Each one delays the traceback.
            self._delay_traceback(time.monotonic())
            return
        if self._interrupts_soon:
            raise Interrupted
        if self._first_alarm_came:
            self._first_alarm_came = False
            self._set_alarm()  # for the next environment
            # The watched code may catch every exception. So after some exceptions, the traceback is no longer delayed.
            self._num_raised += 1
            if self._num_raised <= _MOST_RAISED:
                self._delay_traceback(time.monotonic())
            raise EpisodeTimeout(f"no answer for {self._limit:g} s (env.max_episode_seconds)")
        self._first_alarm_came = True


def _is_running(watched: FrameType) -> bool:
    """Return whether the function of a frame has not returned yet, even if another greenlet runs at the moment."""
    try:
        watched.clear()  # Python raises RuntimeError until the function has returned
    except RuntimeError:
        return True
    return False


_WATCHING: list[Watchdog] = []
"""The watchdogs that are armed in this process, the innermost last."""


def interrupt_soon() -> None:
    """Raise Interrupted in watched code after `SOON` seconds without a `pat`.

    A signal handler calls this to stop code that hangs. Code that calls `pat` must itself look for a reason to stop.
    """
    if _WATCHING:
        _WATCHING[-1]._interrupts_soon = True
        signal.setitimer(signal.ITIMER_REAL, SOON, SOON)


def _explain_traceback(seconds: float) -> None:
    """Print an explanation of the traceback that may be on stderr, because this process goes on."""
    why = "it was suspended, in native code, or caught exceptions. Any traceback above says where. It continues now."
    print(f"evolve: this process made no progress for {seconds:.0f} s: {why}", file=sys.stderr, flush=True)


def patience(limit: float) -> float:
    """Return the seconds after which a silent process counts as hanging in C. limit: the limit of an episode.

    A `Watchdog` raises EpisodeTimeout much earlier.
    """
    return 1.5 * limit + 5.0


def is_rank(pid: int) -> bool:
    """Return whether a process on this host has the command line of this process, as all ranks have."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes() == Path("/proc/self/cmdline").read_bytes()
    return False


def kill(pid: int) -> None:
    """Kill a rank on this host by its process number."""
    if is_rank(pid):  # if the rank has ended, its number may belong to another process
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _stderr() -> int | None:
    """Return the file descriptor of stderr; None without one, as in some notebooks."""
    for stream in (sys.stderr, sys.__stderr__):
        with suppress(AttributeError, OSError, ValueError):
            # A stream may be None, and `suppress` catches the AttributeError. mypy does not know this.
            return stream.fileno()  # type: ignore[union-attr]
    return None


@dataclass(frozen=True)
class Endpoint:
    """The endpoint at which rank 0 listens.

    Attributes:
        addresses: The addresses of rank 0's host, the likeliest first.
        port: The port.
        token: A secret of the ranks of this job.
        seconds: The time for which a host may be silent.
    """

    addresses: tuple[str, ...]
    port: int
    token: str
    seconds: float


class HostWatch:
    """At rank 0: watches the hosts of ranks that connect to it.

    Args:
        seconds: The time for which a host may be silent.
        ranks: The ranks that will connect. The port is closed when all these ranks have connected.
    """

    def __init__(self, seconds: float, ranks: Iterable[int]) -> None:
        self._awaited = set(ranks)
        self._listener = socket.create_server(("", 0), backlog=1024)
        self._listener.setblocking(False)
        self._unidentified: list[socket.socket] = []  # connections that have not sent their greeting yet
        self.connections: dict[int, socket.socket] = {}
        """The connections to ranks that have sent their greeting, by rank."""
        self.ended: set[int] = set()
        """The ranks with a process that has ended on a host that answers."""
        token = os.urandom(_TOKEN_CHARACTERS // 2).hex()
        self.endpoint = Endpoint(tuple(own_addresses()), self._listener.getsockname()[1], token, seconds)

    def find_silent(self) -> list[int]:
        """Return the connected ranks on hosts that have become silent since the last call. Update `ended`."""
        self._accept()
        for connection in list(self._unidentified):
            self._read_greeting(connection)
        # An open port would let any user of the network take all file descriptors of this process.
        if not self._awaited:
            for each_socket in (self._listener, *self._unidentified):
                each_socket.close()
            self._unidentified.clear()
        return [rank for rank in list(self.connections) if self._host_is_silent(rank)]

    def _accept(self) -> None:
        """Accept all connections that wait."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # most often BlockingIOError: no other connection waits
                return
            connection.setblocking(False)
            _keep_alive(connection, self.endpoint.seconds)
            self._unidentified.append(connection)

    def _read_greeting(self, connection: socket.socket) -> None:
        """Note the rank of a connection if its greeting has arrived. Close the connection of another process."""
        try:
            greeting = connection.recv(_GREETING_BYTES)
        except BlockingIOError:
            return
        except OSError:
            greeting = b""
        self._unidentified.remove(connection)
        # Any process may connect to the port. Only ranks of this job know the token.
        token = greeting[:_TOKEN_CHARACTERS]
        if len(greeting) == _GREETING_BYTES and hmac.compare_digest(token, self.endpoint.token.encode()):
            rank = int.from_bytes(greeting[_TOKEN_CHARACTERS:], "little")
            self.connections[rank] = connection
            self._awaited.discard(rank)
        else:
            connection.close()

    def _host_is_silent(self, rank: int) -> bool:
        """Return whether a rank's host is silent. If the connection has ended, drop it, and update `ended`."""
        error = end_error(self.connections[rank])
        if error is None:
            return False
        self.connections.pop(rank).close()
        if error in _PROCESS_ENDED:
            self.ended.add(rank)
        return error not in _PROCESS_ENDED


class CoordinatorWatch:
    """At a rank on another host: watches rank 0 and its host, if one of its addresses answers."""

    def __init__(self, endpoint: Endpoint, rank: int) -> None:
        self._connection = _connect(endpoint)
        if self._connection is not None:
            _keep_alive(self._connection, endpoint.seconds)
            # If the connection has ended already, `is_silent` notices that later.
            with suppress(OSError):
                self._connection.send(endpoint.token.encode() + rank.to_bytes(4, "little"))

    def is_silent(self) -> bool:
        """Return whether rank 0 has ended or its host is silent."""
        return self._connection is not None and end_error(self._connection) is not None


def own_addresses() -> list[str]:
    """Return the IPv4 addresses of this host without loopback addresses. The address of the host's name comes first."""
    addresses: list[str] = []
    with suppress(OSError):
        infos = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
        addresses += [str(socket_address[0]) for *_, socket_address in infos]  # of the pair (address, port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                # The structure `ifreq`: a name of at most 15 bytes, a 0, and an address. 256 bytes are enough for it.
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, name.encode()[:15].ljust(256, b"\0"))
                addresses.append(socket.inet_ntoa(answer[20:24]))  # the IPv4 address in the structure `ifreq`
    # `dict.fromkeys` removes duplicates and keeps the order.
    return [address for address in dict.fromkeys(addresses) if not address.startswith("127.")]


def _keep_alive(connection: socket.socket, seconds: float) -> None:
    """Let the operating system end a connection if the other end does not answer for a number of seconds."""
    # The first probe comes after about half of `seconds`, and `_PROBES` probes share the other half. The total is at
    # least 1 + `_PROBES` seconds, because the system counts whole seconds.
    every = min(max(1, round(seconds / (2 * _PROBES))), _LONGEST_PAUSE)
    idle = min(max(1, round(seconds) - _PROBES * every), _LONGEST_PAUSE)
    # TCP_USER_TIMEOUT, in milliseconds, limits the wait for the acknowledgement of data that was sent.
    limit = round(1000 * seconds)
    options = {"TCP_KEEPIDLE": idle, "TCP_KEEPINTVL": every, "TCP_KEEPCNT": _PROBES, "TCP_USER_TIMEOUT": limit}
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in options.items():
        # Not every system has all of these options.
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _connect(endpoint: Endpoint) -> socket.socket | None:
    """Return a connection to rank 0 at the first of its addresses that answers; None if no address does."""
    # Try all addresses at the same time, because some may never answer.
    poll = select.poll()
    waiting: dict[int, socket.socket] = {}
    ours = set(own_addresses())
    for address in endpoint.addresses:
        # Two hosts may have an address in common by chance, such as the address of a bridge for containers.
        if address not in ours:
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            connection.setblocking(False)
            if connection.connect_ex((address, endpoint.port)) in (0, errno.EINPROGRESS):
                waiting[connection.fileno()] = connection
                poll.register(connection, select.POLLOUT)
            else:  # it failed at once, as without a route; `poll` would show it as ready
                connection.close()
    try:
        while waiting and (ready := poll.poll(1000 * _CONNECT_SECONDS)):
            for descriptor, _ in ready:
                poll.unregister(descriptor)
                connection = waiting.pop(descriptor)
                # `poll` also reports connections that have failed.
                if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    return connection
                connection.close()
        return None
    finally:
        for connection in waiting.values():
            connection.close()


def end_error(connection: socket.socket) -> int | None:
    """Return the error with which a connection has ended: ECONNRESET if it was closed, None if it has not ended."""
    try:
        return errno.ECONNRESET if connection.recv(1) == b"" else None
    except BlockingIOError:
        return None
    except OSError as error:
        return error.errno
