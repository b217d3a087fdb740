/* BipedalWalker, and its hardcore terrain; environments/exact/bipedal_walker.py is the definition. Bodies: the hull, then
 * thigh and shin of either leg. Joints: hip and knee of either leg. Parameters: gravity, the friction of the ground, the
 * strengths of both legs, their later strengths, the step from which these hold (0: never), the height of the obstacles,
 * and the reward of a fall. */
#pragma once
#undef HINGES
#define HINGES(X) X(3, 3, 4) X(2, 0, 3) X(0, 0, 1) X(1, 1, 2) /* joints in the order of the solver, and their bodies */
#include "worlds.h"

#define WALKER_STEP (14 / 30.0)         /* of the terrain, in meters */
#define WALKER_HEIGHT (400 / 30.0 / 4)  /* of the ground where the walker begins */
#define WALKER_VERTICES 200

enum { GRASS, STUMP, STAIRS, PIT };

/* A block with the corners of a rectangle, in Gymnasium's order; they are sorted as Box2D does. */
INLINE void walker_block(world *w, double x1, double x2, double y1, double y2)
{
    block *k = &w->blocks[w->num_blocks++];
    const float left = (float)(x1 < x2 ? x1 : x2), right = (float)(x1 < x2 ? x2 : x1);
    const float low = (float)(y1 < y2 ? y1 : y2), high = (float)(y1 < y2 ? y2 : y1);
    k->corner[0] = vector(right, low);
    k->corner[1] = vector(right, high);
    k->corner[2] = vector(left, high);
    k->corner[3] = vector(left, low);
    vec total = vector(0.0f, 0.0f);
    float area = 0.0f;
    for (int i = 0; i < 4; i++) {
        const vec a = k->corner[i], b = k->corner[(i + 1) % 4];
        const float triangle = 0.5f * cross(a, b);
        k->normal[i] = unit(right_of(minus(b, a)));
        area += triangle;
        total = plus(total, times(triangle * (1.0f / 3.0f), plus(a, b)));
    }
    k->centroid = times(1.0f / area, total);
}

/* The terrain of an episode, from left to right. */
INLINE void walker_terrain(world *w, int hardcore)
{
    pcg64 *r = &w->generator;
    const double up = WALKER_STEP * w->parameter[7], deep = 4 * WALKER_STEP * w->parameter[7];
    int32_t state = GRASS, counter = 20, begins = 0, height = 0, width = 0, steps = 0;
    double velocity = 0.0, y = WALKER_HEIGHT, original = 0.0;
    w->num_blocks = 0;
    for (int32_t i = 0; i < WALKER_VERTICES; i++) {
        const double x = i * WALKER_STEP;
        if (state == GRASS && !begins) {
            const double off = WALKER_HEIGHT - y;
            velocity = 0.8 * velocity + 0.01 * (off > 0.0 ? 1.0 : off < 0.0 ? -1.0 : 0.0);
            if (i > 20)
                velocity += pcg64_uniform(r, -1.0, 1.0) / 30.0;
            y += velocity;
        } else if (state == PIT && begins) {
            counter = pcg64_integer(r, 3, 5);
            walker_block(w, x, x + WALKER_STEP, y, y - deep);
            walker_block(w, x + WALKER_STEP * counter, x + WALKER_STEP + WALKER_STEP * counter, y, y - deep);
            counter += 2;
            original = y;
        } else if (state == PIT) {
            y = counter > 1 ? original - deep : original;
        } else if (state == STUMP && begins) {
            counter = pcg64_integer(r, 1, 3);
            walker_block(w, x, x + counter * WALKER_STEP, y, y + counter * up);
        } else if (state == STAIRS && begins) {
            height = pcg64_random(r) > 0.5 ? 1 : -1;
            width = pcg64_integer(r, 4, 5);
            steps = pcg64_integer(r, 3, 5);
            original = y;
            for (int32_t s = 0; s < steps; s++)
                walker_block(w, x + (s * width) * WALKER_STEP, x + ((1 + s) * width) * WALKER_STEP,
                             y + (s * height) * up, y + (-1 + s * height) * up);
            counter = steps * width;
        } else if (state == STAIRS) {
            const double n = (double)(steps * width - counter - height) / width;
            y = original + (n * height) * up;
        }
        begins = 0;
        w->height[i] = (float)y;
        counter--;
        if (counter == 0) {
            counter = pcg64_integer(r, 5, 10);
            state = state == GRASS && hardcore ? pcg64_integer(r, 1, 4) : GRASS;
            begins = 1;
        }
    }
}

