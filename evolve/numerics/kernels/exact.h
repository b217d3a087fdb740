/* tanh, exp and sigmoid of a row of lanes; portable.py is their definition. */
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

#ifndef __CUDACC__
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
