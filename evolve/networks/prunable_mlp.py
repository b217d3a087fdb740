"""prunable-mlp: a multilayer perceptron whose connections are there or not, and all weigh one.

The ancestor's "mk1", in which nothing but the mask evolves. With D = [O, h1, …, hL, A], x_0 the observation and M_i the
[D_i, D_{i+1}] mask from layer i to layer i + 1:

    x_{i+1} = tanh(x_i M_i)                          summed over rows in ascending order, M counted as 0 or 1

The last layer is the action of a Box; of a Discrete action it is the largest (the first of several). There are no
biases. A connection left weighs one whatever weight its genome has, so changing its weight does nothing. At birth
a share of `birth_pruning` is missing.
"""

from functools import cached_property

import numpy as np

from evolve.config import Options
from evolve.genome import Genomes, pruned
from evolve.networks.contract import Block
from evolve.networks.layers import LayeredBatch, LayeredNetwork, Wiring, chain, chain_blocks
from evolve.networks.settings import Hidden, Share
from evolve.numerics import Backend
from evolve.rng import Stream
from evolve.shapes import Bool, Float32, Int64, Slots


class PrunableMlpOptions(Options):
    """Settings of `[network]` for prunable-mlp; `birth_pruning` is the share of connections missing at birth."""

    hidden: Hidden = (8, 8)
    birth_pruning: Share = 0.25


class PrunableMlp(LayeredNetwork[PrunableMlpOptions]):
    """The description of a perceptron of masks."""

    only_masks = True

    @cached_property
    def wiring(self) -> Wiring:
        """Each layer reads the one before."""
        return chain((self.observation_size, *self.options.hidden, self.action_size), biased=False)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """M_0, M_1, …"""
        return chain_blocks(self.wiring)

    def birth(self, stream: Stream) -> Genomes:
        """Return one genome (P = 1): ones, a share of them pruned."""
        ones = np.ones((1, self.weights), np.float32)
        return pruned(ones, stream.uniform(1, self.weights) >= self.options.birth_pruning)

    def batch(self, slots: int, backend: Backend) -> LayeredBatch:
        """Return an empty batch of B = `slots` slots."""
        return _MaskBatch(self.observation_size, self.wiring, slots, backend)


class _MaskBatch(LayeredBatch):
    """Takes the mask for the weights."""

    def load(self, slots: Slots, weights: Float32, mask: Bool, seeds: Int64) -> None:
        super().load(slots, mask.astype(np.float32), mask, seeds)
