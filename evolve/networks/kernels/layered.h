/* A batch of layered networks; networks/layered.py has the formula. Rows per tile: weights, the matrices of all
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
    /* On a CPU, `weights` may hold factors instead of weights. Each step then computes the weights from the factors and
     * a centre that all slots share. */
    const float *centre; /* the matrices of all layers end to end; NULL if `weights` holds weights */
    const int64_t *matrices; /* [., 3]: rows and rank, 0 or 1, of each matrix, and the first row of its factors */
} layered;

INLINE void layered_places(const layered *net, int64_t tile, float **input, float **output)
{
    *input = net->nodes + TILE(tile, net->node_rows);
    *output = *input + net->wiring[4 * (net->layers - 1) + 2] * WIDTH;
}

#ifndef __CUDACC__
/* As `column_sums`, for weights that are a centre [rows, columns] plus left [rows] times right [columns] of each slot; or, if
 * the rank is 0, plus left [1] times right [rows, columns]. */
INLINE void factored_sums(const float *x, const float *centre, const float *left, const float *right, float *z, int64_t begun,
                          int64_t rows, int64_t columns, int64_t rank, int width)
{
    float total[ABREAST][LANES];
    for (int k = 0; k < width; k++)
        for (int t = 0; t < LANES; t++)
            total[k][t] = begun ? z[k * WIDTH + t] : -0.0f; /* -0 plus a number is that number, also if it is 0 */
    for (int64_t r = 0; r < rows; r++)
        for (int k = 0; k < width; k++) {
            const float *one = rank ? left + r * WIDTH : left, *other = right + (rank ? k : r * columns + k) * WIDTH;
            for (int t = 0; t < LANES; t++)
                total[k][t] = total[k][t] + x[r * WIDTH + t] * (centre[r * columns + k] + one[t] * other[t]);
        }
    for (int k = 0; k < width; k++)
        for (int t = 0; t < LANES; t++)
            z[k * WIDTH + t] = total[k][t];
}

/* z = x W for a layer whose weights are given by factors. `matrix` is the first of its matrices, which lie below
 * each other in W, such as the weights and the biases. Return the first matrix of the next layer. */
INLINE const int64_t *sums_around_centre(const int64_t *matrix, const float *factors, const float *centre,
                                         const float *x, float *z, int64_t rows, int64_t columns)
{
    for (int64_t row = 0; row < rows; row += matrix[0], matrix += 3) {
        const float *left = factors + matrix[2] * WIDTH, *right = left + (matrix[1] ? matrix[0] : 1) * WIDTH;
        const float *c = centre + row * columns, *inputs = x + row * WIDTH;
#define SUM(k, width) \
    factored_sums(inputs, c + (k), left, right + (k) * WIDTH, z + (k) * WIDTH, row, matrix[0], columns, RANK, width)
#define RANK 1 /* a constant, so that the loop has no branches */
        if (matrix[1])
            FOR_COLUMNS(columns, SUM);
#undef RANK
#define RANK 0
        else
            FOR_COLUMNS(columns, SUM);
#undef RANK
#undef SUM
    }
    return matrix;
}
#endif

INLINE void layered_advance(const layered *net, int64_t tile)
{
    const float *weights = net->weights + TILE(tile, net->weight_rows);
    float *nodes = net->nodes + TILE(tile, net->node_rows);
#ifndef __CUDACC__
    const float *centre = net->centre;
    const int64_t *matrix = net->matrices;
#endif
    BARRIER();
    for (int64_t layer = 0; layer < net->layers; layer++) {
        const int64_t *wires = net->wiring + 4 * layer, rows = wires[1], columns = wires[3];
        float *y = nodes + wires[2] * WIDTH;
#ifndef __CUDACC__
        if (centre) {
            matrix = sums_around_centre(matrix, weights, centre, nodes + wires[0] * WIDTH, y, rows, columns);
            activate(y, columns);
            centre += rows * columns;
            continue;
        }
#endif
        weighted_sums(nodes + wires[0] * WIDTH, weights, y, rows, columns);
        activate(y, columns);
        weights += rows * columns * WIDTH;
    }
    const float *from = nodes + net->feedback[0] * WIDTH;
    float *to = nodes + net->feedback[1] * WIDTH;
    for (int64_t k = PART; k < net->feedback[2]; k += PARTS)
        for (int t = 0; t < LANES; t++)
            to[k * WIDTH + t] = from[k * WIDTH + t];
}

#define layered_bounds __launch_bounds__(256)
NETWORK(layered, net->observations, net->wiring[4 * (net->layers - 1) + 3])
NOTHING_WAITS(layered)
