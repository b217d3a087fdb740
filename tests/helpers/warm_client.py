"""Stand for a Python process that a warm server forks: `FOLDER/python WORDS`.

The client hands its arguments, environment, folder, cores and open files to the server (`warm_server.py`), which forks
the process. The client forwards signals to that process and ends as it ends. If the client is killed, the server kills
the process. It imports no more than it needs, because its start is all the time that a warm process takes.
"""

import _signal
import _socket
import marshal
import os
import sys
from array import array

_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")


def open_files(socket):
    """Return the numbers of the open files, without the socket."""
    listed = map(int, os.listdir("/proc/self/fd"))
    return [number for number in listed if number != socket.fileno() and os.path.exists(f"/proc/self/fd/{number}")]


def receive(socket):
    """Return the server's next number."""
    received = socket.recv(8)
    if not received:
        sys.exit("the warm server has ended, or could not fork a process")
    return int.from_bytes(received, "little")


def main():
    """Have a process forked, and end as it ends."""
    socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        socket.connect(os.path.join(os.path.dirname(os.path.abspath(__file__)), "socket"))
    except OSError:  # the server is gone, before what it has started
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    files = open_files(socket)
    told = sys.argv[1:], dict(os.environb), os.getcwd(), sorted(os.sched_getaffinity(0)), files
    request = marshal.dumps(told)
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array("i", files))]
    socket.sendmsg([len(request).to_bytes(8, "little")], rights)
    socket.sendall(request)
    pid = receive(socket)

    def forward(number, _):
        try:  # noqa: SIM105 — contextlib would take time to import
            os.kill(pid, number)
        except ProcessLookupError:  # the process has just ended, and the server is about to say so
            pass

    for name in _FORWARDED:
        _signal.signal(getattr(_signal, name), forward)
    code = os.waitstatus_to_exitcode(receive(socket))
    if code < 0:  # a signal ended the process
        _signal.signal(-code, _signal.SIG_DFL) if -code != _signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
