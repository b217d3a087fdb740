/* The solver: velocities, then positions, of the bodies of WORLDS worlds side by side: b2Island::Solve.
 *
 * The solver works on rows of WORLDS numbers. These are two vectors of lanes, because one vector alone would wait for its
 * own results. The ground is the only other side of a contact, so the order of contacts matters only within a body, and
 * row s of a body holds the s-th contact of each lane. A lane without that contact has zero mass there, so an iteration
 * does not change its bits. */
#pragma once
#include "impulses.h"

#define FOR_WORLDS AS_VECTORS for (int t = 0; t < WORLDS; t++)
#define FOR_WIDTH AS_VECTORS for (int t = 0; t < width; t++)
#ifdef __CUDACC__
#define ALIGNED
#else
#define ALIGNED __attribute__((aligned(64)))
#endif

typedef ALIGNED float float_row[WORLDS];
typedef ALIGNED int32_t int_row[WORLDS];

typedef struct { float_row x, y, a, vx, vy, w; } body_rows;

typedef struct {
    float_row px, py, pz, motor, speed, most; /* impulses; the speed and the largest impulse of the motor */
    float_row rax, ray, rbx, rby, k11, k12, k13, k22, k23, k33, det2, det3, cx, cy, cz;
    int_row limit;
    int limited; /* some lane is at a limit */
} joint_rows;

typedef struct {
    int_row which; /* the contact of each lane, -1 for no contact */
    int_row two, by_body, count;
    int32_t body; /* the body, and its inverse masses, where registers.h needs them */
    float mass, inertia;
    int any_two, any_second; /* some lane has two points to solve at once; a second point to push out by */
    float_row nx, ny, friction, rx[2], ry[2], normal_mass[2], tangent_mass[2], n[2], t[2];
    float_row k11, k12, k22, i11, i12, i22;
    float_row face_x, face_y, plane_x, plane_y, local_x[2], local_y[2]; /* for positions */
} contact_rows;

typedef struct {
    body_rows bodies[MAX_BODIES];
    joint_rows joints[MAX_JOINTS];
    contact_rows contacts[MAX_BODIES][MAX_TOUCHING];
    int32_t num_rows[MAX_BODIES];
    int_row open; /* all bits set in lanes with unsolved positions */
} island;

/* Take the bodies and joints of a lane's world into rows. */
INLINE void gather_world(island *s, const world *w, const model *m, int t)
{
    for (int32_t b = 0; b < m->num_bodies; b++) {
        const body *from = &w->bodies[b];
        body_rows *to = &s->bodies[b];
        to->x[t] = from->c.x, to->y[t] = from->c.y, to->a[t] = from->a;
        to->vx[t] = from->v.x, to->vy[t] = from->v.y, to->w[t] = from->w;
    }
    for (int32_t j = 0; j < m->num_joints; j++) {
        const joint *from = &w->joints[j];
        joint_rows *to = &s->joints[j];
        to->px[t] = from->impulse.x, to->py[t] = from->impulse.y, to->pz[t] = from->limit_impulse;
        to->motor[t] = from->motor_impulse, to->speed[t] = from->speed, to->most[t] = TIME_STEP * from->torque;
        to->limit[t] = from->limit;
    }
}

