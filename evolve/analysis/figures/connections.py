"""The connections of a network: which neurons a mask leaves connected, and how strongly."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from evolve.networks import Block, Network
from evolve.shapes import Bool, Float32, Int64


@dataclass(frozen=True)
class Connections:
    """The n connections of one network, each from a neuron of one layer to a neuron of another.

    Attributes:
        sizes: The neurons of each layer, observations first.
        source: [n], the layer that each connection reads.
        tail: [n], the neuron of that layer.
        target: [n], the layer that each connection feeds.
        head: [n], the neuron of that layer.
        strength: [n], the weights, or the traces.
    """

    sizes: tuple[int, ...]
    source: Int64
    tail: Int64
    target: Int64
    head: Int64
    strength: Float32

    @cached_property
    def connected(self) -> list[set[int]]:
        """The neurons of each layer that have a connection."""
        found: list[set[int]] = [set() for _ in self.sizes]
        for layers, neurons in ((self.source, self.tail), (self.target, self.head)):
            for layer, neuron in zip(layers.tolist(), neurons.tolist(), strict=True):
                found[layer].add(neuron)
        return found


def connections_of(network: Network, mask: Bool, strength: Float32) -> Connections:
    """Return the connections that a mask [W] leaves, with their strength [W]; biases come from a layer's last neuron.

    Where a genome consists of learning rules, a connection is left while any coefficient of its rule is, and it is as
    strong as the first of them.
    """
    sizes: dict[int, int] = {}
    parts = []
    for block, left, weights in _matrices(network, mask, strength):
        for layer, size in zip((block.source, block.layer + 1), left.shape, strict=True):
            sizes[layer] = max(sizes.get(layer, 0), size)
        rows, columns = np.nonzero(left)
        source = np.full(len(rows), block.source)
        target = np.full(len(rows), block.layer + 1)
        parts.append((source, rows, target, columns, weights[rows, columns]))
    columns_of_all = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Connections(tuple(sizes[layer] for layer in sorted(sizes)), *columns_of_all)


def _matrices(network: Network, mask: Bool, strength: Float32) -> Iterator[tuple[Block, Bool, Float32]]:
    """Yield each block with its part of a mask and of strengths; the blocks of a rule as one, over its connections."""
    for _, group in groupby(network.blocks, lambda b: (b.layer, b.source) if b.span else b.start):
        block, *others = group
        left = mask[block.start : block.stop].copy()
        for other in others:
            left |= mask[other.start : other.stop]
        shape = (block.rows, block.columns)
        span = block.span or shape
        weights = strength[block.start : block.stop].reshape(shape)
        yield block, np.broadcast_to(left.reshape(shape), span), np.broadcast_to(weights, span)
