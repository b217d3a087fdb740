"""What all figures share: the door to matplotlib, colours that everybody can tell apart, and saving."""

import io
import re
import textwrap
from collections.abc import Callable, Sequence
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
