"""Contacts: pairs of a body and a piece of ground, and the points at which the two touch.

The arithmetic is Box2D's: b2CollideEdgeAndPolygon, b2CollidePolygons and b2ContactManager. A contact begins when the
boxes of body and ground overlap (broad phase). The points at which the two touch, at most two, form the *manifold* of
the contact. The *reference face* of a manifold is a face of the body or of the ground: in general the face with the
largest separation, the distance of the other polygon from the line of the face. The points are the ends of a face of
the other polygon, clipped by the sides of the reference face.

`world` calls these functions in each step. `states` are records of `frames.WORLD` [k], and `model` is a record of
`frames.MODEL`. The place of a contact is its index in the list of contacts of its world.
"""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from evolve.environments.physics import frames, polygons
from evolve.environments.physics.frames import Frame, Rotation, dot, placed, right_of, turned, turned_back
from evolve.environments.physics.polygons import Boxes, Polygons, vectors
from evolve.shapes import Bool, Float32, Int64

RADIUS = np.float32(2.0) * frames.SKIN
"""Polygons touch if their distance is at most RADIUS, the sum of the thicknesses of their skins."""
# The reference face is the ground's, unless the separation along the body's face exceeds this share of the separation
# along the ground's face plus this offset. So the reference face seldom changes (k_relativeTol and k_absoluteTol).
_RELATIVE, _ABSOLUTE = np.float32(0.98), np.float32(0.001)


class _End(NamedTuple):
    """One end of each of N line segments. The segments are faces that are clipped.

    v: [2, N], the position of the end. index_a, index_b, face_a, face_b: [N], the two features that meet at the end, as
    in b2ContactID: their numbers, and 1 for a face or 0 for a corner. The features serve to recognize the same point in
    the next step.
    """

    v: Float32
    index_a: Any
    index_b: Any
    face_a: Any
    face_b: Any


def touch_edges(ground: Polygons, bodies: Polygons, frame: Frame) -> Any:
    """Return the manifolds [N] of N edges in `ground` and N bodies with their frames (b2EPCollider)."""
    v1, v2 = ground.corner[:, 0], ground.corner[:, 1]
    right = right_of(frames.unit(v2 - v1))
    # Whether the body is on the right of the edge from v1 to v2. The normal of the edge points to the body.
    front = dot(right, placed(frame, bodies.centroid) - v1) >= 0
    normal = np.where(front, right, -right)
    corner, outward = placed(frame.per_corner(), bodies.corner), turned(frame.q, bodies.normal)
    inward = -outward

    # The separation along a face: the signed distance of the other polygon's nearest corner from the line of the face.
    # The body's face with the largest separation may become the reference face. Box2D's test of angles (`usable`)
    # excludes faces only if an edge knows its neighbours. No edge does here, so the test has no effect. It stays, so
    # that this code follows Box2D and the kernel.
    edge_separation = dot(normal[:, None], corner - v1[:, None]).min(axis=0)
    face_separations = np.minimum(dot(inward, corner - v1[:, None]), dot(inward, corner - v2[:, None]))
    # Box2D returns early if a separation is larger than RADIUS. Here the last lines of the function use `near` to drop
    # the points.
    near = (edge_separation <= RADIUS) & (face_separations <= RADIUS).all(axis=0)
    usable = dot(inward + normal[:, None], normal[:, None]) >= -frames.ANGULAR_SLOP
    face_separations = np.where(usable, face_separations, -frames.LARGEST)
    face = face_separations.argmax(axis=0)
    by_body = usable.any(axis=0) & (_at(face_separations, face) > _RELATIVE * edge_separation + _ABSOLUTE)

    # If the reference face is the body's, clip the edge by the sides of this face. Otherwise clip the body's nearest
    # face by the sides of the edge. The reference face goes from r1 to r2, the corners number i1 and i2. The body has
    # to be on the right of an edge. So an edge goes from v1 to v2 if `front`, otherwise from v2 to v1.
    # The first feature of each end is the edge itself, number 0. The second is a face or a corner of the body.
    zero, one_if_body = np.zeros_like(face), by_body.astype(np.int64)
    nearest = dot(normal[:, None], outward).argmin(axis=0)
    face_end, nearest_end = _after(face, bodies.size), _after(nearest, bodies.size)
    ends = [
        _End(np.where(by_body, v, _at(corner, n)), zero, np.where(by_body, face, n), 1 - one_if_body, one_if_body)
        for v, n in ((v1, nearest), (v2, nearest_end))
    ]
    i1, i2 = np.where(by_body, face, 1 - front), np.where(by_body, face_end, front)
    r1 = np.where(by_body, _at(corner, face), np.where(front, v1, v2))
    r2 = np.where(by_body, _at(corner, face_end), np.where(front, v2, v1))
    reference = np.where(by_body, _at(outward, face), normal)
    side = right_of(reference)
    ends, beyond_first = _clip(ends, side, dot(side, r1), i1)
    ends, before_second = _clip(ends, -side, dot(-side, r2), i2)
    valid = [near & beyond_first & before_second & (dot(reference, end.v - r1) <= RADIUS) for end in ends]
    local_normal = np.where(by_body, _at(bodies.normal, face), reference)
    return _manifolds(ends, valid, by_body, local_normal, np.where(by_body, _at(bodies.corner, face), r1), frame)


