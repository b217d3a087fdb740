"""The native steps of networks: each is a function of the kernels, bound to the arrays of one batch.

A structure of C holds bare addresses, so what they point to is kept beside it.
"""

import ctypes
from typing import Any

import numpy as np

from evolve.numerics import native
from evolve.numerics.native import FLOAT_P, pointer
from evolve.shapes import Float32, Int64

_INT64_P = ctypes.POINTER(ctypes.c_int64)


class NativeStep:
    """`evolve_<name>` of the kernels, bound to a structure; `kept` is what that points to. actions: A."""

    def __init__(self, name: str, structure: ctypes.Structure, actions: int, *kept: Any) -> None:
        self._structure, self._kept, self._actions = structure, kept, actions
        self._address, self._step = ctypes.addressof(structure), getattr(native.loaded(), f"evolve_{name}")

    def __call__(self, observations: Float32) -> Float32:
        """Advance the first n slots by one step: observations [n, O] -> actions [n, A]."""
        rows = np.ascontiguousarray(observations, np.float32)
        actions = np.empty((len(rows), self._actions), np.float32)
        self._step(self._address, native.address(rows), native.address(actions), len(rows))
        return actions


class _HebbianDag(ctypes.Structure):
    """`hebbian_dag` of kernels/hebbian_dag.h."""

    _fields_ = (
        ("layers", ctypes.c_int64),
        ("sizes", _INT64_P),
        ("weight_rows", ctypes.c_int64),
        ("node_rows", ctypes.c_int64),
        ("sum_rows", ctypes.c_int64),
        ("delay", ctypes.c_int64),
        ("weights", FLOAT_P),
        ("traces", FLOAT_P),
        ("gains", FLOAT_P),
        ("nodes", FLOAT_P),
        ("sums", FLOAT_P),
        ("due", _INT64_P),
        ("trace_rate", ctypes.c_float),
        ("trace_limit", ctypes.c_float),
        ("neuromodulated", ctypes.c_int64),
    )


class HebbianDagStep(NativeStep):
    """The step of a hebbian-dag batch.

    weights, traces, gains: [tiles, W, lanes] float32, on cache lines; gains None without plasticity. sizes: D.
    Without plasticity traces are updated several steps at a time: `settle` before they are looked at or changed.
    """

    def __init__(
        self, sizes: tuple[int, ...], weights: Float32, traces: Float32, gains: Float32 | None,
        trace_rate: float, trace_limit: float, neuromodulated: bool,
    ) -> None:  # fmt: skip
        tiles, W, width = weights.shape
        rows, sums = sum(sizes), sum((layer + 1) * size for layer, size in enumerate(sizes[1:]))
        delay = 1 if gains is not None else int(native.loaded().evolve_most_delay())
        D, due = np.array(sizes, np.int64), np.zeros(tiles, np.int64)
        nodes, partial = native.aligned(tiles, delay * rows, width), native.aligned(tiles, delay * sums, width)
        structure = _HebbianDag(
            len(sizes) - 1, D.ctypes.data_as(_INT64_P), W, rows, sums, delay, pointer(weights), pointer(traces),
            FLOAT_P() if gains is None else pointer(gains), pointer(nodes), pointer(partial),
            due.ctypes.data_as(_INT64_P), trace_rate, trace_limit, neuromodulated,
        )  # fmt: skip
        super().__init__("hebbian_dag", structure, sizes[-1] - 1, D, due, nodes, partial, weights, traces, gains)
        self._settle = native.loaded().evolve_hebbian_dag_settle

    def settle(self, tiles: Int64) -> None:
        """Bring the traces of some tiles up to date."""
        once: Int64 = tiles if len(tiles) == 1 else np.unique(tiles)
        self._settle(self._address, once.ctypes.data, len(once))


class _Layered(ctypes.Structure):
    """`layered` of kernels/layers.h."""

    _fields_ = (
        ("layers", ctypes.c_int64),
        ("weight_rows", ctypes.c_int64),
        ("node_rows", ctypes.c_int64),
        ("observations", ctypes.c_int64),
        ("wiring", _INT64_P),
        ("feedback", ctypes.c_int64 * 3),
        ("weights", FLOAT_P),
        ("nodes", FLOAT_P),
    )


