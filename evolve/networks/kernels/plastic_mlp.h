/* A batch of plastic-mlp; see networks/plastic_mlp.py for the formula. Rows per tile: weights, the matrices of all layers
 * end to end; rules, of each layer the matrices A, B, C, D and eta; nodes, of all layers; and one of age. */
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
        float *y = x + rows * LANES;
        weighted_sums(x, weights, y, rows, columns);
        for (int64_t k = 0; k < columns; k++) {
            float total[LANES];
            memcpy(total, y + k * LANES, sizeof total);
            tanh_lanes(total, y + k * LANES);
        }
        weights += rows * columns * LANES;
        x = y;
    }
}

/* w = w + (((A (x y) + B x) + C y) + D) eta in the lanes that are due; `coefficients` is how many numbers A has. */
INLINE void apply_rules(const plastic_mlp *net, const float *x, const float *y, float *w, const float *rules,
                        int64_t coefficients, const int *due, int64_t rows, int64_t columns)
{
    const int64_t next = coefficients * LANES;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < columns; k++) {
            const float *a = rules + ((net->own_rows ? r * columns : 0) + (net->own_columns ? k : 0)) * LANES;
            const float *xr = x + r * LANES, *yk = y + k * LANES;
            float *at = w + (r * columns + k) * LANES;
            for (int t = 0; t < LANES; t++) {
                float change = a[t] * (xr[t] * yk[t]) + a[next + t] * xr[t];
                change = change + a[2 * next + t] * yk[t] + a[3 * next + t];
                float moved = at[t] + change * a[4 * next + t];
                at[t] = due[t] ? moved : at[t];
            }
        }
}

/* Divide the weights of a layer by the largest of their sizes in the lanes that are due, unless all are zero. */
INLINE void normalize_layer(float *w, const int *due, int64_t count)
{
    float largest[LANES] = {0};
    for (int64_t i = 0; i < count; i++)
        for (int t = 0; t < LANES; t++) {
            float size = fabsf(w[i * LANES + t]);
            largest[t] = size > largest[t] ? size : largest[t];
        }
    for (int t = 0; t < LANES; t++)
        largest[t] = due[t] && largest[t] > 0.0f ? largest[t] : 1.0f;
    for (int64_t i = 0; i < count; i++)
        for (int t = 0; t < LANES; t++)
            w[i * LANES + t] = w[i * LANES + t] / largest[t];
}

/* Update the weights of the slots of a tile that are due. */
INLINE void plastic_mlp_update(const plastic_mlp *net, int64_t tile, float *weights, const float *x)
{
    const float *rules = net->rules + tile * net->rule_rows * LANES;
    float *age = net->age + tile * LANES;
    int due[LANES], any = 0;
    for (int t = 0; t < LANES; t++) {
        due[t] = age[t] + 1.0f == net->every;
        age[t] = due[t] ? 0.0f : age[t] + 1.0f;
        any |= due[t];
    }
    for (int64_t layer = 0; any && layer < net->layers; layer++) {
        const int64_t rows = net->sizes[layer], columns = net->sizes[layer + 1];
        const int64_t coefficients = (net->own_rows ? rows : 1) * (net->own_columns ? columns : 1);
        apply_rules(net, x, x + rows * LANES, weights, rules, coefficients, due, rows, columns);
        if (net->max_norm)
            normalize_layer(weights, due, rows * columns);
        x += rows * LANES;
        weights += rows * columns * LANES;
        rules += 5 * coefficients * LANES;
    }
}

/* One step of the slots of a tile that are live: observations [live, O], actions [live, A]. */
INLINE void plastic_mlp_tile(const plastic_mlp *net, int64_t tile, const float *observations, float *actions,
                             int64_t live)
{
    const int64_t O = net->sizes[0], A = net->sizes[net->layers];
    float *weights = net->weights + tile * net->weight_rows * LANES;
    float *nodes = net->nodes + tile * net->node_rows * LANES;
    for (int64_t t = 0; t < live; t++)
        for (int64_t o = 0; o < O; o++)
            nodes[o * LANES + t] = observations[t * O + o];
    plastic_mlp_forward(net, weights, nodes);
    for (int64_t t = 0; t < live; t++)
        for (int64_t a = 0; a < A; a++)
            actions[t * A + a] = nodes[(net->node_rows - A + a) * LANES + t];
    plastic_mlp_update(net, tile, weights, nodes);
}

#ifndef __CUDACC__
/* Advance the first `slots` slots by one step: observations [slots, O] -> actions [slots, A]. */
DISPATCH void evolve_plastic_mlp(const plastic_mlp *net, const float *observations, float *actions, int64_t slots)
{
    const int64_t O = net->sizes[0], A = net->sizes[net->layers];
    for (int64_t first = 0; first < slots; first += LANES)
        plastic_mlp_tile(net, first / LANES, observations + first * O, actions + first * A,
                         slots - first < LANES ? slots - first : LANES);
}
#endif
