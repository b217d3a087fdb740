"""Mathematical functions such as tanh, exp and sums, with the same bits on every CPU and GPU.

IEEE 754 defines the rounding of additions, multiplications, divisions, square roots and conversions between floats. The
functions use only these, and operations that do not round, such as shifts. The order of the operations is fixed. This
NumPy code is the definition; the C kernels compute the same bits.
"""

import ctypes
import math
import sys

import numpy as np

from evolve.errors import RunError
from evolve.numerics import native
from evolve.shapes import Float32, Float64

_LN2 = 0.69314718055994530942
_LOG2E = 1.0 / _LN2
ROUND = 1.5 * 2.0**52
"""x + ROUND has the integer nearest to x in its low bits, and (x + ROUND) - ROUND is this integer."""
_SMALLEST = sys.float_info.min  # the smallest normal number
# 1/4 and 3/4 of `_SMALLEST`, two denormal numbers. They are made of their bits, because a division may give 0 instead.
_QUARTER, _THREE_QUARTERS = np.array([1 << 50, 3 << 50], np.int64).view(np.float64).tolist()
_TIE_ABOVE, _TIE_BELOW = 2.0**-53, 2.0**-54  # half the distance from 1 to the next larger and the next smaller number
_NARROW_ROW = 100  # for rows of fewer numbers, `accumulate` is faster than a loop
# Taylor coefficients 1/k! of expm1, k = 9 … 1. For |r| ≤ ln(2)/2 the absolute error is below 8e-12.
_EXPM1 = tuple(1.0 / math.factorial(k) for k in range(9, 0, -1))

# Wichura (1988), Algorithm AS 241, PPND16: a numerator and a denominator for each of three ranges, highest power first.
# The paper names the coefficients a and b (centre), c and d (tail), e and f (far tail).
_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
_FAR_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip
# The polynomials of fdlibm (Sun Microsystems, 1993), highest power first.
_SINE = (
    1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06, -1.98412698298579493134e-04,
    8.33333333332248946124e-03,
)  # fmt: skip
_COSINE = (
    -1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07, 2.48015872894767294178e-05,
    -1.38888888888741095749e-03, 4.16666666666666019037e-02,
)  # fmt: skip
_BLOCK = 2**16  # the number of squares that `norm` sums at a time
_PANEL = 32  # the number of rows of a Cholesky factor that update the later rows together


def restore_ieee(_tried: bool = False) -> None:
    """Restore the arithmetic of IEEE 754 in this thread, if a library has changed the mode of the processor.

    A library that was built with -ffast-math may flush denormal numbers to zero, and so does torch.set_flush_denormal.
    A library may also leave another rounding mode behind. Each thread has its own mode, and begins with the mode of the
    thread that starts it. Raises RunError if the mode cannot be restored.
    """
    # A subtraction is the fastest operation with a denormal result. 1 + _TIE_ABOVE and 1 - _TIE_BELOW lie halfway
    # between 1 and a neighbour of 1, so rounding to nearest gives 1, the even number, for both.
    keeps_denormals = _SMALLEST - _QUARTER == _THREE_QUARTERS
    rounds_to_nearest = 1.0 + _TIE_ABOVE == 1.0 - _TIE_BELOW
    if keeps_denormals and rounds_to_nearest:
        return
    if _tried:
        expected = "expected denormal numbers, and results that are rounded to the nearest number"
        cure = "Do not load the library that changes the mode of the processor; it was probably built with -ffast-math."
        raise RunError(f"arithmetic: {expected}, got another mode, which cannot be restored here. {cure}")
    library = ctypes.CDLL(None)
    # On Linux, the default environment (FE_DFL_ENV of fenv.h) is -1. Elsewhere it is a pointer, and -1 would crash.
    if sys.platform.startswith("linux") and hasattr(library, "fesetenv"):
        library.fesetenv(ctypes.c_void_p(-1))
    restore_ieee(_tried=True)  # raises an error if the mode is still wrong


def _expm1_parts(x: Float64) -> tuple[Float64, Float64]:
    """Return (s, p) with exp(x) = s + s·p. s is a power of two, and p is expm1 of the reduced argument r."""
    # x = n·ln 2 + r. The low bits of `shifted` are the integer n. The last line moves n into the exponent of s = 2ⁿ.
    shifted = x * _LOG2E + ROUND
    r = x - (shifted - ROUND) * _LN2
    p = r * _EXPM1[0]
    for coefficient in _EXPM1[1:-1]:
        p += coefficient
        p *= r
    p += _EXPM1[-1]
    p *= r
    # 1023 is the bias of the exponent. The shift drops all bits of `shifted` except the lowest twelve.
    return ((shifted.view(np.int64) + 1023) << 52).view(np.float64), p


