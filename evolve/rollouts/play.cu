/* Whole episodes on a device, for one network and one exact task. Their headers follow this text, and a line
 * PLAY(network, task): see numerics/cupy_device.py.
 *
 * A tile of slots has WIDTH lanes x PARTS column groups, and a block has one tile or several. All blocks share a feed.
 * When the episode of a lane has ended, the lane takes the next episode, so the assignment of episodes to slots varies;
 * results are stored by episode number. The parts share the work of the network, and the first part does all other work.
 * Structures are passed by value, so that the compiler reads their fields from constant memory, and knows that the
 * addresses are global. */
#include "rows.h"
#include "sums.h"

#define MOST_COLUMNS 4 /* of a network's slot */
#define TOGETHER 4     /* numbers that a thread copies side by side, to wait for memory once */
#define EACH_TOGETHER(i, rows) for (int32_t i = THREAD; i < (rows); i += TOGETHER * (int32_t)THREADS)
#define ONE_OF_THEM(i, rows) \
    UNROLL                   \
    for (int j = 0; j < TOGETHER; j++) \
        if (i + j * (int32_t)THREADS < (rows))

typedef struct {
    const uint64_t *coefficients; /* of fingerprints */
    int64_t max_hashes, normalize;

    /* The feed. */
    int64_t fed, num_columns;
    initial_columns columns[MOST_COLUMNS]; /* values [genomes, rows] */
    const int32_t *genomes;                /* [fed]: of each episode */
    const int64_t *seeds;
    const float *normalizers;      /* [fed, 2 O] */
    uint64_t *begun, *over, *made; /* episodes, and steps of them */

    /* The slots. */
    int64_t *episodes; /* the number in the feed, -1 for no episode */
    int64_t *ending;   /* the episode that has just ended in the slot, or -1 */
    int64_t *beginning; /* the episode that takes its place, or -1 */
    uint64_t *over_lanes; /* [tiles]: a bit of each lane whose episode is over */
    double *returns;
    uint64_t *prints;        /* [tiles, 2, WIDTH] */
    float *slot_normalizers; /* [tiles, 2 O, WIDTH] */
    double *moments;         /* [tiles, 2 O, WIDTH] */

    /* The results. */
    int64_t num_traces;
    const float *traces; /* [tiles, T, WIDTH] */
    double *result_returns;
    int32_t *result_lengths;
    uint64_t *result_prints;  /* [fed, 2] */
    uint16_t *result_hashes;  /* [fed, max_hashes], two bytes each */
    double *result_moments;   /* [fed, 2 O] */
    float *result_traces;     /* [fed, T] */

    /* Of the feed, too. */
    int64_t num_parameters;   /* D */
    const double *parameters; /* [fed, D] */
} device_play;

/* Return the next episode of the feed, -1 if there is no more. */
INLINE int64_t next_episode(const device_play *p)
{
    const int64_t next = atomicAdd(p->begun, 1ull);
    return next < p->fed ? next : -1;
}

/* Copy `rows` numbers, or zeros, to a column of a tile; all threads of the block share the work. */
INLINE void fill_column(float *RESTRICT column, const float *RESTRICT values, int32_t rows)
{
    EACH_TOGETHER(row, rows)
    {
        float value[TOGETHER];
        ONE_OF_THEM(row, rows)
            value[j] = values ? values[row + j * (int32_t)THREADS] : 0.0f;
        ONE_OF_THEM(row, rows)
            column[(row + j * (int32_t)THREADS) * WIDTH] = value[j];
    }
}

/* Write the results of the episode that has ended in a slot, as far as all threads of the block share the work. */
INLINE void end_together(const device_play *p, int64_t numbers, int64_t slot, int64_t episode)
{
    const int64_t T = p->num_traces;
    const double *moments = SLOT_ROWS(p->moments, numbers, slot);
    const float *traces = SLOT_ROWS(p->traces, T, slot);
    for (int64_t i = THREAD; i < numbers; i += THREADS)
        p->result_moments[episode * numbers + i] = moments[i * WIDTH];
    EACH_TOGETHER(i, (int32_t)T)
    {
        float value[TOGETHER];
        ONE_OF_THEM(i, (int32_t)T)
            value[j] = traces[(i + j * THREADS) * WIDTH];
        ONE_OF_THEM(i, (int32_t)T)
            p->result_traces[episode * T + i + j * THREADS] = value[j];
    }
}

/* Begin an episode in a slot, as far as all threads of the block share the work: the genome and the moments. */
INLINE void begin_together(const device_play *p, int64_t numbers, int64_t slot, int64_t episode)
{
    float *normalizers = SLOT_ROWS(p->slot_normalizers, numbers, slot);
    double *moments = SLOT_ROWS(p->moments, numbers, slot);
    const int64_t genome = p->genomes[episode];
    for (int64_t c = 0; c < p->num_columns; c++) {
        const int64_t rows = p->columns[c].rows;
        const float *values = p->columns[c].values;
        fill_column(SLOT_ROWS(p->columns[c].columns, rows, slot), values ? values + genome * rows : NULL, rows);
    }
    for (int64_t i = THREAD; i < numbers; i += THREADS) {
        normalizers[i * WIDTH] = p->normalizers[episode * numbers + i];
        moments[i * WIDTH] = 0.0;
    }
}

/* End the episodes of the lanes that are `over`, and begin others; return the new episode of the caller's lane. The whole
 * block copies the genome of a lane, because most often only one lane is over. A thread begins the rows that it has ended,
 * so no barrier is needed between. If the network `waits` while a world makes its first step, it begins when it is `due`. */
