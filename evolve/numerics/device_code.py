"""Machine code for a device from rollouts/*.cu, by NVRTC: it needs neither a device nor a driver nor a toolkit.

NVRTC is NVIDIA's compiler as a library (https://docs.nvidia.com/cuda/nvrtc). It is called with ctypes. The flags keep
every operation rounded on its own: a fused multiply-add, a flushed denormal or an approximate division changes bits.
"""

import ctypes
import ctypes.util
import hashlib
import os
import re
import site
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

from evolve.errors import InputError, how_to_install

_PACKAGE = Path(__file__).parents[1]
_UNITS = _PACKAGE / "rollouts"
_HEADERS = tuple(_PACKAGE / place / "kernels" for place in ("numerics", "networks", "environments", "rollouts"))
_PLAYS = re.compile(r"play_(\w+?)_on_(\w+)")
EXACT = ("--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--std=c++17")
"""The options that keep bits."""
_HASH = 32  # bytes of a sha256
Kind = Literal["PTX", "CUBIN"]


def how_to_install_gpu() -> str:
    """Return the sentences that say how to install CuPy, and with it NVRTC."""
    return f"{how_to_install('gpu')} For CUDA 12 it is gpu-cuda12, not gpu."


def unit_of(kernel: str) -> str:
    """Return the compilation unit that has a kernel: "network, task" for one that plays, "" for all others."""
    played = _PLAYS.fullmatch(kernel)
    return ", ".join(played.groups()) if played else ""


def source(unit: str = "") -> dict[str, str]:
    """Return a compilation unit, see `unit_of`, and the headers that it may include, by name."""
    name, more = ("play.cu", f"PLAY({unit})\n") if unit else ("kernels.cu", "")
    headers = {path.name: path.read_text() for folder in _HEADERS for path in sorted(folder.glob("*.h"))}
    return {name: (_UNITS / name).read_text() + more, **headers}


def machine_code(architecture: str, cache_folder: Path | None = None, unit: str = "") -> bytes:
    """Return the machine code of a unit's kernels (CUBIN), compiled or from the cache on disk.

    Args:
        architecture: Of the device, such as "sm_90".
        cache_folder: Where compiled code is kept, by source, options and architecture; None for the user's cache.
        unit: See `unit_of`.

    Raises:
        InputError: NVRTC is missing, or cannot compile for this architecture.
    """
    files = source(unit)
    key = hashlib.sha256(repr((files, EXACT, architecture, _version())).encode()).hexdigest()
    kept = (cache_folder or _cache_folder()) / f"{key[:32]}.cubin"
    code = _kept(kept)
    if code is None:
        code = compile_source(files, architecture, "CUBIN")
        _keep(kept, code)
    return code


def compile_source(files: dict[str, str], architecture: str, kind: Kind, options: tuple[str, ...] = EXACT) -> bytes:
    """Return what NVRTC makes of a compilation unit, the first of `files`, and its headers.

    Raises:
        InputError: NVRTC is missing, or cannot compile this.
    """
    nvrtc = _nvrtc()
    (name, unit), *headers = ((name.encode(), text.encode()) for name, text in files.items())
    texts = (ctypes.c_char_p * len(headers))(*(text for _, text in headers))
    names = (ctypes.c_char_p * len(headers))(*(name for name, _ in headers))
    program = ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), unit, name, len(headers), texts, names), "create a program")
    try:
        flags = [option.encode() for option in (f"--gpu-architecture={architecture}", *options)]
        failed = nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
        if failed:
            log = _text(nvrtc, program, "ProgramLog").decode(errors="replace").strip()
            raise InputError("compute.backend", f"kernels that compile for {architecture}", log or f"error {failed}")
        return _text(nvrtc, program, kind)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def available() -> bool:
    """Return whether NVRTC is installed."""
    return _load() is not None


def _text(nvrtc: Any, program: ctypes.c_void_p, what: str) -> bytes:
    """Return a text or a code that a program holds."""
    size = ctypes.c_size_t()
    _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), f"return {what}")
    held = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc, f"nvrtcGet{what}")(program, held), f"return {what}")
    return held.raw if what == "CUBIN" else held.raw.rstrip(b"\0")


def _check(status: int, what: str) -> None:
    if status:
        raise InputError("compute.backend", f"an NVRTC that can {what}", f"error {status}")


def _nvrtc() -> Any:
    nvrtc = _load()
    if nvrtc is None:
        expected = "NVRTC, which compiles the kernels of a GPU"
        raise InputError("compute.backend", expected, "none that can be loaded", how_to_install_gpu())
    return nvrtc


@cache
def _load() -> Any:
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def _candidates() -> list[str]:
    """Return where NVRTC may lie: its wheels, a toolkit, and wherever the loader looks."""
    packages = {*site.getsitepackages(), site.getusersitepackages(), *sys.path}
    wheels = sorted({str(found) for folder in packages for found in Path(folder).glob("nvidia/*/lib/libnvrtc.so.*")})
    toolkits = [f"{os.environ[name]}/lib64/libnvrtc.so" for name in ("CUDA_PATH", "CUDA_HOME") if name in os.environ]
    by_name = ctypes.util.find_library("nvrtc")
    found = [path for path in wheels if "builtins" not in path and ".alt." not in path]
    return [*reversed(found), *toolkits, *([by_name] if by_name else []), "libnvrtc.so.13", "libnvrtc.so.12"]


@cache
def _version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "say its version")
    return major.value, minor.value


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # a user may have no home
    return Path(base) / "evolve"


def _kept(path: Path) -> bytes | None:
    """Return the code that `_keep` has written; None when it is not there, or damaged."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    code = whole[_HASH:]
    return code if hashlib.sha256(code).digest() == whole[:_HASH] else None


def _keep(path: Path, code: bytes) -> None:
    """Write compiled code with its sha256 before it; a cache that cannot be written is no reason to stop."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            partial = Path(folder) / path.name
            partial.write_bytes(hashlib.sha256(code).digest() + code)
            partial.replace(path)
