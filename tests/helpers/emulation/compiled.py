"""Translated kernels as a library, compiled once for all processes."""

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from evolve.numerics import cupy_device

_RUNTIME = Path(__file__).with_name("runtime.c")
# Without contraction, as on the device. More optimization would take more time than tests gain.
_OPTIONS = (
    "-O1",
    "-w",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-U_FORTIFY_SOURCE",
    "-fPIC",
    "-shared",
)


def emulation_available() -> bool:
    """Return whether kernels can be compiled, and executed on the host."""
    return cupy_device.load_nvrtc() is not None and shutil.which("gcc") is not None


@cache
def library(functions: str, counted: bool = False) -> ctypes.PyDLL:
    """Return the library of kernels, end to end as `translate` returned them.

    counted: Whether it counts instructions.
    """
    source = f"{'#define COUNTED' if counted else ''}\n{_RUNTIME.read_text()}\n{functions}"

    def build(path: Path) -> None:
        subprocess.run(["gcc", *_OPTIONS, "-x", "c", "-", "-o", path, "-lm"], input=source.encode(), check=True)

    built = ctypes.PyDLL(str(kept(repr((source, _OPTIONS, platform.machine())), ".so", build)))
    built.launch.restype = ctypes.c_char_p
    return built


def kept(key: str, suffix: str, build) -> Path:
    """Return the file that `build` makes, given its path, or has made for this key; others wait as long as it works."""
    folder = Path(os.environ.get("EMULATED_KERNELS", tempfile.gettempdir())) / f"evolve-emulation-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}{suffix}"
    if not path.exists():
        with open(path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                partial = path.with_suffix(".partial")
                build(partial)
                partial.replace(path)
    return path


@cache
def _ptx_of_all(architecture: str, options: tuple[str, ...]) -> str:
    return ptx(architecture, cupy_device.source_files(), options)


def ptx(
    architecture: str, files: dict[str, str] | None = None, options: tuple[str, ...] = cupy_device.EXACT_OPTIONS
) -> str:
    """Return the PTX for an architecture, "sm_90", of files as `cupy_device.compile_source` takes them.

    files: By default the files of all kernels.
    """
    if files is None:
        return _ptx_of_all(architecture, options)
    virtual = architecture.replace("sm_", "compute_")  # the same PTX, without machine code, in half the time

    def build(path: Path) -> None:
        path.write_bytes(cupy_device.compile_source(files, virtual, "PTX", options))

    return kept(repr((files, virtual, options, cupy_device.nvrtc_version())), ".ptx", build).read_text("latin1")
