"""The style of all figures, labels at the ends of lines, and output as a file or as SVG for an HTML page.

A function with the decorator `styled` makes a figure by `new_figure`, draws in its panels, and may write labels beside
them by `label_lines`. This is the only module that imports matplotlib, which comes with the extra `plot`.
"""

import io
import logging
import re
import textwrap
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

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
_SHAPES = {"-": "D", "--": "s", ":": "o", "-.": "^"}  # by the dashes of a line, the shape of its mark beside the panel
# Greys, from black to white.
INK = "#222222"  # of texts
QUIET = "#6b6b6b"  # of less important texts, dark enough to be read
FAINT = "#8a8a8a"  # of lines, too pale for texts
PALE = "#cfcfcf"  # of the least important lines
GRID = "#e6e6e6"
PAPER = "#ffffff"
# On an HTML page, colours are CSS variables, because the page may be light or dark.
_VARIABLES = {INK: "--ink", QUIET: "--quiet", FAINT: "--faint", PALE: "--pale", GRID: "--grid", PAPER: "--paper"} | {
    colour: f"--colour-{n}" for n, colour in enumerate(COLOURS)
}
DEEP_BLUE = "#004c7a"  # a darker first colour: in black and white, it differs from the second colour
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

_TITLE_CHARACTERS = 95  # in one line
_DASH_LENGTH = 6.0  # in line widths
_LARGEST = 1e300  # axes fail at larger values, because differences overflow
# Labels beside a panel.
_LABEL_CHARACTERS = 26  # in one line
_LABEL_SIZE = 8.5  # points
_LABEL_LINE = 1.25 * _LABEL_SIZE / 72  # the height of a line in inches
_LABEL_GAP = 0.35  # the gap below a label, in units of `_LABEL_LINE`
_LOWEST, _HIGHEST = -0.08, 1.08  # the range of labels, as shares of the panel's height
_PANEL_SHARE = 0.93  # the share of a panel's nominal height for data; the rest is its title and axis labels
_MARK_POINTS = 10  # the width of one mark
_SAMPLE_POINTS = 26  # the width of the sample of a line
_MOST_MARKS = 10  # side by side


def matplotlib(part: str) -> Any:
    """Return the module `matplotlib.<part>`, or matplotlib itself for "". Raises InputError if it is not installed."""
    return import_extra(f"matplotlib.{part}" if part else "matplotlib", "plot", "figures", "matplotlib")


def check_library() -> None:
    """Raise InputError unless matplotlib is installed."""
    matplotlib("figure")


# All threads share matplotlib's settings. A thread that ends its context would undo the settings of another thread.
_SETTINGS_LOCK = threading.RLock()


def styled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a function draw with the settings of this package. The user's other figures keep their settings."""

    @wraps(function)
    def with_settings(*arguments: _P.args, **options: _P.kwargs) -> _R:
        with _SETTINGS_LOCK, matplotlib("").rc_context(_SETTINGS), warnings.catch_warnings():
            # matplotlib warns about each character that its font lacks. `to_bytes` warns once about all of them.
            warnings.filterwarnings("ignore", "Glyph ")
            return function(*arguments, **options)

    return with_settings


def new_figure(height: float) -> Any:
    """Return an empty figure of a height in inches."""
    # pyplot is not used, because it keeps each figure in memory until the figure is closed.
    return matplotlib("figure").Figure(figsize=(WIDTH, height), layout="constrained")


def set_title(figure: Any, title: str) -> None:
    """Put a title above a figure. Call this function only in a function that is `styled`."""
    text = figure.suptitle("", x=0.01, ha="left", fontsize=11)
    # Letters differ in their width, so shorten the lines until the title fits.
    for characters in range(_TITLE_CHARACTERS, 0, -5):
        text.set_text(textwrap.fill(sanitize(title), characters))
        if text.get_window_extent().width <= 0.98 * figure.bbox.width:
            break


def clip_to_axis(values: Float64) -> Float64:
    """Return values that an axis can show: infinite and huge values become ±1e300."""
    return np.clip(values, -_LARGEST, _LARGEST)


