"""The connections of a network: where neurons stand, how lines are drawn, and which connections can act."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from evolve.analysis.figures.style import COLOURS, FAINT, PAPER, matplotlib
from evolve.networks import Block, Network
from evolve.shapes import Bool, Float32, Float64, Int64

Places = dict[int, tuple[float, float]]
"""Where the neurons of a layer are drawn, by number: the layer, and a height from 1 down to 0."""


POSITIVE = COLOURS[0]
NEGATIVE = COLOURS[1]
_FEW = 150  # connections that are drawn in full ink
_MOST_NUMBERS = 24  # connections whose strength is written beside them
_COLUMNS = ("source", "tail", "target", "head", "strength", "place")


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
        place: [n], where each connection stands in `Activity.weights`.
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
        found: list[set[int]] = [set() for _ in self.sizes]
        for layers, neurons in ((self.source, self.tail), (self.target, self.head)):
            for layer, neuron in zip(layers.tolist(), neurons.tolist(), strict=True):
                found[layer].add(neuron)
        return found

    def take(self, chosen: Bool | Int64) -> "Connections":
        """Return some of the connections, chosen by a mask [n] or by their numbers."""
        parts = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        return replace(self, **parts)

    def strongest(self, number: int) -> "Connections":
        """Return about so many connections, in their order: the same share of each matrix, those that are strongest.

        Weights of small layers are the larger ones, or the smaller ones, so that no other choice keeps every layer
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


def places_of(connections: Connections) -> list[Places]:
    """Return where the neurons of each layer are: all observations and outputs, but only the connected hidden ones."""
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

    Curves that skip a layer pass beside its neurons. Curves within a layer leave it and come back.
    """
    rows = max(map(len, places[1:-1]), default=1)  # of hidden neurons, to be passed at half a row's distance
    beside = max(0.07, 0.7 / (rows + 1))
    begin = _ends(connections.source.tolist(), connections.tail.tolist(), places)
    end = _ends(connections.target.tolist(), connections.head.tolist(), places)
    reach = (end - begin)[:, :1]
    lift = np.where(reach > 1.5, beside * (reach - 1) * np.where(begin[:, 1:] > 0.5, 1, -1), 0)
    within = np.where(reach == 0, 0.3, 0)
    loop = np.where(reach == 0, beside / 3, 0)
    first = begin + np.concatenate([0.45 * reach + within, lift + loop], axis=1)
    second = end - np.concatenate([0.45 * reach - within, loop - lift], axis=1)
    return np.stack([begin, first, second, end], axis=1)


def points_on(curves: Float64, at: Float64) -> Float64:
    """Return [n, len(at), 2]: the points of Bézier curves [n, 4, 2] at shares of their way, from 0 to 1."""
    t = at[:, None]
    parts = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
    return np.asarray(sum(part * curves[:, n, None] for n, part in enumerate(parts)))


def _ends(layers: list[int], neurons: list[int], places: list[Places]) -> Float64:
    ends = [places[layer][neuron] for layer, neuron in zip(layers, neurons, strict=True)]
    return np.array(ends, np.float64).reshape(-1, 2)


def draw_connections(panel: Any, connections: Connections, places: list[Places]) -> None:
    """Draw in a panel each connection as a curve, the strong ones last.

    Where there are many, the weak ones fade; where there are few, their strengths are written on them.
    """
    if not len(connections):
        return
    size = np.abs(connections.strength) / max(float(np.abs(connections.strength).max()), 1e-30)
    order = np.argsort(size)
    connections = connections.take(order)
    size = size[order]
    curves = curves_of(connections, places)
    crowd = min(1.0, _FEW / len(size))
    alpha = (0.15 + 0.85 * crowd) * (crowd + (1 - crowd) * size**1.5) + 0.02
    colours = matplotlib("colors").to_rgba_array(colours_of(connections.strength))
    colours[:, 3] = np.clip(alpha, 0.02, 1)
    path = matplotlib("path").Path
    codes = [path.MOVETO, path.CURVE4, path.CURVE4, path.CURVE4]
    lines = matplotlib("collections").PathCollection(
        [path(points, codes) for points in curves],
        facecolors="none",
        edgecolors=colours,
        linewidths=(0.4 + 2.8 * size) * (0.5 + crowd / 2),
    )
    lines.set_gid("connections")
    panel.add_collection(lines, autolim=False)
    panel.update_datalim(points_on(curves, np.array([0.5]))[:, 0])
    if len(connections) <= _MOST_NUMBERS:
        _write_strengths(panel, connections, curves)


def colours_of(strength: Float32) -> list[str]:
    """Return the colour of each strength [n]."""
    return [POSITIVE if s > 0 else NEGATIVE if s < 0 else FAINT for s in strength.tolist()]


def _write_strengths(panel: Any, connections: Connections, curves: Float64) -> None:
    """Write the strength of each connection on it, where it is farthest from the numbers that stand already."""
    ways = points_on(curves, np.linspace(0.2, 0.8, 13))
    written = np.zeros((0, 2))
    paper = {"boxstyle": "round,pad=0.12", "facecolor": PAPER, "edgecolor": "none"}
    for way, strength, colour in zip(
        ways, connections.strength.tolist(), colours_of(connections.strength), strict=True
    ):
        apart = np.abs(way[:, None] - written) * (1, 2.2)  # numbers are wider than they are high
        nearest = np.hypot(*apart.T).min(axis=0) if len(written) else np.abs(np.linspace(-1, 1, len(way))) * -1
        at = way[int(np.argmax(nearest))]
        written = np.concatenate([written, at[None]])
        panel.text(*at, f"{strength:.2f}".replace("-", "−"), color=colour, fontsize=7.5, ha="center", va="center",
                   bbox=paper, zorder=2.5)  # fmt: skip


Neuron = tuple[int, int]
"""Its layer and its number there."""


def connections_of(network: Network, mask: Bool, strength: Float32) -> Connections:
    """Return the connections that a mask [W] leaves and that can act, with their strength [W].

    A connection can act if what it carries may come from an observation or a bias and may reach an action. Biases come
    from a layer's last neuron. Where a genome consists of learning rules, a connection is left while any coefficient of
    its rule is, and it is as strong as the first of them.
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


