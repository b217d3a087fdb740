"""Figures: curves, comparisons, returns, load, and networks of champions.

Each `draw_…` function returns a matplotlib figure. `save` writes a figure, and `to_svg` prepares it for a page.
matplotlib comes with the extra `plot`. Only `style` imports it.
"""

from evolve.analysis.figures.comparison import (
    MOST_PANELS,
    draw_archive,
    draw_comparison,
    draw_front,
    draw_load,
    draw_returns,
)
from evolve.analysis.figures.curves import AXES, draw_curves
from evolve.analysis.figures.network import DrawnNetwork, draw_champion, draw_network, network_of
from evolve.analysis.figures.style import FORMATS, check_library, save, to_bytes, to_svg
