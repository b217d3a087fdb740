"""Labels of lines, right beside their ends, moved apart where these are near one another."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evolve.analysis.figures.style import INK, PAPER, matplotlib
from evolve.shapes import Float64

_LETTERS = 26  # of a line of a label
_SIZE = 8.5  # points
_LINE = 1.25 * _SIZE / 72  # inches
_MARKS = 10  # points beside the panel that a mark has
_MOST_MARKS = 6  # side by side
_LOWEST, _HIGHEST = -0.08, 1.08  # where texts may stand, as shares of the panel's height
_SHARE = 0.93  # of the height that a panel is given: titles and axes take the rest
Mark = tuple[float, tuple[float, float] | None]
"""A value, and its interval where there is one."""


@dataclass(frozen=True)
class LineLabel:
    """What is said beside the end of a line.

    Attributes:
        text: The label; each of its lines may be broken.
        x: Where the line ends.
        y: The same.
        colour: Of the line.
        mark: Drawn at the edge of the panel.
    """

    text: str
    x: float
    y: float
    colour: str
    mark: Mark | None = None

    @property
    def wrapped(self) -> str:
        """The label as it stands."""
        return "\n".join(textwrap.fill(line, _LETTERS, break_long_words=False) for line in self.text.splitlines())


def label_lines(panel: Any, labels: Sequence[LineLabel], inches: float) -> None:
    """Write labels beside a panel that is about so many inches high, and draw their marks. All data stand already."""
    _make_room(panel, labels)
    scale = panel.yaxis.get_transform()  # the axis may be logarithmic
    bottom, top = scale.transform(panel.get_ylim())
    shown = [label for label in labels if np.isfinite(label.y)]
    heights = [(float(scale.transform(label.y)) - bottom) / (top - bottom) for label in shown]
    needed = [(1 + label.wrapped.count("\n")) * _LINE / (_SHARE * inches) for label in shown]
    marked = sum(label.mark is not None for label in shown)
    beside = _beside(panel, 8 + _MARKS * max(1, min(marked, _MOST_MARKS)))
    end = max((label.x for label in shown), default=0.0)
    turn = 0
    for label, y in zip(shown, apart(heights, needed), strict=True):
        begin: dict[str, Any] = {"xy": (label.x, label.y), "xycoords": "data"}
        if label.mark is not None:
            at = _beside(panel, _MARKS * (0.6 + turn % _MOST_MARKS))
            turn += 1
            _draw_mark(panel, label, at)
            if label.mark[0] == label.y:  # it is the mark that is labelled
                begin = {"xy": (1.0, label.y), "xycoords": at}
        style = {"lw": 0.9} if label.x == end else {"lw": 0.9, "ls": ":"}  # a run that ends early has no line there
        at_height = scale.inverted().transform(bottom + y * (top - bottom))
        panel.annotate(label.wrapped, **begin, xytext=(1.0, float(at_height)), textcoords=beside,
                       fontsize=_SIZE, color=INK, va="center", ha="left", annotation_clip=False,
                       arrowprops={"arrowstyle": "-", "color": label.colour, "shrinkA": 1, "shrinkB": 0,
                                   "relpos": (0, 0.5)} | style)  # fmt: skip


def _beside(panel: Any, points: float) -> Any:
    """Return the coordinates of what stands so many points beside a panel, at heights of its data."""
    scale = panel.get_figure().dpi_scale_trans
    return panel.get_yaxis_transform() + matplotlib("transforms").ScaledTranslation(points / 72, 0, scale)


def _make_room(panel: Any, labels: Sequence[LineLabel]) -> None:
    """Let the axis reach as far as the marks."""
    for label in labels:
        if label.mark is not None:
            value, interval = label.mark
            panel.update_datalim([(label.x, end) for end in (value, *(interval or ()))])
    panel.autoscale_view()


def _draw_mark(panel: Any, label: LineLabel, transform: Any) -> None:
    assert label.mark is not None
    value, interval = label.mark
    how = {"color": label.colour, "transform": transform, "clip_on": False, "zorder": 4}
    if interval is not None:
        panel.plot((1, 1), interval, lw=2.6, solid_capstyle="butt", alpha=0.45, scalex=False, scaley=False, **how)
    panel.plot((1,), (value,), "D", ms=5, mec=PAPER, mew=0.7, scalex=False, scaley=False, **how)


def apart(heights: Sequence[float], needed: Sequence[float]) -> Float64:
    """Return heights near those given, at which texts that need so much room do not overlap.

    All are shares of the panel's height; texts stay beside it as long as they fit.
    """
    order = np.argsort(heights, kind="stable")
    placed = np.array(heights, np.float64)
    groups: list[list[int]] = []  # of neighbours that touch, from below
    for n in order.tolist():
        groups.append([n])
        while len(groups) > 1 and _middle(groups[-2], heights, needed)[1] > _middle(groups[-1], heights, needed)[0]:
            upper = groups.pop()
            groups[-1] += upper
    for group in groups:
        at = _middle(group, heights, needed)[0]
        for n in group:
            placed[n] = at + needed[n] / 2
            at += needed[n]
    return placed


def _middle(group: Sequence[int], heights: Sequence[float], needed: Sequence[float]) -> tuple[float, float]:
    """Return where a stack of texts begins and ends, which stands as near to their heights as it can."""
    total = sum(needed[n] for n in group)
    begin = float(np.mean([heights[n] for n in group])) - total / 2
    begin = min(max(begin, _LOWEST), max(_HIGHEST - total, _LOWEST))
    return begin, begin + total
