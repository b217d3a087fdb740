"""The solver: first the velocities of the bodies of k worlds, then their positions, by sequential impulses.

This is b2Island::Solve of Box2D 2.3 (Catto, 2006; zlib licence) for k worlds side by side. Joints share bodies, so
they are solved one after the other. Contacts of different bodies share no body, so they are solved at once: row r
holds contact number r of each body of each world.
"""

from typing import Any

import numpy as np

from evolve.environments.physics import frames
from evolve.environments.physics.constraints import CONSTRAINT, Joint, Motion, Plane, Row, prepare, push_out
from evolve.environments.physics.contacts import contact_list
from evolve.environments.physics.frames import Number, choose, dot, length, lesser
from evolve.environments.physics.polygons import vectors
from evolve.shapes import Bool, Float32, Int64

_F = np.float32
_TWO, _ZERO, _SHARE, _DEEPEST = _F(2.0), _F(0.0), _F(0.2), _F(-3.0) * frames.SLOP


class _Contacts:
    """The contacts of k worlds that touch, in rows of [B, k]."""

    def __init__(self, states: Any, model: Any) -> None:
        self._states = states
        self._worlds, self._places, self._rows = _touching(states)
        contacts = states["contact"][self._worlds, self._places]
        self._bodies = contacts["body"]
        hulls, bodies = model["hull"][self._bodies], states["body"][self._worlds, self._bodies]
        friction = frictions(states, model, self._worlds, contacts)
        found = prepare(contacts, hulls, vectors(bodies["c"]), bodies["a"], friction, warm=True)
        shape = max(self._rows, default=-1) + 1, int(model["num_bodies"]), len(states)
        constraints, planes = np.zeros(shape, CONSTRAINT), np.zeros(shape, frames.CONTACT)
        place = self._rows, self._bodies, self._worlds
        constraints[place], planes[place] = found, contacts
        self._two = found["two"]
        self.rows, self.planes = [Row(row) for row in constraints], [Plane(row) for row in planes]

    def keep_impulses(self) -> None:
        """Store the impulses in the contacts of the worlds; the next step begins with them."""
        for name in ("normal_impulse", "tangent_impulse"):
            solved = np.array([getattr(row, name) for row in self.rows])
            for point, there in ((0, self._two | True), (1, self._two)):
                rows, bodies, worlds, places = (
                    index[there] for index in (self._rows, self._bodies, self._worlds, self._places)
                )
                if len(rows):
                    self._states["contact"]["points"][name][worlds, places, point] = solved[rows, point, bodies, worlds]


def _touching(states: Any) -> tuple[Int64, Int64, Int64]:
    """Return the worlds, places and rows [N] of the contacts that touch.

    Rows count the contacts of a body, the newest first. If a body has too many, the oldest are left out.
    """
    worlds, places = contact_list(states)
    contacts = states["contact"][worlds, places]
    touching = (contacts["touching"] != 0) & (contacts["enabled"] != 0)
    worlds, places, bodies = (index[touching][::-1] for index in (worlds, places, contacts["body"]))
    rows = np.zeros_like(worlds)
    counts: dict[tuple[int, int], int] = {}
    for i, key in enumerate(zip(worlds.tolist(), bodies.tolist(), strict=True)):
        rows[i] = counts[key] = counts.get(key, -1) + 1
    seen = rows < frames.MAX_TOUCHING
    return worlds[seen], places[seen], rows[seen]


def frictions(states: Any, model: Any, worlds: Int64, contacts: Any) -> Float32:
    """Return the coefficients of friction [N] of contacts [N]; the `base` edges have their own."""
    edge = contacts["piece"] - states["num_blocks"][worlds]
    of_base = (edge >= 0) & (edge < model["base"])
    friction: Float32 = model["hull"]["friction"][contacts["body"], of_base * 1]
    return friction


def move(motion: Motion, seconds: np.float32) -> Motion:
    """Return bodies after some seconds of motion at their velocities, which are limited first."""
    c, v, a, w = motion
    step = seconds * v
    v = choose(dot(step, step) > 4, (_TWO / length(step)) * v, v)
    turn = seconds * w
    w = choose(turn * turn > frames.MAX_TURN * frames.MAX_TURN, w * (frames.MAX_TURN / np.abs(turn)), w)
    return Motion(c + seconds * v, v, a + seconds * w, w)


def solve_island(states: Any, model: Any) -> Bool:
    """Give new velocities and positions to the bodies of worlds, records of `frames.WORLD` [k].

    Returns:
        Whether the positions were solved within the iterations, [k].
    """
    B = int(model["num_bodies"])
    bodies = states["body"][:, :B]
    motion = Motion(*(bodies[name].T.copy() for name in ("c", "v", "a", "w")))
    hulls = model["hull"][:B]
    contacts = _Contacts(states, model)
    joints = {
        int(n): Joint(states["joint"][:, n], model["hinge"][n], hulls)
        for n in model["joint_order"][: model["num_joints"]]
    }
    mass, inertia = (
        np.repeat(hulls[name][:, None], len(states), axis=1) for name in ("inverse_mass", "inverse_inertia")
    )
    for row in contacts.rows:
        _set_velocities(motion, row.start(mass, inertia, (*motion.v, motion.w)))
    for joint in joints.values():
        joint.start(motion)
    for _ in range(frames.VELOCITY_ITERATIONS):
        for joint in joints.values():
            joint.solve(motion)
        for row in contacts.rows:
            _set_velocities(motion, row.solve(mass, inertia, (*motion.v, motion.w)))
    motion = move(motion, frames.TIME_STEP)
    contacts.keep_impulses()
    solved = _solve_positions(
        motion, contacts.planes, list(joints.values()), mass, inertia, vectors(hulls["center"])[..., None]
    )
    for name, field in zip(("c", "v", "a", "w"), motion, strict=True):
        bodies[name] = field.T
    for n, joint in joints.items():
        record = states["joint"][:, n]
        record["impulse"], record["limit"] = joint.impulse.T, joint.limit
        record["limit_impulse"], record["motor_impulse"] = joint.limit_impulse, joint.motor_impulse
    return solved


def _set_velocities(motion: Motion, velocities: list[Number]) -> None:
    motion.v[0], motion.v[1], motion.w[:] = velocities


def _solve_positions(
    motion: Motion, planes: list[Plane], joints: list[Joint], mass: Float32, inertia: Float32, center: Float32
) -> Bool:
    """Correct the errors of contacts and joints until all are small; return whether they are, [k]."""
    moving = np.ones(motion.a.shape[-1], np.bool_)
    for _ in range(frames.POSITION_ITERATIONS):
        deepest = np.zeros_like(motion.a)
        for plane in planes:
            for point in range(plane.count.max()):
                c, a, separation = push_out(plane, point, motion.c, motion.a, mass, inertia, center, _SHARE)
                there = moving & (plane.count > point)
                motion.c[:], motion.a[:] = np.where(there, c, motion.c), np.where(there, a, motion.a)
                deepest = np.where(there, lesser(deepest, separation), deepest)
        well = deepest.min(axis=0) >= _DEEPEST
        for joint in joints:
            well &= joint.pull(motion, moving)
        moving &= ~well
        if not moving.any():
            break
    return ~moving