/* Take the contacts of a lane's world that touch into rows, which begin as zeros. */
INLINE void gather_contacts(island *s, const world *w, const model *m, int t)
{
    int32_t counts[MAX_BODIES];
    for (int32_t b = 0; b < m->num_bodies; b++)
        counts[b] = 0;
    for (int32_t i = w->num_contacts - 1; i >= 0; i--) {
        const contact *c = &w->contacts[i];
        const int32_t b = c->body;
        if (!c->touching || !c->enabled || counts[b] == MAX_TOUCHING)
            continue;
        contact_rows *r = &s->contacts[b][counts[b]];
        constraint k;
        if (counts[b] == s->num_rows[b]) {
            memset(r, 0, sizeof *r);
            for (int lane = 0; lane < WORLDS; lane++)
                r->which[lane] = -1;
            s->num_rows[b]++;
        }
        counts[b]++;
        prepare_contact(&k, c, &m->hulls[b], w->bodies[b].c, w->bodies[b].a, friction_of(w, m, c), 1);
        r->which[t] = i;
        r->two[t] = k.count == 2;
        r->any_two |= k.count == 2;
        r->any_second |= c->count == 2;
        r->by_body[t] = c->by_body;
        r->count[t] = c->count;
        r->nx[t] = k.normal.x, r->ny[t] = k.normal.y, r->friction[t] = k.friction;
        for (int32_t i = 0; i < k.count; i++) {
            r->rx[i][t] = k.arm[i].x, r->ry[i][t] = k.arm[i].y;
            r->normal_mass[i][t] = k.normal_mass[i], r->tangent_mass[i][t] = k.tangent_mass[i];
            r->n[i][t] = k.normal_impulse[i], r->t[i][t] = k.tangent_impulse[i];
        }
        if (k.count == 2) {
            r->k11[t] = k.k11, r->k12[t] = k.k12, r->k22[t] = k.k22;
            r->i11[t] = k.i11, r->i12[t] = k.i12, r->i22[t] = k.i22;
        }
        r->face_x[t] = c->normal.x, r->face_y[t] = c->normal.y;
        r->plane_x[t] = c->local.x, r->plane_y[t] = c->local.y;
        for (int32_t i = 0; i < c->count; i++)
            r->local_x[i][t] = c->points[i].local.x, r->local_y[i][t] = c->points[i].local.y;
    }
}

/* Write the positions of a lane back to its world. */
INLINE void scatter_positions(const island *s, world *w, const model *m, int t)
{
    for (int32_t b = 0; b < m->num_bodies; b++) {
        w->bodies[b].c = vector(s->bodies[b].x[t], s->bodies[b].y[t]);
        w->bodies[b].a = s->bodies[b].a[t];
    }
}

/* Write the solution of a lane back to its world. */
INLINE void scatter_world(const island *s, world *w, const model *m, int t)
{
    const contact_rows *k = s->contacts[0];
    scatter_positions(s, w, m, t);
    for (int32_t b = 0; b < m->num_bodies; b++) {
        const body_rows *from = &s->bodies[b];
        body *to = &w->bodies[b];
        to->v = vector(from->vx[t], from->vy[t]), to->w = from->w[t];
        if (WORLDS > 1)
            k = s->contacts[b];
        for (int32_t r = 0; r < s->num_rows[b]; r++, k++) {
            if (k->which[t] < 0)
                continue;
            for (int32_t i = 0; i < 1 + k->two[t]; i++) {
                contact_point *p = &w->contacts[k->which[t]].points[i];
                p->normal_impulse = k->n[i][t], p->tangent_impulse = k->t[i][t];
            }
        }
    }
    for (int32_t j = 0; j < m->num_joints; j++) {
        const joint_rows *from = &s->joints[j];
        joint *to = &w->joints[j];
        to->impulse = vector(from->px[t], from->py[t]), to->limit_impulse = from->pz[t];
        to->motor_impulse = from->motor[t], to->limit = from->limit[t];
    }
}

INLINE void rotations(const float *RESTRICT a, float *RESTRICT s, float *RESTRICT c, const int width)
{
    /* One branch for all worlds: a choice for each world would cost the walker 4 % of its speed. */
    int far = 0;
    FOR_WIDTH { far |= !(a[t] > -FAR_ANGLE && a[t] < FAR_ANGLE); }
    if (far) {
        FOR_WIDTH {
            const rotation q = rotation_of(a[t]);
            s[t] = q.s, c[t] = q.c;
        }
    } else {
        FOR_WIDTH {
            const rotation q = rotation_near(a[t]);
            s[t] = q.s, c[t] = q.c;
        }
    }
}

