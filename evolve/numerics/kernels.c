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

/* A hebbian-dag batch; see networks/hebbian_dag.py for the formula. Rows per tile: weights, traces and gains W; and for
 * each of `delay` steps nodes sum(sizes) and sums, one per (layer, source, output). gains is NULL when plasticity is zero;
 * then no step reads the traces, and the updates of up to `delay` steps wait (`due` of each tile says how many) until
 * evolve_hebbian_dag_settle makes them all in one pass: what bounds a large network is moving its traces. */
typedef struct {
    int64_t layers; /* L + 1: how many follow the observation */
    const int64_t *sizes; /* [layers + 1] */
    int64_t weight_rows, node_rows, sum_rows, delay;
    float *weights, *traces, *gains, *nodes, *sums;
    int64_t *due; /* [tiles] */
    float trace_rate, trace_limit;
    int64_t neuromodulated;
} hebbian_dag;

#define ABREAST 2 /* outputs computed side by side, to hide the latency of the chain of additions */

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

#define MOST_DELAY 8

/* H = clip(H + (x z) rate, limit) for `steps` steps in turn; x and z of a step lie `node_rows` and `sum_rows` rows after
 * those of the step before. */
INLINE void update_block(const hebbian_dag *dag, const float *x, float *h, const float *z, float (*rate)[LANES],
                         int64_t rows, int64_t columns, int64_t steps)
{
    const float limit = dag->trace_limit;
    const int64_t next_x = dag->node_rows * LANES, next_z = dag->sum_rows * LANES;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < columns; k++) {
            float *at = h + (r * columns + k) * LANES, value[LANES];
            for (int t = 0; t < LANES; t++)
                value[t] = at[t];
            for (int64_t s = 0; s < steps; s++) {
                const float *xs = x + r * LANES + s * next_x, *zs = z + k * LANES + s * next_z;
                for (int t = 0; t < LANES; t++) {
                    float moved = value[t] + xs[t] * zs[t] * rate[s][t];
                    moved = moved < -limit ? -limit : moved;
                    value[t] = moved > limit ? limit : moved;
                }
            }
            for (int t = 0; t < LANES; t++)
                at[t] = value[t];
        }
}

/* Make the updates of a tile that are due. */
INLINE void settle_tile(const hebbian_dag *dag, int64_t tile)
{
    const int64_t steps = dag->due[tile];
    const float *nodes = dag->nodes + tile * dag->delay * dag->node_rows * LANES;
    const float *sums = dag->sums + tile * dag->delay * dag->sum_rows * LANES;
    float *traces = dag->traces + tile * dag->weight_rows * LANES;
    float rate[MOST_DELAY][LANES];
    const int64_t first_output = dag->node_rows - dag->sizes[dag->layers];
    for (int64_t s = 0; s < steps; s++)
        for (int t = 0; t < LANES; t++)
            rate[s][t] = dag->neuromodulated ? nodes[(s * dag->node_rows + first_output) * LANES + t] : dag->trace_rate;
    for (int64_t layer = 0; layer < dag->layers; layer++) {
        const float *x = nodes;
        for (int64_t source = 0; source <= layer; source++) {
            const int64_t rows = dag->sizes[source], columns = dag->sizes[layer + 1];
            update_block(dag, x, traces, sums, rate, rows, columns, steps);
            x += rows * LANES;
            traces += rows * columns * LANES;
            sums += columns * LANES;
        }
    }
    dag->due[tile] = 0;
}

/* x_1 ... of a tile from its observation. */
INLINE void forward_tile(const hebbian_dag *dag, int64_t tile, float *nodes, float *sums)
{
    const float *weights = dag->weights + tile * dag->weight_rows * LANES;
    const float *traces = dag->traces + tile * dag->weight_rows * LANES;
    const float *gains = dag->gains ? dag->gains + tile * dag->weight_rows * LANES : 0;
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
}