def _acting(all_left: Connections, network: Network) -> Connections:
    """Return the connections between what a network sees and what acts."""
    last = len(all_left.sizes) - 1
    modulators: tuple[Neuron, ...] | None = getattr(network, "modulators", None)
    others = range(all_left.sizes[-1] - _num_actions(network)) if modulators is not None else range(0)
    unused = tuple(neuron for neuron in others if (last, neuron) not in (modulators or ()))
    outputs = {(last, neuron) for neuron in range(all_left.sizes[-1]) if neuron not in unused}
    tails = [*zip(all_left.source.tolist(), all_left.tail.tolist(), strict=True)]
    heads = [*zip(all_left.target.tolist(), all_left.head.tolist(), strict=True)]
    acting = _reached(outputs | {*(modulators or ())}, heads, tails)
    fed = _reached(_fed_from_outside(all_left, network), tails, heads)
    chosen = [tail in fed and head in acting for tail, head in zip(tails, heads, strict=True)]
    return replace(all_left.take(np.array(chosen, np.bool_)), unused=unused)


def _num_actions(network: Network) -> int:
    return int(network.action_size)  # type: ignore[attr-defined]  # of all networks that have modulators


def _fed_from_outside(all_left: Connections, network: Network) -> set[Neuron]:
    """Return the observations and the biases."""
    computed = dict.fromkeys(range(len(all_left.sizes)), 0)
    for block in network.blocks:
        columns = (block.span or (block.rows, block.columns))[1]
        computed[block.layer + 1] = max(computed[block.layer + 1], columns)
    return {(layer, n) for layer, size in enumerate(all_left.sizes) for n in range(computed[layer], size)}


def _reached(begin: set[Neuron], here: list[Neuron], there: list[Neuron]) -> set[Neuron]:
    """Return what can be reached from some neurons by connections from `here` to `there`, themselves included."""
    by_end: dict[Neuron, list[Neuron]] = {}
    for one, other in zip(here, there, strict=True):
        by_end.setdefault(one, []).append(other)
    found = set(begin)
    waiting = list(begin)
    while waiting:
        for other in by_end.get(waiting.pop(), ()):
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found
