"""The settings of PPO, and its estimates of advantages. Needs no PyTorch."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from evolve.config import EnvOptions
from evolve.shapes import Bool, Float64


@dataclass(frozen=True)
class Settings:
    """The settings of PPO.

    Attributes:
        env: The environment, with a box of actions.
        engine: The engine of evolve that plays it.
        seed: The seed of episodes, exploration and initial parameters.
        environments: E, the number of environments of all ranks together.
        steps: The environment steps of an epoch, of all ranks together; a multiple of E.
        hidden: The sizes of the hidden layers, the same for policy and values.
        gamma: The discount factor.
        smoothing: The factor λ of generalized advantage estimation (Schulman et al. 2016, arXiv:1506.02438).
        clip: The largest change of an action's probability that is rewarded, as a share.
        policy_rate: The learning rate of the policy.
        value_rate: The learning rate of the values.
        iterations: The largest number of gradient steps of each network in an epoch.
        divergence: The Kullback-Leibler divergence at which the policy takes no further step in this epoch.
    """

    env: str = "BipedalWalker-v3"
    engine: str = "exact"
    seed: int = 1
    environments: int = 160
    steps: int = 40_000
    hidden: tuple[int, ...] = (32, 32)
    gamma: float = 0.999
    smoothing: float = 0.97
    clip: float = 0.2
    policy_rate: float = 3e-4
    value_rate: float = 1e-3
    iterations: int = 80
    divergence: float = 0.015

    @property
    def options(self) -> EnvOptions:
        """The environment."""
        return EnvOptions(id=self.env, engine=self.engine)


def estimate(
    rewards: Float64, values: Float64, ends: Bool, after_ends: Float64, settings: Settings
) -> tuple[Float64, Float64]:
    """Return the advantages and the discounted sums of rewards, [T, S] each.

    Args:
        rewards: [T, S].
        values: [T + 1, S], of the observation before each step, and of the last one.
        ends: [T, S], whether an episode ended with a step.
        after_ends: [T, S], the value after a step with which an episode ended.
        settings: With γ and λ.
    """
    advantages, sums = np.empty_like(rewards), np.empty_like(rewards)
    advantage: Any = np.zeros(rewards.shape[1])
    total = values[-1]
    for t in reversed(range(len(rewards))):
        following = np.where(ends[t], after_ends[t], values[t + 1])
        error = rewards[t] + settings.gamma * following - values[t]
        advantage = error + settings.gamma * settings.smoothing * np.where(ends[t], 0.0, advantage)
        total = rewards[t] + settings.gamma * np.where(ends[t], after_ends[t], total)
        advantages[t], sums[t] = advantage, total
    return advantages, sums
