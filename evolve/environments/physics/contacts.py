"""The contacts of worlds: pairs of a body and a piece of ground whose boxes overlap, in Box2D's order.

A body has a box that is larger than the body. When the body leaves the box, it gets another one, ahead of its motion,
and contacts with the pieces of ground there. A contact ends when its boxes no longer overlap. This is b2ContactManager
of Box2D 2.3 (Erin Catto, zlib licence), without its trees, which find the same pairs faster.

States are records of `layout.WORLD` [k], which the functions change. The model is a record of `layout.MODEL`.
"""

from typing import Any

import numpy as np

from evolve.environments.physics.frames import Frame, Rotation, frame_around, placed
from evolve.environments.physics.layout import CONTACT, MAX_BLOCKS, MAX_CONTACTS
from evolve.environments.physics.manifolds import touch_blocks, touch_edges
from evolve.environments.physics.polygons import (
    Boxes,
    boxes,
    first_vertices,
    ground_polygons,
    hull_polygons,
    overlap,
    vectors,
    widened,
)
from evolve.shapes import Float32, Int64


def contact_list(states: Any) -> tuple[Int64, Int64]:
    """Return the worlds and the places of all N contacts, [N] each, oldest first in each world."""
    worlds, places = np.nonzero(np.arange(MAX_CONTACTS) < states["num_contacts"][:, None])
    return worlds, places


def update_contacts(states: Any, model: Any) -> None:
    """Compute the manifolds of all contacts of awake bodies; end the contacts whose boxes no longer overlap."""
    worlds, places = contact_list(states)
    awake = states["body"]["awake"][worlds, states["contact"]["body"][worlds, places]] != 0
    worlds, places = worlds[awake], places[awake]
    contacts = states["contact"][worlds, places]
    bodies = states["body"][worlds, contacts["body"]]
    around = Boxes(vectors(bodies["low"]), vectors(bodies["high"]))
    ground = ground_polygons(states, model, worlds, contacts["piece"])
    together = overlap(around, widened(boxes(ground.corner)))
    found = contacts.copy()
    found["touching"] = 0
    found[together] = look_again(states, model, worlds[together], contacts[together])
    states["contact"][worlds, places] = found
    # Box2D begins with the newest contact. The last event of a body decides whether it is grounded.
    for i in np.flatnonzero(found["touching"] != contacts["touching"])[::-1]:
        note_change(states, worlds[i], found[i])
    for world in np.unique(worlds[~together]):
        ended = np.zeros(MAX_CONTACTS, np.bool_)
        ended[places[(worlds == world) & ~together]] = True
        states["contact"][world] = states["contact"][world][np.argsort(ended, kind="stable")]
        states["num_contacts"][world] -= np.count_nonzero(ended)


def look_again(states: Any, model: Any, worlds: Int64, contacts: Any) -> Any:
    """Return contacts [N] of worlds [N] with new manifolds; points of the same features keep their impulses.

    Box2D wakes a body whose contact begins or ends. All bodies that come here are awake already.
    """
    bodies = states["body"][worlds, contacts["body"]]
    frame = Frame(vectors(bodies["p"]), Rotation(bodies["sine"], bodies["cosine"]))
    hulls = hull_polygons(model["hull"][contacts["body"]])
    ground = ground_polygons(states, model, worlds, contacts["piece"])
    found = contacts.copy()
    found["enabled"] = 1
    for touch, these in ((touch_edges, ground.size == 2), (touch_blocks, ground.size == 4)):
        if not these.any():
            continue
        manifold = touch(ground.those(these), hulls.those(these), frame.those(these))
        found["count"][these], found["by_body"][these] = manifold.size, manifold.by_body
        found["normal"][these], found["local"][these] = manifold.normal.T, manifold.local.T
        found["points"][these] = manifold.points.T
    for new in range(2):
        for old in (1, 0):
            same = (contacts["count"] > old) & (contacts["points"]["id"][:, old] == found["points"]["id"][:, new])
            for impulse in ("normal_impulse", "tangent_impulse"):
                before, now = contacts["points"][impulse][:, old], found["points"][impulse]
                now[:, new] = np.where(same, before, now[:, new])
    found["touching"] = found["count"] > 0
    return found


