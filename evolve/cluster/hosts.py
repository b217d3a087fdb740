"""Decides how many workers this machine starts, and which hosts of a hostfile take part in a job."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from evolve.cluster.cores import number_of_cores
from evolve.cluster.watchdog import own_addresses
from evolve.errors import InputError, pluralize

# The variables by which launchers tell their processes the number of ranks, and the rank.
_SRUN = "SLURM_STEP_NUM_TASKS"
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),  # Open MPI
    ("PMI_SIZE", "PMI_RANK"),  # MPICH and Intel MPI
    (_SRUN, "SLURM_PROCID"),
    ("PALS_SIZE", "PALS_RANKID"),  # HPE Cray
)
_FEW_STEPS = 100_000
"""One process plays this number of steps of a quick environment while MPI starts, in a second or two."""
_MAX_WORKERS, _MAX_PER_CORE = 256, 16
"""A machine may start `_MAX_WORKERS` workers, or `_MAX_PER_CORE` for each core if that is more."""
# A name must not begin with "-", because ssh would take the name as an option. Numbers have at most nine digits,
# because Python does not convert a number with thousands of digits.
_LINE = re.compile(
    r"(?P<name>[^\s:#-][^\s:#]*)(?::(?P<colon>\d{1,9}))?(?:\s+(?:max_slots=\d+|slots=(?P<slots>\d{1,9})))*"
)
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=8")
"""ssh asks for no password, and does not wait minutes for a lost host."""
PATIENCE = 30.0
"""Seconds that a host may take to connect and to run a command; a busy host may be slow."""
_MISSING = 1  # exit code of `test -x` for a file that is missing or cannot be executed
_CHECK_INTERVAL = 30.0  # seconds between two checks of the hosts that are left out
_ANSWERS_NEEDED = 2  # consecutive answers after which a host is taken back
_LEAST_RUN = 60.0  # seconds that the ranks run before they are stopped to take a host back


class Launched(NamedTuple):
    """The number of ranks of a job, and the rank of this process."""

    size: int
    rank: int


def launched() -> Launched:
    """Return the size and the rank that the launcher announced; 1 and 0 without a launcher."""
    for size, rank in _LAUNCHERS:
        if _announces(size):
            return Launched(int(os.environ[size]), int(os.environ.get(rank, "0")))
    return Launched(1, 0)


def _announces(size: str) -> bool:
    """Return whether a launcher has set the variable of the number of ranks in this process."""
    if not os.environ.get(size, "").isdigit():
        return False
    # `srun -n 4 --pty bash` opens a shell in one of four tasks. Commands in this shell inherit SLURM's variables, but
    # are no ranks. So with --pty, only a process that srun has started itself is a rank. With --mpi=pmix each process
    # counts as a rank, because a script between srun and a rank would look like a shell.
    return size != _SRUN or "SLURM_PTY_PORT" not in os.environ or "PMIX_RANK" in os.environ or not _is_in_shell()


def _is_in_shell() -> bool:
    """Return whether this process has a controlling terminal, and a parent other than SLURM's daemon."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
        return Path(f"/proc/{os.getppid()}/comm").read_text().strip() != "slurmstepd"
    except OSError:
        return False


def started_by() -> str | None:
    """Return the command that started this process as a rank, such as "srun -n 4"; None without a launcher."""
    for size, _ in _LAUNCHERS:
        ranks = os.environ.get(size, "")
        by_slurm = size == _SRUN
        if _announces(size) and not (by_slurm and int(ranks) == 1):  # SLURM's batch script is a step of one task
            return f"{'srun' if by_slurm else 'mpirun'} -n {ranks}"
    return None


@dataclass(frozen=True)
class Work:
    """Upper limits of the work of a command; None if a limit is unknown.

    Attributes:
        episodes_at_once: The number of episodes that are played at a time.
        quick_steps: The number of all environment steps, if the environments are known to be quick.
        threads: The number of threads in which each process plays episodes.
    """

    episodes_at_once: int | None = None
    quick_steps: int | None = None
    threads: int = 1


@dataclass(frozen=True)
class WorkerCount:
    """The number of workers and of cores.

    Attributes:
        workers: The number of workers.
        cores: The number of cores that this machine may use.
        remark: The reason why more workers are not used, or would not help.
        threads: The number of threads in which a process plays if it is the only one. Several workers divide the cores.
    """

    workers: int
    cores: int
    remark: str = ""
    threads: int = 1

    def describe(self) -> str:
        """Return the sentence that is printed at the start."""
        used = min(self.workers * self.threads, self.cores)
        on = f"on {used} of {pluralize(self.cores, 'core')}"
        if self.workers == 1:
            threads = f" with {pluralize(self.threads, 'thread')}" if self.threads > 1 else ""
            processes = f"one process{threads} {on}, without MPI"
        else:
            processes = f"{self.workers} workers {on}, and a coordinator that mostly sleeps"
        return f"{processes}: {self.remark}" if self.remark else processes


