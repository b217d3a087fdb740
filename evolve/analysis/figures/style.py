"""The style of all figures, labels at the ends of lines, and output as a file or as SVG for a page.

This is the only module that imports matplotlib, which comes with the extra `plot`.
"""

import io
import logging
import re
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from evolve.errors import import_extra, sanitize
from evolve.shapes import Float64
from evolve.store import disk

_P = ParamSpec("_P")
_R = TypeVar("_R")
_LOG = logging.getLogger("evolve")

FORMATS = (".png", ".svg", ".pdf")
"""The allowed endings of a figure's file name."""

# Okabe and Ito's palette (2008) without black and yellow. Colour-blind readers can distinguish its colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("-", "--", ":", "-.")
MOST_STYLES = len(COLOURS) * len(DASHES)
"""The number of lines that colours and dashes distinguish."""
_MARKS = dict(zip(DASHES, "Dso^", strict=True))  # the shape of the mark of a line with these dashes
INK = "#222222"
QUIET = "#6b6b6b"  # of less important texts, dark enough to be read
FAINT = "#8a8a8a"  # of lines, too pale for texts
PALE = "#cfcfcf"
GRID = "#e6e6e6"
PAPER = "#ffffff"
# On a page, colours are CSS variables, since the page may be light or dark.
_VARIABLES = {INK: "--ink", QUIET: "--quiet", FAINT: "--faint", PALE: "--pale", GRID: "--grid", PAPER: "--paper"} | {
    colour: f"--colour-{n}" for n, colour in enumerate(COLOURS)
}
DEEP_BLUE = "#004c7a"  # darker than the first colour: differs from the second in print without colours
_VARIABLES[DEEP_BLUE] = "--colour-0"

WIDTH = 8.0  # inches, of every figure
# In an SVG, texts stay texts (`svg.fonttype`), and equal figures have equal ids (`svg.hashsalt`). A browser without the
# first font of `font.sans-serif` takes the next. A PDF embeds its fonts as TrueType (42), because many journals refuse
# the default, Type 3.
_SETTINGS = {
    "font.size": 9.5, "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica", "sans-serif"],
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": GRID, "grid.linewidth": 0.7, "axes.axisbelow": True, "axes.titlesize": 10.5,
    "axes.titleweight": "bold", "axes.titlelocation": "left", "legend.frameon": False, "lines.linewidth": 1.7,
    "svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "evolve", "figure.dpi": 110, "savefig.dpi": 160,
    "text.parse_math": False,  # names come from run files and may contain dollar signs
}  # fmt: skip

_TITLE_CHARACTERS = 95
_DASH_LENGTH = 6.0  # in line widths
_LARGEST = 1e300  # axes fail at larger values, because differences overflow
_LABEL_CHARACTERS = 26  # in one line
_LABEL_SIZE = 8.5  # points
_LABEL_LINE = 1.25 * _LABEL_SIZE / 72  # inches
_LABEL_GAP = 0.35  # the gap below a label, in units of `_LABEL_LINE`
_LOWEST, _HIGHEST = -0.08, 1.08  # the range of labels, as shares of the panel's height
_PANEL_SHARE = 0.93  # the share of a panel's nominal height for data; the rest is its title and axis labels
_MARK_POINTS = 10  # the width of one mark beside the panel
_KEY_POINTS = 26  # the width of the sample of a line
_MOST_MARKS = 10  # side by side


def matplotlib(part: str) -> Any:
    """Return the module `matplotlib.<part>`, or matplotlib itself if `part` is "". Raises InputError without it."""
    return import_extra(f"matplotlib.{part}" if part else "matplotlib", "plot", "figures", "matplotlib")


def check_library() -> None:
    """Raise InputError unless matplotlib is installed."""
    matplotlib("figure")


# Threads share the settings. A context that ends in one thread would restore what another thread has set.
_DRAWING = threading.RLock()


def styled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a function draw with the settings of this package. The user's other figures keep their settings."""

    @wraps(function)
    def with_settings(*arguments: _P.args, **options: _P.kwargs) -> _R:
        with _DRAWING, matplotlib("").rc_context(_SETTINGS):
            return function(*arguments, **options)

    return with_settings


def new_figure(height: float) -> Any:
    """Return an empty figure of a height in inches."""
    # Not by pyplot, which keeps each figure in memory until it is closed.
    return matplotlib("figure").Figure(figsize=(WIDTH, height), layout="constrained")


