"""Tasks of lifetime learning: each episode draws hidden answers, and the network has to find and remember them.

The outcome of an answer is shown in a step of its own, in which the outputs of the network are ignored. So no
observation can replace memory: a network that does not change in an episode can only guess.
"""

from typing import Any

import numpy as np
from pydantic import Field, model_validator

from evolve.config import Options
from evolve.environments.exact.task import DRAWS_TO_BEGIN, Draws, ExactTask, Moved, OptionsT, largest
from evolve.shapes import Bool, Float32, Float64

# The index of the random number that chooses the first cue in `Cues`. The numbers 0, 1, … choose the right answers.
_FIRST_CUE_INDEX = DRAWS_TO_BEGIN - 1
_TURN_THRESHOLD = np.float32(1.0) / np.float32(3.0)  # in the T-maze, outputs beyond ±1/3 turn left or right
MOST_SWITCHES = 20
"""The largest number of switches. The T-maze needs 1 + 2 · switches random numbers of the first `DRAWS_TO_BEGIN`."""


class BanditOptions(Options):
    """The settings of the bandit."""

    # There are draws for 64 arms. The limit of 61 is from earlier versions, whose observations had at most 64 numbers.
    arms: int = Field(5, ge=2, le=DRAWS_TO_BEGIN - 3)
    """The number of arms."""
    pulls: int = Field(100, ge=1, le=100_000)
    """The number of pulls in an episode. Each pull takes two steps."""


