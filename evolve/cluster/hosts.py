"""Finds the hosts that can take part in a job, and the launcher that starts ranks on them.

`read_hostfile` reads the hosts. `AvailableHosts` asks by ssh which of them can run ranks (`HostCheck`). A `Launcher`
makes the command and the environment, and a `Supervisor` (`supervision.py`) runs the command.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evolve.cluster.supervision import COMMAND, CONNECT, EXIT_CODE
from evolve.cluster.watchdog import own_addresses
from evolve.errors import SOURCE, InputError, how_to_install, is_installed, one_line

# A line of a hostfile, such as "node1:32" or "node1 slots=32 max_slots=64". A name must not begin with "-", because ssh
# would take the name as an option. Numbers have at most nine digits, because Python refuses thousands of digits.
_HOST_LINE = re.compile(
    r"(?P<name>[^\s:#-][^\s:#]*)(?::(?P<colon>\d{1,9}))?(?:\s+(?:max_slots=\d+|slots=(?P<slots>\d{1,9})))*"
)
_SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=8")
"""ssh asks for no password, and does not wait minutes for a lost host."""
PATIENCE = 30.0
"""Seconds that a host may take to connect and to run a command; a busy host may be slow."""
_CODE_OF_MISSING = 1  # the exit code of `test -x` for a file that is missing or cannot be executed
_CHECK_INTERVAL = 30.0  # seconds between two checks of the hosts that are left out
_ANSWERS_NEEDED = 2  # consecutive answers after which a host is taken back
_LEAST_RUN = 60.0  # seconds that the ranks run before they are stopped to take a host back
_ALLOW_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
# Open MPI must pass variables with these names or prefixes to ranks on other hosts.
_PASSED_NAMES = (
    "PATH", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "LD_LIBRARY_PATH", "GLIBC_TUNABLES", "VIRTUAL_ENV",
    "MPI4PY_LIBMPI",
)  # fmt: skip
_PASSED_PREFIXES = ("EVOLVE_", "OMP_", "OPENBLAS_", "MKL_")
MPI_PROBE = """
import json, sys
import mpi4py
from mpi4py import MPI
found = [MPI.COMM_WORLD.size, MPI.Get_library_version(), mpi4py.__version__]
if MPI.COMM_WORLD.rank == 0:
    print(sys.argv[1] + json.dumps(found), flush=True)