@contextmanager
def _unknown_glyphs_ignored() -> Iterator[None]:
    """Suppress matplotlib's warning about each character that its font lacks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph ")
        yield


def set_title(figure: Any, title: str) -> None:
    """Put a title above a figure."""
    text = figure.suptitle("", x=0.01, ha="left", fontsize=11)
    # Fewer wide letters fit into a line, so shorten the lines until the title fits.
    for characters in range(_TITLE_CHARACTERS, 0, -5):
        text.set_text(textwrap.fill(sanitize(title), characters))
        with _unknown_glyphs_ignored():
            if text.get_window_extent().width <= 0.98 * figure.bbox.width:
                break


def drawable(values: Float64) -> Float64:
    """Return values that an axis can show: infinite and huge values become ±1e300."""
    return np.clip(values, -_LARGEST, _LARGEST)


def line_style(number: int) -> dict[str, Any]:
    """Return the colour and the dashes of one of several lines."""
    return {"color": COLOURS[number % len(COLOURS)], "ls": DASHES[number // len(COLOURS) % len(DASHES)]}


def alternating_dashes(lines: Sequence[Float64], from_zero: bool = False) -> list[dict[str, Any]]:
    """Return the line style of each line: lines that would hide one another alternate in dashes.

    lines: [G] each, one value for each of G generations.
    from_zero: Whether the axis begins at 0. The range of the axis decides how close two lines look.
    """
    # Two points look like one if their distance is at most 1.5 % of the axis.
    values = np.concatenate(lines)
    finite = values[np.isfinite(values)]
    near = 0.0
    if len(finite):
        begin = 0.0 if from_zero else finite.min()
        near = 0.015 * float(finite.max() - begin)
    groups: dict[int, list[int]] = {}  # lines that hide one another, by the first of them
    for n, line in enumerate(lines):
        first = next((first for first in groups if _hides(lines[first], line, near)), n)
        groups.setdefault(first, []).append(n)
    # Each of k lines that hide one another alternates a dash and a gap of k - 1 dashes, in which the others show.
    styles: list[dict[str, Any]] = [{} for _ in lines]
    for group in groups.values():
        if len(group) == 1:
            continue
        gap = (len(group) - 1) * _DASH_LENGTH
        for turn, n in enumerate(group):
            styles[n] = {"ls": (turn * _DASH_LENGTH, (_DASH_LENGTH, gap))}
    return styles


def _hides(one: Float64, other: Float64, near: float) -> bool:
    """Return whether two lines are near each other in more than half of their common generations."""
    both = min(len(one), len(other))
    return bool(np.mean(np.abs(one[:both] - other[:both]) <= near) > 0.5)


def save(figure: Any, path: Path) -> None:
    """Write a figure in the format that the file's ending names (`FORMATS`). Raises InputError if that fails."""
    # Not straight into the file: on a full disk, matplotlib's PDF ends in an error that hides the cause.
    disk.write_output(path, to_bytes(figure, path.suffix[1:]))


@styled
def to_bytes(figure: Any, kind: str) -> bytes:
    """Return a figure as the content of a file: "png", "svg" or "pdf"."""
    buffer = io.BytesIO()
    # Without a date, equal figures are equal files. Screen readers read the title.
    dates = {"svg": "Date", "pdf": "CreationDate"}
    metadata: dict[str, str | None] = {dates[kind]: None} if kind in dates else {}
    if title := " ".join(figure.get_suptitle().split()):
        metadata["Title"] = title
    with _unknown_glyphs_ignored():
        figure.savefig(buffer, format=kind, metadata=metadata)
    # The texts of an SVG stay texts, and the browser has more fonts.
    if kind != "svg" and (lacking := _lacking_characters(figure)):
        _LOG.warning("the font of figures lacks %s and shows boxes instead: save the figure as .svg", lacking)
    return buffer.getvalue()


def _lacking_characters(figure: Any) -> str:
    """Return the characters of a figure that its font lacks."""
    manager = matplotlib("font_manager")
    font = manager.get_font(manager.findfont(manager.FontProperties()))
    characters = {each for text in figure.findobj(matplotlib("text").Text) for each in text.get_text()}
    return ", ".join(sorted(each for each in characters if each.isprintable() and not font.get_char_index(ord(each))))


