/* Whole episodes on a device, for one network and one exact task. Their headers follow this text, and a line
 * PLAY(network, task): see numerics/cupy_device.py.
 *
 * A block plays a tile of slots, WIDTH lanes x PARTS column groups. All blocks share a feed. When the episode of a lane has
 * ended, the lane takes the next episode, so the assignment of episodes to slots varies; results are stored by episode
 * number. The parts share the work of the network, and the first part does all other work. rollouts/device_play.py
 * describes the arrays. Every argument has 64 bits. */
#include "rows.h"

typedef struct {
    const task *at;
    const uint64_t *coefficients; /* of fingerprints */
    int64_t room, normalize;

    /* The feed. */
    int64_t fed, num_columns;
    const initial_columns *columns;
    const int64_t *seeds;
    const float *normalizers; /* [fed, 2 O] */
    uint64_t *begun, *over, *made; /* episodes, and steps of them */

    /* The slots. */
    int64_t *episodes; /* the number in the feed, -1 for no episode */
    double *returns;
    uint64_t *prints;        /* [tiles, 2, WIDTH] */
    float *slot_normalizers; /* [tiles, 2 O, WIDTH] */
    double *moments;         /* [tiles, 2 O, WIDTH] */

    /* The results; those with several numbers as NUMBERs. */
    int64_t num_traces;
    const float *traces; /* [tiles, T, WIDTH] */
    double *result_returns;
    int32_t *result_lengths;
    uint64_t *result_prints; /* 2 */
    uint8_t *result_hashes;  /* `room` of two bytes */
    double *result_moments;  /* 2 O */
    float *result_traces;    /* T */

    /* Of the feed, too. */
    int64_t num_parameters;   /* D */
    const double *parameters; /* [fed, D] */
} device_play;

/* Write the result of the episode in the caller's slot. */
INLINE void end_episode(const device_play *p, const task *at, int64_t tile, int64_t episode)
{
    const int64_t slot = tile * WIDTH + LANE, T = p->num_traces, numbers = p->normalize ? 2 * at->num_observations : 0;
    const double *moments = p->moments + TILE(tile, numbers);
    const float *traces = p->traces + TILE(tile, T);
    for (int64_t i = PART; i < numbers; i += PARTS)
        p->result_moments[NUMBER(episode, i, numbers)] = moments[i * WIDTH];
    for (int64_t i = PART; i < T; i += PARTS)
        p->result_traces[NUMBER(episode, i, T)] = traces[i * WIDTH];
    if (PART == 0) {
        const uint64_t *prints = p->prints + TILE(tile, 2);
        p->result_returns[episode] = p->returns[slot];
        p->result_lengths[episode] = (int32_t)at->steps[slot];
        p->result_prints[NUMBER(episode, 0, 2)] = prints[0];
        p->result_prints[NUMBER(episode, 1, 2)] = prints[WIDTH];
        atomicAdd(p->over, 1ull);
    }
}

/* Return the next episode of the feed, -1 if there is no more. */
INLINE int64_t next_episode(const device_play *p)
{
    const int64_t next = atomicAdd(p->begun, 1ull);
    return next < p->fed ? next : -1;
}

/* Begin an episode in the caller's slot, except for the task. */
INLINE void begin_episode(const device_play *p, const task *at, int64_t tile, int64_t episode)
{
    const int64_t slot = tile * WIDTH + LANE, numbers = p->normalize ? 2 * at->num_observations : 0;
    float *normalizers = p->slot_normalizers + TILE(tile, numbers);
    double *moments = p->moments + TILE(tile, numbers);
    begin_columns(p->columns, p->num_columns, slot, episode);
    for (int64_t i = PART; i < numbers; i += PARTS) {
        normalizers[i * WIDTH] = p->normalizers[episode * numbers + i];
        moments[i * WIDTH] = 0.0;
    }
    if (PART == 0) {
        uint64_t *prints = p->prints + TILE(tile, 2);
        prints[0] = prints[WIDTH] = 0;
        p->returns[slot] = 0.0;
        at->seeds[slot] = p->seeds[episode];
        keep_parameters(at, p->parameters + episode * p->num_parameters, p->num_parameters, slot);
    }
}

