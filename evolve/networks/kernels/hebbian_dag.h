/* A hebbian-dag batch; see networks/hebbian_dag.py for the formula. Rows per tile: weights, traces and gains W; and for
 * each of `delay` steps nodes sum(sizes) and sums, one per (layer, source, output). gains is NULL when plasticity is zero;
 * then no step reads the traces, and the updates of up to `delay` steps wait (`due` of each tile says how many) until
 * evolve_hebbian_dag_settle makes them all in one pass: what bounds a large network is moving its traces. */
typedef struct {
    int64_t layers; /* L + 1: how many follow the observation */
    const int64_t *sizes; /* [layers + 1] */
    int64_t weight_rows, node_rows, sum_rows, delay;
    float *weights, *traces, *gains, *nodes, *sums;
    int64_t *due; /* [tiles] */
    float trace_rate, trace_limit;
    int64_t neuromodulated;
} hebbian_dag;

#define MOST_DELAY 8

/* H = clip(H + (x z) rate, limit) for `steps` steps in turn; x and z of a step lie `node_rows` and `sum_rows` rows after
 * those of the step before. */
INLINE void update_block(const hebbian_dag *dag, const float *x, float *h, const float *z, float (*rate)[LANES],
                         int64_t rows, int64_t columns, int64_t steps)
{
    const float limit = dag->trace_limit;
    const int64_t next_x = dag->node_rows * LANES, next_z = dag->sum_rows * LANES;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < columns; k++) {
            float *at = h + (r * columns + k) * LANES, value[LANES];
            for (int t = 0; t < LANES; t++)
                value[t] = at[t];
            for (int64_t s = 0; s < steps; s++) {
                const float *xs = x + r * LANES + s * next_x, *zs = z + k * LANES + s * next_z;
                for (int t = 0; t < LANES; t++) {
                    float moved = value[t] + xs[t] * zs[t] * rate[s][t];
                    moved = moved < -limit ? -limit : moved;
                    value[t] = moved > limit ? limit : moved;
                }
            }
            for (int t = 0; t < LANES; t++)
                at[t] = value[t];
        }
}

/* Make the updates of a tile that are due. */
INLINE void settle_tile(const hebbian_dag *dag, int64_t tile)
{
    const int64_t steps = dag->due[tile];
    const float *nodes = dag->nodes + tile * dag->delay * dag->node_rows * LANES;
    const float *sums = dag->sums + tile * dag->delay * dag->sum_rows * LANES;
    float *traces = dag->traces + tile * dag->weight_rows * LANES;
    float rate[MOST_DELAY][LANES];
    const int64_t first_output = dag->node_rows - dag->sizes[dag->layers];
    for (int64_t s = 0; s < steps; s++)
        for (int t = 0; t < LANES; t++)
            rate[s][t] = dag->neuromodulated ? nodes[(s * dag->node_rows + first_output) * LANES + t] : dag->trace_rate;
    for (int64_t layer = 0; layer < dag->layers; layer++) {
        const float *x = nodes;
        for (int64_t source = 0; source <= layer; source++) {
            const int64_t rows = dag->sizes[source], columns = dag->sizes[layer + 1];
            update_block(dag, x, traces, sums, rate, rows, columns, steps);
            x += rows * LANES;
            traces += rows * columns * LANES;
            sums += columns * LANES;
        }
    }
    dag->due[tile] = 0;
}

/* x_1 ... of a tile from its observation. */
INLINE void forward_tile(const hebbian_dag *dag, int64_t tile, float *nodes, float *sums)
{
    const float *weights = dag->weights + tile * dag->weight_rows * LANES;
    const float *traces = dag->traces + tile * dag->weight_rows * LANES;
    const float *gains = dag->gains ? dag->gains + tile * dag->weight_rows * LANES : 0;
    int64_t block = 0, sum = 0, node = dag->sizes[0]; /* rows already passed */
    for (int64_t layer = 0; layer < dag->layers; layer++) {
        const int64_t columns = dag->sizes[layer + 1], first_sum = sum;
        const float *x = nodes;
        for (int64_t source = 0; source <= layer; source++) {
            const int64_t rows = dag->sizes[source];
            const float *w = weights + block * LANES;
            float *z = sums + sum * LANES;
            if (gains)
                plastic_sums(x, w, traces + block * LANES, gains + block * LANES, z, rows, columns);
            else
                weighted_sums(x, w, z, rows, columns);
            x += rows * LANES;
            block += rows * columns;
            sum += columns;
        }
        for (int64_t k = 0; k < columns; k++) {
            float total[LANES];
            for (int t = 0; t < LANES; t++)
                total[t] = sums[(first_sum + k) * LANES + t];
            for (int64_t source = 1; source <= layer; source++)
                for (int t = 0; t < LANES; t++)
                    total[t] = total[t] + sums[(first_sum + source * columns + k) * LANES + t];
            tanh_lanes(total, nodes + (node + k) * LANES);
        }
        node += columns;
    }
}

/* One step of the slots of a tile that are live: observations [live, sizes[0]], actions [live, A]. */
INLINE void hebbian_dag_tile(const hebbian_dag *dag, int64_t tile, const float *observations, float *actions, int64_t live)
{
    const int64_t step = tile * dag->delay + dag->due[tile], O = dag->sizes[0], A = dag->sizes[dag->layers] - 1;
    float *nodes = dag->nodes + step * dag->node_rows * LANES;
    const float *outputs = nodes + (dag->node_rows - A) * LANES;
    for (int64_t t = 0; t < live; t++)
        for (int64_t o = 0; o < O; o++)
            nodes[o * LANES + t] = observations[t * O + o];
    forward_tile(dag, tile, nodes, dag->sums + step * dag->sum_rows * LANES);
    for (int64_t t = 0; t < live; t++)
        for (int64_t a = 0; a < A; a++)
            actions[t * A + a] = outputs[a * LANES + t];
    dag->due[tile]++;
    if (dag->due[tile] == dag->delay)
        settle_tile(dag, tile);
}

#ifndef __CUDACC__
EXPORT int evolve_hebbian_dag_most_delay(void) { return MOST_DELAY; }

/* Advance the first `slots` slots by one step: observations [slots, O] -> actions [slots, A]. */
DISPATCH void evolve_hebbian_dag(const hebbian_dag *dag, const float *observations, float *actions, int64_t slots)
{
    const int64_t O = dag->sizes[0], A = dag->sizes[dag->layers] - 1;
    for (int64_t first = 0; first < slots; first += LANES)
        hebbian_dag_tile(dag, first / LANES, observations + first * O, actions + first * A,
                         slots - first < LANES ? slots - first : LANES);
}

/* Bring the traces of tiles up to date. */
DISPATCH void evolve_hebbian_dag_settle(const hebbian_dag *dag, const int64_t *tiles, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        settle_tile(dag, tiles[i]);
}
#endif
