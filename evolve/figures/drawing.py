"""A pruned network as a graph: layers from left to right, and only the connections that are left."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from evolve.errors import plain
from evolve.figures.style import COLOURS, FAINT, FILE, INK, Sheet, figure, matplotlib
from evolve.networks import Block, Network
from evolve.shapes import Bool, Float32, Float64, Int64

POSITIVE, NEGATIVE = COLOURS[0], COLOURS[1]
_TALLEST = 11.0  # inches
_WIDEST = 95  # characters of a title
_FEW = 150  # connections that are drawn in full ink


@dataclass(frozen=True)
class Wires:
    """The connections of one network, each from neuron `tail` of layer `source` to neuron `head` of layer `target`.

    source, tail, target, head: [n]. sizes: the neurons of each layer, observations first. strength: [n], the weights,
    or the traces.
    """

    sizes: tuple[int, ...]
    source: Int64
    tail: Int64
    target: Int64
    head: Int64
    strength: Float32

    def touched(self) -> list[set[int]]:
        """Return the neurons of each layer that have a connection."""
        found: list[set[int]] = [set() for _ in self.sizes]
        for layers, neurons in ((self.source, self.tail), (self.target, self.head)):
            for layer, neuron in zip(layers.tolist(), neurons.tolist(), strict=True):
                found[layer].add(neuron)
        return found


def wires(network: Network, mask: Bool, strength: Float32) -> Wires:
    """Return the connections that a mask [W] leaves, with their strength [W]; biases come from a layer's last neuron.

    Where a genome is learning rules, a connection is left while any coefficient of its rule is, as strong as the first.
    """
    sizes: dict[int, int] = {}
    parts = []
    for block, left, weight in _matrices(network, mask, strength):
        for layer, size in zip((block.source, block.layer + 1), left.shape, strict=True):
            sizes[layer] = max(sizes.get(layer, 0), size)
        rows, columns = np.nonzero(left)
        ends = np.full(len(rows), block.source), rows, np.full(len(rows), block.layer + 1), columns
        parts.append((*ends, weight[rows, columns]))
    source, tail, target, head, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Wires(tuple(sizes[layer] for layer in sorted(sizes)), source, tail, target, head, weights)


def _matrices(network: Network, mask: Bool, strength: Float32) -> Iterator[tuple[Block, Bool, Float32]]:
    """Yield each block with its part of a mask and of strengths; the blocks of a rule as one, over its connections."""
    for _, group in groupby(network.blocks, lambda b: (b.layer, b.source) if b.span else b.start):
        block, *others = group
        left, shape = mask[block.start : block.stop].copy(), (block.rows, block.columns)
        for other in others:
            left |= mask[other.start : other.stop]
        span, weights = block.span or shape, strength[block.start : block.stop].reshape(shape)
        yield block, np.broadcast_to(left.reshape(shape), span), np.broadcast_to(weights, span)


def draw(
    wires: Wires, inputs: Sequence[str], outputs: Sequence[str], title: str, kind: str, sheet: Sheet = FILE
) -> Any:
    """Return the figure of a network: sign as colour, size as width; `kind` says what the sizes are ("weight").

    inputs, outputs: the names of the first and the last layer.
    """
    places = _places(wires)
    tallest = max(len(places[0]), len(places[-1]), *map(len, places))
    drawn = figure(sheet.width, min(max(3.2, 0.24 * tallest + 1.2), _TALLEST))
    panel = drawn.subplots()
    panel.set_axis_off()
    _edges(panel, wires, places, sheet)
    for layer, neurons in enumerate(places):
        _nodes(panel, layer, neurons, wires.touched()[layer])
    size = 6.0 if tallest > 40 else 8.0 if sheet.narrow else 9.0
    _labels(panel, places[0], inputs, wires.touched()[0], "right", size)
    _labels(panel, places[-1], outputs, wires.touched()[-1], "left", size)
    _legend(panel, wires, kind)
    if sheet.titled:
        drawn.suptitle(textwrap.fill(plain(title), _WIDEST), x=0.01, ha="left", fontsize=11)
    panel.set_xlim(*_sides(sheet.width, inputs, outputs, len(places), size))
    return drawn


def _sides(
    width: float, inputs: Sequence[str], outputs: Sequence[str], layers: int, size: float
) -> tuple[float, float]:
    """Return how far the drawing reaches, in layers, so that its names, `size` points high, have room beside it."""
    left, right = (0.25 + 0.0078 * size * max(map(len, names)) for names in (inputs, outputs))  # inches, about
    inch = (layers - 1) / (width - left - right)
    return -left * inch, layers - 1 + right * inch


def _places(wires: Wires) -> list[dict[int, tuple[float, float]]]:
    """Return where the neurons of each layer are: all observations and outputs, but only the used hidden ones."""
    touched, places = wires.touched(), []
    for layer, size in enumerate(wires.sizes):
        shown = range(size) if layer in (0, len(wires.sizes) - 1) else sorted(touched[layer])
        heights = np.linspace(1, 0, len(shown) + 2)[1:-1]
        places.append({neuron: (float(layer), float(y)) for neuron, y in zip(shown, heights, strict=True)})
    return places


def _edges(panel: Any, wires: Wires, places: list[dict[int, tuple[float, float]]], sheet: Sheet) -> None:
    """Draw each connection as a curve, the strong ones last; where there are many, the weak ones fade."""
    if not len(wires.strength):
        return
    size = np.abs(wires.strength) / max(float(np.abs(wires.strength).max()), 1e-30)
    order = np.argsort(size)
    begin = [places[s][t] for s, t in zip(wires.source[order].tolist(), wires.tail[order].tolist(), strict=True)]
    end = [places[s][t] for s, t in zip(wires.target[order].tolist(), wires.head[order].tolist(), strict=True)]
    crowd = min(1.0, _FEW / len(size))
    alpha = (0.15 + 0.85 * crowd) * (crowd + (1 - crowd) * size[order] ** 1.5) + 0.02
    colours = matplotlib("colors").to_rgba_array(_colours(wires.strength[order]))
    colours[:, 3] = np.clip(alpha, 0.02, 1)
    rows = max(map(len, places[1:-1]), default=1)  # of hidden neurons, to be passed at half a row's distance
    curves, shape = _curves(np.array(begin), np.array(end), max(0.07, 0.7 / (rows + 1))), matplotlib("path").Path
    codes = [shape.MOVETO, shape.CURVE4, shape.CURVE4, shape.CURVE4]
    lines = matplotlib("collections").PathCollection(
        [shape(points, codes) for points in curves],
        facecolors="none",
        edgecolors=colours,
        linewidths=(0.6 if sheet.narrow else 1.0) * (0.4 + 2.8 * size[order]) * (0.5 + crowd / 2),
    )
    lines.set_gid("connections")
    panel.add_collection(lines, autolim=False)
    panel.update_datalim((curves[:, 0] + 3 * curves[:, 1] + 3 * curves[:, 2] + curves[:, 3]) / 8)  # where they reach


def _colours(strength: Float32) -> list[str]:
    """Return the colour of each strength [n]."""
    return [POSITIVE if s > 0 else NEGATIVE if s < 0 else FAINT for s in strength.tolist()]


def _curves(begin: Float64, end: Float64, beside: float) -> Float64:
    """Return [n, 4, 2]: Bézier curves from points [n, 2] to points; those that skip a layer pass beside it.

    beside: by how much, on the scale of the heights. Those within a layer leave it and come back.
    """
    reach = (end - begin)[:, :1]
    lift = np.where(reach > 1.5, beside * (reach - 1) * np.where(begin[:, 1:] > 0.5, 1, -1), 0)
    within, loop = np.where(reach == 0, 0.3, 0), np.where(reach == 0, beside / 3, 0)
    first = begin + np.concatenate([0.45 * reach + within, lift + loop], axis=1)
    second = end - np.concatenate([0.45 * reach - within, loop - lift], axis=1)
    return np.stack([begin, first, second, end], axis=1)


def _nodes(panel: Any, layer: int, places: dict[int, tuple[float, float]], touched: set[int]) -> None:
    for used in (False, True):
        shown = [place for neuron, place in places.items() if (neuron in touched) == used]
        if shown:
            x, y = zip(*shown, strict=True)
            size = 46 if len(places) <= 40 else 12
            panel.scatter(x, y, s=size, zorder=3, color="white", edgecolors=INK if used else "#cfcfcf", linewidths=1.1)


def _labels(
    panel: Any, places: dict[int, tuple[float, float]], names: Sequence[str], touched: set[int], align: str, size: float
) -> None:
    beside = (-6, 0) if align == "right" else (6, 0)
    if len(places) > 90:  # no room for names
        x, y = min(places.values(), key=lambda place: place[1])
        panel.text(x, y - 0.03, f"{len(places)} {names[0].split(' ')[0]}s", ha="center", va="top", fontsize=9)
        return
    for neuron, (x, y) in places.items():
        colour = INK if neuron in touched else FAINT
        panel.annotate(names[neuron], (x, y), beside, textcoords="offset points", ha=align, va="center", color=colour,
                       fontsize=size)  # fmt: skip


def _legend(panel: Any, wires: Wires, kind: str) -> None:
    line = matplotlib("lines").Line2D
    there = set(_colours(wires.strength))
    signs = {POSITIVE: f"positive {kind}", NEGATIVE: f"negative {kind}", FAINT: f"{kind} of 0"}
    shown = {colour: words for colour, words in signs.items() if colour in there}
    if not shown:
        return
    entries = [line([], [], color=colour, lw=2.4) for colour in shown]
    title = f"width: size, at most {float(np.abs(wires.strength).max()):.3g}"
    panel.legend(entries, [*shown.values()], loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(shown),
                 title=title, fontsize=8.5, title_fontsize=8.5)  # fmt: skip
