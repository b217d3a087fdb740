"""Names fit the environments they are of."""

import pytest

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments.rendering import KNOWN_LABELS, names


@pytest.mark.parametrize("family", KNOWN_LABELS)
def test_as_many_names_as_numbers(family):
    versions = {"LunarLander": 3, "BipedalWalker": 3, "BipedalWalkerHardcore": 3, "InvertedPendulum": 5,
                "HalfCheetah": 5, "MountainCar": 0, "MountainCarContinuous": 0}  # fmt: skip
    engine = environments.make(EnvOptions(id=f"{family}-v{versions.get(family, 1)}"), 1)
    seen, done = names(engine.id, engine.observation_size, engine.action_size)
    assert (tuple(seen), tuple(done)) == KNOWN_LABELS[family]
    assert len(seen) == engine.observation_size
    assert len(set(seen)) == len(seen)
    assert not seen[0].startswith("observation 0")
    assert len(done) == engine.action_size
    assert not done[0].startswith("action 0")


def test_strangers_are_numbered():
    assert names("mine:Task-v0", 2, 1) == (["observation 0", "observation 1"], ["action 0"])
    assert names("CartPole-v1", 5, 2)[0][4] == "observation 4"  # wrapped, so no longer what we know
