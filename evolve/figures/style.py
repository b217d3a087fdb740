"""What all figures share: the door to matplotlib, colours that everybody can tell apart, quiet axes."""

import importlib
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evolve.errors import InputError, one_line
from evolve.shapes import Float64

# Okabe and Ito's palette (2008), made to be told apart by colour-blind readers; black and yellow are left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("-", "--", ":", "-.")
_DASH = 6.0  # widths of a line
INK, FAINT = "#222222", "#8a8a8a"

FORMATS = (".png", ".svg", ".pdf")

_SETTINGS = {
    "font.size": 9.5, "font.family": "DejaVu Sans", "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e6e6e6", "grid.linewidth": 0.7, "axes.axisbelow": True, "axes.titlesize": 10.5,
    "axes.titleweight": "bold", "axes.titlelocation": "left", "legend.frameon": False, "lines.linewidth": 1.7,
    "svg.fonttype": "none", "svg.hashsalt": "evolve", "figure.dpi": 110, "savefig.dpi": 160,
    "text.parse_math": False,  # names come from run files, and may have any number of dollar signs
}  # fmt: skip


@dataclass(frozen=True)
class Sheet:
    """What a figure is drawn on: its width in inches, and whether its title stands on it."""

    width: float
    titled: bool

    @property
    def narrow(self) -> bool:
        """Whether it is a phone's, where the figure has to be taller instead."""
        return self.width < 6


FILE, WIDE, NARROW = Sheet(8.0, titled=True), Sheet(10.0, titled=False), Sheet(3.6, titled=False)
"""A file of its own; a page on a screen or on paper; a page on a phone."""


def number(value: float) -> str:
    """Return a return or a fitness with two decimals, and the sign that mathematics writes."""
    return "none" if math.isnan(value) else f"{value:,.2f}".replace("-", "−")


def matplotlib(part: str) -> Any:
    """Return a module of matplotlib. Raises InputError where it is not installed."""
    try:
        return importlib.import_module(f"matplotlib.{part}" if part else "matplotlib")
    except ImportError as wrong:
        cure = "Install it: pip install 'evolve[plot]' (in a clone: pip install -e '.[plot]')."
        raise InputError("figures", "a working matplotlib", one_line(wrong), cure) from None


def figure(width: float, height: float) -> Any:
    """Return an empty figure of so many inches."""
    matplotlib("").rcParams.update(_SETTINGS)
    return matplotlib("figure").Figure(figsize=(width, height), layout="constrained")


def above(panel: Any, sheet: Sheet) -> None:
    """Put the legend of a panel above it, where no data is: beside its title, or below that on a narrow sheet."""
    _, words = panel.get_legend_handles_labels()
    if not sheet.narrow:
        panel.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(words), fontsize=8.5, borderaxespad=0.1)
        return
    columns = 2 if sum(map(len, words)) < 30 else 1
    panel.set_title(panel.get_title(loc="left"), pad=6 + 12.5 * -(-len(words) // columns))
    panel.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, fontsize=8, borderpad=0, borderaxespad=0.2,
                 labelspacing=0.3)  # fmt: skip


def alternating(lines: Sequence[Float64], from_zero: bool = False) -> list[dict[str, Any]]:
    """Return for each line [G] how it is drawn: those that would hide one another take turns, others stay whole.

    from_zero: whether the axis begins there.
    """
    values = np.concatenate(lines)
    known = values[np.isfinite(values)]
    near = 0.015 * float(known.max() - (0.0 if from_zero else known.min())) if len(known) else 0.0
    groups: list[list[int]] = []
    for n, line in enumerate(lines):
        same = [group for group in groups if _covers(lines[group[0]], line, near)]
        if same:
            same[0].append(n)
        else:
            groups.append([n])
    styles: list[dict[str, Any]] = [{} for _ in lines]
    for group in groups:
        for turn, n in enumerate(group if len(group) > 1 else ()):
            styles[n] = {"ls": (turn * _DASH, (_DASH, (len(group) - 1) * _DASH))}
    return styles


def _covers(one: Float64, other: Float64, near: float) -> bool:
    both = min(len(one), len(other))
    return bool(np.mean(np.abs(one[:both] - other[:both]) <= near) > 0.5)


def save(drawn: Any, path: Path) -> None:
    """Write a figure in the format that the name ends with. Raises InputError when that cannot be done."""
    partial = path.with_name(f".{path.name}.partial{path.suffix}")  # a viewer never meets half a picture
    try:
        drawn.savefig(partial, metadata={"Date": None} if path.suffix == ".svg" else None)
        partial.replace(path)
    except OSError as wrong:
        partial.unlink(missing_ok=True)
        raise InputError("-o/--output", "a file that can be written", f"{path} ({wrong})") from None


def svg(drawn: Any, name: str) -> str:
    """Return a figure as SVG to stand inside a page, as wide as its place there; `name` begins its ids.

    Texts are escaped, whatever they say.
    """
    buffer = io.StringIO()
    drawn.savefig(buffer, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = buffer.getvalue()
    _, body = text[text.index("<svg ") :].split(">", 1)
    own = re.compile(r'(\bid="|href="#|url\(#)')  # the same ids in two figures of a page would be confused
    body = re.sub(r'\bd="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), body)  # half the size
    width, height = drawn.get_size_inches() * 72
    body = re.sub(r"<[^>]+>", lambda tag: own.sub(rf"\g<1>{name}-", tag[0]), body)
    return f'<svg viewBox="0 0 {width:g} {height:g}">{body}'