class LayeredStep(NativeStep):
    """The step of a layered batch.

    O: the observation's size. wiring: of each layer the first node and the number of those it reads, and of those it
    says. feedback: the nodes that a step copies. weights: [tiles, W, lanes] float32; nodes: [tiles, nodes, lanes].
    """

    def __init__(
        self, O: int, wiring: list[tuple[int, int, int, int]], feedback: tuple[int, int, int],
        weights: Float32, nodes: Float32,
    ) -> None:  # fmt: skip
        rows = np.array(wiring, np.int64)
        sizes = len(wiring), weights.shape[1], nodes.shape[1], O
        copied = (ctypes.c_int64 * 3)(*feedback)
        structure = _Layered(*sizes, rows.ctypes.data_as(_INT64_P), copied, pointer(weights), pointer(nodes))
        super().__init__("layered", structure, wiring[-1][3], rows, weights, nodes)


class _HebbianLstm(ctypes.Structure):
    """`hebbian_lstm` of kernels/hebbian_lstm.h."""

    _fields_ = (
        ("observations", ctypes.c_int64),
        ("cells", ctypes.c_int64),
        ("actions", ctypes.c_int64),
        ("weight_rows", ctypes.c_int64),
        ("node_rows", ctypes.c_int64),
        ("weights", FLOAT_P),
        ("left", FLOAT_P),
        ("traces", FLOAT_P),
        ("nodes", FLOAT_P),
        ("update_limit", ctypes.c_float),
    )


class HebbianLstmStep(NativeStep):
    """The step of a hebbian-lstm batch.

    sizes: O, H, A. weights, left, traces: [tiles, W, lanes] float32; nodes: [tiles, nodes, lanes].
    """

    def __init__(
        self, sizes: tuple[int, int, int], weights: Float32, left: Float32, traces: Float32, nodes: Float32,
        update_limit: float,
    ) -> None:  # fmt: skip
        arrays = weights, left, traces, nodes
        rows = weights.shape[1], nodes.shape[1]
        structure = _HebbianLstm(*sizes, *rows, *map(pointer, arrays), update_limit)
        super().__init__("hebbian_lstm", structure, sizes[2], *arrays)


class _PlasticMlp(ctypes.Structure):
    """`plastic_mlp` of kernels/plastic_mlp.h."""

    _fields_ = (
        ("layers", ctypes.c_int64),
        ("sizes", _INT64_P),
        ("weight_rows", ctypes.c_int64),
        ("rule_rows", ctypes.c_int64),
        ("node_rows", ctypes.c_int64),
        ("own_rows", ctypes.c_int64),
        ("own_columns", ctypes.c_int64),
        ("weights", FLOAT_P),
        ("nodes", FLOAT_P),
        ("age", FLOAT_P),
        ("rules", FLOAT_P),
        ("every", ctypes.c_float),
        ("max_norm", ctypes.c_int64),
    )


class PlasticMlpStep(NativeStep):
    """The step of a plastic-mlp batch.

    sizes: D. own: whether rows, and whether columns, have rules of their own. weights, nodes, age, rules: [tiles, n,
    lanes] float32. every: steps from update to update.
    """

    def __init__(
        self, sizes: tuple[int, ...], own: tuple[bool, bool], weights: Float32, nodes: Float32, age: Float32,
        rules: Float32, every: int, max_norm: bool,
    ) -> None:  # fmt: skip
        D, arrays = np.array(sizes, np.int64), (weights, nodes, age, rules)
        rows = weights.shape[1], rules.shape[1], nodes.shape[1]
        pointers = map(pointer, arrays)
        structure = _PlasticMlp(len(sizes) - 1, D.ctypes.data_as(_INT64_P), *rows, *own, *pointers, every, max_norm)
        super().__init__("plastic_mlp", structure, sizes[-1], D, *arrays)
