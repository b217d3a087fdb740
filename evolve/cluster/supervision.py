"""The start of ranks by a launcher such as mpirun or srun, seen by the process that starts them and by the ranks.

A `Supervisor` runs the launcher, forwards signals to the ranks, and receives the exit code of rank 0 through a file
(`hand_over`). A rank finds by environment variables which launcher has started it (`launched`, `started_by`).
"""

import ctypes
import fcntl
import math
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from evolve.errors import InputError

_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
EXIT_CODE = "EVOLVE_EXIT_CODE"
"""The environment variable that names the file for the exit code of rank 0."""
_CODE_CHARACTERS = 16
"""The length of the text in this file."""
CONNECT = "EVOLVE_CONNECT_SECONDS"
"""The variable that sets the seconds within which all ranks have to come together."""
_LEAST_CONNECT, _CONNECT_PER_RANK = 60.0, 0.5  # seconds
_START_SECONDS = 60.0  # seconds that mpirun may take until the ranks begin to connect
COMMAND = "EVOLVE_COMMAND"
"""The variable with the command line of the user, if it is not the command line of this process."""
_WORKERS = "EVOLVE_WORKERS"
"""The variable with the number of workers, for ranks that `supervise` has started."""
# The two variables in which each launcher gives its processes the number of ranks, and the rank.
_SRUN = "SLURM_STEP_NUM_TASKS"
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),  # Open MPI
    ("PMI_SIZE", "PMI_RANK"),  # MPICH and Intel MPI
    (_SRUN, "SLURM_PROCID"),
    ("PALS_SIZE", "PALS_RANKID"),  # HPE Cray
)
SESSION_FOLDER = "PRTE_MCA_prte_local_tmpdir_base"
"""The variable with the directory in which Open MPI's launcher makes a folder, named by its process number. A killed
launcher leaves its folder behind, and a later launcher with the same number would end with code 213. In containers
numbers recur often, so each launcher gets its own directory."""
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""The signals that ask a command to stop. SIGHUP: its terminal is closed. SIGUSR1: SLURM's warning."""
CHECK_EVERY = 1.0
"""Seconds between two checks of the launcher and of the exit code of rank 0."""
ONE_SIGNAL = 0.25
"""Signals of one number within these seconds count as one: `timeout` signals its child, then the child's group."""
# Options of prctl(2).
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command that starts ranks.

    Attributes:
        code: The exit code.
        is_from_rank_0: Whether rank 0 has handed over the code. If not, rank 0 died or runs on another host, and the
            code is the launcher's code, or 1 if rank 0 died but the launcher's code is 0.
        start_again: Whether rank 0 asks for another start, because a host or another rank was lost.
    """

    code: int
    is_from_rank_0: bool = False
    start_again: bool = False


_AFTER_A_DEATH = (
    "The messages above may name the cause. Complete generations are kept. `evolve launch` goes on without lost "
    "workers. Without --workers, a crash of an environment shows a traceback."
)


class Supervisor:
    """Runs commands that start ranks, one after another, and forwards signals to the ranks.

    say: Prints a message for the user.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._exit_code_file = Path()
        self._begun = True  # whether rank 0 has called `say_begun`; True if it runs on another host
        self._num_signals = 0
        self._last_signal = 0, -math.inf  # its number, and the time at which it came
        self._ranks_were_asked = False  # whether this process has asked the ranks to stop
        self.stopping = False
        """Whether a signal has asked this process to stop."""
        # If stdout or stderr is a file, write only at its end. Otherwise later output could overwrite the line that a
        # rank appends to the same file after Ctrl-C (`write_to_stderr_of_mpirun`).
        for descriptor in (1, 2):
            with suppress(OSError):
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
        for number in STOPPING:
            # nohup ignores SIGHUP, so that a run outlives its terminal. A shell script starts its background commands
            # with SIGINT ignored, but `kill -INT` still has to stop them.
            if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._pass_on)

    def run(
        self,
        words: list[str],
        environment: dict[str, str],
        should_stop: Callable[[], bool] = lambda: False,
        end_limit: float = 30.0,
        begin_limit: float = math.inf,
    ) -> Outcome:
        """Run a command; return its outcome.

        Args:
            words: The command.
            environment: Its environment variables.
            should_stop: Called every second until it returns True. Then the ranks are asked to stop.
            end_limit: The seconds within which the launcher must end after rank 0 has handed over its exit code.
            begin_limit: The seconds within which rank 0 must begin; infinity if rank 0 runs on another host. The
                launcher is killed after either limit.
        """
        with tempfile.TemporaryDirectory(prefix="evolve-", ignore_cleanup_errors=True) as folder:
            exit_code_file = self._exit_code_file = Path(folder) / "exit-code"
            self._begun, self._ranks_were_asked = begin_limit == math.inf, False
            # If the launcher is killed, its ranks become children of this process, and `_end_orphans` kills them. It
            # must not kill earlier children: after `exec evolve` in a shell script these are children of the shell.
            earlier_children = children(os.getpid())
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            self._process = subprocess.Popen(
                words,
                # `environment` may have a SESSION_FOLDER of its own, but EXIT_CODE always names the file of this start.
                env={SESSION_FOLDER: folder} | environment | {EXIT_CODE: str(exit_code_file)},
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C then reaches this process alone
                preexec_fn=partial(_end_with_parent, os.getpid()),  # noqa: PLW1509 - this process has started no thread
            )
            launcher_code = self._wait(self._process, should_stop, end_limit, begin_limit)
            _end_orphans(earlier_children)
            # The file has the exit code and perhaps the word "again", see `hand_over`.
            handed_over = exit_code_file.read_text().split() if exit_code_file.exists() else []
            if handed_over:
                return Outcome(int(handed_over[0]), is_from_rank_0=True, start_again=len(handed_over) > 1)
            if launcher_code < 0:  # a signal ended the launcher; as in a shell, the code is 128 + the signal
                return Outcome(128 - launcher_code)
            # Rank 0 wrote no exit code. If rank 0 has begun, but the file is missing, then rank 0 runs on another host,
            # or the system removed the file, so the launcher's code counts. Otherwise rank 0 died, so 0 is no success.
            has_died = exit_code_file.exists() or not self._begun
            return Outcome(1 if has_died and launcher_code == 0 else launcher_code)

    def _wait(
        self, launcher: subprocess.Popen[bytes], should_stop: Callable[[], bool], end_limit: float, begin_limit: float
    ) -> int:
        """Wait for the end of a launcher, and return its exit code. For the arguments see `run`."""
        must_stop, handed_over_at, started_at = False, None, time.monotonic()
        while True:
            with suppress(subprocess.TimeoutExpired):
                return launcher.wait(CHECK_EVERY)
            now = time.monotonic()
            # At first rank 0 writes only blanks, see `say_begun`.
            if handed_over_at is None and self._exit_code_file.exists() and self._exit_code_file.read_text().strip():
                handed_over_at = now
            # At the start and at the end, the launcher can wait forever for a lost host.
            if handed_over_at is not None and now - handed_over_at > end_limit:
                launcher.kill()
            elif not self._has_begun() and now - started_at > begin_limit:
                cure = f"Set {CONNECT} if they need more time."
                self._say(f"the ranks did not begin within {begin_limit:g} s: their launcher is killed. {cure}")
                launcher.kill()
            # Ask the ranks only once, because a second SIGUSR1 kills a rank that is stopping. A rank that has not begun
            # may not catch the signal, so a signal that came earlier waits until rank 0 has begun.
            must_stop = must_stop or self.stopping or (handed_over_at is None and should_stop())
            if must_stop and not self._ranks_were_asked and self._has_begun():
                self._ranks_were_asked = True
                launcher.send_signal(signal.SIGUSR1)

    def _has_begun(self) -> bool:
        """Return whether rank 0 has begun; remember it, because the system may remove the exit-code file later."""
        self._begun = self._begun or self._exit_code_file.exists()
        return self._begun

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        """Ask the ranks to stop at the first signal. End them at the second by SIGTERM, and at the third by SIGKILL.

        Before rank 0 has begun, the second signal kills the launcher.
        """
        now = time.monotonic()
        last_number, last_time = self._last_signal
        if number == last_number and now - last_time < ONE_SIGNAL:
            return
        self._last_signal = number, now
        self.stopping = True
        self._num_signals += 1
        if self._process is None or self._process.returncode is not None:
            if self._num_signals == 1:
                self._say(f"{signal.Signals(number).name}: stopping")
            return  # if the launcher is just being started, `_wait` asks the ranks to stop
        has_begun = self._has_begun()
        if self._num_signals == 1:
            time_of_request = "" if has_begun else " as soon as they have started"
            text = f"the ranks are asked to stop{time_of_request}; a second signal ends them at once"
            self._say(f"{signal.Signals(number).name}: {text}")
            if self._ranks_were_asked or not has_begun:  # `_wait` has asked the ranks, or will ask them
                return
            self._ranks_were_asked = True
        signal_for_ranks = {1: signal.SIGUSR1, 2: signal.SIGTERM}.get(self._num_signals, signal.SIGKILL)
        self._process.send_signal(signal_for_ranks if has_begun else signal.SIGKILL)


