"""hebbian-dag: every layer reads all earlier layers; each connection keeps a Hebbian trace of the episode.

With D = [O, h1, …, hL, A + 1], x_0 the observation and W_ij the [D_j, D_{i+1}] matrix from layer j to layer i + 1:

    z_ij    = x_j (W_ij + m H_ij)                    summed over the rows of j in ascending order
    x_{i+1} = tanh((z_i0 + z_i1) + … + z_ii)
    H_ij   ← clip(H_ij + ρ (x_jᵀ z_ij), ±limit)      after all layers have been computed

Output 0 is the neuromodulator, outputs 1 … A are the action. ρ is `trace_rate`, or output 0 when neuromodulated.
m is `plasticity`; with m = 0 traces do not act on the network and only steer pruning. A pruned connection has
neither weight nor trace. H is zero when an episode starts. All of it is float32.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import Field

from evolve.config import Options
from evolve.genome import Genomes, pruned
from evolve.networks.contract import Block
from evolve.numerics import normal_quantile, sequential_sum, tanh
from evolve.rng import Stream
from evolve.shapes import Bool, Float32


class HebbianDagOptions(Options):
    """Settings of `[network]` for hebbian-dag; `birth_pruning` is the share of connections missing at birth."""

    hidden: Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(strict=False)] = (8, 8)
    plasticity: float = 0.0
    trace_rate: float = 1.0
    trace_limit: float = Field(10.0, gt=0)
    neuromodulated: bool = False
    birth_pruning: float = Field(0.025, ge=0, lt=1)


@dataclass(frozen=True)
class HebbianDag:
    """The description of a hebbian-dag with O = observation_size inputs and A = action_size outputs."""

    options: HebbianDagOptions
    observation_size: int
    action_size: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """D, the layer sizes from observation to output."""
        return (self.observation_size, *self.options.hidden, self.action_size + 1)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """W_00, W_10, W_11, W_20, …: layer by layer, so that all inputs of a layer form one matrix."""
        D, blocks, start = self.sizes, [], 0
        for layer in range(len(D) - 1):
            for source in range(layer + 1):
                blocks.append(Block(layer, start, rows=D[source], columns=D[layer + 1]))
                start = blocks[-1].stop
        return tuple(blocks)

    @property
    def weights(self) -> int:
        """W, the weights of one genome."""
        return self.blocks[-1].stop

    @property
    def traces(self) -> int:
        """T = W: one trace per connection."""
        return self.weights

    def birth(self, stream: Stream) -> Genomes:
        """Return one genome (P = 1): weights N(0, 1), a share of `birth_pruning` of them pruned."""
        weights = normal_quantile(stream.uniform(1, self.weights))
        return pruned(weights, stream.uniform(1, self.weights) >= self.options.birth_pruning)

    def batch(self, slots: int) -> "HebbianDagBatch":
        """Return an empty batch of B = `slots` slots."""
        return HebbianDagBatch(self, slots)


@dataclass(frozen=True)
class _Layer:
    """Views of one layer for the first n slots: R input nodes (all earlier layers), K output nodes."""

    inputs: Float32  # [R, n]
    outputs: Float32  # [K, n]
    weights: Float32  # [R, K, n]
    traces: Float32  # [R, K, n]
    gains: Float32  # [R, K, n]: m where a connection is left, 0 where it is not
    scratch: Float32  # [R, K, n]
    sources: tuple[slice, ...]  # rows of each earlier layer


class HebbianDagBatch:
    """B slots of a hebbian-dag as arrays; slots run along the last axis, so that each operation is wide."""

    def __init__(self, network: HebbianDag, slots: int) -> None:
        self._network = network
        W, nodes = network.weights, sum(network.sizes)
        self._weights, self._traces = np.zeros((W, slots), np.float32), np.zeros((W, slots), np.float32)
        self._mask = np.zeros((W, slots), np.bool_)
        self._gains = np.zeros((W if network.options.plasticity else 0, slots), np.float32)
        self._nodes = np.zeros((nodes, slots), np.float32)
        self._scratch = np.zeros((W, slots), np.float32)
        self._views: tuple[_Layer, ...] = ()
        self._live = -1

    def load(self, slot: int, weights: Float32, mask: Bool) -> None:
        """Put a genome into a slot and clear its traces."""
        self._weights[:, slot] = weights
        self._mask[:, slot] = mask
        self._traces[:, slot] = 0
        if len(self._gains):
            self._gains[:, slot] = np.float32(self._network.options.plasticity) * mask

    def move(self, source: int, target: int) -> None:
        """Copy a slot onto another."""
        for array in (self._weights, self._mask, self._traces, self._gains):
            array[:, target] = array[:, source]

    def trace(self, slot: int) -> Float32:
        """Return [W]: the traces of the connections that are left."""
        return np.where(self._mask[:, slot], self._traces[:, slot], np.float32(0))

    def step(self, observations: Float32) -> Float32:
        """Advance the first n slots: observations [n, O] -> actions [n, A]."""
        self._focus(len(observations))
        self._nodes[: self._network.observation_size, : self._live] = observations.T
        partial_sums = [self._forward(layer) for layer in self._views]
        outputs = self._views[-1].outputs
        options = self._network.options
        rate = outputs[0] if options.neuromodulated else np.float32(options.trace_rate)
        for layer, sums in zip(self._views, partial_sums, strict=True):
            self._update_traces(layer, sums, rate)
        return outputs[1:].T.copy()

    def _forward(self, layer: _Layer) -> list[Float32]:
        """Compute x_{i+1}; return the z_ij, each [K, n]."""
        products = layer.scratch
        if len(layer.gains):
            np.multiply(layer.gains, layer.traces, out=products)
            np.add(layer.weights, products, out=products)
            np.multiply(layer.inputs[:, None], products, out=products)
        else:
            np.multiply(layer.inputs[:, None], layer.weights, out=products)
        sums = [sequential_sum(products[rows]).copy() for rows in layer.sources]
        total = sums[0]
        for z in sums[1:]:
            total = total + z
        layer.outputs[:] = tanh(total)
        return sums

    def _update_traces(self, layer: _Layer, sums: list[Float32], rate: Float32 | np.float32) -> None:
        limit = np.float32(self._network.options.trace_limit)
        change = layer.scratch
        for rows, z in zip(layer.sources, sums, strict=True):
            np.multiply(layer.inputs[rows, None], z, out=change[rows])
        np.multiply(change, rate, out=change)
        np.add(layer.traces, change, out=layer.traces)
        np.maximum(layer.traces, -limit, out=layer.traces)
        np.minimum(layer.traces, limit, out=layer.traces)

    def _focus(self, live: int) -> None:
        """Make the views of the first `live` slots, unless they stand already."""
        if live == self._live:
            return
        self._live = live
        D, views, first, row = self._network.sizes, [], 0, 0
        for layer, columns in enumerate(D[1:]):
            rows = sum(D[: layer + 1])
            last = first + rows * columns
            edges = np.cumsum([0, *D[: layer + 1]]).tolist()
            cut = [
                array[first:last].reshape(-1, columns, array.shape[1])[:, :, :live]
                for array in (self._weights, self._traces, self._gains, self._scratch)
            ]
            weights, traces, gains, scratch = cut
            inputs, outputs = self._nodes[:rows, :live], self._nodes[rows : rows + columns, :live]
            sources = tuple(slice(a, b) for a, b in pairwise(edges))
            views.append(_Layer(inputs, outputs, weights, traces, gains, scratch, sources))
            first, row = last, row + columns
        self._views = tuple(views)
