/* Standard normal deviates from the raw words of a stream; portable.py (normal_quantile) and streams.py (uniform) are
 * their definition. */
#pragma once
#include "exact.h"

#define TO_WORD 4503599627370496.0 /* 2^52 */
#define AT_ONCE 256 /* words; a multiple of LANES */

typedef struct {
    double numerator[8], denominator[8]; /* from the highest power down */
} polynomials;

/* Wichura (1988), Algorithm AS 241, PPND16. */
static const polynomials CENTRE = {
    {2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0},
    {5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0}};
static const polynomials TAIL = {
    {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0},
    {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0}};
static const polynomials FAR_TAIL = {
    {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0},
    {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0}};

INLINE void ratio_lanes(const polynomials *p, const double *x, double *y)
{
    for (int t = 0; t < LANES; t++) {
        double top = p->numerator[0], bottom = p->denominator[0];
        for (int k = 1; k < 8; k++) {
            top = top * x[t] + p->numerator[k];
            bottom = bottom * x[t] + p->denominator[k];
        }
        y[t] = top / bottom;
    }
}

/* log(x) of positive normal x. */
INLINE void log_lanes(const double *x, double *y)
{
    int64_t bits[LANES], exponent[LANES];
    double m[LANES], e[LANES];
    memcpy(bits, x, sizeof bits);
    for (int t = 0; t < LANES; t++) {
        /* The reference shifts signed numbers. Vector registers lack this shift, so add a bias, and shift unsigned. */
        uint64_t biased = (uint64_t)bits[t] - 0x3FE6A09E667F3BCC + ((uint64_t)1024 << 52);
        exponent[t] = (int64_t)(biased >> 52) - 1024;
        bits[t] = (int64_t)((uint64_t)bits[t] - ((uint64_t)exponent[t] << 52));
        exponent[t] += 0x4338000000000000; /* of the double 1.5 * 2^52 + e */
    }
    memcpy(m, bits, sizeof m);
    memcpy(e, exponent, sizeof e);
    for (int t = 0; t < LANES; t++) {
        e[t] = e[t] - ROUND;
        double f = (m[t] - 1.0) / (m[t] + 1.0), square = f * f, series = 1.0 / 23.0;
        for (int k = 21; k > 2; k -= 2)
            series = series * square + 1.0 / k;
        const double high = 6.93147180369123816490e-01, low = 1.90821492927058770002e-10;
        y[t] = e[t] * high + ((2.0 * f * square) * series + (2.0 * f + e[t] * low));
    }
}

/* The deviates of u in the middle: q = u - 1/2 lies in [-0.425, 0.425]. */
INLINE void centre_lanes(const uint64_t *words, double *q, float *deviates)
{
    uint64_t bits[LANES];
    double x[LANES], centre[LANES];
    for (int t = 0; t < LANES; t++)
        bits[t] = words[t] >> 12 | 0x4330000000000000; /* of the double 2^52 + word */
    memcpy(x, bits, sizeof x);
    for (int t = 0; t < LANES; t++) {
        q[t] = (x[t] - TO_WORD + 0.5) * (1.0 / TO_WORD) - 0.5;
        x[t] = 0.180625 - q[t] * q[t];
    }
    ratio_lanes(&CENTRE, x, centre);
    for (int t = 0; t < LANES; t++)
        deviates[t] = (float)(q[t] * centre[t]);
}

/* The deviates of u near 0 or 1. q is exact, so that u is q + 1/2 again. */
INLINE void tail_lanes(const double *q, float *deviates)
{
    double x[LANES], r[LANES], tail[LANES], far_tail[LANES];
    int far = 0;
    for (int t = 0; t < LANES; t++) {
        double u = q[t] + 0.5, other = 1.0 - u;
        x[t] = other < u ? other : u;
    }
    log_lanes(x, r);
    for (int t = 0; t < LANES; t++) {
        r[t] = sqrt(-r[t]);
        x[t] = r[t] - 1.6;
        far |= r[t] > 5.0;
    }
    ratio_lanes(&TAIL, x, tail);
    if (far) {
        for (int t = 0; t < LANES; t++)
            x[t] = r[t] - 5.0;
        ratio_lanes(&FAR_TAIL, x, far_tail);
        for (int t = 0; t < LANES; t++)
            tail[t] = r[t] <= 5.0 ? tail[t] : far_tail[t];
    }
    for (int t = 0; t < LANES; t++)
        deviates[t] = (float)copysign(tail[t], q[t]);
}

/* Standard normal deviates of at most AT_ONCE words. One deviate in seven is in a tail, and takes three times as long.
 * So compute all deviates as if they were in the middle, then gather the deviates in the tails, and recompute them. */
INLINE void normal_block(const uint64_t *words, float *deviates, int64_t n)
{
    double q[AT_ONCE], far[AT_ONCE + LANES];
    float tails[AT_ONCE + LANES];
    int places[AT_ONCE + LANES], count = 0;
    for (int64_t i = 0; i < n; i += LANES)
        centre_lanes(words + i, q + i, deviates + i);
    for (int i = 0; i < n; i++) {
        places[count] = i;
        far[count] = q[i];
        count += fabs(q[i]) > 0.425;
    }
    for (int k = count; k < count + LANES; k++)
        far[k] = 0.45; /* padding: any number in a tail */
    for (int k = 0; k < count; k += LANES)
        tail_lanes(far + k, tails + k);
    for (int k = 0; k < count; k++)
        deviates[places[k]] = tails[k];
}

/* Standard normal deviates [n] from words [n]. */
DISPATCH void evolve_normal(const uint64_t *words, float *deviates, int64_t n)
{
    int64_t i = 0;
    for (; i + AT_ONCE <= n; i += AT_ONCE)
        normal_block(words + i, deviates + i, AT_ONCE);
    if (i < n) {
        uint64_t rest[AT_ONCE] = {0};
        float last[AT_ONCE];
        memcpy(rest, words + i, (n - i) * sizeof *words);
        normal_block(rest, last, n - i);
        memcpy(deviates + i, last, (n - i) * sizeof *deviates);
    }
}
