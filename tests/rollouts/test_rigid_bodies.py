"""Whole runs of tasks with rigid bodies: by arrays as by kernels, and with any number of slots."""

import pytest

from evolve import train
from evolve.numerics import native


def digest(output, **compute):
    """Return the digest of a short run of the lander, whose arrays take a few milliseconds a step."""
    run = train(
        env={"id": "LunarLander-v3", "engine": "exact", "max_episode_steps": 12},
        network="hebbian-dag",
        generations=2,
        population=4,
        episodes=1,
        seed=3,
        compute={"check": False, **compute},
        held_out_episodes=0,
        output=str(output),
    )
    return run.digest


@pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
def test_arrays_and_kernels_have_one_digest(tmp_path):
    assert digest(tmp_path / "native", backend="native") == digest(tmp_path / "numpy", backend="numpy", slots=3)
