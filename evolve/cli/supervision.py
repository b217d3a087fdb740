"""A command whose ranks this process has started: it passes on signals, output and the exit code, and outlives nobody.

Ranks are asked to stop by SIGUSR1, which every mpirun passes on. (SIGINT and SIGTERM make Open MPI's mpirun kill them a
quarter of a second later, and drop what they say meanwhile.) The exit code comes in a file, since mpirun comments on
those that are not 0.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
_EXIT_CODE = "EVOLVE_EXIT_CODE"
_WORKERS = "EVOLVE_WORKERS"
_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name))
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def supervise(words: list[str], environment: dict[str, str], workers: int, say: Callable[[str], None]) -> int:
    """Run a command that starts ranks; return their exit code.

    Args:
        words: The command.
        environment: Its environment variables.
        workers: How many of the ranks work.
        say: Tells the user something.
    """
    with tempfile.TemporaryDirectory(prefix="evolve-") as folder:
        exit_code_file = Path(folder) / "exit-code"
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        environment = environment | {_EXIT_CODE: str(exit_code_file), _WORKERS: str(workers)}
        process = subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C then reaches this process alone
            preexec_fn=_end_with(os.getpid()),  # noqa: PLW1509 - this process has started no thread
        )
        _pass_on_signals(process, say)
        code = process.wait()
        _end_orphans()
        if exit_code_file.exists():
            return int(exit_code_file.read_text())
        return 128 - code if code < 0 else code or 1  # rank 0 did not come to its end


def _end_with(parent: int) -> Callable[[], None]:
    """Return what makes a new process end when its parent does, even by SIGKILL, where the system is Linux."""

    def in_the_child() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it has ended already
            os._exit(1)

    return in_the_child


def _prctl(option: int, value: int) -> None:
    """Set an attribute of this process, where the system is Linux."""
    if _LIBC is not None:
        _LIBC.prctl(option, value, 0, 0, 0)


def _end_orphans() -> None:
    """Kill what a launcher that was killed has left behind: Linux gives it to this process, see `prctl(2)`."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    with suppress(OSError):
        while left := children.read_text().split():
            for pid in map(int, left):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _pass_on_signals(process: subprocess.Popen[bytes], say: Callable[[str], None]) -> None:
    """Ask the ranks to stop at the first signal, and end them at the second and the third."""
    escalation = iter((signal.SIGUSR1, signal.SIGTERM))

    def pass_on(number: int, _: FrameType | None) -> None:
        way = next(escalation, signal.SIGKILL)
        if way == signal.SIGUSR1:
            say(f"{signal.Signals(number).name}: the ranks are asked to stop; a second signal ends them at once")
        process.send_signal(way)

    for number in _STOPPING:
        signal.signal(number, pass_on)


def supervised_workers() -> int | None:
    """Return how many workers the process that supervises this one has started; None where there is none."""
    workers = os.environ.get(_WORKERS, "")
    return int(workers) if workers.isdecimal() else None


def hand_over(code: int) -> int:
    """Hand an exit code to the process that supervises this one, if any; return with which code this one is to end."""
    exit_code_file = os.environ.get(_EXIT_CODE)
    if exit_code_file is None:
        return code
    try:
        Path(exit_code_file).write_text(str(code))
    except OSError:
        return code
    return 0
