"""Walkers of the array reference play Gymnasium's episodes."""

import gymnasium
import numpy as np
import pytest
from rigid_bodies import WALKERS, Worlds, differences, random

from evolve.config import EnvOptions
from evolve.environments.exact import Draws, exact_task


def parts(env):
    return [env.hull, *env.legs]


def throw(env, bodies):
    """Give Gymnasium's bodies the velocities of a world."""
    for body, record in zip(parts(env), bodies, strict=True):
        body.linearVelocity = tuple(map(float, record["v"]))
        body.angularVelocity = float(record["w"])


@pytest.mark.parametrize(("name", "speed"), [(WALKERS[0], 0.0), (WALKERS[1], 1.5)])
def test_episodes_are_gymnasiums(name, speed):
    """By fresh environments: an old one is no function of its seed. Both go on beyond the ends of episodes."""
    pytest.importorskip("Box2D")
    seeds = range(3)
    worlds = Worlds(name, seeds)
    envs = [gymnasium.make(name, disable_env_checker=True).unwrapped for _ in seeds]
    seen = np.array([env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)])
    assert worlds.observations.tobytes() == seen.tobytes()
    if speed:
        worlds.throw(speed, key=1)
        for env, state in zip(envs, worlds.states, strict=True):
            throw(env, state["body"])
    generator = random(2)
    for step in range(4):
        outputs = generator.uniform(-1.2, 1.2, (len(seeds), 4)).astype(np.float32)
        rewards, over = worlds.step(outputs)
        moved = [env.step(action) for env, action in zip(envs, worlds.engine.decode(outputs), strict=True)]
        assert worlds.observations.tobytes() == np.array([each[0] for each in moved]).tobytes(), step
        assert rewards.tolist() == [float(each[1]) for each in moved], step
        assert over.tolist() == [bool(each[2]) for each in moved], step
        for env, state in zip(envs, worlds.states, strict=True):
            theirs = [[*body.position, body.angle, *body.linearVelocity, body.angularVelocity] for body in parts(env)]
            bodies = state["body"]
            ours = np.column_stack([bodies["p"], bodies["a"], bodies["v"], bodies["w"]])
            assert ours.tobytes() == np.array(theirs, np.float32).tobytes(), step


def test_a_step_leaves_its_argument_alone():
    task = exact_task(EnvOptions(id=WALKERS[0], engine="exact"))
    draws = Draws(np.arange(2), np.zeros(2, np.int64))
    states = task.begin(draws)
    before = states.copy()
    moved = task.step(states, np.ones((2, 4), np.float32), draws)
    assert not list(differences(states, before))
    assert list(differences(moved.states, before))


def test_torques_are_scaled_as_gymnasiums_engine_scales_them():
    outputs = random(3).uniform(-1.5, 1.5, (200, 4)).astype(np.float32)
    outputs[0] = [np.nan, np.inf, -np.inf, 0.0]
    for scale in (0.3, 1.0, 4.0):
        task = exact_task(EnvOptions(id=WALKERS[0], engine="exact", action_scale=scale))
        found = task.actions(outputs)
        expected = np.clip(min(scale, 1.0) * outputs.astype(np.float64), -1, 1).astype(np.float32)
        assert found[0].tolist() == [0, 1, -1, 0]
        assert (found[1:] == expected[1:]).all()


def test_a_fall_has_the_reward_of_the_settings():
    """A walker that is left of the ground has fallen."""
    task = exact_task(EnvOptions(id=WALKERS[0], engine="exact", kwargs={"fall": -7.5}))
    draws = Draws(np.arange(2), np.zeros(2, np.int64))
    states = task.begin(draws)
    for place in ("p", "c", "c0"):
        states["body"][place][1, :, 0] -= 8
    moved = task.step(states, np.zeros((2, 4), np.float32), draws)
    assert moved.over.tolist() == [False, True]
    assert moved.rewards[1] == -7.5 != moved.rewards[0]
