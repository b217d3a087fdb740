"""Portable arithmetic, keyed random streams and fingerprints: the same bits on every CPU.

The code uses only operations that IEEE 754 defines exactly: + − × ÷, sqrt, comparison, rounding to an integer and
conversion. Each operation is rounded on its own, and their order is fixed. So there is no libm, no BLAS, no fused
multiply-add, and no reduction whose order a library chooses.

`portable` has the functions, `streams` the random numbers, `perturbation` random changes of genomes, and `hashing` the
fingerprints. `native` calls the kernels in C on the CPU, and `device` opens a GPU.
"""

from evolve.numerics.native import Backend, aligned, backend, host_backend
from evolve.numerics.portable import exp, normal_quantile, ordered_sum, restore_ieee, sequential_sum, sigmoid, tanh

__all__ = [
    "Backend", "aligned", "backend", "exp", "host_backend", "normal_quantile", "ordered_sum", "restore_ieee",
    "sequential_sum", "sigmoid", "tanh",
]  # fmt: skip