def touch_blocks(ground: Polygons, bodies: Polygons, frame: Frame) -> Any:
    """Return the manifolds [N] of N blocks in `ground` and N bodies with their frames (b2CollidePolygons)."""
    zero = np.zeros_like(frame.q.s)
    # The corners of blocks are world coordinates, so the frame of a block is the identity.
    still = Frame(np.zeros_like(frame.p), Rotation(zero, zero + 1))
    # `_choose_arrays` selects between blocks and bodies, so both need the same number of corners.
    blocks = _padded(ground)
    block_face, block_separation = _best_faces(blocks, still, bodies, frame)
    body_face, body_separation = _best_faces(bodies, frame, blocks, still)
    # Polygon 1, with the frame f1, has the reference face. Polygon 2 is the other one.
    by_body = body_separation > _RELATIVE * block_separation + _ABSOLUTE
    one, two = _choose_arrays(by_body, bodies, blocks), _choose_arrays(by_body, blocks, bodies)
    f1, f2 = _choose_arrays(by_body, frame, still), _choose_arrays(by_body, still, frame)
    face = np.where(by_body, body_face, block_face)

    # Choose the face of polygon 2 that is most opposite to the reference face. Clip it by the sides of the reference
    # face.
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
    near = (block_separation <= RADIUS) & (body_separation <= RADIUS)
    valid = [near & beyond_first & before_second & (dot(normal, end.v) - dot(normal, r1) <= RADIUS) for end in ends]
    return _manifolds(ends, valid, by_body, right_of(along), np.float32(0.5) * (v1 + v2), frame)


def _best_faces(one: Polygons, f1: Frame, two: Polygons, f2: Frame) -> tuple[Int64, Float32]:
    """Return the face of each polygon 1 with the largest separation from polygon 2, and the separation, [N] each.

    f1 and f2 are the frames of the polygons. As in Box2D (b2FindMaxSeparation), the search starts at the face that
    points to the centroid of polygon 2, and climbs to neighbours of larger separation. It may end at a local maximum.
    """
    # The separation of each face [C, N]: the signed distance of the corner of polygon 2 that is nearest to it.
    outward = turned(f1.q, one.normal)
    local = turned_back(f2.q, outward)
    deepest = dot(two.corner[:, None], local[:, :, None]).argmin(axis=1)
    corner, other_corner = placed(f1.per_corner(), one.corner), placed(f2.per_corner(), two.corner)
    rows = np.arange(len(one.size))
    separation = dot(other_corner[:, deepest, rows] - corner, outward)

    # Choose one direction around the polygon, then climb in this direction while the separation grows.
    d = turned_back(f1.q, placed(f2, two.centroid) - placed(f1, one.centroid))
    face = dot(one.normal, d[:, None]).argmax(axis=0)
    best, back, forth = (_at(separation, i) for i in (face, _before(face, one.size), _after(face, one.size)))
    backwards = (back > best) & (back > forth)
    climbing = backwards | (forth > best)
    # The separation grows with each move, so no face is visited twice, and these rounds are enough.
    for _ in range(frames.MAX_CORNERS + 1):
        following = np.where(backwards, _before(face, one.size), _after(face, one.size))
        following_separation = _at(separation, following)
        climbing &= following_separation > best
        face, best = np.where(climbing, following, face), np.where(climbing, following_separation, best)
    return face, best


