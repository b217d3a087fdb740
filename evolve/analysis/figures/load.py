"""The load of ranks over time, and the spread of a population's fitness."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evolve.analysis.figures.series import busy_seconds, drawable, idle_shares
from evolve.analysis.figures.style import COLOURS, FAINT, GRID, INK, PAPER, legend_above, new_figure, styled
from evolve.analysis.statistics import cut, interval, mean
from evolve.shapes import Float64
from evolve.store import StoredRun

_MOST_NAMES = 8  # ranks that get a line each, with its numbers; more stand side by side
_MOST_LINES = 4  # workers that get a line each; more become a map


_MOST_BINS = 40


@styled
def draw_load(runs: Sequence[tuple[str, StoredRun]]) -> Any:
    """Return the figure of how long each rank of each named run was busy, of the time that its generations took."""
    busy = [busy_seconds(run) for _, run in runs]
    heights = [0.45 + 0.27 * len(ranks) if len(ranks) <= _MOST_NAMES else 1.7 for ranks in busy]
    figure = new_figure(sum(heights) + 0.4)
    panels = figure.subplots(len(runs), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, ranks, (name, run) in zip(panels, busy, runs, strict=True):
        total = float(np.nan_to_num([record.seconds for record in run.records], posinf=0).sum())
        few = len(ranks) <= _MOST_NAMES
        if few:
            _rows(panel, ranks, total)
        else:
            _columns(panel, ranks, total)
        if len(runs) > 1:
            panel.set_title(name)
        if panel is panels[-1] or not few:
            panel.set_xlabel("seconds" if few else "rank")
    return figure


def _rows(panel: Any, busy: Float64, total: float) -> None:
    ranks = np.arange(len(busy))
    panel.barh(ranks, total, color=GRID, height=0.72)
    panel.barh(ranks, busy, color=COLOURS[0], height=0.72)
    for rank, seconds in enumerate(busy):
        words = f"{seconds:,.2f} s, {100 * seconds / total:.0f} %" if rank or seconds else "coordinates"
        inside = seconds > 0.5 * total
        panel.annotate(words, (seconds, rank), (-5 if inside else 5, 0), textcoords="offset points", va="center",
                       fontsize=8.5, ha="right" if inside else "left", color=PAPER if inside else INK)  # fmt: skip
    panel.set_yticks(ranks, [f"rank {rank}" for rank in ranks])
    panel.invert_yaxis()
    panel.margins(0.0, 0.02)
    panel.grid(False)
    panel.tick_params(axis="y", length=0)
    panel.spines[["left", "bottom"]].set_visible(False)


def _columns(panel: Any, busy: Float64, total: float) -> None:
    panel.bar(np.arange(len(busy)), busy, color=COLOURS[0], width=0.8)
    panel.axhline(total, color=FAINT, lw=1, ls="--")
    panel.annotate("all generations", (0, total), (1, 2), textcoords="offset points", fontsize=8, color=FAINT)
    panel.margins(x=0.01)
    panel.set_ylim(0, 1.15 * total)
    panel.grid(False, axis="x")
    panel.set_ylabel("busy seconds")
    panel.xaxis.get_major_locator().set_params(integer=True)


def draw_idle_workers(figure: Any, panel: Any, run: StoredRun, x: Float64) -> None:
    """Show in a panel how idle every worker of a run was over x [G]: few workers as lines, many as a map."""
    idle = idle_shares(run)
    first = 0 if len(run.records[-1].busy_seconds) == 1 else 1
    if idle.shape[1] <= _MOST_LINES:
        for worker, column in enumerate(idle.T):
            panel.plot(x, column, color=COLOURS[worker], lw=1.2, label=f"rank {worker + first}")
        panel.set_ylim(bottom=0)
        legend_above(panel)
        return
    ranks = np.arange(first, first + idle.shape[1] + 1) - 0.5
    shades = panel.pcolormesh(
        _borders(x), ranks, idle.T, cmap="cividis", vmin=0, vmax=max(10.0, float(np.nanmax(idle))), rasterized=True
    )  # as paths the map would be most of an SVG
    panel.set_ylabel("rank")
    panel.grid(False)
    figure.colorbar(shades, ax=panel, label="% idle", pad=0.01)


def _borders(x: Float64) -> Float64:
    """Return [G + 1]: the borders between the points of an axis."""
    if len(x) == 1:
        return np.array([x[0] - 0.5, x[0] + 0.5])
    middle = (x[1:] + x[:-1]) / 2
    return np.concatenate([[2 * x[0] - middle[0]], middle, [2 * x[-1] - middle[-1]]])


@styled
def draw_returns(samples: Sequence[tuple[str, Float64]]) -> Any:
    """Return the figure of the finite returns [N] of champions, by name, with means and their intervals."""
    samples = [(name, drawable(returns)) for name, returns in samples]
    figure = new_figure(0.6 + 1.25 * len(samples))
    panels = figure.subplots(len(samples), 1, squeeze=False, sharex=True)[:, 0]
    edges = _bins(np.concatenate([returns for _, returns in samples]))
    for panel, (name, returns) in zip(panels, samples, strict=True):
        panel.hist(returns, edges, color=COLOURS[4], edgecolor=PAPER, linewidth=0.5)
        found = cut(interval(returns), float(returns.min()), float(returns.max()))
        if found is not None:
            panel.axvspan(*found, color=COLOURS[0], alpha=0.2, lw=0, label="95 % interval of the mean")
        panel.axvline(mean(returns), color=COLOURS[0], lw=1.8, label="mean")
        panel.set_ylabel("episodes")
        panel.grid(False, axis="x")
        if len(samples) > 1:
            panel.set_title(name)
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper right", ncols=2, fontsize=8.5)
    panels[-1].set_xlabel("return of an episode")
    panels[-1].ticklabel_format(axis="x", useOffset=False)
    return figure


def _bins(returns: Float64) -> Float64:
    """Return the edges of an odd number of bins: where all returns are equal, they stand in the middle."""
    bins = min(_MOST_BINS, max(10, int(2 * len(returns) ** 0.5))) | 1
    edges: Float64 = np.histogram_bin_edges(returns, bins)
    return edges
