"""Processes that are forked from a server that has imported their modules, see `warm_server.py`."""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

COLD = "EVOLVE_COLD"
"""The variable that turns forked processes off."""

_HERE = Path(__file__).parent
_AT_START = re.compile("PYTHON(?!PATH$|UNBUFFERED$)|LD_|OPENBLAS|OMP_|NPY_|GLIBC|PYDANTIC|EVOLVE_WITHOUT")
"""The names of variables that a process reads while it starts, or imports."""

environment: Callable[[], dict[str, str]] = os.environ.copy
"""Returns the environment of most commands under test, which is the server's; `conftest.py` sets it."""


@dataclass(frozen=True)
class Server:
    """The server of this process.

    Attributes:
        parent: Started the server, and holds its stdin. Some tests count the children of this process, so the server is
            no child.
        process: The server.
        folder: The folder with its socket, with the program `python` that stands for a forked process, and with what
            evolve looks for beside its Python.
    """

    parent: "subprocess.Popen[str]"
    process: psutil.Process
    folder: Path


@functools.cache
def server() -> Server:
    """Return the server of this process, which is started when a process is first needed."""
    folder = Path(tempfile.mkdtemp(prefix="evolve-warm-"))
    program = folder / "python"
    program.write_text(f"#!{sys.executable} -IS\n{(_HERE / 'warm_client.py').read_text()}")
    program.chmod(0o700)
    for name in ("mpirun", "evolve"):
        (folder / name).symlink_to(Path(sys.executable).with_name(name))
    # The launcher would tell its processes where the libraries of MPI are.
    library = (folder / "mpirun").resolve().parent.parent / "lib"
    parent = subprocess.Popen(
        [sys.executable, _HERE / "warm_server.py", folder],
        env=environment() | {"LD_LIBRARY_PATH": str(library)},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.wait()
    return Server(parent, psutil.Process(pid), folder)


def end() -> None:
    """End the server, if it was started, and its processes."""
    if server.cache_info().currsize:
        server().parent.communicate()
        shutil.rmtree(server().folder)
        server.cache_clear()


def python() -> str:
    """Return the path of the program that stands for a forked process."""
    return str(server().folder / "python")


def fits(env: Mapping[str, str]) -> bool:
    """Return whether a forked process does the same in an environment as a new one."""
    usual = environment()
    special = (name for name in {*env, *usual} if env.get(name) != usual.get(name))
    is_possible = hasattr(os, "pidfd_open") and COLD not in os.environ
    return is_possible and not any(map(_AT_START.match, special))


def words(command: Sequence[object], env: Mapping[str, str]) -> list[str]:
    """Return the words of a command, with a forked process in place of a new Python if both do the same."""
    texts = list(map(str, command))
    if not (texts[0] == sys.executable or texts[0].endswith("/mpirun")) or not fits(env):
        return texts
    return [python() if text == sys.executable else text for text in texts]


def is_client(process: psutil.Process) -> bool:
    """Return whether a process stands for a forked one."""
    with suppress(psutil.Error):
        return bool(server.cache_info().currsize) and python() in process.cmdline()
    return False


def processes_in(folder: Path) -> list[psutil.Process]:
    """Return the live forked processes that work in a folder."""
    found = []
    for process in server().process.children() if server.cache_info().currsize else ():
        with suppress(psutil.Error):
            if process.cwd() == str(folder):
                found.append(process)
    return found
