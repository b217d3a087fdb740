"""Without kernels Gymnasium plays the tasks that have rigid bodies, with the same bits."""

import numpy as np
import pytest

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments import exact_engine
from evolve.numerics import native

WORLDS = [name for name, task in environments.TASKS.items() if task.has_world]


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
@pytest.mark.parametrize("name", WORLDS)
def test_gymnasium_plays_the_same_episodes(name, monkeypatch):
    pytest.importorskip("Box2D")
    options = EnvOptions(id=name, engine="exact", action_scale=0.7)
    kernels = environments.make(options, 2)
    monkeypatch.setattr(native, "available", lambda: False)
    in_place = environments.make(options, 2)
    assert isinstance(in_place, environments.GymnasiumFallback)
    engines, slots = (kernels, in_place), np.arange(2)
    seen = [np.zeros((2, engine.observation_size), np.float32) for engine in engines]
    for engine, observations in zip(engines, seen, strict=True):
        engine.reset(slots, np.array([3, 4]), observations)
    random = np.random.Generator(np.random.Philox(5))
    for step in range(30):
        outputs = random.uniform(-2, 2, (2, kernels.action_size)).astype(np.float32)
        outputs[step % 2, 0] = [np.nan, np.inf, -0.0][step % 3]
        found = [engine.step(slots, outputs, observations) for engine, observations in zip(engines, seen, strict=True)]
        for ours, theirs in (*zip(*found, strict=True), seen):
            assert ours.tobytes() == theirs.tobytes(), step
    assert not in_place.faults
    in_place.close()


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
@pytest.mark.parametrize("name", WORLDS)
def test_gymnasium_draws_the_same_pictures(name, monkeypatch):
    """Also without the flames of a lander, which Gymnasium adds to a world that draws in each step."""
    pytest.importorskip("Box2D")
    pytest.importorskip("pygame")
    options = environments.drawable_options(EnvOptions(id=name, engine="exact"), "rgb_array")
    kernels = environments.make(options, 1)
    monkeypatch.setattr(native, "available", lambda: False)
    in_place = environments.make(options, 1)
    slot, pictures, seen = np.arange(1), [], []
    outputs = np.linspace(-1, 1, kernels.action_size, dtype=np.float32)[None]
    for engine in (kernels, in_place):
        observations = np.zeros((1, kernels.observation_size), np.float32)
        engine.reset(slot, np.array([3]), observations)
        pictures.append([engine.frame(0)])
        for _ in range(3):
            engine.step(slot, outputs, observations)
            pictures[-1].append(engine.frame(0))
        seen.append(observations.tobytes())
    assert np.array_equal(*pictures)
    assert seen[0] == seen[1]
    in_place.close()


def test_gymnasium_replays_the_episodes(monkeypatch):
    """A bench without kernels would measure array operations, which nobody uses."""
    pytest.importorskip("Box2D")
    monkeypatch.setattr(native, "available", lambda: False)
    monkeypatch.setattr(environments.ExactEngine, "step", None)
    episode = environments.Recording(3, outputs=[np.zeros(4, np.float32)] * 3)
    options = EnvOptions(id="BipedalWalker-v3", engine="exact", max_episode_steps=3)
    steps, seconds = environments.replay(options, [episode])
    assert (steps, seconds > 0) == (3, True)


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
def test_no_setting_lets_box2d_remember_an_episode(monkeypatch):
    pytest.importorskip("Box2D")
    options = EnvOptions(id="BipedalWalker-v3", engine="exact", reuse=True, max_episode_steps=60)
    kernels = environments.make(options, 1)
    monkeypatch.setattr(native, "available", lambda: False)
    assert whole_episodes(environments.make(options, 1)) == whole_episodes(kernels)


def whole_episodes(engine):
    """Return the rewards of six episodes, one after another."""
    slot, observations, rewards = np.arange(1), np.zeros((1, engine.observation_size), np.float32), []
    for seed in range(6):
        random, ended = np.random.Generator(np.random.Philox(seed)), [False]
        engine.reset(slot, np.array([seed]), observations)
        while not ended[0]:
            outputs = random.uniform(-1, 1, (1, engine.action_size)).astype(np.float32)
            reward, ended = engine.step(slot, outputs, observations)
            rewards += reward.tolist()
    engine.close()
    return rewards


def test_without_box2d_arrays_play(monkeypatch):
    monkeypatch.setattr(native, "available", lambda: False)
    monkeypatch.setattr(exact_engine, "find_spec", lambda name: None)
    engine = environments.make(EnvOptions(id="LunarLander-v3", engine="exact"), 1)
    assert isinstance(engine, environments.ExactEngine)
    assert not engine.compiled
