/* Rigid bodies in float32: vectors, frames, and the records of worlds and models; environments/physics/ is the definition.
 *
 * The algorithms, and the order of their operations, come from Box2D 2.3 (Erin Catto, zlib licence): sequential
 * impulses with warm starting (Catto, 2006) and continuous collision by conservative advancement (Catto, 2013), so that
 * worlds move as Gymnasium's do, to the bit. Bodies collide with the ground only, which lies still in its own frame.
 *
 * Work on a single world is written without lanes, as functions of ONE_WORLD. On a CPU such functions are built for the
 * baseline instruction set, and without gcc's vectorizer. In spite of -ffp-contract=off, the vectorizer turns rotations
 * into fused multiply-adds if the processor has them: vfmaddsub (gcc 12.2, x86-64), fcmla (gcc 12 to 14, ARM64).
 *
 * NVRTC needs seconds for every thousand lines. So for a device, a long function with several callers is
 * ONCE_ON_DEVICE, which means that it is not inlined, and long loops are ROLLED, which means that they are not
 * unrolled. gcc decides for itself. WORLDS worlds are solved together. A call of a task steps a crowd of worlds, at
 * most LARGEST_CROWD. */
#pragma once
#include "exact.h"
#include "pcg64.h"

#ifdef __CUDACC__
#define ONE_WORLD __device__ static __noinline__
#define ONCE_ON_DEVICE ONE_WORLD
#define WORLDS 1
#define LARGEST_CROWD 1
#define CROWD_OF(task) 1
#define FIRST_WORLD(task, call) ((call) * WIDTH + LANE)
#else
#ifdef __clang__
#define ONE_WORLD static __attribute__((noinline))
#else
#define ONE_WORLD static __attribute__((noinline, optimize("no-tree-vectorize")))
#endif
#define ONCE_ON_DEVICE INLINE
#define WORLDS (2 * LANES)
#define LARGEST_CROWD (8 * WORLDS)
#define CROWD_OF(task) (task)->crowd
#define FIRST_WORLD(task, call) ((call) * (task)->crowd)
#endif

#define MAX_BODIES 5
#define MAX_JOINTS 4
#define MAX_CORNERS 6
#define MAX_CONTACTS 64
#define MAX_TOUCHING 8
#define MAX_BLOCKS 40
#define MAX_HEIGHTS 200
#define MAX_PARAMETERS 10

/* Box2D's settings; lengths in meters. */
#define SLOP 0.005f                                   /* how far bodies may sink in */
#define SKIN (2.0f * SLOP)                            /* of every polygon and edge */
#define PI_SINGLE 3.14159265359f
#define ANGULAR_SLOP (2.0f / 180.0f * PI_SINGLE)
#define MAX_CORRECTION 0.2f
#define MAX_ANGULAR_CORRECTION (8.0f / 180.0f * PI_SINGLE)
#define MAX_TURN (0.5f * PI_SINGLE)                  /* of a body in a step */
#define MARGIN 0.1f                                   /* of the boxes of the broad phase */
#define SECONDS_TO_SLEEP 0.5f
#define VELOCITY_ITERATIONS 180
#define POSITION_ITERATIONS 60
#define EARLY_ITERATIONS 2                            /* after which most worlds need no more */
#define TIME_STEP ((float)(1.0 / 50))
#define LARGEST 3.402823466e38f
#define SMALLEST 1.1920928955078125e-7f               /* FLT_EPSILON */

typedef struct { float x, y; } vec;
typedef struct { float s, c; } rotation;
typedef struct { vec p; rotation q; } frame;

INLINE vec vector(float x, float y)
{
    vec v;
    v.x = x;
    v.y = y;
    return v;
}
INLINE vec plus(vec a, vec b) { return vector(a.x + b.x, a.y + b.y); }
INLINE vec minus(vec a, vec b) { return vector(a.x - b.x, a.y - b.y); }
INLINE vec negative(vec a) { return vector(-a.x, -a.y); }
INLINE vec times(float s, vec a) { return vector(s * a.x, s * a.y); }
INLINE float dot(vec a, vec b) { return a.x * b.x + a.y * b.y; }
INLINE float cross(vec a, vec b) { return a.x * b.y - a.y * b.x; }
INLINE vec turning(float w, vec r) { return vector(-w * r.y, w * r.x); } /* the velocity at r of a body that turns */
INLINE vec right_of(vec a) { return vector(a.y, -a.x); }
INLINE float length(vec a) { return sqrtf(a.x * a.x + a.y * a.y); }
INLINE float lesser(float a, float b) { return a < b ? a : b; }
INLINE float greater(float a, float b) { return a > b ? a : b; }
INLINE float within(float a, float low, float high) { return greater(low, lesser(a, high)); }
INLINE vec unit(vec a)
{
    const float size = length(a);
    return size < SMALLEST ? a : times(1.0f / size, a);
}