/* Begin with the impulses of the step before: first of contacts, then of joints. */
INLINE void warm_start_contact(const contact_rows *RESTRICT c, body_rows *RESTRICT B, const hull *h, const int width)
{
    const float mass = h->inverse_mass, inertia = h->inverse_inertia;
    for (int i = 0; i < 2; i++)
        FOR_WIDTH {
            const float nx = c->nx[t], ny = c->ny[t], n = c->n[i][t], side = c->t[i][t];
            const float px = n * nx + side * ny, py = n * ny + side * -nx;
            B->w[t] = B->w[t] + inertia * (c->rx[i][t] * py - c->ry[i][t] * px);
            B->vx[t] = B->vx[t] + mass * px;
            B->vy[t] = B->vy[t] + mass * py;
        }
}

INLINE void start_joint(joint_rows *RESTRICT j, body_rows *RESTRICT A, body_rows *RESTRICT B, const model *m, const hinge *k,
                        const int width)
{
    const float ma = m->hulls[k->a].inverse_mass, ia = m->hulls[k->a].inverse_inertia;
    const float mb = m->hulls[k->b].inverse_mass, ib = m->hulls[k->b].inverse_inertia;
    const float ax = k->anchor_a.x, ay = k->anchor_a.y, bx = k->anchor_b.x, by = k->anchor_b.y;
    const float lower = k->lower, upper = k->upper, reference = k->reference;
    float_row sa, ca, sb, cb;
    int limited = 0;
    rotations(A->a, sa, ca, width);
    rotations(B->a, sb, cb, width);
    FOR_WIDTH {
        const float rax = ca[t] * ax - sa[t] * ay, ray = sa[t] * ax + ca[t] * ay;
        const float rbx = cb[t] * bx - sb[t] * by, rby = sb[t] * bx + cb[t] * by;
        const float k11 = ma + mb + ray * ray * ia + rby * rby * ib, k12 = -ray * rax * ia - rby * rbx * ib;
        const float k13 = -ray * ia - rby * ib, k22 = ma + mb + rax * rax * ia + rbx * rbx * ib;
        const float k23 = rax * ia + rbx * ib, k33 = ia + ib;
        const float cx = k22 * k33 - k23 * k23, cy = k23 * k13 - k12 * k33, cz = k12 * k23 - k22 * k13;
        const float det3 = (k11 * cx + k12 * cy) + k13 * cz, det2 = k11 * k22 - k12 * k12;
        const float angle = B->a[t] - A->a[t] - reference;
        const int32_t limit = angle <= lower ? -1 : angle >= upper ? 1 : 0;
        const float pz = (limit == j->limit[t]) & (limit != 0) ? j->pz[t] : 0.0f;
        const float px = j->px[t], py = j->py[t], motor = j->motor[t];
        j->rax[t] = rax, j->ray[t] = ray, j->rbx[t] = rbx, j->rby[t] = rby;
        j->k11[t] = k11, j->k12[t] = k12, j->k13[t] = k13, j->k22[t] = k22, j->k23[t] = k23, j->k33[t] = k33;
        j->cx[t] = cx, j->cy[t] = cy, j->cz[t] = cz;
        j->det3[t] = det3 != 0.0f ? 1.0f / det3 : det3;
        j->det2[t] = det2 != 0.0f ? 1.0f / det2 : det2;
        j->limit[t] = limit;
        j->pz[t] = pz;
        limited |= limit;
        A->vx[t] = A->vx[t] - ma * px, A->vy[t] = A->vy[t] - ma * py;
        A->w[t] = A->w[t] - ia * ((rax * py - ray * px) + motor + pz);
        B->vx[t] = B->vx[t] + mb * px, B->vy[t] = B->vy[t] + mb * py;
        B->w[t] = B->w[t] + ib * ((rbx * py - rby * px) + motor + pz);
    }
    j->limited = limited;
}

