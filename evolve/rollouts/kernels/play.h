/* Whole episodes in one call: slots play until their episodes are over or the steps asked for are done. Slots are one tile,
 * or as many tiles as the task steps together.
 *
 * Any network plays any exact task: both are given by their functions. Episodes wait in a feed and begin in whichever slot
 * is free; the results come in the order in which episodes end. rollouts/native_play.py says what the arrays hold. What belongs
 * to the slots lies in rows of WIDTH. */
#pragma once
#include "rows.h"

typedef void network_places(const void *network, int64_t tile, float **input, float **output);
typedef void network_advance(const void *network, int64_t tile);
typedef void network_settle(const void *network, const int64_t *tiles, int64_t count);

typedef struct {
    network_places *places;
    network_advance *advance;
    network_settle *settle; /* NULL if the network has no updates that wait */
    const void *network;
    task_step *step;
    task_begin *begin;
    const exact_task *task;
    const uint64_t *coefficients; /* of fingerprints */
    int64_t max_hashes, normalize, tiles;

    /* The feed: `next` is the first of `fed` episodes that has not begun. */
    int64_t next, fed, num_columns;
    const initial_columns *columns;
    const int32_t *genomes; /* [fed], the number of each episode's genome */
    const int64_t *seeds, *keys;
    const float *normalizers; /* [fed, 2 O] */
    const uint8_t *masks;     /* [genomes, T] */

    /* The slots. */
    uint8_t *live;
    uint8_t *slot_masks; /* [slots, T] */
    int64_t *slot_keys;
    double *returns;
    uint64_t *prints;        /* [tiles, 2, WIDTH] */
    uint8_t *step_hashes;    /* [slots, max_hashes, 2] */
    float *slot_normalizers; /* [tiles, 2 O, WIDTH] */
    double *moments;         /* [tiles, 2 O, WIDTH] */

    /* The results: `over` episodes. */
    int64_t over, hashed, num_traces;
    const float *traces; /* [tiles, T, WIDTH] */
    int64_t *result_keys;
    double *result_returns, *result_moments;
    int32_t *result_lengths;
    uint64_t *result_prints;
    uint8_t *result_hashes; /* end to end, two bytes for each step */
    int64_t *result_traces; /* [over, T], in units of 2^-20 */

    /* Of the feed, too. */
    int64_t num_parameters; /* D */
    const double *parameters; /* [fed, D], for the last rows of a state */
} play;

/* Begin the next episode of the feed in a slot. */
INLINE void begin_slot(play *p, int64_t slot)
{
    const int64_t episode = p->next++, T = p->num_traces, numbers = p->normalize ? 2 * p->task->num_observations : 0;
    const int64_t genome = p->genomes[episode];
    begin_columns(p->columns, p->num_columns, slot, genome);
    float *normalizers = SLOT_ROWS(p->slot_normalizers, numbers, slot);
    double *moments = SLOT_ROWS(p->moments, numbers, slot);
    uint64_t *prints = SLOT_ROWS(p->prints, 2, slot);
    for (int64_t i = 0; i < numbers; i++) {
        normalizers[i * WIDTH] = p->normalizers[episode * numbers + i];
        moments[i * WIDTH] = 0.0;
    }
    prints[0] = prints[WIDTH] = 0;
    memcpy(p->slot_masks + slot * T, p->masks + genome * T, T);
    p->slot_keys[slot] = p->keys[episode];
    p->task->seeds[slot] = p->seeds[episode];
    p->returns[slot] = 0.0;
    p->live[slot] = 1;
    keep_parameters(p->task, p->parameters + episode * p->num_parameters, p->num_parameters, slot);
    p->begin(p->task, slot);
}

/* A trace in units of 2^-20, see quantize_traces in rollouts/results.py. */
INLINE int64_t in_units(float trace)
{
    const double units = trace * 1048576.0, nearest = fabs(units) < 2251799813685248.0 ? (units + ROUND) - ROUND : units;
    return fabsf(trace) < 8796093022208.0f ? (int64_t)nearest : 0; /* 2^43: 2^63 units do not fit; NaN does not either */
}

