"""Figures: curves, comparisons, load, the spread of returns, networks of champions, machines.

Each `draw_…` function returns a matplotlib figure; `save` writes it, `to_svg` puts it into a page. Only this package
imports matplotlib (in `style`), which comes with the extra `plot`.
"""

from evolve.analysis.figures.comparison_figure import draw_comparison
from evolve.analysis.figures.connections import Connections, connections_of
from evolve.analysis.figures.contest_figure import draw_contest
from evolve.analysis.figures.curves import AXES, costs_connections, draw_curves
from evolve.analysis.figures.load import draw_load, draw_returns
from evolve.analysis.figures.network_figure import DrawnNetwork, draw_champion, draw_network, network_of
from evolve.analysis.figures.style import FORMATS, check_library, save, to_svg

__all__ = [
    "AXES",
    "FORMATS",
    "Connections",
    "DrawnNetwork",
    "check_library",
    "connections_of",
    "costs_connections",
    "draw_champion",
    "draw_comparison",
    "draw_contest",
    "draw_curves",
    "draw_load",
    "draw_network",
    "draw_returns",
    "network_of",
    "save",
    "to_svg",
]