def tanh(x: Float32) -> Float32:
    """Return tanh(x): e/(e + 2) with the sign of x, where e = expm1(2|x|)."""
    # The limit of 16 prevents an overflow. It changes no result, because tanh is ±1 in float32 from |x| = 9.011 on.
    size = np.minimum(np.abs(x), np.float32(16)).astype(np.float64)
    s, p = _expm1_parts(2.0 * size)
    # s - 1 is exact, so e keeps its precision near 0. With exp(2|x|) - 1 the bits of p would be lost there.
    e = s * p + (s - 1.0)
    return np.copysign((e / (e + 2.0)).astype(np.float32), x)


def exp(x: Float32) -> Float32:
    """Return exp(x); infinite above 88.73, zero below -104."""
    # The limits of ±128 keep the exponent of the intermediate float64 in range. They change no result.
    limited = np.clip(x, np.float32(-128), np.float32(128))
    s, p = _expm1_parts(limited.astype(np.float64))
    with np.errstate(over="ignore", under="ignore"):
        return (s + s * p).astype(np.float32)


def exp_float64(x: Float64) -> Float64:
    """Return exp(x) for |x| < 700, with a relative error below 1e-11."""
    s, p = _expm1_parts(x)
    return s + s * p


def sigmoid(x: Float32) -> Float32:
    """Return 1/(1 + exp(-x))."""
    limited = np.clip(x, np.float32(-128), np.float32(128))  # as in `exp`
    s, p = _expm1_parts(-limited.astype(np.float64))
    with np.errstate(under="ignore"):
        return (1.0 / (1.0 + (s + s * p))).astype(np.float32)


def _polynomial(x: Float64, coefficients: tuple[float, ...]) -> Float64:
    """Return the value of a polynomial at x, by Horner's rule. coefficients: of the highest power first."""
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def log(x: Float64) -> Float64:
    """Return the natural logarithm of positive normal x, within 2 ulp."""
    # ln x = ln m + e·ln 2, for x = m·2^e and m in [sqrt(1/2), sqrt(2)). The bits of sqrt(1/2), rounded down, are
    # 0x3FE6A09E667F3BCC. The exponent begins at bit 52.
    bits = x.view(np.int64)
    e = (bits - 0x3FE6A09E667F3BCC) >> 52
    m = (bits - (e << 52)).view(np.float64)
    # ln m = 2·atanh(f) = 2f + 2f·(f²/3 + f⁴/5 + … + f²²/23), and |f| ≤ 0.172.
    f = (m - 1.0) / (m + 1.0)
    square = f * f
    series = np.full_like(f, 1.0 / 23.0)
    for k in range(21, 2, -2):
        series = series * square + 1.0 / k
    # ln 2 in two parts. The first part ends with zeros, so e·high is exact.
    high = 6.93147180369123816490e-01
    low = 1.90821492927058770002e-10
    return e * high + ((2.0 * f * square) * series + (2.0 * f + e * low))


def _ratio(x: Float64, numerator: tuple[float, ...], denominator: tuple[float, ...]) -> Float64:
    """Return the quotient of two polynomials at x; coefficients as in `_polynomial`."""
    return _polynomial(x, numerator) / _polynomial(x, denominator)


def normal_quantile(u: Float64) -> Float32:
    """Return the standard normal deviate z with distribution function Φ(z) = u, for u in (0, 1).

    Wichura, Algorithm AS 241 (1988). Each deviate takes exactly one uniform number, so its position in a random stream
    is known in advance.
    """
    # Compute all three ranges for all numbers, and select at the end. 0.180625 is 0.425².
    q = u - 0.5
    centre = q * _ratio(0.180625 - q * q, *_CENTRE)
    r = np.sqrt(-log(np.minimum(u, 1.0 - u)))
    tail = np.where(r <= 5.0, _ratio(r - 1.6, *_TAIL), _ratio(r - 5.0, *_FAR_TAIL))
    return np.where(np.abs(q) <= 0.425, centre, np.copysign(tail, q)).astype(np.float32)


def ordered_sum(x: Float64) -> Float64:
    """Return the sum over the last axis, `[…, n] -> […]`. Each round adds the upper half to the lower half.

    If the number of elements is odd, the middle one stays unchanged. So the order of additions depends on n alone.
    """
    n = x.shape[-1]
    if n == 0:
        return np.zeros(x.shape[:-1])
    while n > 1:
        half = (n + 1) // 2
        x = np.concatenate([x[..., : n - half] + x[..., half:n], x[..., n - half : half]], axis=-1)
        n = half
    return x[..., 0]


def sequential_sum(x: Float32) -> Float32:
    """Return ((x[0] + x[1]) + x[2]) + …, `[n, …] -> […]`. The function overwrites x, and returns one of its rows."""
    # NumPy's `sum` promises no order, but `accumulate` does. For long rows a loop is faster.
    total: Float32
    if x[0].size < _NARROW_ROW:
        total = np.add.accumulate(x, axis=0, out=x)[-1]
    else:
        total = x[0]
        for row in x[1:]:
            np.add(total, row, out=total)
    return total


