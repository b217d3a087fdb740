"""The comparison of groups as a figure: a row for each, with its seeds, their mean and its interval."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from evolve.analysis.comparison import Comparison
from evolve.analysis.figures.series import drawable
from evolve.analysis.figures.style import COLOURS, FAINT, INK, new_figure, set_title, styled
from evolve.analysis.formatting import number
from evolve.errors import sanitize

_WIDEST_NAME = 42  # characters of a line of a name


@styled
def draw_comparison(score: str, rows: Sequence[Comparison], titled: bool = True) -> Any:
    """Return the figure of what `compare_groups` returns: what the scores are, and a row for each group."""
    names = [_wrapped(sanitize(row.label)) for row in rows]
    most_lines = 1 + max(name.count("\n") for name in names)
    figure = new_figure(0.9 + len(rows) * max(0.42, 0.08 + 0.17 * most_lines))
    panel = figure.subplots()
    for y, row in enumerate(rows):
        _row(panel, y, row)
    panel.set_yticks(range(len(rows)), names)
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.grid(False, axis="y")
    panel.set_xlabel(score)
    panel.tick_params(axis="y", length=0)
    if titled:
        envs = ", ".join(dict.fromkeys(row.env for row in rows))
        set_title(figure, f"{envs}: seeds, mean, 95 % interval, and rank test against the best")
    return figure


def _wrapped(name: str) -> str:
    """Return a name as lines that end at its commas."""
    parts = [part.replace(" ", "\N{NO-BREAK SPACE}") for part in name.split(", ")]
    return textwrap.fill(", ".join(parts), _WIDEST_NAME)


def _row(panel: Any, y: int, row: Comparison) -> None:
    if row.interval is not None:
        panel.plot(drawable(np.array(row.interval)), (y, y), color=COLOURS[0], lw=5, alpha=0.25, solid_capstyle="butt")
    panel.plot(drawable(row.scores), np.full(len(row.scores), y), "o", color=FAINT, ms=4, mew=0, alpha=0.8)
    panel.plot(drawable(np.array(row.mean)), y, "D", color=COLOURS[0], ms=6)
    text = number(row.mean) + (f", {row.against_best}" if row.against_best else "")
    panel.annotate(text, (1.0, y), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                   va="center", fontsize=8.5, color=INK)  # fmt: skip
