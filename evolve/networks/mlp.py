"""mlp: the multilayer perceptron, each layer reading the one before and a bias (Rosenblatt, 1962).

With D = [O, h1, …, hL, A], x_0 the observation and W_i a [D_i + 1, D_{i+1}] matrix whose last row is the biases:

    x_{i+1} = tanh([x_i, 1] W_i)                     summed over rows in ascending order, the bias last

The last layer is the action. Weights are N(0, 1) · birth_scale/sqrt(D_i + 1) at birth (LeCun and others, 1998). A bias
is a connection like any other: it may be pruned, and counts.
"""

from functools import cached_property

from evolve.config import Options
from evolve.genome import Genomes, pruned
from evolve.networks.contract import Block
from evolve.networks.layers import LayeredNetwork, Wiring, chain, chain_blocks, scaled
from evolve.networks.settings import Hidden, Scale, Share
from evolve.numerics import normal_quantile
from evolve.rng import Stream


class MlpOptions(Options):
    """Settings of `[network]` for mlp; `birth_pruning` is the share of connections missing at birth."""

    hidden: Hidden = (16, 16)
    birth_scale: Scale = 1.0
    birth_pruning: Share = 0.0


class Mlp(LayeredNetwork[MlpOptions]):
    """The description of a multilayer perceptron."""

    @cached_property
    def wiring(self) -> Wiring:
        """Each layer reads the one before, and a one."""
        return chain((self.observation_size, *self.options.hidden, self.action_size), biased=True)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """W_0, W_1, …; the last row of each is the biases."""
        return chain_blocks(self.wiring)

    def birth(self, stream: Stream) -> Genomes:
        """Return one genome (P = 1)."""
        weights = normal_quantile(stream.uniform(1, self.weights))
        mask = stream.uniform(1, self.weights) >= self.options.birth_pruning
        return pruned(scaled(weights, self.wiring, self.options.birth_scale), mask)
