"""Cues: in each life, the network has to find out the right answer to each cue, and to remember it.

Each of `cues` cues has a right answer, left or right, drawn for the life. Each cue is shown `presentations` times, all
cues in random order. A presentation takes two steps. First the network sees the cue and answers; an output 0 above 0
means right. Then it sees the cue together with its answer (±1) and the success of the answer (±1); the outputs of this
step are ignored. The return is the share of right answers: 0.5 for a network that cannot learn, and at best
1 - 1 / (2 · presentations).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from evolve.config import Options
from evolve.environments.exact.task import DRAWS_TO_BEGIN, Draws, ExactTask, Moved
from evolve.shapes import Float32, Float64

_FIRST_CUE = 63  # the number of its draw


class CuesOptions(Options):
    """The settings of the cues."""

    cues: int = Field(6, ge=1, le=DRAWS_TO_BEGIN - 2)
    """The number of cues."""
    presentations: int = Field(8, ge=1, le=10_000)
    """The number of times that an episode shows each cue. Each presentation takes two steps."""


@dataclass(frozen=True)
class Cues(ExactTask[CuesOptions]):
    """States: the right answer to each cue; the presentations left of each cue; the cue shown, the answer, its
    success."""

    kernel = "cues"
    settings = CuesOptions
    action_size = 1
    discrete = False

    @property
    def observation_size(self) -> int:
        """The cue, the answer and its success."""
        return self.options.cues + 2

    @property
    def state_size(self) -> int:
        """S."""
        return 2 * self.options.cues + 3

    @property
    def limit(self) -> int:
        """Two steps for each presentation."""
        return 2 * self.options.cues * self.options.presentations

    @property
    def constants(self) -> tuple[float, ...]:
        """The presentations of each cue."""
        return (float(self.options.presentations),)

    def begin(self, draws: Draws) -> Float64:
        """Return the states [S, k] in which episodes begin."""
        C = self.options.cues
        states = np.zeros((self.state_size, len(draws.seeds)))
        for cue in range(C):
            states[cue] = np.where(draws.number(cue) < 0.5, -1.0, 1.0)
        states[C : 2 * C] = self.constants[0]
        return self._show(states, draws.number(_FIRST_CUE))

    def observe(self, states: Float64) -> Float64:
        """Return the cue, the answer and its success."""
        C = self.options.cues
        return np.concatenate([np.arange(C)[:, None] == states[2 * C], states[2 * C + 1 :]])

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Take the answer, or show the next cue."""
        C = self.options.cues
        answer = np.where(outputs[:, 0] > 0, 1.0, -1.0)
        shown = states[2 * C].astype(np.int64)
        success = np.where(answer == states[shown, np.arange(len(outputs))], 1.0, -1.0)
        answered = states.copy()
        answered[2 * C + 1 :] = answer, success
        asked = states[2 * C + 1] == 0
        over = draws.steps + 1 >= self.limit
        after = np.where(over, states, self._show(states, draws.in_step()))
        reward = np.where(asked & (success > 0), 1.0 / (C * self.constants[0]), 0.0)
        return Moved(np.where(asked, answered, after), reward, over)

    def actions(self, outputs: Float32) -> Any:
        """Return the answers [k, 1], ±1."""
        return np.where(outputs > 0, 1.0, -1.0)

    def _show(self, states: Float64, u: Float64) -> Float64:
        """Show one of the presentations that are left, each as likely as another; u: [k], in (0, 1)."""
        C = self.options.cues
        shown = states.copy()
        left = shown[C : 2 * C]
        place = u * _ordered_total(left)
        which = np.zeros(len(u), np.int64)
        for cue in range(C - 1):
            later = (which == cue) & (place >= left[cue])
            place = np.where(later, place - left[cue], place)
            which = np.where(later, cue + 1, which)
        left[which, np.arange(len(u))] -= 1
        shown[2 * C :] = which, np.zeros(len(u)), np.zeros(len(u))
        return shown


def _ordered_total(rows: Float64) -> Float64:
    total = np.zeros(rows.shape[1])
    for row in rows:
        total = total + row
    return total