/* Write down the result of the episode in a slot, and free it. */
INLINE void end_slot(play *p, int64_t slot)
{
    const int64_t n = p->over++, T = p->num_traces, numbers = p->normalize ? 2 * p->task->num_observations : 0;
    const int64_t length = p->task->steps[slot], kept = length < p->max_hashes ? length : p->max_hashes;
    const uint64_t *prints = SLOT_ROWS(p->prints, 2, slot);
    const double *moments = SLOT_ROWS(p->moments, numbers, slot);
    const float *traces = SLOT_ROWS(p->traces, T, slot);
    p->live[slot] = 0;
    p->result_keys[n] = p->slot_keys[slot];
    p->result_returns[n] = p->returns[slot];
    p->result_lengths[n] = (int32_t)length;
    p->result_prints[2 * n] = prints[0];
    p->result_prints[2 * n + 1] = prints[WIDTH];
    memcpy(p->result_hashes + 2 * p->hashed, p->step_hashes + 2 * slot * p->max_hashes, 2 * kept);
    p->hashed += kept;
    for (int64_t i = 0; i < numbers; i++)
        p->result_moments[n * numbers + i] = moments[i * WIDTH];
    for (int64_t i = 0; i < T; i++)
        p->result_traces[n * T + i] = p->slot_masks[slot * T + i] ? in_units(traces[i * WIDTH]) : 0;
}

/* A byte of both fingerprints of each slot of a tile. */
INLINE void keep_step_hashes(const play *p, int64_t tile)
{
    const uint64_t *prints = p->prints + 2 * tile * WIDTH;
    for (int t = 0; t < LANES; t++) {
        const int64_t slot = tile * WIDTH + t, step = p->task->steps[slot];
        uint8_t *pair = p->step_hashes + 2 * (slot * p->max_hashes + (step < p->max_hashes ? step : 0));
        if (step < p->max_hashes) {
            pair[0] = prints[t] >> 56;
            pair[1] = prints[WIDTH + t] >> 56;
        }
    }
}

/* Compute the actions of a tile's networks from the observations of its slots. */
INLINE void answer_tile(play *p, int64_t tile)
{
    const exact_task *task = p->task;
    const int64_t O = task->num_observations, A = task->num_actions;
    const float *seen = task->observations + tile * O * WIDTH;
    float *input, *output, *outputs = task->outputs + tile * A * WIDTH;
    uint64_t *prints = p->prints + 2 * tile * WIDTH;
    p->places(p->network, tile, &input, &output);
    if (p->normalize)
        normalize_rows(seen, p->slot_normalizers + 2 * tile * O * WIDTH, p->moments + 2 * tile * O * WIDTH, input, O);
    else
        memcpy(input, seen, O * WIDTH * sizeof(float));
    fingerprint_rows(p->coefficients, seen, prints, O);
    p->advance(p->network, tile);
    memcpy(outputs, output, A * WIDTH * sizeof(float));
    fingerprint_rows(p->coefficients, outputs, prints + WIDTH, A);
    keep_step_hashes(p, tile);
}

/* One step of all slots. At the end of a generation most tiles have no live slot, and their networks need no step. */
INLINE void advance_slots(play *p)
{
    for (int64_t tile = 0; tile < p->tiles; tile++)
        if (any_of(p->live + tile * WIDTH, LANES))
            answer_tile(p, tile);
    p->step(p->task, 0);
    for (int64_t slot = 0; slot < p->tiles * WIDTH; slot++)
        p->returns[slot] = p->returns[slot] + p->task->rewards[slot];
}

/* Make the updates that wait, before a slot begins or ends an episode. */
INLINE void settle_tiles(const play *p)
{
    for (int64_t tile = 0; p->settle && tile < p->tiles; tile++)
        p->settle(p->network, &tile, 1);
}

/* Begin episodes of the feed in the free slots; return the number of live slots. */
INLINE int64_t fill_slots(play *p, int64_t live)
{
    settle_tiles(p);
    for (int64_t slot = 0; slot < p->tiles * WIDTH && p->next < p->fed; slot++)
        if (!p->live[slot]) {
            begin_slot(p, slot);
            live++;
        }
    return live;
}

/* Write the results of the episodes that are over; return the number of live slots. */
INLINE int64_t collect_slots(play *p, int64_t live)
{
    int any = 0;
    for (int64_t slot = 0; slot < p->tiles * WIDTH; slot++)
        any |= p->live[slot] & p->task->ended[slot];
    if (any && p->num_traces)
        settle_tiles(p);
    for (int64_t slot = 0; any && slot < p->tiles * WIDTH; slot++)
        if (p->live[slot] & p->task->ended[slot]) {
            end_slot(p, slot);
            live--;
        }
    return live;
}

/* Play for at most `steps` steps; return how many episode steps were made. It ends early when the feed is empty and nothing
 * runs, or when a slot is free while `more` episodes wait elsewhere. */
DISPATCH int64_t evolve_play(play *p, int64_t steps, int64_t more)
{
    const int64_t slots = p->tiles * WIDTH;
    int64_t made = 0, live = 0;
    for (int64_t slot = 0; slot < slots; slot++)
        live += p->live[slot];
    for (int64_t step = 0; step < steps; step++) {
        if (live < slots && p->next < p->fed)
            live = fill_slots(p, live);
        if (!live || (live < slots && more))
            break;
        advance_slots(p);
        made += live;
        live = collect_slots(p, live);
    }
    return made;
}
