/* MountainCar, with three actions and with one force; environments/exact/classic_control.py is their definition. Rows: position,
 * speed; parameters: the push, gravity, the least speed at the goal. */
#pragma once
#include "tasks.h"

INLINE void mountain_car_begin(const exact_task *task, int64_t slot, double *state, int64_t t)
{
    STATE(0) = draw_between(task, slot, 0, -0.6, -0.4);
    STATE(1) = 0.0;
}

INLINE void mountain_car_observe(const exact_task *task, const double *RESTRICT state, float *RESTRICT rows)
{
    for (int64_t row = 0; row < 2; row++)
        for (int t = 0; t < LANES; t++)
            SEEN(row) = (float)STATE(row);
}

/* Move all lanes by their forces, as accelerations. */
INLINE void mountain_car_move(double *state, const double *force)
{
    double angle[LANES], sine[LANES], cosine[LANES];
    for (int t = 0; t < LANES; t++)
        angle[t] = 3.0 * STATE(0);
    sincos_lanes(angle, sine, cosine);
    for (int t = 0; t < LANES; t++) {
        const double speed = clipped(STATE(1) + (force[t] - STATE(3) * cosine[t]), -0.07, 0.07);
        STATE(0) = clipped(STATE(0) + speed, -1.2, 0.6);
        STATE(1) = ((STATE(0) == -1.2) & (speed < 0.0)) ? 0.0 : speed;
    }
}

INLINE void mountain_car_step(const exact_task *task, int64_t first, double *RESTRICT state,
                              const float *RESTRICT outputs, double *RESTRICT rewards, uint8_t *RESTRICT ended)
{
    double force[LANES];
    for (int t = 0; t < LANES; t++)
        force[t] = STATE(2) * direction(outputs, t);
    mountain_car_move(state, force);
    for (int t = 0; t < LANES; t++) {
        rewards[t] = -1.0;
        ended[t] = (STATE(0) >= 0.5) & (STATE(1) >= STATE(4));
    }
}

TASK(mountain_car)
