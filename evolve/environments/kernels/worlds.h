/* A step of the worlds of a tile: the work on each world before and after the solver, which takes all worlds at once.
 * physics/world.py is the definition. */
#pragma once
#include "impact.h"
#include "registers.h"
#include "tasks.h"

#undef BOUNDS
#define BOUNDS(network) __launch_bounds__(WIDTH, 12)

#define WORLD(at, slot) ((world *)(at)->worlds + (slot))
#define MODEL(at) ((const model *)(at)->options)

/* Place the bodies of a world for the beginning of its episode. */
INLINE void reset_bodies(world *w, const model *m)
{
    for (int32_t i = 0; i < m->num_bodies; i++) {
        const hull *h = &m->hulls[i];
        body *b = &w->bodies[i];
        memset(b, 0, sizeof *b);
        b->awake = b->moved = 1;
        b->a = b->a0 = h->a;
        b->p = h->p;
        b->friction[0] = h->friction[0];
        b->friction[1] = h->friction[1];
        b->q = rotation_of(h->a);
        b->c = b->c0 = placed(frame_of(b), h->center);
        box around = box_of(h->corner, h->count, frame_of(b));
        widen(&around);
        b->low = around.low;
        b->high = around.high;
    }
    for (int32_t j = 0; j < m->num_joints; j++) {
        memset(&w->joints[j], 0, sizeof w->joints[j]);
        w->joints[j].speed = m->hinges[j].speed;
        w->joints[j].torque = m->hinges[j].torque;
    }
    w->gravity = m->gravity;
    w->fresh = 1;
    w->crashed = w->num_contacts = 0;
}

/* Begin a step of one world: update its contacts, apply forces, and gather its numbers into lane t of the solver. */
ONE_WORLD void open_world(world *w, const model *m, island *s, int t)
{
    for (int32_t i = 0; i < m->num_bodies; i++)
        wake(&w->bodies[i]);
    if (w->fresh)
        seek_contacts(w, m);
    w->fresh = 0;
    update_contacts(w, m);
    for (int32_t i = 0; i < m->num_bodies; i++) {
        const hull *h = &m->hulls[i];
        body *b = &w->bodies[i];
        b->c0 = b->c;
        b->a0 = b->a;
        b->v.x = b->v.x + TIME_STEP * (h->inverse_mass * b->force.x);
        b->v.y = b->v.y + TIME_STEP * (w->gravity + h->inverse_mass * b->force.y);
        b->w = b->w + TIME_STEP * h->inverse_inertia * b->torque;
    }
    gather_world(s, w, m, t);
    gather_contacts(s, w, m, t);
}

/* Put bodies that have rested long enough to sleep. Joints connect all bodies of a world, so all sleep or none. */
INLINE void let_sleep(world *w, const model *m, int solved)
{
    float rested = LARGEST;
    for (int32_t i = 0; i < m->num_bodies; i++) {
        body *b = &w->bodies[i];
        const int moves = b->w * b->w > ANGULAR_SLOP * ANGULAR_SLOP || dot(b->v, b->v) > 0.01f * 0.01f;
        b->rested = moves ? 0.0f : b->rested + TIME_STEP;
        rested = lesser(b->rested, rested);
    }
    for (int32_t i = 0; rested >= SECONDS_TO_SLEEP && solved && i < m->num_bodies; i++) {
        body *b = &w->bodies[i];
        b->awake = 0;
        b->rested = b->w = 0.0f;
        b->v = vector(0.0f, 0.0f);
    }
}

/* End a step of one world: write back the solution in lane t, and solve impacts during the step. */
ONE_WORLD void close_world(world *w, const model *m, const island *s, int t)
{
    scatter_world(s, w, m, t);
    for (int32_t i = 0; i < m->num_bodies; i++)
        set_frame(&w->bodies[i], &m->hulls[i]);
    let_sleep(w, m, !s->open[t]);
    for (int32_t i = 0; i < m->num_bodies; i++)
        follow_body(&w->bodies[i], &m->hulls[i]);
    seek_contacts(w, m);
    solve_impacts(w, m);
    for (int32_t i = 0; i < m->num_bodies; i++) {
        w->bodies[i].force = vector(0.0f, 0.0f);
        w->bodies[i].torque = 0.0f;
    }
}