def _clip(ends: list[_End], normal: Float32, offset: frames.Number, corner: Int64) -> tuple[list[_End], Bool]:
    """Clip N segments to the half-planes dot(normal, v) <= offset; return the new ends, and whether they exist, [N].

    If one end is cut off, the other end comes first. The second end is then the point in which the segment crosses the
    side of the reference face at `corner`.
    """
    d0, d1 = (dot(normal, end.v) - offset for end in ends)
    whole = (d0 <= 0) & (d1 <= 0)
    crossing = d0 * d1 < 0
    cut = ends[0].v + (d0 / (d0 - d1)) * (ends[1].v - ends[0].v)
    # As in Box2D, the second feature is the feature of the first end, whichever end was cut off.
    cut_end = _End(cut, corner, ends[0].index_b, np.zeros_like(corner), np.ones_like(corner))
    first, second = _choose_arrays(d0 <= 0, *ends), _choose_arrays(whole, ends[1], cut_end)
    return [first, second], whole | crossing


def _manifolds(
    ends: list[_End], valid: list[Bool], by_body: Bool, normal: Float32, local: Float32, frame: Frame
) -> Any:
    """Return manifolds: records of `frames.CONTACT` [N], in which only the fields of the manifold are set.

    Args:
        ends: The two ends of the clipped faces.
        valid: For each end whether it becomes a point of the manifold, [N].
        by_body: [N], whether the reference face is a face of the body.
        normal: [2, N], the normal of the reference face, in the frame of its polygon.
        local: [2, N], a point on the reference face, in the frame of its polygon.
        frame: The frames of the bodies.
    """
    manifolds = np.zeros(len(by_body), frames.CONTACT)
    manifolds["count"], manifolds["by_body"] = np.add(*valid, dtype=np.int64), by_body
    manifolds["normal"], manifolds["local"] = normal.T, local.T
    points = manifolds["points"].T
    for point, end in zip(points, ends, strict=True):
        point["local"] = np.where(by_body, end.v, frames.placed_back(frame, end.v)).T
        # As in Box2D, swap the two features of an ID if the reference face is the body's.
        a, b = np.where(by_body, end.index_b, end.index_a), np.where(by_body, end.index_a, end.index_b)
        face_a, face_b = np.where(by_body, end.face_b, end.face_a), np.where(by_body, end.face_a, end.face_b)
        point["id"] = a | b << 8 | face_a << 16 | face_b << 24
    # If only the second end is valid, it is the first and only point.
    points[0] = np.where(valid[0], points[0], points[1])
    return manifolds


def _padded(shapes: Polygons) -> Polygons:
    """Return polygons with MAX_CORNERS corners, as bodies have: their first corner and face fill the other places."""
    place = [*range(shapes.corner.shape[1]), *[0] * (frames.MAX_CORNERS - shapes.corner.shape[1])]
    return shapes._replace(corner=shapes.corner[:, place], normal=shapes.normal[:, place])


def _choose_arrays(condition: Bool, one: Any, other: Any) -> Any:
    """Return np.where(condition, one, other) of each array of two polygons, two frames or two ends."""
    if isinstance(one, tuple):
        return type(one)(*(_choose_arrays(condition, a, b) for a, b in zip(one, other, strict=True)))
    return np.where(condition, one, other)


