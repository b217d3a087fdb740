/* Continuous collision, so that fast bodies do not fall through the ground. GJK finds the distance of two convex shapes
 * (Gilbert, Johnson and Keerthi, 1988). Conservative advancement along separating axes finds the time at which they touch
 * (Catto, 2013): b2Distance, b2TimeOfImpact, and b2World::SolveTOI. */
#pragma once
#include "collision.h"
#include "impulses.h"

/* The motion of a body from a time of the step, 0, to its end, 1. */
typedef struct { vec c0, c, center; float a0, a; } sweep;

INLINE frame frame_at(const sweep *s, float t)
{
    return frame_around(plus(times(1.0f - t, s->c0), times(t, s->c)), (1.0f - t) * s->a0 + t * s->a, s->center);
}

/* The corner that is farthest in a direction, the first of equals. */
INLINE int32_t support(const vec *corner, int32_t count, vec d)
{
    int32_t best = 0;
    float most = dot(corner[0], d);
    for (int32_t i = 1; i < count; i++) {
        const float x = dot(corner[i], d);
        best = x > most ? i : best;
        most = greater(x, most);
    }
    return best;
}

/* A corner of the difference of two shapes, with its share of the point that is nearest to the origin. */
typedef struct { vec a, b, w; float share; int32_t index_a, index_b; } difference;

/* The corners of a simplex, to begin with when the distance is sought again. */
typedef struct { float metric; int32_t count, index_a[3], index_b[3]; } simplex;

INLINE float metric_of(const difference *v, int32_t n)
{
    return n == 2 ? length(minus(v[0].w, v[1].w)) : n == 3 ? cross(minus(v[1].w, v[0].w), minus(v[2].w, v[0].w)) : 0.0f;
}

INLINE void set_difference(difference *v, const ground *g, const hull *h, frame f, int32_t index_a, int32_t index_b)
{
    v->index_a = index_a;
    v->index_b = index_b;
    v->a = g->corner[index_a];
    v->b = placed(f, h->corner[index_b]);
    v->w = minus(v->b, v->a);
}

/* Reduce a line to the feature nearest to the origin; return its number of corners. */
INLINE int32_t nearest_of_2(difference *v)
{
    const vec e = minus(v[1].w, v[0].w);
    const float d2 = -dot(v[0].w, e), d1 = dot(v[1].w, e);
    if (d2 <= 0.0f) {
        v[0].share = 1.0f;
        return 1;
    }
    if (d1 <= 0.0f) {
        v[1].share = 1.0f;
        v[0] = v[1];
        return 1;
    }
    const float inverse = 1.0f / (d1 + d2);
    v[0].share = d1 * inverse;
    v[1].share = d2 * inverse;
    return 2;
}

INLINE int32_t keep_corner(difference *v, int which)
{
    v[which].share = 1.0f;
    v[0] = v[which];
    return 1;
}

INLINE int32_t keep_side(difference *v, int one, int other, float d1, float d2)
{
    const float inverse = 1.0f / (d1 + d2);
    v[one].share = d1 * inverse;
    v[other].share = d2 * inverse;
    const difference first = v[one], second = v[other];
    /* Box2D puts the third corner in the place of the one that is dropped. */
    v[0] = one == 0 ? first : second;
    v[1] = one == 0 ? second : first;
    return 2;
}

