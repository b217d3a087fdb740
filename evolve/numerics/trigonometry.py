"""The array reference of sine and cosine in float64: this file is their definition.

What libm gives depends on its version and on the processor: with and without FMA, one sine in a thousand differs.
"""

import numpy as np

from evolve.numerics.portable import ROUND, polynomial
from evolve.shapes import Float64

# The polynomials of fdlibm (Sun Microsystems, 1993), highest power first.
_SINE = (
    1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06, -1.98412698298579493134e-04,
    8.33333333332248946124e-03,
)  # fmt: skip
_COSINE = (
    -1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07, 2.48015872894767294178e-05,
    -1.38888888888741095749e-03, 4.16666666666666019037e-02,
)  # fmt: skip


def sincos(x: Float64) -> tuple[Float64, Float64]:
    """Return (sin(x), cos(x)) within 1 ulp, for |x| < 2^19.

    x is reduced by the nearest multiple of π/2, which is subtracted in parts of 33 bits (Cody and Waite, 1980).
    """
    shifted = x * 6.36619772367581382433e-01 + ROUND
    n = shifted - ROUND
    first, second = x - n * 1.57079632673412561417e00, n * 6.07710050630396597660e-11
    r = first - second
    w = n * 2.02226624879595063154e-21 - ((first - r) - second)
    y = r - w
    tail, z = (r - y) - w, y * y
    v = z * y
    half, one = 0.5 * z, 1.0 - 0.5 * z
    sine = y - ((z * (0.5 * tail - v * polynomial(z, _SINE)) - tail) + v * 1.66666666666666324348e-01)
    cosine = one + (((1.0 - one) - half) + (z * (z * polynomial(z, _COSINE)) - y * tail))
    bits = shifted.view(np.int64)
    swapped = (bits & 1).astype(np.bool_)
    a, b = np.where(swapped, cosine, sine), np.where(swapped, sine, cosine)
    return np.where(bits & 2, -a, a), np.where((bits + 1) & 2, -b, b)
