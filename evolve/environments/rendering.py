"""Draw environments as frames or in a window, and name their observations and actions for figures.

`drawable_options` returns options with which an engine draws. `picture` draws the state of an exact task, with the help
of Gymnasium's environment of the same name. `labels` returns the names.
"""

import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from ctypes.util import find_library
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from evolve.config import EnvOptions
from evolve.environments.engine import Mode, as_frame, keeping_directory
from evolve.environments.envpool_engine import envpool_can_draw
from evolve.environments.exact import TASKS, AnyTask, exact_task
from evolve.environments.exact.bipedal_walker import BipedalWalker, Terrain, draw_terrain
from evolve.environments.exact.task import Pcg64
from evolve.environments.gymnasium_engine import GymnasiumEngine
from evolve.environments.gymnasium_making import (
    MUJOCO_CURE,
    closing_silently,
    make_or_explain,
    maker,
    renders_by_mujoco,
)
from evolve.environments.spaces import (
    Space,
    Spaces,
    action_decoder,
    kind_of,
    members_of,
    observation_encoder,
)
from evolve.errors import InputError, Setting, exception_line
from evolve.shapes import UInt8

_LONGEST_LABEL = 18  # the characters for which figures have space
_LONGEST_KEY = 12  # the most characters of a label that are from the key of a Dict
_AS_FRAMES: tuple[str | Setting, ...] = "Draw it as frames: ", Setting("mode", "rgb_array"), "."
_IN_GYMNASIUM = "Gymnasium's environment of this name may be drawn, but plays other episodes."
_LEG_1 = ("hip angle 1", "hip speed 1", "knee angle 1", "knee speed 1", "foot contact 1")
_LEG_2 = ("hip angle 2", "hip speed 2", "knee angle 2", "knee speed 2", "foot contact 2")
_WALKER = (
    "hull angle", "hull angular speed", "speed x", "speed y", *_LEG_1, *_LEG_2, *(f"lidar {n}" for n in range(1, 11))
)  # fmt: skip
_CHEETAH_JOINTS = ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot")
_CHEETAH = (
    "height", "pitch", *(f"{joint} angle" for joint in _CHEETAH_JOINTS),
    "speed x", "speed z", "pitch speed", *(f"{joint} speed" for joint in _CHEETAH_JOINTS),
)  # fmt: skip
_LANDER = ("x", "y", "speed x", "speed y", "angle", "angular speed", "left leg contact", "right leg contact")
_ARMS = tuple(f"arm {n}" for n in range(1, 6))
_ACROBOT = ("cos angle 1", "sin angle 1", "cos angle 2", "sin angle 2", "angular speed 1", "angular speed 2")

KNOWN_LABELS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "CartPole": (("position", "speed", "pole angle", "pole angular speed"), ("push left", "push right")),
    "Pendulum": (("cos angle", "sin angle", "angular speed"), ("torque",)),
    "MountainCar": (("position", "speed"), ("push left", "coast", "push right")),
    "MountainCarContinuous": (("position", "speed"), ("force",)),
    "Acrobot": (_ACROBOT, ("torque −1", "torque 0", "torque +1")),
    "LunarLander": (_LANDER, ("coast", "left engine", "main engine", "right engine")),
    "LunarLanderContinuous": (_LANDER, ("main engine", "side engines")),
    "BipedalWalker": (_WALKER, ("hip 1", "knee 1", "hip 2", "knee 2")),
    "BipedalWalkerHardcore": (_WALKER, ("hip 1", "knee 1", "hip 2", "knee 2")),
    "InvertedPendulum": (("position", "pole angle", "speed", "pole angular speed"), ("force",)),
    "HalfCheetah": (_CHEETAH, _CHEETAH_JOINTS),
    "Cues": ((*(f"cue {n}" for n in range(1, 7)), "answer", "success"), ("answer",)),  # of the default size
    "Reversal": (("choose", "look", "arm", "better arm"), ("arm",)),
    "Bandit": (("pull", "look", *_ARMS, "result"), _ARMS),  # of the default size
    "TMaze": (("junction", "end", "home", "reward"), ("turn",)),
}
"""The labels of the observations and of the actions, by the id of the environment without its version."""