/* One iteration of a joint: its motor, then its limit (if some lane is `limited`) and its point. */
INLINE void solve_joint(joint_rows *RESTRICT j, body_rows *RESTRICT A, body_rows *RESTRICT B, const model *m, const hinge *k,
                        const int limited, const int width)
{
    const float ma = m->hulls[k->a].inverse_mass, ia = m->hulls[k->a].inverse_inertia;
    const float mb = m->hulls[k->b].inverse_mass, ib = m->hulls[k->b].inverse_inertia, motor_mass = k->motor_mass;
    FOR_WIDTH {
        const float old = j->motor[t], most = j->most[t], vax = A->vx[t], vay = A->vy[t], vbx = B->vx[t], vby = B->vy[t];
        const float rax = j->rax[t], ray = j->ray[t], rbx = j->rbx[t], rby = j->rby[t];
        float wa = A->w[t], wb = B->w[t], motor = old + -motor_mass * (wb - wa - j->speed[t]);
        motor = motor < most ? motor : most;
        motor = -most > motor ? -most : motor;
        const float pushed = motor - old;
        j->motor[t] = motor;
        wa = wa - ia * pushed;
        wb = wb + ib * pushed;
        const float dx = ((vbx + -wb * rby) - vax) - -wa * ray, dy = ((vby + wb * rbx) - vay) - wa * rax;
        const float k11 = j->k11[t], k12 = j->k12[t], k22 = j->k22[t], det2 = j->det2[t];
        float x, y, z = 0.0f;
        if (limited) {
            const float k13 = j->k13[t], k23 = j->k23[t], k33 = j->k33[t], det3 = j->det3[t], pz = j->pz[t], dz = wb - wa;
            const float bx = dy * k33 - dz * k23, by = dz * k13 - dx * k33, bz = dx * k23 - dy * k13;
            const float ex = k22 * dz - k23 * dy, ey = k23 * dx - k12 * dz, ez = k12 * dy - k22 * dx;
            const float x3 = -(det3 * ((dx * j->cx[t] + dy * j->cy[t]) + dz * j->cz[t]));
            const float y3 = -(det3 * ((k11 * bx + k12 * by) + k13 * bz));
            const float z3 = -(det3 * ((k11 * ex + k12 * ey) + k13 * ez));
            const float now = pz + z3;
            const int32_t limit = j->limit[t];
            const int32_t stopped = ((limit < 0) & (now >= 0.0f)) | ((limit > 0) & (now <= 0.0f));
            const float gx = -dx + pz * k13, gy = -dy + pz * k23;
            const float x2 = det2 * (k22 * gx - k12 * gy), y2 = det2 * (k11 * gy - k12 * gx);
            x = stopped ? x3 : x2;
            y = stopped ? y3 : y2;
            z = stopped ? z3 : -pz;
            j->pz[t] = stopped ? now : 0.0f;
        } else {
            x = det2 * (k22 * -dx - k12 * -dy);
            y = det2 * (k11 * -dy - k12 * -dx);
        }
        j->px[t] = j->px[t] + x;
        j->py[t] = j->py[t] + y;
        A->vx[t] = vax - ma * x;
        A->vy[t] = vay - ma * y;
        A->w[t] = wa - ia * (limited ? (rax * y - ray * x) + z : rax * y - ray * x);
        B->vx[t] = vbx + mb * x;
        B->vy[t] = vby + mb * y;
        B->w[t] = wb + ib * (limited ? (rbx * y - rby * x) + z : rbx * y - rby * x);
    }
}

/* Friction of one point: impulse `side` against the velocity along the tangent (tx, ty). */
#define RUB(side, n, tangent_mass, rx, ry)                                                             \
    {                                                                                                  \
        const float dx = vx + -w * ry, dy = vy + w * rx, most = friction * n;                          \
        float now = side + tangent_mass * -(dx * tx + dy * ty);                                        \
        now = now < most ? now : most;                                                                 \
        now = -most > now ? -most : now;                                                               \
        const float px = (now - side) * tx, py = (now - side) * ty;                                    \
        side = now;                                                                                    \
        vx = vx + mass * px;                                                                           \
        vy = vy + mass * py;                                                                           \
        w = w + inertia * (rx * py - ry * px);                                                         \
    }

