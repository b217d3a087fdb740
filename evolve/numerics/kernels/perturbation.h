/* Weights perturbed by the normal deviates of keyed streams, in one pass over memory, on a CPU; perturbation.py is their
 * definition. Each stream has a key of two words. */
#pragma once
#include "philox.h"

/* Deviates times their scale, if there is one. */
INLINE void scaled(const float *noise, const double *scale, double *moves, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        moves[k] = scale ? scale[k] * noise[k] : noise[k];
}

/* Rows [n, W]: the centre [W] plus steps[i] times the deviates of keys[i]; 0 where the mask [W] is 0. Deviates are multiplied
 * by the scale [W] first, if there is one. */
DISPATCH void evolve_perturbed(const double *centre, const uint8_t *mask, const uint64_t *keys, const double *steps,
                               float *rows, int64_t n, int64_t W, const double *scale)
{
    float noise[AT_ONCE];
    double moves[AT_ONCE];
    for (int64_t row = 0, next; row < n; row = next) {
        const uint64_t *key = keys + 2 * row;
        for (next = row + 1; next < n && keys[2 * next] == key[0] && keys[2 * next + 1] == key[1]; next++)
            ;
        FOR_PARTS(0, W)
        {
            normal_part(key, i, noise, part);
            scaled(noise, scale ? scale + i : NULL, moves, part);
            for (int64_t same = row; same < next; same++)
                for (int64_t k = 0; k < part; k++) {
                    float moved = (float)(centre[i + k] + steps[same] * moves[k]);
                    rows[same * W + i + k] = mask[i + k] ? moved : 0.0f;
                }
        }
    }
}

/* Moments [n, 2] of rows around the centre [n]: the sums over all rows i, in ascending order, of shares[i] d and of
 * shares[i] d^2, with d = (float)(centre + steps[i] scale deviates) - centre. The deviates of row i are those of
 * keys[i] from number `start` on. */
DISPATCH void evolve_moments_about_centre(const double *centre, const double *scale, const uint64_t *keys,
                                          const double *steps, const double *shares, double *moments, int64_t start,
                                          int64_t n, int64_t rows)
{
    float noise[AT_ONCE];
    double moves[AT_ONCE];
    FOR_PARTS(0, n)
    {
        double first[AT_ONCE] = {0}, second[AT_ONCE] = {0};
        for (int64_t row = 0; row < rows; row++) {
            const uint64_t *key = keys + 2 * row;
            if (!row || key[0] != key[-2] || key[1] != key[-1]) {
                normal_part(key, start + i, noise, part);
                scaled(noise, scale + i, moves, part);
            }
            for (int64_t k = 0; k < part; k++) {
                double d = (double)(float)(centre[i + k] + steps[row] * moves[k]) - centre[i + k];
                first[k] = first[k] + shares[row] * d;
                second[k] = second[k] + shares[row] * (d * d);
            }
        }
        for (int64_t k = 0; k < part; k++) {
            moments[2 * (i + k)] = first[k];
            moments[2 * (i + k) + 1] = second[k];
        }
    }
}

/* Sums [n] over all streams i of shares[i] times the difference of the floats centre + step d and centre - step d. d
 * are the deviates of keys[i] from number `start` on. */
DISPATCH void evolve_antithetic_sums(const double *centre, const uint64_t *keys, const double *shares, double *sums,
                                     double step, int64_t start, int64_t n, int64_t streams)
{
    float noise[AT_ONCE];
    FOR_PARTS(0, n)
    {
        for (int64_t stream = 0; stream < streams; stream++) {
            normal_part(keys + 2 * stream, start + i, noise, part);
            for (int64_t k = 0; k < part; k++) {
                double moved = step * noise[k];
                float one = (float)(centre[i + k] + moved), other = (float)(centre[i + k] - moved);
                sums[i + k] = sums[i + k] + shares[stream] * ((double)one - (double)other);
            }
        }
    }
}

/* Add `scale` times the deviates of keys[i] to row i of weights [n, W]; write 0 where the mask [n, W] is 0. */
DISPATCH void evolve_add_noise(float *weights, const uint8_t *mask, const uint64_t *keys, float scale, int64_t n, int64_t W)
{
    float noise[AT_ONCE];
    for (int64_t row = 0; row < n; row++, weights += W, mask += W)
        FOR_PARTS(0, W)
        {
            normal_part(keys + 2 * row, i, noise, part);
            for (int64_t k = 0; k < part; k++) {
                float moved = weights[i + k] + scale * noise[k];
                weights[i + k] = mask[i + k] ? moved : 0.0f;
            }
        }
}

/* Moves [n] of weights in row j of a matrix, from column `first` on: the product of the factors left [r, m] and right
 * [r, columns], added up over r in its order. */
INLINE void factored(const float *left, const float *right, float *moves, int64_t j, int64_t first, int64_t n, int64_t m,
                     int64_t columns, int64_t r)
{
    for (int64_t k = 0; k < n; k++)
        moves[k] = left[j] * right[first + k];
    for (int64_t q = 1; q < r; q++)
        for (int64_t k = 0; k < n; k++)
            moves[k] = moves[k] + left[q * m + j] * right[q * columns + first + k];
}

/* Write the matrix [m, columns] of each of n genomes: the centre plus the product of the factors left [r, m] and right
 * [r, columns]; 0 where the mask is 0. In memory, right follows left. The matrices of neighbouring genomes are W
 * numbers apart, and their factors F numbers. */
DISPATCH void evolve_add_products(const float *centre, const uint8_t *mask, const float *factors, float *matrices, int64_t n,
                                  int64_t W, int64_t F, int64_t m, int64_t columns, int64_t r)
{
    float moves[AT_ONCE];
    for (int64_t row = 0; row < n; row++, factors += F, matrices += W)
        for (int64_t j = 0; j < m; j++)
            FOR_PARTS(0, columns)
            {
                const int64_t first = j * columns + i;
                factored(factors, factors + r * m, moves, j, i, part, m, columns, r);
                for (int64_t k = 0; k < part; k++) {
                    float moved = centre[first + k] + moves[k];
                    matrices[first + k] = mask[first + k] ? moved : 0.0f;
                }
            }
}

/* Sums over all pairs i of shares[i] times the difference of the floats centre + move and centre - move. The moves are
 * products as above. The sums cover a matrix [m, columns] from column `first` of its first row to column last - 1 of
 * its last row. */
DISPATCH void evolve_product_sums(const float *centre, const float *left, const float *right, const double *shares,
                                  double *sums, int64_t first, int64_t last, int64_t m, int64_t columns, int64_t r,
                                  int64_t pairs)
{
    float moves[AT_ONCE];
    for (int64_t j = 0; j < m; j++)
        FOR_PARTS(j ? 0 : first, j == m - 1 ? last : columns)
        {
            const float *c = centre + j * columns + i - first;
            double total[AT_ONCE] = {0};
            for (int64_t pair = 0; pair < pairs; pair++) {
                factored(left + pair * r * m, right + pair * r * columns, moves, j, i, part, m, columns, r);
                for (int64_t k = 0; k < part; k++) {
                    float one = c[k] + moves[k], other = c[k] - moves[k];
                    total[k] = total[k] + shares[pair] * ((double)one - (double)other);
                }
            }
            memcpy(sums + j * columns + i - first, total, part * sizeof *total);
        }
}
