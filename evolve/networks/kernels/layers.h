/* A batch of layered networks; see networks/layers.py for the formula. Rows per tile: weights, the matrices of all
 * layers end to end, and nodes: what the layers read and what they compute, the observation first. */
typedef struct {
    int64_t layers, weight_rows, node_rows, observations;
    const int64_t *wiring; /* [layers, 4]: first row and number of the nodes it reads, and of its outputs */
    int64_t feedback[3]; /* after a step: from this row on, to that row on, so many are copied */
    const float *weights;
    float *nodes;
} layered;

/* One step of the slots of a tile that are live: observations [live, O], actions [live, A]. */
INLINE void layered_tile(const layered *net, int64_t tile, const float *observations, float *actions, int64_t live)
{
    const int64_t O = net->observations, *last = net->wiring + 4 * (net->layers - 1), A = last[3];
    const float *weights = net->weights + tile * net->weight_rows * LANES;
    float *nodes = net->nodes + tile * net->node_rows * LANES;
    for (int64_t t = 0; t < live; t++)
        for (int64_t o = 0; o < O; o++)
            nodes[o * LANES + t] = observations[t * O + o];
    for (int64_t layer = 0; layer < net->layers; layer++) {
        const int64_t *at = net->wiring + 4 * layer, rows = at[1], columns = at[3];
        float *y = nodes + at[2] * LANES;
        weighted_sums(nodes + at[0] * LANES, weights, y, rows, columns);
        for (int64_t k = 0; k < columns; k++) {
            float total[LANES];
            for (int t = 0; t < LANES; t++)
                total[t] = y[k * LANES + t];
            tanh_lanes(total, y + k * LANES);
        }
        weights += rows * columns * LANES;
    }
    for (int64_t t = 0; t < live; t++)
        for (int64_t a = 0; a < A; a++)
            actions[t * A + a] = nodes[(last[2] + a) * LANES + t];
    const int64_t *copied = net->feedback;
    memcpy(nodes + copied[1] * LANES, nodes + copied[0] * LANES, copied[2] * LANES * sizeof *nodes);
}

#ifndef __CUDACC__
/* Advance the first `slots` slots by one step: observations [slots, O] -> actions [slots, A]. */
DISPATCH void evolve_layered(const layered *net, const float *observations, float *actions, int64_t slots)
{
    const int64_t O = net->observations, A = net->wiring[4 * (net->layers - 1) + 3];
    for (int64_t first = 0; first < slots; first += LANES)
        layered_tile(net, first / LANES, observations + first * O, actions + first * A,
                     slots - first < LANES ? slots - first : LANES);
}
#endif
