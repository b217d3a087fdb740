/* A batch of hebbian-lstm; see networks/hebbian.py for the formula. Rows per tile: weights, traces and left (1 for a
 * connection that is left, else 0), the matrices of the four gates and of the action end to end; cells; and the nodes of
 * two steps. The next step makes the update of a step while it reads the traces, or evolve_hebbian_lstm_settle makes it.
 * `age` of each tile is the number of steps since the last settle. */
#pragma once
#include "steps.h"
#include "sums.h"

typedef struct {
    int64_t observations, num_cells, actions, weight_rows, node_rows;
    const float *weights, *left;
    float *traces, *cells, *nodes;
    int64_t *age; /* [tiles, WIDTH / LANES] */
    float update_limit;
} hebbian_lstm;

/* The nodes of a step, and their parts. */
typedef struct {
    float *x;     /* observation, cells */
    float *gates; /* f, j, o, i */
    float *next;  /* cells */
    float *y, *action;
} lstm_nodes;

INLINE lstm_nodes lstm_nodes_of(const hebbian_lstm *net, int64_t tile, int64_t step)
{
    lstm_nodes nodes;
    nodes.x = net->nodes + TILE(tile * 2 + step % 2, net->node_rows);
    nodes.gates = nodes.x + (net->observations + net->num_cells) * WIDTH;
    nodes.next = nodes.gates + 4 * net->num_cells * WIDTH;
    nodes.y = nodes.next + net->num_cells * WIDTH;
    nodes.action = nodes.y + net->num_cells * WIDTH;
    return nodes;
}

/* h = h + left clip((m x) gate, limit) */
INLINE void lstm_update(float *h, const float *left, const float *m, const float *x, const float *gate, float limit)
{
    for (int t = 0; t < LANES; t++) {
        float change = m[t] * x[t] * gate[t];
        change = change < -limit ? -limit : change;
        change = change > limit ? limit : change;
        h[t] = h[t] + left[t] * change;
    }
}

/* z[k] = x (W + c_0 H) for `width` columns of a gate from k on. If an update is `due`, H is updated first, by the step
 * before, whose x, gate and rate m are given. */
INLINE void lstm_columns(const float *RESTRICT x, const float *RESTRICT c, const float *RESTRICT w, float *RESTRICT h,
                         const float *RESTRICT left, float *RESTRICT z, const float *RESTRICT x_before,
                         const float *RESTRICT gate_before, const float *RESTRICT m, float limit, int due, int64_t rows,
                         int64_t columns, int64_t width)
{
    TOTALS(z);
    FOR_BLOCKS(DEEP, rows, width)
    {
        float trace[DEEP][WIDE][LANES], weight[DEEP][WIDE][LANES], kept[DEEP][WIDE][LANES];
        FOR_BLOCK(DEEP, width)
            for (int t = 0; t < LANES; t++) {
                trace[j][k][t] = h[BLOCK_AT(rows, columns) + t];
                weight[j][k][t] = w[BLOCK_AT(rows, columns) + t];
                kept[j][k][t] = left[BLOCK_AT(rows, columns) + t];
            }
        FOR_BLOCK(DEEP, width)
            if (due)
                lstm_update(trace[j][k], kept[j][k], m, x_before + BLOCK_ROW(rows) * WIDTH,
                            gate_before + (first + k) * WIDTH, limit);
        FOR_BLOCK(DEEP, width)
            for (int t = 0; t < LANES && row + j < rows; t++) {
                float product = x[(row + j) * WIDTH + t] * (weight[j][k][t] + c[t] * trace[j][k][t]);
                total[first + k][t] = row + j ? total[first + k][t] + product : product;
            }
        FOR_BLOCK(DEEP, width)
            for (int t = 0; t < LANES && due && row + j < rows; t++)
                h[BLOCK_AT(rows, columns) + t] = trace[j][k][t];
    }
    KEEP_TOTALS(z, width)
}