/* One step of the slots of a tile that are live: observations [live, sizes[0]], actions [live, A]. */
INLINE void hebbian_dag_tile(const hebbian_dag *dag, int64_t tile, const float *observations, float *actions, int64_t live)
{
    const int64_t step = tile * dag->delay + dag->due[tile], O = dag->sizes[0], A = dag->sizes[dag->layers] - 1;
    float *nodes = dag->nodes + step * dag->node_rows * LANES;
    const float *outputs = nodes + (dag->node_rows - A) * LANES;
    for (int64_t t = 0; t < live; t++)
        for (int64_t o = 0; o < O; o++)
            nodes[o * LANES + t] = observations[t * O + o];
    forward_tile(dag, tile, nodes, dag->sums + step * dag->sum_rows * LANES);
    for (int64_t t = 0; t < live; t++)
        for (int64_t a = 0; a < A; a++)
            actions[t * A + a] = outputs[a * LANES + t];
    dag->due[tile]++;
    if (dag->due[tile] == dag->delay)
        settle_tile(dag, tile);
}

#ifndef __CUDACC__
/* Advance the first `slots` slots by one step: observations [slots, O] -> actions [slots, A]. */
DISPATCH void evolve_hebbian_dag(const hebbian_dag *dag, const float *observations, float *actions, int64_t slots)
{
    const int64_t O = dag->sizes[0], A = dag->sizes[dag->layers] - 1;
    for (int64_t first = 0; first < slots; first += LANES)
        hebbian_dag_tile(dag, first / LANES, observations + first * O, actions + first * A,
                         slots - first < LANES ? slots - first : LANES);
}

/* Bring the traces of tiles up to date. */
DISPATCH void evolve_hebbian_dag_settle(const hebbian_dag *dag, const int64_t *tiles, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        settle_tile(dag, tiles[i]);
}

/* Fingerprints of the episodes in the slots of a batch; fingerprint.py is their definition. */
typedef struct {
    int64_t sizes[2]; /* O, A */
    int64_t room;
    const float *observations; /* [slots, O] */
    const uint64_t *coefficients;
    uint64_t *states; /* [slots, 2] */
    int32_t *steps;   /* [slots] */
    uint8_t *trails;  /* [slots, room, 2] */
} fingerprints;

INLINE uint64_t fold(const float *row, int64_t n, const uint64_t *coefficients)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, row + i, sizeof word);
        word = (word & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC00000 : word; /* one NaN for all */
        sum += coefficients[i] * word;
    }
    return sum;
}

/* Take in one step of the first `slots` slots, outputs [slots, A]. */
void evolve_fingerprint(const fingerprints *f, const float *outputs, int64_t slots)
{
    const float *rows[2] = {f->observations, outputs};
    for (int64_t slot = 0; slot < slots; slot++, f->steps[slot - 1]++)
        for (int64_t which = 0; which < 2; which++) {
            uint64_t *state = f->states + 2 * slot + which;
            uint64_t h = *state ^ fold(rows[which] + slot * f->sizes[which], f->sizes[which], f->coefficients);
            h *= 0x9E3779B97F4A7C15;
            *state = h ^ h >> 32;
            if (f->steps[slot] < f->room)
                f->trails[2 * (slot * f->room + f->steps[slot]) + which] = *state >> 56;
        }
}

/* Normalization of what the slots of a batch see; numerics/normalizing.py is its definition. */
typedef struct {
    int64_t size; /* O */
    const float *observations; /* [slots, O] */
    const float *normalizers;  /* [slots, 2, O]: what is subtracted, and what the rest is multiplied by */
    double *moments;           /* [slots, 2, O]: sums, and sums of squares */
    float *seen;               /* [slots, O] */
} normalization;

DISPATCH void evolve_normalize(const normalization *n, int64_t slots)
{
    const int64_t O = n->size;
    for (int64_t slot = 0; slot < slots; slot++) {
        const float *x = n->observations + slot * O, *mean = n->normalizers + 2 * slot * O, *scale = mean + O;
        double *sums = n->moments + 2 * slot * O, *squares = sums + O;
        float *seen = n->seen + slot * O;
        for (int64_t o = 0; o < O; o++) {
            const double wide = x[o];
            sums[o] = sums[o] + wide;
            squares[o] = squares[o] + wide * wide;
            float y = (x[o] - mean[o]) * scale[o];
            y = y < -5.0f ? -5.0f : y;
            seen[o] = y > 5.0f ? 5.0f : y;
        }
    }
}

EXPORT int evolve_lanes(void) { return LANES; }
EXPORT int evolve_most_delay(void) { return MOST_DELAY; }
#endif
