/* A batch of hebbian-lstm; see networks/hebbian_lstm.py for the formula. Rows per tile: weights, traces and left (1 where
 * a connection is left, 0 where not), the matrices of the four gates and of the action end to end; and nodes. */
typedef struct {
    int64_t observations, cells, actions, weight_rows, node_rows;
    const float *weights, *left;
    float *traces, *nodes;
    float update_limit;
} hebbian_lstm;

/* gate_k = sigmoid(x (W_k + g H_k) - 1) for k = 0, 1, 2, and tanh(x (W_3 + g H_3)). */
INLINE void lstm_gates(const hebbian_lstm *net, const float *x, const float *w, const float *h, float *gates)
{
    const int64_t rows = net->observations + net->cells, columns = net->cells;
    const float *g = x + net->observations * LANES;
    for (int64_t gate = 0; gate < 4; gate++) {
        const int64_t at = gate * rows * columns * LANES;
        float *z = gates + gate * columns * LANES;
        modulated_sums(x, w + at, h + at, g, z, rows, columns);
        for (int64_t k = 0; k < columns; k++) {
            float total[LANES];
            for (int t = 0; t < LANES; t++)
                total[t] = gate < 3 ? z[k * LANES + t] - 1.0f : z[k * LANES + t];
            if (gate < 3)
                sigmoid_lanes(total, z + k * LANES);
            else
                tanh_lanes(total, z + k * LANES);
        }
    }
}

/* c' = tanh(c f + i j), y = c' o. */
INLINE void lstm_cells(const float *c, const float *gates, float *next, float *y, int64_t cells)
{
    const float *f = gates, *j = f + cells * LANES, *o = j + cells * LANES, *i = o + cells * LANES;
    for (int64_t k = 0; k < cells * LANES; k += LANES) {
        float total[LANES];
        for (int t = 0; t < LANES; t++)
            total[t] = c[k + t] * f[k + t] + i[k + t] * j[k + t];
        tanh_lanes(total, next + k);
        for (int t = 0; t < LANES; t++)
            y[k + t] = next[k + t] * o[k + t];
    }
}

/* H_k = H_k + left clip((m x) gate_k, limit). */
INLINE void lstm_traces(const hebbian_lstm *net, const float *x, const float *m, const float *gates, float *h,
                        const float *left)
{
    const int64_t rows = net->observations + net->cells, columns = net->cells;
    const float limit = net->update_limit;
    for (int64_t gate = 0; gate < 4; gate++)
        for (int64_t r = 0; r < rows; r++) {
            float driven[LANES];
            for (int t = 0; t < LANES; t++)
                driven[t] = m[t] * x[r * LANES + t];
            for (int64_t k = 0; k < columns; k++, h += LANES, left += LANES)
                for (int t = 0; t < LANES; t++) {
                    float change = driven[t] * gates[(gate * columns + k) * LANES + t];
                    change = change < -limit ? -limit : change;
                    change = change > limit ? limit : change;
                    h[t] = h[t] + left[t] * change;
                }
        }
}

/* One step of the slots of a tile that are live: observations [live, O], actions [live, A]. */
INLINE void hebbian_lstm_tile(const hebbian_lstm *net, int64_t tile, const float *observations, float *actions,
                              int64_t live)
{
    const int64_t O = net->observations, H = net->cells, A = net->actions, at = tile * net->weight_rows * LANES;
    const float *weights = net->weights + at;
    float *x = net->nodes + tile * net->node_rows * LANES; /* observation, cells */
    float *c = x + O * LANES, *gates = c + H * LANES, *next = gates + 4 * H * LANES, *y = next + H * LANES;
    float *outputs = y + H * LANES;
    for (int64_t t = 0; t < live; t++)
        for (int64_t o = 0; o < O; o++)
            x[o * LANES + t] = observations[t * O + o];
    lstm_gates(net, x, weights, net->traces + at, gates);
    lstm_cells(c, gates, next, y, H);
    weighted_sums(y, weights + 4 * (O + H) * H * LANES, outputs, H, A);
    for (int64_t a = 0; a < A; a++) {
        float total[LANES];
        memcpy(total, outputs + a * LANES, sizeof total);
        tanh_lanes(total, outputs + a * LANES);
        for (int64_t t = 0; t < live; t++)
            actions[t * A + a] = outputs[a * LANES + t];
    }
    lstm_traces(net, x, next + LANES, gates, net->traces + at, net->left + at);
    memcpy(c, next, H * LANES * sizeof *c);
}

#ifndef __CUDACC__
/* Advance the first `slots` slots by one step: observations [slots, O] -> actions [slots, A]. */
DISPATCH void evolve_hebbian_lstm(const hebbian_lstm *net, const float *observations, float *actions, int64_t slots)
{
    for (int64_t first = 0; first < slots; first += LANES)
        hebbian_lstm_tile(net, first / LANES, observations + first * net->observations, actions + first * net->actions,
                          slots - first < LANES ? slots - first : LANES);
}
#endif
