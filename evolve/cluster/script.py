"""Lets a Python script use several ranks.

If a launcher started the script on every rank, all ranks call the same functions (`Collective`). Rank 0 coordinates the
work, and every rank returns the answer of rank 0.

Otherwise a script may start ranks with mpirun (`StartedRanks`). A socket connects the script with rank 0 (`Link`). If
the script ends, even by SIGKILL, rank 0 reads the end of the stream and stops. When the script needs the ranks no more,
it closes the socket, and kills the ranks that do not stop by themselves.
"""

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from evolve.cluster import messages
from evolve.cluster.coordinator import Coordinator, all_have_left, await_ends, dismiss
from evolve.cluster.hosts import check_start, mpirun_environment, mpirun_words
from evolve.cluster.start import connect, silence_seconds
from evolve.cluster.supervision import CONNECT, SESSION_FOLDER, begin_seconds, kill_launcher
from evolve.cluster.transport import Transport
from evolve.cluster.worker import KeptRollouts, MakeRollout, SharedState, serve
from evolve.errors import RunError, Setting, error_from_json, error_to_json, on_error

_ANSWER, _ERROR = b"A", b"E"  # the first byte of the message by which rank 0 ends `follow` on another rank
ON_ALL_RANKS = "_raised_on_all_ranks"
"""The attribute that marks an error that all ranks raise."""
_SOCKET = "EVOLVE_SCRIPT"
"""The variable with the path of the script's socket."""
_SEARCH_PATH = "EVOLVE_SCRIPT_PATH"
"""The variable with the script's `sys.path` (JSON), so that the ranks find the modules that the script finds."""
_PROGRAM = f"import json, os, sys; sys.path[:] = json.loads(os.environ[{_SEARCH_PATH!r}]); "
_LENGTH_BYTES = 8  # of the length in front of each message on the socket
# The longest PARENT, in bytes, of the socket PARENT/evolve-xxxxxxxx/s: systems allow paths of at most 104 or 108 bytes.
_MAX_SOCKET_PARENT = 84
_STOP_SECONDS, _STOP_SECONDS_PER_RANK = 10.0, 0.1
"""Ranks get this time to stop by themselves: `_STOP_SECONDS`, and `_STOP_SECONDS_PER_RANK` more for each rank.
`dismiss` needs up to half of this time for workers in an episode, and the other half for its last messages."""
_TERMINATE_SECONDS = 3.0  # the time that mpirun has to end the ranks
_THREAD = threading.local()  # `leads`: whether this thread does the work of rank 0, for which the other ranks wait
_RUNNING: "weakref.WeakSet[StartedRanks]" = weakref.WeakSet()  # the ranks to close when the script exits


@cache
def all_ranks() -> Transport:
    """Return the transport of this process: MPI's ranks if a launcher started several, else this process alone.

    If an exception ends the script on one rank, this rank ends all ranks (`end_all`), because the others would wait
    forever. If the script ends without an exception, this rank informs the others (`announce_end`).
    """
    transport = connect()
    if transport.size > 1:
        sys.excepthook = partial(end_all, transport, sys.excepthook)
        atexit.register(announce_end, transport)
    return transport


def announce_end(transport: Transport) -> None:
    """Send `Ended`, because the script of this rank has ended: rank 0 to all ranks, and the others to rank 0.

    Rank 0 goes on without a rank that has sent `Ended`. If rank 0 has sent it, the other ranks do not wait for rank 0
    any more, and rank 0 ends ranks that hang.
    """
    frame = messages.encode(messages.Ended())
    receivers = set(range(1, transport.size)) if transport.rank == 0 else {0}
    for rank in receivers:
        transport.send(rank, frame)
    # Most ranks end together. Receive their messages, because some versions of MPI warn of messages left over.
    await_ends(transport, receivers, patience=1.0)
    transport.flush(patience=1.0)
    if transport.rank == 0 and not all_have_left(transport):
        try:
            sys.stdout.flush()
        finally:
            # MPI_Finalize would wait forever for a rank that hangs. The exit code is 0: no exception ended this script.
            transport.abort(0)


def end_all(transport: Transport, print_error: Callable[..., object], *raised: Any) -> None:
    """Print an exception that ends this rank. End the other ranks, too, unless they end by the same exception.

    Args:
        transport: Connects this rank with the other ranks.
        print_error: The former `sys.excepthook`.
        raised: The arguments of `print_error`: a type, an exception, a traceback.
    """
    try:
        print_error(*raised)
        sys.stdout.flush()
    finally:
        # The other ranks wait for this rank, so end them even if the exception cannot be printed.
        _, error, _ = raised
        if not (hasattr(error, ON_ALL_RANKS) and all_have_left(transport)):
            transport.abort(1)