INLINE vec turned(rotation q, vec v) { return vector(q.c * v.x - q.s * v.y, q.s * v.x + q.c * v.y); }
INLINE vec turned_back(rotation q, vec v) { return vector(q.c * v.x + q.s * v.y, -q.s * v.x + q.c * v.y); }
INLINE vec placed(frame f, vec v)
{
    return vector((f.q.c * v.x - f.q.s * v.y) + f.p.x, (f.q.s * v.x + f.q.c * v.y) + f.p.y);
}
INLINE vec placed_back(frame f, vec v) { return turned_back(f.q, minus(v, f.p)); }

/* Sine and cosine as the C library of GNU has computed sinf and cosf since 2.28: short polynomials in double, rounded once.
 * The angle is n quarter turns and r. */
#define FAR_ANGLE 187.0f
INLINE rotation rotation_in_quarter(int32_t n, double r)
{
    const double z = r * r, zz = z * z;
    const double y = (n + 1) & 2 ? -r : r, z1 = y * z;
    const double sine = (y + z1 * -0x1.555545995a603p-3) + (z1 * z) * (0x1.1107605230bc4p-7 + z * -0x1.994eb3774cf24p-13);
    const double cosine = ((1.0 + z * -0x1.ffffffd0c621cp-2) + zz * 0x1.55553e1068f19p-5) +
                          (zz * z) * (-0x1.6c087e89a359dp-10 + z * 0x1.99343027bf8c3p-16);
    const double flipped = n & 2 ? -cosine : cosine;
    rotation q;
    q.s = (float)(n & 1 ? flipped : sine);
    q.c = (float)(n & 1 ? sine : flipped);
    return q;
}

/* For |a| < FAR_ANGLE: 2^24 times the number of quarter turns fits in 32 bits. */
INLINE rotation rotation_near(float a)
{
    const double x = a;
    const int32_t n = ((int32_t)(x * 0x1.45f306dc9c883p+23) + 0x800000) >> 24;
    return rotation_in_quarter(n, x - n * 0x1.921fb54442d18p0);
}

/* For |a| < 1e9 right to 1e-7: whole turns are counted apart. The last bit may differ from that of the C library. Beyond, the
 * result is equal everywhere, but no rotation; no body gets there. */
INLINE rotation rotation_far(float a)
{
    const double x = a, all = x * 0x1.45f306dc9c883p+23, turns = (all * 0x1p-26 + 0x1.8p52) - 0x1.8p52;
    const double units = all - turns * 0x1p26, fits = units > -2e9 && units < 2e9 ? units : 0.0; /* 0 for a NaN, too */
    const int32_t n = ((int32_t)fits + 0x800000) >> 24;
    return rotation_in_quarter(n, x - (n + 4.0 * turns) * 0x1.921fb54442d18p0);
}

INLINE rotation rotation_of(float a) { return a > -FAR_ANGLE && a < FAR_ANGLE ? rotation_near(a) : rotation_far(a); }

/* The records of environments/physics/frames.py, which describes their fields. */
typedef struct {
    vec c, c0, v, force, low, high, p;
    rotation q;
    float a, a0, alpha0, w, torque, rested, friction[2];
    int32_t awake, moved, grounded;
} body;

typedef struct {
    vec impulse;
    float limit_impulse, motor_impulse, speed, torque;
    int32_t limit;
} joint;

typedef struct { vec local; float normal_impulse, tangent_impulse; uint32_t id; } contact_point;

typedef struct {
    int32_t piece, body, touching, enabled, impact_known, impacts;
    float impact;
    int32_t by_body, count;
    vec normal, local;
    contact_point points[2];
} contact;

typedef struct { vec corner[4], normal[4], centroid; } block;

