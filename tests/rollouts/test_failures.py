"""The failed episodes beside the ones whose environment raised: invalid numbers, and too much time."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from evolve.rollouts.rollout import FailureDetector


@pytest.fixture
def clock(monkeypatch):
    """The time, which stands still."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(time, "perf_counter", lambda: now.seconds)
    return now


@pytest.fixture
def scene(clock):
    """A detector of two slots with two observations, and a limit of ten seconds."""
    engine = SimpleNamespace(faults={})
    observations = np.zeros((2, 2), np.float32)
    return engine, observations, FailureDetector(engine, observations, max_episode_seconds=10.0)


def wait(detector, clock, seconds):
    for _ in range(seconds):
        clock.seconds += 1.0
        detector.advance(clock.seconds)


def step(detector, live=(0, 1), rewards=(1.0, 1.0)):
    detector.after_step(np.array(live), max(live) + 1, np.array(rewards)[: len(live)])


def test_invalid_numbers_are_failures(scene):
    engine, observations, detector = scene
    detector.begin(np.array([0, 1]))
    step(detector)
    assert engine.faults == {}
    observations[1] = (0.0, np.nan)
    step(detector, rewards=(np.inf, 1.0))
    assert engine.faults == {
        0: "reward: expected a finite number, got inf",
        1: "observation: expected finite numbers, got nan at position 1 of 2",
    }
    assert not observations[1].any()  # so that no network sees it
    engine.faults.clear()
    step(detector, rewards=(1e100, -1e308))  # a return of some such rewards would be infinite
    assert engine.faults == {1: "reward: expected a finite number from -1e+100 to 1e+100, got -1e+308"}


@pytest.mark.parametrize("size", [2, 200])
def test_few_numbers_are_checked_as_many_are(size):
    largest = np.finfo(np.float32).max
    for seen, reward in [
        (largest, 1.0),
        (-largest, 1.0),
        (np.inf, 1.0),
        (-np.inf, 1.0),
        (np.nan, 1.0),
        (0.0, np.nan),
        (0.0, 1e308),
    ]:
        engine = SimpleNamespace(faults={})
        observations = np.full((1, size), seen, np.float32)
        step(FailureDetector(engine, observations, max_episode_seconds=10.0), (0,), (reward,))
        assert bool(engine.faults) == (not np.isfinite(seen) or reward != 1.0)
        assert np.isfinite(observations).all()


def test_a_first_observation_may_fail_too(scene):
    engine, observations, detector = scene
    observations[0] = (np.inf, 0.0)
    detector.after_reset(np.array([0, 1]))
    assert list(engine.faults) == [0]


def test_faults_of_the_engine_stay(scene):
    engine, _, detector = scene
    engine.faults[0] = "it raised"
    step(detector, rewards=(np.nan, 1.0))
    assert engine.faults == {0: "it raised"}


def test_an_episode_that_takes_too_long_fails_and_its_neighbours_do_not(scene, clock):
    engine, _, detector = scene
    detector.begin(np.array([0]))
    wait(detector, clock, 6)
    detector.begin(np.array([1]))
    wait(detector, clock, 5)
    step(detector)
    assert list(engine.faults) == [0]
    assert "it has taken 10 s (env.max_episode_seconds)" in engine.faults[0]
    engine.faults.clear()
    wait(detector, clock, 3)
    step(detector, live=(1,))
    assert engine.faults == {}
    wait(detector, clock, 3)
    step(detector, live=(1,))
    assert list(engine.faults) == [1]


def test_the_clock_hardly_sees_a_process_that_was_suspended(scene, clock):
    engine, _, detector = scene
    detector.begin(np.array([0, 1]))
    clock.seconds += 3600
    wait(detector, clock, 9)
    step(detector)
    assert engine.faults == {}
    wait(detector, clock, 2)
    step(detector)
    assert list(engine.faults) == [0, 1]


def test_an_episode_takes_its_time_along_when_it_moves(scene, clock):
    engine, _, detector = scene
    detector.begin(np.array([1]))
    detector.move(np.array([1]), np.array([0]))
    wait(detector, clock, 11)
    step(detector, live=(0,))
    assert list(engine.faults) == [0]
