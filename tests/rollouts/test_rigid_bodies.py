"""Whole runs of tasks with rigid bodies: by arrays as by kernels, with any number of slots and of worlds in a step."""

import pytest

from evolve import train
from evolve.config import Config, parse
from evolve.numerics import native
from evolve.rollouts import ExactRollout
from evolve.training.rollouts import rollout_of

WALKER = {"id": "BipedalWalkerHardcore-v3", "engine": "exact", "max_episode_steps": 30}
compiled = pytest.mark.skipif(not native.available(), reason="the native kernels were not built")


def digest(output, env, population=4, **compute):
    """Return the digest of a short run."""
    run = train(
        env=env,
        network="hebbian-dag",
        generations=2,
        population=population,
        episodes=1,
        seed=3,
        compute={"check": False, **compute},
        held_out_episodes=0,
        output=str(output),
    )
    return run.digest


@compiled
def test_arrays_and_kernels_have_one_digest(tmp_path):
    """The arrays of the lander take a few milliseconds a step."""
    lander = {"id": "LunarLander-v3", "engine": "exact", "max_episode_steps": 6}
    native = digest(tmp_path / "native", lander, backend="native")
    assert native == digest(tmp_path / "numpy", lander, backend="numpy", slots=3)


@compiled
def test_worlds_that_are_stepped_together_do_not_change_each_other(tmp_path):
    found, crowds = [], []
    for slots in (1, 100, 1000):
        rollout = rollout_of(parse(Config, {"env": WALKER, "compute": {"slots": slots, "threads": 1}}))
        assert isinstance(rollout, ExactRollout)
        crowds.append(rollout.play.slots)
        found.append(digest(tmp_path / str(slots), WALKER, 300, slots=slots, threads=1))
    assert crowds == [32, 96, 256]
    assert found == found[:1] * 3