def _at(corners: Float32, index: Int64) -> Float32:
    """Return the entries [..., N] of an array [..., C, N] at one corner, or face, of each polygon. index: [N]."""
    return corners[..., index, np.arange(len(index))]


def _after(corner: Int64, count: Int64) -> Int64:
    """Return the number of the next corner of polygons with `count` corners; 0 after the last one."""
    return np.where(corner + 1 < count, corner + 1, 0)


def _before(corner: Int64, count: Int64) -> Int64:
    """Return the number of the previous corner of polygons with `count` corners; the last one before 0."""
    return np.where(corner > 0, corner, count) - 1


def contact_list(states: Any) -> tuple[Int64, Int64]:
    """Return the worlds and the places of all N contacts, [N] each; of each world, the oldest contact comes first."""
    worlds, places = np.nonzero(np.arange(frames.MAX_CONTACTS) < states["num_contacts"][:, None])
    return worlds, places


def update_contacts(states: Any, model: Any) -> None:
    """Compute the manifolds of all contacts of awake bodies. End each contact with boxes that no longer overlap."""
    worlds, places = contact_list(states)
    awake = states["body"]["awake"][worlds, states["contact"]["body"][worlds, places]] != 0
    worlds, places = worlds[awake], places[awake]
    contacts = states["contact"][worlds, places]
    bodies = states["body"][worlds, contacts["body"]]
    around = Boxes(vectors(bodies["low"]), vectors(bodies["high"]))
    ground = polygons.ground_polygons(states, model, worlds, contacts["piece"])
    overlapping = polygons.overlap(around, polygons.widened(polygons.boxes(ground.corner)))
    updated = contacts.copy()
    updated["touching"] = 0  # stays 0 if the boxes no longer overlap
    updated[overlapping] = compute_manifolds(states, model, worlds[overlapping], contacts[overlapping])
    states["contact"][worlds, places] = updated
    # The order counts, because the last change of a body's contacts decides whether the body is grounded. As in Box2D,
    # the newest contact comes first.
    for i in np.flatnonzero(updated["touching"] != contacts["touching"])[::-1]:
        report_change(states, worlds[i], updated[i])
    # Move ended contacts behind the remaining contacts, which keep their order.
    for world in np.unique(worlds[~overlapping]):
        ended = np.zeros(frames.MAX_CONTACTS, np.bool_)
        ended[places[(worlds == world) & ~overlapping]] = True
        states["contact"][world] = states["contact"][world][np.argsort(ended, kind="stable")]
        states["num_contacts"][world] -= np.count_nonzero(ended)


def compute_manifolds(states: Any, model: Any, worlds: Int64, contacts: Any) -> Any:
    """Return contacts [N] of worlds [N] with new manifolds. A point of the same features as before keeps its impulses.

    Box2D wakes a body when one of its contacts begins or ends. Here all bodies are awake already.
    """
    bodies = states["body"][worlds, contacts["body"]]
    frame = Frame(vectors(bodies["p"]), Rotation(bodies["sine"], bodies["cosine"]))
    hulls = polygons.hull_polygons(model["hull"][contacts["body"]])
    ground = polygons.ground_polygons(states, model, worlds, contacts["piece"])
    updated = contacts.copy()
    # `world._Impacts` disables a contact that has no point at the time of impact. This update enables it again.
    updated["enabled"] = 1
    for touch, selected in ((touch_edges, ground.size == 2), (touch_blocks, ground.size == 4)):
        if not selected.any():
            continue
        manifolds = touch(ground.select(selected), hulls.select(selected), frame.select(selected))
        for name in ("count", "by_body", "normal", "local", "points"):
            updated[name][selected] = manifolds[name]
    # In Box2D the first old point with the same features counts. So here the first one comes last, and overwrites.
    for new in range(2):
        for old in (1, 0):
            same = (contacts["count"] > old) & (contacts["points"]["id"][:, old] == updated["points"]["id"][:, new])
            for impulse in ("normal_impulse", "tangent_impulse"):
                before, now = contacts["points"][impulse][:, old], updated["points"][impulse]
                now[:, new] = np.where(same, before, now[:, new])
    updated["touching"] = updated["count"] > 0
    return updated


