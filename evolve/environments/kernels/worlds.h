/* A step of the worlds of a tile: the work on each world before and after the solver, which takes all worlds at once.
 * physics/world.py is the definition. */
#pragma once
#include "impact.h"
#include "registers.h"
#include "tasks.h"

#undef BOUNDS
#define BOUNDS(network) __launch_bounds__(12 * WIDTH, 1)
#undef TILE_OF_THREAD
#define TILE_OF_THREAD ((int64_t)blockIdx.x * blockDim.z + threadIdx.z)
#undef FIRST_STEP
#define FIRST_STEP 1

#define WORLD(task, slot) ((world *)(task)->worlds + (slot))
#define MODEL(task) ((const model *)(task)->options)

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

/* How much work the solver has with a world, roughly: the number of its contacts, and which joints are at a limit. */
INLINE int32_t work_of(const world *w, const model *m)
{
    int32_t counts[MAX_BODIES] = {0}, two = 0, key = 0;
    for (int32_t i = 0; i < w->num_contacts; i++) {
        const contact *c = &w->contacts[i];
        if (c->touching && c->enabled) {
            counts[c->body]++;
            two |= c->count == 2;
        }
    }
    key = two;
    for (int32_t b = m->num_bodies - 1; b >= 0; b--)
        key = 4 * key + (counts[b] < 3 ? counts[b] : 3);
    for (int32_t j = 0; j < m->num_joints; j++) {
        const hinge *k = &m->hinges[j];
        const float angle = w->bodies[k->b].a - w->bodies[k->a].a - k->reference;
        key = 2 * key + (angle <= k->lower || angle >= k->upper);
    }
    return key;
}

/* Begin a step of one world: update its contacts, and apply forces. */
ONE_WORLD void open_world(world *w, const model *m)
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
}