/* Draw the terrain and the push with which an episode begins; the clouds are skipped. */
ONE_WORLD void bipedal_walker_begin(const exact_task *task, int64_t slot)
{
    world *w = WORLD(task, slot);
    const model *m = MODEL(task);
    pcg64_seed(&w->generator, task->seeds[slot]);
    walker_terrain(w, m->flag);
    for (int cloud = 0; cloud < WALKER_VERTICES / 20; cloud++)
        for (int number = 0; number < 11; number++)
            pcg64_word(&w->generator);
    reset_bodies(w, m);
    w->gravity = (float)w->parameter[0];
    for (int32_t i = 0; i < MAX_BODIES; i++)
        w->bodies[i].friction[0] = w->bodies[i].friction[1] = sqrtf((float)w->parameter[1] * (i ? 0.2f : 0.1f));
    w->bodies[0].force = vector((float)pcg64_uniform(&w->generator, -5.0, 5.0), 0.0f);
    for (int32_t j = 0; j < MAX_JOINTS; j++)
        w->joints[j].speed = w->joints[j].torque = 0.0f;
}

INLINE double walker_shaping(const world *w)
{
    return 130 * (double)w->bodies[0].p.x / 30.0 - 5.0 * fabs((double)w->bodies[0].a);
}

INLINE void bipedal_walker_begun(const exact_task *task, int64_t slot)
{
    world *w = WORLD(task, slot);
    w->shaping = walker_shaping(w);
}

/* The action of joint j: its output, limited to [-1, 1], or 0 for NaN, times the present strength of its leg. */
INLINE float walker_action(const exact_task *task, int64_t slot, int32_t j, const float *outputs)
{
    const double *parameter = WORLD(task, slot)->parameter;
    const double x = clipped(MODEL(task)->option[0] * (double)outputs[j * WIDTH], -1.0, 1.0);
    const int later = parameter[6] > 0.0 && (double)task->steps[slot] >= parameter[6];
    return (x == x ? (float)x : 0.0f) * (float)parameter[(later ? 4 : 2) + j / 2];
}

ONE_WORLD void bipedal_walker_act(const exact_task *task, int64_t slot, const float *outputs)
{
    world *w = WORLD(task, slot);
    for (int32_t j = 0; j < MAX_JOINTS; j++) {
        const float action = walker_action(task, slot, j, outputs);
        const float speed = j & 1 ? 6.0f : 4.0f;
        w->joints[j].speed = action > 0.0f ? speed : action < 0.0f ? -speed : 0.0f;
        w->joints[j].torque = 80.0f * fabsf(action);
    }
}

/* The reward of a step, and whether the episode is over. */
ONE_WORLD void bipedal_walker_reward(const exact_task *task, int64_t slot, const float *outputs)
{
    world *w = WORLD(task, slot);
    const double shaping = walker_shaping(w), x = w->bodies[0].p.x;
    const int fallen = w->crashed || x < 0.0;
    float reward = (float)(shaping - w->shaping);
    for (int32_t j = 0; j < MAX_JOINTS; j++)
        reward -= (float)(0.00035 * 80) * fabsf(walker_action(task, slot, j, outputs));
    w->shaping = shaping;
    task->rewards[slot] = fallen ? w->parameter[8] : (double)reward;
    task->ended[slot] = fallen || x > (200 - 10) * WALKER_STEP;
}

