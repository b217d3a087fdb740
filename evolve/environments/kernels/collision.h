/* Collision: manifolds of bodies and pieces of ground, and contacts, which are pairs of these whose boxes overlap. */
#pragma once
#include "bodies.h"

/* The id of a contact point, in the order of b2ContactID: the indices of the two features that meet there, and for each
 * feature 1 if it is a face, 0 if it is a corner. */
#define FEATURES(index_a, index_b, face_a, face_b) \
    ((uint32_t)(index_a) | (uint32_t)(index_b) << 8 | (uint32_t)(face_a) << 16 | (uint32_t)(face_b) << 24)

typedef struct { vec v; uint32_t id; } clip_point;

INLINE uint32_t features_swapped(uint32_t id) { return FEATURES(id >> 8 & 255, id & 255, id >> 24 & 255, id >> 16 & 255); }

/* Clip a line to the part behind another line (Sutherland and Hodgman, 1974); return the number of its ends. */
INLINE int clip_behind(clip_point *out, const clip_point *in, vec normal, float offset, int32_t corner)
{
    int n = 0;
    const float d0 = dot(normal, in[0].v) - offset, d1 = dot(normal, in[1].v) - offset;
    if (d0 <= 0.0f)
        out[n++] = in[0];
    if (d1 <= 0.0f)
        out[n++] = in[1];
    if (d0 * d1 < 0.0f && n < 2) {
        out[n].v = plus(in[0].v, times(d0 / (d0 - d1), minus(in[1].v, in[0].v)));
        out[n].id = FEATURES(corner, in[0].id >> 8 & 255, 0, 1);
        n++;
    }
    return n;
}

/* Keep a point of a manifold that lies near the reference face. */
INLINE void keep_point(contact *c, clip_point p, frame f)
{
    contact_point *kept = &c->points[c->count++];
    kept->local = c->by_body ? p.v : placed_back(f, p.v);
    kept->id = c->by_body ? features_swapped(p.id) : p.id;
}

/* An edge without neighbours, and a body: b2EPCollider. */
INLINE void touch_edge(contact *c, vec v1, vec v2, const hull *h, frame f)
{
    const float radius = 2.0f * SKIN;
    const vec along = unit(minus(v2, v1)), right = right_of(along);
    const int front = dot(right, minus(placed(f, h->centroid), v1)) >= 0.0f;
    const vec normal = front ? right : negative(right), limit = negative(normal);
    vec v[MAX_CORNERS], n[MAX_CORNERS];
    for (int32_t i = 0; i < h->count; i++) {
        v[i] = placed(f, h->corner[i]);
        n[i] = turned(f.q, h->normal[i]);
    }
    float edge_separation = LARGEST;
    for (int32_t i = 0; i < h->count; i++)
        edge_separation = lesser(dot(normal, minus(v[i], v1)), edge_separation);
    if (edge_separation > radius)
        return;
    float separation = -LARGEST;
    int32_t face = -1;
    for (int32_t i = 0; i < h->count; i++) {
        const vec inward = negative(n[i]);
        const float s = lesser(dot(inward, minus(v[i], v1)), dot(inward, minus(v[i], v2)));
        if (s > radius)
            return;
        if (dot(minus(inward, limit), normal) >= -ANGULAR_SLOP && s > separation) {
            separation = s;
            face = i;
        }
    }
    clip_point in[2], half[2], out[2];
    int32_t i1, i2;
    vec r1, r2, reference; /* the reference face */
    c->by_body = face >= 0 && separation > 0.98f * edge_separation + 0.001f;
    if (c->by_body) {
        in[0].v = v1;
        in[1].v = v2;
        in[0].id = in[1].id = FEATURES(0, face, 0, 1);
        i1 = face;
        i2 = face + 1 < h->count ? face + 1 : 0;
        r1 = v[i1];
        r2 = v[i2];
        reference = n[i1];
    } else {
        int32_t best = 0;
        for (int32_t i = 1; i < h->count; i++)
            best = dot(normal, n[i]) < dot(normal, n[best]) ? i : best;
        const int32_t next = best + 1 < h->count ? best + 1 : 0;
        in[0].v = v[best];
        in[0].id = FEATURES(0, best, 1, 0);
        in[1].v = v[next];
        in[1].id = FEATURES(0, next, 1, 0);
        i1 = !front;
        i2 = front;
        r1 = front ? v1 : v2;
        r2 = front ? v2 : v1;
        reference = normal;
    }
    const vec side = right_of(reference);
    if (clip_behind(half, in, side, dot(side, r1), i1) < 2)
        return;
    if (clip_behind(out, half, negative(side), dot(negative(side), r2), i2) < 2)
        return;
    c->normal = c->by_body ? h->normal[i1] : reference;
    c->local = c->by_body ? h->corner[i1] : r1;
    for (int i = 0; i < 2; i++)
        if (dot(reference, minus(out[i].v, r1)) <= radius)
            keep_point(c, out[i], f);
}

/* A polygon in its frame. */
typedef struct { int32_t count; const vec *corner, *normal; frame f; vec centroid; } polygon;