class Bandit(ExactTask[BanditOptions]):
    """A bandit: each arm pays 1 with a probability that is drawn for the episode.

    An episode has `pulls` trials of two steps. In the first step the network pulls the arm of its largest output. In
    the second step it sees the pulled arm and the result: 1 if the arm paid, else -1. The probabilities are uniform on
    (0, 1). The return is the number of pulls that paid. The task is from Wang et al. (2016) and Duan et al. (2016).

    States: the probability of each arm, the pulled arm (-1 before the pull), and the payment of the arm, 0 or 1.
    """

    kernel = "bandit"
    options_class = BanditOptions
    kernel_options = ("pulls",)

    @property
    def observation_size(self) -> int:
        """O: two flags of the kind of step, the pulled arm (one-hot), and its result."""
        return self.options.arms + 3

    @property
    def action_size(self) -> int:
        """One output for each arm."""
        return self.options.arms

    @property
    def state_size(self) -> int:
        """S, the number of rows of the states [S, k]."""
        return self.options.arms + 2

    @property
    def default_limit(self) -> int:
        """Two steps for each pull."""
        return 2 * self.options.pulls

    def begin(self, draws: Draws) -> Float64:
        """Return the states [S, k] in which episodes begin."""
        zeros = np.zeros(len(draws.seeds))
        return np.stack([*(draws.number(arm) for arm in range(self.options.arms)), zeros - 1, zeros])

    def observe(self, states: Float64) -> Float64:
        """Return [arms + 3, k]: flags of pulling and showing steps, the pulled arm (one-hot), its result (±1, or 0)."""
        *_, pulled, paid = states
        one_hot = np.arange(self.options.arms)[:, None] == pulled
        result = np.where(pulled < 0, 0.0, 2.0 * paid - 1.0)
        return np.concatenate([[pulled < 0, pulled >= 0], one_hot, [result]])

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Pull an arm, or begin the next trial."""
        *probabilities, pulled, paid = states
        arm = largest(outputs)
        pulling = pulled < 0
        # The payment is computed for all episodes, but only used in pulling steps.
        probability = states[arm, np.arange(len(arm))]
        payment = np.where(draws.in_step() < probability, 1.0, 0.0)
        after = [*probabilities, np.where(pulling, arm, -1.0), np.where(pulling, payment, paid)]
        return Moved(np.stack(after), np.where(pulling, payment, 0.0), draws.steps + 1 >= self.default_limit)


class _OneOutputTask(ExactTask[OptionsT]):
    """A task with one output. By default an output above 0 means right (1), any other output left (-1)."""

    action_size = 1
    discrete = False
    action_bound = None

    def actions(self, outputs: Float32) -> Any:
        """Return the answers [k, 1], ±1."""
        return np.where(outputs > 0, 1.0, -1.0)


class CuesOptions(Options):
    """The settings of the cues."""

    # There are draws for 63 cues. The limit of 62 is from earlier versions, whose observations had at most 64 numbers.
    cues: int = Field(6, ge=1, le=DRAWS_TO_BEGIN - 2)
    """The number of cues."""
    presentations: int = Field(8, ge=1, le=10_000)
    """The number of times that an episode shows each cue. Each presentation takes two steps."""


class Cues(_OneOutputTask[CuesOptions]):
    """The network has to find out the right answer to each cue, and to remember it.

    Each of `cues` cues has a right answer, left or right, drawn for the episode. An episode shows each cue
    `presentations` times, in random order. A presentation takes two steps. First the network sees the cue and answers.
    Then it sees the cue again, with its answer (±1) and the success of the answer (±1). The return is the share of
    right answers. A network that cannot learn gets 0.5; the best network gets 1 - 1 / (2 · presentations).

    States, with C cues: the right answer to each cue (rows 0 to C - 1); the remaining presentations of each cue (rows C
    to 2C - 1); the shown cue (row 2C); the answer (row 2C + 1; 0 before the network answers); its success (row 2C + 2).
    """

    kernel = "cues"
    options_class = CuesOptions
    kernel_options = ("presentations",)

    @property
    def observation_size(self) -> int:
        """O: the cue (one-hot), the answer and its success."""
        return self.options.cues + 2

    @property
    def state_size(self) -> int:
        """S, the number of rows of the states [S, k]."""
        return 2 * self.options.cues + 3

    @property
    def default_limit(self) -> int:
        """Two steps for each presentation."""
        return 2 * self.options.cues * self.options.presentations

    def begin(self, draws: Draws) -> Float64:
        """Return the states [S, k] in which episodes begin."""
        C = self.options.cues
        states = np.zeros((self.state_size, len(draws.seeds)))
        for cue in range(C):
            states[cue] = np.where(draws.number(cue) < 0.5, -1.0, 1.0)
        states[C : 2 * C] = self.options.presentations
        return self._show(states, draws.number(_FIRST_CUE_INDEX))

    def observe(self, states: Float64) -> Float64:
        """Return [cues + 2, k]: the cue (one-hot), the answer and its success."""
        C = self.options.cues
        return np.concatenate([np.arange(C)[:, None] == states[2 * C], states[2 * C + 1 :]])

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Take the answer, or show the next cue."""
        C = self.options.cues
        answering = states[2 * C + 1] == 0
        # In an answering step, take the answer.
        answer = self.actions(outputs)[:, 0]
        cue = states[2 * C].astype(np.int64)
        success = np.where(answer == states[cue, np.arange(len(outputs))], 1.0, -1.0)
        answered = states.copy()
        answered[2 * C + 1 :] = answer, success
        reward = np.where(answering & (success > 0), 1.0 / (C * self.options.presentations), 0.0)
        # In any other step, show the next cue. After the last presentation there is none.
        over = draws.steps + 1 >= self.default_limit
        after = np.where(over, states, self._show(states, draws.in_step()))
        return Moved(np.where(answering, answered, after), reward, over)

    def _show(self, states: Float64, u: Float64) -> Float64:
        """Return the states [S, k] after one of the remaining presentations begins. u: [k], uniform on (0, 1)."""
        C = self.options.cues
        after = states.copy()
        remaining = after[C : 2 * C]  # a view: writing into it changes `after`
        # Lay the remaining presentations end to end, in the order of their cues. u chooses a place. Count the cues that
        # end at or before this place. They come before the chosen cue, so their count is its number. The sums are of
        # whole numbers, so their order does not matter.
        ends = np.add.accumulate(remaining[:-1])
        place = u * remaining.sum(axis=0)
        cue = np.count_nonzero(ends <= place, axis=0)
        remaining[cue, np.arange(len(u))] -= 1
        after[2 * C :] = cue, np.zeros(len(u)), np.zeros(len(u))
        return after