/* One iteration of a row of contacts. two: whether some lane may have two points that are solved at once. */
INLINE void solve_contacts(contact_rows *RESTRICT c, body_rows *RESTRICT B, const hull *h, const int two, const int width)
{
    const float mass = h->inverse_mass, inertia = h->inverse_inertia;
    FOR_WIDTH {
        float vx = B->vx[t], vy = B->vy[t], w = B->w[t];
        const float nx = c->nx[t], ny = c->ny[t], tx = ny, ty = -nx, friction = c->friction[t];
        const float rx = c->rx[0][t], ry = c->ry[0][t], a1 = c->n[0][t], mass1 = c->normal_mass[0][t];
        float side1 = c->t[0][t];
        RUB(side1, a1, c->tangent_mass[0][t], rx, ry)
        c->t[0][t] = side1;
        if (two) {
            const float sx = c->rx[1][t], sy = c->ry[1][t], a2 = c->n[1][t], mass2 = c->normal_mass[1][t];
            float side2 = c->t[1][t];
            RUB(side2, a2, c->tangent_mass[1][t], sx, sy)
            c->t[1][t] = side2;
            const float v1 = (vx + -w * ry) * nx + (vy + w * rx) * ny, v2 = (vx + -w * sy) * nx + (vy + w * sx) * ny;
            float one = a1 + -mass1 * v1;
            one = one > 0.0f ? one : 0.0f;
            /* Two points: the first of four cases that is a solution, else no change. */
            const float k11 = c->k11[t], k12 = c->k12[t], k22 = c->k22[t], i11 = c->i11[t], i12 = c->i12[t], i22 = c->i22[t];
            const float b1 = v1 - (k11 * a1 + k12 * a2), b2 = v2 - (k12 * a1 + k22 * a2);
            const float x1 = -(i11 * b1 + i12 * b2), x2 = -(i12 * b1 + i22 * b2), y1 = -mass1 * b1, z2 = -mass2 * b2;
            const int32_t both = (x1 >= 0.0f) & (x2 >= 0.0f), first = (y1 >= 0.0f) & (k12 * y1 + b2 >= 0.0f);
            const int32_t second = (z2 >= 0.0f) & (k12 * z2 + b1 >= 0.0f), neither = (b1 >= 0.0f) & (b2 >= 0.0f);
            float n1 = neither ? 0.0f : a1, n2 = neither ? 0.0f : a2;
            n1 = second ? 0.0f : n1;
            n2 = second ? z2 : n2;
            n1 = first ? y1 : n1;
            n2 = first ? 0.0f : n2;
            n1 = both ? x1 : n1;
            n2 = both ? x2 : n2;
            n1 = c->two[t] ? n1 : one;
            n2 = c->two[t] ? n2 : a2;
            const float d1 = n1 - a1, d2 = n2 - a2, px = d1 * nx, py = d1 * ny, qx = d2 * nx, qy = d2 * ny;
            c->n[0][t] = n1;
            c->n[1][t] = n2;
            B->vx[t] = vx + mass * (px + qx);
            B->vy[t] = vy + mass * (py + qy);
            B->w[t] = w + inertia * ((rx * py - ry * px) + (sx * qy - sy * qx));
        } else {
            const float dx = vx + -w * ry, dy = vy + w * rx;
            float now = a1 + -mass1 * (dx * nx + dy * ny);
            now = now > 0.0f ? now : 0.0f;
            const float px = (now - a1) * nx, py = (now - a1) * ny;
            c->n[0][t] = now;
            B->vx[t] = vx + mass * px;
            B->vy[t] = vy + mass * py;
            B->w[t] = w + inertia * (rx * py - ry * px);
        }
    }
}

