"""Draw environments, with or without a display, and draw exact tasks through Gymnasium's environments."""

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
from evolve.environments.envpool_engine import can_draw
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

_LONGEST_NAME = 18  # characters of a name beside a drawing
_LONGEST_KEY = 12  # characters that such a name takes from the key of a Dict
_AS_FRAMES: tuple[str | Setting, ...] = "Draw it as frames: ", Setting("mode", "rgb_array"), "."
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
"""The names of the observations and of the actions of each family of environments."""

GYMNASIUM_INDICES = {
    "Acrobot-v1": [0, 3, 6, 7],
    "CartPole-v1": [0, 1, 2, 3],
    "MountainCar-v0": [0, 1],
    "MountainCarContinuous-v0": [0, 1],
    "Pendulum-v1": [0, 3],
}
"""For each task, the indices in its state [S] of the numbers that make up the state of Gymnasium's environment."""
_WIDTH = 20.0  # meters that Gymnasium's pictures of a walker show
_MUJOCO_BACKENDS = {"egl": "EGL", "osmesa": "OSMesa"}  # values of MUJOCO_GL without a display, and their libraries


def has_display() -> bool:
    """Return whether a window can be shown, on a screen or by the driver that SDL_VIDEODRIVER names."""
    return _has_screen() or bool(os.environ.get("SDL_VIDEODRIVER"))


