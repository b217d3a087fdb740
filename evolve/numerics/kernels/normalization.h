/* Normalization of the observations of the slots of a batch; rollouts/inference.py is its definition. */
#pragma once
#include "lanes.h"

typedef struct {
    int64_t size; /* O */
    const float *observations; /* [slots, O] */
    const float *normalizers;  /* of each slot 2 O NUMBERs: the means to subtract, then the factors */
    double *moments;           /* of each slot 2 O NUMBERs: sums, and sums of squares */
    float *seen;               /* [slots, O] */
} normalization;

INLINE void normalize_slot(const normalization *n, int64_t slot)
{
    const int64_t O = n->size;
    const float *x = n->observations + slot * O, *scale = n->normalizers;
    double *sums = n->moments;
    float *seen = n->seen + slot * O;
    for (int64_t o = PART; o < O; o += PARTS) {
        const int64_t first = NUMBER(slot, o, 2 * O), second = NUMBER(slot, O + o, 2 * O);
        const double wide = x[o];
        sums[first] = sums[first] + wide;
        sums[second] = sums[second] + wide * wide;
        float y = (x[o] - scale[first]) * scale[second];
        y = y < -5.0f ? -5.0f : y;
        seen[o] = y > 5.0f ? 5.0f : y;
    }
}

#ifndef __CUDACC__
DISPATCH void evolve_normalize(const normalization *n, int64_t slots)
{
    for (int64_t slot = 0; slot < slots; slot++)
        normalize_slot(n, slot);
}
#endif
