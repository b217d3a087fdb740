"""Names fit the environments they are of."""

import gymnasium
import pytest
from gymnasium import spaces

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments.exact import TASKS
from evolve.environments.rendering import KNOWN_LABELS, labels


@pytest.mark.parametrize("family", KNOWN_LABELS)
def test_as_many_names_as_numbers(family):
    versions = {"LunarLander": 3, "LunarLanderContinuous": 3, "BipedalWalker": 3, "BipedalWalkerHardcore": 3,
                "InvertedPendulum": 5, "HalfCheetah": 5, "MountainCar": 0, "MountainCarContinuous": 0}  # fmt: skip
    own = [task for task in TASKS if task.rpartition("-v")[0] == family and task not in gymnasium.registry]
    options = EnvOptions(id=own[0], engine="exact") if own else EnvOptions(id=f"{family}-v{versions.get(family, 1)}")
    engine = environments.make(options, 1)
    seen, done = labels(engine.id, engine.observation_size, engine.action_size)
    assert (tuple(seen), tuple(done)) == KNOWN_LABELS[family]
    assert len(seen) == engine.observation_size
    assert len(set(seen)) == len(seen)
    assert not seen[0].startswith("observation 0")
    assert len(done) == engine.action_size
    assert not done[0].startswith("action 0")


def test_keys_of_a_dict_are_names():
    inner = spaces.Dict({"far": spaces.Box(-1, 1, (2,)), "a_rather_long_name_of_a_sensor": spaces.Discrete(3)})
    seen = spaces.Dict({"goal": spaces.Box(-1, 1, (2,)), "speed": spaces.Box(-1, 1, (1,)), "eye": inner})
    done = spaces.Dict(
        {"grip": spaces.Discrete(2, start=1), "arm": spaces.Tuple((spaces.Box(-1, 1, (1,)), spaces.Discrete(2)))}
    )
    options = EnvOptions(id="mine:Task-v0")
    both = environments.Spaces(seen, done)
    codec = environments.Codec(options, both)
    observations, actions = labels(options.id, codec.observation_size, codec.action_size, both)
    assert observations == ["eye a_rather_lon 0", "eye a_rather_lon 1", "eye a_rather_lon 2", "eye far 0", "eye far 1",
                            "goal 0", "goal 1", "speed"]  # fmt: skip
    assert actions == ["arm 0", "arm 1", "arm 2", "grip 1", "grip 2"]
    flat = environments.Spaces(spaces.Box(-1, 1, (1,)), None)
    assert labels(options.id, 1, 1, flat) == (["observation 0"], ["action 0"])


def test_strangers_are_numbered():
    assert labels("mine:Task-v0", 2, 1) == (["observation 0", "observation 1"], ["action 0"])
    assert labels("CartPole-v1", 5, 2)[0][4] == "observation 4"  # wrapped, so no longer what we know
