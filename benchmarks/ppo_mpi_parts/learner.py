"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347) by several ranks, as in OpenAI's Spinning Up.

The E environments are shared out over the ranks. In an epoch every rank plays its environments for the same number of
steps. Then all ranks climb the clipped objective with the gradient over all steps of the epoch: each rank computes the
gradient over its own steps, and the ranks add them. So all ranks have the same parameters at any time, and no rank is
special. The settings are Spinning Up's, apart from the ones that the command line has.

Three things differ from Spinning Up. A rank steps several environments side by side, an episode goes on in the next
epoch, and episodes and the noise of exploration belong to an environment and not to a rank: they depend on the seed and
on the number of the environment. What still depends on the number of ranks is only the rounding of sums.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
from ppo_parts.episodes import Episodes, held_out_seeds, play

from evolve.numerics.streams import seed_sequence
from evolve.shapes import Float32, Float64
from ppo_mpi_parts.algorithm import Settings, estimate
from ppo_mpi_parts.networks import FlatGradients, Policy, Values, digest
from ppo_mpi_parts.ranks import Ranks, moments

_PURPOSE = "benchmarks.ppo_mpi"


@dataclass(frozen=True)
class Epoch:
    """The result of an epoch, the same on all ranks except for its seconds.

    Attributes:
        seconds: Its wall time.
        episodes: The number of episodes that have ended in it.
        mean: Their mean return, with exploration; None if no episode has ended.
        iterations: The gradient steps of the policy.
        digest: The sha256 of all parameters after it.
    """

    seconds: float
    episodes: int
    mean: float | None
    iterations: int
    digest: str


@dataclass(frozen=True)
class Played:
    """The T steps of S environments, flattened to N = T · S."""

    observations: torch.Tensor  # [N, O]
    actions: torch.Tensor  # [N, A]
    log_densities: torch.Tensor  # [N], under the policy that played
    advantages: Float64  # [N]
    targets: torch.Tensor  # [N], of the values
    returns: list[float]  # of the episodes that ended