def report_change(states: Any, world: int, contact: Any) -> None:
    """Record that a contact began or ended, as Gymnasium's listeners do: set `grounded`, and `crashed` for body 0."""
    states["body"]["grounded"][world, contact["body"]] = contact["touching"]
    if contact["body"] == 0 and contact["touching"]:
        states["crashed"][world] = 1


def wake(states: Any, bodies: Any) -> None:
    """Wake bodies (b2Body::SetAwake). A body that is awake keeps its time at rest. bodies: An index into [k, B]."""
    awake, rested = states["body"]["awake"], states["body"]["rested"]
    rested[bodies] = np.where(awake[bodies] != 0, rested[bodies], np.float32(0.0))
    awake[bodies] = 1


def seek_contacts(states: Any, model: Any) -> None:
    """Add the new contacts of bodies with new boxes (`moved`) to the worlds (b2ContactManager::FindNewContacts)."""
    records = states["body"][:, : model["num_bodies"]]
    moved = records["moved"] != 0
    # List all pieces of ground of the worlds in which a body has a new box.
    num_pieces = np.where(moved.any(axis=1), states["num_blocks"] + model["num_edges"], 0)
    worlds, pieces = np.nonzero(np.arange(num_pieces.max(initial=0)) < num_pieces[:, None])
    ground = polygons.widened(polygons.boxes(polygons.ground_polygons(states, model, worlds, pieces).corner))
    around = Boxes(*(vectors(records[name][worlds]) for name in ("low", "high")))
    overlapping = polygons.overlap(around, Boxes(ground.low[..., None], ground.high[..., None])) & moved[worlds]
    # `argwhere` sorts by piece, then by body, as Box2D sorts new pairs. The solver's order of contacts follows from it.
    for row, body in np.argwhere(overlapping):
        world, piece = worlds[row], pieces[row]
        count = states["num_contacts"][world]
        present = states["contact"][world, :count]
        if count == frames.MAX_CONTACTS or ((present["piece"] == piece) & (present["body"] == body)).any():
            continue
        contact = np.zeros((), frames.CONTACT)
        contact["piece"], contact["body"], contact["enabled"] = piece, body, 1
        states["contact"][world, count] = contact
        states["num_contacts"][world] += 1
        wake(states, (world, body))
    records["moved"] = 0


def follow_bodies(states: Any, model: Any, which: slice = slice(None)) -> None:
    """Give new, enlarged boxes to the bodies `which` if they no longer fit into their boxes (b2Fixture::Synchronize).

    The boxes of the broad phase are larger than the bodies, so slow bodies seldom need new boxes.
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
    fits = (low <= swept.low).all(axis=0) & (swept.high <= high).all(axis=0)
    ahead = np.float32(2.0) * (now.p - old.p)  # Box2D adds twice the last movement (b2_aabbMultiplier)
    wide = polygons.widened(swept)
    new = Boxes(np.where(ahead < 0, wide.low + ahead, wide.low), np.where(ahead < 0, wide.high, wide.high + ahead))
    bodies["low"] = np.moveaxis(np.where(fits, low, new.low), 0, -1)
    bodies["high"] = np.moveaxis(np.where(fits, high, new.high), 0, -1)
    bodies["moved"] = np.where(fits, bodies["moved"], 1)


def touching_rows(states: Any) -> tuple[Int64, Int64, Int64]:
    """Return the worlds, places and rows, [N] each, of the N contacts that touch.

    A row is the number of the contact among the contacts of its body, the newest first. If a body has more than
    MAX_TOUCHING contacts, the oldest are left out.
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
    used = rows < frames.MAX_TOUCHING
    return worlds[used], places[used], rows[used]
