/* Pendulum; environments/exact/classic_control.py is its definition. Rows: angle, its sine and cosine, speed;
 * parameters: the acceleration by gravity if the rod is level, and by a torque of 1; options: the largest torque. */
#pragma once
#include "tasks.h"

INLINE void pendulum_begin(const exact_task *task, int64_t slot, double *state, int64_t t)
{
    STATE(0) = draw_between(task, slot, 0, -PI, PI);
    STATE(3) = draw_between(task, slot, 1, -1.0, 1.0);
    keep_sincos(state, 0, t);
}

INLINE void pendulum_observe(const exact_task *task, const double *RESTRICT state, float *RESTRICT rows)
{
    for (int t = 0; t < LANES; t++) {
        SEEN(0) = (float)STATE(2);
        SEEN(1) = (float)STATE(1);
        SEEN(2) = (float)STATE(3);
    }
}

INLINE void pendulum_step(const exact_task *task, int64_t first, double *RESTRICT state, const float *RESTRICT outputs,
                  double *RESTRICT rewards, uint8_t *RESTRICT ended)
{
    for (int t = 0; t < LANES; t++) {
        const double torque = bounded(OUTPUT(0)) * task->options[0];
        const double turns = STATE(0) * (1.0 / (2.0 * PI)) + ROUND, angle = STATE(0) - (turns - ROUND) * (2.0 * PI);
        rewards[t] = -(angle * angle + 0.1 * (STATE(3) * STATE(3)) + 0.001 * (torque * torque));
        STATE(3) = clipped(STATE(3) + (STATE(4) * STATE(1) + STATE(5) * torque) * 0.05, -8.0, 8.0);
        STATE(0) = STATE(0) + STATE(3) * 0.05;
        ended[t] = 0;
    }
    sincos_lanes(state, state + WIDTH, state + 2 * WIDTH);
}

TASK(pendulum)
