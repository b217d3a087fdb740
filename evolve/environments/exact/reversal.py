"""Reversal: two arms; the better one changes at unknown times in a life.

In each of `trials` trials the network chooses an arm: the right one if output 0 is above 0. The better arm gives 1, the
other 0.2. In a second step, whose output is ignored, the network sees the arm that it chose (±1) and whether this arm
was the better one (±1). The better arm is drawn at the beginning, and changes `switches` times. The changes divide the
life into equal parts, give or take two trials. The return is the mean over trials: 0.6 for a network that cannot learn.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from evolve.config import Options
from evolve.environments.exact.task import Draws, ExactTask, Moved
from evolve.shapes import Float32, Float64

MOST_SWITCHES = 20
"""The limit, because their draws belong to the draws for the beginning of an episode."""


class TrialOptions(Options):
    """The settings of tasks in which the best answer changes after some trials."""

    trials: int = Field(40, ge=1, le=100_000)
    """The number of trials in an episode; at least five for each part between switches."""
    switches: int = Field(3, ge=0, le=MOST_SWITCHES)
    """The number of times that the best answer changes in an episode."""

    @model_validator(mode="after")
    def _check_trials(self) -> "TrialOptions":
        # Each switch is drawn from five trials. With shorter parts, two switches could change places, and one could
        # fall outside the episode.
        least = 5 * (self.switches + 1)
        if self.trials < least:
            raise ValueError(f"at least {least} trials with switches={self.switches}")
        return self

    def switch_trials(self, draws: Draws) -> Float64:
        """Return [switches, k]: the trials at which the better answer changes."""
        span = self.trials // (self.switches + 1)
        rows = [span * (i + 1) + np.floor(draws.number(1 + i) * 5.0) - 2 for i in range(self.switches)]
        return np.array(rows).reshape(self.switches, len(draws.seeds))


@dataclass(frozen=True)
class Reversal(ExactTask[TrialOptions]):
    """States: the better arm, the arm chosen (0 before), and the trials at which the better arm changes."""

    kernel = "reversal"
    settings = TrialOptions
    observation_size = 4
    action_size = 1
    discrete = False

    @property
    def state_size(self) -> int:
        """S."""
        return 2 + self.options.switches

    @property
    def limit(self) -> int:
        """Two steps for each trial."""
        return 2 * self.options.trials

    @property
    def constants(self) -> tuple[float, ...]:
        """Trials and switches."""
        return float(self.options.trials), float(self.options.switches)

    def begin(self, draws: Draws) -> Float64:
        """Return the states [S, k] in which episodes begin."""
        good = np.where(draws.number(0) < 0.5, -1.0, 1.0)
        return np.concatenate([[good, np.zeros_like(good)], self.options.switch_trials(draws)])

    def observe(self, states: Float64) -> Float64:
        """Return whether to choose, whether to look, the arm chosen, and whether it was the better."""
        good, arm = states[:2]
        return np.stack([arm == 0, arm != 0, arm, arm * good])

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Take the choice, or go on to the next trial."""
        good, arm = states[:2]
        chosen = np.where(outputs[:, 0] > 0, 1.0, -1.0)
        choosing = arm == 0
        reward = np.where(choosing, np.where(chosen == good, 1.0, 0.2) / self.constants[0], 0.0)
        switched = good
        for trial in states[2:]:
            switched = np.where(trial == (draws.steps + 1) // 2, -switched, switched)
        after = [np.where(choosing, good, switched), np.where(choosing, chosen, 0.0)]
        return Moved(np.concatenate([after, states[2:]]), reward, draws.steps + 1 >= self.limit)

    def actions(self, outputs: Float32) -> Any:
        """Return the choices [k, 1], ±1."""
        return np.where(outputs > 0, 1.0, -1.0)