@styled
def to_svg(figure: Any, name: str) -> str:
    """Return a figure as SVG for a page, without a size of its own. Its ids begin with `name`.

    All texts are escaped. The page defines the colours as CSS variables, such as `--ink` or `--colour-0`.
    """
    buffer = io.StringIO()
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with _unknown_glyphs_ignored():
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    text = buffer.getvalue()
    # Drop the head of the file and the tag <svg>, which has the size of the figure.
    _, body = text[text.index("<svg ") :].split(">", 1)
    # Two decimals of a coordinate are enough, and halve the size.
    body = re.sub(r'\bd="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), body)
    # Two figures of one page must not share ids. Only tags change, not the texts between tags.
    ids = re.compile(r'(\bid="|href="#|url\(#)')
    body = re.sub(r"<[^>]+>", lambda tag: _with_css_colours(ids.sub(rf"\g<1>{name}-", tag[0])), body)
    width, height = figure.get_size_inches() * 72
    return f'<svg viewBox="0 0 {width:g} {height:g}">{body}'


def _with_css_colours(tag: str) -> str:
    """Return an SVG tag with the page's CSS variables instead of colours."""
    # matplotlib writes a colour in small letters, as in "fill: #0072b2". The colour stays as the value for pages that
    # do not define the variable.
    for colour, name in _VARIABLES.items():
        tag = tag.replace(f": {colour.lower()}", f": var({name}, {colour.lower()})")
    return tag


Mark = tuple[float, tuple[float, float] | None]
"""A value, drawn beside the panel as a shape of `_MARKS`, and its interval, a bar. The interval may be None."""


@dataclass(frozen=True)
class LineLabel:
    """The label of a line, written beside the panel.

    Attributes:
        text: The label; each of its lines may be wrapped.
        x: The x coordinate of the line's end.
        y: The y coordinate of the line's end, or the value of the mark if the label belongs to the mark.
        colour: The colour of the line.
        mark: The mean and the interval drawn for the line; None to draw none.
        key: One of `DASHES` to draw a sample of the line beside the text, because pointers of many lines would cross
            lines and marks. None to draw a pointer from the end of the line to the text. "" to draw neither.
    """

    text: str
    x: float
    y: float
    colour: str
    mark: Mark | None = None
    key: str | None = None


def legend_label(name: str) -> str:
    """Return a name that a legend shows. Matplotlib leaves out labels that begin with an underscore."""
    return f" {name}" if name.startswith("_") else name


def unbroken(name: str) -> str:
    """Return a group's name that textwrap breaks after commas and hyphens, but not between a setting and its value."""
    return ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in name.split(", "))


def _wrapped(label: str) -> str:
    lines = (textwrap.fill(line, _LABEL_CHARACTERS, break_long_words=False) for line in label.splitlines())
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def _label_height(label: str) -> float:
    """Return the height of a label and the gap below it, in inches."""
    return (1 + _wrapped(label).count("\n") + _LABEL_GAP) * _LABEL_LINE


def height_for_labels(labels: Sequence[str]) -> float:
    """Return the least height of a panel beside which labels fit, in inches."""
    return sum(map(_label_height, labels)) / (_PANEL_SHARE * (_HIGHEST - _LOWEST))


def label_lines(panel: Any, labels: Sequence[LineLabel], inches: float) -> None:
    """Write labels beside a panel, and draw their marks. Call this function when all data are drawn.

    labels: Each is left out, with its mark, if its y is NaN or infinite.
    inches: The approximate height of the panel.
    """
    _include_marks(panel, labels)
    scale = panel.yaxis.get_transform()  # the axis may be logarithmic
    bottom, top = scale.transform(panel.get_ylim())
    shown = [label for label in labels if np.isfinite(label.y)]
    # The height of each label's value, and the room that the label needs, as shares of the height of the panel.
    heights = [(float(scale.transform(label.y)) - bottom) / (top - bottom) for label in shown]
    needed = [_label_height(label.text) / (_PANEL_SHARE * inches) for label in shown]
    marked = sum(label.mark is not None for label in shown)
    # From left to right: the panel, the marks, samples of lines, and the texts. `points` is the width of the marks (of
    # one if there are none) and of a gap of 8 points. `edge` is the right end of this gap.
    points = 8 + _MARK_POINTS * max(1, min(marked, _MOST_MARKS))
    edge = beside(panel, points / 72)
    left, right = panel.get_xlim()
    # Marks of similar values follow one another, so each stands in another column than its neighbours.
    order = np.argsort([label.mark[0] for label in shown if label.mark is not None], kind="stable")
    columns = (np.argsort(order) % _MOST_MARKS).tolist()
    for label, y in zip(shown, without_overlap(heights, needed), strict=True):
        at_height = float(scale.inverted().transform(bottom + y * (top - bottom)))
        # `begin` is where the line to the text begins: by default a pointer, from the end of the line in the panel.
        begin: dict[str, Any] = {"xy": (label.x, label.y), "xycoords": "data"}
        if label.mark is not None:
            mark_place = beside(panel, _MARK_POINTS * (0.6 + columns.pop(0)) / 72)  # 0.6 is near the middle of a column
            _draw_mark(panel, label, mark_place)
            if label.mark[0] == label.y:  # the label belongs to the mark, so the pointer begins at the mark
                begin = {"xy": (1.0, label.y), "xycoords": mark_place}
        # A pointer from a line that ends early crosses the panel, so it is dotted.
        how = {"lw": 0.9, "ls": "-" if right - label.x < 0.05 * (right - left) else ":"}
        text_edge = edge
        if label.key:  # instead of the pointer, a sample of the line, level with the text
            begin = {"xy": (1.0, at_height), "xycoords": edge}
            how = {"lw": 1.7, "ls": label.key}
            text_edge = beside(panel, (points + _KEY_POINTS) / 72)
            if label.mark is not None:  # also in the middle of the sample, as in a legend
                _draw_shape(panel, label, at_height, beside(panel, (points + _KEY_POINTS / 2) / 72))
        line = {"arrowstyle": "-", "color": label.colour, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)} | how
        panel.annotate(_wrapped(label.text), **begin, xytext=(1.0, at_height), textcoords=text_edge,
                       fontsize=_LABEL_SIZE, color=INK, va="center", ha="left", annotation_clip=False,
                       arrowprops=None if label.key == "" else line)  # fmt: skip


