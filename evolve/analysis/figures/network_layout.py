"""Where the neurons and the connections of a network are drawn: layers from left to right, in a figure or a film."""

import numpy as np

from evolve.analysis.figures.connections import Connections
from evolve.shapes import Float64

Places = dict[int, tuple[float, float]]
"""Where the neurons of a layer are drawn, by number: the layer, and a height from 1 down to 0."""


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
