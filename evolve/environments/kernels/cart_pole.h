/* CartPole; environments/exact/classic_control.py is its definition. Rows: position, speed, pole angle, pole angular speed;
 * parameters: gravity, mass x length of the pole, the mass of both, mass and length of the pole, the force of a push. */
#pragma once
#include "tasks.h"

INLINE void cart_pole_begin(const exact_task *task, int64_t slot, double *state, int64_t t)
{
    for (int64_t row = 0; row < 4; row++)
        STATE(row) = draw_between(task, slot, row, -0.05, 0.05);
}

INLINE void cart_pole_observe(const exact_task *task, const double *RESTRICT state, float *RESTRICT rows)
{
    for (int64_t row = 0; row < 4; row++)
        for (int t = 0; t < LANES; t++)
            SEEN(row) = (float)STATE(row);
}

INLINE void cart_pole_step(const exact_task *task, int64_t first, double *RESTRICT state, const float *RESTRICT outputs,
                  double *RESTRICT rewards, uint8_t *RESTRICT ended)
{
    double sine[LANES], cosine[LANES], force[LANES];
    for (int t = 0; t < LANES; t++)
        force[t] = OUTPUT(1) > OUTPUT(0) ? STATE(9) : -STATE(9);
    sincos_lanes(state + 2 * WIDTH, sine, cosine);
    for (int t = 0; t < LANES; t++) {
        const double gravity = STATE(4), moment = STATE(5), mass = STATE(6), pole = STATE(7), length = STATE(8);
        const double push = (force[t] + moment * (STATE(3) * STATE(3)) * sine[t]) / mass;
        const double turn = (gravity * sine[t] - cosine[t] * push) / (length * (4.0 / 3.0 - pole * (cosine[t] * cosine[t]) / mass));
        const double pull = push - moment * turn * cosine[t] / mass;
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