def count_workers_to_start(asked: int | str, work: Callable[[], Work], argument: str, caller: str) -> WorkerCount:
    """Return the number of workers that this process starts with mpirun.

    Args:
        asked: The number of workers, or "auto".
        work: Returns the amount of work; may raise InputError.
        argument: The name of `asked` in errors, such as "workers".
        caller: The kind of this process in errors, such as "a script".

    Raises:
        InputError: A launcher has started this process, or the number is too large.
    """
    launcher = started_by()
    if launcher is not None:
        cure = f"Leave out {argument}, or mpirun."
        raise InputError(argument, f"{caller} that no launcher has started", f"one under {launcher}", cure)
    if asked != "auto":
        check_not_too_many(argument, int(asked))
    return count_workers(asked, work())


def check_not_too_many(argument: str, processes: int) -> None:
    """Raise InputError if the start of this number of processes would keep this machine busy for minutes."""
    most = max(_MAX_WORKERS, _MAX_PER_CORE * number_of_cores())
    if processes > most:
        cure = "More workers than cores are no faster. To use several machines: evolve launch --hostfile."
        raise InputError(argument, f"at most {most:,} on this machine", f"{processes:,}", cure)


def count_workers(asked: int | str, work: Work) -> WorkerCount:
    """Return the number of workers to start. asked: the number, or "auto"."""
    cores = number_of_cores()
    is_auto = asked == "auto"
    workers = max(1, cores // work.threads) if is_auto else int(asked)  # by default, each thread has a core
    if workers == 1 and work.threads > 1:
        return WorkerCount(1, cores, threads=work.threads)  # threads use the cores, so no remark below applies
    # Find the number of workers that suits the work, and a remark for the user.
    remark, suitable = "", workers
    if workers == 1 and not is_auto:
        remark = "MPI is useful only with two or more workers"
    elif work.quick_steps is not None and work.quick_steps <= _FEW_STEPS:
        suitable = 1
        remark = f"{work.quick_steps:,} quick steps at most take no longer than MPI takes to start"
    elif work.episodes_at_once is not None and workers > work.episodes_at_once:
        suitable = work.episodes_at_once
        remark = f"there are only {pluralize(suitable, 'episode')} at a time"
    elif workers > cores:
        remark = "more workers than cores are no faster"
    # The number that the user gives is used even if it is not suitable.
    return WorkerCount(suitable if is_auto else workers, cores, remark, work.threads)


@dataclass(frozen=True)
class Host:
    """A host, and the number of ranks that it may run."""

    name: str
    slots: int

    @cached_property  # the search for a name may take seconds
    def is_here(self) -> bool:
        """Whether this process runs on the host."""
        ours = socket.gethostname()
        if self.name in ("localhost", ours, ours.split(".")[0]):
            return True
        with suppress(OSError, UnicodeError):  # UnicodeError: a name with an empty or too long part
            address = socket.gethostbyname(self.name)
            # A host may give its own name a loopback address.
            return address.startswith("127.") or address in own_addresses()
        return False


def read_hostfile(path: Path) -> list[Host]:
    """Return the hosts of a file in Open MPI's spelling (`node1 slots=32`) or MPICH's (`node1:32`).

    The slots of lines with the same host add up: the file of a PBS job has a line for each slot. Raises InputError.
    """
    try:
        # An editor may have written a byte order mark, which "utf-8-sig" skips.
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError("--hostfile", "a file with a host on each line", f"{path} ({why})") from None
    hosts: Counter[str] = Counter()
    for number, line in enumerate(lines, 1):
        text = line.split("#")[0].strip()
        if not text:
            continue
        found = _LINE.fullmatch(text)
        slots = int(found["colon"] or found["slots"] or 1) if found else 0
        if not found or not slots:
            got = f"{text!r} in line {number} of {path}"
            raise InputError("--hostfile", "a host on each line, such as node1 slots=32", got)
        hosts[found["name"]] += slots
    if not hosts:
        raise InputError("--hostfile", "a file with a host on each line", f"no host in {path}")
    return [Host(name, slots) for name, slots in hosts.items()]


def write_hostfile(path: Path, hosts: Sequence[Host], colon: bool) -> None:
    """Write hosts to a file, in MPICH's spelling (`colon`) or in Open MPI's."""
    spelling = "{}:{}\n" if colon else "{} slots={}\n"
    path.write_text("".join(spelling.format(host.name, host.slots) for host in hosts), encoding="utf-8")


class HostCheck:
    """Asks hosts whether they can run ranks: ssh must reach them, and find this interpreter at the same path.

    Args:
        hosts: The hosts.
        ssh: The words of the ssh command.
    """

    def __init__(self, hosts: Sequence[Host], ssh: Sequence[str]) -> None:
        self._begun_at = time.monotonic()
        self._complaints = dict.fromkeys(hosts, "")
        # Ask all other hosts at the same time. This host needs no question.
        self._asked = {host: _ask(host, ssh) for host in hosts if not host.is_here}

    def finished(self) -> bool:
        """Return whether each host has answered, or has exceeded its time."""
        late = time.monotonic() - self._begun_at > PATIENCE
        for host, process in list(self._asked.items()):
            if process.poll() is None and not late:
                continue
            said = _end(process).strip().splitlines()
            if process.returncode == _MISSING:
                self._complaints[host] = f"has no {sys.executable}"
            elif process.returncode:  # negative if ssh was killed
                self._complaints[host] = "does not answer" + (f" ({said[-1]})" if said else "")
            del self._asked[host]
        return not self._asked

    def complaints(self) -> dict[Host, str]:
        """Wait for the answers; return the complaint about each host. It is "" if the host can run ranks."""
        while not self.finished():
            time.sleep(0.05)
        return self._complaints

    def cancel(self) -> None:
        """Stop waiting for answers."""
        for process in self._asked.values():
            _end(process)
        self._asked = {}


def _ask(host: Host, ssh: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*ssh, *SSH_OPTIONS, host.name, f"test -x {shlex.quote(sys.executable)}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,  # Ctrl-C in the terminal must not end ssh
    )


def _end(process: subprocess.Popen[bytes]) -> str:
    """Kill ssh and its children, unless ssh has ended; return its messages."""
    if process.poll() is None:
        with suppress(OSError):  # it has ended just now
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # Do not wait for the end of the pipe: a process that ssh left behind may hold it (ControlPersist).
    assert process.stderr is not None
    with process.stderr as pipe:
        os.set_blocking(pipe.fileno(), False)
        return (pipe.read() or b"").decode(errors="replace")


class AvailableHosts:
    """The hosts of a run, of which some may be left out for a time.

    Args:
        hosts: All hosts.
        ssh: The words of the ssh command.
        say: Prints a message for the user.
    """

    def __init__(self, hosts: Sequence[Host], ssh: Sequence[str], say: Callable[[str], None]) -> None:
        self._hosts = hosts
        self._ssh = ssh
        self._say = say
        self._left_out: set[Host] = set()
        self._answers: dict[Host, int] = {}  # consecutive answers of each host that is left out
        self._check: HostCheck | None = None  # the unfinished check of these hosts
        self._checked_at = self._chosen_at = 0.0

    def choose(self) -> list[Host]:
        """Check all hosts; return the hosts that can run ranks, and report each change."""
        # The check below asks all hosts, so an unfinished check of some hosts is no longer needed.
        if self._check is not None:
            self._check.cancel()
            self._check = None
        complaints = HostCheck(self._hosts, self._ssh).complaints()
        for host in self._hosts:
            if complaints[host] and host not in self._left_out:
                self._say(f"{host.name} {complaints[host]}: it is left out")
            elif not complaints[host] and host in self._left_out:
                self._say(f"{host.name} answers again: it is taken back")
        self._left_out = {host for host in self._hosts if complaints[host]}
        self._answers = dict.fromkeys(self._left_out, 0)
        self._checked_at = self._chosen_at = time.monotonic()
        return [host for host in self._hosts if host not in self._left_out]

    def can_take_back(self) -> bool:
        """Return whether to stop the run, so that hosts can be taken back. Called often; checks at intervals."""
        now = time.monotonic()
        # The check runs while the ranks work, so this method never waits for it.
        if self._check is not None:
            if not self._check.finished():
                return False
            for host, complaint in self._check.complaints().items():
                self._answers[host] = 0 if complaint else self._answers[host] + 1
            self._check = None
        # Stopping a run costs time, so a host must answer steadily, and the ranks must have run for a while.
        back = [host.name for host, answers in self._answers.items() if answers >= _ANSWERS_NEEDED]
        if back and now - self._chosen_at > _LEAST_RUN:
            self._say(f"{', '.join(back)} answers again: the run is stopped, and resumed with it")
            self._answers = {}
            return True
        if self._answers and now - self._checked_at > _CHECK_INTERVAL:
            self._checked_at = now
            self._check = HostCheck(list(self._answers), self._ssh)
        return False