/* Gather the numbers of a world into lane t of the solver. */
ONE_WORLD void gather(const world *w, const model *m, island *s, int t)
{
    gather_world(s, w, m, t);
    gather_contacts(s, w, m, t);
    s->open[t] = -1;
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

/* End a step of one world: sleep, new boxes and contacts, and impacts within the step. solved: whether the solver has
 * corrected all positions; otherwise no body falls asleep. */
ONE_WORLD void close_world(world *w, const model *m, int solved)
{
    for (int32_t i = 0; i < m->num_bodies; i++)
        set_frame(&w->bodies[i], &m->hulls[i]);
    let_sleep(w, m, solved);
    for (int32_t i = 0; i < m->num_bodies; i++)
        follow_body(&w->bodies[i], &m->hulls[i]);
    seek_contacts(w, m);
    solve_impacts(w, m);
    for (int32_t i = 0; i < m->num_bodies; i++) {
        w->bodies[i].force = vector(0.0f, 0.0f);
        w->bodies[i].torque = 0.0f;
    }
}

INLINE void clear_island(island *s)
{
    memset(s->bodies, 0, sizeof s->bodies);
    memset(s->joints, 0, sizeof s->joints);
    memset(s->num_rows, 0, sizeof s->num_rows);
    memset(s->open, 0, sizeof s->open);
}

#ifdef __CUDACC__
/* Step the world of a thread, if it is active. The threads of a block wait for each other between the parts of a step. Then
 * all of them use the instructions that one warp has fetched. */
ONE_WORLD void step_worlds(const exact_task *task, int64_t slot, int count, const uint8_t *active)
{
    island s;
    const model *m = MODEL(task);
    world *w = WORLD(task, slot);
    const int on = *active;
    int32_t num_contacts = 0;
    if (on)
        open_world(w, m);
    BARRIER();
    if (on) {
        clear_island(&s);
        gather(w, m, &s, 0);
        num_contacts = line_up_contacts(&s, m);
        solve_velocities(&s, m, num_contacts);
    }
    BARRIER();
    if (on) {
        for (int32_t b = 0; b < m->num_bodies; b++)
            move_bodies(&s.bodies[b], 1);
        solve_positions(&s, m, num_contacts);
        scatter_world(&s, w, m, 0);
    }
    BARRIER();
    if (on)
        close_world(w, m, !s.open[0]);
}
#else
/* A world of a step: the number of its slot, its `work_of`, and whether its positions are solved. */
typedef struct { int32_t slot, work, solved; } turn;

/* Begin the steps of the `active` worlds among `count` slots, and return the number of these worlds. Sort them by their
 * work, so that similar worlds are solved together: a lane without a contact waits for the lanes that have one. */
INLINE int open_worlds(const exact_task *task, int64_t first, int count, const uint8_t *active, turn *turns)
{
    int n = 0;
    for (int t = 0; t < count; t++)
        if (active[t]) {
            world *w = WORLD(task, first + t);
            open_world(w, MODEL(task));
            const turn its = {t, work_of(w, MODEL(task)), 0};
            int i = n++;
            for (; i && turns[i - 1].work > its.work; i--)
                turns[i] = turns[i - 1];
            turns[i] = its;
        }
    return n;
}

/* Worlds whose positions are still open after EARLY_ITERATIONS. They are few, and may need many more iterations, so
 * they are collected from several calls of the solver, and solved LANES at a time. */
typedef struct {
    island s; /* its first LANES lanes */
    turn *turns[LANES];
    int n;
} latecomers;

INLINE void solve_latecomers(const exact_task *task, int64_t first, latecomers *late)
{
    evolve_solve_late(&late->s, MODEL(task));
    for (int t = 0; t < late->n; t++) {
        scatter_positions(&late->s, WORLD(task, first + late->turns[t]->slot), MODEL(task), t);
        late->turns[t]->solved = !late->s.open[t];
    }
    late->n = 0;
}

/* Add lane t of a solver. */
INLINE void add_latecomer(const exact_task *task, int64_t first, latecomers *late, const island *s, int t, turn *its)
{
    if (!late->n)
        clear_island(&late->s);
    copy_open_lane(s, t, &late->s, late->n, MODEL(task));
    late->turns[late->n++] = its;
    if (late->n == LANES)
        solve_latecomers(task, first, late);
}

/* Step the `active` worlds of `count` slots from `first` on. */
INLINE void step_worlds(const exact_task *task, int64_t first, int count, const uint8_t *active)
{
    island s;
    const model *m = MODEL(task);
    turn turns[LARGEST_CROWD];
    const int n = open_worlds(task, first, count, active, turns);
    latecomers late;
    late.n = 0;
    for (int from = 0; from < n; from += WORLDS) {
        const int some = n - from < WORLDS ? n - from : WORLDS;
        clear_island(&s);
        for (int t = 0; t < some; t++)
            gather(WORLD(task, first + turns[from + t].slot), m, &s, t);
        evolve_solve_island(&s, m, some);
        for (int t = 0; t < some; t++) {
            turn *its = &turns[from + t];
            scatter_world(&s, WORLD(task, first + its->slot), m, t);
            its->solved = !s.open[t];
            if (s.open[t])
                add_latecomer(task, first, &late, &s, t, its);
        }
    }
    if (late.n)
        solve_latecomers(task, first, &late);
    for (int i = 0; i < n; i++)
        close_world(WORLD(task, first + turns[i].slot), m, turns[i].solved);
}
#endif

/* Set the number of a slot's next step; copy its parameters, which the caller has set as the rows of its state, into its
 * world. */
INLINE void place_world(const exact_task *task, int64_t slot, int64_t step)
{
    const double *rows = SLOT_ROWS(task->states, task->state_rows, slot);
    task->steps[slot] = step;
    for (int64_t i = 0; i < task->state_rows; i++)
        WORLD(task, slot)->parameter[i] = rows[i * WIDTH];
}

/* begin_slot begins the episode of a slot whose seed and parameters are set. As in Gymnasium, an episode begins with a
 * step without actions, which does not count. On a CPU begin_slot makes this step. On a device the next call of
 * step_tile makes it, as step number -1, because a block steps all its worlds together. step_tile advances the active
 * slots of a crowd by one step. The function that makes a step also writes the observations. */
#define STEP_WORLD_TILE(name)                                                                                          \
    INLINE void name##_step_tile(const exact_task *task, int64_t call)                                                 \
    {                                                                                                                  \
        const int64_t first = FIRST_WORLD(task, call), count = CROWD_OF(task);                                         \
        const uint8_t *active = task->active + first;                                                                  \
        for (int t = 0; t < count; t++)                                                                                \
            if (active[t] && task->steps[first + t] >= 0)                                                              \
                name##_act(task, first + t, SLOT_ROWS(task->outputs, task->num_actions, first + t));                   \
        step_worlds(task, first, count, active);                                                                       \
        for (int t = 0; t < count; t++)                                                                                \
            if (active[t] && task->steps[first + t] >= 0)                                                              \
                name##_reward(task, first + t, SLOT_ROWS(task->outputs, task->num_actions, first + t));                \
            else if (active[t])                                                                                        \
                name##_begun(task, first + t);                                                                         \
        for (int t = 0; t < count; t += WORLDS)                                                                        \
            if (any_of(active + t, WORLDS))                                                                            \
                name##_observe(task, first + t, active + t);                                                           \
        for (int t = 0; t < count; t++) {                                                                              \
            task->steps[first + t] = task->steps[first + t] + 1;                                                       \
            task->ended[first + t] = task->ended[first + t] | (task->steps[first + t] >= task->limit);                 \
        }                                                                                                              \
    }

#ifdef __CUDACC__
#define WORLD_TASK(name)                                                                                               \
    INLINE void name##_begin_slot(const exact_task *task, int64_t slot)                                                \
    {                                                                                                                  \
        place_world(task, slot, -1);                                                                                   \
        name##_begin(task, slot);                                                                                      \
    }                                                                                                                  \
    STEP_WORLD_TILE(name)
#else
#define BEGIN_WORLD(name)                                                                                              \
    INLINE void name##_begin_slot(const exact_task *task, int64_t slot)                                                \
    {                                                                                                                  \
        const int64_t first = slot - slot % WORLDS;                                                                    \
        uint8_t active[WORLDS];                                                                                        \
        for (int t = 0; t < WORLDS; t++)                                                                               \
            active[t] = first + t == slot;                                                                             \
        place_world(task, slot, 0);                                                                                    \
        name##_begin(task, slot);                                                                                      \
        step_worlds(task, first, WORLDS, active);                                                                      \
        name##_begun(task, slot);                                                                                      \
        name##_observe(task, first, active);                                                                           \
    }
/* The number of worlds that are solved together, and the largest number that one call steps. */
int evolve_worlds(void) { return WORLDS; }
int evolve_largest_crowd(void) { return LARGEST_CROWD; }
#define WORLD_TASK(name) BEGIN_WORLD(name) STEP_WORLD_TILE(name) TASK_FUNCTIONS(name)
#endif
