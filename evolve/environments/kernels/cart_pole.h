/* CartPole; environments/exact/classic_control.py is its definition. Rows: position, speed, pole angle, pole angular speed. */
#pragma once
#include "tasks.h"

INLINE void cart_pole_begin(const task *at, int64_t slot, double *state, int64_t t)
{
    for (int64_t row = 0; row < 4; row++)
        STATE(row) = draw_between(at, slot, row, -0.05, 0.05);
}

INLINE void cart_pole_observe(const task *at, const double *RESTRICT state, float *RESTRICT rows)
{
    for (int64_t row = 0; row < 4; row++)
        for (int t = 0; t < LANES; t++)
            SEEN(row) = (float)STATE(row);
}

INLINE void cart_pole_step(const task *at, int64_t first, double *RESTRICT state, const float *RESTRICT outputs,
                  double *RESTRICT rewards, uint8_t *RESTRICT ended)
{
    double sine[LANES], cosine[LANES], force[LANES];
    for (int t = 0; t < LANES; t++)
        force[t] = OUTPUT(1) > OUTPUT(0) ? 10.0 : -10.0;
    sincos_lanes(state + 2 * WIDTH, sine, cosine);
    for (int t = 0; t < LANES; t++) {
        const double push = (force[t] + 0.05 * (STATE(3) * STATE(3)) * sine[t]) / 1.1;
        const double turn = (9.8 * sine[t] - cosine[t] * push) / (0.5 * (4.0 / 3.0 - 0.1 * (cosine[t] * cosine[t]) / 1.1));
        const double pull = push - 0.05 * turn * cosine[t] / 1.1;
        STATE(0) = STATE(0) + 0.02 * STATE(1);
        STATE(1) = STATE(1) + 0.02 * pull;
        STATE(2) = STATE(2) + 0.02 * STATE(3);
        STATE(3) = STATE(3) + 0.02 * turn;
    }
    for (int t = 0; t < LANES; t++) {
        rewards[t] = 1.0;
        ended[t] = (fabs(STATE(0)) > 2.4) | (fabs(STATE(2)) > 0.20943951023931953);
    }
}

TASK(cart_pole)
