"""dag: every layer reads all earlier layers, and nothing is remembered: hebbian-dag without traces and modulator.

With D = [O, h1, …, hL, A], x_0 the observation and W_ij the [D_j, D_{i+1}] matrix from layer j to layer i + 1:

    x_{i+1} = tanh(Σ_{j ≤ i} x_j W_ij)               one sum, over the rows of W_i0, W_i1, … in ascending order

The last layer is the action. Weights are N(0, birth_scale²) at birth, a share of `birth_pruning` of them pruned.
"""

from functools import cached_property
from itertools import pairwise

import numpy as np

from evolve.config import Options
from evolve.genome import Genomes, pruned
from evolve.networks.contract import Block, all_earlier
from evolve.networks.layers import Layer, LayeredNetwork, Wiring
from evolve.networks.settings import Hidden, Scale, Share
from evolve.numerics import normal_quantile
from evolve.rng import Stream


class DagOptions(Options):
    """Settings of `[network]` for dag.

    birth_scale: the standard deviation of weights at birth; birth_pruning: the share of connections missing then.
    """

    hidden: Hidden = (8, 8)
    birth_scale: Scale = 1.0
    birth_pruning: Share = 0.025


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
        """Each layer reads all the nodes before those it says."""
        D, layers, rows = self.sizes, [], 0
        for inputs, columns in pairwise(D):
            rows += inputs
            layers.append(Layer(0, rows, rows, columns))
        return Wiring(rows + D[-1], tuple(layers))

    def birth(self, stream: Stream) -> Genomes:
        """Return one genome (P = 1)."""
        weights = np.float32(self.options.birth_scale) * normal_quantile(stream.uniform(1, self.weights))
        return pruned(weights, stream.uniform(1, self.weights) >= self.options.birth_pruning)