/* The same for a triangle. */
INLINE int32_t nearest_of_3(difference *v)
{
    const vec w1 = v[0].w, w2 = v[1].w, w3 = v[2].w, e12 = minus(w2, w1), e13 = minus(w3, w1), e23 = minus(w3, w2);
    const float d12_1 = dot(w2, e12), d12_2 = -dot(w1, e12), d13_1 = dot(w3, e13), d13_2 = -dot(w1, e13);
    const float d23_1 = dot(w3, e23), d23_2 = -dot(w2, e23), area = cross(e12, e13);
    const float t1 = area * cross(w2, w3), t2 = area * cross(w3, w1), t3 = area * cross(w1, w2);
    if (d12_2 <= 0.0f && d13_2 <= 0.0f)
        return keep_corner(v, 0);
    if (d12_1 > 0.0f && d12_2 > 0.0f && t3 <= 0.0f)
        return keep_side(v, 0, 1, d12_1, d12_2);
    if (d13_1 > 0.0f && d13_2 > 0.0f && t2 <= 0.0f)
        return keep_side(v, 0, 2, d13_1, d13_2);
    if (d12_1 <= 0.0f && d23_2 <= 0.0f)
        return keep_corner(v, 1);
    if (d13_1 <= 0.0f && d23_1 <= 0.0f)
        return keep_corner(v, 2);
    if (d23_1 > 0.0f && d23_2 > 0.0f && t1 <= 0.0f)
        return keep_side(v, 1, 2, d23_1, d23_2);
    const float inverse = 1.0f / (t1 + t2 + t3);
    v[0].share = t1 * inverse;
    v[1].share = t2 * inverse;
    v[2].share = t3 * inverse;
    return 3;
}

/* The distance of a piece of ground and a body. */
INLINE float distance(const ground *g, const hull *h, frame f, simplex *kept)
{
    difference v[3];
    int32_t n = kept->count;
    for (int32_t i = 0; i < n; i++)
        set_difference(&v[i], g, h, f, kept->index_a[i], kept->index_b[i]);
    if (n > 1) {
        const float before = kept->metric, now = metric_of(v, n);
        if (now < 0.5f * before || 2.0f * before < now || now < SMALLEST)
            n = 0;
    }
    if (n == 0) {
        set_difference(&v[0], g, h, f, 0, 0);
        v[0].share = 1.0f;
        n = 1;
    }
    for (int turn = 0; turn < 20; turn++) {
        const int32_t saved = n;
        int32_t saved_a[3], saved_b[3], again = 0;
        for (int32_t i = 0; i < n; i++) {
            saved_a[i] = v[i].index_a;
            saved_b[i] = v[i].index_b;
        }
        n = n == 2 ? nearest_of_2(v) : n == 3 ? nearest_of_3(v) : n;
        if (n == 3)
            break; /* they overlap */
        const vec e = n == 2 ? minus(v[1].w, v[0].w) : v[0].w;
        const vec d = n == 1 ? negative(v[0].w) : cross(e, negative(v[0].w)) > 0.0f ? vector(-e.y, e.x) : right_of(e);
        if (dot(d, d) < SMALLEST * SMALLEST)
            break;
        set_difference(&v[n], g, h, f, support(g->corner, g->count, negative(d)),
                       support(h->corner, h->count, turned_back(f.q, d)));
        for (int32_t i = 0; i < saved; i++)
            again |= v[n].index_a == saved_a[i] && v[n].index_b == saved_b[i];
        if (again)
            break;
        n++;
    }
    kept->metric = metric_of(v, n);
    kept->count = n;
    for (int32_t i = 0; i < n; i++) {
        kept->index_a[i] = v[i].index_a;
        kept->index_b[i] = v[i].index_b;
    }
    if (n == 3)
        return 0.0f;
    if (n == 1)
        return length(minus(v[0].a, v[0].b));
    const vec a = plus(times(v[0].share, v[0].a), times(v[1].share, v[1].a));
    return length(minus(a, plus(times(v[0].share, v[0].b), times(v[1].share, v[1].b))));
}

/* An axis along which ground and body are apart: between two corners, or the normal of a face of either. */
enum { BETWEEN_CORNERS, OF_GROUND, OF_BODY };
typedef struct { int32_t kind; vec axis, local; } separator;

