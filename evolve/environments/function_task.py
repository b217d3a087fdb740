"""`register_task` turns a generator function of a user into an environment of Gymnasium.

The module also registers a task of its own, `SLEEP`: its steps sleep. It serves to measure how rank 0 schedules
episodes.
"""

import inspect
import time
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from evolve.errors import InputError, check_whole, one_line, pluralize, sanitize
from evolve.shapes import Float32

Episode = Callable[..., Generator[Any, Float32, float | tuple[float, dict[str, Any]]]]
"""A generator function that plays one episode, see `register_task`."""


class FunctionEnv(gymnasium.Env[Float32, Float32]):
    """A Gymnasium environment that plays each episode by one call of a function. Only the last step has a reward.

    `reset` and `step` raise InputError if the function breaks the contract of `register_task`.

    Args:
        episode: The function.
        observation_size: O.
        action_size: A.
        name: The name of the environment, for errors.
        **kwargs: The keyword arguments of the function.

    Raises:
        TypeError: The function does not take these keyword arguments.
    """

    # The first four arguments are positional only, because an argument of the function may have the same name.
    def __init__(self, episode: Episode, observation_size: int, action_size: int, name: str, /, **kwargs: Any) -> None:
        function = f"{getattr(episode, '__module__', '')}.{getattr(episode, '__qualname__', type(episode).__name__)}"
        self._title = f"{function} ({name})"
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observation_size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (action_size,), np.float32)
        # Raise TypeError for wrong arguments now, not in the first episode. None takes the place of the generator.
        inspect.signature(episode).bind(None, **kwargs)
        self._episode = partial(episode, **kwargs)
        self._size = observation_size

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Float32, Any]:
        """Begin an episode: call the function, and run it up to its first `yield`."""
        super().reset(seed=seed)
        self._running = self._episode(self.np_random)
        if not isinstance(self._running, Generator):
            got = f"one without a yield, which returned {sanitize(self._running, 100)}"
            raise InputError(self._title, "a function that yields observations", got)
        try:
            self._last_observation = self._observation(next(self._running))
        except StopIteration:
            raise InputError(self._title, "an observation to be yielded before it returns", "no observation") from None
        return self._last_observation, {}

    def step(self, action: Float32) -> tuple[Float32, float, bool, bool, dict[str, Any]]:
        """Send an action to the function; the episode ends when it returns."""
        try:
            self._last_observation = self._observation(self._running.send(action))
        except StopIteration as end:
            score: Any = end.value
            info: Any = {}
            # The function may return (return, metrics).
            if isinstance(score, tuple) and len(score) == 2 and isinstance(score[1], Mapping):
                score, info = score
            # A function that has returned gives no new observation, so repeat the last one.
            return self._last_observation, self._reward(score), True, False, info
        return self._last_observation, 0.0, False, False, {}

    def _observation(self, yielded: Any) -> Float32:
        """Return a yielded value as an observation [O]. Raises InputError unless the value is O numbers."""
        expected = f"each yield to give {pluralize(self._size, 'number')}, as registered (observation_size)"
        try:
            numbers = np.asarray(yielded, np.float32)
        except (TypeError, ValueError, OverflowError):  # not numbers, lists of different lengths, a huge integer
            raise InputError(self._title, expected, yielded) from None
        if yielded is None or numbers.size != self._size:  # NumPy takes None for the number NaN
            got = f"{numbers.size}: {sanitize(yielded, 100)}" if numbers.shape else yielded
            raise InputError(self._title, expected, got)
        return numbers.reshape(self._size)

    def _reward(self, returned: Any) -> float:
        """Return the result of the function as a float. Raises InputError unless it is a number."""
        try:
            return float(returned)
        except (TypeError, ValueError, OverflowError):
            cure = "" if returned is not None else "End the function with: return score."
            raise InputError(self._title, "one number to be returned, the episode's return", returned, cure) from None


def register_task(name: str, episode: Episode, observation_size: int, action_size: int) -> None:
    """Register a function as an environment, so that an experiment can name it: `env.id = "module:Name-v0"`.

    One call of the function is one episode:

        def xor(random):
            score = 0.0
            for a, b in [(0, 0), (0, 1), (1, 0), (1, 1)]:
                action = yield [a, b]
                score -= (action[0] - (a ^ b)) ** 2
            return score

        register_task("Xor-v0", xor, observation_size=2, action_size=1)

    Args:
        name: The name of the environment, with a version: "Xor-v0". In `env.id`, it follows the name of the module that
            calls `register_task`: "xor:Xor-v0".
        episode: A generator function. Its argument is a `numpy.random.Generator`. The function may use no other source
            of random numbers, because a seed must repeat its episode. The arguments that an experiment sets or
            randomizes (`env.kwargs`, `env.randomize`) are passed by keyword. Each `yield` gives an observation of O
            numbers, and receives an action, [A] float32 in [-1, 1]. At the end the function returns the return of the
            episode, one number; higher is better. To report metrics, the function returns (return, metrics). `metrics`
            is a dictionary of numbers, from which `env.metrics` selects.
        observation_size: O, the length of an observation.
        action_size: A, the length of an action.

    Raises:
        InputError: An argument is wrong, or the name belongs to another environment. A wrong value that the function
            yields or returns is reported later, when an experiment is prepared or an episode is played.
    """
    if not callable(episode):
        raise InputError("episode", "a generator function", repr(episode))
    check_whole("observation_size", observation_size, 1)
    check_whole("action_size", action_size, 1)
    if isinstance(name, str) and ":" in name:
        registered = name.rpartition(":")[2]
        cure = f'The module belongs to env.id only: register "{registered}" here, and name env.id="{name}".'
        raise InputError("name", "a name without a colon", repr(name), cure)

    # Another environment must not be replaced, but a task may be registered again. Its entry point is a `partial` of
    # FunctionEnv, see below.
    existing = gymnasium.registry.get(name) if isinstance(name, str) else None
    if existing is not None and getattr(existing.entry_point, "func", None) is not FunctionEnv:
        raise InputError("name", "a name that Gymnasium does not know", f"{name}, another environment")
    try:
        gymnasium.registry.pop(name, None)  # prevents Gymnasium's warning if a notebook registers its task again
        gymnasium.register(name, entry_point=partial(FunctionEnv, episode, observation_size, action_size, name))
    except (gymnasium.error.Error, TypeError) as error:
        got = f"{name!r} ({one_line(error)})"
        raise InputError("name", 'a name that Gymnasium can register, as "Xor-v0"', got) from None


def _sleep(random: np.random.Generator, seconds: float = 0.03) -> Generator[list[float], Float32, float]:
    """Play an episode of one step, which sleeps for 50 to 150 % of `seconds`. Return the duration."""
    duration = seconds * float(random.uniform(0.5, 1.5))
    yield [0.0]
    time.sleep(duration)
    return duration


SLEEP = f"{__name__}:Sleep-v0"
"""The `env.id` of the task that sleeps."""
register_task("Sleep-v0", _sleep, observation_size=1, action_size=2)