def supervise(words: list[str], environment: dict[str, str], workers: int, say: Callable[[str], None]) -> int:
    """Run a command that starts ranks; return the exit code of rank 0, or 1 if a rank or the launcher has died.

    Args:
        words: The command.
        environment: Its environment variables.
        workers: The number of workers among the ranks.
        say: Prints a message for the user.
    """
    supervisor = Supervisor(say)
    outcome = supervisor.run(words, environment | {_WORKERS: str(workers)}, begin_limit=begin_seconds(workers + 1))
    if outcome.code and not outcome.is_from_rank_0:
        say(f"the ranks ended with code {outcome.code}: a rank or mpirun was killed or has failed. {_AFTER_A_DEATH}")
        return 1
    if outcome.start_again and not supervisor.stopping:
        say(f"this process was not asked to stop: a rank or a host was lost. {_AFTER_A_DEATH}")
        return 1
    return outcome.code


def connect_seconds(size: int) -> float:
    """Return the seconds within which `size` ranks have to come together. Raises InputError if CONNECT is invalid."""
    return limit_seconds(CONNECT, _LEAST_CONNECT + _CONNECT_PER_RANK * size)


def begin_seconds(size: int) -> float:
    """Return the seconds within which mpirun has to start `size` ranks, and all ranks have to come together.

    Raises InputError if CONNECT is invalid.
    """
    return connect_seconds(size) + _START_SECONDS


