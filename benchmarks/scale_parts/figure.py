"""Figure: the growth of traffic, processor time and memory of rank 0 with weights and candidates."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evolve.analysis.figures.style import COLOURS, FAINT, matplotlib, new_figure, set_title, styled
from scale_parts.tables import duration, size

_INCHES = 3.6
_MARKS = "os^Dv<"
_GENOME = 5  # bytes per weight: a float32 and its mask
_MAKING = 1e-8  # seconds per weight of a genome, about
_ROOM = 2.0  # times the largest cost, that a panel reaches to
_LEAST_RANGE = 1000.0  # of costs
Row = Mapping[str, Any]


@styled
def draw_growth(rows: Sequence[Row]) -> Any:
    """Return the figure of costs over weights, a line for each number of candidates.

    Args:
        rows: The cells of `scale_parts.cell`, of one number of ranks.
    """
    ranks = rows[0]["ranks"]
    panels: list[tuple[str, str, float, Callable[[float], str]]] = [
        ("rank 0: processor time", "cpu_seconds", _MAKING, duration),
        ("rank 0: memory", "memory", _GENOME, size),
    ]
    if ranks > 1:
        panels.insert(0, ("bytes moved", "bytes", _GENOME, size))
    figure = new_figure(_INCHES)
    for panel, (title, column, guide, unit) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        known = [row for row in rows if row[column]]
        panel.set(title=title, xlabel="weights", xscale="log", yscale="log")
        if known:
            _draw(panel, known, column, guide)
        panel.yaxis.set_major_formatter(lambda n, _, unit=unit: unit(n))
        panel.yaxis.set_minor_formatter("")
        panel.xaxis.set_major_formatter(_count)
        panel.xaxis.set_minor_formatter("")
        panel.tick_params(labelsize=8)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower left", ncols=min(4, len(handles[0])), fontsize=8.5, columnspacing=1.4)
    set_title(figure, f"What a later generation costs rank 0, on {ranks} rank{'s' * (ranks > 1)}")
    return figure


def _draw(panel: Any, rows: Sequence[Row], column: str, guide: float) -> None:
    """Draw the lines of a panel; dotted lines show the costs if rank 0 made all genomes."""
    ends = matplotlib("ticker").LogLocator(numticks=9)
    panel.xaxis.set_major_locator(ends)
    for n, P in enumerate(sorted({row["candidates"] for row in rows})):
        line = sorted((row["weights"], row[column]) for row in rows if row["candidates"] == P)
        x, y = zip(*line, strict=True)
        colour = COLOURS[n % len(COLOURS)]
        mark = _MARKS[n % len(_MARKS)]
        panel.plot(x, y, color=colour, marker=mark, ms=4.5, label=f"{P:,} candidates", zorder=3)
        panel.plot(x, [guide * P * W for W in x], color=colour, ls=":", lw=1.2, zorder=2)
    panel.plot((), (), color=FAINT, ls=":", lw=1.2, label="if rank 0 made all genomes: 5 B, 10 ns × P × W")
    costs = [row[column] for row in rows]
    top = _ROOM * max(costs)
    panel.set_ylim(min(min(costs) / _ROOM, top / _LEAST_RANGE), top)


def _count(n: float, _: Any) -> str:
    """Return a power of ten as a short text."""
    unit, size = next((u, s) for u, s in (("M", 1e6), ("k", 1e3), ("", 0.0)) if n >= s)
    return f"{n / (size or 1):g}{unit}"
