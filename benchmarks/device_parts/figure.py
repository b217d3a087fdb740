"""Figure: the time of a network step on the host and on a device, against the number of slots."""

from collections.abc import Mapping, Sequence
from typing import Any

from evolve.analysis.figures.style import COLOURS, FAINT, QUIET, LineLabel, label_lines, new_figure, set_title, styled

_INCHES = 2.6  # of a panel
_MOST_PANELS = 3  # one above the other
_EVERY = 16  # times as many slots from one number at the axis to the next
_LEAST_RANGE = 100.0  # of times per step
_ROOM = 1.25  # beyond the last point, for its mark
Row = Mapping[str, Any]


@styled
def draw_device_speed(networks: Mapping[str, tuple[Sequence[Row], Sequence[Row]]], cores: int, device: str) -> Any:
    """Return the figure of times per step over slots, one row of panels for each network, at most three.

    Args:
        networks: The rows of `device_parts.steps`, of plain and plastic networks, by layer sizes.
        cores: The number of cores of the host; their line assumes that they do not slow one another down.
        device: The name of the device, "" if there is none.
    """
    measured = [name for name, pair in networks.items() if all(_is_measured(rows) for rows in pair)]
    names = _selected(measured or list(networks)[:1])
    figure = new_figure(_INCHES * len(names) + 0.5)
    panels = figure.subplots(len(names), 2, squeeze=False, sharex=True, sharey="row")
    for name, pair in zip(names, panels, strict=True):
        for kind, panel, rows in zip(("plain", "plastic"), pair, networks[name], strict=True):
            labels = _draw(panel, rows, cores)
            panel.set_title(f"{name}, {kind}")
        bottom, top = pair[0].get_ylim()
        pair[0].set_ylim(min(bottom, top / _LEAST_RANGE), top)
        label_lines(pair[1], labels, _INCHES)
        pair[0].set_ylabel("time per network step")
    for panel, rows in zip(panels[-1], networks[names[-1]], strict=True):
        slots = [row["slots"] for row in rows]
        panel.set_xticks([n for n in slots if n in _powers(max(slots))])
        panel.set_xlabel("slots stepped together")
        panel.xaxis.set_major_formatter(lambda n, _: f"{n:,.0f}")
        panel.tick_params(axis="x", labelsize=8)
    set_title(figure, "Time per step of a hebbian-dag on the CPU" + (f" and on a GPU: {device}" if device else ""))
    return figure


def _selected(names: list[str]) -> list[str]:
    """Return the first, the last, and what lies between them."""
    if len(names) <= _MOST_PANELS:
        return names
    return [names[0], names[len(names) // 2], names[-1]]


def _is_measured(rows: Sequence[Row]) -> bool:
    return any(row["native"] is not None or row["gpu"] is not None for row in rows)


def _duration(ns: float, _: int) -> str:
    """Return a power of ten in the unit that makes it short."""
    unit, size = next((u, s) for u, s in (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 0.0)) if ns >= 0.999 * s)
    return f"{ns / (size or 1):,.3g} {unit}"


def _powers(most: int) -> list[int]:
    powers = [1]
    while powers[-1] < most:
        powers.append(powers[-1] * _EVERY)
    return powers


def _draw(panel: Any, rows: Sequence[Row], cores: int) -> list[LineLabel]:
    """Draw the lines of a panel; return their labels."""
    lines = [
        ("array reference", "numpy", FAINT, "-", 1),
        ("native, one core", "native", COLOURS[0], "-", 1),
        ("GPU, with copies", "gpu_with_copies", COLOURS[1], "-", 1),
        ("GPU, kernel alone", "gpu", COLOURS[1], "--", 1),
    ]
    if cores > 1:
        lines.append((f"native, {cores} cores (scaled)", "native", COLOURS[0], ":", cores))
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(_duration)
    panel.yaxis.set_minor_formatter("")
    labels = []
    for text, column, colour, dashes, parts in lines:
        measured = [(row["slots"], row[column] / min(parts, row["slots"])) for row in rows if row[column] is not None]
        if measured:
            x, y = zip(*measured, strict=True)
            panel.plot(x, y, color=colour, ls=dashes, marker="o", ms=3)
            labels.append(LineLabel(text, x[-1], y[-1], colour))
    panel.set_xlim(rows[0]["slots"] / _ROOM, rows[-1]["slots"] * _ROOM)
    if all(row["gpu"] is None for row in rows):
        style = {"xycoords": "axes fraction", "fontsize": 8.5, "color": QUIET, "ha": "right", "va": "top"}
        panel.annotate("GPU: not measured", (0.98, 0.98), **style)
    return labels