def limit_seconds(variable: str, default: float) -> float:
    """Return the seconds in an environment variable, else `default`. Raises InputError unless 1 ≤ seconds < 1e6."""
    text = os.environ.get(variable)
    if text is None:
        return default
    seconds = -1.0
    with suppress(ValueError):
        seconds = float(text)
    # This comparison also refuses NaN.
    if not 1 <= seconds < 1e6:
        raise InputError(variable, "seconds, from 1 to less than a million", text)
    return seconds


def _end_with_parent(parent: int) -> None:
    """Let Linux end this new child process when its parent dies, even by SIGKILL. parent: the parent's number."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent has ended already
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    """Set an attribute of this process (Linux)."""
    if _LIBC is not None:
        _LIBC.prctl(option, value, 0, 0, 0)


def _end_orphans(earlier_children: Collection[int]) -> None:
    """Kill processes that a killed launcher left behind. Linux makes them children of this process, see `prctl(2)`.

    earlier_children: The children that this process had before it started the launcher.
    """
    with suppress(OSError):
        # The children of a killed process become children of this process in turn, so look until there are none.
        while orphans := set(children(os.getpid())).difference(earlier_children):
            for pid in orphans:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def children(pid: int) -> list[int]:
    """Return the process numbers of the children of a process (Linux)."""
    pids: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            pids += map(int, path.read_text().split())
    return pids


def _descendants(pid: int) -> list[int]:
    """Return the process numbers of all descendants of a process (Linux)."""
    pids: list[int] = []
    for child in children(pid):
        pids += [child, *_descendants(child)]
    return pids


def kill_launcher(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Kill a launcher, which leads a process group, and its ranks."""
    # Open MPI starts each rank in its own process group, and MPICH starts ranks through another process.
    # Find the ranks first: after the death of the launcher they are no longer its descendants.
    ranks = _descendants(process.pid)
    with suppress(OSError):  # the launcher may have ended just now
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pid in ranks:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def supervised_workers() -> int | None:
    """Return the number of workers of the job that `supervise` has started; None without `supervise`."""
    workers = os.environ.get(_WORKERS, "")
    return int(workers) if workers.isdecimal() else None


