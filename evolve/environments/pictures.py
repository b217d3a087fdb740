"""Pictures of exact tasks: Gymnasium's environment is brought into a given state, and draws it."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np

from evolve.config import EnvOptions
from evolve.environments.engine import as_frame
from evolve.environments.exact import AnyTask
from evolve.environments.factory import make_or_explain
from evolve.environments.spaces import quiet
from evolve.errors import InputError
from evolve.shapes import UInt8

_NUMBERS = {  # which numbers of a state are Gymnasium's
    "Acrobot-v1": (0, 3, 6, 7),
    "CartPole-v1": (0, 1, 2, 3),
    "MountainCar-v0": (0, 1),
    "MountainCarContinuous-v0": (0, 1),
    "Pendulum-v1": (0, 3),
}
_WIDTH = 20.0  # of Gymnasium's pictures of worlds, in meters


def _place_walker(env: Any, task: AnyTask, world: Any, step: int) -> None:
    _place_bodies([env.hull, *env.legs], world)
    x, y = env.hull.position
    env.scroll = x - _WIDTH / 5
    for ray, (forward, down) in zip(env.lidar, task.rays, strict=True):  # type: ignore[attr-defined]
        ray.p1, ray.p2 = (x, y), (x + forward, y - down)
        env.world.RayCast(ray, ray.p1, ray.p2)
    # Gymnasium draws a ray in 20 of 100 frames. It counts frames; with one frame for each step that is the same.
    env.lidar_render = step


def _place_lander(env: Any, _task: AnyTask, world: Any, _step: int) -> None:
    _place_bodies([env.lander, *env.legs], world)


def _place_bodies(bodies: Sequence[Any], world: Any) -> None:
    for body, place in zip(bodies, world["body"], strict=False):
        body.transform = place["p"].tolist(), float(place["a"])


_WORLDS: dict[str, Callable[[Any, AnyTask, Any, int], None]] = {
    "BipedalWalker-v3": _place_walker,
    "BipedalWalkerHardcore-v3": _place_walker,
    "LunarLander-v3": _place_lander,
    "LunarLanderContinuous-v3": _place_lander,
}
"""What brings Gymnasium's environment into the state of a world."""


def has_picture(env_id: str) -> bool:
    """Return whether there is a picture of an exact task."""
    return env_id in _NUMBERS or env_id in _WORLDS


def drawn_numbers(env_id: str) -> list[int]:
    """Return which numbers of a task's state are those of Gymnasium's."""
    return list(_NUMBERS[env_id])


def picture(env_id: str, task: AnyTask, state: Any, seed: int, step: int) -> UInt8:
    """Return what a state looks like, [H, W, 3]; no display is needed.

    A world has the terrain and the clouds of Gymnasium's episode with the same seed. The flames of a lander's engines
    are not part of a state, so they are not drawn.

    Args:
        env_id: The task.
        task: The task with its settings.
        state: [S], or a world.
        seed: Of the episode.
        step: How many steps the episode has had.

    Raises:
        InputError: There is no picture of the task, or a library that draws it is missing.
    """
    if not has_picture(env_id):
        expected = f"a task that can be drawn: {', '.join((*_NUMBERS, *_WORLDS))}"
        raise InputError("env.id", expected, env_id)
    if env_id in _NUMBERS:
        env = _environment(env_id, (), 0)
        env.state = np.array(state[drawn_numbers(env_id)])
    else:
        env = _environment(env_id, tuple(task.options.model_dump().items()), seed)
        _WORLDS[env_id](env, task, state, step)
    return as_frame(env_id, env.render)


@lru_cache(maxsize=1)
def _environment(env_id: str, settings: tuple[tuple[str, Any], ...], seed: int) -> Any:
    """Return an environment that draws frames, in the beginning of an episode."""
    quiet()
    how = dict(settings)
    env = make_or_explain(
        EnvOptions(id=env_id, kwargs=how),
        lambda: gymnasium.make(env_id, render_mode="rgb_array", disable_env_checker=True, **how),
    ).unwrapped
    env.reset(seed=seed)
    return env
