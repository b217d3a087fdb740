/* Exact tasks: environments in IEEE arithmetic, whose episodes have the same bits on every processor.
 *
 * Beside its definition in environments/exact/, a task has three functions. NAME_begin sets the state of one slot,
 * NAME_observe writes the observations of all lanes of a tile, and NAME_step advances all lanes by one step, also lanes
 * without an episode. The numbers of states, observations and outputs are rows of WIDTH, and pointers begin at the
 * caller's lane. */
#pragma once
#include "draws.h"
#include "exact.h"

/* The most registers per thread of a device, if the network that plays the task uses this limit in its NAME_bounds.
 * With fewer registers per thread, more threads are resident. */
#define TASK_REGISTERS 96

/* The attribute that limits the registers of the kernel in which a network plays the task. */
#define BOUNDS(network) network##_bounds

/* On a device: the tile of the calling thread, and whether an episode begins with a step before its network begins. */
#define TILE_OF_THREAD ((int64_t)blockIdx.x)
#define FIRST_STEP 0

/* Whether any of n flags is set. */
INLINE int any_of(const uint8_t *flags, int n)
{
    int any = 0;
    for (int t = 0; t < n; t++)
        any |= flags[t];
    return any;
}

#define PI 3.14159265358979323846
#define TWO_PI 6.28318530717958647692

/* The arrays of a batch of slots of an exact task, and the task's options. */
typedef struct {
    int64_t num_observations, num_actions, state_rows; /* O, A, S; the caller sets the last rows, a task's parameters */
    int64_t limit; /* steps of an episode */
    double *states; /* [tiles, S, WIDTH] */
    int64_t *seeds; /* [slots] */
    int64_t *steps; /* [slots] */
    float *outputs, *observations; /* [tiles, A, WIDTH], [tiles, O, WIDTH] */
    double *rewards; /* [slots] */
    uint8_t *ended; /* [slots] */
    const double *options; /* numbers that the settings of the task give */
    void *worlds; /* [slots], of tasks with rigid bodies: bodies.h */
    uint8_t *active; /* [slots]: whether a step must advance the slot; it may advance others, too, but no worlds */
    int64_t crowd; /* the number of worlds that a call steps on a CPU: a multiple of WORLDS, at most LARGEST_CROWD */
} exact_task;

/* Number `row` of the state, the outputs and the observation of lane t. */
#define STATE(row) state[(row) * WIDTH + t]
#define OUTPUT(row) outputs[(row) * WIDTH + t]
#define SEEN(row) rows[(row) * WIDTH + t]

/* The random number of the current step of a slot. The first FIRST_OF_STEPS numbers are for the beginning of an episode. */
#define FIRST_OF_STEPS 64
INLINE double draw_in_step(const exact_task *task, int64_t slot)
{
    return draw(task->seeds[slot], FIRST_OF_STEPS + task->steps[slot]);
}

/* Random number `number` for the beginning of an episode, between low and high. */
INLINE double draw_between(const exact_task *task, int64_t slot, int64_t number, double low, double high)
{
    return low + (high - low) * draw(task->seeds[slot], number);
}

/* The index of the largest of n outputs of a lane, the first of equals. A NaN is never the largest, except in output 0. */
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

/* Write sine and cosine of the angle in row `angle` of the state into the next two rows, for one lane. */
INLINE void keep_sincos(double *state, int64_t angle, int64_t t)
{
    double x[LANES], sine[LANES], cosine[LANES];
    for (int i = 0; i < LANES; i++)
        x[i] = STATE(angle);
    sincos_lanes(x, sine, cosine);
    STATE(angle + 1) = sine[0];
    STATE(angle + 2) = cosine[0];
}

/* begin_slot begins the episode of a slot whose seed is set. step_tile advances a tile by one step. Both write the
 * observations. */
#define TASK_TILE(name)                                                                                                \
    INLINE void name##_begin_slot(const exact_task *task, int64_t slot)                                                \
    {                                                                                                                  \
        double *state = task->states + TILE(slot / WIDTH, task->state_rows);                                           \
        task->steps[slot] = 0;                                                                                         \
        name##_begin(task, slot, state, slot % LANES);                                                                 \
        name##_observe(task, state, task->observations + TILE(slot / WIDTH, task->num_observations));                  \
    }                                                                                                                  \
    INLINE void name##_step_tile(const exact_task *task, int64_t tile)                                                 \
    {                                                                                                                  \
        const int64_t first = tile * WIDTH + LANE;                                                                     \
        double *state = task->states + TILE(tile, task->state_rows);                                                   \
        name##_step(task, first, state, task->outputs + TILE(tile, task->num_actions), task->rewards + first,          \
                    task->ended + first);                                                                              \
        name##_observe(task, state, task->observations + TILE(tile, task->num_observations));                          \
        for (int t = 0; t < LANES; t++)                                                                                \
            task->steps[first + t] = task->steps[first + t] + 1;                                                       \
        for (int t = 0; t < LANES; t++)                                                                                \
            task->ended[first + t] = task->ended[first + t] | (task->steps[first + t] >= task->limit);                 \
    }

#ifdef __CUDACC__
#define TASK_FUNCTIONS(name)
#else
typedef void task_begin(const exact_task *task, int64_t slot);
typedef void task_step(const exact_task *task, int64_t tile);

/* The functions of a task on a CPU. */
#define TASK_FUNCTIONS(name)                                                                                           \
    void evolve_##name##_begin(const exact_task *task, int64_t slot) { name##_begin_slot(task, slot); }                \
    DISPATCH void evolve_##name##_step(const exact_task *task, int64_t tile) { name##_step_tile(task, tile); }
#endif
#define TASK(name) TASK_TILE(name) TASK_FUNCTIONS(name)
