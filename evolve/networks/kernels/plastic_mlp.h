/* A batch of plastic-mlp; see networks/plastic_mlp.py for the formula. Rows per tile: weights, the matrices of all layers
 * end to end; rules, of each layer the matrices A, B, C, D and eta; nodes, of all layers; and one of age. */
#pragma once
#include "steps.h"
#include "sums.h"

typedef struct {
    int64_t layers; /* L + 1: how many follow the observation */
    const int64_t *sizes; /* [layers + 1] */
    int64_t weight_rows, rule_rows, node_rows;
    int64_t own_rows, own_columns; /* whether a rule has its own coefficients for each row, and for each column */
    float *weights, *nodes, *age; /* steps since the last update */
    const float *rules;
    float every; /* steps from update to update */
    int64_t max_norm;
} plastic_mlp;

/* x_1 ... of a tile from its observation. */
INLINE void plastic_mlp_forward(const plastic_mlp *net, const float *weights, float *x)
{
    for (int64_t layer = 0; layer < net->layers; layer++) {
        const int64_t rows = net->sizes[layer], columns = net->sizes[layer + 1];
        float *y = x + rows * WIDTH;
        weighted_sums(x, weights, y, rows, columns);
        activate(y, columns);
        weights += rows * columns * WIDTH;
        x = y;
    }
}

/* w = w + (((A (x y) + B x) + C y) + D) eta in the lanes that are due; A has `coefficients` numbers. */
INLINE void apply_rules(const plastic_mlp *net, const float *x, const float *y, float *w, const float *rules,
                        int64_t coefficients, const int *due, int64_t rows, int64_t columns)
{
    const int64_t next = coefficients * WIDTH;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = PART; k < columns; k += PARTS) {
            const float *a = rules + ((net->own_rows ? r * columns : 0) + (net->own_columns ? k : 0)) * WIDTH;
            const float *xr = x + r * WIDTH, *yk = y + k * WIDTH;
            float *weight = w + (r * columns + k) * WIDTH;
            for (int t = 0; t < LANES; t++) {
                float change = a[t] * (xr[t] * yk[t]) + a[next + t] * xr[t];
                change = change + a[2 * next + t] * yk[t] + a[3 * next + t];
                float moved = weight[t] + change * a[4 * next + t];
                weight[t] = due[t] ? moved : weight[t];
            }
        }
}

/* Divide the weights of a layer by the largest of their sizes in the lanes that are due, unless all are zero. */
INLINE void normalize_layer(float *w, const int *due, int64_t count)
{
    float largest[LANES] = {0};
    BARRIER();
    for (int64_t i = 0; i < count; i++)
        for (int t = 0; t < LANES; t++) {
            float size = fabsf(w[i * WIDTH + t]);
            largest[t] = size > largest[t] ? size : largest[t];
        }
    for (int t = 0; t < LANES; t++)
        largest[t] = due[t] && largest[t] > 0.0f ? largest[t] : 1.0f;
    BARRIER(); /* every thread has read all weights before any thread changes one */
    for (int64_t i = PART; i < count; i += PARTS)
        for (int t = 0; t < LANES; t++)
            w[i * WIDTH + t] = w[i * WIDTH + t] / largest[t];
}

/* Update the weights of the slots of a tile that are due. */
INLINE void plastic_mlp_update(const plastic_mlp *net, int64_t tile, float *weights, const float *x)
{
    const float *rules = net->rules + TILE(tile, net->rule_rows);
    float *age = net->age + TILE(tile, 1), older[LANES];
    int due[LANES], any = 0;
    for (int t = 0; t < LANES; t++) {
        due[t] = age[t] + 1.0f == net->every;
        older[t] = due[t] ? 0.0f : age[t] + 1.0f;
        any |= due[t];
    }
    any = ANY_LANE(any);
    if (PART == 0)
        for (int t = 0; t < LANES; t++)
            age[t] = older[t];
    for (int64_t layer = 0; any && layer < net->layers; layer++) {
        const int64_t rows = net->sizes[layer], columns = net->sizes[layer + 1];
        const int64_t coefficients = (net->own_rows ? rows : 1) * (net->own_columns ? columns : 1);
        apply_rules(net, x, x + rows * WIDTH, weights, rules, coefficients, due, rows, columns);
        if (net->max_norm)
            normalize_layer(weights, due, rows * columns);
        x += rows * WIDTH;
        weights += rows * columns * WIDTH;
        rules += 5 * coefficients * WIDTH;
    }
}

INLINE void plastic_mlp_places(const plastic_mlp *net, int64_t tile, float **input, float **output)
{
    *input = net->nodes + TILE(tile, net->node_rows);
    *output = *input + (net->node_rows - net->sizes[net->layers]) * WIDTH;
}

INLINE void plastic_mlp_advance(const plastic_mlp *net, int64_t tile)
{
    float *weights = net->weights + TILE(tile, net->weight_rows);
    float *nodes = net->nodes + TILE(tile, net->node_rows);
    BARRIER();
    plastic_mlp_forward(net, weights, nodes);
    plastic_mlp_update(net, tile, weights, nodes);
}

#define plastic_mlp_bounds __launch_bounds__(256)
NETWORK(plastic_mlp, net->sizes[0], net->sizes[net->layers])
NOTHING_WAITS(plastic_mlp)
