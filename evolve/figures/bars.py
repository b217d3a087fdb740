"""Bars: how long each rank was busy, and how the returns of a champion are spread."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evolve.figures.curves import busy_seconds
from evolve.figures.style import COLOURS, FAINT, INK, Sheet, figure
from evolve.shapes import Float64
from evolve.store import Run

_MOST_NAMES = 8  # ranks that get a line each, with its numbers; more stand side by side
_MOST_BINS = 40


def load(runs: Sequence[tuple[str, Run]], sheet: Sheet) -> Any:
    """Return the figure of how long each rank of each run was busy, of all the time that its generations took."""
    busy = [busy_seconds(run) for _, run in runs]
    heights = [0.45 + 0.27 * len(ranks) if len(ranks) <= _MOST_NAMES else 1.7 for ranks in busy]
    drawn = figure(sheet.width, sum(heights) + 0.4)
    panels = drawn.subplots(len(runs), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, ranks, (name, run) in zip(panels, busy, runs, strict=True):
        total = float(np.nan_to_num([record.seconds for record in run.records], posinf=0).sum())
        (_rows if len(ranks) <= _MOST_NAMES else _columns)(panel, ranks, total)
        if len(runs) > 1:
            panel.set_title(name)
        if panel is panels[-1] or len(ranks) > _MOST_NAMES:
            panel.set_xlabel("seconds" if len(ranks) <= _MOST_NAMES else "rank")
    return drawn


def _rows(panel: Any, busy: Float64, total: float) -> None:
    ranks = np.arange(len(busy))
    panel.barh(ranks, total, color="#eeeeee", height=0.72)
    panel.barh(ranks, busy, color=COLOURS[0], height=0.72)
    for rank, seconds in enumerate(busy):
        words = f"{seconds:,.2f} s, {100 * seconds / total:.0f} %" if rank or seconds else "coordinates"
        inside = seconds > 0.5 * total
        panel.annotate(words, (seconds, rank), (-5 if inside else 5, 0), textcoords="offset points", va="center",
                       fontsize=8.5, ha="right" if inside else "left", color="white" if inside else INK)  # fmt: skip
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


def judged(samples: Sequence[tuple[str, Float64, tuple[float, float] | None]], sheet: Sheet) -> Any:
    """Return the figure of the returns [N] of champions, by name, each with the interval of its mean where known."""
    drawn = figure(sheet.width, 0.6 + 1.25 * len(samples))
    panels = drawn.subplots(len(samples), 1, squeeze=False, sharex=True)[:, 0]
    together = np.concatenate([returns for _, returns, _ in samples])
    bins = min(_MOST_BINS, max(10, int(2 * len(together) ** 0.5))) | 1  # where all are equal, they stand in the middle
    edges = np.histogram_bin_edges(together, bins)
    for panel, (name, returns, interval) in zip(panels, samples, strict=True):
        panel.hist(returns, edges, color=COLOURS[4], edgecolor="white", linewidth=0.5)
        if interval is not None:
            panel.axvspan(*interval, color=COLOURS[0], alpha=0.2, lw=0, label="95 % interval of the mean")
        panel.axvline(returns.mean(), color=COLOURS[0], lw=1.8, label="mean")
        panel.set_ylabel("episodes")
        panel.grid(False, axis="x")
        if len(samples) > 1:
            panel.set_title(name)
    lines, words = panels[0].get_legend_handles_labels()
    drawn.legend(lines, words, loc="outside upper right", ncols=2, fontsize=8.5)
    panels[-1].set_xlabel("return of an episode")
    panels[-1].ticklabel_format(axis="x", useOffset=False)
    return drawn