INLINE void move_bodies(body_rows *RESTRICT B, const int width)
{
    FOR_WIDTH {
        const float mx = TIME_STEP * B->vx[t], my = TIME_STEP * B->vy[t], far = mx * mx + my * my, ratio = 2.0f / sqrtf(far);
        const float vx = far > 4.0f ? ratio * B->vx[t] : B->vx[t], vy = far > 4.0f ? ratio * B->vy[t] : B->vy[t];
        const float turn = TIME_STEP * B->w[t];
        const float w = turn * turn > MAX_TURN * MAX_TURN ? B->w[t] * (MAX_TURN / fabsf(turn)) : B->w[t];
        B->vx[t] = vx, B->vy[t] = vy, B->w[t] = w;
        B->x[t] = B->x[t] + TIME_STEP * vx, B->y[t] = B->y[t] + TIME_STEP * vy, B->a[t] = B->a[t] + TIME_STEP * w;
    }
}

/* Push bodies out of the ground by one point of a row of contacts. */
INLINE void push_out_rows(const contact_rows *RESTRICT c, body_rows *RESTRICT B, const hull *h, int point,
                          const int32_t *RESTRICT open, float *RESTRICT worst, const int width)
{
    const float mass = h->inverse_mass, inertia = h->inverse_inertia, ox = h->center.x, oy = h->center.y;
    float_row sines, cosines;
    rotations(B->a, sines, cosines, width);
    FOR_WIDTH {
        const float x = B->x[t], y = B->y[t], s = sines[t], k = cosines[t];
        const float fx = x - (k * ox - s * oy), fy = y - (s * ox + k * oy); /* the frame */
        const float ux = c->face_x[t], uy = c->face_y[t], qx = c->local_x[point][t], qy = c->local_y[point][t];
        const float lx = c->plane_x[t], ly = c->plane_y[t];
        const int32_t by_body = c->by_body[t], there = open[t] & -(c->count[t] > point);
        /* the body's side of the contact, in world coordinates: the point, or the plane of the face */
        const float bx = by_body ? lx : qx, by = by_body ? ly : qy;
        const float gx = (k * bx - s * by) + fx, gy = (s * bx + k * by) + fy;
        const float nx = by_body ? k * ux - s * uy : ux, ny = by_body ? s * ux + k * uy : uy;
        const float ax = by_body ? qx : gx, ay = by_body ? qy : gy, px = by_body ? gx : lx, py = by_body ? gy : ly;
        const float separation = (((ax - px) * nx + (ay - py) * ny) - SKIN) - SKIN;
        const float mx = by_body ? -nx : nx, my = by_body ? -ny : ny, rx = ax - x, ry = ay - y;
        const float least = worst[t] < separation ? worst[t] : separation;
        float C = 0.2f * (separation + SLOP);
        C = C < 0.0f ? C : 0.0f;
        C = -MAX_CORRECTION > C ? -MAX_CORRECTION : C;
        const float turn = rx * my - ry * mx, impulse = -C / (mass + inertia * turn * turn);
        const float ix = impulse * mx, iy = impulse * my;
        worst[t] = there ? least : worst[t];
        B->x[t] = there ? x + mass * ix : x;
        B->y[t] = there ? y + mass * iy : y;
        B->a[t] = there ? B->a[t] + inertia * (rx * iy - ry * ix) : B->a[t];
    }
}

