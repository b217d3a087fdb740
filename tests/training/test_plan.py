"""The upper bounds on the size of a run: episodes and steps."""

import pytest

from evolve.config import Config, parse
from evolve.training.plan import RunSize, size_of

SMALL = {"population": 8, "episodes": 3, "generations": 10, "held_out_episodes": 5, "compute": {"check": False}}


@pytest.mark.parametrize(
    ("more", "completed", "expected"),
    [
        ({}, 0, RunSize(245, 245 * 500)),
        ({}, 4, RunSize(149, 149 * 500)),
        ({}, 10, RunSize(5, 5 * 500)),
        ({"env": {"max_episode_steps": 20}}, 0, RunSize(245, 245 * 20)),
        ({"env": {"max_episode_steps": 20}, "evaluation_max_episode_steps": 30}, 0, RunSize(245, 240 * 20 + 5 * 30)),
        ({"early_max_episode_steps": 100, "early_generations": 6}, 4, RunSize(149, 48 * 100 + 101 * 500)),
        ({"early_max_episode_steps": 100, "early_generations": 6}, 8, RunSize(53, 53 * 500)),
        ({"early_stop": {"steps": 1000}}, 0, RunSize(245, 1000 + 24 * 500 + 5 * 500)),
        ({"early_stop": {"mean_return": 400.0, "episodes": 7, "every": 3}}, 0, RunSize(266, 266 * 500)),
        ({"early_stop": {"mean_return": 400.0, "episodes": 7, "every": 3}}, 6, RunSize(115, 115 * 500)),
        ({"env": {"id": "toys:Switches-v0"}}, 0, RunSize(245, None)),
    ],
)
def test_sizes(more, completed, expected):
    assert size_of(parse(Config, SMALL | more), completed) == expected


def test_what_envpool_says_of_its_limits():
    pytest.importorskip("envpool")
    config = parse(Config, SMALL | {"env": {"id": "CartPole-v1", "engine": "envpool"}})
    assert size_of(config).steps == 245 * 500


def test_sizes_add_up():
    assert RunSize(1, 10) + RunSize(2, 20) == RunSize(3, 30)
    assert RunSize(1, 10) + RunSize(2, None) == RunSize(3, None)
