/* Sums of outer products; portable.py is their definition. */
#pragma once
#include "lanes.h"

#define WIDE_SUMS 32 /* columns whose sums stay in registers */

#ifndef __CUDACC__
INLINE void add_outer(double *RESTRICT target, const double *RESTRICT left, const double *RESTRICT right, int64_t n,
                      int64_t k, int64_t left_stride, int64_t right_stride)
{
    double sums[WIDE_SUMS];
    for (int64_t j = 0; j < n; j++)
        sums[j] = target[j];
    for (int64_t row = 0; row < k; row++)
        for (int64_t j = 0; j < n; j++)
            sums[j] += left[row * left_stride] * right[row * right_stride + j];
    for (int64_t j = 0; j < n; j++)
        target[j] = sums[j];
}

/* Add to target [m, n] the outer products of the rows of left [k, m] and right [k, n], in ascending order. A stride is the
 * distance of two rows of an array. */
DISPATCH void evolve_add_outer(double *target, const double *left, const double *right, int64_t m, int64_t n, int64_t k,
                               int64_t target_stride, int64_t left_stride, int64_t right_stride)
{
    for (int64_t j = 0; j < n; j += WIDE_SUMS)
        for (int64_t i = 0; i < m; i++) {
            double *row = target + i * target_stride + j;
            if (n - j < WIDE_SUMS)
                add_outer(row, left + i, right + j, n - j, k, left_stride, right_stride);
            else
                add_outer(row, left + i, right + j, WIDE_SUMS, k, left_stride, right_stride);
        }
}
#endif
