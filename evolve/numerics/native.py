"""The native CPU kernels: `kernels.c`, compiled by the package's own build where there is a compiler.

The steps of networks are in `steps`.

Loaded with ctypes, so that the same file serves every Python. Where it was not built, the array reference does the work
and gives the same bits.
"""

import ctypes
import math
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from evolve.errors import InputError
from evolve.shapes import Float32, Float64, Int32, UInt8, UInt64

Backend = Literal["numpy", "native"]
_ALIGNMENT = 64
_BYTE = ctypes.c_char
FLOAT_P = ctypes.POINTER(ctypes.c_float)
_FUNCTIONS = {  # how many addresses each takes, before a number
    "fingerprint": 2, "normalize": 1, "hebbian_dag": 3, "hebbian_dag_settle": 2, "hebbian_lstm": 3, "layered": 3,
    "plastic_mlp": 3,
}  # fmt: skip


@cache
def _library() -> ctypes.CDLL | None:
    path = Path(__file__).with_name(f"_kernels{sysconfig.get_config_var('EXT_SUFFIX')}")
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    for name in ("tanh", "exp", "sigmoid"):
        getattr(library, f"evolve_{name}").argtypes = [FLOAT_P, FLOAT_P, ctypes.c_int64]
        getattr(library, f"evolve_{name}").restype = None
    for name, addresses in _FUNCTIONS.items():
        getattr(library, f"evolve_{name}").argtypes = [ctypes.c_void_p] * addresses + [ctypes.c_int64]
        getattr(library, f"evolve_{name}").restype = None
    return library


def available() -> bool:
    """Whether the native kernels were built."""
    return _library() is not None


def lanes() -> int:
    """Return the slots of one tile."""
    return int(loaded().evolve_lanes())


def backend(name: str) -> Backend:
    """Return the back end that `compute.backend` names; "auto" is native where it was built.

    Raises InputError when native is asked for and was not built.
    """
    if name == "numpy" or (name == "auto" and not available()):
        return "numpy"
    if not available():
        cure = "Install a C compiler and run pip install again, or use --backend numpy: the bits are the same."
        raise InputError("compute.backend (--backend)", "a back end that was built", name, cure)
    return "native"


def aligned(*shape: int) -> Float32:
    """Return zeros [*shape] float32 that begin on a cache line."""
    size = math.prod(shape)
    raw = np.zeros(size + _ALIGNMENT // 4, np.float32)
    begin = -(raw.ctypes.data // 4) % (_ALIGNMENT // 4)
    return raw[begin : begin + size].reshape(shape)


def exact(name: Literal["tanh", "exp", "sigmoid"], x: Float32) -> Float32:
    """Return the native tanh, exp or sigmoid of x [n]."""
    rows = -(-len(x) // lanes())
    padded, y = np.zeros(rows * lanes(), np.float32), np.zeros(rows * lanes(), np.float32)
    padded[: len(x)] = x
    getattr(loaded(), f"evolve_{name}")(pointer(padded), pointer(y), rows)
    return y[: len(x)]


class _Fingerprints(ctypes.Structure):
    """`fingerprints` of kernels.c."""

    _fields_ = (
        ("sizes", ctypes.c_int64 * 2),
        ("room", ctypes.c_int64),
        ("observations", ctypes.c_void_p),
        ("coefficients", ctypes.c_void_p),
        ("states", ctypes.c_void_p),
        ("steps", ctypes.c_void_p),
        ("trails", ctypes.c_void_p),
    )


def fingerprint(
    action_size: int, observations: Float32, coefficients: UInt64, states: UInt64, steps: Int32, trails: UInt8
) -> tuple[Any, ctypes.Structure]:
    """Return the kernel that takes in a step, and its first argument, which is bound to the arrays but keeps none."""
    addresses = (array.ctypes.data for array in (observations, coefficients, states, steps, trails))
    sizes = (ctypes.c_int64 * 2)(observations.shape[1], action_size)
    return loaded().evolve_fingerprint, _Fingerprints(sizes, trails.shape[1], *addresses)


class _Normalization(ctypes.Structure):
    """`normalization` of kernels.c."""

    _fields_ = (
        ("size", ctypes.c_int64),
        ("observations", ctypes.c_void_p),
        ("normalizers", ctypes.c_void_p),
        ("moments", ctypes.c_void_p),
        ("seen", ctypes.c_void_p),
    )


def normalize(
    observations: Float32, normalizers: Float32, moments: Float64, seen: Float32
) -> tuple[Any, ctypes.Structure]:
    """Return the kernel that normalizes, and its first argument, which is bound to the arrays but keeps none."""
    addresses = (array.ctypes.data for array in (observations, normalizers, moments, seen))
    return loaded().evolve_normalize, _Normalization(observations.shape[1], *addresses)


def loaded() -> ctypes.CDLL:
    """Return the kernels. Raises RuntimeError where they were not built."""
    library = _library()
    if library is None:
        raise RuntimeError("the native kernels were not built")
    return library


def address(array: Any) -> int:
    """Return where a C-contiguous array begins, four times as fast as NumPy does when it may be written."""
    try:
        return ctypes.addressof(_BYTE.from_buffer(array))
    except (TypeError, ValueError):  # read-only, or empty
        return int(array.ctypes.data)


def pointer(array: Float32) -> Any:
    """Return the C pointer to an array, which does not keep it alive."""
    return array.ctypes.data_as(FLOAT_P)
