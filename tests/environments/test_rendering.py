"""How environments draw themselves, with a display and without."""

import os

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments import rendering
from evolve.environments.engine import as_frame
from evolve.errors import InputError


def test_mujoco_without_a_library_to_draw_with_is_refused(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="apt-get install libegl1"):
        environments.drawable_options(EnvOptions(id="InvertedPendulum-v5"), "rgb_array")


def test_the_camera_follows_a_robot_that_would_leave_the_picture(monkeypatch):
    """But a camera that the experiment names is kept."""
    monkeypatch.setenv("DISPLAY", ":0")
    for name, kwargs, camera in (
        ("HalfCheetah-v5", {}, "track"),
        ("InvertedPendulum-v5", {}, None),
        ("HalfCheetah-v5", {"camera_id": -1}, None),
        ("CartPole-v1", {}, None),
    ):
        drawn = environments.drawable_options(EnvOptions(id=name, kwargs=kwargs), "rgb_array").kwargs
        assert drawn == kwargs | {"render_mode": "rgb_array"} | ({"camera_name": camera} if camera else {})


def test_an_environment_that_cannot_be_reset_is_not_said_to_draw_nothing(monkeypatch):
    def fail(*_args, **_kwargs):
        raise ValueError("no map")

    monkeypatch.setattr(CartPoleEnv, "reset", fail)
    with pytest.raises(InputError, match=r"^env\.id: expected .* that can be reset .* got CartPole-v1 \(.* no map\)"):
        environments.try_drawing(EnvOptions(id="CartPole-v1"))


def test_a_frame_has_three_colours():
    """PyBullet draws a fourth number, the opacity."""
    frame = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert as_frame("Toy-v0", lambda: frame).tolist() == frame[:, :, :3].tolist()
    for refused in (frame[:, :, :2], frame[:, :, 0], frame / 255, None):
        with pytest.raises(InputError, match=r"^env\.id: expected an environment that draws frames .*, got Toy-v0"):
            as_frame("Toy-v0", lambda frame=refused: frame)


@pytest.mark.parametrize("found", ["EGL", "OSMesa", None])
def test_how_mujoco_draws_is_chosen_unless_the_user_has(monkeypatch, found):
    monkeypatch.setattr(rendering, "find_library", lambda name: name if name == found else None)
    monkeypatch.setattr(os, "environ", {})
    environments.draw_without_display()
    assert os.environ.get("MUJOCO_GL") == (found and found.lower())
    monkeypatch.setattr(os, "environ", {"MUJOCO_GL": "glfw"})
    environments.draw_without_display()
    assert os.environ["MUJOCO_GL"] == "glfw"
    monkeypatch.setattr(os, "environ", {"DISPLAY": ":0"})
    environments.draw_without_display()
    assert os.environ == {"DISPLAY": ":0"}
