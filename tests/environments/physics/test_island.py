"""The solver: worlds side by side, limits of motion, and friction."""

import numpy as np
import pytest
from rigid_bodies import Worlds, differences, model_of, used_parts

from evolve.environments.physics.constraints import Motion, frictions
from evolve.environments.physics.frames import CONTACT, MAX_TURN, SLOP, TIME_STEP, WORLD
from evolve.environments.physics.world import move, reset_bodies, solve_island


def test_worlds_are_solved_side_by_side_as_alone():
    model, worlds = model_of(), Worlds("BipedalWalker-v3", range(3))
    worlds.throw(0.3)
    together = worlds.states.copy()
    with np.errstate(all="ignore"):
        solved = solve_island(together, model)
        for i in range(3):
            alone = worlds.states[i : i + 1].copy()
            assert solve_island(alone, model) == solved[i : i + 1]
            assert not list(differences(used_parts(alone), used_parts(together[i : i + 1])))


def test_standing_walkers_keep_standing():
    """One step of the solver: feet do not go through the ground, and joints hold."""
    model, states = model_of(), Worlds("BipedalWalker-v3", range(3)).states
    states["joint"]["torque"] = 80
    with np.errstate(all="ignore"):
        solve_island(states, model)
    assert np.abs(states["body"]["v"]).max() < 0.5
    for hinge, joint in zip(model["hinge"], states["joint"].T, strict=True):
        assert np.hypot(*joint["impulse"].T).max() > 0
        a, b = states["body"][:, hinge["a"]], states["body"][:, hinge["b"]]
        assert np.hypot(*(a["c"] - b["c"]).T).max() < np.hypot(*hinge["anchor_a"]) + np.hypot(*hinge["anchor_b"]) + SLOP


@pytest.mark.parametrize("shape", [(), (3,)])
def test_motion_is_limited(shape):
    v = np.zeros((2, *shape), np.float32)
    v[0] = 1000
    w = np.full(shape, -1000, np.float32)[()]
    zero = np.zeros(shape, np.float32)[()]
    found = move(Motion(0 * v, v, zero, w), TIME_STEP)
    assert found.c[0] == pytest.approx(np.full(shape, 2), rel=1e-6)
    assert found.a == pytest.approx(np.full(shape, -MAX_TURN), rel=1e-6)
    slow = move(Motion(0 * v, v / 100, zero, w / 100), TIME_STEP)
    assert (slow.v == v / 100).all()
    assert slow.w == pytest.approx(w / 100)


def test_a_base_has_a_friction_of_its_own():
    model, states = model_of("LunarLander-v3"), np.zeros(2, WORLD)
    reset_bodies(states, model)
    contacts = np.zeros(3, CONTACT)
    contacts["piece"] = 0, 1, 2
    found = frictions(states, model, np.zeros(3, np.int64), contacts)
    chain, base = model["hull"]["friction"][0]
    assert found.tolist() == [base, chain, chain]
    states["num_blocks"] = 1
    assert frictions(states, model, np.zeros(3, np.int64), contacts).tolist() == [chain, base, chain]
