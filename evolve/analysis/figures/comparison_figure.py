"""The comparison of groups as a figure: a row for each, with its seeds, their mean and its interval.

Each environment has a panel of its own, with numbers in columns beside it.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from evolve.analysis.comparison import Comparison, Ranking
from evolve.analysis.figures.series import drawable
from evolve.analysis.figures.style import COLOURS, FAINT, INK, PAPER, matplotlib, new_figure, set_title, styled
from evolve.analysis.formatting import between, number
from evolve.errors import sanitize
from evolve.shapes import Float64

_WIDEST_NAME = 34  # characters of a line of a name
_NOTE_WIDTH = 118
_COLUMNS = (("mean", 0.75), ("95 % interval", 2.15), ("against the best", 3.2))  # and where they end, in inches
_SIZE = 8.5  # points


@styled
def draw_comparison(found: Ranking, titled: bool = True) -> Any:
    """Return the figure of a comparison."""
    facets = [[row for row in found.rows if row.env == env] for env in dict.fromkeys(row.env for row in found.rows)]
    names = {row.label: _wrapped(sanitize(row.name)) for row in found.rows}
    lines = 1 + max(name.count("\n") for name in names.values())
    row_height = max(0.4, 0.08 + 0.17 * lines)
    heights = [0.5 + row_height * len(facet) for facet in facets]
    notes = [textwrap.fill(sanitize(note), _NOTE_WIDTH) for note in found.notes] if titled else []
    figure = new_figure(sum(heights) + 0.6 * titled + 0.4 + 0.16 * sum(1 + note.count("\n") for note in notes))
    panels = figure.subplots(len(facets), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, facet in zip(panels, facets, strict=True):
        _draw_facet(panel, facet, [names[row.label] for row in facet])
        if len(facets) > 1:
            panel.set_title(sanitize(facet[0].env))
    panels[-1].set_xlabel(found.score)
    if notes:
        figure.supxlabel("\n".join(notes), fontsize=8, x=0.01, ha="left", color=INK)
    if titled:
        envs = ", ".join(dict.fromkeys(row.env for row in found.rows))
        band = ", the band its 95 % interval" if any(row.interval for row in found.rows) else ""
        set_title(figure, f"{envs}: each dot is a seed, the diamond their mean{band}")
    return figure


def _wrapped(name: str) -> str:
    """Return a name as lines that end at its commas."""
    parts = [part.replace(" ", "\N{NO-BREAK SPACE}") for part in name.split(", ")]
    return textwrap.fill(", ".join(parts), _WIDEST_NAME)


def _draw_facet(panel: Any, rows: Sequence[Comparison], names: Sequence[str]) -> None:
    """Draw the groups of one environment."""
    for y, row in enumerate(rows):
        _draw_row(panel, y, row)
    if not any(len(row.scores) for row in rows):
        panel.set_xticks([])
        panel.text(0.5, 0.5, "not evaluated", transform=panel.transAxes, ha="center", va="center", color=FAINT)
    panel.set_yticks(range(len(rows)), names)
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.margins(x=0.04)
    panel.ticklabel_format(axis="x", useOffset=False)
    panel.xaxis.get_major_locator().set_params(nbins=5)
    panel.grid(False, axis="y")
    panel.tick_params(axis="y", length=0)
    intervals = [between(row.interval) if row.interval else "–" for row in rows]
    cells = [
        (number(row.mean).replace("-", "−"), interval.replace("-", "−"), row.against_best)
        for row, interval in zip(rows, intervals, strict=True)
    ]
    shown = 3 if any(row.against_best for row in rows) else 2
    for n, (header, end) in enumerate(_COLUMNS[:shown]):
        _write(panel, header, -0.5, end, "bottom", FAINT)
        for y, texts in enumerate(cells):
            _write(panel, texts[n], y, end, "center", INK)


def _write(panel: Any, text: str, y: float, end: float, va: str, colour: str) -> None:
    """Write a number beside the panel, so that it ends so many inches from there."""
    aside = matplotlib("transforms").ScaledTranslation(end, 0, panel.get_figure().dpi_scale_trans)
    panel.text(1.0, y, text, transform=panel.get_yaxis_transform() + aside, ha="right", va=va, fontsize=_SIZE,
               color=colour)  # fmt: skip


def _draw_row(panel: Any, y: int, row: Comparison) -> None:
    if not len(row.scores):
        return
    if row.interval is not None:
        panel.plot(drawable(np.array(row.interval)), (y, y), color=COLOURS[0], lw=7, alpha=0.25, solid_capstyle="butt")
    panel.plot(drawable(np.array(row.mean)), y, "D", color=COLOURS[0], ms=8, mew=0)
    scores = drawable(np.sort(row.scores))
    panel.plot(scores, y + _beside(scores), "o", color=COLOURS[5], ms=5, mec=INK, mew=0.8)
    panel.plot(drawable(np.array(row.mean)), y, "D", ms=8, mfc="none", mec=PAPER, mew=0.6, zorder=1.5)


def _beside(scores: Float64) -> Float64:
    """Return how far each of sorted scores stands above or below its row, so that equal ones can be counted."""
    span = float(np.ptp(scores)) or 1.0
    heights = np.zeros(len(scores))
    for n in range(1, len(scores)):
        near = scores[n] - scores[n - 1] <= 0.02 * span
        heights[n] = heights[n - 1] + 1 if near else 0
    for begin in np.flatnonzero(heights == 0):
        stop = begin + 1
        while stop < len(heights) and heights[stop] > 0:
            stop += 1
        heights[begin:stop] -= heights[begin:stop].mean()
    widest = max(float(np.abs(heights).max()), 1.0)
    return heights * min(0.16, 0.36 / widest)