def beside(panel: Any, inches: float) -> Any:
    """Return a transform that places a point (1, y) some inches right of a panel, at the height y in data units."""
    scale = panel.get_figure().dpi_scale_trans
    # In this transform of matplotlib, x is a share of the width of the panel, and y is in data units.
    return panel.get_yaxis_transform() + matplotlib("transforms").ScaledTranslation(inches, 0, scale)


def _include_marks(panel: Any, labels: Sequence[LineLabel]) -> None:
    # Marks are drawn outside of the panel, and do not scale its axes, so include their values in the data limits.
    for label in labels:
        if label.mark is not None:
            value, interval = label.mark
            panel.update_datalim([(label.x, end) for end in (value, *(interval or ()))])
    panel.autoscale_view()


def _draw_mark(panel: Any, label: LineLabel, transform: Any) -> None:
    assert label.mark is not None
    value, interval = label.mark
    if interval is not None:
        how = {"color": label.colour, "transform": transform, "clip_on": False, "zorder": 4}
        panel.plot((1, 1), interval, lw=2.6, solid_capstyle="butt", alpha=0.45, scalex=False, scaley=False, **how)
    _draw_shape(panel, label, value, transform)


def _draw_shape(panel: Any, label: LineLabel, y: float, transform: Any) -> None:
    """Draw the shape that `_MARKS` gives for the dashes of the line; a diamond if the label shows no dashes."""
    how = {"color": label.colour, "transform": transform, "clip_on": False, "zorder": 4}
    panel.plot((1,), (y,), _MARKS[label.key or "-"], ms=5, mec=PAPER, mew=0.7, scalex=False, scaley=False, **how)


def without_overlap(heights: Sequence[float], needed: Sequence[float]) -> Float64:
    """Return heights close to the given ones at which texts do not overlap.

    All values are shares of the panel's height. Texts stay beside the panel as long as they fit.

    heights: The height that each text should have.
    needed: The room that each text takes.
    """
    order = np.argsort(heights, kind="stable")
    placed = np.array(heights, np.float64)
    # Stacks of touching texts, from below. Each text begins as a stack of its own. The highest two stacks are joined
    # while they overlap.
    stacks: list[list[int]] = []
    for n in order.tolist():
        stacks.append([n])
        while len(stacks) > 1:
            _, end_below = _extent(stacks[-2], heights, needed)
            begin, _ = _extent(stacks[-1], heights, needed)
            if not end_below > begin:  # also if one is NaN
                break
            upper = stacks.pop()
            stacks[-1] += upper
    for stack in stacks:
        at, _ = _extent(stack, heights, needed)
        for n in stack:
            placed[n] = at + needed[n] / 2
            at += needed[n]
    return placed


def _extent(stack: Sequence[int], heights: Sequence[float], needed: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper end of a stack of texts.

    The centre of the stack is the mean of `heights`. If the stack would leave the range `_LOWEST` to `_HIGHEST`, the
    stack is moved into the range. A stack that does not fit begins at `_LOWEST`.
    """
    total = sum(needed[n] for n in stack)
    begin = float(np.mean([heights[n] for n in stack])) - total / 2
    begin = min(max(begin, _LOWEST), max(_HIGHEST - total, _LOWEST))
    return begin, begin + total