/* How far polygon 2 is beyond a face of polygon 1. */
INLINE float face_separation(const polygon *one, int32_t face, const polygon *two)
{
    const vec n = turned(one->f.q, one->normal[face]), local = turned_back(two->f.q, n);
    int32_t deepest = 0;
    float least = LARGEST;
    for (int32_t i = 0; i < two->count; i++) {
        const float d = dot(two->corner[i], local);
        deepest = d < least ? i : deepest;
        least = lesser(d, least);
    }
    return dot(minus(placed(two->f, two->corner[deepest]), placed(one->f, one->corner[face])), n);
}

/* The face of polygon 1 beyond which polygon 2 is farthest, sought from the face that points to it. */
INLINE float best_face(const polygon *one, const polygon *two, int32_t *face)
{
    const int32_t count = one->count;
    const vec d = turned_back(one->f.q, minus(placed(two->f, two->centroid), placed(one->f, one->centroid)));
    int32_t toward = 0; /* the face that points to polygon 2 */
    float most = -LARGEST;
    for (int32_t i = 0; i < count; i++) {
        const float x = dot(one->normal[i], d);
        toward = x > most ? i : toward;
        most = greater(x, most);
    }
    const int32_t before = toward > 0 ? toward - 1 : count - 1, after = toward + 1 < count ? toward + 1 : 0;
    const float here = face_separation(one, toward, two), back = face_separation(one, before, two);
    const float forth = face_separation(one, after, two);
    *face = toward;
    if (!(back > here && back > forth) && !(forth > here))
        return here;
    const int backwards = back > here && back > forth;
    float best = backwards ? back : forth;
    *face = backwards ? before : after;
    for (int32_t i = 0; i < count; i++) {
        const int32_t next = backwards ? (*face > 0 ? *face - 1 : count - 1) : *face + 1 < count ? *face + 1 : 0;
        const float x = face_separation(one, next, two);
        if (!(x > best))
            break;
        best = x;
        *face = next;
    }
    return best;
}

/* A block and a body: b2CollidePolygons. */
INLINE void touch_block(contact *c, const ground *g, const hull *h, frame f)
{
    const float radius = 2.0f * SKIN;
    polygon still, moving;
    still.count = g->count;
    still.corner = g->corner;
    still.normal = g->normal;
    still.centroid = g->centroid;
    still.f.p = vector(0.0f, 0.0f);
    still.f.q.s = 0.0f;
    still.f.q.c = 1.0f;
    moving.count = h->count;
    moving.corner = h->corner;
    moving.normal = h->normal;
    moving.centroid = h->centroid;
    moving.f = f;
    int32_t face_a, face_b;
    const float a = best_face(&still, &moving, &face_a);
    if (a > radius)
        return;
    const float b = best_face(&moving, &still, &face_b);
    if (b > radius)
        return;
    c->by_body = b > 0.98f * a + 0.001f;
    const polygon *one = c->by_body ? &moving : &still, *two = c->by_body ? &still : &moving;
    const int32_t face = c->by_body ? face_b : face_a, next = face + 1 < one->count ? face + 1 : 0;
    const vec n = turned_back(two->f.q, turned(one->f.q, one->normal[face]));
    int32_t i1 = 0;
    float least = LARGEST;
    for (int32_t i = 0; i < two->count; i++) {
        const float d = dot(n, two->normal[i]);
        i1 = d < least ? i : i1;
        least = lesser(d, least);
    }
    const int32_t i2 = i1 + 1 < two->count ? i1 + 1 : 0;
    clip_point in[2], half[2], out[2];
    in[0].v = placed(two->f, two->corner[i1]);
    in[0].id = FEATURES(face, i1, 1, 0);
    in[1].v = placed(two->f, two->corner[i2]);
    in[1].id = FEATURES(face, i2, 1, 0);
    const vec v1 = one->corner[face], v2 = one->corner[next], along = unit(minus(v2, v1));
    const vec tangent = turned(one->f.q, along), normal = right_of(tangent);
    const vec r1 = placed(one->f, v1), r2 = placed(one->f, v2);
    if (clip_behind(half, in, negative(tangent), -dot(tangent, r1) + radius, face) < 2)
        return;
    if (clip_behind(out, half, tangent, dot(tangent, r2) + radius, next) < 2)
        return;
    c->normal = right_of(along);
    c->local = times(0.5f, plus(v1, v2));
    for (int i = 0; i < 2; i++)
        if (dot(normal, out[i].v) - dot(normal, r1) <= radius)
            keep_point(c, out[i], f);
}

