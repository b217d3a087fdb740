"""Fork Python processes that have imported what most commands import: `python warm_server.py FOLDER`.

Half a second of a short command is the import of its modules. `warm_client.py` stands for the process: it hands over
its arguments, environment, folder, cores and open files, and the server forks a process that goes on with them as
`python WORDS` would. All modules of the list below are in `sys.modules` from the start, and all processes have the same
hash seed; so tests of imports, of interpreters and of determinism start processes of their own.

The server ends, with all its processes, when its stdin is closed.
"""

import ctypes
import fcntl
import gc
import importlib
import io
import marshal
import os
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import traceback
import warnings
from array import array
from contextlib import suppress

IMPORTED = (
    "evolve.cli.run", "evolve.cli.app", "evolve.api", "gymnasium", "evolve.environments.gymnasium_engine", "numpy.ma"
)  # fmt: skip
_HIGH = 512  # from here on are the numbers of received files until they get their own
_MOST_FILES = 64
_DIE_WITH_PARENT = 1  # of prctl


class Server:
    """Forks processes for clients that connect to a socket, and tells each client how its process ended."""

    def __init__(self, path):
        self._events = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(128)
        self._events.register(self._listener, selectors.EVENT_READ, self._accept)
        self._events.register(0, selectors.EVENT_READ, self._stop)
        self._clients = {}  # by process
        self._ends = {}  # file descriptors that are readable when their process ends, by process

    def next_process(self):
        """Serve until a process is forked; return its request in this process. The server itself never returns."""
        while True:
            for key, _ in self._events.select():
                try:
                    request = key.data(key.fileobj)
                except Exception:  # one process must not take the server with it
                    traceback.print_exc()
                    continue
                if request is not None:
                    return request

    def _stop(self, _):
        for pid in self._clients:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    def _accept(self, listener):
        client, received = listener.accept()[0], array("i")
        try:
            head, rights, _, _ = client.recvmsg(8, socket.CMSG_SPACE(_MOST_FILES * 4))
            received.frombytes(rights[0][2][: len(rights[0][2]) // 4 * 4] if rights else b"")
            size = int.from_bytes(head, "little")
            with client.makefile("rb") as stream:
                request = marshal.loads(stream.read(size))
            pid = os.fork()
        except (OSError, EOFError, ValueError):  # the client was killed, or the system has too many processes
            client.close()
            pid = None
        if pid == 0:
            self._leave(client)
            _take_files(received, request[-1])
            return request
        # If the server kept the other end of a pipe, its reader would wait for the end of the server.
        for number in received:
            os.close(number)
        if pid is None:
            return None
        self._clients[pid] = client
        self._ends[pid] = os.pidfd_open(pid)
        self._events.register(self._ends[pid], selectors.EVENT_READ, lambda _: self._end(pid))
        self._events.register(client, selectors.EVENT_READ, lambda _: self._kill(pid))
        self._tell(client, pid)
        return None

    def _tell(self, client, number):
        with suppress(OSError):  # it was killed; then its connection is readable, and its process is killed, too
            client.sendall(number.to_bytes(8, "little"))

    def _kill(self, pid):
        """Kill the process of a killed client; the event may come with the end of the process."""
        if pid in self._clients:
            self._events.unregister(self._clients[pid])
            os.kill(pid, signal.SIGKILL)

    def _end(self, pid):
        status = os.waitpid(pid, 0)[1]
        end, client = self._ends.pop(pid), self._clients.pop(pid)
        self._events.unregister(end)
        with suppress(KeyError):  # it was killed
            self._events.unregister(client)
        os.close(end)
        self._tell(client, status)
        client.close()

    def _leave(self, client):
        """Close the server's files in a forked process."""
        self._events.close()
        for each in (client, self._listener, *self._clients.values()):
            each.close()
        for end in self._ends.values():
            os.close(end)


def _take_files(received, numbers):
    """Give received files the numbers that they have in the client, and close the server's streams."""
    high = [fcntl.fcntl(number, fcntl.F_DUPFD, _HIGH) for number in received]
    for number in {*received, 0, 1, 2}:
        os.close(number)
    for source, number in zip(high, numbers, strict=True):
        os.dup2(source, number)
        os.close(source)


def _stream(number, mode, **how):
    """Return a standard stream; None if the file is closed."""
    try:
        os.fstat(number)
    except OSError:
        return None
    if mode == "r":
        return open(number, closefd=False)
    binary = io.FileIO(number, "w", closefd=False)
    whole = bool(os.environ.get("PYTHONUNBUFFERED"))
    buffered = binary if whole else io.BufferedWriter(binary)
    return io.TextIOWrapper(buffered, write_through=whole, **how)


def become(request):
    """Take over the arguments, the environment, the folder and the cores of a client."""
    words, environment, folder, cores, _ = request
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    os.setpgid(0, 0)
    os.environb.clear()
    os.environb.update(environment)
    os.chdir(folder)
    os.sched_setaffinity(0, cores)
    tempfile.tempdir = None
    sys.stdin = sys.__stdin__ = _stream(0, "r")
    sys.stdout = sys.__stdout__ = _stream(1, "w", line_buffering=os.isatty(1))
    sys.stderr = sys.__stderr__ = _stream(2, "w", line_buffering=True, errors="backslashreplace")
    for place in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if place in sys.path:
            sys.path.remove(place)
        sys.path.insert(0, place)
    return words


def run(words):
    """Run `python WORDS`."""
    is_safe = False
    while words[0] in ("-W", "-B", "-P"):
        if words[0] == "-W":
            warnings._setoption(words[1])
        is_safe = is_safe or words[0] == "-P"
        words = words[1 + (words[0] == "-W") :]  # -B: nothing is imported anew that could be written
    if words[0] == "-m":
        sys.argv = words[1:]
        if not is_safe:
            sys.path.insert(0, os.getcwd())
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.path.insert(0, "")
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        exec(words[1], vars(main))
    else:
        sys.argv = words
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        runpy.run_path(words[0], run_name="__main__")


def prepare():
    """Do once what almost every process would: build the models of settings, and read versions and the source."""
    from evolve.cluster import Transport
    from evolve.cluster.worker import loaded_versions
    from evolve.config import Config
    from evolve.training.manifest import machine_manifest

    loaded_versions(Config().to_toml())
    machine_manifest(Transport())


def main():
    """Import, prepare, and serve; a forked process leaves the server and runs its own program."""
    if os.fork():
        os._exit(0)
    for name in IMPORTED:
        importlib.import_module(name)
    prepare()
    folder = sys.argv[1]
    server = Server(os.path.join(folder, "socket"))
    del sys.path[0]  # the folder of this file
    print(os.getpid(), flush=True)
    gc.collect()
    gc.freeze()
    request = server.next_process()
    sys.executable = os.path.join(folder, "python")  # what this process starts is warm, too
    run(become(request))


if __name__ == "__main__":
    main()
