"""Tasks with rigid bodies play the episodes of Gymnasium's environments, to the bit.

Each of Gymnasium's episodes is played in a new environment: a used one handles contacts in another order.
"""

import math

import gymnasium
import numpy as np
import pytest
from conftest import ROOT
from gymnasium.envs.box2d.lunar_lander import heuristic

import evolve
from evolve import environments
from evolve.config import EnvOptions
from evolve.numerics import native

pytestmark = pytest.mark.skipif(not native.available(), reason="the native kernels were not built")

WALKER, HARDCORE = "BipedalWalker-v3", "BipedalWalkerHardcore-v3"
LANDER, CONTINUOUS = "LunarLander-v3", "LunarLanderContinuous-v3"
WIND = {"enable_wind": True}
STORM = {"enable_wind": True, "wind_power": 20.0, "turbulence_power": 2.0, "gravity": -7.0}
CASES = [
    (WALKER, {}, "random"),
    (WALKER, {"hardcore": True}, "random"),
    (HARDCORE, {}, "random"),
    (LANDER, {}, "random"),
    (LANDER, STORM, "random"),
    (CONTINUOUS, {}, "random"),
    (CONTINUOUS, WIND, "random"),
    (WALKER, {}, "walker-es"),
    (HARDCORE, {}, "walker-plastic"),
    (LANDER, {}, "lander"),
    (LANDER, WIND, "pilot"),
    (CONTINUOUS, {}, "pilot"),
    (CONTINUOUS, STORM, "pilot"),
]
SLOTS = 40  # the kernels step 32 side by side
WATCHED = [0, 16, 38]


def random_policy(seed, size):
    """Random outputs, of half of the seeds mostly the extremes. A few are infinite, or no numbers."""
    random = np.random.Generator(np.random.Philox(seed))

    def act(_):
        outputs = np.clip((1, 3)[seed % 2] * random.uniform(-1, 1, size), -1, 1).astype(np.float32)
        special = random.integers(120)
        if special < 3:
            outputs[random.integers(size)] = (math.nan, math.inf, -math.inf)[special]
        return outputs

    return act


def pilot(env):
    """Gymnasium's own policy, which lands."""

    def act(seen):
        action = heuristic(env.unwrapped, seen)
        return np.asarray(action, np.float32) if env.unwrapped.continuous else np.eye(4, dtype=np.float32)[action]

    return act


def champion(name, seed):
    """The champion of an experiment."""
    policy = evolve.load(ROOT / "zoo" / f"{name}.champion").champion()
    policy.reset(seed)
    return policy.outputs


def policy_of(name, env, seed, size):
    if name == "random":
        return random_policy(seed, size)
    return pilot(env) if name == "pilot" else champion(name, seed)


@pytest.mark.parametrize(("name", "kwargs", "policy"), CASES, ids=str)
def test_episodes_equal_those_of_gymnasium(name, kwargs, policy):
    """Observations, rewards and ends of whole episodes, in the middle of others that begin and end all the time."""
    engine = environments.make(EnvOptions(id=name, engine="exact", kwargs=kwargs), SLOTS)
    slots, seeds = np.arange(SLOTS), 1000 + 7919 * np.arange(SLOTS)
    observations = np.zeros((SLOTS, engine.observation_size), np.float32)
    engine.reset(slots, seeds, observations)
    theirs = {slot: gymnasium.make(name, disable_env_checker=True, **kwargs) for slot in WATCHED}
    acts = [policy_of(policy, env, int(seeds[slot]), engine.action_size) for slot, env in theirs.items()]
    for slot, env in theirs.items():
        seen, _ = env.reset(seed=int(seeds[slot]))
        assert observations[slot].tobytes() == seen.tobytes(), slot
    step = 0
    while theirs:
        step += 1
        outputs = np.array([act(observations[slot]) for slot, act in zip(WATCHED, acts, strict=True)])
        outputs = outputs[slots % len(WATCHED)]  # the others do the same
        rewards, ends = engine.step(slots, outputs, observations)
        for slot, env in [*theirs.items()]:
            seen, reward, terminated, truncated, _ = env.step(engine.decode(outputs[[slot]])[0])
            assert observations[slot].tobytes() == seen.tobytes(), f"observation of slot {slot}, step {step}"
            assert rewards[slot].tobytes() == np.float64(reward).tobytes(), f"reward of slot {slot}, step {step}"
            assert ends[slot] == (terminated or truncated), f"end of slot {slot}, step {step}"
            if ends[slot]:
                theirs.pop(slot).close()
        again = slots[ends]
        seeds[again] += 1
        if len(again):
            engine.reset(again, seeds[again], observations)


@pytest.mark.parametrize("hardcore", [False, True])
@pytest.mark.parametrize("name", [WALKER, HARDCORE])
def test_the_name_decides_how_long_episodes_are(name, hardcore):
    """As Gymnasium registers it, whatever the obstacles."""
    engine = environments.make(EnvOptions(id=name, engine="exact", kwargs={"hardcore": hardcore}), 1)
    assert engine.task.limit == gymnasium.spec(name).max_episode_steps
