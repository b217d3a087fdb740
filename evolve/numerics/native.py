"""The native CPU kernels: `kernels.c`, compiled by the package's own build where there is a compiler.

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
from evolve.shapes import Float32, Float64, Int32, Int64, UInt8, UInt64

Backend = Literal["numpy", "native"]
_ALIGNMENT = 64
_BYTE = ctypes.c_char
_INT64_P, _FLOAT_P = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_float)


@cache
def _library() -> ctypes.CDLL | None:
    path = Path(__file__).with_name(f"_kernels{sysconfig.get_config_var('EXT_SUFFIX')}")
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    for name in ("tanh", "exp", "sigmoid"):
        getattr(library, f"evolve_{name}").argtypes = [_FLOAT_P, _FLOAT_P, ctypes.c_int64]
        getattr(library, f"evolve_{name}").restype = None
    address = ctypes.c_void_p
    library.evolve_hebbian_dag.argtypes = [address, address, address, ctypes.c_int64]
    library.evolve_hebbian_dag.restype = None
    library.evolve_hebbian_dag_settle.argtypes = [address, address, ctypes.c_int64]
    library.evolve_hebbian_dag_settle.restype = None
    library.evolve_fingerprint.argtypes = [address, address, ctypes.c_int64]
    library.evolve_fingerprint.restype = None
    library.evolve_normalize.argtypes = [address, ctypes.c_int64]
    library.evolve_normalize.restype = None
    return library


def available() -> bool:
    """Whether the native kernels were built."""
    return _library() is not None


def lanes() -> int:
    """Return the slots of one tile."""
    return int(_loaded().evolve_lanes())


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
    getattr(_loaded(), f"evolve_{name}")(_pointer(padded), _pointer(y), rows)
    return y[: len(x)]


class _HebbianDag(ctypes.Structure):
    """`hebbian_dag` of kernels.c."""

    _fields_ = (
        ("layers", ctypes.c_int64),
        ("sizes", _INT64_P),
        ("weight_rows", ctypes.c_int64),
        ("node_rows", ctypes.c_int64),
        ("sum_rows", ctypes.c_int64),
        ("delay", ctypes.c_int64),
        ("weights", _FLOAT_P),
        ("traces", _FLOAT_P),
        ("gains", _FLOAT_P),
        ("nodes", _FLOAT_P),
        ("sums", _FLOAT_P),
        ("due", _INT64_P),
        ("trace_rate", ctypes.c_float),
        ("trace_limit", ctypes.c_float),
        ("neuromodulated", ctypes.c_int64),
    )


class HebbianDagKernel:
    """The step of a hebbian-dag batch, bound to its arrays.

    weights, traces, gains: [tiles, W, lanes] float32, on cache lines; gains None without plasticity. sizes: D.
    Without plasticity traces are updated several steps at a time: `settle` before they are looked at or changed.
    """

    def __init__(
        self, sizes: tuple[int, ...], weights: Float32, traces: Float32, gains: Float32 | None,
        trace_rate: float, trace_limit: float, neuromodulated: bool,
    ) -> None:  # fmt: skip
        tiles, W, width = weights.shape
        rows, sums = sum(sizes), sum((layer + 1) * size for layer, size in enumerate(sizes[1:]))
        delay = 1 if gains is not None else int(_loaded().evolve_most_delay())
        D, due = np.array(sizes, np.int64), np.zeros(tiles, np.int64)
        node_history, sum_history = aligned(tiles, delay * rows, width), aligned(tiles, delay * sums, width)
        # The structure holds bare addresses: what they point to must live as long.
        self._kept = (D, due, node_history, sum_history, weights, traces, gains)
        self._arguments = _HebbianDag(
            len(sizes) - 1, D.ctypes.data_as(_INT64_P), W, rows, sums, delay, _pointer(weights), _pointer(traces),
            _FLOAT_P() if gains is None else _pointer(gains), _pointer(node_history), _pointer(sum_history),
            due.ctypes.data_as(_INT64_P), trace_rate, trace_limit, neuromodulated,
        )  # fmt: skip
        self._address, self._actions = ctypes.addressof(self._arguments), sizes[-1] - 1
        self._step, self._settle = _loaded().evolve_hebbian_dag, _loaded().evolve_hebbian_dag_settle

    def __call__(self, observations: Float32) -> Float32:
        """Advance the first n slots by one step: observations [n, O] -> actions [n, A]."""
        rows = np.ascontiguousarray(observations, np.float32)
        actions = np.empty((len(rows), self._actions), np.float32)
        self._step(self._address, address(rows), address(actions), len(rows))
        return actions

    def settle(self, tiles: Int64) -> None:
        """Bring the traces of some tiles up to date."""
        once: Int64 = tiles if len(tiles) == 1 else np.unique(tiles)
        self._settle(self._address, once.ctypes.data, len(once))


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
    return _loaded().evolve_fingerprint, _Fingerprints(sizes, trails.shape[1], *addresses)


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
    return _loaded().evolve_normalize, _Normalization(observations.shape[1], *addresses)


def _loaded() -> ctypes.CDLL:
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


def _pointer(array: Float32) -> Any:
    return array.ctypes.data_as(_FLOAT_P)