class Learner:
    """PPO on one of the ranks. All ranks must call the same methods in the same order."""

    def __init__(self, settings: Settings, ranks: Ranks) -> None:
        self.settings = settings
        self.ranks = ranks
        first, count = ranks.share(settings.environments)
        self._numbers = range(first, first + count)
        self._episodes = Episodes(settings.options, count, settings.seed, first=first)
        sizes = self._episodes.engine.observation_size, self._episodes.engine.action_size
        torch.manual_seed(settings.seed)  # so all ranks begin with the same parameters
        self.policy = Policy(sizes[0], settings.hidden, sizes[1])
        self.values = Values(sizes[0], settings.hidden)
        self._gradients = FlatGradients(self.policy), FlatGradients(self.values)
        self._optimizers = (
            torch.optim.Adam(self.policy.parameters(), settings.policy_rate),
            torch.optim.Adam(self.values.parameters(), settings.value_rate),
        )
        self._observations = self._episodes.reset()
        self._returns = np.zeros(count)  # of the unfinished episodes
        self.epochs = 0
        ranks.pause()  # the start does not count
        ranks.check_equal(self.digest(), 0)

    def digest(self) -> str:
        """Return the sha256 of all parameters."""
        return digest(self.policy, self.values)

    def epoch(self) -> Epoch:
        """Play and learn for an epoch. Raises DifferentRanksError on all ranks if their parameters then differ."""
        begin = time.perf_counter()
        self.ranks.pause()
        played = self._play(self.settings.steps // self.settings.environments)
        ended = np.array([len(played.returns), sum(played.returns)], np.float64)
        self.ranks.add(ended, "playing")
        mean, deviation = moments(self.ranks, played.advantages, "gradients")
        advantages = torch.from_numpy(((played.advantages - mean) / deviation).astype(np.float32))
        iterations = self._improve_policy(played, advantages)
        self._improve_values(played)
        self.epochs += 1
        found = self.digest()
        self.ranks.spend("gradients")
        self.ranks.check_equal(found, self.epochs)
        number = int(ended[0])
        return Epoch(
            seconds=time.perf_counter() - begin,
            episodes=number,
            mean=float(ended[1] / number) if number else None,
            iterations=iterations,
            digest=found,
        )

    def evaluate(self, episodes: int) -> float:
        """Return the mean return without exploration in the held-out episodes of evolve; the time does not count."""
        first, count = self.ranks.share(episodes)
        seeds = held_out_seeds(self.settings.seed, episodes)[first : first + count]
        mine = play(self.settings.options, seeds, self.policy.act) if count else np.zeros(0)
        mean = float(np.concatenate(self.ranks.gather(mine)).mean())
        self.ranks.pause()
        return mean

    def close(self) -> None:
        """Close the environments."""
        self._episodes.engine.close()

    def _play(self, steps: int) -> Played:
        """Step all environments of this rank T times."""
        T, S = steps, len(self._numbers)
        noise = self._noise(T)
        observations = np.empty((T, *self._observations.shape), np.float32)
        actions = np.empty(noise.shape, np.float32)
        values, rewards, ends = np.empty((T + 1, S)), np.empty((T, S)), np.empty((T, S), np.bool_)
        after_ends = np.zeros((T, S))  # the values after the end of an episode: 0 unless it was cut
        returns: list[float] = []
        with torch.inference_mode():
            deviations = self.policy.log_deviations.exp().numpy()
            for t in range(T):
                observations[t] = self._observations
                values[t] = self.values(torch.from_numpy(observations[t])).numpy()
                actions[t] = self.policy.act(observations[t]) + deviations * noise[t]
                stepped = self._episodes.step(actions[t])
                self._observations = stepped.observations
                rewards[t], ends[t] = stepped.rewards, stepped.ended
                if stepped.cut.any():
                    last = self.values(torch.from_numpy(stepped.last[stepped.cut])).numpy()
                    after_ends[t, stepped.cut] = last
                self._returns += stepped.rewards
                returns += self._returns[stepped.ended].tolist()
                self._returns[stepped.ended] = 0
            values[T] = self.values(torch.from_numpy(self._observations)).numpy()
            advantages, targets = estimate(rewards, values, ends, after_ends, self.settings)
            seen, done = (torch.from_numpy(part.reshape(T * S, -1)) for part in (observations, actions))
            densities = self.policy.log_densities(seen, done)
        # Tensors that are made in inference mode cannot be used for gradients; clones can.
        target = torch.from_numpy(targets.reshape(-1).astype(np.float32))
        return Played(seen.clone(), done.clone(), densities.clone(), advantages.reshape(-1), target, returns)

    def _noise(self, steps: int) -> Float32:
        """Return the deviates [T, S, A] of exploration in this epoch, from one stream for each environment."""
        shape = steps, self._episodes.engine.action_size
        sequences = (seed_sequence(self.settings.seed, _PURPOSE, self.epochs, number) for number in self._numbers)
        streams = (np.random.Generator(np.random.Philox(sequence)) for sequence in sequences)
        return np.stack([stream.standard_normal(shape, np.float32) for stream in streams], axis=1)

    def _improve_policy(self, played: Played, advantages: torch.Tensor) -> int:
        """Take gradient steps until the policy has moved far enough; return their number."""
        gradients, optimizer = self._gradients[0], self._optimizers[0]
        low, high = 1 - self.settings.clip, 1 + self.settings.clip
        for number in range(self.settings.iterations):
            densities = self.policy.log_densities(played.observations, played.actions)
            change = densities - played.log_densities
            ratios = change.exp()
            gains = torch.min(ratios * advantages, ratios.clamp(low, high) * advantages)
            # Sums over this rank's steps, divided by the number of all steps, add up to the mean for any shares.
            divergence = -float(change.detach().sum()) / self.settings.steps
            total = gradients.of(-gains.sum() / self.settings.steps, divergence)
            self.ranks.add(total, "gradients")
            if total[-1] > self.settings.divergence:
                return number
            optimizer.step()
        return self.settings.iterations

    def _improve_values(self, played: Played) -> None:
        """Take gradient steps towards the targets of the values."""
        gradients, optimizer = self._gradients[1], self._optimizers[1]
        for _ in range(self.settings.iterations):
            errors = self.values(played.observations) - played.targets
            self.ranks.add(gradients.of(errors.square().sum() / self.settings.steps), "gradients")
            optimizer.step()