INLINE separator find_separator(const simplex *k, const ground *g, const hull *h, const sweep *s, float t)
{
    separator r;
    const frame f = frame_at(s, t);
    const vec a1 = g->corner[k->index_a[0]], b1 = h->corner[k->index_b[0]];
    r.local = vector(0.0f, 0.0f);
    r.kind = k->count == 1 ? BETWEEN_CORNERS : k->index_a[0] == k->index_a[1] ? OF_BODY : OF_GROUND;
    if (r.kind == BETWEEN_CORNERS) {
        r.axis = unit(minus(placed(f, b1), a1));
        return r;
    }
    const vec one = r.kind == OF_BODY ? b1 : a1, other = r.kind == OF_BODY ? h->corner[k->index_b[1]] : g->corner[k->index_a[1]];
    r.axis = unit(right_of(minus(other, one)));
    r.local = times(0.5f, plus(one, other));
    const float s0 = r.kind == OF_BODY ? dot(minus(a1, placed(f, r.local)), turned(f.q, r.axis))
                                       : dot(minus(placed(f, b1), r.local), r.axis);
    r.axis = s0 < 0.0f ? negative(r.axis) : r.axis;
    return r;
}

INLINE float separation_of(const separator *r, int32_t index_a, int32_t index_b, const ground *g, const hull *h, frame f)
{
    if (r->kind == OF_BODY)
        return dot(minus(g->corner[index_a], placed(f, r->local)), turned(f.q, r->axis));
    return dot(minus(placed(f, h->corner[index_b]), r->kind == OF_GROUND ? r->local : g->corner[index_a]), r->axis);
}

/* The corners that are deepest along an axis. */
INLINE float deepest(const separator *r, int32_t *index_a, int32_t *index_b, const ground *g, const hull *h, frame f)
{
    *index_a = *index_b = 0;
    if (r->kind == OF_BODY)
        *index_a = support(g->corner, g->count, negative(turned(f.q, r->axis)));
    else {
        *index_b = support(h->corner, h->count, turned_back(f.q, negative(r->axis)));
        if (r->kind == BETWEEN_CORNERS)
            *index_a = support(g->corner, g->count, r->axis);
    }
    return separation_of(r, *index_a, *index_b, g, h, f);
}

/* Two shapes touch if their distance is within TOLERANCE of TARGET. */
#define TARGET greater(SLOP, 2.0f * SKIN - 3.0f * SLOP)
#define TOLERANCE (0.25f * SLOP)

/* The time at which a body touches a piece of ground, 1 for never. */
INLINE float time_of_impact(const ground *g, const hull *h, sweep s)
{
    const float two_pi = 2.0f * PI_SINGLE, whole = two_pi * floorf(s.a0 / two_pi);
    simplex kept;
    float t1 = 0.0f;
    s.a0 -= whole;
    s.a -= whole;
    kept.count = 0;
    for (int turn = 0; turn < 20; turn++) {
        const float d = distance(g, h, frame_at(&s, t1), &kept);
        if (d <= 0.0f)
            return 1.0f; /* they overlap: the position solver's work */
        if (d < TARGET + TOLERANCE)
            return t1;
        const separator r = find_separator(&kept, g, h, &s, t1);
        float t2 = 1.0f;
        for (int push = 0; push < 16; push++) {
            int32_t index_a, index_b;
            float s2 = deepest(&r, &index_a, &index_b, g, h, frame_at(&s, t2));
            if (s2 > TARGET + TOLERANCE)
                return 1.0f;
            if (s2 > TARGET - TOLERANCE) {
                t1 = t2;
                break;
            }
            float s1 = separation_of(&r, index_a, index_b, g, h, frame_at(&s, t1));
            if (s1 < TARGET - TOLERANCE)
                return 1.0f; /* the search has failed */
            if (s1 <= TARGET + TOLERANCE)
                return t1;
            float low = t1, high = t2;
            for (int root = 0; root < 50; root++) { /* the secant rule and bisection in turns */
                const float t = root & 1 ? low + (TARGET - s1) * (high - low) / (s2 - s1) : 0.5f * (low + high);
                const float x = separation_of(&r, index_a, index_b, g, h, frame_at(&s, t));
                if (fabsf(x - TARGET) < TOLERANCE) {
                    t2 = t;
                    break;
                }
                low = x > TARGET ? t : low;
                s1 = x > TARGET ? x : s1;
                high = x > TARGET ? high : t;
                s2 = x > TARGET ? s2 : x;
            }
        }
    }
    return 1.0f;
}

