"""Contacts: pairs of a body and a piece of ground, and the points at which the two touch.

The arithmetic is Box2D's: b2CollideEdgeAndPolygon, b2CollidePolygons and b2ContactManager. The points of a contact, at
most two, form its *manifold*. The *reference face* of a manifold is a face of the body or of the ground: in general the
face from whose line the other polygon is farthest away. The points are the ends of a face of the other polygon, clipped
by the sides of the reference face.
"""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from evolve.environments.physics import frames, polygons
from evolve.environments.physics.frames import Frame, Rotation, dot, placed, right_of, turned, turned_back
from evolve.environments.physics.polygons import Boxes, Polygons, vectors
from evolve.shapes import Bool, Float32, Int64

RADIUS = np.float32(2.0) * frames.SKIN
"""Polygons touch if their distance is at most this, the sum of the thicknesses of their skins."""
# The reference face is the ground's, unless the separation along the body's face exceeds this share of the separation
# along the ground's face plus this offset. So the reference face seldom changes (k_relativeTol and k_absoluteTol).
_RELATIVE, _ABSOLUTE = np.float32(0.98), np.float32(0.001)


class _End(NamedTuple):
    """One end of N line segments, which are faces that are clipped.

    v: [2, N], its position. index_a, index_b, face_a, face_b: [N], the two features that meet there, as in b2ContactID:
    their numbers, and 1 for a face or 0 for a corner. They only serve to find the same point in the next step.
    """

    v: Float32
    index_a: Any
    index_b: Any
    face_a: Any
    face_b: Any


def touch_edges(ground: Polygons, bodies: Polygons, frame: Frame) -> Any:
    """Return the manifolds [N] of pairs of an edge, in `ground`, and a body with its frame (b2EPCollider)."""
    v1, v2 = ground.corner[:, 0], ground.corner[:, 1]
    right = right_of(frames.unit(v2 - v1))
    front = dot(right, placed(frame, bodies.centroid) - v1) >= 0
    normal = np.where(front, right, -right)
    corner, outward = placed(frame.per_corner(), bodies.corner), turned(frame.q, bodies.normal)
    inward = -outward

    # The separation along a face: the signed distance of the other polygon's nearest corner from the line of the face.
    # The body's face with the largest separation may become the reference face. Box2D's test of angles (`usable`)
    # excludes faces only if an edge knows its neighbours. No edge does here, so the test has no effect. It stays, so
    # that this code follows Box2D and the kernel.
    of_edge = dot(normal[:, None], corner - v1[:, None]).min(axis=0)
    of_faces = np.minimum(dot(inward, corner - v1[:, None]), dot(inward, corner - v2[:, None]))
    # Box2D returns early if a separation is larger than RADIUS. Here the last lines of the function use `near` to drop
    # the points.
    near = (of_edge <= RADIUS) & (of_faces <= RADIUS).all(axis=0)
    usable = dot(inward + normal[:, None], normal[:, None]) >= -frames.ANGULAR_SLOP
    of_faces = np.where(usable, of_faces, -frames.LARGEST)
    face = of_faces.argmax(axis=0)
    by_body = usable.any(axis=0) & (_at(of_faces, face) > _RELATIVE * of_edge + _ABSOLUTE)

    # If the reference face is the body's, clip the edge by the sides of this face. Otherwise clip the body's nearest
    # face by the sides of the edge. The reference face goes from r1 to r2, the corners number i1 and i2. The body has
    # to be on the right of an edge. So an edge goes from v1 to v2 if `front`, otherwise from v2 to v1.
    zero, of_body = np.zeros_like(face), by_body.astype(np.int64)
    nearest = dot(normal[:, None], outward).argmin(axis=0)
    face_end, nearest_end = _after(face, bodies.size), _after(nearest, bodies.size)
    ends = [
        _End(np.where(by_body, v, _at(corner, n)), zero, np.where(by_body, face, n), 1 - of_body, of_body)
        for v, n in ((v1, nearest), (v2, nearest_end))
    ]
    i1, i2 = np.where(by_body, face, 1 - front), np.where(by_body, face_end, front)
    r1 = np.where(by_body, _at(corner, face), np.where(front, v1, v2))
    r2 = np.where(by_body, _at(corner, face_end), np.where(front, v2, v1))
    reference = np.where(by_body, _at(outward, face), normal)
    side = right_of(reference)
    ends, beyond_first = _clip(ends, side, dot(side, r1), i1)
    ends, before_second = _clip(ends, -side, dot(-side, r2), i2)
    kept = [near & beyond_first & before_second & (dot(reference, end.v - r1) <= RADIUS) for end in ends]
    local_normal = np.where(by_body, _at(bodies.normal, face), reference)
    return _manifolds(ends, kept, by_body, local_normal, np.where(by_body, _at(bodies.corner, face), r1), frame)