/* Bring the two bodies of a joint back into its limits, and together; keep in `okay` whether they were near enough. */
INLINE void pull_joint(const int32_t *RESTRICT limits, body_rows *RESTRICT A, body_rows *RESTRICT B, const model *m,
                       const hinge *k, const int32_t *RESTRICT open, int32_t *RESTRICT okay, const int width)
{
    const float ma = m->hulls[k->a].inverse_mass, ia = m->hulls[k->a].inverse_inertia;
    const float mb = m->hulls[k->b].inverse_mass, ib = m->hulls[k->b].inverse_inertia, motor_mass = k->motor_mass;
    const float ax = k->anchor_a.x, ay = k->anchor_a.y, bx = k->anchor_b.x, by = k->anchor_b.y;
    const float lower = k->lower, upper = k->upper, reference = k->reference;
    float_row aa, ab, sa, ca, sb, cb, angular;
    FOR_WIDTH {
        const float a = A->a[t], b = B->a[t], angle = b - a - reference, under = angle - lower, over = angle - upper;
        const int32_t limit = limits[t];
        float low = under + ANGULAR_SLOP, high = over - ANGULAR_SLOP;
        low = low < 0.0f ? low : 0.0f;
        low = -MAX_ANGULAR_CORRECTION > low ? -MAX_ANGULAR_CORRECTION : low;
        high = high < MAX_ANGULAR_CORRECTION ? high : MAX_ANGULAR_CORRECTION;
        high = 0.0f > high ? 0.0f : high;
        const float C = limit < 0 ? low : high, error = limit < 0 ? -under : over, impulse = -motor_mass * (limit ? C : 0.0f);
        angular[t] = limit ? error : 0.0f;
        aa[t] = a - ia * impulse;
        ab[t] = b + ib * impulse;
    }
    rotations(aa, sa, ca, width);
    rotations(ab, sb, cb, width);
    FOR_WIDTH {
        const float rax = ca[t] * ax - sa[t] * ay, ray = sa[t] * ax + ca[t] * ay;
        const float rbx = cb[t] * bx - sb[t] * by, rby = sb[t] * bx + cb[t] * by;
        const float cx = ((B->x[t] + rbx) - A->x[t]) - rax, cy = ((B->y[t] + rby) - A->y[t]) - ray;
        const float error = sqrtf(cx * cx + cy * cy);
        const float k11 = ma + mb + ia * ray * ray + ib * rby * rby, k12 = -ia * rax * ray - ib * rbx * rby;
        const float k22 = ma + mb + ia * rax * rax + ib * rbx * rbx, determinant = k11 * k22 - k12 * k12;
        const float det = determinant != 0.0f ? 1.0f / determinant : determinant;
        const float px = -(det * (k22 * cx - k12 * cy)), py = -(det * (k11 * cy - k12 * cx));
        const int32_t moving = open[t];
        A->x[t] = moving ? A->x[t] - ma * px : A->x[t];
        A->y[t] = moving ? A->y[t] - ma * py : A->y[t];
        A->a[t] = moving ? aa[t] - ia * (rax * py - ray * px) : A->a[t];
        B->x[t] = moving ? B->x[t] + mb * px : B->x[t];
        B->y[t] = moving ? B->y[t] + mb * py : B->y[t];
        B->a[t] = moving ? ab[t] + ib * (rbx * py - rby * px) : B->a[t];
        okay[t] &= -((error <= SLOP) & (angular[t] <= ANGULAR_SLOP));
    }
}

/* One iteration over positions; return the number of lanes that are not solved yet. */
INLINE int position_iteration(island *s, const model *m, const int width)
{
    float_row worst;
    int_row okay;
    int left = 0;
    for (int t = 0; t < width; t++)
        worst[t] = 0.0f;
    for (int32_t b = 0; b < m->num_bodies; b++)
        for (int32_t r = 0; r < s->num_rows[b]; r++) {
            const contact_rows *c = &s->contacts[b][r];
            push_out_rows(c, &s->bodies[b], &m->hulls[b], 0, s->open, worst, width);
            if (c->any_second)
                push_out_rows(c, &s->bodies[b], &m->hulls[b], 1, s->open, worst, width);
        }
    for (int t = 0; t < width; t++)
        okay[t] = -(worst[t] >= -3.0f * SLOP);
    for (int32_t j = 0; j < m->num_joints; j++) {
        const int32_t n = m->joint_order[j];
        const hinge *k = &m->hinges[n];
        pull_joint(s->joints[n].limit, &s->bodies[k->a], &s->bodies[k->b], m, k, s->open, okay, width);
    }
    for (int t = 0; t < width; t++) {
        s->open[t] &= ~okay[t];
        left += s->open[t] != 0;
    }
    return left;
}