class TrialOptions(Options):
    """The settings of tasks in which the best answer changes after some trials."""

    trials: int = Field(40, ge=1, le=100_000)
    """The number of trials in an episode, at least 5 · (switches + 1)."""
    switches: int = Field(3, ge=0, le=MOST_SWITCHES)
    """The number of times that the best answer changes in an episode."""

    @model_validator(mode="after")
    def _check_trials(self) -> "TrialOptions":
        # Each switch is drawn from five trials. In a shorter episode, two switches could be in the wrong order, or a
        # switch could be outside the episode.
        least = 5 * (self.switches + 1)
        if self.trials < least:
            raise ValueError(f"at least {least} trials with switches={self.switches}")
        return self

    def switch_trials(self, draws: Draws) -> Float64:
        """Return [switches, k]: the trials at which the best answer changes."""
        span = self.trials // (self.switches + 1)
        # Switch i is between 2 trials before and 2 trials after the end of span i. Draw 0 chooses the first answer.
        rows = [span * (i + 1) + np.floor(draws.number(1 + i) * 5.0) - 2 for i in range(self.switches)]
        return np.array(rows).reshape(self.switches, len(draws.seeds))


class Reversal(_OneOutputTask[TrialOptions]):
    """Two arms; the better arm changes at unknown times in an episode.

    In each of `trials` trials the network chooses an arm. The better arm pays 1, the other arm 0.2. In a second step
    the network sees the chosen arm (±1), and 1 if this arm is the better one, else -1. The better arm is drawn at the
    beginning, and changes `switches` times. The changes divide the episode into equal parts, give or take two trials.
    The return is the mean payment of a trial: 0.6 for a network that cannot learn.

    States: the better arm, the chosen arm (0 before the choice), and the trials at which the better arm changes.
    """

    kernel = "reversal"
    options_class = TrialOptions
    kernel_options = ("trials", "switches")
    observation_size = 4

    @property
    def state_size(self) -> int:
        """S, the number of rows of the states [S, k]."""
        return 2 + self.options.switches

    @property
    def default_limit(self) -> int:
        """Two steps for each trial."""
        return 2 * self.options.trials

    def begin(self, draws: Draws) -> Float64:
        """Return the states [S, k] in which episodes begin."""
        better = np.where(draws.number(0) < 0.5, -1.0, 1.0)
        return np.concatenate([[better, np.zeros_like(better)], self.options.switch_trials(draws)])

    def observe(self, states: Float64) -> Float64:
        """Return [4, k]: flags of choosing and showing steps, the chosen arm (±1), and its success (±1)."""
        better, arm = states[:2]
        return np.stack([arm == 0, arm != 0, arm, arm * better])

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Take the choice, or begin the next trial."""
        better, arm = states[:2]
        chosen = self.actions(outputs)[:, 0]
        choosing = arm == 0
        payment = np.where(chosen == better, 1.0, 0.2)
        reward = np.where(choosing, payment / self.options.trials, 0.0)
        # The better arm in the next trial. Only a showing step uses it, and there (steps + 1) // 2 is the next trial.
        next_better = better
        for trial in states[2:]:
            next_better = np.where(trial == (draws.steps + 1) // 2, -next_better, next_better)
        after = [np.where(choosing, better, next_better), np.where(choosing, chosen, 0.0)]
        return Moved(np.concatenate([after, states[2:]]), reward, draws.steps + 1 >= self.default_limit)


class TMazeOptions(TrialOptions):
    """The settings of the T-maze. A trial is a walk up to an end or a crash."""

    turns: int = Field(1, ge=1, le=4)
    """The number of junctions on the way to an end; the maze has 2^turns ends."""
    corridor: int = Field(1, ge=0, le=100)
    """The number of steps of each corridor."""


class TMaze(_OneOutputTask[TMazeOptions]):
    """Corridors and turns lead to one of several ends; the best end changes at unknown times in an episode.

    The network walks from home through `turns` corridors to one of 2^turns ends. Each corridor has `corridor` steps,
    and leads to a junction. An output above 1/3 turns right, an output below -1/3 turns left, any other output goes
    straight on. The best end gives 1, the others 0.2. A turn in a corridor is a crash, and so is going straight on at a
    junction; a crash costs 0.4. After an end or a crash the next of `trials` trials begins at home. The output is
    ignored at home and at an end.

    The best end is drawn at the beginning. It changes `switches` times, as in `Reversal`, each time to another end. The
    network sees three flags, for a junction, an end and home, and the reward of the last step. The return is the mean
    reward of a trial.

    The double T-maze of Soltoggio et al. (2008) has two turns. The rewards are from Coleman and Blair (AHNI, 2012).

    States: the best end, the position (in steps from home), the turns so far (a binary number in which right is 1), the
    trial, the reward, and the trials at which the best end changes.
    """

    kernel = "t_maze"
    options_class = TMazeOptions
    kernel_options = ("trials", "switches", "turns", "corridor")
    observation_size = 4

    @property
    def state_size(self) -> int:
        """S, the number of rows of the states [S, k]."""
        return 5 + self.options.switches

    @property
    def default_limit(self) -> int:
        """The steps of all trials: in each, the steps to an end, and one step home."""
        return self.options.trials * (self._end + 1)

    @property
    def _end(self) -> int:
        """The position of every end, in steps from home."""
        return self.options.turns * (self.options.corridor + 1) + 1

    def begin(self, draws: Draws) -> Float64:
        """Return the states [S, k] in which episodes begin."""
        states = np.zeros((self.state_size, len(draws.seeds)))
        states[0] = np.floor(draws.number(0) * (1 << self.options.turns))
        states[5:] = self.options.switch_trials(draws)
        return states

    def observe(self, states: Float64) -> Float64:
        """Return [4, k]: flags for a junction, an end and home, and the reward of the last step."""
        position = states[1]
        at_end = position == self._end
        # Without `~at_end`, an end would also count as a junction if corridors have length 0.
        return np.stack([self._at_junction(position) & ~at_end, at_end, position == 0, states[4]])

    def step(self, states: Float64, outputs: Float32, draws: Draws) -> Moved:
        """Walk, turn, or return home after an end or a crash."""
        best_end, position, turns, trial = states[:4]
        output = outputs[:, 0]
        is_right_turn = output > _TURN_THRESHOLD
        is_turn = is_right_turn | (output < -_TURN_THRESHOLD)
        at_junction = self._at_junction(position)
        at_end = position == self._end
        # The network has to turn at a junction, and only there.
        crash = ~at_end & (position > 0) & (at_junction != is_turn)
        goes_home = at_end | crash
        # With this step's turn, `turns` is the number of the end to which the way leads.
        turns = np.where(at_junction, 2.0 * turns + is_right_turn, turns)
        end_reward = np.where(position + 1 == self._end, np.where(turns == best_end, 1.0, 0.2), 0.0)
        reward = np.where(crash, -0.4, np.where(at_end, 0.0, end_reward))
        next_trial = trial + 1.0
        trial_after = np.where(goes_home, next_trial, trial)
        first_rows = [
            np.where(goes_home, self._switched(best_end, next_trial, states[5:], draws), best_end),
            np.where(goes_home, 0.0, position + 1),
            np.where(goes_home, 0.0, turns),
            trial_after,
            reward,
        ]
        after = np.concatenate([first_rows, states[5:]])
        return Moved(after, reward / self.options.trials, trial_after >= self.options.trials)

    def actions(self, outputs: Float32) -> Any:
        """Return [k, 1]: -1 to turn left, 0 to go on, 1 to turn right."""
        return np.where(outputs > _TURN_THRESHOLD, 1.0, np.where(outputs < -_TURN_THRESHOLD, -1.0, 0.0))

    def _at_junction(self, position: Float64) -> Bool:
        """Return [k]: whether a junction is at positions [k]. It is also true at an end if corridors have length 0."""
        return (position > 0) & (position % (self.options.corridor + 1) == 0)

    def _switched(self, best_end: Float64, trial: Float64, switches: Float64, draws: Draws) -> Float64:
        """Return [k]: the best end in trial `trial` [k] of each episode.

        best_end: [k], the best end in the trial before.
        switches: [n, k], the trials of all switches.
        """
        num_others = float((1 << self.options.turns) - 1)
        for number, switch_trial in enumerate(switches):
            # The new best end is 1 … num_others places after the old one; end 0 follows the last end. The draws before
            # this one choose the first best end and the trials of the switches.
            places = 1.0 + np.floor(draws.number(1 + len(switches) + number) * num_others)
            new_end = best_end + places
            new_end = np.where(new_end > num_others, new_end - (num_others + 1), new_end)
            best_end = np.where(switch_trial == trial, new_end, best_end)
        return best_end
