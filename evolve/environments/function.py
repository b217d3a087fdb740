"""Tasks that are plain Python functions: an episode is one call of a generator."""

from collections.abc import Callable, Generator
from typing import Any

import gymnasium
import numpy as np

from evolve.shapes import Float32

Episode = Callable[[np.random.Generator], Generator[Any, Float32, float]]
"""Yields observations [O], is sent actions [A] in [-1, 1], and returns the return."""


class FunctionEnv(gymnasium.Env[Float32, Float32]):
    """One episode after another of a function; its reward comes at the end."""

    def __init__(self, episode: Episode, observation_size: int, action_size: int) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observation_size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (action_size,), np.float32)
        self._episode = episode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Float32, Any]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._running = self._episode(self.np_random)
        self._seen = np.asarray(next(self._running), np.float32).reshape(self.observation_space.shape)
        return self._seen, {}

    def step(self, action: Float32) -> tuple[Float32, float, bool, bool, dict[str, Any]]:
        """Send an action; the episode ends when the function returns."""
        try:
            self._seen = np.asarray(self._running.send(action), np.float32).reshape(self.observation_space.shape)
        except StopIteration as end:
            return self._seen, float(end.value), True, False, {}
        return self._seen, 0.0, False, False, {}


def register_task(name: str, episode: Episode, observation_size: int, action_size: int) -> None:
    """Register a function as the environment `name` ("Xor-v0"), so that `-e module:Xor-v0` finds it.

    episode: takes a random generator, the only source of chance it may have; it yields observations [O], is sent an
    action [A] in [-1, 1] for each, and returns the episode's return.
    """

    def make(**_: Any) -> FunctionEnv:
        return FunctionEnv(episode, observation_size, action_size)

    gymnasium.register(name, entry_point=make)
