/* The solver on a device, where a thread solves one world: the functions of island.h, in another arrangement.
 *
 * 180 iterations over the same bodies and joints take most of a step. They stay in registers, which have no addresses: so
 * the joints and their bodies are constants here, the HINGES of a task. The contacts of all bodies lie end to end, so that
 * the threads of a warp solve their first contacts together, their second ones, and so on, whichever bodies touch the
 * ground. All joints are solved as if they were at a limit, and all contacts as if they had two points. Among the 32
 * worlds of a warp, this is nearly always true of one, and a warp that takes both branches needs the time of both. The
 * code selects results as for the rows of a CPU, so the other joints and contacts keep their bits. */
#pragma once
#include "island.h"

#ifdef __CUDACC__
#define EACH_BODY(number) _Pragma("unroll") for (int32_t number = 0; number < MAX_BODIES; number++)
#define EACH_JOINT(number) _Pragma("unroll") for (int32_t number = 0; number < MAX_JOINTS; number++)

/* Lay the contacts of all bodies end to end; return their number. */
INLINE int32_t line_up_contacts(island *s, const model *m)
{
    int32_t n = 0;
    for (int32_t b = 0; b < m->num_bodies; b++)
        for (int32_t r = 0; r < s->num_rows[b]; r++, n++) {
            contact_rows *c = &s->contacts[0][n];
            *c = s->contacts[b][r];
            c->body = b;
            c->mass = m->hulls[b].inverse_mass;
            c->inertia = m->hulls[b].inverse_inertia;
        }
    return n;
}

/* Copy the constants of a joint and of its bodies, for functions that find them by number. */
INLINE void take_hinge(model *own, const model *m, int32_t j, int32_t a, int32_t b)
{
    own->hinges[j] = m->hinges[j];
    own->hinges[j].a = a;
    own->hinges[j].b = b;
    own->hulls[a].inverse_mass = m->hulls[a].inverse_mass;
    own->hulls[a].inverse_inertia = m->hulls[a].inverse_inertia;
    own->hulls[b].inverse_mass = m->hulls[b].inverse_mass;
    own->hulls[b].inverse_inertia = m->hulls[b].inverse_inertia;
}

/* The constants of the body that a contact touches. */
INLINE hull take_hull(const contact_rows *c)
{
    hull h;
    h.inverse_mass = c->mass;
    h.inverse_inertia = c->inertia;
    return h;
}

/* TAKE copies a field of body b into `one`, and GIVE copies it back. Registers cannot be indexed, so both go through
 * all bodies, and select b. */
#define TAKE(number)                    \
    one.number[0] = bodies[0].number[0]; \
    EACH_BODY(body)                     \
        one.number[0] = body == b ? bodies[body].number[0] : one.number[0];
#define GIVE(number) \
    EACH_BODY(body)  \
        bodies[body].number[0] = body == b ? one.number[0] : bodies[body].number[0];

#define TAKE_HINGE(j, a, b) take_hinge(&own, m, j, a, b);
#define START(j, a, b) start_joint(&joints[j], &bodies[a], &bodies[b], &own, &own.hinges[j], 1);
#define SOLVE(j, a, b) solve_joint(&joints[j], &bodies[a], &bodies[b], &own, &own.hinges[j], 1, 1);
#define PULL(j, a, b) pull_joint(limits[j], &bodies[a], &bodies[b], &own, &own.hinges[j], open, okay, 1);

/* Begin with the impulses of the step before, and improve them. */
INLINE void solve_velocities(island *s, const model *m, int32_t num_contacts)
{
    contact_rows *const contacts = s->contacts[0];
    body_rows bodies[MAX_BODIES], one;
    joint_rows joints[MAX_JOINTS];
    model own;
    HINGES(TAKE_HINGE)
    EACH_BODY(i)
        bodies[i] = s->bodies[i];
    EACH_JOINT(j)
        joints[j] = s->joints[j];
    ROLLED for (int32_t i = 0; i < num_contacts; i++) {
        const int32_t b = contacts[i].body;
        const hull h = take_hull(&contacts[i]);
        TAKE(vx) TAKE(vy) TAKE(w)
        warm_start_contact(&contacts[i], &one, &h, 1);
        GIVE(vx) GIVE(vy) GIVE(w)
    }
    HINGES(START)
    ROLLED for (int turn = 0; turn < VELOCITY_ITERATIONS; turn++) {
        HINGES(SOLVE)
        ROLLED for (int32_t i = 0; i < num_contacts; i++) {
            const int32_t b = contacts[i].body;
            const hull h = take_hull(&contacts[i]);
            TAKE(vx) TAKE(vy) TAKE(w)
            solve_contacts(&contacts[i], &one, &h, 1, 1);
            GIVE(vx) GIVE(vy) GIVE(w)
        }
    }
    EACH_BODY(i)
        s->bodies[i].vx[0] = bodies[i].vx[0], s->bodies[i].vy[0] = bodies[i].vy[0], s->bodies[i].w[0] = bodies[i].w[0];
    EACH_JOINT(j)
        s->joints[j] = joints[j];
}

/* Push bodies out of the ground and joints together until they are near enough, or all iterations are done. */
INLINE void solve_positions(island *s, const model *m, int32_t num_contacts)
{
    const contact_rows *const contacts = s->contacts[0];
    const int_row open = {-1};
    int_row limits[MAX_JOINTS], okay = {0};
    body_rows bodies[MAX_BODIES], one;
    model own;
    HINGES(TAKE_HINGE)
    EACH_BODY(i)
        bodies[i] = s->bodies[i];
    EACH_JOINT(j)
        limits[j][0] = s->joints[j].limit[0];
    ROLLED for (int tries = 0; tries < POSITION_ITERATIONS && !okay[0]; tries++) {
        float_row worst = {0.0f};
        ROLLED for (int32_t i = 0; i < num_contacts; i++) {
            const int32_t b = contacts[i].body;
            TAKE(x) TAKE(y) TAKE(a)
            ROLLED for (int point = 0; point < contacts[i].count[0]; point++)
                push_out_rows(&contacts[i], &one, &m->hulls[b], point, open, worst, 1);
            GIVE(x) GIVE(y) GIVE(a)
        }
        okay[0] = -(worst[0] >= -3.0f * SLOP);
        HINGES(PULL)
    }
    s->open[0] = ~okay[0];
    EACH_BODY(i)
        s->bodies[i].x[0] = bodies[i].x[0], s->bodies[i].y[0] = bodies[i].y[0], s->bodies[i].a[0] = bodies[i].a[0];
}
#endif
