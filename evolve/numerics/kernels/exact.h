/* tanh, exp, sigmoid, sine and cosine of a row of lanes; portable.py is their definition. */
#define LN2 0.69314718055994530942
#define ROUND 6755399441055744.0 /* 1.5 * 2^52 */

/* exp(x) = s + s*p: see _expm1_parts in portable.py. */
INLINE void expm1_parts(const double *x, double *s, double *p)
{
    int64_t bits[LANES];
    double shifted[LANES];
    for (int t = 0; t < LANES; t++) {
        shifted[t] = x[t] * (1.0 / LN2) + ROUND;
        double r = x[t] - (shifted[t] - ROUND) * LN2;
        double q = r * (1.0 / 362880.0);
        q = (q + 1.0 / 40320.0) * r;
        q = (q + 1.0 / 5040.0) * r;
        q = (q + 1.0 / 720.0) * r;
        q = (q + 1.0 / 120.0) * r;
        q = (q + 1.0 / 24.0) * r;
        q = (q + 1.0 / 6.0) * r;
        q = (q + 1.0 / 2.0) * r;
        p[t] = (q + 1.0) * r;
    }
    memcpy(bits, shifted, sizeof bits);
    for (int t = 0; t < LANES; t++)
        bits[t] = (int64_t)((uint64_t)(bits[t] + 1023) << 52);
    memcpy(s, bits, sizeof bits);
}

INLINE void tanh_lanes(const float *x, float *y)
{
    double a[LANES], s[LANES], p[LANES];
    for (int t = 0; t < LANES; t++) {
        float size = fabsf(x[t]);
        size = size > 16.0f ? 16.0f : size;
        a[t] = 2.0 * (double)size;
    }
    expm1_parts(a, s, p);
    for (int t = 0; t < LANES; t++) {
        double e = s[t] * p[t] + (s[t] - 1.0);
        y[t] = copysignf((float)(e / (e + 2.0)), x[t]);
    }
}

INLINE void exp_lanes(const float *x, float *y)
{
    double a[LANES], s[LANES], p[LANES];
    for (int t = 0; t < LANES; t++) {
        float clipped = x[t] < -128.0f ? -128.0f : x[t];
        a[t] = clipped > 128.0f ? 128.0f : clipped;
    }
    expm1_parts(a, s, p);
    for (int t = 0; t < LANES; t++)
        y[t] = (float)(s[t] + s[t] * p[t]);
}

INLINE void sigmoid_lanes(const float *x, float *y)
{
    double a[LANES], s[LANES], p[LANES];
    for (int t = 0; t < LANES; t++) {
        float clipped = x[t] < -128.0f ? -128.0f : x[t];
        a[t] = -(double)(clipped > 128.0f ? 128.0f : clipped);
    }
    expm1_parts(a, s, p);
    for (int t = 0; t < LANES; t++)
        y[t] = (float)(1.0 / (1.0 + (s[t] + s[t] * p[t])));
}

/* Sines and cosines of doubles, |x| < 2^19: see sincos in portable.py. */
INLINE void sincos_lanes(const double *x, double *sine, double *cosine)
{
    double shifted[LANES], sines[LANES], cosines[LANES];
    int64_t bits[LANES];
    for (int t = 0; t < LANES; t++) {
        shifted[t] = x[t] * 6.36619772367581382433e-01 + ROUND;
        const double n = shifted[t] - ROUND;
        const double first = x[t] - n * 1.57079632673412561417e+00, second = n * 6.07710050630396597660e-11;
        const double r = first - second, w = n * 2.02226624879595063154e-21 - ((first - r) - second);
        const double y = r - w, tail = (r - y) - w, z = y * y, v = z * y;
        double p = 1.58969099521155010221e-10;
        p = p * z - 2.50507602534068634195e-08;
        p = p * z + 2.75573137070700676789e-06;
        p = p * z - 1.98412698298579493134e-04;
        p = p * z + 8.33333333332248946124e-03;
        sines[t] = y - ((z * (0.5 * tail - v * p) - tail) + v * 1.66666666666666324348e-01);
        double q = -1.13596475577881948265e-11;
        q = q * z + 2.08757232129817482790e-09;
        q = q * z - 2.75573143513906633035e-07;
        q = q * z + 2.48015872894767294178e-05;
        q = q * z - 1.38888888888741095749e-03;
        q = q * z + 4.16666666666666019037e-02;
        const double half = 0.5 * z, rest = 1.0 - half;
        cosines[t] = rest + (((1.0 - rest) - half) + (z * (z * q) - y * tail));
    }
    memcpy(bits, shifted, sizeof bits);
    for (int t = 0; t < LANES; t++) {
        const double a = bits[t] & 1 ? cosines[t] : sines[t], b = bits[t] & 1 ? sines[t] : cosines[t];
        sine[t] = bits[t] & 2 ? -a : a;
        cosine[t] = (bits[t] + 1) & 2 ? -b : b;
    }
}

#ifndef __CUDACC__
/* Of whole rows of lanes, for the tests, too. */
DISPATCH void evolve_sincos(const double *x, double *sine, double *cosine, int64_t rows)
{
    for (int64_t i = 0; i < rows * LANES; i += LANES)
        sincos_lanes(x + i, sine + i, cosine + i);
}

/* y[i] = f(x[i]) for whole rows of lanes: what the tests compare with the array reference. */
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
