/* A hebbian-dag batch; see networks/hebbian.py for the formula. Rows per tile: weights, traces and gains W; and for
 * each of the `history` last steps nodes sum(sizes) and sums, one per (layer, source, output). gains is NULL when
 * plasticity is zero.
 *
 * Memory traffic of the traces limits the speed of a large network, so updates of traces wait. `age` of each tile is the
 * number of steps since they were last up to date. With plasticity, the next step makes the update while it reads the traces.
 * Without plasticity no step reads them, and the updates of `history` steps are made in one pass.
 * evolve_hebbian_dag_settle makes all updates that wait. */
#pragma once
#include "steps.h"
#include "sums.h"

typedef struct {
    int64_t layers; /* L + 1: how many follow the observation */
    const int64_t *sizes; /* [layers + 1] */
    int64_t weight_rows, node_rows, sum_rows, history; /* a power of two */
    const float *weights;
    float *traces; /* NULL in exported C if nothing reads them */
    const float *gains;
    float *nodes, *sums;
    int64_t *age; /* [tiles, WIDTH / LANES] */
    float trace_rate, trace_limit;
    int64_t neuromodulated;
} hebbian_dag;

#define LONGEST_HISTORY 8

/* The number of steps, of the last `age` ones, that have not updated the traces yet. */
INLINE int64_t steps_due(const hebbian_dag *dag, int64_t age) { return dag->gains && age > 1 ? 1 : age; }

INLINE float *nodes_of(const hebbian_dag *dag, int64_t tile, int64_t step)
{
    return dag->nodes + TILE(tile * dag->history + (step & (dag->history - 1)), dag->node_rows);
}

INLINE float *sums_of(const hebbian_dag *dag, int64_t tile, int64_t step)
{
    return dag->sums + TILE(tile * dag->history + (step & (dag->history - 1)), dag->sum_rows);
}

/* The rate of a step with these nodes. */
INLINE void read_rate(const hebbian_dag *dag, const float *nodes, float *rate)
{
    const float *modulator = nodes + (dag->node_rows - dag->sizes[dag->layers]) * WIDTH;
    for (int t = 0; t < LANES; t++)
        rate[t] = dag->neuromodulated ? modulator[t] : dag->trace_rate;
}

/* h = clip(h + (x z) rate, limit) */
INLINE void update_lanes(float *h, const float *x, const float *z, const float *rate, float limit)
{
    for (int t = 0; t < LANES; t++) {
        float moved = h[t] + x[t] * z[t] * rate[t];
        moved = moved < -limit ? -limit : moved;
        h[t] = moved > limit ? limit : moved;
    }
}

/* The updates of `steps` steps in turn; x and z of a step lie `next_x` and `next_z` after those of the step before. */
INLINE void update_columns(const float *RESTRICT x, const float *RESTRICT z, float *RESTRICT h, float (*rate)[LANES],
                           float limit, int64_t steps, int64_t next_x, int64_t next_z, int64_t rows, int64_t columns,
                           int64_t width)
{
    FOR_BLOCKS(DEEP, rows, width)
    {
        float value[DEEP][WIDE][LANES];
        FOR_BLOCK(DEEP, width)
            for (int t = 0; t < LANES; t++)
                value[j][k][t] = h[BLOCK_AT(rows, columns) + t];
        UNROLL
        for (int64_t s = 0; s < LONGEST_HISTORY && s < steps; s++)
            FOR_BLOCK(DEEP, width)
                update_lanes(value[j][k], x + BLOCK_ROW(rows) * WIDTH + s * next_x, z + (first + k) * WIDTH + s * next_z,
                             rate[s], limit);
        FOR_BLOCK(DEEP, width)
            for (int t = 0; t < LANES && row + j < rows; t++)
                h[BLOCK_AT(rows, columns) + t] = value[j][k][t];
    }
}

/* Make the updates of a tile that are due after `age` steps. */
INLINE void hebbian_dag_due(const hebbian_dag *dag, int64_t tile, int64_t age)
{
    const int64_t steps = steps_due(dag, age), next_x = dag->node_rows * WIDTH, next_z = dag->sum_rows * WIDTH;
    const float *nodes = nodes_of(dag, tile, age - steps), *sums = sums_of(dag, tile, age - steps);
    float *traces = dag->traces + TILE(tile, dag->weight_rows), rate[LONGEST_HISTORY][LANES];
    UNROLL
    for (int64_t s = 0; s < LONGEST_HISTORY; s++)
        if (s < steps)
            read_rate(dag, nodes + s * next_x, rate[s]);
    for (int64_t layer = 0; layer < dag->layers; layer++) {
        const float *x = nodes;
        for (int64_t source = 0; source <= layer; source++) {
            const int64_t rows = dag->sizes[source], columns = dag->sizes[layer + 1];
#define UPDATE(k, width)                                                                                               \
    update_columns(x, sums + (k) * WIDTH, traces + (k) * WIDTH, rate, dag->trace_limit, steps, next_x, next_z, rows,   \
                   columns, width)
            FOR_WRITTEN_COLUMNS(columns, UPDATE);
#undef UPDATE
            x += rows * WIDTH;
            traces += rows * columns * WIDTH;
            sums += columns * WIDTH;
        }
    }
}

/* z[k] = x (W + G H) for `width` columns from k on. If an update is `due`, H is updated first, by the step before, whose
 * x and z are given. A block has one row: two would need more than 96 registers of a device. */
