"""The hosts of a hostfile: which of them answer, and which take part."""

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evolve.cluster.keepalive import own_addresses
from evolve.errors import InputError

_LINE = re.compile(r"(?P<name>[^\s:#]+)(?::(?P<colon>\d+))?(?:\s+(?:max_slots=\d+|slots=(?P<slots>\d+)))*")
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=8")
"""So that ssh neither asks anything, nor waits for minutes for a host that is lost."""
PATIENCE = 30.0
"""Seconds until a host is taken for lost whose kernel answers; the shell of one that is busy may take long."""
_MISSING = 1  # what `test` returns


_ASK_EVERY = 30.0  # seconds between questions to hosts that are left out
_SURE = 2  # answers in a row after which a host is taken back
_LEAST = 60.0  # seconds that a run is left alone


@dataclass(frozen=True)
class Host:
    """A host, and how many ranks it is to run."""

    name: str
    slots: int

    @property
    def is_here(self) -> bool:
        """Whether it is the one that this process runs on."""
        ours = socket.gethostname()
        if self.name in ("localhost", ours, ours.split(".")[0]):
            return True
        with suppress(OSError):
            return socket.gethostbyname(self.name) in own_addresses()
        return False


def read_hostfile(path: Path) -> list[Host]:
    """Return the hosts of a file in Open MPI's spelling (`node1 slots=32`) or MPICH's (`node1:32`).

    Raises InputError.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("--hostfile", "a file with a host on each line", f"{path} ({error})") from None
    hosts: dict[str, Host] = {}
    for number, line in enumerate(lines, 1):
        text = line.split("#")[0].strip()
        if not text:
            continue
        found = _LINE.fullmatch(text)
        slots = int(found["colon"] or found["slots"] or 1) if found else 0
        if not found or not slots or found["name"] in hosts:
            came = f"{text!r} in line {number} of {path}"
            raise InputError("--hostfile", "a host on each line, once, such as node1 slots=32", came)
        hosts[found["name"]] = Host(found["name"], slots)
    if not hosts:
        raise InputError("--hostfile", "a file with a host on each line", f"none in {path}")
    return list(hosts.values())


def write_hostfile(path: Path, hosts: Sequence[Host], colon: bool) -> None:
    """Write hosts to a file, in MPICH's spelling (`colon`) or in Open MPI's."""
    spelling = "{}:{}\n" if colon else "{} slots={}\n"
    path.write_text("".join(spelling.format(host.name, host.slots) for host in hosts))


class Inquiry:
    """Asks hosts whether they can run ranks: whether ssh reaches them, and the interpreter is where it is here.

    Args:
        hosts: Which.
        ssh: The words of the command that reaches them.
    """

    def __init__(self, hosts: Sequence[Host], ssh: Sequence[str]) -> None:
        self._begun = time.monotonic()
        self._complaints: dict[Host, str] = {}
        self._asked: dict[Host, subprocess.Popen[str]] = {}
        for host in hosts:
            if host.is_here:
                self._complaints[host] = ""
                continue
            self._asked[host] = subprocess.Popen(
                [*ssh, *SSH_OPTIONS, host.name, f"test -x {shlex.quote(sys.executable)}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ,
                process_group=0,
            )

    def finished(self) -> bool:
        """Return whether all have answered, or had their time."""
        late = time.monotonic() - self._begun > PATIENCE
        for host, process in list(self._asked.items()):
            if process.poll() is None and not late:
                continue
            process.kill()
            said = process.communicate()[1].strip().splitlines()
            code = process.returncode
            if code == _MISSING:
                self._complaints[host] = f"has no {sys.executable}"
            elif code:
                self._complaints[host] = "does not answer" + (f" ({said[-1]})" if said else "")
            else:
                self._complaints[host] = ""
            del self._asked[host]
        return not self._asked

    def complaints(self) -> dict[Host, str]:
        """Wait for the answers; return what is wrong with each host, "" for nothing."""
        while not self.finished():
            time.sleep(0.05)
        return self._complaints

    def cancel(self) -> None:
        """Wait for no more answers."""
        for process in self._asked.values():
            process.kill()
            process.communicate()
        self._asked = {}


class Roster:
    """The hosts of a run.

    Args:
        hosts: All of them.
        ssh: The words of the command that reaches them.
        say: Tells the user something.
        every: How many seconds to wait between questions to hosts that are left out.
    """

    def __init__(
        self, hosts: Sequence[Host], ssh: Sequence[str], say: Callable[[str], None], every: float = _ASK_EVERY
    ) -> None:
        self._hosts = hosts
        self._ssh = ssh
        self._say = say
        self._every = every
        self._out: set[Host] = set()
        self._answers: dict[Host, int] = {}
        self._inquiry: Inquiry | None = None
        self._asked = self._begun = 0.0

    def choose(self) -> list[Host]:
        """Ask all hosts; return those that can run ranks, and say which cannot, or can again."""
        if self._inquiry is not None:
            self._inquiry.cancel()
            self._inquiry = None
        complaints = Inquiry(self._hosts, self._ssh).complaints()
        for host in self._hosts:
            if complaints[host] and host not in self._out:
                self._say(f"{host.name} {complaints[host]}: it is left out")
            elif not complaints[host] and host in self._out:
                self._say(f"{host.name} answers again: it is taken back")
        self._out = {host for host in self._hosts if complaints[host]}
        self._answers = dict.fromkeys(self._out, 0)
        self._asked = self._begun = time.monotonic()
        return [host for host in self._hosts if host not in self._out]

    def look(self) -> bool:
        """Return whether a host that was left out can be taken back. Called often, it asks now and then."""
        now = time.monotonic()
        if self._inquiry is not None:
            if not self._inquiry.finished():
                return False
            for host, complaint in self._inquiry.complaints().items():
                self._answers[host] = 0 if complaint else self._answers[host] + 1
            self._inquiry = None
        back = [host.name for host, answers in self._answers.items() if answers >= _SURE]
        if back and now - self._begun > min(_LEAST, 2 * self._every):
            self._say(f"{', '.join(back)} answers again: the run is stopped, and resumed with it")
            self._answers = {}
            return True
        if self._answers and now - self._asked > self._every:
            self._asked = now
            self._inquiry = Inquiry(list(self._answers), self._ssh)
        return False