def sincos(x: Float64) -> tuple[Float64, Float64]:
    """Return (sin(x), cos(x)) within 1 ulp, for |x| < 2^19.

    First subtract the nearest multiple of π/2, n·π/2, from x. For precision, π/2 has three parts of 33 bits (Cody and
    Waite, 1980). Then polynomials give the sine and the cosine of the reduced argument.
    """
    shifted = x * 6.36619772367581382433e-01 + ROUND  # x times 2/π
    n = shifted - ROUND
    first, second = x - n * 1.57079632673412561417e00, n * 6.07710050630396597660e-11
    r = first - second
    # w has the third part of n·π/2, less the rounding error of r.
    w = n * 2.02226624879595063154e-21 - ((first - r) - second)
    y = r - w
    # As in fdlibm, y + tail is the reduced argument. The tail has the bits that do not fit in y.
    tail, z = (r - y) - w, y * y
    v = z * y
    half, leading = 0.5 * z, 1.0 - 0.5 * z  # `leading`: the first two terms of the cosine
    sine = y - ((z * (0.5 * tail - v * _polynomial(z, _SINE)) - tail) + v * 1.66666666666666324348e-01)
    # ((1 - leading) - half) is the rounding error of `leading`.
    cosine = leading + (((1.0 - leading) - half) + (z * (z * _polynomial(z, _COSINE)) - y * tail))
    # The lowest two bits of `shifted` are the quadrant, n mod 4. If n is odd, sine and cosine change roles. Sine and
    # cosine are each negative in two of the four quadrants.
    bits = shifted.view(np.int64)
    swapped = (bits & 1).astype(np.bool_)
    a, b = np.where(swapped, cosine, sine), np.where(swapped, sine, cosine)
    return np.where(bits & 2, -a, a), np.where((bits + 1) & 2, -b, b)


def norm(x: Float64) -> float:
    """Return the Euclidean norm ‖x‖ of x [n]. The squares are summed in blocks that fit in a cache."""
    blocks = (x[start : start + _BLOCK] for start in range(0, len(x), _BLOCK))
    sums = np.array([ordered_sum(block * block) for block in blocks])
    return math.sqrt(float(ordered_sum(sums)))


def add_outer(target: Float64, left: Float64, right: Float64) -> None:
    """Add left[0] ⊗ right[0], left[1] ⊗ right[1], … to target [m, n]. left: [k, m]. right: [k, n].

    The rows of `target` must be contiguous; `target` may be a slice of rows and columns.
    """
    if not native.available():
        for a, b in zip(left, right, strict=True):
            target += a[:, None] * b
        return
    # The kernel takes any distance between rows, but only contiguous rows. `target` is written, so it is never copied.
    arrays = [target]
    for factor in (left, right):
        has_contiguous_rows = factor.strides[1] == factor.itemsize
        arrays.append(factor if has_contiguous_rows else np.ascontiguousarray(factor))
    addresses = [native.ADDRESS(array.ctypes.data) for array in arrays]
    row_strides = [array.strides[0] // array.itemsize for array in arrays]
    native.call("add_outer", *addresses, *target.shape, len(left), *row_strides)


def cholesky(upper: Float64, smallest: Float64) -> Float64:
    """Return the factor U [n, n] of a covariance C = Uᵀ U. Below the diagonal, U has zeros.

    Each row of U is computed in turn, and its outer product is subtracted from the rest of C: Golub & Van Loan, "Matrix
    Computations", section 4.2. For speed, rows outside a panel are updated once for the whole panel. The operations on
    an element, and their order, do not depend on `_PANEL`.

    Args:
        upper: [n, n], the upper half of C, which this function overwrites. The lower half may have any numbers.
        smallest: [n], a lower bound for the square of each diagonal element of U. If the square is below the bound,
            the row consists of rounding errors. Then the square is set to the bound, and the rest of the row to 0.
    """
    n = len(upper)
    for first in range(0, n, _PANEL):
        last = min(first + _PANEL, n)
        # Compute the rows of the panel; each row updates only the later rows of the panel.
        for j in range(first, last):
            if upper[j, j] < smallest[j]:
                upper[j, j], upper[j, j + 1 :] = smallest[j], 0
            upper[j, j:] /= math.sqrt(upper[j, j])
            upper[j + 1 : last, j + 1 :] -= upper[j, j + 1 : last, None] * upper[j, j + 1 :]
        # Update the rows below the panel. Adding (-a) b gives the same bits as subtracting a b.
        for start in range(last, n, _PANEL):
            rows = slice(start, start + _PANEL)
            add_outer(upper[rows, start:], -upper[first:last, rows], upper[first:last, start:])
    return np.triu(upper)


def solve(factor: Float64, rows: Float64) -> Float64:
    """Return [N, n]: the solution x of Uᵀ x = y for each row y of `rows` [N, n]. factor: U [n, n], of `cholesky`."""
    x, n = rows.copy(), len(factor)
    for first in range(0, n, _PANEL):
        last = min(first + _PANEL, n)
        for j in range(first, last):
            x[:, j] /= factor[j, j]
            x[:, j + 1 : last] -= x[:, j, None] * factor[j, j + 1 : last]
        # As in `cholesky`, the panel updates all later columns together.
        add_outer(x[:, last:], -x[:, first:last].T, factor[first:last, last:])
    return x
