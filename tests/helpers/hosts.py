"""Several hosts on one machine, made of Linux namespaces: each has its name, its address, its processes and an sshd.

They share the files of this machine. A host can be lost (all its processes are killed), booted again, cut off and
reconnected. Only root can make them.
"""

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from evolve.errors import on_error

NETWORK = "10.77.0"  # in no route of this machine: the bridge has no address
_NEEDED = ("ip", "unshare", "nsenter", "ssh", "ssh-keygen", "/usr/sbin/sshd")


def why_not() -> str:
    """Return the reason why hosts cannot be made here, "" if they can."""
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}"
    if os.geteuid() != 0:
        return "only root can make hosts"
    tried = subprocess.run(
        ["unshare", "--net", "--uts", "--pid", "--mount", "--fork", "ip", "link", "add", "type", "bridge"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else ""


class Hosts:
    """node1, node2, …: they exist within a `with` block.

    Args:
        folder: The folder for keys and logs.
        count: The number of hosts.
        tag: A part of the names of the links on this machine.
    """

    def __init__(self, folder: Path, count: int, tag: str | None = None) -> None:
        self.folder = folder
        self.names = [f"node{number}" for number in range(1, count + 1)]
        self._tag = tag or f"{os.getpid() % 0xFFFF:04x}"
        self.bridge = f"evb{self._tag}"
        self._tops: dict[int, subprocess.Popen[bytes]] = {}
        self.ssh = f"ssh -F {folder}/ssh_config"
        """The command that reaches each host from every other."""

    def __enter__(self) -> "Hosts":
        self.folder.mkdir(parents=True, exist_ok=True)
        Path("/run/sshd").mkdir(exist_ok=True)
        names = [f"{NETWORK}.{number} {name}" for number, name in enumerate(self.names, 1)]
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
        for key in ("key", "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key], check=True)
        shutil.copy(self.folder / "key.pub", self.folder / "authorized")
        (self.folder / "ssh_config").write_text(
            "Host *\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n"
            f" IdentityFile {self.folder}/key\n"
        )
        self._ip("link", "add", self.bridge, "type", "bridge")
        with on_error(self.__exit__):
            self._ip("link", "set", self.bridge, "up")
            for number in range(1, len(self.names) + 1):
                self.boot(number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in list(self._tops):
            self.lose(number)
        with suppress(subprocess.CalledProcessError):
            self._ip("link", "del", self.bridge)

    def boot(self, number: int) -> None:
        """Start a host."""
        scratch = self.folder / f"tmp{number}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        config = self.folder / f"sshd{number}"
        config.write_text(
            f"ListenAddress {NETWORK}.{number}\nHostKey {self.folder}/host_key\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self.folder}/authorized\nStrictModes no\nPermitRootLogin yes\n"
            f"SetEnv TMPDIR={scratch}\nMaxStartups 100\n"
        )
        script = f"""
            hostname node{number}
            mount --bind {self.folder}/hosts /etc/hosts
            mount -t tmpfs tmpfs /dev/shm
            ip link set lo up
            until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
            ip addr add {NETWORK}.{number}/24 dev eth0 && ip link set eth0 up
            exec /usr/sbin/sshd -D -e -f {config}"""
        words = ["unshare", "--uts", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        with open(self.folder / f"log{number}", "w") as log:
            self._tops[number] = subprocess.Popen(
                [*words, "bash", "-c", script], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._ip(
            "link", "add", self._link(number), "type", "veth", "peer", "name", "eth0", "netns", self._first(number)
        )
        self._ip("link", "set", self._link(number), "master", self.bridge, "up")
        deadline = time.monotonic() + 20
        while b"listening" not in (self.folder / f"log{number}").read_bytes():
            assert time.monotonic() < deadline, (self.folder / f"log{number}").read_text()
            time.sleep(0.05)

    def lose(self, number: int) -> None:
        """Kill all processes of a host at once."""
        top = self._tops.pop(number)
        with suppress(ProcessLookupError):
            os.kill(int(self._first(number, top.pid)), signal.SIGKILL)
        top.kill()
        top.wait()
        with suppress(subprocess.CalledProcessError):  # the link disappears with the namespace
            self._ip("link", "del", self._link(number))

    def cut(self, number: int) -> None:
        """Pull the cable of a host."""
        self._ip("link", "set", self._link(number), "down")

    def mend(self, number: int) -> None:
        """Plug it in again."""
        self._ip("link", "set", self._link(number), "up")

    def on(self, number: int, *words: object) -> list[str]:
        """Return the words that run a command on a host, in the directory of the caller."""
        inside = ["nsenter", "-t", self._first(number), "--net", "--uts", "--mount", "--pid", f"--wd={os.getcwd()}"]
        return [*inside, "env", f"TMPDIR={self.folder}/tmp{number}", *map(str, words)]

    def first_processes(self) -> list[str]:
        """Return the first process of each host that is there, as this machine numbers it."""
        return [self._first(number) for number in self._tops]

    def _link(self, number: int) -> str:
        return f"evl{self._tag}{number}"

    def _first(self, number: int, top: int | None = None) -> str:
        """Return the process, as this machine numbers it, that is the first one of a host."""
        top = self._tops[number].pid if top is None else top
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with suppress(OSError):
                children = Path(f"/proc/{top}/task/{top}/children").read_text().split()
                if children and os.readlink(f"/proc/{children[0]}/ns/net") != os.readlink("/proc/self/ns/net"):
                    return children[0]
            time.sleep(0.02)
        raise ProcessLookupError(f"node{number} has no process")

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)