def touch_blocks(ground: Polygons, bodies: Polygons, frame: Frame) -> Any:
    """Return the manifolds [N] of pairs of a block, in `ground`, and a body with its frame (b2CollidePolygons)."""
    zero = np.zeros_like(frame.q.s)
    # The corners of blocks are world coordinates, so the frame of a block is the identity.
    still = Frame(np.zeros_like(frame.p), Rotation(zero, zero + 1))
    # `_choose` selects between blocks and bodies, so both need the same number of corners.
    blocks = _padded(ground)
    face_a, of_blocks = _best_faces(blocks, still, bodies, frame)
    face_b, of_bodies = _best_faces(bodies, frame, blocks, still)
    by_body = of_bodies > _RELATIVE * of_blocks + _ABSOLUTE
    one, two = _choose(by_body, bodies, blocks), _choose(by_body, blocks, bodies)
    f1, f2 = _choose(by_body, frame, still), _choose(by_body, still, frame)
    face = np.where(by_body, face_b, face_a)

    # Polygon 1 has the reference face, polygon 2 is the other one. Choose the face of polygon 2 whose normal is most
    # opposite to the normal of the reference face. Clip this face by the sides of the reference face.
    n = turned_back(f2.q, turned(f1.q, _at(one.normal, face)))
    nearest = dot(n[:, None], two.normal).argmin(axis=0)
    ends = [
        _End(placed(f2, _at(two.corner, i)), face, i, np.ones_like(face), np.zeros_like(face))
        for i in (nearest, _after(nearest, two.size))
    ]
    after = _after(face, one.size)
    v1, v2 = _at(one.corner, face), _at(one.corner, after)
    along = frames.unit(v2 - v1)
    tangent = turned(f1.q, along)
    normal = right_of(tangent)
    r1, r2 = placed(f1, v1), placed(f1, v2)
    # Unlike the sides in `touch_edges`, these sides lie RADIUS farther out, as in b2CollidePolygons.
    ends, beyond_first = _clip(ends, -tangent, -dot(tangent, r1) + RADIUS, face)
    ends, before_second = _clip(ends, tangent, dot(tangent, r2) + RADIUS, after)
    near = (of_blocks <= RADIUS) & (of_bodies <= RADIUS)
    kept = [near & beyond_first & before_second & (dot(normal, end.v) - dot(normal, r1) <= RADIUS) for end in ends]
    return _manifolds(ends, kept, by_body, right_of(along), np.float32(0.5) * (v1 + v2), frame)


def _best_faces(one: Polygons, f1: Frame, two: Polygons, f2: Frame) -> tuple[Int64, Float32]:
    """Return the face of each polygon 1 with the largest separation from polygon 2, and the separation, [N] each.

    Box2D (b2FindMaxSeparation) starts at the face that points to the centroid of polygon 2, and climbs to neighbours of
    larger separation. It may end at a local maximum.
    """
    # The separation of each face [C, N]: the signed distance of the corner of polygon 2 that is nearest to it.
    outward = turned(f1.q, one.normal)
    local = turned_back(f2.q, outward)
    deepest = dot(two.corner[:, None], local[:, :, None]).argmin(axis=1)
    corner, other_corner = placed(f1.per_corner(), one.corner), placed(f2.per_corner(), two.corner)
    rows = np.arange(len(one.size))
    separation = dot(other_corner[:, deepest, rows] - corner, outward)

    # Choose the direction of the climb, then climb in it while the separation grows.
    d = turned_back(f1.q, placed(f2, two.centroid) - placed(f1, one.centroid))
    face = dot(one.normal, d[:, None]).argmax(axis=0)
    before, after = _before(face, one.size), _after(face, one.size)
    here, back, forth = (_at(separation, i) for i in (face, before, after))
    backwards = (back > here) & (back > forth)
    climbing = backwards | (forth > here)
    best = here
    # The separation grows with each move, so no face is visited twice, and these rounds are enough.
    for _ in range(frames.MAX_CORNERS + 1):
        following = np.where(backwards, _before(face, one.size), _after(face, one.size))
        found = _at(separation, following)
        climbing &= found > best
        face, best = np.where(climbing, following, face), np.where(climbing, found, best)
    return face, best


