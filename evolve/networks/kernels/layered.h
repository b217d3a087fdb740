/* A batch of layered networks; see networks/layers.py for the formula. Rows per tile: weights, the matrices of all
 * layers end to end, and nodes: the inputs and outputs of the layers, the observation first. */
#pragma once
#include "steps.h"
#include "sums.h"

typedef struct {
    int64_t layers, weight_rows, node_rows, observations;
    const int64_t *wiring; /* [layers, 4]: first row and number of the nodes it reads, and of its outputs */
    int64_t feedback[3]; /* rows that are copied after a step: the first source, the first target, and their number */
    const float *weights;
    float *nodes;
} layered;

INLINE void layered_places(const layered *net, int64_t tile, float **input, float **output)
{
    *input = net->nodes + TILE(tile, net->node_rows);
    *output = *input + net->wiring[4 * (net->layers - 1) + 2] * WIDTH;
}

INLINE void layered_advance(const layered *net, int64_t tile)
{
    const float *weights = net->weights + TILE(tile, net->weight_rows);
    float *nodes = net->nodes + TILE(tile, net->node_rows);
    BARRIER();
    for (int64_t layer = 0; layer < net->layers; layer++) {
        const int64_t *at = net->wiring + 4 * layer, rows = at[1], columns = at[3];
        float *y = nodes + at[2] * WIDTH;
        weighted_sums(nodes + at[0] * WIDTH, weights, y, rows, columns);
        activate(y, columns);
        weights += rows * columns * WIDTH;
    }
    const float *from = nodes + net->feedback[0] * WIDTH;
    float *to = nodes + net->feedback[1] * WIDTH;
    for (int64_t k = PART; k < net->feedback[2]; k += PARTS)
        for (int t = 0; t < LANES; t++)
            to[k * WIDTH + t] = from[k * WIDTH + t];
}

NETWORK(layered, net->observations, net->wiring[4 * (net->layers - 1) + 3])
NOTHING_WAITS(layered)
