/* tanh, exp, sigmoid, sine and cosine, of a number and of a row of lanes; portable.py is their definition. */
#pragma once
#include "lanes.h"

#define LN2 0.69314718055994530942
#define ROUND 6755399441055744.0 /* 1.5 * 2^52 */

/* exp(x) = s + s*p: see _expm1_parts in portable.py. */
INLINE void expm1_parts(double x, double *s, double *p)
{
    const double shifted = x * (1.0 / LN2) + ROUND, r = x - (shifted - ROUND) * LN2;
    double q = r * (1.0 / 362880.0);
    q = (q + 1.0 / 40320.0) * r;
    q = (q + 1.0 / 5040.0) * r;
    q = (q + 1.0 / 720.0) * r;
    q = (q + 1.0 / 120.0) * r;
    q = (q + 1.0 / 24.0) * r;
    q = (q + 1.0 / 6.0) * r;
    q = (q + 1.0 / 2.0) * r;
    *p = (q + 1.0) * r;
    int64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int64_t)((uint64_t)(bits + 1023) << 52);
    memcpy(s, &bits, sizeof bits);
}

INLINE float tanh_of(float x)
{
    const float size = fabsf(x);
    double s, p;
    expm1_parts(2.0 * (double)(size > 16.0f ? 16.0f : size), &s, &p);
    const double e = s * p + (s - 1.0);
    return copysignf((float)(e / (e + 2.0)), x);
}

INLINE float within_128(float x) { return x < -128.0f ? -128.0f : x > 128.0f ? 128.0f : x; }

INLINE float exp_of(float x)
{
    double s, p;
    expm1_parts(within_128(x), &s, &p);
    return (float)(s + s * p);
}

INLINE float sigmoid_of(float x)
{
    double s, p;
    expm1_parts(-(double)within_128(x), &s, &p);
    return (float)(1.0 / (1.0 + (s + s * p)));
}

/* Sine and cosine, |x| < 2^19: see sincos in portable.py. */
INLINE void sincos_of(double x, double *sine, double *cosine)
{
    const double shifted = x * 6.36619772367581382433e-01 + ROUND, n = shifted - ROUND;
    const double first = x - n * 1.57079632673412561417e+00, second = n * 6.07710050630396597660e-11;
    const double r = first - second, w = n * 2.02226624879595063154e-21 - ((first - r) - second);
    const double y = r - w, tail = (r - y) - w, z = y * y, v = z * y;
    double p = 1.58969099521155010221e-10;
    p = p * z - 2.50507602534068634195e-08;
    p = p * z + 2.75573137070700676789e-06;
    p = p * z - 1.98412698298579493134e-04;
    p = p * z + 8.33333333332248946124e-03;
    const double s = y - ((z * (0.5 * tail - v * p) - tail) + v * 1.66666666666666324348e-01);
    double q = -1.13596475577881948265e-11;
    q = q * z + 2.08757232129817482790e-09;
    q = q * z - 2.75573143513906633035e-07;
    q = q * z + 2.48015872894767294178e-05;
    q = q * z - 1.38888888888741095749e-03;
    q = q * z + 4.16666666666666019037e-02;
    const double half = 0.5 * z, rest = 1.0 - half;
    const double c = rest + (((1.0 - rest) - half) + (z * (z * q) - y * tail));
    int64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    const double a = bits & 1 ? c : s, b = bits & 1 ? s : c;
    *sine = bits & 2 ? -a : a;
    *cosine = (bits + 1) & 2 ? -b : b;
}

INLINE void sincos_lanes(const double *x, double *sine, double *cosine)
{
    FOR_LANES
        sincos_of(x[t], sine + t, cosine + t);
}

#define LANES_OF(name)                                  \
    INLINE void name##_lanes(const float *x, float *y)  \
    {                                                   \
        FOR_LANES                                       \
            y[t] = name##_of(x[t]);                     \
    }
LANES_OF(tanh)
LANES_OF(exp)
LANES_OF(sigmoid)

#ifndef __CUDACC__
/* Of whole rows of lanes, for the tests, too. */
DISPATCH void evolve_sincos(const double *x, double *sine, double *cosine, int64_t rows)
{
    for (int64_t i = 0; i < rows * LANES; i += LANES)
        sincos_lanes(x + i, sine + i, cosine + i);
}

/* y[i] = f(x[i]) for whole rows of lanes. The tests compare it with the array reference. */
#define OVER_ROWS(name)                                                     \
    DISPATCH void evolve_##name(const float *x, float *y, int64_t rows)     \
    {                                                                       \
        for (int64_t row = 0; row < rows; row++)                            \
            name##_lanes(x + row * LANES, y + row * LANES);                 \
    }
OVER_ROWS(tanh)
OVER_ROWS(exp)
OVER_ROWS(sigmoid)
#endif