def _clip(ends: list[_End], normal: Float32, offset: frames.Number, corner: Int64) -> tuple[list[_End], Bool]:
    """Clip N segments to the half-planes dot(normal, v) <= offset; return the new ends, and whether they exist, [N].

    If one end is cut off, the end that is left comes first. The second end is then the point in which the segment
    crosses the side of the reference face at `corner`.
    """
    d0, d1 = (dot(normal, end.v) - offset for end in ends)
    whole = (d0 <= 0) & (d1 <= 0)
    crossing = d0 * d1 < 0
    cut = ends[0].v + (d0 / (d0 - d1)) * (ends[1].v - ends[0].v)
    # As in Box2D, the second feature is the first end's, whichever end was cut off.
    new = _End(cut, corner, ends[0].index_b, np.zeros_like(corner), np.ones_like(corner))
    first = _End(*(np.where(d0 <= 0, a, b) for a, b in zip(*ends, strict=True)))
    second = _End(*(np.where(whole, a, b) for a, b in zip(ends[1], new, strict=True)))
    return [first, second], whole | crossing


def _manifolds(ends: list[_End], kept: list[Bool], by_body: Bool, normal: Float32, local: Float32, frame: Frame) -> Any:
    """Return the manifolds with the kept ends as points: records of `frames.CONTACT` [N] without their other fields."""
    manifolds = np.zeros(len(by_body), frames.CONTACT)
    manifolds["count"], manifolds["by_body"] = np.add(*kept, dtype=np.int64), by_body
    manifolds["normal"], manifolds["local"] = normal.T, local.T
    points = manifolds["points"].T
    for point, end in zip(points, ends, strict=True):
        point["local"] = np.where(by_body, end.v, frames.placed_back(frame, end.v)).T
        # Like Box2D, swap the two features of an ID if the reference face is the body's.
        a, b = np.where(by_body, end.index_b, end.index_a), np.where(by_body, end.index_a, end.index_b)
        face_a, face_b = np.where(by_body, end.face_b, end.face_a), np.where(by_body, end.face_a, end.face_b)
        point["id"] = a | b << 8 | face_a << 16 | face_b << 24
    # If only the second end is kept, it is the first and only point.
    points[0] = np.where(kept[0], points[0], points[1])
    return manifolds


def _padded(shapes: Polygons) -> Polygons:
    """Return polygons with MAX_CORNERS corners, as bodies have: their first corner and face fill the other places."""
    place = [*range(shapes.corner.shape[1]), *[0] * (frames.MAX_CORNERS - shapes.corner.shape[1])]
    return shapes._replace(corner=shapes.corner[:, place], normal=shapes.normal[:, place])


def _choose(condition: Bool, one: Any, other: Any) -> Any:
    """Return np.where(condition, one, other) of each array of two polygons or two frames."""
    if isinstance(one, tuple):
        return type(one)(*(_choose(condition, a, b) for a, b in zip(one, other, strict=True)))
    return np.where(condition, one, other)


def _at(corners: Float32, index: Int64) -> Float32:
    """Return the entries [..., N] of an array [..., C, N] at one corner of each polygon."""
    return corners[..., index, np.arange(len(index))]


def _after(corner: Int64, count: Int64) -> Int64:
    return np.where(corner + 1 < count, corner + 1, 0)


def _before(corner: Int64, count: Int64) -> Int64:
    return np.where(corner > 0, corner, count) - 1


def contact_list(states: Any) -> tuple[Int64, Int64]:
    """Return the worlds and the places of all N contacts, [N] each, oldest first in each world."""
    worlds, places = np.nonzero(np.arange(frames.MAX_CONTACTS) < states["num_contacts"][:, None])
    return worlds, places


