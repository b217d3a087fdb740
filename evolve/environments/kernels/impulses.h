/* Contacts as constraints on the velocity and the position of one body: b2ContactSolver, for ground that cannot move. */
#pragma once
#include "bodies.h"

typedef struct {
    int32_t count;   /* points with an impulse of their own */
    float friction;
    vec normal, arm[2];
    float normal_mass[2], tangent_mass[2], normal_impulse[2], tangent_impulse[2];
    float k11, k12, k22, i11, i12, i22; /* two points: the matrix that is to be solved, and its inverse */
} constraint;

INLINE float friction_of(const world *w, const model *m, const contact *c)
{
    return w->bodies[c->body].friction[c->piece - w->num_blocks >= 0 && c->piece - w->num_blocks < m->base];
}

/* Set up a contact of a body whose center of mass is at c; `warm`: with the impulses of the step before. */
INLINE void prepare_contact(constraint *k, const contact *t, const hull *h, vec c, float a, float friction, int warm)
{
    const frame f = frame_around(c, a, h->center);
    const float mass = h->inverse_mass, inertia = h->inverse_inertia;
    const vec face = t->by_body ? turned(f.q, t->normal) : t->normal;
    const vec plane = t->by_body ? placed(f, t->local) : t->local;
    float turn[2] = {0.0f, 0.0f};
    k->friction = friction;
    k->count = t->count;
    k->normal = t->by_body ? negative(face) : face;
    const vec tangent = right_of(k->normal);
    for (int32_t i = 0; i < t->count; i++) {
        const contact_point *p = &t->points[i];
        const vec point = t->by_body ? p->local : placed(f, p->local);
        const vec one = plus(point, times(SKIN - dot(minus(point, plane), face), face));
        const vec other = minus(point, times(SKIN, face));
        k->arm[i] = minus(times(0.5f, plus(one, other)), c);
        k->normal_impulse[i] = warm ? p->normal_impulse : 0.0f;
        k->tangent_impulse[i] = warm ? p->tangent_impulse : 0.0f;
        turn[i] = cross(k->arm[i], k->normal);
        const float normal_k = mass + inertia * turn[i] * turn[i], side = cross(k->arm[i], tangent);
        const float tangent_k = mass + inertia * side * side;
        k->normal_mass[i] = normal_k > 0.0f ? 1.0f / normal_k : 0.0f;
        k->tangent_mass[i] = tangent_k > 0.0f ? 1.0f / tangent_k : 0.0f;
    }
    if (t->count < 2)
        return;
    const float k11 = mass + inertia * turn[0] * turn[0], k22 = mass + inertia * turn[1] * turn[1];
    const float k12 = mass + inertia * turn[0] * turn[1];
    if (k11 * k11 < 1000.0f * (k11 * k22 - k12 * k12)) {
        const float determinant = k11 * k22 - k12 * k12, inverse = determinant != 0.0f ? 1.0f / determinant : determinant;
        k->k11 = k11;
        k->k12 = k12;
        k->k22 = k22;
        k->i11 = inverse * k22;
        k->i12 = -inverse * k12;
        k->i22 = inverse * k11;
    } else
        k->count = 1; /* nearly the same point twice */
}

/* One iteration of a contact: friction by the normal impulses of before, then normal impulses, of two points at once. */
INLINE void solve_contact(constraint *k, const hull *h, vec *velocity, float *spin)
{
    const float mass = h->inverse_mass, inertia = h->inverse_inertia;
    const vec normal = k->normal, tangent = right_of(normal);
    vec v = *velocity;
    float w = *spin;
    for (int32_t i = 0; i < k->count; i++) {
        const float lambda = k->tangent_mass[i] * -dot(plus(v, turning(w, k->arm[i])), tangent);
        const float most = k->friction * k->normal_impulse[i];
        const float now = within(k->tangent_impulse[i] + lambda, -most, most);
        const vec p = times(now - k->tangent_impulse[i], tangent);
        k->tangent_impulse[i] = now;
        v = plus(v, times(mass, p));
        w += inertia * cross(k->arm[i], p);
    }
    if (k->count == 1) {
        const float lambda = -k->normal_mass[0] * dot(plus(v, turning(w, k->arm[0])), normal);
        const float now = greater(k->normal_impulse[0] + lambda, 0.0f);
        const vec p = times(now - k->normal_impulse[0], normal);
        k->normal_impulse[0] = now;
        v = plus(v, times(mass, p));
        w += inertia * cross(k->arm[0], p);
    } else {
        const float a1 = k->normal_impulse[0], a2 = k->normal_impulse[1];
        const float v1 = dot(plus(v, turning(w, k->arm[0])), normal), v2 = dot(plus(v, turning(w, k->arm[1])), normal);
        const float b1 = v1 - (k->k11 * a1 + k->k12 * a2), b2 = v2 - (k->k12 * a1 + k->k22 * a2);
        float x1 = -(k->i11 * b1 + k->i12 * b2), x2 = -(k->i12 * b1 + k->i22 * b2);
        int found = x1 >= 0.0f && x2 >= 0.0f;
        if (!found) {
            x1 = -k->normal_mass[0] * b1;
            x2 = 0.0f;
            found = x1 >= 0.0f && k->k12 * x1 + b2 >= 0.0f;
        }
        if (!found) {
            x1 = 0.0f;
            x2 = -k->normal_mass[1] * b2;
            found = x2 >= 0.0f && k->k12 * x2 + b1 >= 0.0f;
        }
        if (!found) {
            x1 = x2 = 0.0f;
            found = b1 >= 0.0f && b2 >= 0.0f;
        }
        if (found) {
            const vec p1 = times(x1 - a1, normal), p2 = times(x2 - a2, normal);
            v = plus(v, times(mass, plus(p1, p2)));
            w += inertia * (cross(k->arm[0], p1) + cross(k->arm[1], p2));
            k->normal_impulse[0] = x1;
            k->normal_impulse[1] = x2;
        }
    }
    *velocity = v;
    *spin = w;
}

/* Push a body out of the ground by the points of a contact; return the least separation. */
INLINE float push_out(const contact *t, const hull *h, vec *center, float *angle, float share)
{
    float worst = 0.0f;
    for (int32_t i = 0; i < t->count; i++) {
        const frame f = frame_around(*center, *angle, h->center);
        const vec face = t->by_body ? turned(f.q, t->normal) : t->normal;
        const vec plane = t->by_body ? placed(f, t->local) : t->local;
        const vec point = t->by_body ? t->points[i].local : placed(f, t->points[i].local);
        const float separation = dot(minus(point, plane), face) - SKIN - SKIN;
        const vec normal = t->by_body ? negative(face) : face, arm = minus(point, *center);
        const float C = within(share * (separation + SLOP), -MAX_CORRECTION, 0.0f), turn = cross(arm, normal);
        const float k = h->inverse_mass + h->inverse_inertia * turn * turn, impulse = k > 0.0f ? -C / k : 0.0f;
        const vec p = times(impulse, normal);
        worst = lesser(worst, separation);
        *center = plus(*center, times(h->inverse_mass, p));
        *angle += h->inverse_inertia * cross(arm, p);
    }
    return worst;
}

/* Move a body by its velocity, which is limited, for h seconds. */
INLINE void move_body(body *b, float h)
{
    const vec step = times(h, b->v);
    if (dot(step, step) > 4.0f)
        b->v = times(2.0f / length(step), b->v);
    const float turn = h * b->w;
    if (turn * turn > MAX_TURN * MAX_TURN)
        b->w *= MAX_TURN / fabsf(turn);
    b->c = plus(b->c, times(h, b->v));
    b->a += h * b->w;
}
