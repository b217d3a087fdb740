"""Bandit: arms give 1 with probabilities that are drawn for each life (Wang et al., 2016; Duan et al., 2016).

In each of `pulls` trials the network pulls the arm of its largest output. In a second step, whose outputs are ignored,
it sees the arm that it pulled and whether this arm has given 1 (±1). The probabilities are uniform on (0, 1). The
return is the number of pulls that gave 1.
"""

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from evolve.config import Options
from evolve.environments.exact.task import DRAWS_TO_BEGIN, Draws, ExactTask, Moved, largest
from evolve.shapes import Float32, Float64


class BanditOptions(Options):
    """The settings of the bandit."""

    arms: int = Field(5, ge=2, le=DRAWS_TO_BEGIN - 3)
    """The number of arms."""
    pulls: int = Field(100, ge=1, le=100_000)
    """The number of pulls in an episode. Each pull takes two steps."""


@dataclass(frozen=True)
class Bandit(ExactTask[BanditOptions]):
    """States: the probability of each arm, the arm pulled (-1 before the pull), and the 0 or 1 that it gave."""

    kernel = "bandit"
    settings = BanditOptions

    @property
    def observation_size(self) -> int:
        """Whether to pull, whether to look, the arm pulled (one-hot), and ±1 for its result."""
        return self.options.arms + 3

    @property
    def action_size(self) -> int:
        """One output for each arm."""
        return self.options.arms

    @property
    def state_size(self) -> int:
        """S."""
        return self.options.arms + 2

    @property
    def limit(self) -> int:
        """Two steps for each pull."""
        return 2 * self.options.pulls

    @property
    def constants(self) -> tuple[float, ...]:
        """The pulls of an episode."""
        return (float(self.options.pulls),)

    def begin(self, draws: Draws) -> Float64:
        """Return the states [S, k] in which episodes begin."""
        none = np.zeros(len(draws.seeds))
        return np.stack([*(draws.number(arm) for arm in range(self.options.arms)), none - 1, none])

    def observe(self, states: Float64) -> Float64:
        """Return whether to pull, whether to look, the arm pulled (one-hot), and ±1 for its result."""
        *_, pulled, given = states
        arms = np.arange(self.options.arms)[:, None] == pulled
        return np.concatenate([[pulled < 0, pulled >= 0], arms, [np.where(pulled < 0, 0.0, 2.0 * given - 1.0)]])

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Pull an arm, or go on to the next trial."""
        *chances, pulled, given = states
        arm = largest(outputs)
        pulling = pulled < 0
        hit = np.where(draws.in_step() < states[arm, np.arange(len(arm))], 1.0, 0.0)
        after = [*chances, np.where(pulling, arm, -1.0), np.where(pulling, hit, given)]
        return Moved(np.stack(after), np.where(pulling, hit, 0.0), draws.steps + 1 >= self.limit)