def line_style(number: int) -> dict[str, Any]:
    """Return the colour and the dashes of line `number` of several lines, as arguments of matplotlib's `plot`."""
    return {"color": COLOURS[number % len(COLOURS)], "ls": DASHES[number // len(COLOURS) % len(DASHES)]}


def alternating_dashes(lines: Sequence[Float64], from_zero: bool = False) -> list[dict[str, Any]]:
    """Return the dashes of each line, as arguments of `plot`. Lines that would hide one another alternate in dashes.

    A line that hides no other line has no arguments.

    lines: For each line its values [G], one for each of its G generations.
    from_zero: Whether the axis begins at 0. The range of the axis decides how close two lines look.
    """
    # Two points look like one if their distance is at most 1.5 % of the axis.
    values = np.concatenate(lines)
    finite = values[np.isfinite(values)]
    near = 0.0
    if len(finite):
        begin = 0.0 if from_zero else finite.min()
        near = 0.015 * float(finite.max() - begin)
    # The numbers of the lines that hide one another, by the number of the first of them.
    groups: dict[int, list[int]] = {}
    for n, line in enumerate(lines):
        first = next((first for first in groups if _hides(lines[first], line, near)), n)
        groups.setdefault(first, []).append(n)
    # Each of k lines has a dash and then a gap of k - 1 dashes. Each line begins one dash later than the line before
    # it, so the dashes of the others are in its gaps. A group of one line has no gap.
    arguments: list[dict[str, Any]] = [{} for _ in lines]
    for group in groups.values():
        gap = (len(group) - 1) * _DASH_LENGTH
        for turn, n in enumerate(group):
            if gap:
                arguments[n] = {"ls": (turn * _DASH_LENGTH, (_DASH_LENGTH, gap))}
    return arguments


def _hides(one: Float64, other: Float64, near: float) -> bool:
    """Return whether two lines are near each other in more than half of their common generations."""
    both = min(len(one), len(other))
    return bool(np.mean(np.abs(one[:both] - other[:both]) <= near) > 0.5)


def save(figure: Any, path: Path) -> None:
    """Write a figure in the format that the file's ending names (`FORMATS`). Raises InputError if that fails."""
    # matplotlib does not write the file itself, because its error for a PDF on a full disk does not name the cause.
    disk.write_output(path, to_bytes(figure, path.suffix[1:]))


@styled
def to_bytes(figure: Any, kind: str) -> bytes:
    """Return a figure as the content of a file of a kind: "png", "svg" or "pdf"."""
    buffer = io.BytesIO()
    # Without a date, equal figures are equal files. Screen readers read the title.
    date_keys = {"svg": "Date", "pdf": "CreationDate"}
    metadata: dict[str, str | None] = {date_keys[kind]: None} if kind in date_keys else {}
    if title := " ".join(figure.get_suptitle().split()):
        metadata["Title"] = title
    figure.savefig(buffer, format=kind, metadata=metadata)
    # In an SVG texts stay texts, and a browser shows missing characters in other fonts.
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
    """Return a figure as the tag <svg> of an HTML page. The page decides its size.

    All texts are escaped. The page defines the colours as CSS variables, such as `--ink` or `--colour-0`.

    name: The beginning of the figure's ids, because two figures of one page must not share ids.
    """
    buffer = io.StringIO()
    metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    text = buffer.getvalue()
    # Drop the head of the file, and the begin of the tag <svg>, which has the size of the figure.
    _, body = text[text.index("<svg ") :].split(">", 1)
    # Two decimals of a coordinate are enough, and halve the size.
    body = re.sub(r'\bd="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), body)
    # Change ids, references to ids, and colours in the tags. The texts between tags do not change.
    ids = re.compile(r'(\bid="|href="#|url\(#)')
    body = re.sub(r"<[^>]+>", lambda tag: ids.sub(rf"\g<1>{name}-", tag[0]), body)
    body = re.sub(r"<[^>]+>", lambda tag: _with_css_colours(tag[0]), body)
    width, height = figure.get_size_inches() * 72
    return f'<svg viewBox="0 0 {width:g} {height:g}">{body}'


def _with_css_colours(tag: str) -> str:
    """Return an SVG tag with the page's CSS variables instead of colours."""
    # matplotlib writes a colour in small letters, as in "fill: #0072b2". The colour stays as the value for pages that
    # do not define the variable.
    for colour, variable in _VARIABLES.items():
        tag = tag.replace(f": {colour.lower()}", f": var({variable}, {colour.lower()})")
    return tag


class Mark(NamedTuple):
    """A value, drawn beside the panel as a shape, and its interval, drawn as a bar. The interval may be None."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class LineLabel:
    """The label of a line, written beside the panel.

    Attributes:
        text: The label. Long lines of it are wrapped.
        x: The x coordinate of the line's end.
        y: The y coordinate of the line's end, or the value of the mark if the label belongs to the mark.
        colour: The colour of the line.
        mark: The mark to draw for the line; None for no mark.
        sample: None to draw a pointer from the end of the line to the text. The pointers of many lines would cross, so
            one of `DASHES` draws a sample of the line beside the text instead. "" to draw neither.
    """

    text: str
    x: float
    y: float
    colour: str
    mark: Mark | None = None
    sample: str | None = None


def legend_label(name: str) -> str:
    """Return a name as a label of a legend. Matplotlib leaves out labels that begin with an underscore."""
    return f" {name}" if name.startswith("_") else name


def unbroken(name: str) -> str:
    """Return a group's name for `textwrap`, which will not break it between a setting and its value."""
    # The parts of a name are joined by commas. No-break spaces keep each part in one line.
    return ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in name.split(", "))


def _wrapped(label: str) -> str:
    """Return a label with lines of at most `_LABEL_CHARACTERS`, unless a word is longer."""
    lines = (textwrap.fill(line, _LABEL_CHARACTERS, break_long_words=False) for line in label.splitlines())
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def _label_height(label: str) -> float:
    """Return the height of a label and the gap below it, in inches."""
    return (1 + _wrapped(label).count("\n") + _LABEL_GAP) * _LABEL_LINE


def height_for_labels(labels: Sequence[str]) -> float:
    """Return the least height in inches of a panel that has space for labels beside it."""
    return sum(map(_label_height, labels)) / (_PANEL_SHARE * (_HIGHEST - _LOWEST))


def label_lines(panel: Any, labels: Sequence[LineLabel], inches: float) -> None:
    """Write labels beside a panel, and draw their marks. Call this function when all data are drawn.

    From left to right are the panel, the marks, samples of lines, and the texts.

    labels: A label whose y is NaN or infinite is left out, with its mark.
    inches: The approximate height of the panel.
    """
    _include_marks(panel, labels)
    shown = [label for label in labels if np.isfinite(label.y)]
    # Find the height of each text: near the height of its line, and without overlap. These heights, and the heights
    # that texts need, are shares of the height of the panel.
    scale = panel.yaxis.get_transform()  # the axis may be logarithmic
    bottom, top = scale.transform(panel.get_ylim())
    line_heights = [(float(scale.transform(label.y)) - bottom) / (top - bottom) for label in shown]
    needed = [_label_height(label.text) / (_PANEL_SHARE * inches) for label in shown]
    heights = without_overlap(line_heights, needed)
    # Marks of similar values have similar ranks. So marks that could cover one another are in different columns.
    values = [label.mark.value for label in shown if label.mark is not None]
    ranks = np.argsort(np.argsort(values, kind="stable"))
    columns = iter((ranks % _MOST_MARKS).tolist())
    # The marks take this width, at least the width of one mark, and a gap of 8 points.
    marks_points = 8 + _MARK_POINTS * max(1, min(len(values), _MOST_MARKS))
    for label, height in zip(shown, heights, strict=True):
        y = float(scale.inverted().transform(bottom + height * (top - bottom)))
        mark_place = None
        if label.mark is not None:
            mark_place = beside(panel, _MARK_POINTS * (0.6 + next(columns)) / 72)  # 0.6 is near the middle of a column
            _draw_mark(panel, label, mark_place)
        _write_label(panel, label, y, marks_points, mark_place)


def _write_label(panel: Any, label: LineLabel, y: float, marks_points: float, mark_place: Any) -> None:
    """Write the text of a label, and draw the line that connects it: a pointer or a sample.

    y: The height of the text, in data units.
    marks_points: The width of the marks between the panel and the texts.
    mark_place: The transform of the label's mark, see `beside`; None without a mark.
    """
    left, right = panel.get_xlim()
    text_edge = beside(panel, marks_points / 72)
    # By default, a pointer begins at the end of the line in the panel. If the line ends early, the pointer crosses the
    # panel, so it is dotted.
    begin: dict[str, Any] = {"xy": (label.x, label.y), "xycoords": "data"}
    appearance = {"lw": 0.9, "ls": "-" if right - label.x < 0.05 * (right - left) else ":"}
    if label.mark is not None and label.mark.value == label.y:  # the label belongs to the mark
        begin = {"xy": (1.0, label.y), "xycoords": mark_place}
    if label.sample:  # a sample is level with the text
        begin = {"xy": (1.0, y), "xycoords": text_edge}
        appearance = {"lw": 1.7, "ls": label.sample}
        text_edge = beside(panel, (marks_points + _SAMPLE_POINTS) / 72)
        if label.mark is not None:  # the shape is also in the middle of the sample, as in a legend
            _draw_shape(panel, label, y, beside(panel, (marks_points + _SAMPLE_POINTS / 2) / 72))
    line = {"arrowstyle": "-", "color": label.colour, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)} | appearance
    panel.annotate(_wrapped(label.text), **begin, xytext=(1.0, y), textcoords=text_edge, fontsize=_LABEL_SIZE,
                   color=INK, va="center", ha="left", annotation_clip=False,
                   arrowprops=None if label.sample == "" else line)  # fmt: skip


def beside(panel: Any, inches: float) -> Any:
    """Return a transform that places a point (1, y) some inches right of a panel, at the height y in data units."""
    scale = panel.get_figure().dpi_scale_trans
    # In the first transform, x is a share of the width of the panel, and y is in data units.
    return panel.get_yaxis_transform() + matplotlib("transforms").ScaledTranslation(inches, 0, scale)


def _include_marks(panel: Any, labels: Sequence[LineLabel]) -> None:
    """Extend the y axis to the values of the marks, which do not scale it themselves: they are outside of the panel."""
    for label in labels:
        if label.mark is not None:
            value, interval = label.mark
            panel.update_datalim([(label.x, end) for end in (value, *(interval or ()))])
    panel.autoscale_view()


def _draw_mark(panel: Any, label: LineLabel, place: Any) -> None:
    """Draw the mark of a label. place: A transform by `beside`."""
    assert label.mark is not None
    value, interval = label.mark
    if interval is not None:
        _plot_beside(panel, label, place, interval, lw=2.6, solid_capstyle="butt", alpha=0.45)
    _draw_shape(panel, label, value, place)


def _draw_shape(panel: Any, label: LineLabel, y: float, place: Any) -> None:
    """Draw the shape for the dashes of the line; a diamond if the label has no sample of the line."""
    _plot_beside(panel, label, place, (y,), marker=_SHAPES[label.sample or "-"], ls="none", ms=5, mec=PAPER, mew=0.7)


def _plot_beside(panel: Any, label: LineLabel, place: Any, y: Sequence[float], **appearance: Any) -> None:
    """Plot y coordinates beside a panel, without an effect on its axes. place: A transform by `beside`."""
    appearance |= {"color": label.colour, "transform": place, "clip_on": False, "zorder": 4}
    panel.plot((1,) * len(y), y, scalex=False, scaley=False, **appearance)


def without_overlap(heights: Sequence[float], needed: Sequence[float]) -> Float64:
    """Return the heights of the middles of n texts, [n]: close to `heights`, but without overlap.

    All values are shares of the panel's height. The texts stay within the range `_LOWEST` to `_HIGHEST` if they fit.

    heights: The desired height of the middle of each text.
    needed: The height that each text takes.
    """
    order = np.argsort(heights, kind="stable")
    placed = np.array(heights, np.float64)
    # Build stacks of touching texts from below. Each text begins as a stack of its own, above the other stacks. While
    # the two highest stacks overlap, they are joined.
    stacks: list[list[int]] = []
    for n in order.tolist():
        stacks.append([n])
        while len(stacks) > 1:
            _, end_below = _extent(stacks[-2], heights, needed)
            begin, _ = _extent(stacks[-1], heights, needed)
            if not end_below > begin:  # also true if one of them is NaN
                break
            upper = stacks.pop()
            stacks[-1] += upper
    # Place the texts of each stack, one above another.
    for stack in stacks:
        begin, _ = _extent(stack, heights, needed)
        for n in stack:
            placed[n] = begin + needed[n] / 2
            begin += needed[n]
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