/* The motion of a body, for a bound that proves in most steps that the body does not touch a piece of ground: a line
 * separates the two at the beginning and at the end of the motion, and its distance from the body is larger than the
 * deviation of any corner's path from a straight line. The time of impact need not be computed then. */
typedef struct {
    int known;
    vec corner[2][MAX_CORNERS], normal[2][MAX_CORNERS]; /* at the beginning and at the end */
    /* low, high: the smallest and the largest x of these corners. bent: the largest deviation of a corner's path, plus
     * NEAR. turn: the angle by which the body turns. way: the distance that its center of mass moves. */
    float low, high, bent, turn, way;
} bound;

#define NEAR 0.00635f /* above TARGET + TOLERANCE */

ONCE_ON_DEVICE void find_bound(bound *s, const body *b, const hull *h)
{
    const frame f[2] = {frame_around(b->c0, b->a0, h->center), frame_around(b->c, b->a, h->center)};
    s->known = 1;
    s->turn = fabsf(b->a - b->a0);
    s->way = length(minus(b->c, b->c0));
    s->bent = h->reach * s->turn * s->turn * 0.125f + NEAR; /* the path of a corner bends by r turn^2 / 8 */
    s->low = LARGEST;
    s->high = -LARGEST;
    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < h->count; i++) {
            s->corner[k][i] = placed(f[k], h->corner[i]);
            s->normal[k][i] = turned(f[k].q, h->normal[i]);
            s->low = lesser(s->low, s->corner[k][i].x);
            s->high = greater(s->high, s->corner[k][i].x);
        }
}

ONCE_ON_DEVICE int is_clear(const bound *s, const body *b, const hull *h, const ground *g)
{
    float left = g->corner[0].x, right = left, far = 0.0f;
    for (int32_t i = 0; i < g->count; i++) {
        left = lesser(left, g->corner[i].x);
        right = greater(right, g->corner[i].x);
        far = greater(far, fabsf(g->corner[i].x - b->c.x) + fabsf(g->corner[i].y - b->c.y));
    }
    if (s->low - s->bent > right || s->high + s->bent < left)
        return 1;
    /* Faces of the ground, of which an edge has one that counts. */
    for (int32_t i = 0; i < (g->count == 2 ? 1 : g->count); i++) {
        const vec v1 = g->corner[i], e = minus(g->corner[i + 1 < g->count ? i + 1 : 0], v1);
        const float need = s->bent * length(e), sign = g->count == 2 ? 1.0f : -1.0f;
        int clear = 1;
        for (int k = 0; k < 2; k++)
            for (int32_t j = 0; j < h->count; j++)
                clear &= sign * cross(e, minus(s->corner[k][j], v1)) > need;
        if (clear)
            return 1;
    }
    /* Faces of the body: in its frame, ground at a distance of `far` bends by (far turn^2 + 2 turn way) / 8. */
    const float bend = ((far + s->way) * s->turn * s->turn + 2.0f * s->turn * s->way) * 0.125f + NEAR;
    for (int32_t j = 0; j < h->count; j++) {
        int clear = 1;
        for (int k = 0; k < 2; k++)
            for (int32_t i = 0; i < g->count; i++)
                clear &= dot(s->normal[k][j], minus(g->corner[i], s->corner[k][j])) > bend;
        if (clear)
            return 1;
    }
    return 0;
}

