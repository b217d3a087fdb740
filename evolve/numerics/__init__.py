"""Portable arithmetic: the same bits on every CPU.

Only operations that IEEE 754 defines exactly (+ − × ÷, sqrt, comparison, rounding to an integer, conversion)
are used, each rounded on its own and in an order written down here: no libm, no BLAS, no fused multiply-add, no
reduction whose order a library chooses.
"""

from evolve.numerics.fingerprints import EpisodeFingerprints
from evolve.numerics.native import Backend, aligned, backend
from evolve.numerics.normalizing import Normalizing
from evolve.numerics.portable import exp, normal_quantile, ordered_sum, sequential_sum, sigmoid, tanh

__all__ = [
    "Backend",
    "EpisodeFingerprints",
    "Normalizing",
    "aligned",
    "backend",
    "exp",
    "normal_quantile",
    "ordered_sum",
    "sequential_sum",
    "sigmoid",
    "tanh",
]
