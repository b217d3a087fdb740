"""A command whose ranks this process has started: it passes on signals, output and the exit code, and outlives nobody.

Ranks are asked to stop by SIGUSR1, which every mpirun passes on. (SIGINT and SIGTERM make Open MPI's mpirun kill them a
quarter of a second later, and drop what they say meanwhile.) SIGUSR1 kills ranks that are still starting, so it waits
until they have begun, where that is seen. The exit code comes in a file, which rank 0 makes when all have begun: mpirun
comments on exit codes that are not 0.
"""

import ctypes
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
EXIT_CODE = "EVOLVE_EXIT_CODE"
"""The variable that names the file for the exit code of rank 0."""
COMMAND = "EVOLVE_COMMAND"
"""The variable with the command line that the user gave, where that is another one."""
_WORKERS = "EVOLVE_WORKERS"
_SESSION_FOLDER = "PRTE_MCA_prte_local_tmpdir_base"
"""Where Open MPI's launcher has a folder named by its process number. One that was killed leaves it behind, and a later
one of the same number, which containers have again and again, ends at once with code 213."""
_STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name))
_LOOK_EVERY = 1.0  # seconds
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Outcome:
    """How a command that starts ranks has ended.

    Attributes:
        code: The exit code.
        is_own: Whether it is that of rank 0, which came to its end; else it is what the launcher made of a death.
        again: Whether rank 0 asks to be started again.
    """

    code: int
    is_own: bool = False
    again: bool = False


class Supervisor:
    """Runs commands that start ranks, one after another; what asks this process to stop asks the ranks to.

    say: Tells the user something.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._begun: Callable[[], bool] = lambda: True
        self._signals = 0
        self._held = False
        self.stopping = False
        """Whether this process was asked to stop."""
        for number in _STOPPING:
            signal.signal(number, self._pass_on)

    def run(
        self,
        words: list[str],
        environment: dict[str, str],
        look: Callable[[], bool] = lambda: False,
        linger: float = 30.0,
        begin: float = math.inf,
        here: bool = True,
    ) -> Outcome:
        """Run a command; return how it ended.

        Args:
            words: The command.
            environment: Its environment variables.
            look: Called every second; returns whether to ask the ranks to stop.
            linger: How many seconds the launcher may take to end when rank 0 has.
            begin: After how many seconds it is killed if rank 0 has not begun, which runs on this host then.
            here: Whether rank 0 runs on this host.
        """
        with tempfile.TemporaryDirectory(prefix="evolve-", ignore_cleanup_errors=True) as folder:
            exit_code_file = Path(folder) / "exit-code"
            self._begun = exit_code_file.exists if here else lambda: True
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            self._process = subprocess.Popen(
                words,
                env={_SESSION_FOLDER: folder} | environment | {EXIT_CODE: str(exit_code_file)},
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C then reaches this process alone
                preexec_fn=_end_with(os.getpid()),  # noqa: PLW1509 - this process has started no thread
            )
            code = self._wait(self._process, exit_code_file, look, linger, begin)
            _end_orphans()
            if exit_code_file.exists() and (said := exit_code_file.read_text().split()):
                return Outcome(int(said[0]), is_own=True, again=len(said) > 1)
            return Outcome(128 - code if code < 0 else code or 1)  # rank 0 did not come to its end

    def _wait(
        self,
        process: subprocess.Popen[bytes],
        exit_code_file: Path,
        look: Callable[[], bool],
        linger: float,
        begin: float,
    ) -> int:
        asked, ended, started = False, None, time.monotonic()
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_LOOK_EVERY)
            now = time.monotonic()
            if ended is None and _is_written(exit_code_file):
                ended = now
            if (ended is not None and now - ended > linger) or (now - started > begin and not exit_code_file.exists()):
                process.kill()  # it waits for a host that was lost
            if self._held and self._begun():
                self._held = False
                process.send_signal(signal.SIGUSR1)
            if ended is None and not asked and look():
                asked = True
                process.send_signal(signal.SIGUSR1)

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        """Ask the ranks to stop at the first signal, and end them at the second and the third."""
        self.stopping = True
        self._signals += 1
        if self._process is None or self._process.returncode is not None:
            return
        begun = self._begun()
        if self._signals == 1:
            when = "" if begun else " as soon as they have started"
            text = f"the ranks are asked to stop{when}; a second signal ends them at once"
            self._say(f"{signal.Signals(number).name}: {text}")
            self._held = not begun
            if self._held:
                return
        way = {1: signal.SIGUSR1, 2: signal.SIGTERM}.get(self._signals, signal.SIGKILL)
        self._process.send_signal(way if begun else signal.SIGKILL)


def supervise(words: list[str], environment: dict[str, str], workers: int, say: Callable[[str], None]) -> int:
    """Run a command that starts ranks; return their exit code.

    Args:
        words: The command.
        environment: Its environment variables.
        workers: How many of the ranks work.
        say: Tells the user something.
    """
    return Supervisor(say).run(words, environment | {_WORKERS: str(workers)}).code


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


def supervised_workers() -> int | None:
    """Return how many workers the process that supervises this one has started; None where there is none."""
    workers = os.environ.get(_WORKERS, "")
    return int(workers) if workers.isdecimal() else None


def is_supervised() -> bool:
    """Return whether a process of ours has started this one, and waits for its exit code."""
    return EXIT_CODE in os.environ


def _is_written(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def say_begun() -> None:
    """Let the process that supervises this one, if any, know that all ranks have come together."""
    if EXIT_CODE in os.environ:
        with suppress(OSError):  # it is on another host
            Path(os.environ[EXIT_CODE]).touch()


def hand_over(code: int, again: bool = False) -> int:
    """Hand an exit code to the process that supervises this one, if any; return with which code this one is to end.

    again: whether the command is to be started again.
    """
    exit_code_file = os.environ.get(EXIT_CODE)
    if exit_code_file is None:
        return code
    try:
        Path(exit_code_file).write_text(f"{code} again" if again else str(code))
    except OSError:  # the supervisor is on another host
        return code
    return 0
