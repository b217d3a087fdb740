"""dag: every layer reads all earlier layers, and nothing is remembered: hebbian-dag without traces and modulator.

With D = [O, h1, …, hL, A], x_0 the observation and W_ij the [D_j, D_{i+1}] matrix from layer j to layer i + 1:

    x_{i+1} = tanh(Σ_{j ≤ i} x_j W_ij)               one sum, over the rows of W_i0, W_i1, … in ascending order

The last layer is the action. Initial weights are N(0, init_scale²), a share of `init_sparsity` of them pruned.
"""

from functools import cached_property
from itertools import pairwise

import numpy as np

from evolve.genome import Block, Genomes, pruned
from evolve.networks.layers import Layer, LayeredNetwork, Wiring
from evolve.networks.network import all_earlier
from evolve.networks.option_types import Hidden, NetworkOptions, Scale, Share
from evolve.numerics.many_streams import AnyStream


class DagOptions(NetworkOptions):
    """Settings of `[network]` for dag.

    hidden: the sizes of the hidden layers.
    init_scale: the standard deviation of initial weights.
    init_sparsity: the share of connections pruned at first.
    """

    hidden: Hidden = (8, 8)
    init_scale: Scale = 1.0
    init_sparsity: Share = 0.025


class Dag(LayeredNetwork[DagOptions]):
    """The description of a dag."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """D, the layer sizes from observation to action."""
        return (self.observation_size, *self.options.hidden, self.action_size)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """W_00, W_10, W_11, W_20, …: layer by layer, so that all inputs of a layer form one matrix."""
        return all_earlier(self.sizes)

    @cached_property
    def wiring(self) -> Wiring:
        """Each layer reads all nodes before its own."""
        layers = []
        rows = 0
        for inputs, columns in pairwise(self.sizes):
            rows += inputs
            layers.append(Layer(first_input=0, fan_in=rows, first_output=rows, fan_out=columns))
        return Wiring(rows + self.sizes[-1], tuple(layers))

    inits_many = True

    def init(self, stream: AnyStream) -> Genomes:
        """Return one genome (P = 1), or one for each of many streams."""
        weights = np.float32(self.options.init_scale) * stream.normal_rows(self.num_weights)
        return pruned(weights, stream.at_least(self.options.init_sparsity, self.num_weights))