def _has_screen() -> bool:
    """Return whether there is a screen. On Linux, environment variables name the screen."""
    if not sys.platform.startswith("linux"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def draw_without_display() -> None:
    """Let pygame and MuJoCo draw without a display if there is none, by environment variables.

    Variables that the user has set stay. Call this function early: MuJoCo reads its variable when it is imported.
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
        draws_frames = has_picture(options.id) if is_exact else can_draw(options.id)
        if mode == "human" or not draws_frames:
            expected = f"an environment that can be drawn {'in a window' if mode == 'human' else 'as frames'}"
            other = (
                () if is_exact else ("Gymnasium's environment of this name may be drawn, but plays other episodes.",)
            )
            cure = _AS_FRAMES if draws_frames else other
            got = f"{options.id} of {'the exact engine' if is_exact else 'EnvPool'}"
            raise InputError("env.engine", expected, got, *cure)
        return options if is_exact else _with(options, {"render_mode": mode})
    with closing_silently(make_or_explain(options, maker(options))) as env:
        _check_mode(env, options, mode)
        # A camera that the user has chosen stays.
        camera = _camera(env) if not {"camera_id", "camera_name"} & set(options.kwargs) else {}
    return _with(options, {"render_mode": mode} | camera)


@keeping_directory()
def declares_frames(options: EnvOptions) -> bool:
    """Return whether an environment of Gymnasium declares that it can be drawn as frames."""
    with closing_silently(make_or_explain(options, maker(options))) as env:
        return "rgb_array" in _render_modes(env)


def _render_modes(env: Any) -> list[str]:
    return (env.unwrapped.metadata or {}).get("render_modes") or []


@keeping_directory()
def check_drawable(options: EnvOptions) -> bool:
    """Return whether an environment can be drawn as frames.

    If the environment declares that it can, a frame is drawn as a trial, except with EnvPool. The trial raises
    InputError if a library is missing or the environment fails.
    """
    if options.engine == "envpool":
        return can_draw(options.id)
    if options.engine == "exact":
        task = exact_task(options)
        if has_picture(options.id):
            picture(options.id, task, task.blank(1)[..., 0], seed=0, step=0)
        return has_picture(options.id)
    if not declares_frames(options):
        return False
    with closing(GymnasiumEngine(drawable_options(options, "rgb_array"), slots=1)) as engine:
        slots = np.zeros(1, np.int64)
        # The 0 in `slots` is both the slot and the seed.
        engine.reset(slots, slots, np.zeros((1, engine.observation_size), np.float32))
        if engine.faults:
            got = f"{options.id} ({exception_line(engine.faults[0])})"
            raise InputError("env.id", "an environment that can be reset before it is drawn", got)
        engine.frame(0)
    return True


def _with(options: EnvOptions, kwargs: dict[str, str]) -> EnvOptions:
    return options.model_copy(update={"kwargs": options.kwargs | kwargs})


def _camera(env: Any) -> dict[str, str]:
    """Return the argument that makes MuJoCo's camera follow a robot; {} if no camera can, or one already does."""
    inner = env.unwrapped
    if not type(inner).__module__.startswith("gymnasium.envs.mujoco"):
        return {}
    follows_already = "trackbodyid" in (inner.mujoco_renderer.default_cam_config or {})
    cameras = [inner.model.camera(number).name for number in range(inner.model.ncam)]
    return {"camera_name": "track"} if "track" in cameras and not follows_already else {}


def _check_mode(env: Any, options: EnvOptions, mode: Mode) -> None:
    """Raise InputError if an environment lacks a render mode, or lacks a display that it needs."""
    modes = _render_modes(env)
    # Gymnasium can show frames in a window of its own, so "rgb_array" is enough for both modes.
    if not {mode, "rgb_array"} & set(modes):
        got = f"{options.id}, which has {f'only {modes}' if modes else 'no render mode'}"
        raise InputError("env.id", f"an environment with the render mode {mode!r}", got)
    if renders_by_mujoco(env) and mode == "rgb_array" and not _has_screen() and "MUJOCO_GL" not in os.environ:
        raise InputError("env.id", "an environment that can be drawn here", options.id, MUJOCO_CURE)


def names(env: str, observations: int, actions: int, spaces: Spaces | None = None) -> tuple[list[str], list[str]]:
    """Return names of the observations and actions of an environment; if unknown, "observation 0", "action 0" ….

    Args:
        env: The id of the environment.
        observations: O, the number of observations.
        actions: A, the number of actions.
        spaces: The spaces of the environment. The names of unknown environments are the keys of a Dict.
    """
    # "module:namespace/CartPole-v1" belongs to the family "CartPole".
    family = re.sub(r"-v\d+$", "", env.rpartition(":")[2].rpartition("/")[2])
    known_observations, known_actions = KNOWN_LABELS.get(family, ((), ()))
    if spaces is not None:
        known_observations = known_observations or _keys(spaces.observation, observation_encoder)
        known_actions = known_actions or _keys(spaces.action, partial(action_decoder, action_scale=1.0))
    return _named(known_observations, "observation", observations), _named(known_actions, "action", actions)


def _named(known: tuple[str, ...], what: str, number: int) -> list[str]:
    """Return the known names if there are exactly `number`, otherwise numbered names."""
    return list(known) if len(known) == number else [f"{what} {n}" for n in range(number)]


def _keys(space: Space, coder: Callable[[Space], tuple[int, Any]]) -> tuple[str, ...]:
    """Return a name for each number of a Dict, such as "goal 0", "goal 1", "speed"; () for any other space.

    coder: `observation_encoder` or `action_decoder`, which returns the size of a member first.
    """
    if space is None or kind_of(space) != "Dict":
        return ()
    found: list[str] = []
    for key, member in members_of(space):
        size = coder(member)[0]
        first = int(member.start) if kind_of(member) == "Discrete" else 0  # a Discrete action counts from its start
        numbers = [str(first + n) for n in range(size)] if size > 1 else [""]
        for name in _keys(member, coder) or numbers:
            whole = f"{str(key)[:_LONGEST_KEY]} {name}".strip()
            found.append(whole if len(whole) <= _LONGEST_NAME else name)
    return tuple(found)


def _place_bodies(env: Any, task: AnyTask, world: Any, seed: int, step: int) -> None:
    """Bring Gymnasium's environment into the state of a world of rigid bodies, see `ExactTask.has_world`."""
    main = env.hull if isinstance(task, BipedalWalker) else env.lander
    # `world` has room for more bodies than a task uses.
    for body, place in zip([main, *env.legs], world["body"], strict=False):
        body.transform = place["p"].tolist(), float(place["a"])
    if isinstance(task, BipedalWalker):
        _place_surroundings(env, task, world, seed, step)


def _place_surroundings(env: Any, task: BipedalWalker, world: Any, seed: int, step: int) -> None:
    """Set the ground, the view and the lidar of a walker to the state of a world."""
    obstacles = float(world["parameter"][task.randomizable.index("obstacles")])
    # Gymnasium's own ground has obstacles of size 1. In a world without an episode, the size is 0.
    if obstacles and obstacles != getattr(env, "obstacles", 1.0):
        _place_ground(env, draw_terrain(Pcg64.seeded(seed), env.hardcore, obstacles))
        # `_environment` keeps this object for the next picture, so remember the size.
        env.obstacles = obstacles
    x, y = env.hull.position
    # As in Gymnasium's `step`: the hull is at a fifth of the width of the picture.
    env.scroll = x - _WIDTH / 5
    for ray, (forward, down) in zip(env.lidar, task.rays, strict=True):
        ray.p1, ray.p2 = (x, y), (x + forward, y - down)
        env.world.RayCast(ray, ray.p1, ray.p2)
    # Gymnasium draws the lidar in 20 of every 100 frames. Set the count of frames as if each step had been drawn.
    env.lidar_render = step


def _place_ground(env: Any, terrain: Terrain) -> None:
    """Change the heights and the obstacles of an environment's ground. The number of obstacles stays."""
    # Gymnasium lists the bodies of obstacles and edges in the reverse order.
    edges = [*pairwise(zip(env.terrain_x, terrain.heights, strict=True))]
    for body, corners in zip(reversed(env.terrain), [*terrain.blocks, *edges], strict=True):
        body.fixtures[0].shape.vertices = corners
        body.transform = (0.0, 0.0), 0.0  # Box2D then updates the bounding box, which rays need to find the body
    # Each polygon fills the picture below one edge, down to height 0.
    env.terrain_poly = [
        ([left, right, (right[0], 0), (left[0], 0)], color)
        for (left, right), (_, color) in zip(edges, env.terrain_poly, strict=True)
    ]


def has_picture(env_id: str) -> bool:
    """Return whether an exact task can be drawn."""
    kind = TASKS.get(env_id)
    return kind is not None and (kind.has_world or env_id in GYMNASIUM_INDICES)


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
        step: The number of steps that the episode has had.

    Raises:
        InputError: The task cannot be drawn, or a library that draws it is missing.
    """
    if not has_picture(env_id):
        raise InputError("env.id", f"a task that can be drawn: {', '.join(filter(has_picture, TASKS))}", env_id)
    with _DRAWING:
        if env_id in GYMNASIUM_INDICES:
            # The seed does not matter, because the given state replaces the state of the reset.
            env = _environment(env_id, (), 0)
            env.state = np.array(state[GYMNASIUM_INDICES[env_id]])
            # Another episode may have left other settings in this shared object, so set all of them.
            for name, value in task.options:
                setattr(env, name, value)
        else:
            settings = task.options.model_dump(exclude=set(task.own_settings))  # Gymnasium does not know own settings
            env = _environment(env_id, tuple(settings.items()), seed)
            _place_bodies(env, task, state, seed, step)
        return as_frame(env_id, env.render)


_DRAWING = threading.Lock()  # all threads share the environment of `_environment`


@lru_cache(maxsize=1)  # all pictures of an episode use one environment
def _environment(env_id: str, settings: tuple[tuple[str, Any], ...], seed: int) -> Any:
    """Return Gymnasium's environment of this name, ready to draw frames, at the beginning of an episode."""
    kwargs = dict(settings)
    options = EnvOptions(id=env_id, kwargs=kwargs)
    env = make_or_explain(options, maker(_with(options, {"render_mode": "rgb_array"}))).unwrapped
    env.reset(seed=seed)
    return env
