"""Decides which hosts of a hostfile take part in a job."""

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

from evolve.cluster.watchdog import own_addresses
from evolve.errors import InputError

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
