/* T-maze, defined in environments/exact/lifetime_learning.py.
 * Rows: the better end, the place, the turns taken so far (a binary number), the trial, the reward shown, and the trials at
 * which the better end changes. Options: trials, switches, turns, steps of a corridor. */
#pragma once
#include "tasks.h"

#define GOOD STATE(0)
#define PLACE STATE(1)
#define TAKEN STATE(2)
#define TRIAL STATE(3)
#define REWARD STATE(4)

INLINE void t_maze_begin(const exact_task *task, int64_t slot, double *state, int64_t t)
{
    const int64_t switches = (int64_t)task->options[1], span = (int64_t)task->options[0] / (switches + 1);
    const int64_t ends = (int64_t)1 << (int64_t)task->options[2];
    GOOD = (double)(int64_t)(draw(task->seeds[slot], 0) * (double)ends);
    PLACE = TAKEN = TRIAL = REWARD = 0.0;
    for (int64_t i = 0; i < switches; i++)
        STATE(5 + i) = (double)(span * (i + 1) + (int64_t)(draw(task->seeds[slot], 1 + i) * 5.0) - 2);
}

/* Whether a place is a junction, and the place of the ends. */
INLINE int t_maze_junction(const exact_task *task, int64_t place)
{
    return place > 0 && place % ((int64_t)task->options[3] + 1) == 0;
}

INLINE int64_t t_maze_ends(const exact_task *task)
{
    return (int64_t)task->options[2] * ((int64_t)task->options[3] + 1) + 1;
}

INLINE void t_maze_observe(const exact_task *task, const double *RESTRICT state, float *RESTRICT rows)
{
    for (int t = 0; t < LANES; t++) {
        const int64_t place = (int64_t)PLACE;
        SEEN(0) = place < t_maze_ends(task) && t_maze_junction(task, place) ? 1.0f : 0.0f;
        SEEN(1) = place == t_maze_ends(task) ? 1.0f : 0.0f;
        SEEN(2) = place == 0 ? 1.0f : 0.0f;
        SEEN(3) = (float)REWARD;
    }
}

/* Go home for the next trial, and move the better end if a switch is due. */
INLINE void t_maze_go_home(const exact_task *task, int64_t slot, double *state, int64_t t)
{
    const int64_t switches = (int64_t)task->options[1];
    const double others = (double)(((int64_t)1 << (int64_t)task->options[2]) - 1);
    PLACE = TAKEN = 0.0;
    TRIAL = TRIAL + 1.0;
    for (int64_t i = 0; i < switches; i++)
        if (STATE(5 + i) == TRIAL) {
            const double next = GOOD + 1.0 + (double)(int64_t)(draw(task->seeds[slot], 1 + switches + i) * others);
            GOOD = next > others ? next - (others + 1.0) : next;
        }
}

INLINE void t_maze_step(const exact_task *task, int64_t first, double *RESTRICT state, const float *RESTRICT outputs,
                  double *RESTRICT rewards, uint8_t *RESTRICT ended)
{
    for (int t = 0; t < LANES; t++) {
        const int64_t place = (int64_t)PLACE, ends = t_maze_ends(task), junction = t_maze_junction(task, place);
        const float output = OUTPUT(0);
        const int left = output < -(1.0f / 3.0f), right = output > 1.0f / 3.0f;
        double reward = 0.0;
        if (place == ends) {
            t_maze_go_home(task, first + t, state, t);
        } else if (place > 0 && junction != (left | right)) {
            reward = -0.4;
            t_maze_go_home(task, first + t, state, t);
        } else {
            TAKEN = junction ? 2.0 * TAKEN + (double)right : TAKEN;
            PLACE = (double)(place + 1);
            if (place + 1 == ends)
                reward = TAKEN == GOOD ? 1.0 : 0.2;
        }
        REWARD = reward;
        rewards[t] = reward / task->options[0];
        ended[t] = TRIAL >= task->options[0];
    }
}

TASK(t_maze)