INLINE int64_t turn_over(const device_play *p, const exact_task *task, int64_t tile, int64_t episode, int64_t over,
                         int64_t due, const int waits)
{
    const int64_t slot = tile * WIDTH + LANE, numbers = p->normalize ? 2 * task->num_observations : 0;
    int64_t next = episode;
    if (PART == 0 && (over || due)) {
        next = over ? next_episode(p) : episode;
        p->ending[slot] = over ? episode : -1;
        p->beginning[slot] = waits && over ? -1 : next;
        atomicAdd(p->over_lanes + tile, 1ull << LANE);
    }
    BARRIER();
    for (uint32_t left = (uint32_t)p->over_lanes[tile], lane; left; left ^= 1u << lane) {
        lane = 31 - __clz(left);
        const int64_t ending = p->ending[tile * WIDTH + lane], beginning = p->beginning[tile * WIDTH + lane];
        if (ending >= 0)
            end_together(p, numbers, tile * WIDTH + lane, ending);
        if (beginning >= 0)
            begin_together(p, numbers, tile * WIDTH + lane, beginning);
    }
    if (!over && !due)
        return episode;
    if (PART > 0)
        return p->beginning[slot];
    uint64_t *prints = p->prints + TILE(tile, 2);
    if (over && episode >= 0) {
        p->result_returns[episode] = p->returns[slot];
        p->result_lengths[episode] = (int32_t)task->steps[slot];
        p->result_prints[2 * episode] = prints[0];
        p->result_prints[2 * episode + 1] = prints[WIDTH];
        atomicAdd(p->over, 1ull);
    }
    if (next >= 0) {
        prints[0] = prints[WIDTH] = 0;
        p->returns[slot] = 0.0;
    }
    if (over) {
        p->episodes[slot] = next;
        task->active[slot] = next >= 0;
    }
    if (over && next >= 0) {
        task->seeds[slot] = p->seeds[next];
        keep_parameters(task, p->parameters + next * p->num_parameters, p->num_parameters, slot);
    }
    return next;
}

/* Pass the observation of the slot to the network. */
INLINE void see(const device_play *p, const exact_task *task, int64_t tile, float *input)
{
    const int64_t O = task->num_observations;
    const float *rows = task->observations + TILE(tile, O);
    if (p->normalize)
        normalize_rows(rows, p->slot_normalizers + TILE(tile, 2 * O), p->moments + TILE(tile, 2 * O), input, O);
    else
        for (int64_t o = PART; o < O; o += PARTS)
            input[o * WIDTH] = rows[o * WIDTH];
    if (PART == 0)
        fingerprint_rows(p->coefficients, rows, p->prints + TILE(tile, 2), O);
}

/* Pass the action of the network to the task. */
INLINE void act(const device_play *p, const exact_task *task, int64_t tile, int64_t episode, const float *output)
{
    const int64_t A = task->num_actions, step = task->steps[tile * WIDTH + LANE];
    float *rows = task->outputs + TILE(tile, A);
    uint64_t *prints = p->prints + TILE(tile, 2);
    for (int64_t a = 0; a < A; a++)
        rows[a * WIDTH] = output[a * WIDTH];
    fingerprint_rows(p->coefficients, rows, prints + WIDTH, A);
    if (step < p->max_hashes)
        p->result_hashes[episode * p->max_hashes + step] = prints[0] >> 56 | prints[WIDTH] >> 56 << 8;
}

/* Play on for at most `steps` steps of each slot. */
#define PLAY(network, world)                                                                                           \
    extern "C" __global__ void BOUNDS(network)                                                                         \
        evolve_play_##network##_on_##world(const __grid_constant__ network net,                                        \
                                           const __grid_constant__ exact_task task,                                    \
                                           const __grid_constant__ device_play p, int64_t steps)                       \
    {                                                                                                                  \
        const int64_t tile = TILE_OF_THREAD, slot = tile * WIDTH + LANE;                                               \
        int64_t episode = p.episodes[slot], over = episode < 0, due = 0, live = 1, made = 0;                           \
        for (int64_t step = 0;; step++) {                                                                              \
            if (ANY_LANE(over || due)) {                                                                               \
                network##_settle(&net, tile);                                                                          \
                episode = turn_over(&p, &task, tile, episode, over, due, FIRST_STEP);                                  \
                if (over && PART == 0 && episode >= 0)                                                                 \
                    world##_begin_slot(&task, slot);                                                                   \
                live = ANY_LANE(episode >= 0);                                                                         \
                if (THREAD == 0) /* all have read it */                                                                \
                    p.over_lanes[tile] = 0;                                                                            \
            }                                                                                                          \
            if (!live || step == steps)                                                                                \
                break;                                                                                                 \
            const int64_t first = FIRST_STEP && episode >= 0 && task.steps[slot] < 0;                                  \
            const int64_t playing = episode >= 0 && !first;                                                            \
            float *input, *output;                                                                                     \
            network##_places(&net, tile, &input, &output);                                                             \
            see(&p, &task, tile, input);                                                                               \
            network##_advance(&net, tile);                                                                             \
            BARRIER();                                                                                                 \
            if (PART == 0 && playing)                                                                                  \
                act(&p, &task, tile, episode, output);                                                                 \
            if (PART == 0 && (FIRST_STEP || playing)) /* threads of worlds wait for each other in it */                \
                world##_step_tile(&task, tile);                                                                        \
            if (PART == 0 && playing) {                                                                                \
                p.returns[slot] = p.returns[slot] + task.rewards[slot];                                                \
                made++;                                                                                                \
            }                                                                                                          \
            BARRIER();                                                                                                 \
            over = playing && task.ended[slot];                                                                        \
            due = first;                                                                                               \
        }                                                                                                              \
        if (made)                                                                                                      \
            atomicAdd(p.made, (uint64_t)made);                                                                         \
    }

