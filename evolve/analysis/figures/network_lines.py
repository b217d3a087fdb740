"""The connections of a network as curves: colour for their sign, width for their strength."""

from typing import Any

import numpy as np

from evolve.analysis.figures.connections import Connections
from evolve.analysis.figures.style import COLOURS, FAINT, matplotlib
from evolve.shapes import Float32, Float64

POSITIVE = COLOURS[0]
NEGATIVE = COLOURS[1]
_FEW = 150  # connections that are drawn in full ink
Places = dict[int, tuple[float, float]]
"""Where the neurons of a layer are drawn, by number."""


def draw_connections(panel: Any, connections: Connections, places: list[Places]) -> None:
    """Draw in a panel each connection as a curve, the strong ones last; where there are many, the weak ones fade."""
    if not len(connections.strength):
        return
    size = np.abs(connections.strength) / max(float(np.abs(connections.strength).max()), 1e-30)
    order = np.argsort(size)
    size = size[order]
    begin = _ends(connections.source[order].tolist(), connections.tail[order].tolist(), places)
    end = _ends(connections.target[order].tolist(), connections.head[order].tolist(), places)
    rows = max(map(len, places[1:-1]), default=1)  # of hidden neurons, to be passed at half a row's distance
    curves = _curves(begin, end, max(0.07, 0.7 / (rows + 1)))
    crowd = min(1.0, _FEW / len(size))
    alpha = (0.15 + 0.85 * crowd) * (crowd + (1 - crowd) * size**1.5) + 0.02
    colours = matplotlib("colors").to_rgba_array(colours_of(connections.strength[order]))
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
    panel.update_datalim((curves[:, 0] + 3 * curves[:, 1] + 3 * curves[:, 2] + curves[:, 3]) / 8)  # their middles


def _ends(layers: list[int], neurons: list[int], places: list[Places]) -> Float64:
    return np.array([places[layer][neuron] for layer, neuron in zip(layers, neurons, strict=True)])


def colours_of(strength: Float32) -> list[str]:
    """Return the colour of each strength [n]."""
    return [POSITIVE if s > 0 else NEGATIVE if s < 0 else FAINT for s in strength.tolist()]


def _curves(begin: Float64, end: Float64, beside: float) -> Float64:
    """Return [n, 4, 2]: Bézier curves from points [n, 2] to points.

    Curves that skip a layer pass beside it, by `beside` on the scale of the heights. Curves within a layer leave it and
    come back.
    """
    reach = (end - begin)[:, :1]
    lift = np.where(reach > 1.5, beside * (reach - 1) * np.where(begin[:, 1:] > 0.5, 1, -1), 0)
    within = np.where(reach == 0, 0.3, 0)
    loop = np.where(reach == 0, beside / 3, 0)
    first = begin + np.concatenate([0.45 * reach + within, lift + loop], axis=1)
    second = end - np.concatenate([0.45 * reach - within, loop - lift], axis=1)
    return np.stack([begin, first, second, end], axis=1)
