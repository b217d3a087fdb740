"""Tasks with rigid bodies play the episodes of Gymnasium's environments, to the bit.

Each of Gymnasium's episodes is played in a new environment: a used one handles contacts in another order.
"""

import math

import gymnasium
import numpy as np
import pytest
from conftest import ROOT
from gymnasium.envs.box2d.bipedal_walker import BipedalWalker
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
WEAK = {"leg_1": 0.5, "leg_2": -0.25}
MOON = {"gravity": -3.0, "friction": 0.4, "leg_2": 0.0}
CHANGED = {"gravity": -12.5, "friction": 7.0, "leg_1": 0.9, "changes_at": 25, "leg_1_later": -1.0, "leg_2_later": 0.3}
CASES = [
    (WALKER, {}, "random"),
    (WALKER, {"hardcore": True}, "random"),
    (HARDCORE, {}, "random"),
    (WALKER, WEAK, "random"),
    (WALKER, MOON, "random"),
    (HARDCORE, CHANGED, "random"),
    (LANDER, {}, "random"),
    (LANDER, STORM, "random"),
    (CONTINUOUS, {}, "random"),
    (CONTINUOUS, WIND, "random"),
    (WALKER, {}, "walker-es"),
    (WALKER, {"friction": 1.5, "changes_at": 150, "leg_2_later": 0.6}, "walker-es"),
    (HARDCORE, {"fall": -7.5}, "walker-plastic"),
    (LANDER, {}, "lander"),
    (LANDER, WIND, "pilot"),
    (CONTINUOUS, {}, "pilot"),
    (CONTINUOUS, STORM, "pilot"),
    (LANDER, {"gravity": -0.01}, "spin"),  # it turns more than 30 times, beyond the first formula of the sine
]
SLOTS = 40  # the kernels step 32 side by side
WATCHED = [16, 38]


class ChangedWalker(BipedalWalker):
    """Gymnasium's walker with the settings of ours, made from outside."""

    def __init__(self, hardcore=False, gravity=-10.0, friction=2.5, leg_1=1.0, leg_2=1.0, changes_at=0,
                 leg_1_later=1.0, leg_2_later=1.0, fall=-100.0):  # fmt: skip
        super().__init__(hardcore=hardcore)
        self.world.gravity = (0.0, gravity)
        self.fd_polygon.friction = self.fd_edge.friction = friction
        self._legs = [leg_1, leg_1, leg_2, leg_2]
        self._later = changes_at, [leg_1_later, leg_1_later, leg_2_later, leg_2_later]
        self._fall = fall

    def reset(self, **options):
        self._taken = -1  # a reset makes a step that does not count
        return super().reset(**options)

    def step(self, action):
        at, later = self._later
        legs = later if 0 < at <= self._taken else self._legs
        self._taken += 1
        seen, reward, *ends = super().step(np.clip(action, -1, 1) * np.array(legs, np.float32))
        return seen, self._fall if reward == -100 else reward, *ends


def in_gymnasium(name, kwargs):
    """Gymnasium's environment, or the changed walker in its wrappers."""
    if not {"gravity", "friction", "leg_1", "leg_2_later", "fall"} & set(kwargs) or name in (LANDER, CONTINUOUS):
        return gymnasium.make(name, disable_env_checker=True, **kwargs)
    env = ChangedWalker(**gymnasium.spec(name).kwargs | kwargs)
    return gymnasium.wrappers.TimeLimit(env, gymnasium.spec(name).max_episode_steps)


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
    if name == "spin":
        return lambda _: np.eye(4, dtype=np.float32)[3]
    return pilot(env) if name == "pilot" else champion(name, seed)


@pytest.mark.parametrize(("name", "kwargs", "policy"), CASES, ids=str)
def test_episodes_equal_those_of_gymnasium(name, kwargs, policy):
    """Observations, rewards and ends of whole episodes, in the middle of others that begin and end all the time.

    Random walkers that do not fall are followed for 200 steps, and a champion whose legs change for 300.
    """
    engine = environments.make(EnvOptions(id=name, engine="exact", kwargs=kwargs), SLOTS)
    slots, seeds = np.arange(SLOTS), 1000 + 7919 * np.arange(SLOTS)
    observations = np.zeros((SLOTS, engine.observation_size), np.float32)
    engine.reset(slots, seeds, observations)
    theirs = {slot: in_gymnasium(name, kwargs) for slot in WATCHED}
    acts = [policy_of(policy, env, int(seeds[slot]), engine.action_size) for slot, env in theirs.items()]
    for slot, env in theirs.items():
        seen, _ = env.reset(seed=int(seeds[slot]))
        assert observations[slot].tobytes() == seen.tobytes(), slot
    limit = 200 if policy == "random" else 300 if "changes_at" in kwargs else 2000
    for step in range(limit):
        if not theirs:
            break
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
    assert engine.task.default_limit == gymnasium.spec(name).max_episode_steps
