"""An environment that only sleeps, to measure scheduling over more ranks than there are cores.

Made as `evolve.environments.sleeping:Sleep-v0`. An episode is one step that sleeps for a keyed random time, uniform
between half and one and a half of `seconds`, and is rewarded with it.
"""

import time
from typing import Any

import gymnasium
import numpy as np

ID = "evolve.environments.sleeping:Sleep-v0"


class Sleep(gymnasium.Env[Any, Any]):
    """Sleeps in its only step; `seconds` is the mean over episodes."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seconds: float = 0.03) -> None:
        self._mean = seconds
        self._seconds = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw how long this episode will sleep."""
        super().reset(seed=seed, options=options)
        self._seconds = self._mean * float(self.np_random.uniform(0.5, 1.5))
        return np.zeros(1, np.float32), {}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Sleep, and end the episode."""
        time.sleep(self._seconds)
        return np.zeros(1, np.float32), self._seconds, True, False, {}


gymnasium.register(id="Sleep-v0", entry_point=f"{__name__}:Sleep")
