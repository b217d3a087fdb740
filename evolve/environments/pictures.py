"""Pictures of exact tasks: Gymnasium draws those that it has, in a given state."""

from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np

from evolve.environments.engine import as_frame
from evolve.errors import InputError
from evolve.shapes import Float64, UInt8

_DRAWN = {  # which numbers of a state are Gymnasium's
    "Acrobot-v1": (0, 3, 6, 7),
    "CartPole-v1": (0, 1, 2, 3),
    "MountainCar-v0": (0, 1),
    "MountainCarContinuous-v0": (0, 1),
    "Pendulum-v1": (0, 3),
}


def has_picture(env_id: str) -> bool:
    """Return whether there is a picture of an exact task."""
    return env_id in _DRAWN


def drawn_numbers(env_id: str) -> list[int]:
    """Return which numbers of a task's state are those of Gymnasium's."""
    return list(_DRAWN[env_id])


def picture(env_id: str, state: Float64) -> UInt8:
    """Return what a state [S] looks like, [H, W, 3]. Raises InputError where there is no picture of the task."""
    if not has_picture(env_id):
        expected = f"a task that can be drawn: {', '.join(_DRAWN)}"
        raise InputError("env.id", expected, env_id)
    env = _environment(env_id)
    env.unwrapped.state = np.array(state[drawn_numbers(env_id)])
    return as_frame(env_id, env.render)


@lru_cache(maxsize=1)
def _environment(env_id: str) -> Any:
    env = gymnasium.make(env_id, render_mode="rgb_array", disable_env_checker=True)
    env.reset(seed=0)
    return env