GYMNASIUM_INDICES = {
    "Acrobot-v1": [0, 3, 6, 7],
    "CartPole-v1": [0, 1, 2, 3],
    "MountainCar-v0": [0, 1],
    "MountainCarContinuous-v0": [0, 1],
    "Pendulum-v1": [0, 3],
}
"""For each task of classic control: the indices in its state [S] of the numbers that make up Gymnasium's `state`."""
_WIDTH = 20.0  # the width of Gymnasium's pictures of a walker, in meters
_MUJOCO_BACKENDS = {"egl": "EGL", "osmesa": "OSMesa"}
"""Values of the variable MUJOCO_GL with which MuJoCo needs no display, each with the library that it needs."""


def has_display() -> bool:
    """Return whether a window can be opened: on a screen, or by the driver that SDL_VIDEODRIVER names."""
    return _has_screen() or bool(os.environ.get("SDL_VIDEODRIVER"))


def _has_screen() -> bool:
    """Return whether there is a screen. On Linux, environment variables name the screen."""
    if not sys.platform.startswith("linux"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def draw_without_display() -> None:
    """If there is no display, set environment variables so that pygame and MuJoCo draw without one.

    Variables that the user has set stay. Call this function before MuJoCo is imported, which reads its variable then.
    """
    if _has_screen():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    backend = next((name for name, library in _MUJOCO_BACKENDS.items() if find_library(library)), None)
    if backend is not None:
        os.environ.setdefault("MUJOCO_GL", backend)


def drawable_options(options: EnvOptions, mode: Mode) -> EnvOptions:
    """Return options with which the environment draws in a mode. Raises InputError if it cannot."""
    if options.engine != "gymnasium":
        is_exact = options.engine == "exact"
        draws_frames = is_drawable_task(options.id) if is_exact else envpool_can_draw(options.id)
        if mode == "human" or not draws_frames:
            expected = f"an environment that can be drawn {'in a window' if mode == 'human' else 'as frames'}"
            got = f"{options.id} of {'the exact engine' if is_exact else 'EnvPool'}"
            cure_without_frames = () if is_exact else (_IN_GYMNASIUM,)
            cure = _AS_FRAMES if draws_frames else cure_without_frames
            raise InputError("env.engine", expected, got, *cure)
        return options if is_exact else _with_kwargs(options, {"render_mode": mode})
    with closing_silently(make_or_explain(options, maker(options))) as env:
        _check_mode(env, options, mode)
        # Keep a camera that the user has chosen.
        camera = {} if {"camera_id", "camera_name"} & options.kwargs.keys() else _camera(env)
    return _with_kwargs(options, {"render_mode": mode} | camera)


@keeping_directory()
def declares_frames(options: EnvOptions) -> bool:
    """Return whether an environment of Gymnasium declares that it can be drawn as frames."""
    with closing_silently(make_or_explain(options, maker(options))) as env:
        return "rgb_array" in _render_modes(env)


def _render_modes(env: Any) -> list[str]:
    """Return the modes that an environment declares; it may declare none, and have no metadata."""
    return (env.unwrapped.metadata or {}).get("render_modes") or []


@keeping_directory()
def try_drawing(options: EnvOptions) -> bool:
    """Draw a frame as a trial, except with EnvPool. Return whether the environment can be drawn as frames.

    If it does not declare that it can, nothing is drawn. Raises InputError if a library is missing, or if the
    environment fails.
    """
    if options.engine == "envpool":
        return envpool_can_draw(options.id)
    if options.engine == "exact":
        task = exact_task(options)
        if is_drawable_task(options.id):
            picture(options.id, task, task.blank_states(1)[..., 0], seed=0, step=0)
        return is_drawable_task(options.id)
    if not declares_frames(options):
        return False
    with closing(GymnasiumEngine(drawable_options(options, "rgb_array"), slots=1)) as engine:
        slots = seeds = np.zeros(1, np.int64)
        engine.reset(slots, seeds, np.zeros((1, engine.observation_size), np.float32))
        if engine.faults:
            got = f"{options.id} ({exception_line(engine.faults[0])})"
            raise InputError("env.id", "an environment that can be reset before it is drawn", got)
        engine.frame(0)
    return True


def _with_kwargs(options: EnvOptions, kwargs: dict[str, str]) -> EnvOptions:
    """Return options with further arguments of the environment, `env.kwargs`."""
    return options.model_copy(update={"kwargs": options.kwargs | kwargs})


def _camera(env: Any) -> dict[str, str]:
    """Return the argument that makes MuJoCo's camera follow a robot; {} if no camera can, or one already does."""
    unwrapped = env.unwrapped
    if not type(unwrapped).__module__.startswith("gymnasium.envs.mujoco"):
        return {}
    follows_already = "trackbodyid" in (unwrapped.mujoco_renderer.default_cam_config or {})
    cameras = [unwrapped.model.camera(number).name for number in range(unwrapped.model.ncam)]
    return {"camera_name": "track"} if "track" in cameras and not follows_already else {}


def _check_mode(env: Any, options: EnvOptions, mode: Mode) -> None:
    """Raise InputError if an environment lacks the render mode, or if drawing needs a display and there is none."""
    modes = _render_modes(env)
    # Gymnasium can show frames in a window of its own, so "rgb_array" is enough for both modes.
    if not {mode, "rgb_array"} & set(modes):
        got = f"{options.id}, which has {f'only {modes}' if modes else 'no render mode'}"
        raise InputError("env.id", f"an environment with the render mode {mode!r}", got)
    if renders_by_mujoco(env) and mode == "rgb_array" and not _has_screen() and "MUJOCO_GL" not in os.environ:
        raise InputError("env.id", "an environment that can be drawn here", options.id, MUJOCO_CURE)


def labels(env_id: str, observations: int, actions: int, spaces: Spaces | None = None) -> tuple[list[str], list[str]]:
    """Return the labels of the observations and of the actions of an environment.

    Labels are from `KNOWN_LABELS`, otherwise from the keys of a Dict, otherwise "observation 0", "action 0" ….

    Args:
        env_id: The id of the environment.
        observations: O, the number of observations.
        actions: A, the number of actions.
        spaces: The spaces of the environment; None if they are unknown.
    """
    # "module:namespace/CartPole-v1" becomes "CartPole".
    name = re.sub(r"-v\d+$", "", env_id.rpartition(":")[2].rpartition("/")[2])
    known_observations, known_actions = KNOWN_LABELS.get(name, ((), ()))
    if spaces is not None:
        known_observations = known_observations or _labels_of_dict(spaces.observation, observation_encoder)
        known_actions = known_actions or _labels_of_dict(spaces.action, partial(action_decoder, action_scale=1.0))
    observation_labels = _known_or_numbered(known_observations, "observation", observations)
    return observation_labels, _known_or_numbered(known_actions, "action", actions)


def _known_or_numbered(known: tuple[str, ...], word: str, number: int) -> list[str]:
    """Return the known labels if there are exactly `number`, otherwise the word with numbers from 0."""
    return list(known) if len(known) == number else [f"{word} {n}" for n in range(number)]


def _labels_of_dict(space: Space, coder: Callable[[Space], tuple[int, Any]]) -> tuple[str, ...]:
    """Return a label for each number of a Dict, such as "goal 0", "goal 1", "speed"; () for any other space.

    coder: `observation_encoder` or `action_decoder`, which returns (the size of a space, a function).
    """
    if space is None or kind_of(space) != "Dict":
        return ()
    all_labels: list[str] = []
    for key, member in members_of(space):
        size, _ = coder(member)
        first = int(member.start) if kind_of(member) == "Discrete" else 0  # a Discrete action counts from its start
        numbers = [str(first + n) for n in range(size)] if size > 1 else [""]
        for label in _labels_of_dict(member, coder) or numbers:
            with_key = f"{str(key)[:_LONGEST_KEY]} {label}".strip()
            all_labels.append(with_key if len(with_key) <= _LONGEST_LABEL else label)
    return tuple(all_labels)


def _place_bodies(env: Any, task: AnyTask, world: Any, seed: int, step: int) -> None:
    """Move the bodies of Gymnasium's environment to the places that they have in a world, see `ExactTask.has_world`."""
    main_body = env.hull if isinstance(task, BipedalWalker) else env.lander
    # Not strict: a world has more records of bodies than a task uses.
    for body, record in zip([main_body, *env.legs], world["body"], strict=False):
        body.transform = record["p"].tolist(), float(record["a"])
    if isinstance(task, BipedalWalker):
        _place_surroundings(env, task, world, seed, step)


def _place_surroundings(env: Any, task: BipedalWalker, world: Any, seed: int, step: int) -> None:
    """Set the ground, the view and the lidar of a walker to the state of a world."""
    obstacles = float(world["parameter"][task.randomizable.index("obstacles")])
    # Gymnasium's own ground has obstacles of size 1. In a world without an episode, the size is 0.
    if obstacles and obstacles != getattr(env, "obstacles", 1.0):
        _place_ground(env, draw_terrain(Pcg64.seeded(seed), env.hardcore, obstacles))
        # Remember the size in this object, because `_environment` returns it again for the next picture.
        env.obstacles = obstacles
    x, y = env.hull.position
    # As in Gymnasium's `step`, the hull is at a fifth of the width of the picture.
    env.scroll = x - _WIDTH / 5
    for ray, (forward, down) in zip(env.lidar, task.rays, strict=True):
        ray.p1, ray.p2 = (x, y), (x + forward, y - down)
        env.world.RayCast(ray, ray.p1, ray.p2)
    # Gymnasium draws the lidar in 20 of every 100 frames. Set the count of frames as if each step had been drawn.
    env.lidar_render = step


def _place_ground(env: Any, terrain: Terrain) -> None:
    """Change the heights and the obstacles of the ground in Gymnasium's environment. The number of obstacles stays."""
    # Gymnasium lists the bodies of the ground in reverse order: the last edge first, and the first obstacle last.
    edges = [*pairwise(zip(env.terrain_x, terrain.heights, strict=True))]
    for body, corners in zip(reversed(env.terrain), [*terrain.blocks, *edges], strict=True):
        body.fixtures[0].shape.vertices = corners
        body.transform = (0.0, 0.0), 0.0  # makes Box2D update the bounding box, by which rays find the body
    # Each polygon fills the picture from one edge down to height 0.
    env.terrain_poly = [
        ([left, right, (right[0], 0), (left[0], 0)], color)
        for (left, right), (_, color) in zip(edges, env.terrain_poly, strict=True)
    ]


def is_drawable_task(env_id: str) -> bool:
    """Return whether an exact task can be drawn, by Gymnasium's environment of this name."""
    return env_id in GYMNASIUM_INDICES or (env_id in TASKS and TASKS[env_id].has_world)


def picture(env_id: str, task: AnyTask, state: Any, seed: int, step: int) -> UInt8:
    """Return a picture of a state, [H, W, 3]. Drawing needs no display.

    Clouds and terrain are as in Gymnasium's episode with this seed. But the setting `obstacles` changes the height of
    obstacles, and of the ground behind them. The flames of a lander's engines are not drawn, because they are not part
    of a state.

    Args:
        env_id: The task.
        task: The task with its settings.
        state: [S], or a world of rigid bodies.
        seed: The seed of the episode.
        step: The number of steps of the episode so far.

    Raises:
        InputError: The task cannot be drawn, or a library that draws it is missing.
    """
    if not is_drawable_task(env_id):
        raise InputError("env.id", f"a task that can be drawn: {', '.join(filter(is_drawable_task, TASKS))}", env_id)
    with _DRAWING_LOCK:
        if env_id in GYMNASIUM_INDICES:
            # Any seed will do, because `state` replaces the state after the reset.
            env = _environment(env_id, settings=(), seed=0)
            env.state = np.array(state[GYMNASIUM_INDICES[env_id]])
            # Set all settings, because this shared object may still have the settings of another episode.
            for name, value in task.options:
                setattr(env, name, value)
        else:
            settings = task.options.model_dump(exclude=set(task.own_options))  # Gymnasium does not take own settings
            env = _environment(env_id, tuple(settings.items()), seed)
            _place_bodies(env, task, state, seed, step)
        return as_frame(env_id, env.render)


_DRAWING_LOCK = threading.Lock()  # all threads share the environment that `_environment` keeps


@lru_cache(maxsize=1)  # all pictures of an episode use one environment
def _environment(env_id: str, settings: tuple[tuple[str, Any], ...], seed: int) -> Any:
    """Return Gymnasium's environment of this name, ready to draw frames, at the beginning of an episode."""
    options = EnvOptions(id=env_id, kwargs=dict(settings))
    env = make_or_explain(options, maker(_with_kwargs(options, {"render_mode": "rgb_array"}))).unwrapped
    env.reset(seed=seed)
    return env
