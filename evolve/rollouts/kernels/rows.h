/* Observations and outputs that lie in rows of WIDTH, a tile of them: normalization.h and fingerprints.h do the same slot by
 * slot. Pointers begin at the caller's lane. */
#pragma once
#include "tasks.h"

/* The initial values of a slot of a network: `columns` [tiles, rows, WIDTH] are the target, and `values` [genomes, rows] the
 * values of each genome, or NULL for zeros. */
typedef struct {
    float *columns;
    int64_t rows;
    const float *values;
} initial_columns;

/* Set the columns of a slot for the beginning of an episode of a genome. */
INLINE void begin_columns(const initial_columns *columns, int64_t count, int64_t slot, int64_t genome)
{
    for (int64_t c = 0; c < count; c++) {
        const int64_t rows = columns[c].rows;
        const float *values = columns[c].values ? columns[c].values + genome * rows : NULL;
        float *column = columns[c].columns + slot / WIDTH * rows * WIDTH + slot % WIDTH;
        for (int64_t row = PART; row < rows; row += PARTS)
            column[row * WIDTH] = values ? values[row] : 0.0f;
    }
}

/* Set the parameters [n] of a slot's task, the last rows of its state. */
INLINE void keep_parameters(const exact_task *task, const double *parameters, int64_t n, int64_t slot)
{
    double *rows = SLOT_ROWS(task->states, task->state_rows, slot) + (task->state_rows - n) * WIDTH;
    for (int64_t i = 0; i < n; i++)
        rows[i * WIDTH] = parameters[i];
}

/* Write the normalized rows [O, WIDTH] to `input`, and add the rows to the moments [2 O, WIDTH], the sums and then the
 * sums of squares. normalizers: [2 O, WIDTH], the means to subtract, then the factors. */
INLINE void normalize_rows(const float *RESTRICT rows, const float *RESTRICT normalizers, double *RESTRICT moments,
                           float *RESTRICT input, int64_t O)
{
    for (int64_t o = PART; o < O; o += PARTS) {
        const float *RESTRICT mean = normalizers + o * WIDTH, *RESTRICT scale = mean + O * WIDTH;
        double *RESTRICT sums = moments + o * WIDTH, *RESTRICT squares = sums + O * WIDTH;
        for (int t = 0; t < LANES; t++) {
            const double wide = SEEN(o);
            sums[t] = sums[t] + wide;
            squares[t] = squares[t] + wide * wide;
            float y = (SEEN(o) - mean[t]) * scale[t];
            y = y < -5.0f ? -5.0f : y;
            input[o * WIDTH + t] = y > 5.0f ? 5.0f : y;
        }
    }
}

/* Take rows [n, WIDTH] into fingerprints [WIDTH]. */
INLINE void fingerprint_rows(const uint64_t *coefficients, const float *RESTRICT rows, uint64_t *RESTRICT prints, int64_t n)
{
    uint64_t sum[LANES];
    for (int t = 0; t < LANES; t++)
        sum[t] = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t words[LANES];
        memcpy(words, rows + i * WIDTH, sizeof words);
        for (int t = 0; t < LANES; t++)
            words[t] = (words[t] & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC00000 : words[t];
        for (int t = 0; t < LANES; t++)
            sum[t] += coefficients[i] * words[t];
    }
    for (int t = 0; t < LANES; t++) {
        const uint64_t h = (prints[t] ^ sum[t]) * 0x9E3779B97F4A7C15;
        prints[t] = h ^ h >> 32;
    }
}
