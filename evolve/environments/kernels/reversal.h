/* Reversal, defined in environments/exact/lifetime_learning.py.
 * Rows: the better arm, the arm chosen (0 before), and the trials at which the better arm changes. Options: trials,
 * switches. */
#pragma once
#include "tasks.h"

INLINE void reversal_begin(const exact_task *task, int64_t slot, double *state, int64_t t)
{
    const int64_t switches = (int64_t)task->options[1], span = (int64_t)task->options[0] / (switches + 1);
    STATE(0) = draw(task->seeds[slot], 0) < 0.5 ? -1.0 : 1.0;
    STATE(1) = 0.0;
    for (int64_t i = 0; i < switches; i++)
        STATE(2 + i) = (double)(span * (i + 1) + (int64_t)(draw(task->seeds[slot], 1 + i) * 5.0) - 2);
}

INLINE void reversal_observe(const exact_task *task, const double *RESTRICT state, float *RESTRICT rows)
{
    for (int t = 0; t < LANES; t++) {
        const int chosen = STATE(1) != 0.0;
        SEEN(0) = chosen ? 0.0f : 1.0f;
        SEEN(1) = chosen ? 1.0f : 0.0f;
        SEEN(2) = (float)STATE(1);
        SEEN(3) = (float)(STATE(1) * STATE(0));
    }
}

INLINE void reversal_step(const exact_task *task, int64_t first, double *RESTRICT state, const float *RESTRICT outputs,
                  double *RESTRICT rewards, uint8_t *RESTRICT ended)
{
    const int64_t switches = (int64_t)task->options[1];
    for (int t = 0; t < LANES; t++) {
        const int64_t step = task->steps[first + t];
        rewards[t] = 0.0;
        ended[t] = step + 1 >= 2 * (int64_t)task->options[0];
        if (STATE(1) == 0.0) {
            STATE(1) = OUTPUT(0) > 0.0f ? 1.0 : -1.0;
            rewards[t] = (STATE(1) == STATE(0) ? 1.0 : 0.2) / task->options[0];
        } else {
            STATE(1) = 0.0;
            for (int64_t i = 0; i < switches; i++)
                STATE(0) = STATE(2 + i) == (double)((step + 1) / 2) ? -STATE(0) : STATE(0);
        }
    }
}

TASK(reversal)
