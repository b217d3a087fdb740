"""The spread of returns: histograms of the held-out episodes of champions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evolve.analysis.figures.series import drawable
from evolve.analysis.figures.style import COLOURS, PAPER, new_figure, styled
from evolve.analysis.statistics import cut, interval, mean
from evolve.shapes import Float64

_MOST_BINS = 40


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