def update_contacts(states: Any, model: Any) -> None:
    """Compute the manifolds of all contacts of awake bodies; end the contacts whose boxes no longer overlap."""
    worlds, places = contact_list(states)
    awake = states["body"]["awake"][worlds, states["contact"]["body"][worlds, places]] != 0
    worlds, places = worlds[awake], places[awake]
    contacts = states["contact"][worlds, places]
    bodies = states["body"][worlds, contacts["body"]]
    around = Boxes(vectors(bodies["low"]), vectors(bodies["high"]))
    ground = polygons.ground_polygons(states, model, worlds, contacts["piece"])
    overlapping = polygons.overlap(around, polygons.widened(polygons.boxes(ground.corner)))
    found = contacts.copy()
    # A contact whose boxes no longer overlap stops touching.
    found["touching"] = 0
    found[overlapping] = compute_manifolds(states, model, worlds[overlapping], contacts[overlapping])
    states["contact"][worlds, places] = found
    # As in Box2D, the newest contact comes first: the last event of a body decides whether it is grounded.
    for i in np.flatnonzero(found["touching"] != contacts["touching"])[::-1]:
        report_change(states, worlds[i], found[i])
    # Move ended contacts behind the remaining contacts, which keep their order.
    for world in np.unique(worlds[~overlapping]):
        ended = np.zeros(frames.MAX_CONTACTS, np.bool_)
        ended[places[(worlds == world) & ~overlapping]] = True
        states["contact"][world] = states["contact"][world][np.argsort(ended, kind="stable")]
        states["num_contacts"][world] -= np.count_nonzero(ended)


def compute_manifolds(states: Any, model: Any, worlds: Int64, contacts: Any) -> Any:
    """Return contacts [N] of worlds [N] with new manifolds; points of the same features keep their impulses.

    Box2D wakes a body when a contact of it begins or ends. Here all bodies are awake already.
    """
    bodies = states["body"][worlds, contacts["body"]]
    frame = Frame(vectors(bodies["p"]), Rotation(bodies["sine"], bodies["cosine"]))
    hulls = polygons.hull_polygons(model["hull"][contacts["body"]])
    ground = polygons.ground_polygons(states, model, worlds, contacts["piece"])
    found = contacts.copy()
    # `world._Impacts` disables a contact whose manifold has no point at the time of impact. This update enables it.
    found["enabled"] = 1
    for touch, these in ((touch_edges, ground.size == 2), (touch_blocks, ground.size == 4)):
        if not these.any():
            continue
        manifolds = touch(ground.select(these), hulls.select(these), frame.select(these))
        for name in ("count", "by_body", "normal", "local", "points"):
            found[name][these] = manifolds[name]
    # In Box2D the first old point with the same features counts. So here the first one comes last, and overwrites.
    for new in range(2):
        for old in (1, 0):
            same = (contacts["count"] > old) & (contacts["points"]["id"][:, old] == found["points"]["id"][:, new])
            for impulse in ("normal_impulse", "tangent_impulse"):
                before, now = contacts["points"][impulse][:, old], found["points"][impulse]
                now[:, new] = np.where(same, before, now[:, new])
    found["touching"] = found["count"] > 0
    return found


def report_change(states: Any, world: int, contact: Any) -> None:
    """Record that a contact began or ended, as Gymnasium's listeners do: set `grounded`, and `crashed` for body 0."""
    states["body"]["grounded"][world, contact["body"]] = contact["touching"]
    if contact["body"] == 0 and contact["touching"]:
        states["crashed"][world] = 1


def wake(states: Any, bodies: Any) -> None:
    """Wake bodies at an index into [k, bodies]. A body that is awake keeps its time at rest (b2Body::SetAwake)."""
    awake, rested = states["body"]["awake"], states["body"]["rested"]
    rested[bodies] = np.where(awake[bodies] != 0, rested[bodies], np.float32(0.0))
    awake[bodies] = 1


