/* Cues, defined in environments/exact/lifetime_learning.py.
 * Rows: the right answer to each cue; the remaining presentations of each cue; the shown cue, the answer (ARM; 0 before
 * the network answers), and its success (RIGHT, 1 or -1). Options: presentations of each cue. */
#pragma once
#include "tasks.h"

#define CUES (task->num_observations - 2)
#define SHOWN STATE(2 * CUES)
#define ARM STATE(2 * CUES + 1)
#define RIGHT STATE(2 * CUES + 2)

/* Show one of the presentations left, all with the same probability; u is in (0, 1). */
INLINE void cues_show(const exact_task *task, double *state, int64_t t, double u)
{
    double left = 0.0;
    for (int64_t cue = 0; cue < CUES; cue++)
        left = left + STATE(CUES + cue);
    double place = u * left;
    int64_t shown = 0;
    for (int64_t cue = 0; cue < CUES - 1 && shown == cue; cue++)
        if (place >= STATE(CUES + cue)) {
            place = place - STATE(CUES + cue);
            shown = cue + 1;
        }
    STATE(CUES + shown) = STATE(CUES + shown) - 1.0;
    SHOWN = (double)shown;
    ARM = 0.0;
    RIGHT = 0.0;
}

INLINE void cues_begin(const exact_task *task, int64_t slot, double *state, int64_t t)
{
    for (int64_t cue = 0; cue < CUES; cue++) {
        STATE(cue) = draw(task->seeds[slot], cue) < 0.5 ? -1.0 : 1.0;
        STATE(CUES + cue) = task->options[0];
    }
    cues_show(task, state, t, draw(task->seeds[slot], FIRST_OF_STEPS - 1));
}

INLINE void cues_observe(const exact_task *task, const double *RESTRICT state, float *RESTRICT rows)
{
    for (int64_t cue = 0; cue < CUES; cue++)
        for (int t = 0; t < LANES; t++)
            SEEN(cue) = SHOWN == (double)cue ? 1.0f : 0.0f;
    for (int t = 0; t < LANES; t++) {
        SEEN(CUES) = (float)ARM;
        SEEN(CUES + 1) = (float)RIGHT;
    }
}

INLINE void cues_step(const exact_task *task, int64_t first, double *RESTRICT state, const float *RESTRICT outputs,
                  double *RESTRICT rewards, uint8_t *RESTRICT ended)
{
    for (int t = 0; t < LANES; t++) {
        const int64_t step = task->steps[first + t];
        rewards[t] = 0.0;
        ended[t] = step + 1 >= 2 * CUES * (int64_t)task->options[0];
        if (ARM == 0.0) {
            ARM = OUTPUT(0) > 0.0f ? 1.0 : -1.0;
            RIGHT = ARM == STATE((int64_t)SHOWN) ? 1.0 : -1.0;
            rewards[t] = RIGHT > 0.0 ? 1.0 / ((double)CUES * task->options[0]) : 0.0;
        } else if (!ended[t])
            cues_show(task, state, t, draw_in_step(task, first + t));
    }
}
#undef ARM
#undef RIGHT

TASK(cues)