#define RAYS 10
#ifdef __CUDACC__
#define RAY_LANES RAYS
#else
#define RAY_LANES 16 /* whole vectors */
#endif
#define FOR_RAYS AS_VECTORS for (int r = 0; r < RAY_LANES; r++)
#define RAY_EDGES 14 /* that a ray may cross */

typedef ALIGNED float ray_row[RAY_LANES];

/* Shorten rays, from p along (x, y), to where they enter a block: `nearest` is in units of their lengths. */
INLINE void look_at_block(const block *k, vec p, const float *RESTRICT x, const float *RESTRICT y, float *RESTRICT nearest)
{
    ray_row lower, upper;
    ALIGNED int32_t hits[RAY_LANES], misses[RAY_LANES];
    FOR_RAYS {
        lower[r] = 0.0f, upper[r] = nearest[r];
        hits[r] = misses[r] = 0;
    }
    for (int i = 0; i < 4; i++) {
        const float nx = k->normal[i].x, ny = k->normal[i].y, numerator = dot(k->normal[i], minus(k->corner[i], p));
        FOR_RAYS {
            const float denominator = nx * x[r] + ny * y[r], f = numerator / denominator;
            const int32_t enters = (denominator < 0.0f) & (numerator < lower[r] * denominator);
            const int32_t leaves = (denominator > 0.0f) & (numerator < upper[r] * denominator);
            lower[r] = enters ? f : lower[r];
            upper[r] = leaves ? f : upper[r];
            hits[r] |= enters;
            misses[r] |= ((denominator == 0.0f) & (numerator < 0.0f)) | (upper[r] < lower[r]);
        }
    }
    FOR_RAYS
        nearest[r] = hits[r] & (misses[r] ^ 1) ? lower[r] : nearest[r];
}

/* The rays of one walker to the blocks before it. */
INLINE void look_at_blocks(const world *w, const double *rays, float *seen)
{
    const vec p = w->bodies[0].p;
    ray_row x, y, nearest;
    for (int r = 0; r < RAY_LANES; r++) {
        const int there = r < RAYS;
        x[r] = there ? (float)((double)p.x + rays[2 * r]) - p.x : 0.0f;
        y[r] = there ? (float)((double)p.y - rays[2 * r + 1]) - p.y : 0.0f;
        nearest[r] = there ? seen[r * WIDTH] : 0.0f;
    }
    for (int32_t i = 0; i < w->num_blocks; i++) {
        const block *k = &w->blocks[i];
        if (k->corner[2].x <= p.x + 6.0f && k->corner[0].x >= p.x - 1.0f)
            look_at_block(k, p, x, y, nearest);
    }
    for (int r = 0; r < RAYS; r++)
        seen[r * WIDTH] = nearest[r];
}

/* The observations of a walker's bodies and joints. */
ONE_WORLD void feel_walker(const world *w, const model *m, float *seen)
{
    const body *b = w->bodies;
    seen[0 * WIDTH] = b[0].a;
    seen[1 * WIDTH] = (float)(2.0 * (double)b[0].w / 50);
    seen[2 * WIDTH] = (float)(0.3 * (double)b[0].v.x * (600 / 30.0) / 50);
    seen[3 * WIDTH] = (float)(0.3 * (double)b[0].v.y * (400 / 30.0) / 50);
    for (int leg = 0; leg < 2; leg++) {
        const hinge *hip = &m->hinges[2 * leg], *knee = hip + 1;
        const body *thigh = &b[1 + 2 * leg], *shin = thigh + 1;
        float *its = seen + (4 + 5 * leg) * WIDTH;
        its[0 * WIDTH] = thigh->a - b[0].a - hip->reference;
        its[1 * WIDTH] = (float)((double)(thigh->w - b[0].w) / 4);
        its[2 * WIDTH] = (float)((double)(shin->a - thigh->a - knee->reference) + 1.0);
        its[3 * WIDTH] = (float)((double)(shin->w - thigh->w) / 6);
        its[4 * WIDTH] = shin->grounded ? 1.0f : 0.0f;
    }
}

