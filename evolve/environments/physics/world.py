"""One step of k worlds of rigid bodies: b2World::Step of Box2D 2.3 (Erin Catto, zlib licence), to the bit.

The bodies of a world are convex polygons that are connected by joints and collide with the ground only. A world is a
record of `layout.WORLD`. The model, a record of `layout.MODEL`, holds everything that does not change in an episode.
"""

from typing import Any

import numpy as np

from evolve.environments.physics.constants import (
    LARGEST,
    SECONDS_TO_SLEEP,
    SLOWEST,
    SLOWEST_TURN,
    TIME_STEP,
)
from evolve.environments.physics.contacts import follow_bodies, seek_contacts, update_contacts, wake
from evolve.environments.physics.frames import Frame, dot, placed, rotation_of
from evolve.environments.physics.impacts import set_frames, solve_impacts
from evolve.environments.physics.island import solve_island
from evolve.environments.physics.polygons import boxes, hull_polygons, vectors, widened
from evolve.shapes import Bool

_ZERO = np.float32(0.0)


def reset_bodies(states: Any, model: Any) -> None:
    """Put the bodies of worlds, records of `layout.WORLD` [k], where an episode begins."""
    B, J = int(model["num_bodies"]), int(model["num_joints"])
    hulls, bodies = model["hull"][:B], states["body"][:, :B]
    states["body"], states["joint"] = np.zeros((), states["body"].dtype), np.zeros((), states["joint"].dtype)
    frame = Frame(vectors(hulls["p"]), rotation_of(hulls["a"]))
    around = widened(boxes(placed(frame.spread(), hull_polygons(hulls).corner)))
    bodies["awake"] = bodies["moved"] = 1
    bodies["a"] = bodies["a0"] = hulls["a"]
    bodies["p"], bodies["sine"], bodies["cosine"] = hulls["p"], frame.q.s, frame.q.c
    bodies["c"] = bodies["c0"] = placed(frame, vectors(hulls["center"])).T
    bodies["low"], bodies["high"] = around.low.T, around.high.T
    for name in ("speed", "torque"):
        states["joint"][name][:, :J] = model["hinge"][name][:J]
    states["fresh"], states["crashed"], states["num_contacts"] = 1, 0, 0


def step_worlds(states: Any, model: Any) -> None:
    """Advance worlds, records of `layout.WORLD` [k], by one step of time."""
    B = int(model["num_bodies"])
    hulls, bodies = model["hull"][:B], states["body"][:, :B]
    # Values that no lane uses, such as those of places without a contact, may divide by zero or overflow.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        wake(states, np.s_[:, :B])
        fresh = states["fresh"] != 0
        if fresh.any():
            begun = states[fresh]
            seek_contacts(begun, model)
            begun["fresh"] = 0
            states[fresh] = begun
        update_contacts(states, model)
        bodies["c0"], bodies["a0"] = bodies["c"], bodies["a"]
        mass = hulls["inverse_mass"]
        bodies["v"][..., 0] += TIME_STEP * (mass * bodies["force"][..., 0])
        bodies["v"][..., 1] += TIME_STEP * (model["gravity"] + mass * bodies["force"][..., 1])
        bodies["w"] += TIME_STEP * hulls["inverse_inertia"] * bodies["torque"]
        solved = solve_island(states, model)
        set_frames(states, model)
        _let_sleep(bodies, solved)
        follow_bodies(states, model)
        seek_contacts(states, model)
        solve_impacts(states, model)
        bodies["force"] = bodies["torque"] = _ZERO


def _let_sleep(bodies: Any, solved: Bool) -> None:
    """Put the bodies [k, B] of worlds to sleep if all of them have rested long enough."""
    v = vectors(bodies["v"])
    moves = (bodies["w"] * bodies["w"] > SLOWEST_TURN * SLOWEST_TURN) | (dot(v, v) > SLOWEST * SLOWEST)
    bodies["rested"] = np.where(moves, _ZERO, bodies["rested"] + TIME_STEP)
    sleeping = solved & (bodies["rested"].min(axis=1, initial=LARGEST) >= SECONDS_TO_SLEEP)
    for name in ("awake", "rested", "w"):
        bodies[name] = np.where(sleeping[:, None], 0, bodies[name])
    bodies["v"] = np.where(sleeping[:, None, None], _ZERO, bodies["v"])
