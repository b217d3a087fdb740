"""One step of a world: move all bodies, put bodies at rest to sleep, and solve impacts within the step.

`step_worlds` is b2World::Step of Box2D 2.3 (Catto, 2006; zlib licence) for k worlds side by side. It calls
`solve_island`, which is b2Island::Solve, and `solve_impacts`, which is b2World::SolveTOI.

The solver is sequential impulses: first they give the velocities of the bodies, then their positions. Joints share
bodies, so they are solved one after the other. Contacts of different bodies share no body, so they are solved at once:
row r holds contact number r of each body of each world.

In all functions, `states` are records of `frames.WORLD` [k], and `model` is a record of `frames.MODEL`, the constants
of a task.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from evolve.environments.physics import constraints, frames
from evolve.environments.physics.constraints import Joint, Motion, PositionRow, TouchingContacts, VelocityRow, push_out
from evolve.environments.physics.contacts import (
    compute_manifolds,
    contact_list,
    follow_bodies,
    report_change,
    seek_contacts,
    update_contacts,
    wake,
)
from evolve.environments.physics.distance import Sweep, stays_clear, time_of_impact
from evolve.environments.physics.frames import choose, dot, frame_around, length, lesser, placed, rotation_of
from evolve.environments.physics.polygons import boxes, ground_polygons, hull_polygons, vectors, widened
from evolve.shapes import Bool, Float32, Int64

_F = np.float32
_ZERO, _ONE, _TWO = _F(0.0), _F(1.0), _F(2.0)
# Constants of b2Island::Solve.
_STEP_SHARE = _F(0.2)  # the share of an overlap that an iteration corrects (b2_baumgarte)
_STEP_SEPARATION = _F(-3.0) * frames.SLOP  # the positions are solved if no separation is below (an overlap is negative)
# Constants of b2World::SolveTOI and b2Island::SolveTOI.
_IMPACT_SHARE = _F(0.75)  # the share of an overlap that an iteration corrects (b2_toiBaugarte)
_IMPACT_SEPARATION = _F(-1.5) * frames.SLOP  # corrections stop if no separation is below
_LATEST_IMPACT = _ONE - _F(10.0) * frames.SMALLEST  # a later impact is left to the next step
_MAX_IMPACTS = 8  # after more impacts in a step, a contact is ignored (b2_maxSubSteps)
_IMPACT_ITERATIONS = 20  # the largest number of position iterations (b2TimeStep::positionIterations)


def move(motion: Motion, seconds: np.float32) -> Motion:
    """Limit the velocities of bodies, and return the motion of the bodies after some seconds at these velocities."""
    c, v, a, w = motion
    step = seconds * v
    # No body moves farther than 2 in one step (b2_maxTranslation).
    v = choose(dot(step, step) > 4, (_TWO / length(step)) * v, v)
    turn = seconds * w
    w = choose(turn * turn > frames.MAX_TURN * frames.MAX_TURN, w * (frames.MAX_TURN / np.abs(turn)), w)
    return Motion(c + seconds * v, v, a + seconds * w, w)


def solve_island(states: Any, model: Any) -> Bool:
    """Compute the new velocities and positions of all bodies, and store them in `states`.

    Returns:
        Whether the positions were solved within the iterations, [k].
    """
    B = int(model["num_bodies"])
    bodies = states["body"][:, :B]
    # [2, B, k] and [B, k]: worlds are the last axis, so that one operation serves a body in all worlds.
    motion = Motion(*(bodies[name].T.copy() for name in ("c", "v", "a", "w")))
    hulls = model["hull"][:B]
    contacts = TouchingContacts(states, model)
    # In the order of Box2D's island: joints share bodies, so another order would give other bits.
    joints = {
        int(n): Joint(states["joint"][:, n], model["hinge"][n], hulls)
        for n in model["joint_order"][: model["num_joints"]]
    }
    # Inverse, as everywhere in the solver.
    mass, inertia = (
        np.repeat(hulls[name][:, None], len(states), axis=1) for name in ("inverse_mass", "inverse_inertia")
    )
    # Warm start: begin with the impulses of the previous step, first of contacts, then of joints.
    for row in contacts.velocity_rows:
        _set_velocities(motion, row.start(mass, inertia, (*motion.v, motion.w)))
    for joint in joints.values():
        joint.start(motion)
    # Velocities: joints before contacts in each iteration. `_solve_positions` has the opposite order. Both orders are
    # Box2D's. As in Box2D, all iterations are made, even if the velocities no longer change.
    for _ in range(frames.VELOCITY_ITERATIONS):
        for joint in joints.values():
            joint.solve(motion)
        for row in contacts.velocity_rows:
            _set_velocities(motion, row.solve(mass, inertia, (*motion.v, motion.w)))
    motion = move(motion, frames.TIME_STEP)
    contacts.keep_impulses()
    solved = _solve_positions(
        motion, contacts.position_rows, list(joints.values()), mass, inertia, vectors(hulls["center"])[..., None]
    )
    for name, field in zip(("c", "v", "a", "w"), motion, strict=True):
        bodies[name] = field.T
    # `Joint.start` of the next step begins with these impulses and limits.
    for n, joint in joints.items():
        record = states["joint"][:, n]
        record["impulse"], record["limit"] = joint.impulse.T, joint.limit
        record["limit_impulse"], record["motor_impulse"] = joint.limit_impulse, joint.motor_impulse
    return solved


def _set_velocities(motion: Motion, velocities: list[frames.Number]) -> None:
    motion.v[0], motion.v[1], motion.w[:] = velocities


def _solve_positions(
    motion: Motion, rows: list[PositionRow], joints: list[Joint], mass: Float32, inertia: Float32, center: Float32
) -> Bool:
    """Correct the position errors of contacts and joints until all are small; return [k]: whether they are small.

    Args:
        motion: The motion of the bodies, which changes in place.
        rows: The contacts.
        joints: The joints.
        mass: [B, k], the inverse masses of the bodies.
        inertia: [B, k], the inverse moments of inertia.
        center: [2, B, 1], the centers of mass in the frames of the bodies.
    """
    unsolved = np.ones(motion.a.shape[-1], np.bool_)
    for _ in range(frames.POSITION_ITERATIONS):
        deepest = np.zeros_like(motion.a)
        for row in rows:
            for point in range(row.count.max()):
                c, a, separation = push_out(row, point, motion.c, motion.a, mass, inertia, center, _STEP_SHARE)
                # Box2D leaves its loop when its world is solved. Here the loop goes on for other worlds, so a solved
                # world must not change any more.
                corrected = unsolved & (row.count > point)
                motion.c[:], motion.a[:] = np.where(corrected, c, motion.c), np.where(corrected, a, motion.a)
                deepest = np.where(corrected, lesser(deepest, separation), deepest)
        solved = deepest.min(axis=0) >= _STEP_SEPARATION
        for joint in joints:
            # Correct every joint, even after a large error: `&` does not skip the call.
            solved &= joint.pull(motion, unsolved)
        unsolved &= ~solved
        if not unsolved.any():
            break
    return ~unsolved


def solve_impacts(states: Any, model: Any) -> None:
    """Solve the impacts within a step (continuous collision), and store the results in `states`."""
    worlds, places = contact_list(states)
    is_clear = _are_clear(states, model, worlds, places)
    # Most worlds cannot have an impact. Only the others are solved, one at a time.
    for world in np.unique(worlds[~is_clear]):
        clear = places[(worlds == world) & is_clear]
        _Impacts(states[world : world + 1], model, set(clear.tolist())).solve()


def set_frames(states: Any, model: Any, which: slice = slice(None)) -> None:
    """Compute the frames of the bodies `which` from their centers of mass and angles, and store them."""
    bodies = states["body"][:, : model["num_bodies"]][:, which]
    center = vectors(model["hull"]["center"][: model["num_bodies"]][which])[:, None]
    p, q = frame_around(vectors(bodies["c"]), bodies["a"], center)
    bodies["p"], bodies["sine"], bodies["cosine"] = np.moveaxis(p, 0, -1), q.s, q.c


def _are_clear(states: Any, model: Any, worlds: Int64, places: Int64) -> Bool:
    """Return [N]: whether a bound (`distance.stays_clear`) proves that each contact has no impact in this step.

    worlds: [N], the world of each contact. places: [N], its index in the world's list of contacts.
    """
    contacts = states["contact"][worlds, places]
    hulls, bodies = model["hull"][contacts["body"]], states["body"][worlds, contacts["body"]]
    sweep = Sweep(vectors(bodies["c0"]), vectors(bodies["c"]), vectors(hulls["center"]), bodies["a0"], bodies["a"])
    ground = ground_polygons(states, model, worlds, contacts["piece"])
    return stays_clear(ground, hull_polygons(hulls), sweep, hulls["reach"])


class _Impacts:
    """The impacts of one world in a step.

    Times are shares of the step, from 0 to 1. The impacts of each body are solved up to a time of its own. c0 and a0
    are its position and angle at that time, c and a its position and angle at the end of the step. A piece of ground
    has a time, too. If the model has a base, all its ground is one body in Box2D, with one time. The place of a contact
    is its index in the world's list of contacts.

    Args:
        states: The world, records of `frames.WORLD` [1].
        model: A record of `frames.MODEL`.
        clear: The places of contacts for which the bound of `distance.stays_clear` proves that there is no impact. The
            proof holds until the motion of the body changes.
    """

    def __init__(self, states: Any, model: Any, clear: set[int]) -> None:
        # `states[0]` is a view of the record, so assignments to fields of `_world` change `states`.
        self._states, self._world, self._model = states, states[0], model
        self._body_times = [_ZERO] * int(model["num_bodies"])
        self._ground_times: dict[int, np.float32] = {}
        # No contact ends while impacts are solved, and new contacts come last. So places stay valid as keys.
        self._impact_times: dict[int, np.float32] = {}  # by the contact's place; missing if it has to be computed
        self._num_impacts: Counter[int] = Counter()  # the impacts solved in this step, by the contact's place
        self._clear = clear

    def solve(self) -> None:
        """Solve one impact after another, always the earliest one."""
        while True:
            time, earliest = _ONE, -1
            for place in self._newest_first():
                contact = self._world["contact"][place]
                # A sleeping body has no new impacts. As in Box2D, impact times that are known still count.
                possible = place in self._impact_times or self._world["body"]["awake"][contact["body"]]
                if contact["enabled"] and possible and self._num_impacts[place] <= _MAX_IMPACTS:
                    impact_time = self._impact_time(place)
                    # Not `<=`: of equal times the newest contact counts, which is the first in Box2D's list.
                    if impact_time < time:
                        time, earliest = impact_time, place
            if earliest < 0 or time > _LATEST_IMPACT:
                return
            self._solve_impact(earliest, time)

    def _newest_first(self, body: int | None = None) -> Iterator[int]:
        """Yield the places of all contacts, or of the contacts of a body, in the order of Box2D's lists."""
        for place in range(int(self._world["num_contacts"]) - 1, -1, -1):
            if body is None or self._world["contact"]["body"][place] == body:
                yield place

    def _ground_key(self, place: int) -> int:
        """Return the key in `_ground_times` of a contact's piece of ground."""
        return 0 if self._model["base"] else int(self._world["contact"]["piece"][place])

    def _impact_time(self, place: int) -> np.float32:
        """Return the time of a contact's impact; 1 if there is no impact."""
        if place in self._impact_times:
            return self._impact_times[place]
        body, ground = int(self._world["contact"]["body"][place]), self._ground_key(place)
        # Body and ground must have the same time: bring the earlier one up to the later one.
        start = self._ground_times.get(ground, _ZERO)
        if start < self._body_times[body]:
            start = self._ground_times[ground] = self._body_times[body]
        elif self._body_times[body] < start:
            self._advance(body, start)
        impact_time = _ONE
        # Look up the bound only here, because `_advance` above may have forgotten it.
        if place not in self._clear:
            share = self._share_to_impact(place, body)
            if share != 1:
                impact_time = lesser(start + (_ONE - start) * share, _ONE)
        self._impact_times[place] = impact_time
        return impact_time

    def _share_to_impact(self, place: int, body: int) -> np.float32:
        """Return the share of the rest of the step after which a contact has its impact; 1 if there is no impact."""
        record, hull = self._world["body"][body], self._model["hull"][body]
        piece = self._world["contact"]["piece"][[place]].astype(np.int64)
        ground = ground_polygons(self._states, self._model, np.zeros_like(piece), piece)
        sweep = Sweep(record["c0"], record["c"], hull["center"], record["a0"], record["a"])
        # `time_of_impact` expects corners without padding.
        return time_of_impact(ground.corner[:, : ground.size[0], 0], hull["corner"][: hull["count"]].T, sweep)

    def _forget_bounds(self, body: int) -> None:
        """Forget that a body's contacts are clear of impacts, because the motion of the body has changed."""
        self._clear.difference_update(self._newest_first(body))

    def _advance(self, body: int, time: np.float32) -> None:
        """Advance the time of a body, and with it c0 and a0."""
        record = self._world["body"][body]
        # No impact after `_LATEST_IMPACT` is solved, so the divisor is not 0.
        share = (time - self._body_times[body]) / (_ONE - self._body_times[body])
        record["c0"] = (_ONE - share) * record["c0"] + share * record["c"]
        record["a0"] = (_ONE - share) * record["a0"] + share * record["a"]
        self._body_times[body] = time
        self._forget_bounds(body)

    def _solve_impact(self, earliest: int, time: np.float32) -> None:
        """Move the body of a contact back to its impact, solve it there, and move it to the end of the step.

        earliest: The place of the contact. time: The time of its impact.
        """
        body = int(self._world["contact"]["body"][earliest])
        record, ground = self._world["body"][body], self._ground_key(earliest)
        # A backup, for the case that the polygons do not touch. Copies, because the vectors of a record are views.
        before = {name: record[name].copy() for name in ("c", "c0", "a", "a0")}
        times_before = self._body_times[body], self._ground_times.get(ground, _ZERO)
        self._ground_times[ground] = time
        self._advance(body, time)
        record["c"], record["a"] = record["c0"], record["a0"]
        set_frames(self._states, self._model, slice(body, body + 1))
        # `list` runs the generator, which updates the contact.
        touching = list(self._update_contacts([earliest]))
        del self._impact_times[earliest]
        self._num_impacts[earliest] += 1
        # If the manifold has no point, there is no impact: undo the motion, and ignore the contact until it is updated.
        if not touching:
            self._world["contact"]["enabled"][earliest] = 0
            for name, value in before.items():
                record[name] = value
            self._body_times[body], self._ground_times[ground] = times_before
            set_frames(self._states, self._model, slice(body, body + 1))
            return
        # Solve the body with all its contacts that touch at this time. The island also has the contact of the impact.
        island = [earliest]
        for place in self._update_contacts([place for place in self._newest_first(body) if place != earliest]):
            # The ground of a touching contact advances to this time, too.
            self._ground_times[self._ground_key(place)] = time
            island.append(place)
            if len(island) > frames.MAX_TOUCHING:  # the contact of the impact, and MAX_TOUCHING others
                break
        self._solve_island(body, np.array(island), (_ONE - time) * frames.TIME_STEP)
        # The body moves differently now: forget its times of impact, and look for new contacts.
        for place in self._newest_first(body):
            self._impact_times.pop(place, None)
        seek_contacts(self._states, self._model)
        self._forget_bounds(body)

    def _update_contacts(self, places: list[int]) -> Iterator[int]:
        """Update contacts one after another, and yield the places of the contacts that touch.

        A caller that stops early leaves the other contacts as they were, as Box2D does if its island is full.
        """
        before = self._world["contact"][places]
        # Compute all manifolds at once: the body does not move between the updates.
        after = compute_manifolds(self._states, self._model, np.zeros(len(places), np.int64), before)
        for place, old, new in zip(places, before, after, strict=True):
            self._world["contact"][place] = new
            if new["touching"] != old["touching"]:
                report_change(self._states, 0, new)
            if new["touching"]:
                yield place

    def _solve_island(self, body: int, island: Int64, seconds: np.float32) -> None:
        """Solve position and velocity of a body with some of its contacts, then move the body for some seconds.

        island: [N], the places of the contacts.
        """
        record, hull = self._world["body"][body], self._model["hull"][body]
        mass, inertia, center = hull["inverse_mass"], hull["inverse_inertia"], hull["center"]
        contacts = self._world["contact"][island]
        position_rows = [PositionRow(contact) for contact in contacts]

        # Push the body out of the ground. Unlike in a step, positions come before velocities (b2Island::SolveTOI).
        c, a = record["c"].copy(), record["a"]
        for _ in range(_IMPACT_ITERATIONS):
            deepest = _ZERO
            for row in position_rows:
                for point in range(row.count):
                    c, a, separation = push_out(row, point, c, a, mass, inertia, center, _IMPACT_SHARE)
                    deepest = lesser(deepest, separation)
            if deepest >= _IMPACT_SEPARATION:
                break
        # The rest of the step, and the new box of the body, begin at this position.
        record["c0"], record["a0"] = c, a

        # Solve the velocity of the body. Impulses begin at zero: Box2D does not warm-start at an impact.
        worlds = np.zeros(len(island), np.int64)  # `_states` holds one world
        hulls = np.broadcast_to(hull, len(island))
        friction = constraints.frictions(self._states, self._model, worlds, contacts)
        angles = np.full(len(island), a)
        records = constraints.velocity_constraints(contacts, hulls, c[:, None], angles, friction, warm=False)
        # The impulses of these rows are not stored in the contacts. Box2D does not start the next step with them,
        # because they can be large.
        velocity_rows = [VelocityRow(constraint) for constraint in records]
        velocities = [*record["v"], record["w"]]
        solver_state: list[Any] = []
        for _ in range(frames.VELOCITY_ITERATIONS):
            for velocity_row in velocity_rows:
                velocities = velocity_row.solve(mass, inertia, velocities)
            impulses = [velocity_row.normal_impulse + velocity_row.tangent_impulse for velocity_row in velocity_rows]
            before, solver_state = solver_state, [velocities, impulses]
            if solver_state == before:
                break  # a fixed point: further iterations would change nothing
        vx, vy, w = velocities
        record["c"], record["v"], record["a"], record["w"] = move(Motion(c, np.array((vx, vy)), a, w), seconds)
        set_frames(self._states, self._model, slice(body, body + 1))
        follow_bodies(self._states, self._model, slice(body, body + 1))


