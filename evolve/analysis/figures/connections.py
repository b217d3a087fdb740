"""The connections of a network: which of them can act, and the positions of neurons and lines in a drawing."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from evolve.networks import Block, Network
from evolve.shapes import Bool, Float32, Float64, Int64

Places = dict[int, tuple[float, float]]
"""The position of each drawn neuron of a layer, by number: the layer, and a height from 1 down to 0."""

_COLUMNS = ("source", "tail", "target", "head", "strength", "place")


@dataclass(frozen=True)
class Connections:
    """The n connections of one network, each from a neuron of one layer to a neuron of another.

    Attributes:
        sizes: The number of neurons of each layer, observations first.
        source: [n], the layer that each connection reads.
        tail: [n], the neuron of that layer.
        target: [n], the layer that each connection feeds.
        head: [n], the neuron of that layer.
        strength: [n], the weights, or the traces.
        place: [n], the index of each connection in `Activity.weights`.
        unused: The neurons of the last layer that nothing reads.
    """

    sizes: tuple[int, ...]
    source: Int64
    tail: Int64
    target: Int64
    head: Int64
    strength: Float32
    place: Int64
    unused: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.strength)

    @cached_property
    def connected(self) -> list[set[int]]:
        """The neurons of each layer that have a connection."""
        return [
            {*self.tail[self.source == layer].tolist(), *self.head[self.target == layer].tolist()}
            for layer in range(len(self.sizes))
        ]

    def take(self, chosen: Bool | Int64) -> "Connections":
        """Return the connections that a mask [n] or an array of indices selects."""
        parts = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        return replace(self, **parts)

    def strongest(self, number: int) -> "Connections":
        """Return about `number` connections, in their order: the same share of each matrix, the strongest ones.

        The weights of small layers tend to be larger, or smaller, than the others. Only equal shares keep every layer
        connected.
        """
        share = min(1.0, number / max(1, len(self)))
        matrix = self.source * len(self.sizes) + self.target
        kept = []
        for each in np.unique(matrix):
            among = np.flatnonzero(matrix == each)
            order = np.argsort(-np.abs(self.strength[among]), kind="stable")
            kept.append(among[order[: math.ceil(share * len(among))]])
        return self.take(np.sort(np.concatenate([*kept, np.zeros(0, np.intp)])))


def connections_of(network: Network, mask: Bool, strength: Float32) -> Connections:
    """Return the connections that a mask [W] leaves and that can act, with their strength [W].

    A connection can act if its input depends on an observation or a bias, and an action depends on its output. The
    biases of a layer come from its last neuron. If the genome consists of learning rules, a connection is left as long
    as any coefficient of its rule is, and its strength is the first coefficient.
    """
    sizes: dict[int, int] = {}
    parts = []
    begin = 0
    for block, left, weights in _matrices(network, mask, strength):
        for layer, size in zip((block.source, block.layer + 1), left.shape, strict=True):
            sizes[layer] = max(sizes.get(layer, 0), size)
        rows, columns = np.nonzero(left)
        source = np.full(len(rows), block.source)
        target = np.full(len(rows), block.layer + 1)
        place = begin + rows * left.shape[1] + columns
        parts.append((source, rows, target, columns, weights[rows, columns], place))
        begin += left.size
    arrays = (np.concatenate(column) for column in zip(*parts, strict=True))
    columns_of_all: dict[str, Any] = dict(zip(_COLUMNS, arrays, strict=True))
    found = Connections(tuple(sizes[layer] for layer in sorted(sizes)), **columns_of_all)
    return _acting(found, network)


def _matrices(network: Network, mask: Bool, strength: Float32) -> Iterator[tuple[Block, Bool, Float32]]:
    """Yield each block with its mask and its strengths; all blocks of a learning rule as one, over its connections."""
    for _, group in groupby(network.blocks, lambda b: (b.layer, b.source) if b.span else b.start):
        block, *others = group
        left = mask[block.start : block.stop].copy()
        for other in others:
            left |= mask[other.start : other.stop]
        shape = (block.rows, block.columns)
        span = block.span or shape
        weights = strength[block.start : block.stop].reshape(shape)
        yield block, np.broadcast_to(left.reshape(shape), span), np.broadcast_to(weights, span)


def _acting(every: Connections, network: Network) -> Connections:
    """Return the connections that can act, see `connections_of`."""
    first = np.cumsum([0, *every.sizes])  # the index of each layer's first neuron among all neurons
    last = len(every.sizes) - 1
    # A network with modulators may have outputs that are neither actions nor modulators: nothing reads them.
    modulators: tuple[tuple[int, int], ...] = getattr(network, "modulators", ())
    extra_outputs = 0
    if hasattr(network, "modulators"):
        extra_outputs = every.sizes[-1] - network.action_size  # type: ignore[attr-defined]  # exists beside modulators
    unused = tuple(neuron for neuron in range(extra_outputs) if (last, neuron) not in modulators)
    read = np.arange(first[-1]) >= first[last]
    read[first[last] + np.array(unused, np.intp)] = False
    read[[first[layer] + neuron for layer, neuron in modulators]] = True
    # The neurons of a layer that no block computes are observations or biases.
    computed = np.zeros(len(every.sizes), np.intp)
    for block in network.blocks:
        columns = (block.span or (block.rows, block.columns))[1]
        computed[block.layer + 1] = max(computed[block.layer + 1], columns)
    given = np.concatenate([np.arange(size) >= count for size, count in zip(every.sizes, computed, strict=True)])
    tails, heads = first[every.source] + every.tail, first[every.target] + every.head
    can_act = _reached(given, tails, heads)[tails] & _reached(read, heads, tails)[heads]
    return replace(every.take(can_act), unused=unused)


def _reached(begin: Bool, here: Int64, there: Int64) -> Bool:
    """Return all neurons [N] that can be reached from the neurons `begin` by connections from `here` to `there`."""
    found = begin
    while True:
        more = found.copy()
        more[there[found[here]]] = True
        if (more == found).all():
            return found
        found = more


def places_of(connections: Connections) -> list[Places]:
    """Return the positions of each layer's neurons: all observations and outputs, but only connected hidden neurons."""
    last = len(connections.sizes) - 1
    places = []
    for layer, size in enumerate(connections.sizes):
        shown = range(size) if layer in (0, last) else sorted(connections.connected[layer])
        shown = [neuron for neuron in shown if layer != last or neuron not in connections.unused]
        heights = np.linspace(1, 0, len(shown) + 2)[1:-1]
        places.append({neuron: (float(layer), float(y)) for neuron, y in zip(shown, heights, strict=True)})
    return places


