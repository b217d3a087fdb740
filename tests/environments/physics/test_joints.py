"""Joints: bodies stay together, motors reach their speeds, limits hold."""

import numpy as np
import pytest
from rigid_bodies import model_of, random

from evolve.environments.physics.constraints import Joint, Motion
from evolve.environments.physics.frames import JOINT, SLOP, rotation_of, turned

K = 40


def hip(angle, torque=0.0, speed=0.0):
    """Return a walker's hip at an angle [K], and the motion of its five bodies, of which two matter."""
    model, generator = model_of(), random(3)
    joints, hinge = np.zeros(K, JOINT), model["hinge"][0]
    joints["torque"], joints["speed"] = torque, speed
    c, v = generator.normal(0, 1, (2, 2, 5, K)).astype(np.float32)
    a, w = generator.normal(0, 1, (2, 5, K)).astype(np.float32)
    a[1] = a[0] + hinge["reference"] + angle
    motion = Motion(c, v, a, w)
    c[:, 1] = c[:, 0] + arms(hinge, motion)[0] - arms(hinge, motion)[1]
    return Joint(joints, hinge, model["hull"]), hinge, motion


def arms(hinge, motion):
    return [turned(rotation_of(motion.a[hinge[body]]), hinge[f"anchor_{body}"][:, None]) for body in ("a", "b")]


def slip(hinge, motion):
    """Return the relative velocity of the two bodies at their point."""
    (ax, ay), (bx, by) = arms(hinge, motion)
    velocities = [
        motion.v[:, hinge[body]] + motion.w[hinge[body]] * np.array((-y, x))
        for body, x, y in (("a", ax, ay), ("b", bx, by))
    ]
    return velocities[1] - velocities[0]


def solve(joint, motion):
    joint.start(motion)
    for _ in range(60):
        joint.solve(motion)


@pytest.mark.parametrize(("angle", "limit"), [(0.0, 0), (-0.9, -1), (1.2, 1)])
def test_bodies_move_together_and_not_beyond_a_limit(angle, limit):
    joint, hinge, motion = hip(angle)
    momentum = (motion.v / model_of()["hull"]["inverse_mass"][:, None]).sum(axis=1)
    solve(joint, motion)
    assert (joint.limit == limit).all()
    assert np.abs(slip(hinge, motion)).max() < 1e-4
    turn = motion.w[1] - motion.w[0]
    assert (turn * limit < 1e-4).all()
    assert (joint.limit_impulse * limit <= 0).all()  # it pushes back
    assert joint.limit_impulse.any() == (limit != 0)
    after = (motion.v / model_of()["hull"]["inverse_mass"][:, None]).sum(axis=1)
    assert after == pytest.approx(momentum, abs=1e-3)


def test_a_motor_reaches_its_speed_if_it_is_strong_enough():
    joint, _, motion = hip(0.0, torque=1e6, speed=4.0)
    solve(joint, motion)
    assert motion.w[1] - motion.w[0] == pytest.approx(np.full(K, 4), abs=1e-4)
    weak, _, motion = hip(0.0, torque=1e-2, speed=4.0)
    solve(weak, motion)
    assert (np.abs(weak.motor_impulse) == np.float32(0.02) * np.float32(1e-2)).all()


@pytest.mark.parametrize("angle", [0.0, -0.9, 1.2])
def test_errors_of_positions_are_corrected(angle):
    joint, hinge, motion = hip(angle)
    joint.start(motion)
    motion.c[:, 1, : K // 2] += np.float32(0.05)
    before = [field.copy() for field in motion]
    moving = np.arange(K) % 4 > 0
    for turn in range(200):
        well = joint.pull(motion, moving)
        assert turn or not well[: K // 2].any()
    assert well[moving].all() or angle != 0  # the angle approaches the largest error without end
    gap = motion.c[:, 1] + arms(hinge, motion)[1] - motion.c[:, 0] - arms(hinge, motion)[0]
    assert np.hypot(*gap)[moving].max() < SLOP
    angle = (motion.a[1] - motion.a[0] - hinge["reference"])[moving]
    assert (angle > hinge["lower"] - 0.04).all()
    assert (angle < hinge["upper"] + 0.04).all()
    for field, old in zip(motion, before, strict=True):  # a world that is done keeps its bits
        assert field[..., ~moving].tobytes() == old[..., ~moving].tobytes()