def note_change(states: Any, world: int, contact: Any) -> None:
    """Note that a contact began or ended: for the body, and whether the first body has crashed."""
    states["body"]["grounded"][world, contact["body"]] = contact["touching"]
    if contact["body"] == 0 and contact["touching"]:
        states["crashed"][world] = 1


def wake(states: Any, bodies: Any) -> None:
    """Wake bodies, given by an index into [k, B]."""
    awake, rested = states["body"]["awake"], states["body"]["rested"]
    rested[bodies] = np.where(awake[bodies] != 0, rested[bodies], np.float32(0.0))
    awake[bodies] = 1


def seek_contacts(states: Any, model: Any) -> None:
    """Make the new contacts of bodies that have left their boxes, ordered by pieces of ground and then by bodies."""
    B = int(model["num_bodies"])
    (moving,) = np.nonzero((states["body"]["moved"][:, :B] != 0).any(axis=1))
    if not len(moving):
        return
    bodies = states["body"][moving, :B]
    low, high = (vectors(bodies[name])[:, :, None] for name in ("low", "high"))
    ground = _all_boxes(states, model, moving)
    found = overlap(Boxes(low, high), Boxes(ground.low[..., None], ground.high[..., None]))
    found &= (bodies["moved"] != 0)[:, None]
    blocks = states["num_blocks"][moving]
    found[:, :MAX_BLOCKS] &= (np.arange(MAX_BLOCKS) < blocks[:, None])[..., None]
    for row, column, body in np.argwhere(found):
        world = moving[row]
        count = states["num_contacts"][world]
        piece = column if column < MAX_BLOCKS else column - MAX_BLOCKS + blocks[row]
        there = states["contact"][world, :count]
        if count == MAX_CONTACTS or ((there["piece"] == piece) & (there["body"] == body)).any():
            continue
        contact = np.zeros((), CONTACT)
        contact["piece"], contact["body"], contact["enabled"] = piece, body, 1
        states["contact"][world, count] = contact
        states["num_contacts"][world] += 1
        wake(states, (world, body))
    states["body"]["moved"][moving, :B] = 0


def _all_boxes(states: Any, model: Any, worlds: Int64) -> Boxes:
    """Return the boxes [2, n, P] of all ground of worlds [n]: first MAX_BLOCKS blocks, then the edges."""
    first = first_vertices(model, np.arange(model["num_edges"]))
    height = states["height"][worlds]
    x = np.broadcast_to(model["x"], height.shape)
    edges = np.stack([np.array((x[:, i], height[:, i])) for i in (first, first + 1)], axis=1)
    blocks = np.moveaxis(states["block"]["corner"][worlds], (3, 2), (0, 1))
    both = [widened(boxes(corners)) for corners in (blocks, edges)]
    low, high = (np.concatenate(parts, axis=2) for parts in zip(*both, strict=True))
    return Boxes(low, high)


def follow_bodies(states: Any, model: Any, which: slice = slice(None)) -> None:
    """Give new boxes to the bodies that have left theirs; `which` selects bodies."""
    hulls = model["hull"][: model["num_bodies"]][which]
    bodies = states["body"][:, : model["num_bodies"]][:, which]
    corner = hull_polygons(hulls).corner[:, :, None]
    old = frame_around(vectors(bodies["c0"]), bodies["a0"], vectors(hulls["center"])[:, None])
    now = Frame(vectors(bodies["p"]), Rotation(bodies["sine"], bodies["cosine"]))
    before, after = (boxes(placed(frame.spread(), corner)) for frame in (old, now))
    swept = Boxes(np.minimum(before.low, after.low), np.maximum(before.high, after.high))
    low, high = vectors(bodies["low"]), vectors(bodies["high"])
    inside = (low <= swept.low).all(axis=0) & (swept.high <= high).all(axis=0)
    ahead = np.float32(2.0) * (now.p - old.p)
    wide = widened(swept)
    new = Boxes(np.where(ahead < 0, wide.low + ahead, wide.low), np.where(ahead < 0, wide.high, wide.high + ahead))
    bodies["low"], bodies["high"] = _kept(inside, low, new.low), _kept(inside, high, new.high)
    bodies["moved"] = np.where(inside, bodies["moved"], 1)


def _kept(inside: Any, box: Float32, new: Float32) -> Float32:
    """Return the corners [..., 2] of boxes: the old ones [2, ...] of bodies inside, else the new ones."""
    return np.moveaxis(np.where(inside, box, new), 0, -1)
