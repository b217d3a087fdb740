"""Figures of runs: curves, comparisons, returns, load, fronts, archives, and networks of champions.

Each `draw_…` function takes runs or groups of runs, and returns a matplotlib figure. `save` writes a figure, and
`to_svg` prepares it for an HTML page. Only `style`, the common style, imports matplotlib, from the extra `plot`.
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
