"""Episodes side by side in one of evolve's own engines, so that PPO and evolution play the same environments."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evolve import environments
from evolve.config import EnvOptions
from evolve.environments import Engine
from evolve.numerics.streams import Purpose, environment_seeds

Act = Callable[[np.ndarray], np.ndarray]
"""From the observations [N, O] of N episodes to the outputs [N, A] that stand for their actions."""
_PURPOSE = "benchmarks.ppo"


@dataclass(frozen=True)
class Actions:
    """The actions of an environment. choices: their number, None for a box. size: A, the outputs of an action."""

    choices: int | None
    size: int

    def outputs(self, actions: np.ndarray) -> np.ndarray:
        """Return [N, A]: the network outputs of N actions: the numbers of a box, or the largest output for a choice."""
        if self.choices is None:
            return np.asarray(actions, np.float32)
        if self.size == 1:  # only its sign counts
            return np.where(np.asarray(actions)[:, None] > 0, 1.0, -1.0).astype(np.float32)
        return (np.asarray(actions)[:, None] == np.arange(self.size)).astype(np.float32)


@dataclass(frozen=True)
class Stepped:
    """The results of a step.

    observations [B, O]: of the new episode if one has ended. rewards [B]. ended [B]. cut [B]: whether the step limit
    ended it. last [B, O]: the observations before any new episode began.
    """

    observations: np.ndarray
    rewards: np.ndarray
    ended: np.ndarray
    cut: np.ndarray
    last: np.ndarray


class Episodes:
    """B slots in which episodes follow one another, each with a seed of its own.

    Args:
        options: The environment.
        slots: B.
        seed: The seed of all seeds of episodes.
        ends_by_itself: Whether the limit of steps is the end of the task, not a truncation.
        first: The number of the first slot, if other processes have slots as well. A slot has the same episodes in
            every process.
    """

    def __init__(
        self, options: EnvOptions, slots: int, seed: int, ends_by_itself: bool = False, first: int = 0
    ) -> None:
        self.engine = environments.make(options, slots)
        self._limit = None if ends_by_itself else environments.max_episode_steps(options)
        self._seed = seed
        self._first = first
        self._begun = np.zeros(slots, np.int64)
        self._lengths = np.zeros(slots, np.int64)
        self._observations = np.zeros((slots, self.engine.observation_size), np.float32)

    def reset(self) -> np.ndarray:
        """Begin a new episode in every slot; return observations [B, O]."""
        self._begin(np.arange(len(self._lengths)))
        return self._observations.copy()

    def step(self, outputs: np.ndarray) -> Stepped:
        """Step all slots with outputs [B, A]; slots whose episode has ended begin a new one."""
        every = np.arange(len(self._lengths))
        rewards, ended = self.engine.step(every, outputs, self._observations)
        _check(self.engine)
        self._lengths += 1
        cut = ended & (self._lengths == self._limit) if self._limit else np.zeros_like(ended)
        last = self._observations.copy()
        self._begin(np.flatnonzero(ended))
        return Stepped(self._observations.copy(), rewards, ended, cut, last)

    def _begin(self, slots: np.ndarray) -> None:
        if not len(slots):
            return
        numbers = self._begun[slots]
        seeds = environment_seeds(self._seed, _PURPOSE, np.zeros_like(slots), self._first + slots, numbers)
        self._begun[slots] += 1
        self._lengths[slots] = 0
        self.engine.reset(slots, seeds, self._observations)
        _check(self.engine)


def held_out_seeds(seed: int, episodes: int) -> np.ndarray:
    """Return [N]: the seeds of the held-out environments of a run with a seed."""
    zeros = np.zeros(episodes, np.int64)
    return environment_seeds(seed, Purpose.HELD_OUT, zeros, zeros, np.arange(episodes))


def play(options: EnvOptions, seeds: np.ndarray, act: Act) -> np.ndarray:
    """Play one episode for each of seeds [N], side by side; return their returns [N]."""
    engine = environments.make(options, len(seeds))
    observations = np.zeros((len(seeds), engine.observation_size), np.float32)
    live, returns = np.arange(len(seeds)), np.zeros(len(seeds))
    engine.reset(live, seeds, observations)
    while len(live):
        rewards, ended = engine.step(live, act(observations)[live], observations)
        _check(engine)
        returns[live] += rewards
        live = live[~ended]
    engine.close()
    return returns


def _check(engine: Engine) -> None:
    """Raise RuntimeError if an episode has failed."""
    if engine.faults:
        raise RuntimeError(f"An episode failed: {next(iter(engine.faults.values()))}")