"""
"""A Python program that tests whether ranks find each other. Rank 0 prints one line: the program's argument and a JSON
list. The list has the number of ranks, and the versions of the MPI library and of mpi4py."""
_INTEL = "Intel MPI"
_VERSION_PATTERNS = {
    "Open MPI": r"\(Open MPI\) (\S+)",
    _INTEL: r"^Intel\(R\) MPI Library .*Version (\S+)",
    "MPICH": r"^ *Version: *(\S+)",
}
"""Patterns that find the version of a library in the output of its launcher."""


@dataclass(frozen=True)
class Host:
    """A host, and the number of ranks that it may run."""

    name: str
    slots: int

    @cached_property  # because the search for an address may take seconds
    def is_here(self) -> bool:
        """Whether this process runs on the host."""
        ours = socket.gethostname()
        if self.name in ("localhost", ours, ours.split(".")[0]):
            return True
        with suppress(OSError, UnicodeError):  # UnicodeError: a name with an empty or too long part
            address = socket.gethostbyname(self.name)
            # On the host itself, its name may resolve to a loopback address.
            return address.startswith("127.") or address in own_addresses()
        return False


def read_hostfile(path: Path) -> list[Host]:
    """Return the hosts of a file in Open MPI's spelling (`node1 slots=32`) or MPICH's (`node1:32`).

    The slots of lines with the same host add up: the file of a PBS job has a line for each slot. Raises InputError if
    the file cannot be read, or has an invalid line or no host.
    """
    try:
        # An editor may have written a byte order mark, which "utf-8-sig" skips.
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError("--hostfile", "a file with a host on each line", f"{path} ({why})") from None
    slots_of: Counter[str] = Counter()
    for number, line in enumerate(lines, 1):
        text = line.split("#")[0].strip()  # without a comment
        if not text:
            continue
        match = _HOST_LINE.fullmatch(text)
        slots = int(match["colon"] or match["slots"] or 1) if match else 0
        if not match or not slots:
            got = f"{text!r} in line {number} of {path}"
            raise InputError("--hostfile", "a host on each line, such as node1 slots=32", got)
        slots_of[match["name"]] += slots
    if not slots_of:
        raise InputError("--hostfile", "a file with a host on each line", f"no host in {path}")
    return [Host(name, slots) for name, slots in slots_of.items()]


def write_hostfile(path: Path, hosts: Sequence[Host], colon: bool) -> None:
    """Write hosts to a file, in MPICH's spelling (`colon`) or in Open MPI's."""
    spelling = "{}:{}\n" if colon else "{} slots={}\n"
    path.write_text("".join(spelling.format(host.name, host.slots) for host in hosts), encoding="utf-8")


class HostCheck:
    """Asks hosts whether they can run ranks: ssh must reach them, and they must have this interpreter at the same path.

    Args:
        hosts: The hosts.
        ssh: The words of the ssh command.
    """

    def __init__(self, hosts: Sequence[Host], ssh: Sequence[str]) -> None:
        self._begun_at = time.monotonic()
        self._complaints = dict.fromkeys(hosts, "")
        # The processes of ssh that ask all other hosts at the same time. This host needs no question.
        self._running = {host: _ask(host, ssh) for host in hosts if not host.is_here}

    def finished(self) -> bool:
        """Note the answers that have arrived. Return whether each host has answered, or has exceeded its time."""
        is_late = time.monotonic() - self._begun_at > PATIENCE
        for host, process in list(self._running.items()):
            if process.poll() is None and not is_late:
                continue
            messages = _end(process).strip().splitlines()
            if process.returncode == _CODE_OF_MISSING:
                self._complaints[host] = f"has no {sys.executable}"
            elif process.returncode:  # negative if ssh was killed
                self._complaints[host] = "does not answer" + (f" ({messages[-1]})" if messages else "")
            del self._running[host]
        return not self._running

    def complaints(self) -> dict[Host, str]:
        """Wait for the answers; return for each host the reason why it cannot run ranks, or "" if it can."""
        while not self.finished():
            time.sleep(0.05)
        return self._complaints

    def cancel(self) -> None:
        """Stop waiting for answers."""
        for process in self._running.values():
            _end(process)
        self._running = {}


def _ask(host: Host, ssh: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*ssh, *_SSH_OPTIONS, host.name, f"test -x {shlex.quote(sys.executable)}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,  # Ctrl-C in the terminal must not end ssh
    )


def _end(process: subprocess.Popen[bytes]) -> str:
    """Kill ssh and its children, unless ssh has ended; return its messages."""
    if process.poll() is None:
        with suppress(OSError):  # ssh may have ended just now
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # Do not wait for the end of the pipe: a process that ssh left behind may hold it (ControlPersist).
    assert process.stderr is not None
    with process.stderr as pipe:
        os.set_blocking(pipe.fileno(), False)
        return (pipe.read() or b"").decode(errors="replace")


class AvailableHosts:
    """The hosts of a run. Hosts that do not answer are left out until they answer again.

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
        self._num_answers: dict[Host, int] = {}  # the consecutive answers of each host that is left out
        self._check: HostCheck | None = None  # the unfinished check of these hosts
        self._checked_at = self._chosen_at = 0.0  # the times of the last check, and of the last call of `choose`

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
        self._num_answers = dict.fromkeys(self._left_out, 0)
        self._checked_at = self._chosen_at = time.monotonic()
        return [host for host in self._hosts if host not in self._left_out]

    def can_take_back(self) -> bool:
        """Return whether hosts can be taken back, so that the run should stop and begin again with them.

        Call this often while the ranks work. It checks the hosts that are left out at intervals, and never waits for
        their answers.
        """
        now = time.monotonic()
        # Count the answers of a check that has finished.
        if self._check is not None:
            if not self._check.finished():
                return False
            for host, complaint in self._check.complaints().items():
                self._num_answers[host] = 0 if complaint else self._num_answers[host] + 1
            self._check = None
        # Stopping a run costs time, so a host must answer several times, and the ranks must have run for a while.
        names = [host.name for host, number in self._num_answers.items() if number >= _ANSWERS_NEEDED]
        if names and now - self._chosen_at > _LEAST_RUN:
            self._say(f"{', '.join(names)} answers again: the run is stopped, and resumed with it")
            self._num_answers = {}
            return True
        # Begin the next check.
        if self._num_answers and now - self._checked_at > _CHECK_INTERVAL:
            self._checked_at = now
            self._check = HostCheck(list(self._num_answers), self._ssh)
        return False


