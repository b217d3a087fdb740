"""Portable arithmetic, keyed random streams and fingerprints: the same bits on every CPU.

The code uses only operations that IEEE 754 defines exactly (+ − × ÷, sqrt, comparison, rounding to an integer,
conversion), rounds each on its own, and fixes their order: no libm, no BLAS, no fused multiply-add, no reduction whose
order a library chooses.
"""

from evolve.numerics.native import Backend, aligned, backend, host_backend
from evolve.numerics.portable import exp, normal_quantile, ordered_sum, restore_ieee, sequential_sum, sigmoid, tanh

__all__ = [
    "Backend", "aligned", "backend", "exp", "host_backend", "normal_quantile", "ordered_sum", "restore_ieee",
    "sequential_sum", "sigmoid", "tanh",
]  # fmt: skip