/* Look again whether a contact touches; its points keep the impulses that points of the same features had. */
ONCE_ON_DEVICE void update_contact(world *w, const model *m, contact *c)
{
    contact_point old[2];
    const int32_t old_count = c->count;
    body *b = &w->bodies[c->body];
    ground g;
    old[0] = c->points[0];
    old[1] = c->points[1];
    find_ground(w, m, c->piece, &g);
    c->enabled = 1;
    c->count = 0;
    if (g.count == 2)
        touch_edge(c, g.corner[0], g.corner[1], &m->hulls[c->body], frame_of(b));
    else
        touch_block(c, &g, &m->hulls[c->body], frame_of(b));
    for (int32_t i = 0; i < c->count; i++) {
        contact_point *p = &c->points[i];
        p->normal_impulse = p->tangent_impulse = 0.0f;
        for (int32_t j = old_count - 1; j >= 0; j--)
            if (old[j].id == p->id) {
                p->normal_impulse = old[j].normal_impulse;
                p->tangent_impulse = old[j].tangent_impulse;
            }
    }
    const int32_t touching = c->count > 0;
    if (touching != c->touching) {
        wake(b);
        b->grounded = touching;
        w->crashed |= touching & (c->body == 0);
    }
    c->touching = touching;
}

/* Whether a body has a contact with a piece of ground. */
INLINE int is_contact(const world *w, int32_t piece, int32_t which)
{
    int found = 0;
    for (int32_t i = 0; i < w->num_contacts; i++)
        found |= w->contacts[i].piece == piece && w->contacts[i].body == which;
    return found;
}

INLINE void seek_contacts_with(world *w, const model *m, int32_t piece)
{
    ground g;
    find_ground(w, m, piece, &g);
    const box around = box_of_ground(&g);
    for (int32_t b = 0; b < m->num_bodies; b++) {
        const body *moved = &w->bodies[b];
        if (!moved->moved || !overlap(moved->low, moved->high, &around) || is_contact(w, piece, b))
            continue;
        if (w->num_contacts == MAX_CONTACTS)
            return;
        contact *c = &w->contacts[w->num_contacts++];
        memset(c, 0, sizeof *c);
        c->piece = piece;
        c->body = b;
        c->enabled = 1;
        wake(&w->bodies[b]);
    }
}

/* Make contacts of the bodies that have left their boxes: by pieces of ground, then by bodies, as Box2D sorts its pairs. */
ONCE_ON_DEVICE void seek_contacts(world *w, const model *m)
{
    float low = LARGEST, high = -LARGEST;
    for (int32_t b = 0; b < m->num_bodies; b++)
        if (w->bodies[b].moved) {
            low = lesser(low, w->bodies[b].low.x);
            high = greater(high, w->bodies[b].high.x);
        }
    if (low > high)
        return;
    for (int32_t k = 0; k < w->num_blocks; k++)
        seek_contacts_with(w, m, k);
    int32_t first = 0, last = m->num_edges - 1;
    if (m->spacing > 0.0f) {
        const float left = within(low / m->spacing, 0.0f, 1e6f), right = within(high / m->spacing, 0.0f, 1e6f);
        first = (int32_t)left > 2 ? (int32_t)left - 2 : 0;
        last = (int32_t)right + 2 < last ? (int32_t)right + 2 : last;
    }
    for (int32_t e = first; e <= last; e++)
        seek_contacts_with(w, m, w->num_blocks + e);
    for (int32_t b = 0; b < m->num_bodies; b++)
        w->bodies[b].moved = 0;
}

/* Enlarge the box of a body that has left it, ahead of its motion. */
INLINE void follow_body(body *b, const hull *h)
{
    const frame old = frame_around(b->c0, b->a0, h->center), now = frame_of(b);
    const box r0 = box_of(h->corner, h->count, old), r1 = box_of(h->corner, h->count, now);
    box r;
    r.low = vector(lesser(r0.low.x, r1.low.x), lesser(r0.low.y, r1.low.y));
    r.high = vector(greater(r0.high.x, r1.high.x), greater(r0.high.y, r1.high.y));
    if (b->low.x <= r.low.x && b->low.y <= r.low.y && r.high.x <= b->high.x && r.high.y <= b->high.y)
        return;
    const vec ahead = times(2.0f, minus(now.p, old.p));
    widen(&r);
    b->low = vector(ahead.x < 0.0f ? r.low.x + ahead.x : r.low.x, ahead.y < 0.0f ? r.low.y + ahead.y : r.low.y);
    b->high = vector(ahead.x < 0.0f ? r.high.x : r.high.x + ahead.x, ahead.y < 0.0f ? r.high.y : r.high.y + ahead.y);
    b->moved = 1;
}

INLINE void remove_contact(world *w, int32_t i)
{
    const contact *c = &w->contacts[i];
    body *b = &w->bodies[c->body];
    if (c->touching)
        b->grounded = 0;
    if (c->count > 0)
        wake(b);
    w->num_contacts--;
    for (int32_t k = i; k < w->num_contacts; k++)
        w->contacts[k] = w->contacts[k + 1];
}

/* Update all contacts, the newest first. A contact ends if its boxes no longer overlap. */
INLINE void update_contacts(world *w, const model *m)
{
    for (int32_t i = w->num_contacts - 1; i >= 0; i--) {
        const body *b = &w->bodies[w->contacts[i].body];
        ground g;
        if (!b->awake)
            continue;
        find_ground(w, m, w->contacts[i].piece, &g);
        const box around = box_of_ground(&g);
        if (overlap(b->low, b->high, &around))
            update_contact(w, m, &w->contacts[i]);
        else
            remove_contact(w, i);
    }
}