/* Move a body to its position at a time of the step. */
INLINE void advance_body(body *b, float alpha)
{
    const float beta = (alpha - b->alpha0) / (1.0f - b->alpha0);
    b->c0 = plus(times(1.0f - beta, b->c0), times(beta, b->c));
    b->a0 = (1.0f - beta) * b->a0 + beta * b->a;
    b->alpha0 = alpha;
}

/* The state of continuous collision during a step. `alpha`: the time to which each piece of ground has advanced. If the
 * model has a base, all ground is one body in Box2D, and shares alpha[0]. */
typedef struct { float alpha[MAX_BLOCKS + MAX_HEIGHTS]; bound bounds[MAX_BODIES]; } impacts;

INLINE float *time_of_ground(impacts *i, const model *m, int32_t piece) { return &i->alpha[m->base ? 0 : piece]; }

/* The time of a contact's impact, computed if it is not known; 1 if there is none. */
INLINE float impact_of(world *w, const model *m, impacts *i, contact *c)
{
    body *b = &w->bodies[c->body];
    const hull *h = &m->hulls[c->body];
    bound *s = &i->bounds[c->body];
    float *alpha = time_of_ground(i, m, c->piece);
    ground g;
    if (c->impact_known)
        return c->impact;
    if (*alpha < b->alpha0)
        *alpha = b->alpha0;
    else if (b->alpha0 < *alpha) {
        advance_body(b, *alpha);
        s->known = 0;
    }
    find_ground(w, m, c->piece, &g);
    if (!s->known)
        find_bound(s, b, h);
    c->impact = 1.0f;
    c->impact_known = 1;
    if (!is_clear(s, b, h, &g)) {
        const sweep motion = {b->c0, b->c, h->center, b->a0, b->a};
        const float t = time_of_impact(&g, h, motion);
        c->impact = t == 1.0f ? 1.0f : lesser(*alpha + (1.0f - *alpha) * t, 1.0f);
    }
    return c->impact;
}

/* The velocity iterations of one body, until one changes nothing: then the rest would not, either. */
INLINE void iterate_impact(body *b, const hull *h, constraint *k, int32_t count)
{
    int same = 0;
    for (int turn = 0; turn < VELOCITY_ITERATIONS && !same; turn++) {
        const vec v = b->v;
        const float spin = b->w;
        same = 1;
        for (int32_t i = 0; i < count; i++) {
            const float n0 = k[i].normal_impulse[0], t0 = k[i].tangent_impulse[0];
            const float n1 = k[i].normal_impulse[1], t1 = k[i].tangent_impulse[1];
            solve_contact(&k[i], h, &b->v, &b->w);
            same &= n0 == k[i].normal_impulse[0] && t0 == k[i].tangent_impulse[0];
            same &= k[i].count < 2 || (n1 == k[i].normal_impulse[1] && t1 == k[i].tangent_impulse[1]);
        }
        same &= v.x == b->v.x && v.y == b->v.y && spin == b->w;
    }
}

/* Solve position and velocity of a body at its impact, with the contacts in `island`; then move it for h seconds. */
INLINE void solve_impact(world *w, const model *m, const int32_t *island, int32_t count, float h)
{
    const int32_t which = w->contacts[island[0]].body;
    body *b = &w->bodies[which];
    const hull *shape = &m->hulls[which];
    constraint k[MAX_TOUCHING + 1];
    for (int turn = 0; turn < 20; turn++) {
        float worst = 0.0f;
        for (int32_t i = 0; i < count; i++)
            worst = lesser(worst, push_out(&w->contacts[island[i]], shape, &b->c, &b->a, 0.75f));
        if (worst >= -1.5f * SLOP)
            break;
    }
    b->c0 = b->c;
    b->a0 = b->a;
    for (int32_t i = 0; i < count; i++) {
        const contact *c = &w->contacts[island[i]];
        prepare_contact(&k[i], c, shape, b->c, b->a, friction_of(w, m, c), 0);
    }
    iterate_impact(b, shape, k, count);
    move_body(b, h);
    set_frame(b, shape);
    follow_body(b, shape);
}

