/* The random numbers of an episode by their numbers; numerics/streams.py is their definition. */
#pragma once
#include "philox.h"

#define DRAWS_KEY 0x65766F6C7665u

/* Number `number` of an episode, in (0, 1). */
INLINE double draw(int64_t seed, int64_t number)
{
    uint64_t words[4];
    philox((uint64_t)number / 4 + 1, (uint64_t)seed, DRAWS_KEY, words);
    return ((double)(words[number % 4] >> 12) + 0.5) * (1.0 / 4503599627370496.0);
}

#ifndef __CUDACC__
/* The draws of n (seed, number), for the array reference. */
void evolve_draws(const int64_t *seeds, const int64_t *numbers, double *draws, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        draws[i] = draw(seeds[i], numbers[i]);
}
#endif
