/* Fingerprints and step hashes of the episodes in the slots of a batch; numerics/hashing.py is their definition. */
#pragma once
#include "lanes.h"

typedef struct {
    int64_t sizes[2]; /* O, A */
    int64_t max_hashes;
    const float *observations; /* [slots, O] */
    const uint64_t *coefficients;
    uint64_t *states; /* of each slot 2 NUMBERs */
    int32_t *steps;   /* [slots] */
    uint8_t *step_hashes; /* of each slot `max_hashes` NUMBERs, of two bytes each */
} fingerprints;

INLINE uint64_t fold(const float *row, int64_t n, const uint64_t *coefficients)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const float number = row[i];
        uint32_t word;
        memcpy(&word, &number, sizeof word);
        word = (word & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC00000 : word; /* one NaN for all */
        sum += coefficients[i] * word;
    }
    return sum;
}

/* Take in the row [n] of one step: the observation (which = 0) or the outputs (1). */
INLINE void fingerprint_row(const fingerprints *f, int64_t slot, int64_t which, const float *row, int64_t step)
{
    uint64_t *state = f->states + NUMBER(slot, which, 2);
    uint64_t h = *state ^ fold(row, f->sizes[which], f->coefficients);
    h *= 0x9E3779B97F4A7C15;
    *state = h ^ h >> 32;
    if (step < f->max_hashes)
        f->step_hashes[2 * NUMBER(slot, step, f->max_hashes) + which] = *state >> 56;
}

/* Take in step number `step` of a slot, outputs [A]. */
INLINE void fingerprint_slot(const fingerprints *f, int64_t slot, const float *outputs, int64_t step)
{
    for (int64_t which = PART; which < 2; which += PARTS)
        fingerprint_row(f, slot, which, which ? outputs : f->observations + slot * f->sizes[0], step);
    if (PART == 0)
        f->steps[slot] = step + 1;
}

#ifndef __CUDACC__
/* Take in one step of the first `slots` slots, outputs [slots, A]. */
void evolve_fingerprint(const fingerprints *f, const float *outputs, int64_t slots)
{
    for (int64_t slot = 0; slot < slots; slot++)
        fingerprint_slot(f, slot, outputs + slot * f->sizes[1], f->steps[slot]);
}

/* The folds [n] of rows of values [n, k]. A value that is absent, with 0 in present [n, k], counts as a word of 32
 * ones. The loop takes 2048 columns of all rows at a time, so that their coefficients, which have 8 bytes each, stay in
 * the cache. */
DISPATCH void evolve_fold_present(const uint32_t *values, const uint8_t *present, const uint64_t *coefficients,
                                  uint64_t *folds, int64_t n, int64_t k)
{
    for (int64_t row = 0; row < n; row++)
        folds[row] = 0;
    for (int64_t first = 0, part; first < k; first += part) {
        part = k - first < 2048 ? k - first : 2048;
        for (int64_t row = 0; row < n; row++) {
            uint64_t sum = 0;
            for (int64_t i = first; i < first + part; i++)
                /* Without a condition, gcc and clang use vectors: all bits are 1 if present is 0. */
                sum += coefficients[i] * (values[row * k + i] | ((uint32_t)present[row * k + i] - 1));
            folds[row] += sum;
        }
    }
}

/* How many of each row of present [n, k] are 1. */
DISPATCH void evolve_count_present(const uint8_t *present, int32_t *counts, int64_t n, int64_t k)
{
    for (int64_t row = 0; row < n; row++) {
        int32_t count = 0;
        for (int64_t i = 0; i < k; i++)
            count += present[row * k + i];
        counts[row] = count;
    }
}
#endif