/* Solve the earliest impact: move the body of contact `first` back to that time, solve it there with all its contacts
 * that touch, and move it to the end of the step. If `first` does not touch there, undo the motion and disable it. */
INLINE void take_impact(world *w, const model *m, impacts *all, int32_t first)
{
    contact *c = &w->contacts[first];
    body *b = &w->bodies[c->body];
    const body backup = *b;
    float *alpha = time_of_ground(all, m, c->piece);
    const float alpha_before = *alpha, when = c->impact;
    int32_t island[MAX_TOUCHING + 1], count = 1;
    island[0] = first;
    *alpha = when;
    advance_body(b, when);
    b->c = b->c0;
    b->a = b->a0;
    set_frame(b, &m->hulls[c->body]);
    update_contact(w, m, c);
    c->impact_known = 0;
    c->impacts++;
    all->bounds[c->body].known = 0;
    if (!c->touching) {
        c->enabled = 0;
        b->c = backup.c;
        b->c0 = backup.c0;
        b->a = backup.a;
        b->a0 = backup.a0;
        b->alpha0 = backup.alpha0;
        *alpha = alpha_before;
        set_frame(b, &m->hulls[c->body]);
        return;
    }
    wake(b);
    for (int32_t i = w->num_contacts - 1; i >= 0 && count <= MAX_TOUCHING; i--) {
        contact *other = &w->contacts[i];
        float *its = time_of_ground(all, m, other->piece);
        const float before = *its;
        if (other->body != c->body || i == first)
            continue;
        *its = when;
        update_contact(w, m, other);
        if (other->touching)
            island[count++] = i;
        else
            *its = before;
    }
    solve_impact(w, m, island, count, (1.0f - when) * TIME_STEP);
    for (int32_t i = 0; i < w->num_contacts; i++)
        if (w->contacts[i].body == c->body)
            w->contacts[i].impact_known = 0;
    seek_contacts(w, m);
}

/* Whether anything comes so near to the ground in this step that impacts have to be sought. */
INLINE int may_hit(world *w, const model *m, bound *bounds)
{
    for (int32_t i = 0; i < w->num_contacts; i++) {
        const contact *c = &w->contacts[i];
        bound *s = &bounds[c->body];
        ground g;
        find_ground(w, m, c->piece, &g);
        if (!s->known)
            find_bound(s, &w->bodies[c->body], &m->hulls[c->body]);
        if (!is_clear(s, &w->bodies[c->body], &m->hulls[c->body], &g))
            return 1;
    }
    return 0;
}

/* Solve the impacts within a step, always the earliest one of all bodies next. */
INLINE void solve_impacts(world *w, const model *m)
{
    impacts all;
    for (int32_t b = 0; b < m->num_bodies; b++) {
        w->bodies[b].alpha0 = 0.0f;
        all.bounds[b].known = 0;
    }
    for (int32_t i = 0; i < w->num_contacts; i++) {
        w->contacts[i].impact_known = w->contacts[i].impacts = 0;
        w->contacts[i].impact = 1.0f;
    }
    if (!may_hit(w, m, all.bounds))
        return;
    memset(all.alpha, 0, sizeof all.alpha);
    for (;;) {
        int32_t first = -1;
        float when = 1.0f;
        for (int32_t i = w->num_contacts - 1; i >= 0; i--) {
            contact *c = &w->contacts[i];
            if (!c->enabled || c->impacts > 8 || !(c->impact_known || w->bodies[c->body].awake))
                continue;
            const float impact = impact_of(w, m, &all, c);
            if (impact < when) {
                first = i;
                when = impact;
            }
        }
        if (first < 0 || 1.0f - 10.0f * SMALLEST < when)
            break;
        take_impact(w, m, &all, first);
    }
}
