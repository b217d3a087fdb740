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
from numpy.typing import NDArray

from evolve.errors import InputError
from evolve.shapes import Float32, Int64

Backend = Literal["numpy", "native"]
_ALIGNMENT = 64
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
    library.evolve_hebbian_dag.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    library.evolve_hebbian_dag.restype = None
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
        ("weights", _FLOAT_P),
        ("traces", _FLOAT_P),
        ("gains", _FLOAT_P),
        ("nodes", _FLOAT_P),
        ("sums", _FLOAT_P),
        ("trace_rate", ctypes.c_float),
        ("trace_limit", ctypes.c_float),
        ("neuromodulated", ctypes.c_int64),
    )


class HebbianDagKernel:
    """The step of a hebbian-dag batch, bound to its arrays.

    weights, traces, gains: [tiles, W, lanes] float32, on cache lines; gains None without plasticity. sizes: D.
    nodes: [tiles, sum(D), lanes], the observation first and the outputs last.
    """

    def __init__(
        self, sizes: tuple[int, ...], weights: Float32, traces: Float32, gains: Float32 | None,
        trace_rate: float, trace_limit: float, neuromodulated: bool,
    ) -> None:  # fmt: skip
        tiles, W, width = weights.shape
        sums = sum((layer + 1) * size for layer, size in enumerate(sizes[1:]))
        self.nodes = aligned(tiles, sum(sizes), width)
        # The structure holds bare addresses: what they point to must live as long.
        self._kept: list[NDArray[Any]] = [np.array(sizes, np.int64), aligned(tiles, sums, width), weights, traces]
        self._kept += [] if gains is None else [gains]
        D: Int64 = self._kept[0]
        self._arguments = _HebbianDag(
            len(sizes) - 1, D.ctypes.data_as(_INT64_P), W, sum(sizes), sums, _pointer(weights), _pointer(traces),
            _FLOAT_P() if gains is None else _pointer(gains), _pointer(self.nodes), _pointer(self._kept[1]),
            trace_rate, trace_limit, neuromodulated,
        )  # fmt: skip
        self._address = ctypes.addressof(self._arguments)
        self._step = _loaded().evolve_hebbian_dag

    def __call__(self, tiles: int) -> None:
        """Advance the slots of the first tiles by one step, from observation rows to output rows."""
        self._step(self._address, tiles)


def _loaded() -> ctypes.CDLL:
    library = _library()
    if library is None:
        raise RuntimeError("the native kernels were not built")
    return library


def _pointer(array: Float32) -> Any:
    return array.ctypes.data_as(_FLOAT_P)
