"""Contacts as constraints: friction, normal impulses, and rows that hold many of them."""

import numpy as np
import pytest
from rigid_bodies import Worlds, model_of, random

from evolve.environments.physics.constraints import (
    CONSTRAINT,
    PositionRow,
    VelocityRow,
    frictions,
    push_out,
    velocity_constraints,
)
from evolve.environments.physics.contacts import contact_list
from evolve.environments.physics.frames import SLOP
from evolve.environments.physics.polygons import vectors
from evolve.environments.physics.world import step_worlds


@pytest.fixture(scope="module")
def touching():
    """Return contacts [N] that touch, their hulls and bodies, and their friction: of walkers that stand and fall."""
    model, worlds = model_of(), Worlds("BipedalWalker-v3", range(5))
    standing = worlds.states.copy()
    worlds.throw(0.5)
    for _ in range(8):
        step_worlds(worlds.states, model)
    states = np.concatenate([standing, worlds.states])
    at, places = contact_list(states)
    contacts = states["contact"][at, places]
    at, contacts = at[contacts["touching"] != 0], contacts[contacts["touching"] != 0]
    bodies = states["body"][at, contacts["body"]]
    return contacts, model["hull"][contacts["body"]], bodies, frictions(states, model, at, contacts)


def constraints_of(touching, warm=False):
    contacts, hulls, bodies, friction = touching
    with np.errstate(all="ignore"):
        return velocity_constraints(contacts, hulls, vectors(bodies["c"]), bodies["a"], friction, warm)


def motion(count, key=1):
    return list(random(key).normal(0, 3, (3, count)).astype(np.float32))


def speeds(constraint, velocities):
    """Return the speeds of a constraint's points along the normal."""
    vx, vy, w = velocities
    (nx, ny), arms = constraint["normal"], constraint["arm"][: 1 + constraint["two"]]
    return np.array([(vx - w * ry) * nx + (vy + w * rx) * ny for rx, ry in arms])


def test_bodies_do_not_go_into_the_ground_and_are_not_pulled(touching):
    constraints, hulls = constraints_of(touching), touching[1]
    velocities, row = motion(len(constraints)), VelocityRow(constraints)
    with np.errstate(all="ignore"):
        for _ in range(60):
            velocities = row.solve(hulls["inverse_mass"], hulls["inverse_inertia"], velocities)
    two = 0
    for i, constraint in enumerate(constraints):
        normal, tangent = (np.array([each[i] for each in x]) for x in (row.normal_impulse, row.tangent_impulse))
        after = speeds(constraint, [v[i] for v in velocities])
        assert (normal >= 0).all()
        assert (after > -1e-3).all()
        assert (np.abs(after * normal[: len(after)]) < 1e-2).all()  # a point that leaves has no impulse
        assert np.abs(tangent).sum() <= constraint["friction"] * normal.sum() + 1e-4
        two += len(after) == 2
    assert two > 3


def test_a_row_has_the_bits_of_single_constraints(touching):
    constraints, hulls = constraints_of(touching, warm=True), touching[1]
    many, velocities = VelocityRow(constraints), motion(len(constraints))
    with np.errstate(all="ignore"):
        velocities = many.start(hulls["inverse_mass"], hulls["inverse_inertia"], velocities)
        velocities = many.solve(hulls["inverse_mass"], hulls["inverse_inertia"], velocities)
        for i, (constraint, hull) in enumerate(zip(constraints, hulls, strict=True)):
            single, alone = VelocityRow(constraint), [v[i] for v in motion(len(constraints))]
            alone = single.start(hull["inverse_mass"], hull["inverse_inertia"], alone)
            alone = single.solve(hull["inverse_mass"], hull["inverse_inertia"], alone)
            assert [v.tobytes() for v in alone] == [v[i].tobytes() for v in velocities]
            assert single.normal_impulse == [n[i] for n in many.normal_impulse]
            assert single.tangent_impulse == [n[i] for n in many.tangent_impulse]


def test_a_body_without_a_constraint_keeps_its_bits(touching):
    """Its place in a row has zeros; another place has two points, so that both ways are computed."""
    constraints = constraints_of(touching)
    n = len(constraints)
    row = VelocityRow(np.concatenate([constraints, np.zeros(n, CONSTRAINT)]))
    assert row.any_two
    mass = np.full(2 * n, 0.5, np.float32)
    velocities = motion(2 * n)
    with np.errstate(all="ignore"):
        found = row.solve(mass, mass, row.start(mass, mass, velocities))
    for before, after in zip(velocities, found, strict=True):
        assert before[n:].tobytes() == after[n:].tobytes()
        assert (before[:n] != after[:n]).any()


def test_warm_constraints_begin_with_the_impulses_of_before(touching):
    contacts = touching[0]
    cold, warm = (constraints_of(touching, warm) for warm in (False, True))
    assert not cold["normal_impulse"].any()
    assert (warm["normal_impulse"][:, 0] == contacts["points"]["normal_impulse"][:, 0]).all()
    assert (warm["normal_impulse"][:, 1] == np.where(warm["two"], contacts["points"]["normal_impulse"][:, 1], 0)).all()
    for name in ("normal", "arm", "normal_mass", "tangent_mass", "k", "inverse"):
        assert warm[name].tobytes() == cold[name].tobytes()


def test_a_body_is_pushed_out_of_the_ground(touching):
    contacts, hulls, bodies, _ = touching
    mass, inertia, center = hulls["inverse_mass"], hulls["inverse_inertia"], vectors(hulls["center"])
    row, c, a = PositionRow(contacts), vectors(bodies["c"]).copy(), bodies["a"].copy()
    c[1] -= 0.1
    *_, first = push_out(row, 0, c, a, mass, inertia, center, np.float32(0.2))
    assert first.min() < -0.05
    for _ in range(100):
        c, a, separation = push_out(row, 0, c, a, mass, inertia, center, np.float32(0.2))
        assert (separation >= first - 1e-5).all()
        first = separation
    assert (separation > -SLOP - 1e-3).all()
