/* The device kernels, all in one compilation unit: entry points to the functions that the headers define for every compiler.
 * The headers of all networks follow this text (numerics/cupy_device.py); each makes a STEP, and a SETTLE if updates wait.
 *
 * A step is one block of WIDTH lanes x PARTS column groups per tile: it normalizes observations, steps the network and
 * takes fingerprints, so that a tick of a rollout is one launch. A network's structure is passed by value: the compiler then
 * reads its fields from constant memory. Every other argument has 64 bits.
 */
#include "exact.h"
#include "fingerprints.h"
#include "normalization.h"

#define ENTRY extern "C" __global__ void __launch_bounds__(256)

/* Advance the first `slots` slots by one step: observations [slots, O] -> actions [slots, A]. `norm` and `prints` may be
 * NULL. O and A are numbers of the network `net`. */
#define STEP(name, O, A)                                                                                               \
    ENTRY evolve_##name(const __grid_constant__ name network, const normalization *norm, const fingerprints *prints,   \
                        const float *observations, float *actions, int64_t slots)                                      \
    {                                                                                                                  \
        const name *net = &network;                                                                                    \
        const int64_t tile = blockIdx.x, slot = tile * WIDTH + LANE, live = slot < slots;                              \
        const int64_t step = prints && live ? prints->steps[slot] : 0;                                                 \
        const float *seen = norm ? norm->seen : observations;                                                          \
        if (norm && live)                                                                                              \
            normalize_slot(norm, slot);                                                                                \
        BARRIER();                                                                                                     \
        name##_tile(net, tile, seen + slot * (O), actions + slot * (A), live);                                         \
        BARRIER();                                                                                                     \
        if (prints && live)                                                                                            \
            fingerprint_slot(prints, slot, actions + slot * (A), step);                                                \
    }

/* Bring the traces of tiles [blocks] up to date. */
#define SETTLE(name)                                                                                                   \
    ENTRY evolve_##name##_settle(const __grid_constant__ name network, const int64_t *tiles)                           \
    {                                                                                                                  \
        name##_settle(&network, tiles[blockIdx.x]);                                                                    \
    }

/* Columns of slots: `rows` numbers of a type each, [tiles, rows, WIDTH]. Each block serves one of the slots named. */
#define EACH_NUMBER for (int64_t i = THREAD; i < rows; i += THREADS)
#define COLUMNS(bits)                                                                                                  \
    ENTRY evolve_put_##bits(uint##bits##_t *columns, int64_t rows, const int64_t *slots, const uint##bits##_t *values) \
    {                                                                                                                  \
        EACH_NUMBER                                                                                                    \
            columns[NUMBER(slots[blockIdx.x], i, rows)] = values[blockIdx.x * rows + i];                               \
    }                                                                                                                  \
    ENTRY evolve_take_##bits(const uint##bits##_t *columns, int64_t rows, const int64_t *slots,                        \
                             uint##bits##_t *values, int64_t count)                                                    \
    {                                                                                                                  \
        for (int64_t i = THREAD; i < count; i += THREADS)                                                              \
            values[blockIdx.x * count + i] = columns[NUMBER(slots[blockIdx.x], i, rows)];                              \
    }                                                                                                                  \
    ENTRY evolve_clear_##bits(uint##bits##_t *columns, int64_t rows, const int64_t *slots)                             \
    {                                                                                                                  \
        EACH_NUMBER                                                                                                    \
            columns[NUMBER(slots[blockIdx.x], i, rows)] = 0;                                                           \
    }                                                                                                                  \
    ENTRY evolve_move_##bits(uint##bits##_t *columns, int64_t rows, const int64_t *sources, const int64_t *targets)    \
    {                                                                                                                  \
        EACH_NUMBER                                                                                                    \
            columns[NUMBER(targets[blockIdx.x], i, rows)] = columns[NUMBER(sources[blockIdx.x], i, rows)];             \
    }

COLUMNS(16)
COLUMNS(32)
COLUMNS(64)

/* Copy the first numbers of rows of `row_size` numbers, end to end: the numbers of row i to [ends[i], ends[i + 1]),
 * counted from ends[0]. Each block serves a row. */
ENTRY evolve_end_to_end(const uint16_t *rows, int64_t row_size, const int64_t *ends, uint16_t *values)
{
    const int64_t first = ends[blockIdx.x], count = ends[blockIdx.x + 1] - first;
    for (int64_t i = THREAD; i < count; i += THREADS)
        values[first - ends[0] + i] = rows[blockIdx.x * row_size + i];
}

/* y[i] = f(x[i]). The checks compare it with the array reference. */
#define OVER_NUMBERS(name)                                                                                             \
    ENTRY evolve_##name(const float *x, float *y, int64_t count)                                                       \
    {                                                                                                                  \
        const int64_t i = (blockIdx.x * PARTS + PART) * WIDTH + LANE;                                                  \
        if (i < count)                                                                                                 \
            name##_lanes(x + i, y + i);                                                                                \
    }

OVER_NUMBERS(tanh)
OVER_NUMBERS(exp)
OVER_NUMBERS(sigmoid)
