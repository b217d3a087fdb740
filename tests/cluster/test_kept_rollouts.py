"""Rollouts that are kept, and closed when others are made: no environment stays open."""

import gymnasium
import numpy as np

import evolve
from evolve.cluster import KeptRollouts


class Rollout:
    def __init__(self, text):
        self.text = text
        self.closed = False

    def close(self):
        self.closed = True


class Held(gymnasium.Env):
    """An environment that counts the objects of its kind that have not been closed."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    open = 0
    most = 0

    def __init__(self):
        Held.open += 1
        Held.most = max(Held.most, Held.open)
        self._left = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(5, 40))
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self._left -= 1
        return np.full(2, action, np.float32), float(action), self._left <= 0, False, {}

    def close(self):
        Held.open -= 1


gymnasium.register(id="Held-v0", entry_point=Held)
SMALL = {"population": 8, "episodes": 1, "compute": {"slots": 4}, "network": {"name": "mlp", "hidden": [2]}}


def text(number, slots=4):
    """Return the TOML text of an experiment, different for each number."""
    return f"seeds = [{number}]\n\n[compute]\nslots = {slots}\n"


def test_two_are_kept_and_the_one_asked_for_longest_ago_is_closed():
    make = KeptRollouts(Rollout)
    training, evaluation = make(text(1)), make(text(2))
    assert make(text(1)) is training
    other = make(text(3))
    assert (training.closed, evaluation.closed, other.closed) == (False, True, False)
    assert make(text(2)) is not evaluation
    assert training.closed
    # With one slot, a library may have one world in each process.
    alone = make(text(4, slots=1))
    assert other.closed
    make.close()
    assert alone.closed


def test_a_limit_of_steps_that_changes_leaves_no_environment_open(tmp_path):
    Held.most = 0
    run = evolve.iterate(env="Held-v0", generations=12, held_out_episodes=3, episode_cap=1.2, output=tmp_path, **SMALL)
    lengths = [int(generation.record.lengths.max()) for generation in run]
    assert len(set(lengths)) > 3  # limits did change
    assert (Held.open, Held.most <= 2 * 4 + 1) == (0, True)


def test_a_script_that_evolves_often_leaves_none_open(tmp_path):
    run = evolve.train(env="Held-v0", generations=2, held_out_episodes=3, output=tmp_path, **SMALL)
    run.evaluate(5)
    assert run.verify().equal
    assert Held.open == 0
    for _ in evolve.iterate(env="Held-v0", generations=3, output=tmp_path / "more", **SMALL):
        break
    assert Held.open == 0


def test_a_command_leaves_none_open(call):
    """Otherwise their threads and processes would keep the command from ending, or outlive it."""
    words = "run", "-e", "Held-v0", "-a", "mlp", "-p", 4, "-g", 1, "-r", 1
    assert (call(*words).code, Held.open) == (0, 0)
    assert (call(*words, "--set", "env.metrics=['score']").code, Held.open) == (2, 0)