def reset_bodies(states: Any, model: Any) -> None:
    """Reset the bodies and joints of all worlds to the beginning of an episode."""
    B, J = int(model["num_bodies"]), int(model["num_joints"])
    hulls, bodies = model["hull"][:B], states["body"][:, :B]
    states["body"], states["joint"] = np.zeros((), states["body"].dtype), np.zeros((), states["joint"].dtype)
    frame = frames.Frame(vectors(hulls["p"]), rotation_of(hulls["a"]))
    around = widened(boxes(placed(frame.per_corner(), hull_polygons(hulls).corner)))
    bodies["awake"] = bodies["moved"] = 1
    bodies["a"] = bodies["a0"] = hulls["a"]
    bodies["friction"], states["gravity"] = hulls["friction"], model["gravity"]
    bodies["p"], bodies["sine"], bodies["cosine"] = hulls["p"], frame.q.s, frame.q.c
    bodies["c"] = bodies["c0"] = placed(frame, vectors(hulls["center"])).T
    bodies["low"], bodies["high"] = around.low.T, around.high.T
    for name in ("speed", "torque"):
        states["joint"][name][:, :J] = model["hinge"][name][:J]
    states["fresh"], states["crashed"], states["num_contacts"] = 1, 0, 0


def step_worlds(states: Any, model: Any) -> None:
    """Advance all worlds by one step of time."""
    B = int(model["num_bodies"])
    hulls, bodies = model["hull"][:B], states["body"][:, :B]
    # Array operations also compute values that are not used, such as values of padding. They may divide by zero.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        # All bodies are awake at the beginning of a step. Gymnasium sets a walker's motors in each step. This wakes the
        # bodies in Box2D. A sleeping lander has landed, so its episode has no further step.
        wake(states, np.s_[:, :B])
        # Find the first contacts of an episode. In later steps, the previous step has found them at its end.
        fresh = states["fresh"] != 0
        if fresh.any():
            # A mask selects copies, so write them back.
            selected = states[fresh]
            seek_contacts(selected, model)
            selected["fresh"] = 0
            states[fresh] = selected
        update_contacts(states, model)
        # Continuous collision needs the positions before the motion.
        bodies["c0"], bodies["a0"] = bodies["c"], bodies["a"]
        # Semi-implicit Euler: forces change the velocities, and `solve_island` moves the bodies by the new velocities.
        mass = hulls["inverse_mass"]
        bodies["v"][..., 0] += frames.TIME_STEP * (mass * bodies["force"][..., 0])
        bodies["v"][..., 1] += frames.TIME_STEP * (states["gravity"][:, None] + mass * bodies["force"][..., 1])
        bodies["w"] += frames.TIME_STEP * hulls["inverse_inertia"] * bodies["torque"]
        solved = solve_island(states, model)
        set_frames(states, model)
        # As in Box2D's island solver, bodies fall asleep before they get new boxes and contacts, and before impacts.
        _put_to_sleep(bodies, solved)
        follow_bodies(states, model)
        seek_contacts(states, model)
        solve_impacts(states, model)
        bodies["force"] = bodies["torque"] = _ZERO


def _put_to_sleep(bodies: Any, solved: Bool) -> None:
    """Put all bodies of a world to sleep if all have rested long enough.

    Args:
        bodies: Records of `frames.BODY` [k, B], the bodies of k worlds.
        solved: [k], whether the solver has corrected all positions; otherwise the bodies of a world stay awake.
    """
    v, w = vectors(bodies["v"]), bodies["w"]
    max_w, max_v = frames.SLEEP_TURN_RATE, frames.SLEEP_SPEED
    moves = (w * w > max_w * max_w) | (dot(v, v) > max_v * max_v)
    bodies["rested"] = np.where(moves, _ZERO, bodies["rested"] + frames.TIME_STEP)
    # Joints connect all bodies of a world, so they are one island in Box2D: all sleep or none.
    sleeping = solved & (bodies["rested"].min(axis=1, initial=frames.LARGEST) >= frames.SECONDS_TO_SLEEP)
    for name in ("awake", "rested", "w"):
        bodies[name] = np.where(sleeping[:, None], 0, bodies[name])
    bodies["v"] = np.where(sleeping[:, None, None], _ZERO, bodies["v"])
