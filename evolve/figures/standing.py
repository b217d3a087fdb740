"""Where experiments stand: a row for each, with its seeds, their mean and its interval."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from evolve.errors import plain
from evolve.figures.style import COLOURS, FAINT, INK, Sheet, figure, number
from evolve.shapes import Float64

_WIDEST = 56  # characters of a line of a name

Row = tuple[str, Float64, tuple[float, float] | None, str]


def stand(rows: Sequence[Row], tasks: str, axis: str, sheet: Sheet) -> Any:
    """Return the figure of experiments: (name, scores [n], interval of their mean, what a test says) each.

    tasks: their environments; axis: what scores are. The interval is left out where it is None.
    """
    names = [plain(name) for name, *_ in rows]
    names = [name.replace(", ", ",\n") if sheet.narrow else textwrap.fill(name, _WIDEST) for name in names]
    most = max(name.count("\n") for name in names)
    drawn = figure(sheet.width, 0.9 + len(rows) * max(0.67 if sheet.narrow else 0.42, 0.25 + 0.17 * most))
    panel = drawn.subplots()
    for y, (_, scores, interval, against) in enumerate(rows):
        if interval is not None:
            panel.plot(interval, (y, y), color=COLOURS[0], lw=5, alpha=0.25, solid_capstyle="butt")
        panel.plot(scores, np.full(len(scores), y), "o", color=FAINT, ms=4, mew=0, alpha=0.8)
        panel.plot(scores.mean(), y, "D", color=COLOURS[0], ms=6)
        said = f"\n{textwrap.fill(against, 13)}" if sheet.narrow else f"   {against}"
        words = number(float(scores.mean())) + (said if against else "")
        panel.annotate(words, (1.0, y), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                       va="center", fontsize=8.5, color=INK)  # fmt: skip
    panel.set_yticks(range(len(rows)), names)
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.grid(False, axis="y")
    panel.set_xlabel(axis)
    panel.tick_params(axis="y", length=0)
    if sheet.titled:
        title = f"{plain(tasks)}: seeds, mean, 95 % interval, and rank test against the best"
        drawn.suptitle(textwrap.fill(title, 95), x=0.01, ha="left", fontsize=10.5)
    return drawn
