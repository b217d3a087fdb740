/* Acrobot; environments/exact/classic_control.py is its definition. Rows: angle 1, its sine and cosine, angle 2, its sine and cosine,
 * both speeds. */
#pragma once
#include "tasks.h"

#undef TASK_REGISTERS
#define TASK_REGISTERS 112

INLINE void acrobot_begin(const exact_task *task, int64_t slot, double *state, int64_t t)
{
    STATE(0) = draw_between(task, slot, 0, -0.1, 0.1);
    STATE(3) = draw_between(task, slot, 1, -0.1, 0.1);
    STATE(6) = draw_between(task, slot, 2, -0.1, 0.1);
    STATE(7) = draw_between(task, slot, 3, -0.1, 0.1);
    keep_sincos(state, 0, t);
    keep_sincos(state, 3, t);
}

INLINE void acrobot_observe(const exact_task *task, const double *RESTRICT state, float *RESTRICT rows)
{
    for (int t = 0; t < LANES; t++) {
        SEEN(0) = (float)STATE(2);
        SEEN(1) = (float)STATE(1);
        SEEN(2) = (float)STATE(5);
        SEEN(3) = (float)STATE(4);
        SEEN(4) = (float)STATE(6);
        SEEN(5) = (float)STATE(7);
    }
}

/* Number `row` of lane t in a state: of a tile, with rows of WIDTH numbers, or of the caller, with rows of LANES. */
#define ROW(rows, row, width) rows[(row) * (width) + t]

/* The derivatives of both speeds in a state. */
INLINE void acrobot_accelerations(const double *state, int64_t width, const double *torque, double *one, double *two)
{
    for (int t = 0; t < LANES; t++) {
        const double sine1 = ROW(state, 1, width), cosine1 = ROW(state, 2, width);
        const double sine = ROW(state, 4, width), cosine = ROW(state, 5, width);
        const double w1 = ROW(state, 6, width), w2 = ROW(state, 7, width);
        const double d1 = 2.25 + (1.25 + cosine), d2 = 1.25 + 0.5 * cosine;
        const double phi2 = 4.9 * (sine1 * cosine + cosine1 * sine);
        const double phi1 = ((14.7 * sine1 - 0.5 * (w2 * w2) * sine) - w2 * w1 * sine) + phi2;
        const double share = d2 / d1;
        two[t] = (((torque[t] + share * phi1) - 0.5 * (w1 * w1) * sine) - phi2) / (1.25 - d2 * share);
        one[t] = -(d2 * two[t] + phi1) / d1;
    }
}

/* A state that is `step` seconds after another, by its speeds w and accelerations a. */
INLINE void acrobot_ahead(const double *state, const double *w1, const double *w2, const double *a1, const double *a2,
                          double step, double *ahead)
{
    for (int t = 0; t < LANES; t++) {
        ROW(ahead, 0, LANES) = STATE(0) + step * w1[t];
        ROW(ahead, 3, LANES) = STATE(3) + step * w2[t];
        ROW(ahead, 6, LANES) = STATE(6) + step * a1[t];
        ROW(ahead, 7, LANES) = STATE(7) + step * a2[t];
    }
    sincos_lanes(ahead, ahead + LANES, ahead + 2 * LANES);
    sincos_lanes(ahead + 3 * LANES, ahead + 4 * LANES, ahead + 5 * LANES);
}

INLINE double acrobot_wrapped(double angle)
{
    angle = angle > PI ? angle - TWO_PI : angle < -PI ? angle + TWO_PI : angle;
    return angle > PI ? angle - TWO_PI : angle < -PI ? angle + TWO_PI : angle;
}

/* One step: the method of Runge and Kutta. Its four evaluations are one loop, whose body a device has once. */
INLINE void acrobot_step(const exact_task *task, int64_t first, double *RESTRICT state, const float *RESTRICT outputs,
                  double *RESTRICT rewards, uint8_t *RESTRICT ended)
{
    double torque[LANES], a1[LANES], a2[LANES], ahead[8 * LANES], total[4][LANES];
    for (int t = 0; t < LANES; t++)
        torque[t] = direction(outputs, t);
    for (int row = 0; row < 8; row++)
        for (int t = 0; t < LANES; t++)
            ROW(ahead, row, LANES) = STATE(row);
    ROLLED for (int turn = 0; turn < 4; turn++) {
        const double weight = turn == 1 || turn == 2 ? 2.0 : 1.0;
        acrobot_accelerations(ahead, LANES, torque, a1, a2);
        for (int t = 0; t < LANES; t++) {
            total[0][t] = turn ? total[0][t] + weight * ROW(ahead, 6, LANES) : ROW(ahead, 6, LANES);
            total[1][t] = turn ? total[1][t] + weight * ROW(ahead, 7, LANES) : ROW(ahead, 7, LANES);
            total[2][t] = turn ? total[2][t] + weight * a1[t] : a1[t];
            total[3][t] = turn ? total[3][t] + weight * a2[t] : a2[t];
        }
        if (turn < 3)
            acrobot_ahead(state, ahead + 6 * LANES, ahead + 7 * LANES, a1, a2, turn < 2 ? 0.1 : 0.2, ahead);
    }
    for (int t = 0; t < LANES; t++) {
        STATE(0) = acrobot_wrapped(STATE(0) + (0.2 / 6.0) * total[0][t]);
        STATE(3) = acrobot_wrapped(STATE(3) + (0.2 / 6.0) * total[1][t]);
        STATE(6) = clipped(STATE(6) + (0.2 / 6.0) * total[2][t], -2.0 * TWO_PI, 2.0 * TWO_PI);
        STATE(7) = clipped(STATE(7) + (0.2 / 6.0) * total[3][t], -4.5 * TWO_PI, 4.5 * TWO_PI);
    }
    sincos_lanes(state, state + WIDTH, state + 2 * WIDTH);
    sincos_lanes(state + 3 * WIDTH, state + 4 * WIDTH, state + 5 * WIDTH);
    for (int t = 0; t < LANES; t++) {
        ended[t] = -STATE(2) - (STATE(2) * STATE(5) - STATE(1) * STATE(4)) > 1.0;
        rewards[t] = ended[t] ? 0.0 : -1.0;
    }
}

TASK(acrobot)
