"""Drawing episodes: which environments can be drawn, and how, with a display and without."""

import os
import sys
from ctypes.util import find_library
from typing import Any, Literal

import numpy as np

from evolve.config import EnvOptions
from evolve.environments.engine import Engine
from evolve.environments.envpool_engine import can_draw
from evolve.environments.exact_engine import ExactEngine
from evolve.environments.factory import MUJOCO_CURE, draws_by_mujoco, make_or_explain, maker
from evolve.environments.gymnasium_engine import GymnasiumEngine
from evolve.environments.pictures import has_picture
from evolve.errors import InputError

Mode = Literal["rgb_array", "human"]
"""How an environment draws: as frames, or in a window."""

_MUJOCO = {"egl": "EGL", "osmesa": "OSMesa"}  # how MuJoCo draws without a display, and the library that it takes


def has_display() -> bool:
    """Return whether a window can be shown here, as far as the environment variables tell."""
    return _has_screen() or bool(os.environ.get("SDL_VIDEODRIVER"))


def _has_screen() -> bool:
    if not sys.platform.startswith("linux"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def without_display() -> None:
    """Choose ways to draw that need no display, if there is none and the user has not chosen: sets variables.

    To be called before anything is drawn: MuJoCo looks at the choice when it is imported.
    """
    if _has_screen():
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    found = next((way for way, library in _MUJOCO.items() if find_library(library)), None)
    if found is not None:
        os.environ.setdefault("MUJOCO_GL", found)


def drawn(options: EnvOptions, mode: Mode) -> EnvOptions:
    """Return the options of the same environment that draws itself. Raises InputError when it cannot."""
    if options.engine == "exact":
        if mode == "human" or not has_picture(options.id):
            cure = 'Draw it as frames: mode="rgb_array".' if has_picture(options.id) else ""
            raise InputError("env.engine", _expected(mode), f"{options.id} of the exact engine", cure)
        return options
    if options.engine == "envpool":
        if mode == "human" or not can_draw(options.id):
            namesake = "Its Gymnasium namesake can be, but plays other episodes."
            cure = 'Draw it as frames: mode="rgb_array".' if can_draw(options.id) else namesake
            raise InputError("env.engine", _expected(mode), f"{options.id} of EnvPool", cure)
        return _with(options, {"render_mode": mode})
    env = make_or_explain(options, maker(options))
    _check(env, options, mode)
    camera = _camera(env) if not {"camera_id", "camera_name"} & set(options.kwargs) else {}
    env.close()
    return _with(options, {"render_mode": mode} | camera)


def _expected(mode: Mode) -> str:
    return f"an environment that can be drawn {'in a window' if mode == 'human' else 'as frames'}"


def check_drawable(options: EnvOptions) -> bool:
    """Draw one frame of an environment; return whether it can draw frames at all.

    Raises InputError where a library that it draws with is missing.
    """
    if options.engine == "envpool":
        return can_draw(options.id)
    if options.engine == "exact":
        return has_picture(options.id) and _draws(ExactEngine(options, slots=1))
    env = make_or_explain(options, maker(options))
    modes = env.unwrapped.metadata.get("render_modes") or []
    env.close()
    if "rgb_array" not in modes:
        return False
    return _draws(GymnasiumEngine(drawn(options, "rgb_array"), slots=1))


def _draws(engine: Engine) -> bool:
    """Return True once an engine has drawn a frame. Raises InputError if it cannot."""
    try:
        slots = np.zeros(1, np.int64)
        engine.reset(slots, slots, np.zeros((1, engine.observation_size), np.float32))
        engine.frame(0)
    finally:
        engine.close()
    return True


def _with(options: EnvOptions, kwargs: dict[str, str]) -> EnvOptions:
    return options.model_copy(update={"kwargs": options.kwargs | kwargs})


def _camera(env: Any) -> dict[str, str]:
    """Return the argument that lets the camera follow a robot which would leave the picture."""
    inner = env.unwrapped
    if not type(inner).__module__.startswith("gymnasium.envs.mujoco"):
        return {}
    followed = "trackbodyid" in (inner.mujoco_renderer.default_cam_config or {})
    there = "track" in [inner.model.camera(number).name for number in range(inner.model.ncam)]
    return {"camera_name": "track"} if there and not followed else {}


def _check(env: Any, options: EnvOptions, mode: Mode) -> None:
    """Raise InputError where an environment cannot draw itself in that way, or not here."""
    modes = env.unwrapped.metadata.get("render_modes") or []
    if not {mode, "rgb_array"} & set(modes):  # Gymnasium shows frames in a window of its own
        came = f"{options.id}, which has {f'only {modes}' if modes else 'none'}"
        raise InputError("env.id", f"an environment with the render mode {mode!r}", came)
    if draws_by_mujoco(env) and mode == "rgb_array" and not _has_screen() and "MUJOCO_GL" not in os.environ:
        raise InputError("env.id", "an environment that can be drawn here", options.id, MUJOCO_CURE)