#if WORLDS > 1
/* Solve the worlds in the first `width` lanes: all velocities, and the first EARLY_ITERATIONS over positions. */
INLINE void solve_rows(island *s, const model *m, const int width)
{
    for (int32_t b = 0; b < m->num_bodies; b++)
        for (int32_t r = 0; r < s->num_rows[b]; r++)
            warm_start_contact(&s->contacts[b][r], &s->bodies[b], &m->hulls[b], width);
    for (int32_t j = 0; j < m->num_joints; j++) {
        const int32_t n = m->joint_order[j];
        const hinge *k = &m->hinges[n];
        start_joint(&s->joints[n], &s->bodies[k->a], &s->bodies[k->b], m, k, width);
    }
    for (int turn = 0; turn < VELOCITY_ITERATIONS; turn++) {
        for (int32_t j = 0; j < m->num_joints; j++) {
            const int32_t n = m->joint_order[j];
            const hinge *k = &m->hinges[n];
            if (s->joints[n].limited)
                solve_joint(&s->joints[n], &s->bodies[k->a], &s->bodies[k->b], m, k, 1, width);
            else
                solve_joint(&s->joints[n], &s->bodies[k->a], &s->bodies[k->b], m, k, 0, width);
        }
        for (int32_t b = 0; b < m->num_bodies; b++)
            for (int32_t r = 0; r < s->num_rows[b]; r++) {
                contact_rows *c = &s->contacts[b][r];
                if (c->any_two)
                    solve_contacts(c, &s->bodies[b], &m->hulls[b], 1, width);
                else
                    solve_contacts(c, &s->bodies[b], &m->hulls[b], 0, width);
            }
    }
    for (int32_t b = 0; b < m->num_bodies; b++)
        move_bodies(&s->bodies[b], width);
    for (int tries = 0, left = 1; tries < EARLY_ITERATIONS && left; tries++)
        left = position_iteration(s, m, width);
}

/* Solve the worlds in the first n lanes. Lanes whose positions are still open afterwards need evolve_solve_late. Both
 * are functions that all tasks call, because a copy of this large code in each task would be too much. */
DISPATCH void evolve_solve_island(island *s, const model *m, int n)
{
    if (n <= LANES)
        solve_rows(s, m, LANES);
    else
        solve_rows(s, m, WORLDS);
}

/* Go on with the positions of the worlds in the first LANES lanes. */
DISPATCH void evolve_solve_late(island *s, const model *m)
{
    for (int tries = EARLY_ITERATIONS, left = 1; tries < POSITION_ITERATIONS && left; tries++)
        left = position_iteration(s, m, LANES);
}

/* Copy lane `from` of a solver, whose positions are open, into lane `to` of another one, whose later lanes are free. */
INLINE void copy_open_lane(const island *s, int from, island *late, int to, const model *m)
{
    late->open[to] = -1;
    for (int32_t b = 0; b < m->num_bodies; b++) {
        int32_t n = 0;
        late->bodies[b].x[to] = s->bodies[b].x[from];
        late->bodies[b].y[to] = s->bodies[b].y[from];
        late->bodies[b].a[to] = s->bodies[b].a[from];
        for (int32_t r = 0; r < s->num_rows[b]; r++) {
            const contact_rows *c = &s->contacts[b][r];
            contact_rows *copy = &late->contacts[b][n];
            if (!c->count[from])
                continue;
            if (n++ == late->num_rows[b]) {
                memset(copy, 0, sizeof *copy);
                late->num_rows[b]++;
            }
            copy->any_second |= c->count[from] > 1;
            copy->by_body[to] = c->by_body[from], copy->count[to] = c->count[from];
            copy->face_x[to] = c->face_x[from], copy->face_y[to] = c->face_y[from];
            copy->plane_x[to] = c->plane_x[from], copy->plane_y[to] = c->plane_y[from];
            for (int p = 0; p < 2; p++)
                copy->local_x[p][to] = c->local_x[p][from], copy->local_y[p][to] = c->local_y[p][from];
        }
    }
    for (int32_t j = 0; j < m->num_joints; j++)
        late->joints[j].limit[to] = s->joints[j].limit[from];
}
#endif