class Launched(NamedTuple):
    """The number of ranks of a job, and the rank of this process."""

    size: int
    rank: int


def launched() -> Launched:
    """Return the size and the rank that the launcher announced; 1 and 0 without a launcher."""
    for size_variable, rank_variable in _LAUNCHERS:
        if _is_rank_of(size_variable):
            return Launched(int(os.environ[size_variable]), int(os.environ.get(rank_variable, "0")))
    return Launched(1, 0)


def _is_rank_of(size_variable: str) -> bool:
    """Return whether this process is a rank of the launcher that sets a variable to the number of ranks."""
    if not os.environ.get(size_variable, "").isdigit():
        return False
    # `srun -n 4 --pty bash` opens a shell in one of four tasks. Commands in this shell inherit SLURM's variables, but
    # are no ranks. So with --pty, only a process that srun has started itself is a rank. With --mpi=pmix each process
    # counts as a rank, because a script between srun and a rank would look like a shell.
    may_be_in_shell = size_variable == _SRUN and "SLURM_PTY_PORT" in os.environ and "PMIX_RANK" not in os.environ
    return not (may_be_in_shell and _is_in_shell())


def _is_in_shell() -> bool:
    """Return whether this process has a controlling terminal, and a parent other than SLURM's daemon."""
    with suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
        return Path(f"/proc/{os.getppid()}/comm").read_text().strip() != "slurmstepd"
    return False


def started_by() -> str | None:
    """Return the command that started this process as a rank, such as "srun -n 4"; None without a launcher."""
    for size_variable, _ in _LAUNCHERS:
        ranks = os.environ.get(size_variable, "")
        by_slurm = size_variable == _SRUN
        is_batch_script = by_slurm and ranks == "1"  # SLURM runs the batch script as a step of one task
        if _is_rank_of(size_variable) and not is_batch_script:
            return f"{'srun' if by_slurm else 'mpirun'} -n {ranks}"
    return None


def is_supervised() -> bool:
    """Return whether a `Supervisor` has started this process, and waits for its exit code."""
    return EXIT_CODE in os.environ


def say_begun() -> None:
    """Tell the supervising process, if there is one, that all ranks have connected."""
    if is_supervised():
        with suppress(OSError):  # the supervisor is on another host
            # The blanks reserve disk space for the exit code: a full disk must not turn success into failure.
            Path(os.environ[EXIT_CODE]).write_text(" " * _CODE_CHARACTERS)


def hand_over(code: int, start_again: bool = False) -> int:
    """Hand an exit code to the supervising process, if any; return the exit code that this process must use.

    After it has handed over a code, this process must use 0: the launcher would report any other code as a failure.

    start_again: Whether the supervising process should start the command again.
    """
    exit_code_file = os.environ.get(EXIT_CODE)
    if exit_code_file is None:
        return code
    text = f"{code} again" if start_again else str(code)
    try:
        # The file is opened without truncation, so that its disk space stays reserved.
        with open(os.open(exit_code_file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(text.ljust(_CODE_CHARACTERS))
    except OSError:  # the supervisor is on another host
        return code
    return 0
