"""The layered networks without plasticity: mlp, binary-mask-mlp, dag and elman.

`mlp` is the multilayer perceptron (Rosenblatt, 1962): each layer reads the one before and a bias. `binary-mask-mlp` has
connections that are there or not, and all weigh one. In `dag` every layer reads all earlier layers. `elman` is the
simple recurrent network (Elman, "Finding Structure in Time", 1990).
"""

from functools import cached_property
from itertools import pairwise

import numpy as np

from evolve.genome import Block, Genomes, pruned
from evolve.networks.layers import Layer, LayeredBatch, LayeredNetwork, Wiring, chain, chain_blocks, scaled
from evolve.networks.network import Hidden, NetworkOptions, OneHidden, Scale, Share, all_earlier
from evolve.numerics import Backend
from evolve.numerics.streams import AnyStream
from evolve.shapes import Bool, Float32, Int64


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


class ElmanOptions(NetworkOptions):
    """Settings of `[network]` for elman.

    hidden: H, the size of the one hidden layer.
    init_scale: the standard deviation of initial weights, times the square root of the rows into their layer.
    init_sparsity: the share of connections pruned at first.
    """

    hidden: OneHidden = (16,)
    init_scale: Scale = 1.0
    init_sparsity: Share = 0.0


class Elman(LayeredNetwork[ElmanOptions]):
    """The description of a simple recurrent network."""

    @cached_property
    def wiring(self) -> Wiring:
        """Nodes: x_t, h_{t-1}, 1; h_t, 1; action."""
        O, H, A = self._sizes
        into_hidden = O + H + 1
        into_action = H + 1
        h = into_hidden
        action = h + into_action
        layers = (Layer(0, into_hidden, h, H), Layer(h, into_action, action, A))
        return Wiring(action + A, layers, ones=(O + H, h + H), feedback=(h, O, H))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """W, then U with b as its last row, then V with c: the hidden layer reads itself and a one."""
        O, H, A = self._sizes
        from_input = Block(0, 0, 0, O, H)
        from_itself = Block(0, 1, from_input.stop, H + 1, H)
        return from_input, from_itself, Block(1, 1, from_itself.stop, H + 1, A)

    inits_many = True

    def init(self, stream: AnyStream) -> Genomes:
        """Return one genome (P = 1), or one for each of many streams."""
        weights = stream.normal_rows(self.num_weights)
        mask = stream.at_least(self.options.init_sparsity, self.num_weights)
        return pruned(scaled(weights, self.wiring, self.options.init_scale), mask)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """O, H and A."""
        (H,) = self.options.hidden
        return self.observation_size, H, self.action_size
