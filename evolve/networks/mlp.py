"""mlp: the multilayer perceptron, each layer reading the one before and a bias (Rosenblatt, 1962).

With D = [O, h1, …, hL, A], x_0 the observation and W_i a [D_i + 1, D_{i+1}] matrix whose last row is the biases:

    x_{i+1} = tanh([x_i, 1] W_i)                     summed over rows in ascending order, the bias last

The last layer is the action. Initial weights are N(0, 1) · init_scale/sqrt(D_i + 1) (LeCun and others, 1998), a share
of `init_sparsity` of them pruned. A bias is a connection like any other: it may be pruned, and counts.
"""

from functools import cached_property

from evolve.genome import Block, Genomes, pruned
from evolve.networks.layers import LayeredNetwork, Wiring, chain, chain_blocks, scaled
from evolve.networks.option_types import Hidden, NetworkOptions, Scale, Share
from evolve.numerics.many_streams import AnyStream


class MlpOptions(NetworkOptions):
    """Settings of `[network]` for mlp.

    hidden: the sizes of the hidden layers.
    init_scale: the standard deviation of initial weights, times the square root of the rows into their layer.
    init_sparsity: the share of connections pruned at first.
    """

    hidden: Hidden = (16, 16)
    init_scale: Scale = 1.0
    init_sparsity: Share = 0.0


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

    inits_many = True

    def init(self, stream: AnyStream) -> Genomes:
        """Return one genome (P = 1), or one for each of many streams."""
        weights = stream.normal_rows(self.num_weights)
        mask = stream.at_least(self.options.init_sparsity, self.num_weights)
        return pruned(scaled(weights, self.wiring, self.options.init_scale), mask)
