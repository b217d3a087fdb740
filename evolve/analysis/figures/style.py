"""The style of all figures, and labels at the ends of lines. Sole importer of matplotlib."""

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from evolve.config import import_extra
from evolve.errors import sanitize
from evolve.shapes import Float64
from evolve.store.disk import atomic_write, naming_output

_P = ParamSpec("_P")
_R = TypeVar("_R")

# Okabe and Ito's palette (2008), made to be distinguishable by colour-blind readers; black and yellow are left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("-", "--", ":", "-.")
_DASH = 6.0  # widths of a line
INK = "#222222"
FAINT = "#8a8a8a"
PALE = "#cfcfcf"
GRID = "#e6e6e6"
PAPER = "#ffffff"

_VARIABLES = {INK: "--ink", FAINT: "--faint", PALE: "--pale", GRID: "--grid", PAPER: "--paper"} | {
    colour: f"--colour-{n}" for n, colour in enumerate(COLOURS)
}  # of CSS: a page may be light or dark
FORMATS = (".png", ".svg", ".pdf")
"""What the name of a figure may end with."""
WIDTH = 8.0  # inches, of every figure
_TITLE_WIDTH = 95  # characters

_SETTINGS = {
    "font.size": 9.5, "font.family": "DejaVu Sans", "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": GRID, "grid.linewidth": 0.7, "axes.axisbelow": True, "axes.titlesize": 10.5,
    "axes.titleweight": "bold", "axes.titlelocation": "left", "legend.frameon": False, "lines.linewidth": 1.7,
    "svg.fonttype": "none", "svg.hashsalt": "evolve", "figure.dpi": 110, "savefig.dpi": 160,
    "text.parse_math": False,  # names come from run files, and may have any number of dollar signs
}  # fmt: skip


_LETTERS = 26  # of a line of a label
_SIZE = 8.5  # points
_LINE = 1.25 * _SIZE / 72  # inches
_MARKS = 10  # points beside the panel that a mark has
_MOST_MARKS = 6  # side by side
_LOWEST, _HIGHEST = -0.08, 1.08  # where texts may stand, as shares of the panel's height
_SHARE = 0.93  # of the height that a panel is given: titles and axes take the rest


def matplotlib(part: str) -> Any:
    """Return a module of matplotlib. Raises InputError where it is not installed."""
    return import_extra(f"matplotlib.{part}" if part else "matplotlib", "plot", "figures", "matplotlib")


def check_library() -> None:
    """Raise InputError unless matplotlib is installed."""
    matplotlib("figure")


def styled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have a function draw with the settings of this package, and leave those of the user's other figures alone."""

    @wraps(function)
    def with_settings(*arguments: _P.args, **options: _P.kwargs) -> _R:
        with matplotlib("").rc_context(_SETTINGS):
            return function(*arguments, **options)

    return with_settings


def new_figure(height: float) -> Any:
    """Return an empty figure of so many inches."""
    return matplotlib("figure").Figure(figsize=(WIDTH, height), layout="constrained")


def set_title(figure: Any, title: str) -> None:
    """Put a title above a figure."""
    figure.suptitle(textwrap.fill(sanitize(title), _TITLE_WIDTH), x=0.01, ha="left", fontsize=11)


def legend_above(panel: Any) -> None:
    """Put the legend of a panel above it, beside its title, where no data are."""
    _, labels = panel.get_legend_handles_labels()
    panel.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(labels), fontsize=8.5, borderaxespad=0.1)


def alternating_dashes(lines: Sequence[Float64], from_zero: bool = False) -> list[dict[str, Any]]:
    """Return the line style of each line [G]: lines that would hide one another share their way in turns of dashes.

    from_zero: whether the axis begins at 0, which decides how near lines are to the eye.
    """
    values = np.concatenate(lines)
    finite = values[np.isfinite(values)]
    near = 0.015 * float(finite.max() - (0.0 if from_zero else finite.min())) if len(finite) else 0.0
    groups: list[list[int]] = []
    for n, line in enumerate(lines):
        covered = [group for group in groups if _hides(lines[group[0]], line, near)]
        if covered:
            covered[0].append(n)
        else:
            groups.append([n])
    styles: list[dict[str, Any]] = [{} for _ in lines]
    for group in groups:
        for turn, n in enumerate(group if len(group) > 1 else ()):
            styles[n] = {"ls": (turn * _DASH, (_DASH, (len(group) - 1) * _DASH))}
    return styles


def _hides(one: Float64, other: Float64, near: float) -> bool:
    both = min(len(one), len(other))
    return bool(np.mean(np.abs(one[:both] - other[:both]) <= near) > 0.5)


@styled
def save(figure: Any, path: Path) -> None:
    """Write a figure in the format that the name ends with (`FORMATS`). Raises InputError when that cannot be done."""
    with naming_output(path), atomic_write(path) as partial:
        figure.savefig(partial, metadata={"Date": None} if path.suffix == ".svg" else None)


@styled
def to_svg(figure: Any, name: str) -> str:
    """Return a figure as SVG to stand inside a page, as wide as its place there; its ids begin with `name`.

    Texts are escaped, whatever they say. Colours are those of the page, which it has as CSS variables: `--ink`,
    `--paper`, `--colour-0`.
    """
    buffer = io.StringIO()
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    text = buffer.getvalue()
    _, body = text[text.index("<svg ") :].split(">", 1)
    body = re.sub(r'\bd="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), body)  # half the size
    ids = re.compile(r'(\bid="|href="#|url\(#)')  # two figures of a page must not share any
    body = re.sub(r"<[^>]+>", lambda tag: _in_colours_of_the_page(ids.sub(rf"\g<1>{name}-", tag[0])), body)
    width, height = figure.get_size_inches() * 72
    return f'<svg viewBox="0 0 {width:g} {height:g}">{body}'


def _in_colours_of_the_page(tag: str) -> str:
    """Return a tag of an SVG with the page's variables for colours that it may have."""
    for colour, name in _VARIABLES.items():
        tag = tag.replace(f": {colour.lower()}", f": var({name}, {colour.lower()})")
    return tag


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
