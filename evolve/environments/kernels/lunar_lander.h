/* LunarLander, discrete and continuous, with and without wind; environments/exact/lunar_lander.py is the definition.
 * Bodies: the lander, then both legs. */
#pragma once
#undef HINGES
#define HINGES(X) X(1, 0, 2) X(0, 0, 1) /* joints in the order of the solver, and their bodies */
#include "worlds.h"

#define LANDER_WIDTH (600 / 30.0)
#define LANDER_HEIGHT (400 / 30.0)
#define LANDER_CHUNKS 11
#define LANDER_CONTINUOUS 1 /* bits of the model's flag */
#define LANDER_WIND 2

/* tanh in double, |x| < 20, within 3 ulp. */
INLINE double tanh_in_double(double x)
{
    const double twice = 2.0 * fabs(x), n = (twice * (1.0 / LN2) + ROUND) - ROUND;
    const double r = (twice - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
    double p = 1.0;
    for (int i = 14; i > 1; i--)
        p = 1.0 + p * r / i;
    const uint64_t bits = (uint64_t)(1023 + (int64_t)n) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    const double e = power * (p * r) + (power - 1.0), y = e / (e + 2.0);
    return x < 0.0 ? -y : y;
}

/* The engines in a step: power of the main engine, power and direction of the side engines. */
typedef struct { double main, side, direction; } engines;

INLINE engines lander_engines(const model *m, const float *outputs)
{
    engines e = {0.0, 0.0, 0.0};
    if (m->flag & LANDER_CONTINUOUS) {
        const double up = (double)(float)bounded((float)(m->option[0] * (double)outputs[0]));
        const double side = (double)(float)bounded((float)(m->option[0] * (double)outputs[WIDTH]));
        if (up > 0.0)
            e.main = (up + 1.0) * 0.5;
        if (fabs(side) > 0.5) {
            e.direction = side > 0.0 ? 1.0 : -1.0;
            e.side = fabs(side);
        }
    } else {
        const int64_t action = largest(outputs, 4, 0);
        e.main = action == 2 ? 1.0 : 0.0;
        e.side = action & 1 ? 1.0 : 0.0;
        e.direction = (double)(action - 2);
    }
    return e;
}

/* An impulse on the lander at a point. */
INLINE void lander_push(world *w, const model *m, double px, double py, double x, double y)
{
    body *b = &w->bodies[0];
    const hull *h = &m->hulls[0];
    const vec impulse = vector((float)px, (float)py), point = vector((float)x, (float)y);
    b->v = plus(b->v, times(h->inverse_mass, impulse));
    b->w = b->w + h->inverse_inertia * cross(minus(point, b->c), impulse);
}

INLINE double lander_gust(int32_t place)
{
    double slow, fast, unused;
    sincos_of(0.02 * place, &slow, &unused);
    sincos_of(PI * 0.01 * place, &fast, &unused);
    return tanh_in_double(slow + fast);
}

/* Let wind and engines act before a step. */
INLINE void lander_forces(world *w, const model *m, engines e)
{
    body *b = &w->bodies[0];
    double sine, cosine;
    if (m->flag & LANDER_WIND && !(w->bodies[1].grounded || w->bodies[2].grounded)) {
        b->force.x = b->force.x + (float)(lander_gust(w->wind++) * w->parameter[1]);
        b->force.y = b->force.y + 0.0f;
        b->torque = b->torque + (float)(lander_gust(w->turbulence++) * w->parameter[2]);
    }
    sincos_of((double)b->a, &sine, &cosine);
    const double one = pcg64_uniform(&w->generator, -1.0, 1.0) / 30.0, two = pcg64_uniform(&w->generator, -1.0, 1.0) / 30.0;
    const double x = b->p.x, y = b->p.y;
    if (e.main > 0.0) {
        const double ox = sine * (4 / 30.0 + 2 * one) + -cosine * two, oy = -cosine * (4 / 30.0 + 2 * one) - sine * two;
        lander_push(w, m, -ox * 13.0 * e.main, -oy * 13.0 * e.main, x + ox, y + oy);
    }
    if (e.side > 0.0) {
        const double away = 3 * two + e.direction * 12 / 30.0, ox = sine * one + -cosine * away, oy = -cosine * one - sine * away;
        lander_push(w, m, -ox * 0.6 * e.side, -oy * 0.6 * e.side, x + ox - sine * 17 / 30.0, y + oy + cosine * 14 / 30.0);
    }
}

/* Draw the moon and the first push. Its bottom is an edge of its own, with its own friction. */
ONE_WORLD void lunar_lander_begin(const exact_task *task, int64_t slot)
{
    world *w = WORLD(task, slot);
    const model *m = MODEL(task);
    pcg64 *r = &w->generator;
    const engines off = {0.0, 0.0, 0.0};
    double height[LANDER_CHUNKS + 1];
    pcg64_seed(r, task->seeds[slot]);
    for (int i = 0; i <= LANDER_CHUNKS; i++)
        height[i] = pcg64_uniform(r, 0.0, LANDER_HEIGHT / 2);
    for (int i = 3; i < 8; i++)
        height[i] = LANDER_HEIGHT / 4;
    w->num_blocks = 0;
    w->height[0] = w->height[1] = 0.0f;
    for (int i = 0; i < LANDER_CHUNKS; i++)
        w->height[2 + i] = (float)(0.33 * (height[i > 0 ? i - 1 : LANDER_CHUNKS] + height[i] + height[i + 1]));
    reset_bodies(w, m);
    w->gravity = (float)w->parameter[0];
    const float x = (float)pcg64_uniform(r, -1000.0, 1000.0), y = (float)pcg64_uniform(r, -1000.0, 1000.0);
    w->bodies[0].force = vector(x, y);
    w->wind = w->turbulence = 0;
    if (m->flag & LANDER_WIND) {
        w->wind = pcg64_integer(r, -9999, 9999);
        w->turbulence = pcg64_integer(r, -9999, 9999);
    }
    lander_forces(w, m, off);
}

/* The observations, before they are rounded. */
INLINE void lander_state(const world *w, double *s)
{
    const body *b = w->bodies;
    s[0] = ((double)b->p.x - LANDER_WIDTH / 2) / (LANDER_WIDTH / 2);
    s[1] = ((double)b->p.y - (LANDER_HEIGHT / 4 + 18 / 30.0)) / (LANDER_HEIGHT / 2);
    s[2] = (double)b->v.x * (LANDER_WIDTH / 2) / 50;
    s[3] = (double)b->v.y * (LANDER_HEIGHT / 2) / 50;
    s[4] = b->a;
    s[5] = 20.0 * (double)b->w / 50;
    s[6] = b[1].grounded ? 1.0 : 0.0;
    s[7] = b[2].grounded ? 1.0 : 0.0;
}

INLINE double lander_shaping(const double *s)
{
    return -100 * sqrt(s[0] * s[0] + s[1] * s[1]) - 100 * sqrt(s[2] * s[2] + s[3] * s[3]) - 100 * fabs(s[4]) + 10 * s[6] + 10 * s[7];
}

ONE_WORLD void lunar_lander_begun(const exact_task *task, int64_t slot)
{
    double s[8];
    lander_state(WORLD(task, slot), s);
    WORLD(task, slot)->shaping = lander_shaping(s);
}

ONE_WORLD void lunar_lander_act(const exact_task *task, int64_t slot, const float *outputs)
{
    lander_forces(WORLD(task, slot), MODEL(task), lander_engines(MODEL(task), outputs));
}

ONE_WORLD void lunar_lander_reward(const exact_task *task, int64_t slot, const float *outputs)
{
    world *w = WORLD(task, slot);
    const engines e = lander_engines(MODEL(task), outputs);
    double s[8];
    lander_state(w, s);
    const double shaping = lander_shaping(s), reward = shaping - w->shaping - e.main * 0.30 - e.side * 0.03;
    const int lost = w->crashed || fabs(s[0]) >= 1.0, landed = !w->bodies[0].awake;
    w->shaping = shaping;
    task->rewards[slot] = landed ? 100.0 : lost ? -100.0 : reward;
    task->ended[slot] = lost | landed;
}

ONE_WORLD void lunar_lander_look(const world *w, float *seen)
{
    double s[8];
    lander_state(w, s);
    for (int i = 0; i < 8; i++)
        seen[i * WIDTH] = (float)s[i];
}

INLINE void lunar_lander_observe(const exact_task *task, int64_t first, const uint8_t *active)
{
    for (int t = 0; t < WORLDS; t++)
        if (active[t])
            lunar_lander_look(WORLD(task, first + t), SLOT_ROWS(task->observations, task->num_observations, first + t));
}

WORLD_TASK(lunar_lander)
