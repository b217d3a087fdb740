/* The functions of each network. NAME_places gives the places of a tile's observations and actions, as rows.
 * NAME_advance makes the step between them. NAME_settle makes the updates of traces that wait. NAME_bounds limits the
 * registers of a thread of a device that plays whole episodes. */
#pragma once
#include "exact.h"

/* x = tanh(x) of `columns` rows. */
INLINE void activate(float *x, int64_t columns)
{
    BARRIER();
    for (int64_t k = PART; k < columns; k += PARTS) {
        float total[LANES];
        for (int t = 0; t < LANES; t++)
            total[t] = x[k * WIDTH + t];
        tanh_lanes(total, x + k * WIDTH);
    }
    BARRIER();
}

/* One step of the slots of a tile that are live: observations [live, O], actions [live, A]. */
#define TILE_STEP(name, O, A)                                                                                          \
    INLINE void name##_tile(const name *net, int64_t tile, const float *observations, float *actions, int64_t live)    \
    {                                                                                                                  \
        float *input, *output;                                                                                         \
        name##_places(net, tile, &input, &output);                                                                     \
        put_rows(input, observations, O, live);                                                                        \
        name##_advance(net, tile);                                                                                     \
        take_rows(output, actions, A, live);                                                                           \
    }

/* For a network without updates that wait. */
#define NOTHING_WAITS(name)                                                                                            \
    INLINE void name##_settle(const name *net, int64_t tile)                                                           \
    {                                                                                                                  \
        (void)net, (void)tile;                                                                                         \
    }

/* Bring the traces of a tile up to date: NAME_due makes the updates of its last steps. */
#define TILE_SETTLE(name)                                                                                              \
    INLINE void name##_settle(const name *net, int64_t tile)                                                           \
    {                                                                                                                  \
        int64_t *age = net->age + tile * (WIDTH / LANES) + LANE;                                                       \
        name##_due(net, tile, *age);                                                                                   \
        BARRIER();                                                                                                     \
        if (PART == 0)                                                                                                 \
            *age = 0;                                                                                                  \
    }

#ifdef __CUDACC__
/* kernels.cu defines the entry points of each network, STEP and SETTLE. play.cu needs none of them. */
#ifndef STEP
#define STEP(name, O, A)
#define SETTLE(name)
#endif
#define NETWORK(name, O, A) TILE_STEP(name, O, A) STEP(name, O, A)
#define SETTLES(name) TILE_SETTLE(name) SETTLE(name)
#else
/* The functions of a network on a CPU; the first advances `slots` slots, observations [slots, O] -> actions [slots, A]. */
#define NETWORK(name, O, A)                                                                                            \
    DISPATCH void evolve_##name##_advance(const name *net, int64_t tile) { name##_advance(net, tile); }                \
    void evolve_##name##_places(const name *net, int64_t tile, float **input, float **output)                          \
    {                                                                                                                  \
        name##_places(net, tile, input, output);                                                                       \
    }                                                                                                                  \
    void evolve_##name(const name *net, const float *observations, float *actions, int64_t slots)                      \
    {                                                                                                                  \
        for (int64_t first = 0; first < slots; first += LANES) {                                                       \
            const int64_t live = slots - first < LANES ? slots - first : LANES;                                        \
            float *input, *output;                                                                                     \
            name##_places(net, first / LANES, &input, &output);                                                        \
            put_rows(input, observations + first * (O), O, live);                                                      \
            evolve_##name##_advance(net, first / LANES);                                                               \
            take_rows(output, actions + first * (A), A, live);                                                         \
        }                                                                                                              \
    }
/* Bring the traces of tiles up to date. */
#define SETTLES(name)                                                                                                  \
    TILE_SETTLE(name)                                                                                                  \
    DISPATCH void evolve_##name##_settle(const name *net, const int64_t *tiles, int64_t count)                         \
    {                                                                                                                  \
        for (int64_t i = 0; i < count; i++)                                                                            \
            name##_settle(net, tiles[i]);                                                                              \
    }
#endif
