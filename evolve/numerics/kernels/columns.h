/* Columns of slots on a CPU: arrays [tiles, n, LANES]; networks/network.py is their definition. */
#pragma once
#include "lanes.h"

/* Write values [k, n] into the columns of slots [k], a few numbers of all of them at a time: slots of a tile share the cache
 * lines that are written. */
void evolve_put(float *columns, const int64_t *slots, const float *values, int64_t k, int64_t n)
{
    for (int64_t first = 0, part; first < n; first += part) {
        part = n - first < 64 ? n - first : 64;
        for (int64_t i = 0; i < k; i++) {
            float *column = columns + TILE(slots[i] / LANES, n) + slots[i] % LANES;
            for (int64_t j = first; j < first + part; j++)
                column[j * LANES] = values[i * n + j];
        }
    }
}
