/* Exact tasks: environments in IEEE arithmetic alone, whose episodes have the same bits on every processor.
 *
 * A task is three functions, beside its definition in environments/exact/: NAME_begin sets the state of one slot,
 * NAME_observe writes what all lanes of a tile see, and NAME_step advances them. A lane without an episode is advanced as
 * well: that harms nobody. The numbers of a state, observation and so on are rows of WIDTH, and pointers begin at the
 * caller's lane. */
#pragma once
#include "draws.h"
#include "exact.h"

#define PI 3.14159265358979323846
#define TWO_PI 6.28318530717958647692

typedef struct {
    int64_t num_observations, num_actions, state_rows; /* O, A, S */
    int64_t limit; /* steps of an episode */
    double *states; /* [tiles, S, WIDTH] */
    int64_t *seeds; /* [slots] */
    int64_t *steps; /* [slots] */
    float *outputs, *observations; /* [tiles, A, WIDTH], [tiles, O, WIDTH] */
    double *rewards; /* [slots] */
    uint8_t *ended; /* [slots] */
    const double *options; /* numbers that the settings of the task give */
    void *worlds; /* [slots], of tasks with rigid bodies: bodies.h */
    const uint8_t *active; /* [slots]: which a step has to advance; others may be advanced as well, but no worlds */
} task;

/* Number `row` of the state of lane t, of the outputs, and of what is seen. */
#define STATE(row) state[(row) * WIDTH + t]
#define OUTPUT(row) outputs[(row) * WIDTH + t]
#define SEEN(row) rows[(row) * WIDTH + t]

/* The random number that belongs to the step that a slot is in; the first FIRST_OF_STEPS are for its beginning. */
#define FIRST_OF_STEPS 64
INLINE double draw_in_step(const task *at, int64_t slot) { return draw(at->seeds[slot], FIRST_OF_STEPS + at->steps[slot]); }

/* Number `number` of those for the beginning, from low to high. */
INLINE double draw_between(const task *at, int64_t slot, int64_t number, double low, double high)
{
    return low + (high - low) * draw(at->seeds[slot], number);
}

/* The largest of n outputs of a lane, the first of equals; a NaN is none, unless it is the first. */
INLINE int64_t largest(const float *outputs, int64_t n, int t)
{
    int64_t best = 0;
    float highest = OUTPUT(0);
    for (int64_t a = 1; a < n; a++) {
        best = OUTPUT(a) > highest ? a : best;
        highest = OUTPUT(a) > highest ? OUTPUT(a) : highest;
    }
    return best;
}

/* -1, 0 or 1 for the largest of three outputs. */
INLINE double direction(const float *outputs, int t)
{
    const float one = OUTPUT(0), two = OUTPUT(1), three = OUTPUT(2), higher = two > one ? two : one;
    return three > higher ? 1.0 : two > one ? 0.0 : -1.0;
}

/* An output as a double in [-1, 1], 0 for NaN. */
INLINE double bounded(float output)
{
    const double x = output < -1.0f ? -1.0f : output > 1.0f ? 1.0f : output;
    return x == x ? x : 0.0;
}

INLINE double clipped(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* Sine and cosine of the angle in row `angle` of the state, for one lane; they are kept in the two rows that follow. */
INLINE void keep_sincos(double *state, int64_t angle, int64_t t)
{
    double x[LANES], sine[LANES], cosine[LANES];
    for (int i = 0; i < LANES; i++)
        x[i] = STATE(angle);
    sincos_lanes(x, sine, cosine);
    STATE(angle + 1) = sine[0];
    STATE(angle + 2) = cosine[0];
}

/* Both leave what is seen in the observations: begin the episode of a slot, whose seed is set; and advance a tile by one
 * step. */
#define TASK_TILE(name)                                                                                                \
    INLINE void name##_begin_slot(const task *at, int64_t slot)                                                        \
    {                                                                                                                  \
        double *state = at->states + TILE(slot / WIDTH, at->state_rows);                                               \
        at->steps[slot] = 0;                                                                                           \
        name##_begin(at, slot, state, slot % LANES);                                                                   \
        name##_observe(at, state, at->observations + TILE(slot / WIDTH, at->num_observations));                        \
    }                                                                                                                  \
    INLINE void name##_step_tile(const task *at, int64_t tile)                                                         \
    {                                                                                                                  \
        const int64_t first = tile * WIDTH + LANE;                                                                     \
        double *state = at->states + TILE(tile, at->state_rows);                                                       \
        name##_step(at, first, state, at->outputs + TILE(tile, at->num_actions), at->rewards + first,                  \
                    at->ended + first);                                                                                \
        name##_observe(at, state, at->observations + TILE(tile, at->num_observations));                                \
        for (int t = 0; t < LANES; t++)                                                                                \
            at->steps[first + t] = at->steps[first + t] + 1;                                                           \
        for (int t = 0; t < LANES; t++)                                                                                \
            at->ended[first + t] = at->ended[first + t] | (at->steps[first + t] >= at->limit);                         \
    }

#ifdef __CUDACC__
#define TASK_FUNCTIONS(name)
#else
typedef void task_begin(const task *at, int64_t slot);
typedef void task_step(const task *at, int64_t tile);

/* The functions of a task on a CPU. */
#define TASK_FUNCTIONS(name)                                                                                           \
    void evolve_##name##_begin(const task *at, int64_t slot) { name##_begin_slot(at, slot); }                          \
    DISPATCH void evolve_##name##_step(const task *at, int64_t tile) { name##_step_tile(at, tile); }
#endif
#define TASK(name) TASK_TILE(name) TASK_FUNCTIONS(name)
