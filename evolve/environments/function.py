"""Tasks that are plain Python functions: an episode is one call of a generator."""

from collections.abc import Callable, Generator
from typing import Any

import gymnasium
import numpy as np

from evolve.errors import InputError, counted, plain
from evolve.shapes import Float32

Episode = Callable[[np.random.Generator], Generator[Any, Float32, float]]
"""Yields observations [O], is sent actions [A] in [-1, 1], and returns the return."""


class FunctionEnv(gymnasium.Env[Float32, Float32]):
    """One episode after another of a function; its reward comes at the end.

    Raises InputError for a function that does not do what `Episode` says.
    """

    def __init__(self, episode: Episode, observation_size: int, action_size: int, name: str) -> None:
        function = f"{getattr(episode, '__module__', '')}.{getattr(episode, '__qualname__', type(episode).__name__)}"
        self._title = f"{function} ({name})"
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observation_size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (action_size,), np.float32)
        self._episode, self._size = episode, observation_size

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Float32, Any]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._running = self._episode(self.np_random)
        if not isinstance(self._running, Generator):
            came = f"one without a yield, which returned {plain(self._running, 100)}"
            raise InputError(self._title, "a function that yields observations", came)
        try:
            self._seen = self._observation(next(self._running))
        except StopIteration:
            raise InputError(self._title, "an observation to be yielded before it returns", "none") from None
        return self._seen, {}

    def step(self, action: Float32) -> tuple[Float32, float, bool, bool, dict[str, Any]]:
        """Send an action; the episode ends when the function returns."""
        try:
            self._seen = self._observation(self._running.send(action))
        except StopIteration as end:
            return self._seen, self._return(end.value), True, False, {}
        return self._seen, 0.0, False, False, {}

    def _observation(self, given: Any) -> Float32:
        size = self._size
        expected = f"each yield to give {counted(size, 'number')}, as registered (observation_size)"
        try:
            seen = np.asarray(given, np.float32)
        except (TypeError, ValueError):  # no numbers, or a ragged nest of them
            raise InputError(self._title, expected, given) from None
        if given is None or seen.size != size:
            raise InputError(self._title, expected, f"{seen.size}: {plain(given, 100)}" if seen.shape else given)
        return seen.reshape(size)

    def _return(self, given: Any) -> float:
        try:
            return float(given)
        except (TypeError, ValueError):
            cure = "" if given is not None else "Let it end with: return score."
            raise InputError(self._title, "one number to be returned, the episode's return", given, cure) from None


def register_task(name: str, episode: Episode, observation_size: int, action_size: int) -> None:
    """Register a function as the environment `name` ("Xor-v0"), so that `-e module:Xor-v0` finds it.

    episode: takes a random generator, the only source of chance it may have; it yields observations [O], is sent an
    action [A] in [-1, 1] for each, and returns the episode's return.
    """

    def make(**_: Any) -> FunctionEnv:
        return FunctionEnv(episode, observation_size, action_size, name)

    gymnasium.register(name, entry_point=make)