@dataclass(frozen=True)
class Launcher:
    """An MPI launcher, or another command that starts ranks, such as SLURM's srun.

    Attributes:
        path: The path of the executable.
        is_open_mpi: Whether the launcher belongs to Open MPI. Other launchers take the options of MPICH.
        tolerant: Whether the launcher can continue a job that has lost ranks.
        version: The name and the version of the library, such as "Open MPI 5.0.11", see `_library_version`.
        arguments: The first arguments of the executable.
    """

    path: str
    is_open_mpi: bool
    tolerant: bool
    version: str = ""
    arguments: Sequence[str] = ()

    @classmethod
    def find(cls, ranks: int | str = "R") -> "Launcher":
        """Return the first launcher of `find_launchers`. Raises InputError if there is none, or it does not answer.

        ranks: The number of ranks, for the command that the error suggests in a SLURM job.
        """
        executable = next(find_launchers(), None)
        if executable is None:
            cure = how_to_install("mpi")
            if "SLURM_JOB_ID" in os.environ:
                cure += f" Or start the ranks by SLURM: srun --overcommit -n {ranks} python -m evolve.run …"
            raise InputError("mpirun", "an MPI launcher", "none", cure)
        # Intel MPI's mpirun is a shell script. It looks for the real launcher, mpiexec.hydra, in the PATH.
        path = os.pathsep.join([str(Path(executable).parent), os.environ.get("PATH", os.defpath)])
        words, env = [executable, "--version"], mpirun_environment() | {"PATH": path}
        try:
            output = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60, env=env
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise InputError("mpirun", f"a version from {executable} --version", one_line(error)) from None
        version = _library_version(output)
        if version.startswith(_INTEL):  # a signal would end the shell script, and leave the launcher running
            executable = shutil.which("mpiexec.hydra", path=path) or executable
        # Since version 5, a job of Open MPI survives the death of ranks if mpirun has the option `--with-ft ulfm`.
        is_tolerant = re.search(r"\(Open MPI\) ([5-9]|\d\d)", output) is not None
        return cls(executable, "Open MPI" in output, is_tolerant, version)

    def words(self, ranks: int, hosts: Sequence[Host], folder: Path) -> list[str]:
        """Return the words of the launcher's command, to which the caller appends the command of the ranks.

        There may be more ranks than cores. If the launcher is tolerant, the job survives the death of ranks.

        Args:
            ranks: The number of ranks; 0 for the size of the allocation.
            hosts: The hosts of the ranks; if empty, this machine or the allocation of its batch job.
            folder: A directory for the hostfile.
        """
        words = [self.path, *self.arguments, *self.more_ranks_than_cores()]
        if self.tolerant:
            words += ["--with-ft", "ulfm"]
        if hosts:
            file = folder / "hostfile"
            write_hostfile(file, hosts, colon=not self.is_open_mpi)
            words += ["--hostfile" if self.is_open_mpi else "-f", str(file)]
        if ranks:
            words += ["-n", str(ranks)]
        if self.is_open_mpi:  # MPICH passes all environment variables to other hosts
            # `evolve launch` and `Supervisor.run` set these variables later; CONNECT only for a known number of ranks.
            set_later = {EXIT_CODE, COMMAND, CONNECT} if ranks else {EXIT_CODE, COMMAND}
            for name in sorted(os.environ.keys() | set_later):
                if name in _PASSED_NAMES or name.startswith(_PASSED_PREFIXES):
                    words += ["-x", name]
        return words

    def environment(self, ssh: Sequence[str], folder: Path) -> dict[str, str]:
        """Return the environment variables for the launcher, see `mpirun_environment`.

        Args:
            ssh: The words of the command that reaches other hosts. If empty, the launcher reaches hosts in its own way.
            folder: A directory for a script that calls ssh.
        """
        environment = mpirun_environment()
        if not ssh:
            return environment
        agent = shlex.join([*ssh, *_SSH_OPTIONS])
        if self.is_open_mpi:
            return environment | {"PRTE_MCA_plm_ssh_agent": agent}
        script = folder / "ssh"  # Hydra's variable takes the path of a program, without arguments
        script.write_text(f'#!/bin/sh\nexec {agent} "$@"\n')
        script.chmod(0o700)
        return environment | {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(script)}

    def more_ranks_than_cores(self) -> list[str]:
        """Return the options that allow more ranks than cores, and leave the choice of cores to the system."""
        # By default, Open MPI refuses more ranks than cores. Also by default, Open MPI and Intel MPI bind ranks to
        # cores, and two jobs on one machine get the same cores.
        if self.is_open_mpi:
            return ["--oversubscribe", "--bind-to", "none"]
        user_has_chosen = any(name.startswith("I_MPI_PIN") for name in os.environ)
        return ["-genv", "I_MPI_PIN", "0"] if self.version.startswith(_INTEL) and not user_has_chosen else []