/* gate_k = sigmoid(x (W_k + g H_k) - 1) for k = 0, 1, 2, and tanh(x (W_3 + g H_3)). */
INLINE void lstm_gates(const hebbian_lstm *net, int64_t tile, lstm_nodes now, lstm_nodes before, int due)
{
    const int64_t rows = net->observations + net->num_cells, columns = net->num_cells;
    const float *c = now.x + net->observations * WIDTH, *m = before.next + WIDTH;
    for (int64_t gate = 0; gate < 4; gate++) {
        const int64_t first = TILE(tile, net->weight_rows) + gate * rows * columns * WIDTH;
        float *z = now.gates + gate * columns * WIDTH;
        const float *z_before = before.gates + gate * columns * WIDTH;
#define SUM(k, width)                                                                                                  \
    UNSWITCH(due, lstm_columns(now.x, c, net->weights + first + (k) * WIDTH, net->traces + first + (k) * WIDTH,        \
                               net->left + first + (k) * WIDTH, z + (k) * WIDTH, before.x, z_before + (k) * WIDTH, m,  \
                               net->update_limit, due, rows, columns, width))
        FOR_WRITTEN_COLUMNS(columns, SUM);
#undef SUM
        BARRIER();
        for (int64_t k = PART; k < columns; k += PARTS) {
            float total[LANES];
            for (int t = 0; t < LANES; t++)
                total[t] = gate < 3 ? z[k * WIDTH + t] - 1.0f : z[k * WIDTH + t];
            if (gate < 3)
                sigmoid_lanes(total, z + k * WIDTH);
            else
                tanh_lanes(total, z + k * WIDTH);
        }
    }
    BARRIER();
}

/* c' = tanh(c f + i j), y = c' o. */
INLINE void lstm_cells(const hebbian_lstm *net, float *cells, lstm_nodes now)
{
    const int64_t H = net->num_cells, next = H * WIDTH;
    const float *c = now.x + net->observations * WIDTH, *f = now.gates, *j = f + next, *o = j + next, *i = o + next;
    for (int64_t k = PART * WIDTH; k < H * WIDTH; k += PARTS * WIDTH) {
        float total[LANES];
        for (int t = 0; t < LANES; t++)
            total[t] = c[k + t] * f[k + t] + i[k + t] * j[k + t];
        tanh_lanes(total, now.next + k);
        for (int t = 0; t < LANES; t++) {
            now.y[k + t] = now.next[k + t] * o[k + t];
            cells[k + t] = now.next[k + t];
        }
    }
    BARRIER();
}

INLINE void hebbian_lstm_places(const hebbian_lstm *net, int64_t tile, float **input, float **output)
{
    const lstm_nodes now = lstm_nodes_of(net, tile, net->age[tile * (WIDTH / LANES) + LANE]);
    *input = now.x;
    *output = now.action;
}

INLINE void hebbian_lstm_advance(const hebbian_lstm *net, int64_t tile)
{
    int64_t *tile_age = net->age + tile * (WIDTH / LANES) + LANE, age = *tile_age;
    const int64_t O = net->observations, H = net->num_cells, A = net->actions;
    const float *weights = net->weights + TILE(tile, net->weight_rows);
    float *cells = net->cells + TILE(tile, H);
    const lstm_nodes now = lstm_nodes_of(net, tile, age), before = lstm_nodes_of(net, tile, age + 1);
    for (int64_t k = PART; k < H; k += PARTS)
        for (int t = 0; t < LANES; t++)
            now.x[(O + k) * WIDTH + t] = cells[k * WIDTH + t];
    BARRIER();
    lstm_gates(net, tile, now, before, age > 0);
    lstm_cells(net, cells, now);
    weighted_sums(now.y, weights + 4 * (O + H) * H * WIDTH, now.action, H, A);
    BARRIER();
    for (int64_t a = PART; a < A; a += PARTS) {
        float total[LANES];
        for (int t = 0; t < LANES; t++)
            total[t] = now.action[a * WIDTH + t];
        tanh_lanes(total, now.action + a * WIDTH);
    }
    if (PART == 0)
        *tile_age = age + 1;
}

#define hebbian_lstm_bounds __maxnreg__(TASK_REGISTERS)
NETWORK(hebbian_lstm, net->observations, net->actions)

/* Make the update of a tile that is due after `age` steps. */
INLINE void hebbian_lstm_due(const hebbian_lstm *net, int64_t tile, int64_t age)
{
    const int64_t O = net->observations, H = net->num_cells;
    const lstm_nodes before = lstm_nodes_of(net, tile, age + 1);
    const float *m = before.next + WIDTH;
    for (int64_t row = 0; age && row < 4 * (O + H); row++)
        for (int64_t k = PART; k < H; k += PARTS) {
            const int64_t first = TILE(tile, net->weight_rows) + (row * H + k) * WIDTH;
            const float *gate = before.gates + (row / (O + H) * H + k) * WIDTH;
            lstm_update(net->traces + first, net->left + first, m, before.x + row % (O + H) * WIDTH, gate, net->update_limit);
        }
}

SETTLES(hebbian_lstm)
