"""The connections of a network as curves: colour for their sign, width for their strength."""

from typing import Any

import numpy as np

from evolve.analysis.figures.connections import Connections
from evolve.analysis.figures.network_layout import Places, curves_of, points_on
from evolve.analysis.figures.style import COLOURS, FAINT, PAPER, matplotlib
from evolve.shapes import Float32, Float64

POSITIVE = COLOURS[0]
NEGATIVE = COLOURS[1]
_FEW = 150  # connections that are drawn in full ink
_MOST_NUMBERS = 24  # connections whose strength is written beside them


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
