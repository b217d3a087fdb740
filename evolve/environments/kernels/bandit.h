/* Bandit, defined in environments/exact/lifetime_learning.py.
 * Rows: the probability of each arm, the arm pulled (-1 before the pull), and the 0 or 1 that it gave. Options: pulls. */
#pragma once
#include "tasks.h"

#define PULLED STATE(task->num_actions)
#define GIVEN STATE(task->num_actions + 1)

INLINE void bandit_begin(const exact_task *task, int64_t slot, double *state, int64_t t)
{
    for (int64_t arm = 0; arm < task->num_actions; arm++)
        STATE(arm) = draw(task->seeds[slot], arm);
    PULLED = -1.0;
    GIVEN = 0.0;
}

INLINE void bandit_observe(const exact_task *task, const double *RESTRICT state, float *RESTRICT rows)
{
    for (int t = 0; t < LANES; t++) {
        SEEN(0) = PULLED < 0.0 ? 1.0f : 0.0f;
        SEEN(1) = PULLED < 0.0 ? 0.0f : 1.0f;
        SEEN(2 + task->num_actions) = PULLED < 0.0 ? 0.0f : (float)(2.0 * GIVEN - 1.0);
    }
    for (int64_t arm = 0; arm < task->num_actions; arm++)
        for (int t = 0; t < LANES; t++)
            SEEN(2 + arm) = PULLED == (double)arm ? 1.0f : 0.0f;
}

INLINE void bandit_step(const exact_task *task, int64_t first, double *RESTRICT state, const float *RESTRICT outputs,
                  double *RESTRICT rewards, uint8_t *RESTRICT ended)
{
    for (int t = 0; t < LANES; t++) {
        rewards[t] = 0.0;
        ended[t] = task->steps[first + t] + 1 >= 2 * (int64_t)task->options[0];
        if (PULLED < 0.0) {
            const int64_t arm = largest(outputs, task->num_actions, t);
            PULLED = (double)arm;
            GIVEN = draw_in_step(task, first + t) < STATE(arm) ? 1.0 : 0.0;
            rewards[t] = GIVEN;
        } else
            PULLED = -1.0;
    }
}

TASK(bandit)
