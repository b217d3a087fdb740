"""The contest of machines as a figure: time and speed-up by workers, ratios with their intervals, and costs."""

import textwrap
from collections.abc import Sequence
from typing import Any

from evolve.analysis.contest import ContestRanking, RankedRow, money
from evolve.analysis.figures.style import COLOURS, FAINT, INK, PAPER, matplotlib, new_figure, set_title, styled
from evolve.errors import sanitize

_MARKS = "os^Dv<"
_LINES, _ROW = 3.1, 0.42  # inches
_WIDEST_NAME = 26
_BEHIND = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
_ROOM = 1.25  # times the longest bar, for the number behind it


@styled
def draw_contest(ranking: ContestRanking) -> Any:
    """Return the figure of machines side by side."""
    best = [min(ranking.of(machine), key=lambda row: row.row.seconds) for machine in ranking.machines]
    currencies = {row.currency for row in best if row.cost is not None}
    priced = len(currencies) == 1  # sums of several have no axis in common
    below = 0.9 + _ROW * len(best)
    figure = new_figure(_LINES + below + 0.5)
    top, bottom = figure.subfigures(2, 1, height_ratios=(_LINES, below))
    _draw_lines(top, ranking)
    panels = bottom.subplots(1, 2 if priced else 1, squeeze=False, gridspec_kw={"wspace": 0.08})
    _draw_bars(panels[0], best)
    set_title(figure, f"Contest of size {ranking.size}: the same work, proved by digests")
    return figure


def _draw_lines(figure: Any, ranking: ContestRanking) -> None:
    """Draw seconds and speed-up over workers."""
    time, speed = figure.subplots(1, 2)
    most = max(row.row.workers for row in ranking.rows)
    for n, machine in enumerate(ranking.machines):
        style = {"color": COLOURS[n % len(COLOURS)], "marker": _MARKS[n % len(_MARKS)], "ms": 5.5}
        rows = sorted((r for r in ranking.of(machine) if not r.row.device), key=lambda r: r.row.workers)
        if rows:
            workers = [row.row.workers for row in rows]
            seconds = [row.row.seconds for row in rows]
            time.errorbar(workers, seconds, _ranges(rows), **style, capsize=3, label=_named(machine))
            if rows[0].speedup is not None:
                speed.plot(workers, [row.speedup for row in rows], **style)
        for row in (r for r in ranking.of(machine) if r.row.device):
            label = _named(f"{machine}: {row.row.title}")
            time.plot(row.row.workers, row.row.seconds, **style | {"marker": "*", "ms": 11, "ls": ""}, label=label)
    ideal = [1, max(most, 2)]
    speed.plot(ideal, ideal, color=FAINT, ls=":", lw=1.2, zorder=1, label="ideal: as many times as fast as workers")
    _label(time, "Time of one pass", "seconds", ranking)
    _label(speed, "Speed-up against one worker", "times as fast", ranking)
    handles = [panel.get_legend_handles_labels() for panel in (time, speed)]
    lines, labels = ([each for found in handles for each in found[part]] for part in (0, 1))
    figure.legend(lines, labels, loc="outside lower left", ncols=min(3, len(labels)), fontsize=8.5)


def _named(machine: str) -> str:
    return textwrap.shorten(sanitize(machine), 2 * _WIDEST_NAME, placeholder=" …")


def _ranges(rows: Sequence[RankedRow]) -> list[list[float]]:
    """Return how far the shortest and the longest repeats lie from the median."""
    low = [row.row.seconds - min(row.row.times) for row in rows]
    return [low, [max(row.row.times) - row.row.seconds for row in rows]]


def _label(panel: Any, title: str, unit: str, ranking: ContestRanking) -> None:
    """Name a panel and its axes, which count in powers of two."""
    ticker = matplotlib("ticker")
    panel.set(title=title, xlabel="workers", ylabel=unit, xscale="log", yscale="log")
    panel.set_xscale("log", base=2)
    panel.set_xticks(sorted({row.row.workers for row in ranking.rows} | {1}))
    panel.xaxis.set_major_formatter(ticker.ScalarFormatter())
    panel.xaxis.set_minor_locator(ticker.NullLocator())
    panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(ticker.NullFormatter())
    panel.margins(x=0.08, y=0.12)


def _draw_bars(panels: Sequence[Any], best: Sequence[RankedRow]) -> None:
    """Draw the ratio of each machine's shortest time to the first one's, and what that costs."""
    names = [textwrap.fill(f"{sanitize(row.machine)}, {sanitize(row.row.title)}", _WIDEST_NAME) for row in best]
    ratio, *more = panels
    ratio.set(title="Shortest time, to that of the first", xlabel="ratio, with its 95 % interval")
    ends = [max(row.ratio, row.interval[1] if row.interval else 0.0) for row in best]
    _bars(ratio, [row.ratio for row in best], [f"{row.ratio:.3f}" for row in best], ends, names)
    for y, row in enumerate(best):
        if row.interval is not None:
            ratio.plot(row.interval, (y, y), color=INK, lw=1.4, marker="|", ms=7)
    ratio.axvline(1, color=FAINT, lw=1, ls=":")
    for cost in more:
        cost.set(title="Cost of one pass", xlabel="price of an hour × time")
        costs = [row.cost or 0.0 for row in best]
        texts = ["no price" if row.cost is None else money(row.cost, row.currency) for row in best]
        _bars(cost, costs, texts, costs, [""] * len(best))
        cost.set_xticks([])


def _bars(
    panel: Any, values: Sequence[float], texts: Sequence[str], ends: Sequence[float], names: Sequence[str]
) -> None:
    """Draw bars of some lengths, each with a text behind its end and a name before it."""
    places = range(len(values))
    panel.barh(places, values, 0.55, color=[COLOURS[n % len(COLOURS)] for n in places], alpha=0.85)
    widest = max(ends) or 1.0
    for y, (end, text) in enumerate(zip(ends, texts, strict=True)):
        panel.text(end + 0.03 * widest, y, text, va="center", fontsize=8.5, bbox=_BEHIND)
    panel.set_yticks(places, names)
    panel.set_ylim(len(values) - 0.4, -0.6)
    panel.set_xlim(0, _ROOM * widest)
    panel.grid(False, axis="y")
    panel.tick_params(axis="y", length=0)
