"""Pictures of exact tasks, drawn by Gymnasium, and the names of observations and actions for drawings."""

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

_LEGS = ("hip angle", "hip speed", "knee angle", "knee speed", "foot contact")
_WALKER = (
    "hull angle", "hull angular speed", "speed x", "speed y",
    *(f"{part} {leg}" for leg in (1, 2) for part in _LEGS), *(f"lidar {n}" for n in range(1, 11)),
)  # fmt: skip
_CHEETAH_JOINTS = ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot")
_CHEETAH = (
    "height", "pitch", *(f"{joint} angle" for joint in _CHEETAH_JOINTS),
    "speed x", "speed z", "pitch speed", *(f"{joint} speed" for joint in _CHEETAH_JOINTS),
)  # fmt: skip
_LANDER = ("x", "y", "speed x", "speed y", "angle", "angular speed", "left leg contact", "right leg contact")
_ACROBOT = ("cos angle 1", "sin angle 1", "cos angle 2", "sin angle 2", "angular speed 1", "angular speed 2")

_KNOWN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "CartPole": (("position", "speed", "pole angle", "pole angular speed"), ("push left", "push right")),
    "Pendulum": (("cos angle", "sin angle", "angular speed"), ("torque",)),
    "MountainCar": (("position", "speed"), ("push left", "coast", "push right")),
    "MountainCarContinuous": (("position", "speed"), ("force",)),
    "Acrobot": (_ACROBOT, ("torque −1", "torque 0", "torque +1")),
    "LunarLander": (_LANDER, ("coast", "left engine", "main engine", "right engine")),
    "BipedalWalker": (_WALKER, ("hip 1", "knee 1", "hip 2", "knee 2")),
    "BipedalWalkerHardcore": (_WALKER, ("hip 1", "knee 1", "hip 2", "knee 2")),
    "InvertedPendulum": (("position", "pole angle", "speed", "pole angular speed"), ("force",)),
    "HalfCheetah": (_CHEETAH, _CHEETAH_JOINTS),
}


_NUMBERS = {  # which numbers of a state are Gymnasium's
    "Acrobot-v1": (0, 3, 6, 7),
    "CartPole-v1": (0, 1, 2, 3),
    "MountainCar-v0": (0, 1),
    "MountainCarContinuous-v0": (0, 1),
    "Pendulum-v1": (0, 3),
}
_WIDTH = 20.0  # of Gymnasium's pictures of worlds, in meters


def names(env: str, observations: int, actions: int) -> tuple[list[str], list[str]]:
    """Return the names of an environment's observations and actions; "observation 0" and so on where none are known.

    Args:
        env: The id of the environment.
        observations: O, how many there are.
        actions: A.
    """
    family = env.rpartition(":")[2].rpartition("/")[2].rpartition("-v")[0]
    known_observations, known_actions = _KNOWN.get(family, ((), ()))
    return _named(known_observations, "observation", observations), _named(known_actions, "action", actions)


def _named(known: tuple[str, ...], what: str, number: int) -> list[str]:
    """Return the known names if there are as many as needed, and numbered ones otherwise."""
    return list(known) if len(known) == number else [f"{what} {n}" for n in range(number)]


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
