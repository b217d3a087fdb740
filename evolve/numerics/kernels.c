/* The native kernels: the same operations, in the same order, as the array reference, for many slots at a time.
 *
 * Written in the common subset of C and CUDA C++. Every loop over lanes runs over independent slots, so any vector
 * width gives the same bits, provided that the compiler neither contracts a*b + c nor reorders: -ffp-contract=off (nvcc:
 * -fmad=false), and no fast-math. Arrays are laid out [tiles, rows, LANES]: one tile is what one call of a step
 * function works on, and a row of it is one vector register, or several.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef LANES
#define LANES 16
#endif

#ifdef __CUDACC__
#define INLINE __device__ static inline
#define EXPORT extern "C"
#define DISPATCH
#else
#define INLINE static inline __attribute__((always_inline))
#define EXPORT
#if defined(__GNUC__) && defined(__x86_64__) && defined(__GLIBC__)
/* One copy per instruction set, chosen when the library is loaded. */
#define DISPATCH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DISPATCH
#endif
#endif

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

/* A hebbian-dag batch; see networks/hebbian_dag.py for the formula. Rows per tile: weights, traces and gains W,
 * nodes sum(sizes), sums one per (layer, source, output). gains is NULL when plasticity is zero. */
typedef struct {
    int64_t layers; /* L + 1: how many follow the observation */
    const int64_t *sizes; /* [layers + 1] */
    int64_t weight_rows, node_rows, sum_rows;
    float *weights, *traces, *gains, *nodes, *sums;
    float trace_rate, trace_limit;
    int64_t neuromodulated;
} hebbian_dag;

#define ABREAST 4 /* outputs computed side by side, to hide the latency of the chain of additions */

/* z[k] = x[0]*w[0,k] + x[1]*w[1,k] + ... for `width` outputs from k on, in that order. */
INLINE void weighted_sums(const float *x, const float *w, const float *h, const float *g, float *z,
                          int64_t rows, int64_t columns, int width)
{
    float total[ABREAST][LANES];
    for (int64_t r = 0; r < rows; r++)
        for (int k = 0; k < width; k++) {
            const int64_t at = (r * columns + k) * LANES;
            for (int t = 0; t < LANES; t++) {
                float weight = w[at + t];
                if (g)
                    weight = weight + g[at + t] * h[at + t];
                float product = x[r * LANES + t] * weight;
                total[k][t] = r ? total[k][t] + product : product;
            }
        }
    for (int k = 0; k < width; k++)
        for (int t = 0; t < LANES; t++)
            z[k * LANES + t] = total[k][t];
}

INLINE void forward_block(const float *x, const float *w, const float *h, const float *g, float *z,
                          int64_t rows, int64_t columns)
{
    int64_t k = 0;
    for (; k + ABREAST <= columns; k += ABREAST)
        weighted_sums(x, w + k * LANES, h + k * LANES, g ? g + k * LANES : 0, z + k * LANES, rows, columns, ABREAST);
    for (; k < columns; k++)
        weighted_sums(x, w + k * LANES, h + k * LANES, g ? g + k * LANES : 0, z + k * LANES, rows, columns, 1);
}

/* H = clip(H + (x z) rate, limit) */
INLINE void update_block(const float *x, float *h, const float *z, const float *rate, float limit, int64_t rows,
                         int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < columns; k++) {
            float *at = h + (r * columns + k) * LANES;
            for (int t = 0; t < LANES; t++) {
                float value = at[t] + x[r * LANES + t] * z[k * LANES + t] * rate[t];
                value = value < -limit ? -limit : value;
                at[t] = value > limit ? limit : value;
            }
        }
}

INLINE void hebbian_dag_tile(const hebbian_dag *dag, int64_t tile)
{
    const float *weights = dag->weights + tile * dag->weight_rows * LANES;
    float *traces = dag->traces + tile * dag->weight_rows * LANES;
    const float *gains = dag->gains ? dag->gains + tile * dag->weight_rows * LANES : 0;
    float *nodes = dag->nodes + tile * dag->node_rows * LANES, *sums = dag->sums + tile * dag->sum_rows * LANES;
    const float *outputs = nodes;
    int64_t block = 0, sum = 0, node = dag->sizes[0]; /* rows already passed */
    for (int64_t layer = 0; layer < dag->layers; layer++) {
        const int64_t columns = dag->sizes[layer + 1], first_sum = sum;
        const float *x = nodes;
        for (int64_t source = 0; source <= layer; source++) {
            const int64_t rows = dag->sizes[source];
            forward_block(x, weights + block * LANES, traces + block * LANES, gains ? gains + block * LANES : 0,
                          sums + sum * LANES, rows, columns);
            x += rows * LANES;
            block += rows * columns;
            sum += columns;
        }
        outputs = nodes + node * LANES;
        for (int64_t k = 0; k < columns; k++) {
            float total[LANES];
            for (int t = 0; t < LANES; t++)
                total[t] = sums[(first_sum + k) * LANES + t];
            for (int64_t source = 1; source <= layer; source++)
                for (int t = 0; t < LANES; t++)
                    total[t] = total[t] + sums[(first_sum + source * columns + k) * LANES + t];
            tanh_lanes(total, nodes + (node + k) * LANES);
        }
        node += columns;
    }
    float rate[LANES];
    for (int t = 0; t < LANES; t++)
        rate[t] = dag->neuromodulated ? outputs[t] : dag->trace_rate;
    block = sum = 0;
    for (int64_t layer = 0; layer < dag->layers; layer++) {
        const float *x = nodes;
        for (int64_t source = 0; source <= layer; source++) {
            const int64_t rows = dag->sizes[source], columns = dag->sizes[layer + 1];
            update_block(x, traces + block * LANES, sums + sum * LANES, rate, dag->trace_limit, rows, columns);
            x += rows * LANES;
            block += rows * columns;
            sum += columns;
        }
    }
}

#ifndef __CUDACC__
DISPATCH void evolve_hebbian_dag(const hebbian_dag *dag, int64_t tiles)
{
    for (int64_t tile = 0; tile < tiles; tile++)
        hebbian_dag_tile(dag, tile);
}

EXPORT int evolve_lanes(void) { return LANES; }
#endif