/* Step the `active` worlds of the slots from `first` on, packed into the first lanes of the solver. */
ONCE_ON_DEVICE void step_worlds(const task *at, int64_t first, const uint8_t *active)
{
    island s, half;
    const model *m = MODEL(at);
    int rows[WORLDS], n = 0;
    memset(s.bodies, 0, sizeof s.bodies);
    memset(s.joints, 0, sizeof s.joints);
    memset(s.num_rows, 0, sizeof s.num_rows);
    memset(s.open, 0, sizeof s.open);
    for (int t = 0; t < WORLDS; t++)
        if (active[t]) {
            open_world(WORLD(at, first + t), m, &s, n);
            s.open[n] = -1;
            rows[n++] = t;
        }
    if (n)
        evolve_solve_island(&s, &half, m, n);
    for (int row = 0; row < n; row++)
        close_world(WORLD(at, first + rows[row]), m, &s, row);
}

/* Copy the parameters of a slot, which the caller has set as the rows of its state, into its world. */
INLINE void take_parameters(const task *at, int64_t slot)
{
    const double *rows = SLOT_ROWS(at->states, at->state_rows, slot);
    for (int64_t i = 0; i < at->state_rows; i++)
        WORLD(at, slot)->parameter[i] = rows[i * WIDTH];
}

/* begin_slot begins the episode of a slot whose seed and parameters are set. Like Gymnasium, it makes a first step without actions, which
 * does not count. step_tile advances the active slots of a group of WORLDS by one step. Both write the observations. */
#define WORLD_TILE(name)                                                                                               \
    INLINE void name##_begin_slot(const task *at, int64_t slot)                                                        \
    {                                                                                                                  \
        const int64_t first = WORLDS > 1 ? slot - slot % WORLDS : slot;                                                \
        uint8_t active[WORLDS];                                                                                        \
        at->steps[slot] = 0;                                                                                           \
        for (int t = 0; t < WORLDS; t++)                                                                               \
            active[t] = first + t == slot;                                                                             \
        take_parameters(at, slot);                                                                                     \
        name##_begin(at, slot);                                                                                        \
        step_worlds(at, first, active);                                                                                \
        name##_begun(at, slot);                                                                                        \
        name##_observe(at, first, active);                                                                             \
    }                                                                                                                  \
    INLINE void name##_step_tile(const task *at, int64_t group)                                                        \
    {                                                                                                                  \
        const int64_t first = FIRST_WORLD(group);                                                                      \
        const uint8_t *active = at->active + first;                                                                    \
        for (int t = 0; t < WORLDS; t++)                                                                               \
            if (active[t])                                                                                             \
                name##_act(at, first + t, SLOT_ROWS(at->outputs, at->num_actions, first + t));                         \
        step_worlds(at, first, active);                                                                                \
        for (int t = 0; t < WORLDS; t++)                                                                               \
            if (active[t])                                                                                             \
                name##_reward(at, first + t, SLOT_ROWS(at->outputs, at->num_actions, first + t));                       \
        name##_observe(at, first, active);                                                                             \
        for (int t = 0; t < WORLDS; t++) {                                                                             \
            at->steps[first + t] = at->steps[first + t] + 1;                                                           \
            at->ended[first + t] = at->ended[first + t] | (at->steps[first + t] >= at->limit);                         \
        }                                                                                                              \
    }
#ifdef __CUDACC__
#define WORLD_TASK(name) WORLD_TILE(name)
#else
/* The number of slots that are stepped together. */
int evolve_worlds(void) { return WORLDS; }
#define WORLD_TASK(name) WORLD_TILE(name) TASK_FUNCTIONS(name)
#endif