/* Copy the vertices of the ground near a walker into lane t. Beyond the last vertex, repeat it: no ray hits an edge of
 * length 0. */
ONE_WORLD void take_ground(const world *w, const model *m, float_row *x, float_row *y, int t)
{
    int32_t begin = (int32_t)within(w->bodies[0].p.x / m->spacing, 0.0f, 1e6f) - 1;
    begin = begin < 0 ? 0 : begin;
    for (int32_t i = 0; i <= RAY_EDGES; i++) {
        const int32_t vertex = begin + i < WALKER_VERTICES ? begin + i : WALKER_VERTICES - 1;
        x[i][t] = m->x[vertex];
        y[i][t] = w->height[vertex];
    }
}

/* The observations of the active slots from `first` on: bodies and joints, and ten rays to the ground. */
INLINE void bipedal_walker_observe(const exact_task *task, int64_t first, const uint8_t *active)
{
    const model *m = MODEL(task);
    const double *rays = (const double *)(m + 1); /* [RAYS, 2]: forward, and down */
    float_row px, py, x[RAY_EDGES + 1], y[RAY_EDGES + 1], nearest[RAYS];
    memset(x, 0, sizeof x);
    memset(y, 0, sizeof y);
    for (int t = 0; t < WORLDS; t++) {
        const world *w = WORLD(task, first + t);
        px[t] = w->bodies[0].p.x;
        py[t] = w->bodies[0].p.y;
        if (active[t])
            take_ground(w, m, x, y, t);
    }
    for (int r = 0; r < RAYS; r++)
        FOR_WORLDS
            nearest[r][t] = 1.0f;
    for (int e = 0; e < RAY_EDGES; e++) {
        float_row nx, ny, top, ex, ey, ee;
        FOR_WORLDS {
            const float dx = x[e + 1][t] - x[e][t], dy = y[e + 1][t] - y[e][t], f = 1.0f / sqrtf(dy * dy + -dx * -dx);
            nx[t] = dy * f;
            ny[t] = -dx * f;
            top[t] = nx[t] * (x[e][t] - px[t]) + ny[t] * (y[e][t] - py[t]);
            ex[t] = dx;
            ey[t] = dy;
            ee[t] = dx * dx + dy * dy;
        }
        for (int r = 0; r < RAYS; r++) {
            const double forward = rays[2 * r], down = rays[2 * r + 1];
            if ((e - 2) * WALKER_STEP > forward) /* the ray ends before */
                continue;
            FOR_WORLDS {
                const float dx = (float)((double)px[t] + forward) - px[t], dy = (float)((double)py[t] - down) - py[t];
                const float bottom = nx[t] * dx + ny[t] * dy, f = top[t] / bottom;
                const float along = (((px[t] + f * dx) - x[e][t]) * ex[t] + ((py[t] + f * dy) - y[e][t]) * ey[t]) / ee[t];
                const int32_t hit = (bottom != 0.0f) & (f >= 0.0f) & (f <= nearest[r][t]) & (along >= 0.0f) & (along <= 1.0f);
                nearest[r][t] = hit ? f : nearest[r][t];
            }
        }
    }
    for (int t = 0; t < WORLDS; t++) {
        const world *w = WORLD(task, first + t);
        float *seen = SLOT_ROWS(task->observations, task->num_observations, first + t);
        if (!active[t])
            continue;
        feel_walker(w, m, seen);
        for (int r = 0; r < RAYS; r++)
            seen[(14 + r) * WIDTH] = nearest[r][t];
        if (m->flag)
            look_at_blocks(w, rays, seen + 14 * WIDTH);
    }
}

WORLD_TASK(bipedal_walker)
