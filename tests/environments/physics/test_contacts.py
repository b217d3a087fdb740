"""Contacts of a world: pairs whose boxes overlap, in the order in which they began."""

import numpy as np
import pytest
from rigid_bodies import Worlds, model_of

from evolve.environments.physics import contacts
from evolve.environments.physics.frames import CONTACT, MAX_CONTACTS
from evolve.environments.physics.polygons import Boxes, boxes, ground_polygons, overlap, vectors, widened
from evolve.environments.physics.world import step_worlds


def overlapping(states, world, model):
    """Return the pairs of a piece of ground and a body whose boxes overlap, in order."""
    pieces = np.arange(states["num_blocks"][world] + model["num_edges"])
    ground = widened(boxes(ground_polygons(states, model, np.full_like(pieces, world), pieces).corner))
    bodies = states["body"][world, : model["num_bodies"]]
    low, high = (vectors(bodies[name])[:, None] for name in ("low", "high"))
    found = overlap(Boxes(ground.low[..., None], ground.high[..., None]), Boxes(low, high))
    return [tuple(pair) for pair in np.argwhere(found).tolist()]


def listed(states, world):
    found = states["contact"][world, : states["num_contacts"][world]]
    return list(zip(found["piece"].tolist(), found["body"].tolist(), strict=True))


@pytest.fixture(scope="module")
def thrown():
    worlds = Worlds("BipedalWalkerHardcore-v3", [3, 20, 31])
    worlds.throw(1.0, key=2)
    return worlds.states


def test_all_pairs_that_overlap_are_contacts(thrown):
    states, model = thrown.copy(), model_of("BipedalWalkerHardcore-v3")
    for _ in range(4):
        step_worlds(states, model)
        for world in range(len(states)):
            known = listed(states, world)
            assert len(set(known)) == len(known)
            assert set(overlapping(states, world, model)) <= set(known)
        contacts.update_contacts(states, model)
        for world in range(len(states)):
            assert set(listed(states, world)) == set(overlapping(states, world, model))


def test_new_contacts_are_sorted_and_come_after_the_old(thrown):
    states, model = thrown.copy(), model_of("BipedalWalkerHardcore-v3")
    before = [listed(states, world) for world in range(len(states))]
    states["body"]["low"] -= 1
    states["body"]["high"] += 1
    states["body"]["moved"] = 1
    states["body"]["awake"], states["body"]["rested"] = 0, 0.3
    contacts.seek_contacts(states, model)
    for world, old in enumerate(before):
        now = listed(states, world)
        assert now == old + [pair for pair in overlapping(states, world, model) if pair not in old]
        woken = {body for _, body in now[len(old) :]}
        assert woken
        for body, record in enumerate(states["body"][world]):
            assert (record["awake"], record["rested"]) == ((1, 0) if body in woken else (0, np.float32(0.3)))
    assert not states["body"]["moved"].any()


def test_a_world_has_room_for_so_many_contacts_and_no_more(thrown):
    states, model = thrown.copy(), model_of("BipedalWalkerHardcore-v3")
    states["body"]["low"], states["body"]["high"], states["body"]["moved"] = -1000, 1000, 1
    contacts.seek_contacts(states, model)
    assert (states["num_contacts"] == MAX_CONTACTS).all()


def test_ends_and_begins_are_noted_in_box2ds_order(thrown):
    """The newest contact is looked at first, so the oldest one has the last word."""
    states, model = thrown[:1].copy(), model_of("BipedalWalkerHardcore-v3")
    states["num_contacts"], states["contact"] = 3, np.zeros((), CONTACT)
    states["contact"]["body"][0, :3] = 2, 4, 2
    states["contact"]["piece"][0, :3] = 190, 191, 190  # far away: they end
    states["contact"]["touching"][0, :3] = 1, 0, 0
    states["body"]["grounded"] = 1
    contacts.update_contacts(states, model)
    assert states["num_contacts"][0] == 0
    assert states["body"]["grounded"][0].tolist() == [1, 1, 0, 1, 1]
    contacts.report_change(states, 0, np.array((0, 0, 1), [("piece", "i4"), ("body", "i4"), ("touching", "i4")]))
    assert states["crashed"][0] == 1


def test_points_of_the_same_features_keep_their_impulses():
    states, model = Worlds("BipedalWalker-v3", range(4)).states, model_of()
    worlds, places = contacts.contact_list(states)
    before = states["contact"][worlds, places]
    before = before[before["count"] == 2]
    worlds = worlds[states["contact"]["count"][worlds, places] == 2]
    before["points"]["normal_impulse"] = 1, 2
    now = contacts.compute_manifolds(states, model, worlds, before)
    assert len(now)
    for old, new in zip(before, now, strict=True):
        one, two = old["points"]["id"].tolist()
        impulses = {two: 2} | {one: 1}  # of points with one name, the first counts
        for point in new["points"][: new["count"]]:
            assert point["normal_impulse"] == impulses.get(int(point["id"]), 0)


def test_a_body_gets_a_box_ahead_of_its_motion(thrown):
    states, model = thrown.copy(), model_of()
    states["body"]["c0"], states["body"]["a0"] = states["body"]["c"], states["body"]["a"]
    states["body"]["moved"] = 0
    before = states["body"].copy()
    contacts.follow_bodies(states, model)
    assert (states["body"] == before).all()
    states["body"]["c0"][..., 0] -= 3
    contacts.follow_bodies(states, model, slice(1, 3))
    assert states["body"]["moved"].tolist() == [[0, 1, 1, 0, 0]] * 3
    moved, old = states["body"][:, 1:3], before[:, 1:3]
    assert (moved["low"][..., 0] < old["low"][..., 0] - 2).all()
    assert (moved["high"][..., 0] > old["high"][..., 0] + 5).all()