class Collective:
    """The ranks of a script that calls the same functions on each of them.

    A callback of `evolve.train` runs on rank 0 alone, while the other ranks wait for rank 0. So if the callback itself
    calls a function that uses ranks, this function uses rank 0 alone.

    Args:
        make_rollout: Makes a rollout from an experiment's TOML text.
        shared: The copy of the shared state on this rank.
    """

    def __init__(self, make_rollout: MakeRollout, shared: SharedState) -> None:
        self._shared = shared
        self.transport = Transport() if getattr(_THREAD, "leads", False) else all_ranks()
        """The transport between the ranks; this rank alone inside a callback."""
        self._rollouts = KeptRollouts(make_rollout)
        self.stop_reason: Callable[[], str | None] = lambda: None
        """Called often by rank 0; returns a reason to stop early, or None."""

    @property
    def is_rank_0(self) -> bool:
        """Whether this is rank 0."""
        return self.transport.rank == 0

    def coordinator(self) -> Coordinator:
        """Return a coordinator of the other ranks; for rank 0 only."""
        return Coordinator(self.transport, self._rollouts, self._current_reason, exit_on_hang=False)

    def _current_reason(self) -> str | None:
        return self.stop_reason()  # which may be set after the coordinator was made

    def call(self, work: Callable[[Coordinator], bytes]) -> bytes:
        """Do `work` on rank 0. Each rank closes its environments, and returns the answer or raises the error."""
        with closing(self):
            if not self.is_rank_0:
                return self.follow(self.close)
            # A callback may call this method again, so restore the former value at the end.
            former = getattr(_THREAD, "leads", False)
            try:
                _THREAD.leads = True
                answer = work(self.coordinator())
            except BaseException as error:
                # Also after KeyboardInterrupt and SystemExit, because the other ranks wait for an answer.
                self.release_error(error)
                raise
            finally:
                _THREAD.leads = former
            self.release(answer)
            return answer

    def close(self) -> None:
        """Close the environments of this rank."""
        self._rollouts.close()

    def follow(self, before_leaving: Callable[[], None] = lambda: None) -> bytes:
        """Work for rank 0 until it releases this rank; return the answer or raise the error that rank 0 has sent.

        before_leaving: As for `serve`.
        """
        answer = serve(self.transport, self._rollouts, lambda: None, self._shared, before_leaving)
        if answer[:1] == _ERROR:
            # All ranks raise this error, so `end_all` need not end other ranks by force.
            error = error_from_json(answer[1:])
            setattr(error, ON_ALL_RANKS, True)
            raise error
        return answer[1:]

    def release(self, answer: bytes) -> None:
        """End `follow` on the other ranks with an answer. Raises RunError if a rank does not confirm."""
        if not dismiss(self.transport, _ANSWER + answer, silence_seconds()):
            raise RunError("not all ranks answered: one of them hangs or has died")

    def release_error(self, error: BaseException) -> None:
        """End `follow` on the other ranks with the error that this rank raises."""
        if dismiss(self.transport, _ERROR + error_to_json(error)):
            with suppress(Exception):  # an exception of another library may refuse attributes
                setattr(error, ON_ALL_RANKS, True)


class Link:
    """One end of the socket between the script and rank 0. If the other end has closed, `send` does nothing."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._sending = threading.Lock()  # several threads may send

    @classmethod
    def to_script(cls) -> "Link":
        """Connect rank 0 to the script, and return rank 0's end of the socket. Exit if the script no longer listens."""
        end = socket.socket(socket.AF_UNIX)
        try:
            end.connect(os.environ[_SOCKET])
        except OSError:
            sys.exit(1)
        return cls(end)

    @property
    def is_closed(self) -> bool:
        """Whether the other end has closed."""
        try:
            # MSG_PEEK leaves a message in the socket, for `receive`.
            return self._end.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def send(self, content: bytes) -> None:
        """Send a message."""
        with self._sending, suppress(OSError):
            self._end.sendall(len(content).to_bytes(_LENGTH_BYTES) + content)

    def receive(self) -> bytes | None:
        """Return the next message; None if the other end has closed."""
        length = self._read(_LENGTH_BYTES)
        return None if length is None else self._read(int.from_bytes(length))

    def _read(self, size: int) -> bytes | None:
        """Return the next `size` bytes; None if the other end closes before."""
        # `recv` allocates as many bytes as it may receive, so ask for at most 1 MiB at a time.
        content = bytearray()
        with suppress(OSError):
            while len(content) < size and (part := self._end.recv(min(size - len(content), 2**20))):
                content += part
        return bytes(content) if len(content) == size else None

    def close(self) -> None:
        """Close this end. If another thread waits in `receive`, its call returns None."""
        with suppress(OSError):
            # `close` alone would not wake a thread that waits in `recv`.
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()


