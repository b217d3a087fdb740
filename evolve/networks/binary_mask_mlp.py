"""binary-mask-mlp: a multilayer perceptron whose connections are there or not, and all weigh one.

From the first version of the 2020 script, in which only a mask evolves. With D = [O, h1, …, hL, A], x_0 the observation
and M_i the [D_i, D_{i+1}] mask from layer i to layer i + 1:

    x_{i+1} = tanh(x_i M_i)                          summed over rows in ascending order, M counted as 0 or 1

The last layer is the action of a Box; of a Discrete action it is the largest (the first of several). There are no
biases. A connection left weighs one whatever its weight in the genome, so changing weights has no effect. In initial
genomes a share of `init_sparsity` of the connections is pruned.
"""

from functools import cached_property

import numpy as np

from evolve.genome import Block, Genomes, pruned
from evolve.networks.layers import LayeredBatch, LayeredNetwork, Wiring, chain, chain_blocks
from evolve.networks.option_types import Hidden, NetworkOptions, Share
from evolve.numerics import Backend
from evolve.numerics.many_streams import AnyStream
from evolve.shapes import Bool, Float32, Int64


class BinaryMaskMlpOptions(NetworkOptions):
    """Settings of `[network]` for binary-mask-mlp.

    hidden: the sizes of the hidden layers.
    init_sparsity: the share of connections pruned at first.
    """

    hidden: Hidden = (8, 8)
    init_sparsity: Share = 0.25


class BinaryMaskMlp(LayeredNetwork[BinaryMaskMlpOptions]):
    """The description of a perceptron of masks."""

    evolves_weights = False

    @cached_property
    def wiring(self) -> Wiring:
        """Each layer reads the one before."""
        return chain((self.observation_size, *self.options.hidden, self.action_size), biased=False)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """M_0, M_1, …"""
        return chain_blocks(self.wiring)

    inits_many = True

    def init(self, stream: AnyStream) -> Genomes:
        """Return one genome (P = 1), or one for each of many streams: ones, a share of them pruned."""
        mask = stream.at_least(self.options.init_sparsity, self.num_weights)
        return pruned(np.ones(mask.shape, np.float32), mask)

    def batch(self, slots: int, backend: Backend) -> LayeredBatch:
        """Return an empty batch of B = `slots` slots."""
        return _MaskBatch(self.observation_size, self.wiring, slots, backend)


class _MaskBatch(LayeredBatch):
    """Takes the mask for the weights."""

    def initial(self, weights: Float32, mask: Bool, seeds: Int64) -> tuple[Float32 | None, ...]:
        return super().initial(mask.astype(np.float32), mask, seeds)