typedef struct {
    pcg64 generator;
    double shaping;
    double parameter[MAX_PARAMETERS];
    int32_t fresh, crashed, num_contacts, num_blocks, wind, turbulence;
    float gravity;
    body bodies[MAX_BODIES];
    joint joints[MAX_JOINTS];
    float height[MAX_HEIGHTS];
    contact contacts[MAX_CONTACTS];
    block blocks[MAX_BLOCKS];
} world;

typedef struct {
    int32_t count;
    float inverse_mass, inverse_inertia, friction[2], reach;
    vec center, centroid, corner[MAX_CORNERS], normal[MAX_CORNERS], p;
    float a;
} hull;

typedef struct {
    int32_t a, b;
    vec anchor_a, anchor_b;
    float reference, lower, upper, motor_mass, speed, torque;
} hinge;

typedef struct {
    double option[4];
    int32_t num_bodies, num_joints, num_edges, base, body_order[MAX_BODIES], joint_order[MAX_JOINTS];
    float spacing, gravity;
    int32_t flag;
    hull hulls[MAX_BODIES];
    hinge hinges[MAX_JOINTS];
    float x[MAX_HEIGHTS];
} model;

INLINE frame frame_of(const body *b)
{
    frame f;
    f.p = b->p;
    f.q = b->q;
    return f;
}

/* The frame of a body whose center of mass is at c. */
INLINE frame frame_around(vec c, float a, vec center)
{
    frame f;
    f.q = rotation_of(a);
    f.p = minus(c, turned(f.q, center));
    return f;
}

INLINE void set_frame(body *b, const hull *h)
{
    const frame f = frame_around(b->c, b->a, h->center);
    b->p = f.p;
    b->q = f.q;
}

INLINE void wake(body *b)
{
    b->rested = b->awake ? b->rested : 0.0f;
    b->awake = 1;
}

/* The box around a body, and around a piece of ground. Boxes that touch overlap. */
typedef struct { vec low, high; } box;

INLINE box box_of(const vec *corners, int32_t count, frame f)
{
    vec low = placed(f, corners[0]), high = low;
    for (int32_t i = 1; i < count; i++) {
        const vec v = placed(f, corners[i]);
        low = vector(lesser(low.x, v.x), lesser(low.y, v.y));
        high = vector(greater(high.x, v.x), greater(high.y, v.y));
    }
    box r;
    r.low = vector(low.x - SKIN, low.y - SKIN);
    r.high = vector(high.x + SKIN, high.y + SKIN);
    return r;
}

INLINE void widen(box *r)
{
    r->low = vector(r->low.x - MARGIN, r->low.y - MARGIN);
    r->high = vector(r->high.x + MARGIN, r->high.y + MARGIN);
}

/* A piece of ground: a block, or an edge from corner 0 to corner 1. */
typedef struct { int32_t count; const vec *corner, *normal; vec centroid, ends[2]; } ground;

INLINE void find_ground(const world *w, const model *m, int32_t piece, ground *g)
{
    const int32_t edge = piece - w->num_blocks;
    if (edge < 0) {
        const block *k = &w->blocks[piece];
        g->count = 4;
        g->corner = k->corner;
        g->normal = k->normal;
        g->centroid = k->centroid;
    } else {
        const int32_t first = edge < m->base ? 2 * edge : edge + m->base;
        g->count = 2;
        g->ends[0] = vector(m->x[first], w->height[first]);
        g->ends[1] = vector(m->x[first + 1], w->height[first + 1]);
        g->corner = g->ends;
        g->normal = 0;
    }
}

INLINE box box_of_ground(const ground *g)
{
    vec low = g->corner[0], high = low;
    for (int32_t i = 1; i < g->count; i++) {
        low = vector(lesser(low.x, g->corner[i].x), lesser(low.y, g->corner[i].y));
        high = vector(greater(high.x, g->corner[i].x), greater(high.y, g->corner[i].y));
    }
    box r;
    r.low = vector(low.x - SKIN, low.y - SKIN);
    r.high = vector(high.x + SKIN, high.y + SKIN);
    widen(&r);
    return r;
}

INLINE int overlap(vec low, vec high, const box *r)
{
    return !(low.x - r->high.x > 0.0f || low.y - r->high.y > 0.0f || r->low.x - high.x > 0.0f || r->low.y - high.y > 0.0f);
}