/* Pass the observation of the slot to the network. */
INLINE void see(const device_play *p, const task *at, int64_t tile, float *input)
{
    const int64_t O = at->num_observations;
    const float *rows = at->observations + TILE(tile, O);
    if (p->normalize)
        normalize_rows(rows, p->slot_normalizers + TILE(tile, 2 * O), p->moments + TILE(tile, 2 * O), input, O);
    else
        for (int64_t o = PART; o < O; o += PARTS)
            input[o * WIDTH] = rows[o * WIDTH];
    if (PART == 0)
        fingerprint_rows(p->coefficients, rows, p->prints + TILE(tile, 2), O);
}

/* Pass the action of the network to the task. */
INLINE void act(const device_play *p, const task *at, int64_t tile, int64_t episode, const float *output)
{
    const int64_t A = at->num_actions, step = at->steps[tile * WIDTH + LANE];
    float *rows = at->outputs + TILE(tile, A);
    uint64_t *prints = p->prints + TILE(tile, 2);
    for (int64_t a = 0; a < A; a++)
        rows[a * WIDTH] = output[a * WIDTH];
    fingerprint_rows(p->coefficients, rows, prints + WIDTH, A);
    if (step < p->room)
        for (int which = 0; which < 2; which++)
            p->result_hashes[2 * NUMBER(episode, step, p->room) + which] = prints[which * WIDTH] >> 56;
}

/* Play on for at most `steps` steps of each slot. */
#define PLAY(network, world)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        evolve_play_##network##_on_##world(const network *networks, const device_play *plays, int64_t steps)           \
    {                                                                                                                  \
        const network net = *networks;                                                                                 \
        const device_play p = *plays;                                                                                  \
        const task at = *p.at;                                                                                         \
        const int64_t tile = blockIdx.x, slot = tile * WIDTH + LANE;                                                   \
        int64_t episode = p.episodes[slot], over = episode < 0, live = 1, made = 0;                                    \
        for (int64_t step = 0;; step++) {                                                                              \
            if (ANY_LANE(over)) {                                                                                      \
                network##_settle(&net, tile);                                                                          \
                if (over && episode >= 0)                                                                              \
                    end_episode(&p, &at, tile, episode);                                                               \
                if (over && PART == 0)                                                                                 \
                    p.episodes[slot] = next_episode(&p);                                                               \
                BARRIER();                                                                                             \
                episode = p.episodes[slot];                                                                            \
                if (over && episode >= 0) {                                                                            \
                    begin_episode(&p, &at, tile, episode);                                                             \
                    if (PART == 0)                                                                                     \
                        world##_begin_slot(&at, slot);                                                                 \
                }                                                                                                      \
                live = ANY_LANE(episode >= 0);                                                                         \
            }                                                                                                          \
            if (!live || step == steps)                                                                                \
                break;                                                                                                 \
            float *input, *output;                                                                                     \
            network##_places(&net, tile, &input, &output);                                                             \
            see(&p, &at, tile, input);                                                                                 \
            network##_advance(&net, tile);                                                                             \
            BARRIER();                                                                                                 \
            if (PART == 0 && episode >= 0) {                                                                           \
                act(&p, &at, tile, episode, output);                                                                   \
                world##_step_tile(&at, tile);                                                                          \
                p.returns[slot] = p.returns[slot] + at.rewards[slot];                                                  \
                made++;                                                                                                \
            }                                                                                                          \
            BARRIER();                                                                                                 \
            over = episode >= 0 && at.ended[slot];                                                                     \
        }                                                                                                              \
        if (made)                                                                                                      \
            atomicAdd(p.made, (uint64_t)made);                                                                         \
    }