INLINE void plastic_columns(const float *RESTRICT x, const float *RESTRICT w, float *RESTRICT h, const float *RESTRICT g,
                            float *RESTRICT z, const float *RESTRICT x_before, const float *RESTRICT z_before,
                            const float *rate, float limit, int due, int64_t rows, int64_t columns, int64_t width)
{
    TOTALS(z);
    FOR_BLOCKS(1, rows, width)
    {
        float trace[1][WIDE][LANES], weight[1][WIDE][LANES], gain[1][WIDE][LANES];
        FOR_BLOCK(1, width)
            for (int t = 0; t < LANES; t++) {
                trace[j][k][t] = h[BLOCK_AT(rows, columns) + t];
                weight[j][k][t] = w[BLOCK_AT(rows, columns) + t];
                gain[j][k][t] = g[BLOCK_AT(rows, columns) + t];
            }
        FOR_BLOCK(1, width)
            if (due)
                update_lanes(trace[j][k], x_before + BLOCK_ROW(rows) * WIDTH, z_before + (first + k) * WIDTH, rate, limit);
        FOR_BLOCK(1, width)
            for (int t = 0; t < LANES && row + j < rows; t++) {
                float product = x[(row + j) * WIDTH + t] * (weight[j][k][t] + gain[j][k][t] * trace[j][k][t]);
                total[first + k][t] = row + j ? total[first + k][t] + product : product;
            }
        FOR_BLOCK(1, width)
            for (int t = 0; t < LANES && due && row + j < rows; t++)
                h[BLOCK_AT(rows, columns) + t] = trace[j][k][t];
    }
    KEEP_TOTALS(z, width)
}

/* x = tanh(z_0 + z_1 + ...) of a layer, which has `sources` sums of each column. */
INLINE void add_sources(const float *sums, float *x, int64_t sources, int64_t columns)
{
    for (int64_t k = PART; k < columns; k += PARTS) {
        float total[LANES];
        for (int t = 0; t < LANES; t++)
            total[t] = sums[k * WIDTH + t];
        for (int64_t source = 1; source < sources; source++)
            for (int t = 0; t < LANES; t++)
                total[t] = total[t] + sums[(source * columns + k) * WIDTH + t];
        tanh_lanes(total, x + k * WIDTH);
    }
}

/* x_1 ... of a tile from its observation, with the updates by the step before, if it is `due`. */
INLINE void forward_tile(const hebbian_dag *dag, int64_t tile, float *nodes, float *sums, const float *nodes_before,
                         const float *sums_before, int due)
{
    const int64_t first = TILE(tile, dag->weight_rows);
    const float *w = dag->weights + first, *g = dag->gains ? dag->gains + first : 0;
    float *h = dag->gains ? dag->traces + first : 0, *output = nodes + dag->sizes[0] * WIDTH, rate[LANES];
    const float limit = dag->trace_limit;
    read_rate(dag, nodes_before, rate);
    for (int64_t layer = 0; layer < dag->layers; layer++) {
        const int64_t columns = dag->sizes[layer + 1];
        const float *x = nodes, *x_before = nodes_before, *layer_sums = sums;
        for (int64_t source = 0; source <= layer; source++) {
            const int64_t rows = dag->sizes[source];
#define SUM(k, width)                                                                                                  \
    UNSWITCH(due, plastic_columns(x, w + (k) * WIDTH, h + (k) * WIDTH, g + (k) * WIDTH, sums + (k) * WIDTH, x_before,  \
                                  sums_before + (k) * WIDTH, rate, limit, due, rows, columns, width))
            if (!dag->gains)
                weighted_sums(x, w, sums, rows, columns);
            else
                FOR_WRITTEN_COLUMNS(columns, SUM);
#undef SUM
            w += rows * columns * WIDTH;
            if (dag->gains)
                h += rows * columns * WIDTH, g += rows * columns * WIDTH;
            x += rows * WIDTH, x_before += rows * WIDTH;
            sums += columns * WIDTH, sums_before += columns * WIDTH;
        }
        BARRIER();
        add_sources(layer_sums, output, layer + 1, columns);
        BARRIER();
        output += columns * WIDTH;
    }
}

INLINE void hebbian_dag_places(const hebbian_dag *dag, int64_t tile, float **input, float **output)
{
    *input = nodes_of(dag, tile, dag->age[tile * (WIDTH / LANES) + LANE]);
    *output = *input + (dag->node_rows - dag->sizes[dag->layers] + 1) * WIDTH;
}

INLINE void hebbian_dag_advance(const hebbian_dag *dag, int64_t tile)
{
    int64_t *tile_age = dag->age + tile * (WIDTH / LANES) + LANE, age = *tile_age, before = age ? age - 1 : 0;
    BARRIER();
    forward_tile(dag, tile, nodes_of(dag, tile, age), sums_of(dag, tile, age), nodes_of(dag, tile, before),
                 sums_of(dag, tile, before), age > 0);
    age++;
    if (!dag->gains && age == dag->history) {
        if (dag->traces)
            hebbian_dag_due(dag, tile, age);
        age = 0;
    }
    if (PART == 0)
        *tile_age = age;
}

#define hebbian_dag_bounds __maxnreg__(TASK_REGISTERS)
NETWORK(hebbian_dag, net->sizes[0], net->sizes[net->layers] - 1)

SETTLES(hebbian_dag)