class StartedRanks:
    """Ranks on this machine that execute a function for this process.

    Args:
        workers: The number of workers; rank 0 is started in addition.
        function: The function that each rank calls, as `module:name`.

    Raises:
        InputError: mpi4py, mpirun or a directory for temporary files is missing.
        RunError: The ranks ended before they connected, or did not begin in time.
    """

    def __init__(self, workers: int, function: str) -> None:
        check_start("workers")
        module, _, name = function.partition(":")
        begin_limit = begin_seconds(workers + 1)
        self._stop_seconds = _STOP_SECONDS + _STOP_SECONDS_PER_RANK * (workers + 1)
        words = [*mpirun_words(workers + 1), sys.executable, "-c", f"{_PROGRAM}from {module} import {name}; {name}()"]
        self._pid = os.getpid()
        # Make a folder for the socket.
        parent = tempfile.gettempdir()
        if len(os.fsencode(parent)) > _MAX_SOCKET_PARENT:
            parent = "/tmp"
        self._folder = tempfile.TemporaryDirectory(prefix="evolve-", ignore_cleanup_errors=True, dir=parent)
        path = str(Path(self._folder.name) / "s")
        # Listen, start the ranks, and wait until rank 0 connects.
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(1)
            # With a short timeout, `_accept` also notices if the ranks have ended.
            listener.settimeout(0.1)
            # Python ignores entries of `sys.path` that are not texts, and JSON may have no form for such entries.
            search_path = json.dumps([folder for folder in sys.path if isinstance(folder, str)])
            environment = {SESSION_FOLDER: self._folder.name} | mpirun_environment()
            self._process = subprocess.Popen(
                words,
                env=environment | {_SOCKET: path, _SEARCH_PATH: search_path},
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C then reaches this process alone
            )
            with on_error(self._end):
                self.link = self._accept(listener, begin_limit)
                """The link to rank 0."""
        _RUNNING.add(self)

    def _accept(self, listener: socket.socket, begin_limit: float) -> Link:
        """Return the link to rank 0. Raises RunError if rank 0 does not connect within `begin_limit` seconds."""
        deadline = time.monotonic() + begin_limit
        while time.monotonic() < deadline:
            with suppress(TimeoutError):
                end, _ = listener.accept()
                end.settimeout(None)
                return Link(end)
            if self._process.poll() is not None:
                raise self.unexpected_end()
        cure = f"Set {CONNECT} if they need more time."
        raise RunError(f"the ranks did not begin within {begin_limit:g} s: mpirun is killed. {cure}")

    def unexpected_end(self, *cure: str | Setting) -> RunError:
        """Wait until the ranks end, at most `_stop_seconds`; return the error for ranks that gave no answer.

        cure: A sentence at the end of the error.
        """
        self._wait(self._stop_seconds)
        code = self._process.poll()
        end = "the ranks have not ended" if code is None else f"the ranks ended with code {code}"
        return RunError(f"{end}; stderr has their messages. ", *cure)

    def close(self) -> None:
        """Let the ranks stop by themselves. Kill ranks that have not stopped in time, see `_STOP_SECONDS`."""
        # A process that was forked from the script has a copy of this object, but the ranks belong to the script.
        if os.getpid() != self._pid:
            return
        _RUNNING.discard(self)
        try:
            self.link.close()
            self._wait(self._stop_seconds)
        finally:
            self._end()

    def _wait(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def _end(self) -> None:
        """Let mpirun kill the ranks that have not stopped. If mpirun hangs, kill mpirun and the ranks."""
        try:
            self._process.terminate()  # does nothing if mpirun has ended
            self._wait(_TERMINATE_SECONDS)
        finally:
            if self._process.poll() is None:
                kill_launcher(self._process)
            self._folder.cleanup()


@atexit.register
def _close_all() -> None:
    """End all ranks when the script exits, even if the script has not finished a loop over generations."""
    for ranks in list(_RUNNING):
        ranks.close()
