"""T-maze: corridors and turns lead to one of several ends; the best end changes at unknown times in a life.

The network walks from home through `turns` corridors of `corridor` steps, each of which ends at a junction, to one of
2^turns ends. It goes straight on if output 0 is within ±1/3; below, it turns left, and above, it turns right. The best
end gives 1, the others 0.2. Turning in a corridor or going straight on at a junction is a crash, which costs 0.4. After
an end or a crash the network is home again for the next of `trials` trials. The best end is drawn at the beginning, and
changes `switches` times as in `reversal`, each time to another end. The network sees whether it is at a junction, at an
end, at home, and the reward of the last step. The return is the mean over trials.

The double T-maze of Soltoggio et al. (2008) has two turns. Rewards as in Coleman and Blair (AHNI, 2012).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from evolve.environments.exact.reversal import TrialOptions
from evolve.environments.exact.task import Draws, ExactTask, Moved
from evolve.shapes import Bool, Float32, Float64

_TURN = np.float32(1.0) / np.float32(3.0)


class TMazeOptions(TrialOptions):
    """The settings of the T-maze. A trial is a walk to an end or to a crash."""

    turns: int = Field(1, ge=1, le=4)
    """The number of junctions on the way to an end; the maze has 2^turns ends."""
    corridor: int = Field(1, ge=0, le=100)
    """The number of steps of each corridor."""


@dataclass(frozen=True)
class TMaze(ExactTask[TMazeOptions]):
    """States: the best end, the place, the turns taken (a binary number), the trial, the reward, the trials of
    switches."""

    kernel = "t_maze"
    settings = TMazeOptions
    observation_size = 4
    action_size = 1
    discrete = False

    @property
    def state_size(self) -> int:
        """S."""
        return 5 + self.options.switches

    @property
    def limit(self) -> int:
        """Each trial to an end and home."""
        return self.options.trials * (self._end + 1)

    @property
    def constants(self) -> tuple[float, ...]:
        """Trials, switches, turns, and the steps of a corridor."""
        options = self.options
        return float(options.trials), float(options.switches), float(options.turns), float(options.corridor)

    @property
    def _end(self) -> int:
        """The place of the ends."""
        return self.options.turns * (self.options.corridor + 1) + 1

    def begin(self, draws: Draws) -> Float64:
        """Return the states [S, k] in which episodes begin."""
        states = np.zeros((self.state_size, len(draws.seeds)))
        states[0] = np.floor(draws.number(0) * (1 << self.options.turns))
        states[5:] = self.options.switch_trials(draws)
        return states

    def observe(self, states: Float64) -> Float64:
        """Return whether it is at a junction, at an end, at home, and the reward."""
        place = states[1]
        return np.stack([self._at_junction(place) & (place < self._end), place == self._end, place == 0, states[4]])

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Walk, turn, or be brought home."""
        good, place, taken, trial = states[:4]
        output = outputs[:, 0]
        right = output > _TURN
        turning = (output < -_TURN) | right
        junction = self._at_junction(place)
        at_end = place == self._end
        crash = ~at_end & (place > 0) & (junction != turning)
        home = at_end | crash
        taken = np.where(junction, 2.0 * taken + right, taken)
        arrived = np.where(place + 1 == self._end, np.where(taken == good, 1.0, 0.2), 0.0)
        reward = np.where(crash, -0.4, np.where(at_end, 0.0, arrived))
        next_trial = trial + 1.0
        after = np.concatenate([
            [
                np.where(home, self._switched(good, next_trial, states[5:], draws), good),
                np.where(home, 0.0, place + 1),
                np.where(home, 0.0, taken),
                np.where(home, next_trial, trial),
                reward,
            ],
            states[5:],
        ])  # fmt: skip
        return Moved(after, reward / self.constants[0], after[3] >= self.constants[0])

    def actions(self, outputs: Float32) -> Any:
        """Return [k, 1]: -1 to turn left, 0 to go on, 1 to turn right."""
        return np.where(outputs > _TURN, 1.0, np.where(outputs < -_TURN, -1.0, 0.0))

    def _at_junction(self, place: Float64) -> Bool:
        junction: Bool = (place > 0) & (place % (self.options.corridor + 1) == 0)
        return junction

    def _switched(self, good: Float64, trial: Float64, switches: Float64, draws: Draws) -> Float64:
        """Return [k]: the best end from a trial on."""
        others = float((1 << self.options.turns) - 1)
        for number, when in enumerate(switches):
            drawn = good + 1.0 + np.floor(draws.number(1 + len(switches) + number) * others)
            good = np.where(when == trial, np.where(drawn > others, drawn - (others + 1), drawn), good)
        return good