def check_start(argument: str) -> None:
    """Raise InputError if ranks cannot start, because mpi4py or a directory for temporary files is missing.

    The ranks themselves check whether mpi4py works. argument: The option that starts ranks, for the error.
    """
    if not is_installed("mpi4py"):
        raise InputError(argument, "mpi4py", "ModuleNotFoundError: no module of this name", how_to_install("mpi"))
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:  # all disks are full or read-only
        cure = "Free disk space, or set TMPDIR to a directory on another disk."
        raise InputError(argument, "a directory for temporary files", error.strerror, cure) from None


def python_words() -> list[str]:
    """Return the words that start Python so that it imports the evolve of this process.

    By itself, `python -m` first looks into the current directory, which may hold another evolve, such as a clone.
    """
    is_here = False
    with suppress(OSError):  # the current directory was removed
        is_here = SOURCE.samefile(os.curdir)
    return [sys.executable] if is_here else [sys.executable, "-P"]


def mpirun_words(ranks: int) -> list[str]:
    """Return the words of an mpirun command that starts ranks on this machine. There may be more ranks than cores.

    Raises InputError if there is no mpirun.
    """
    launcher = Launcher.find(ranks)
    words = [launcher.path, *launcher.more_ranks_than_cores()]
    if "SLURM_JOB_ID" in os.environ:  # else the launcher would use all nodes of the job
        here = f"--host localhost:{ranks}" if launcher.is_open_mpi else "-launcher fork -hosts localhost"
        words += here.split()
    return [*words, "-n", str(ranks)]


def mpirun_environment() -> dict[str, str]:
    """Return the environment variables for mpirun. They let root start ranks, which Open MPI refuses otherwise.

    Open MPI also refuses to start without HOME, which a service of the system may lack.
    """
    environment = os.environ | (dict.fromkeys(_ALLOW_ROOT, "1") if os.geteuid() == 0 else {})
    with suppress(RuntimeError):  # the user has no home directory
        environment.setdefault("HOME", str(Path.home()))
    return environment


def find_launchers() -> Iterator[str]:
    """Yield paths of launchers: beside the library in MPI4PY_LIBMPI, then beside this Python, then in the PATH."""
    # Ranks find each other only under the launcher of their library, so first look beside this library.
    library = os.environ.get("MPI4PY_LIBMPI")
    folders = [Path(library).resolve().parent.parent / "bin"] if library else []
    for folder in [*folders, Path(sys.executable).parent]:
        if os.access(folder / "mpirun", os.X_OK):
            yield str(folder / "mpirun")
    for name in ("mpirun", "mpiexec"):
        if path := shutil.which(name):
            yield path


def _library_version(output: str) -> str:
    """Return the name and version of the library from a launcher's output; the first line if no pattern matches."""
    for name, pattern in _VERSION_PATTERNS.items():
        if match := re.search(pattern, output, re.M):
            return f"{name} {match[1]}"
    return output.partition("\n")[0]
