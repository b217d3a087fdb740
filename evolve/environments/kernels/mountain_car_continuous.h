/* MountainCarContinuous; environments/exact/classic_control.py is its definition. Rows and parameters as in
 * mountain_car.h; options: the largest force. */
#pragma once
#include "mountain_car.h"

#define mountain_car_continuous_begin mountain_car_begin
#define mountain_car_continuous_observe mountain_car_observe

INLINE void mountain_car_continuous_step(const exact_task *task, int64_t first, double *RESTRICT state,
                                         const float *RESTRICT outputs, double *RESTRICT rewards,
                                         uint8_t *RESTRICT ended)
{
    double action[LANES], force[LANES];
    for (int t = 0; t < LANES; t++) {
        action[t] = bounded(OUTPUT(0)) * task->options[0];
        force[t] = STATE(2) * action[t];
    }
    mountain_car_move(state, force);
    for (int t = 0; t < LANES; t++) {
        const int there = (STATE(0) >= 0.45) & (STATE(1) >= STATE(4));
        rewards[t] = (there ? 100.0 : 0.0) - 0.1 * (action[t] * action[t]);
        ended[t] = there;
    }
}

TASK(mountain_car_continuous)