def curves_of(connections: Connections, places: list[Places]) -> Float64:
    """Return [n, 4, 2]: each connection as a Bézier curve.

    A curve that skips a layer passes between its neurons. A curve within a layer leaves it and comes back.
    """
    rows = max(map(len, places[1:-1]), default=1)
    clearance = max(0.07, 0.7 / (rows + 1))  # from the hidden neurons that a curve passes
    begin = _ends(connections.source, connections.tail, places)
    end = _ends(connections.target, connections.head, places)
    distance = (end - begin)[:, :1]  # in layers
    # The control points of a curve that skips a layer are above or below its ends.
    detour = np.where(distance > 1.5, clearance * (distance - 1) * np.where(begin[:, 1:] > 0.5, 1, -1), 0)
    # The control points of a curve within a layer are beside it, a little apart.
    beside = np.where(distance == 0, 0.3, 0)
    apart = np.where(distance == 0, clearance / 3, 0)
    first = begin + np.concatenate([0.45 * distance + beside, detour + apart], axis=1)
    second = end - np.concatenate([0.45 * distance - beside, apart - detour], axis=1)
    return np.stack([begin, first, second, end], axis=1)


def _ends(layers: Int64, neurons: Int64, places: list[Places]) -> Float64:
    ends = [places[layer][neuron] for layer, neuron in zip(layers.tolist(), neurons.tolist(), strict=True)]
    return np.array(ends, np.float64).reshape(-1, 2)


def points_on(curves: Float64, at: Float64) -> Float64:
    """Return [n, len(at), 2]: the points of Bézier curves [n, 4, 2] at the parameters `at`, from 0 to 1."""
    t = at[:, None]
    parts = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
    return np.asarray(sum(part * curves[:, n, None] for n, part in enumerate(parts)))