def seek_contacts(states: Any, model: Any) -> None:
    """Make the new contacts of bodies with new boxes (`moved`), ordered by pieces of ground and then by bodies."""
    records = states["body"][:, : model["num_bodies"]]
    moved = records["moved"] != 0
    # All pieces of ground of the worlds in which a body has a new box.
    num_pieces = np.where(moved.any(axis=1), states["num_blocks"] + model["num_edges"], 0)
    worlds, pieces = np.nonzero(np.arange(num_pieces.max(initial=0)) < num_pieces[:, None])
    ground = polygons.widened(polygons.boxes(polygons.ground_polygons(states, model, worlds, pieces).corner))
    around = Boxes(*(vectors(records[name][worlds]) for name in ("low", "high")))
    found = polygons.overlap(around, Boxes(ground.low[..., None], ground.high[..., None])) & moved[worlds]
    # `argwhere` sorts by piece, then by body, as Box2D sorts new pairs. The solver's order of contacts follows from it.
    for row, body in np.argwhere(found):
        world, piece = worlds[row], pieces[row]
        count = states["num_contacts"][world]
        known = states["contact"][world, :count]
        if count == frames.MAX_CONTACTS or ((known["piece"] == piece) & (known["body"] == body)).any():
            continue
        contact = np.zeros((), frames.CONTACT)
        contact["piece"], contact["body"], contact["enabled"] = piece, body, 1
        states["contact"][world, count] = contact
        states["num_contacts"][world] += 1
        wake(states, (world, body))
    records["moved"] = 0


def follow_bodies(states: Any, model: Any, which: slice = slice(None)) -> None:
    """Give new, enlarged boxes to bodies that no longer fit into their boxes; `which` selects bodies.

    The boxes of the broad phase are larger than the bodies, so that slow bodies seldom need new ones.
    """
    hulls = model["hull"][: model["num_bodies"]][which]
    bodies = states["body"][:, : model["num_bodies"]][:, which]
    corner = polygons.hull_polygons(hulls).corner[:, :, None]
    # The box has to contain the body at both ends of its motion, which begins at c0 and a0.
    old = frames.frame_around(vectors(bodies["c0"]), bodies["a0"], vectors(hulls["center"])[:, None])
    now = Frame(vectors(bodies["p"]), Rotation(bodies["sine"], bodies["cosine"]))
    before, after = (polygons.boxes(placed(frame.per_corner(), corner)) for frame in (old, now))
    swept = Boxes(np.minimum(before.low, after.low), np.maximum(before.high, after.high))
    low, high = vectors(bodies["low"]), vectors(bodies["high"])
    inside = (low <= swept.low).all(axis=0) & (swept.high <= high).all(axis=0)
    ahead = np.float32(2.0) * (now.p - old.p)  # Box2D adds twice the last movement (b2_aabbMultiplier)
    wide = polygons.widened(swept)
    new = Boxes(np.where(ahead < 0, wide.low + ahead, wide.low), np.where(ahead < 0, wide.high, wide.high + ahead))
    bodies["low"], bodies["high"] = _old_if_inside(inside, low, new.low), _old_if_inside(inside, high, new.high)
    bodies["moved"] = np.where(inside, bodies["moved"], 1)


def _old_if_inside(inside: Any, box: Float32, new: Float32) -> Float32:
    """Return corners of boxes, [..., 2]: the old corners [2, ...] if the body fits into its box, else the new ones."""
    return np.moveaxis(np.where(inside, box, new), 0, -1)


def touching_rows(states: Any) -> tuple[Int64, Int64, Int64]:
    """Return the worlds, places and rows [N] of the contacts that touch.

    Rows number the contacts of a body, the newest first. The oldest beyond MAX_TOUCHING are left out.
    """
    worlds, places = contact_list(states)
    contacts = states["contact"][worlds, places]
    touching = (contacts["touching"] != 0) & (contacts["enabled"] != 0)
    worlds, places, bodies = (index[touching][::-1] for index in (worlds, places, contacts["body"]))
    rows = np.zeros_like(worlds)
    counts: Counter[tuple[int, int]] = Counter()
    for i, body in enumerate(zip(worlds.tolist(), bodies.tolist(), strict=True)):
        rows[i] = counts[body]
        counts[body] += 1
    seen = rows < frames.MAX_TOUCHING
    return worlds[seen], places[seen], rows[seen]
