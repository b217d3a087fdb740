"""The page of curves: fitness, connections left, throughput, and how idle the workers were."""

import textwrap
from typing import Any

import numpy as np

from evolve.errors import plain
from evolve.figures import curves
from evolve.figures.curves import Experiment
from evolve.figures.style import COLOURS, DASHES, FAINT, FILE, INK, Sheet, figure, matplotlib
from evolve.shapes import Float64

AXES = {"generation": "generation", "steps": "environment steps", "time": "minutes"}
_MOST_LINES = 4  # workers that get a line each; more become a map


def plot(shown: list[Experiment], axis: str = "generation", sheet: Sheet = FILE) -> Any:
    """Return the figure of experiments over `axis` (a key of `AXES`)."""
    drawn = figure(sheet.width, 9.0)
    panels = drawn.subplots(4, 1, sharex=True, height_ratios=(3.2, 1.2, 1.0, 1.2))
    for number, experiment in enumerate(shown):
        look = {"color": COLOURS[number % len(COLOURS)], "ls": DASHES[number // len(COLOURS) % len(DASHES)]}
        _fitness(panels[0], experiment, axis, look, alone=len(shown) == 1)
        _connections(panels[1], experiment, axis, look, alone=len(shown) == 1)
        _line(panels[2], experiment, axis, look, curves.throughput)
        if len(shown) > 1 or len(experiment.runs) > 1:
            _line(panels[3], experiment, axis, look, curves.mean_idle)
        else:
            _idle(drawn, panels[3], experiment, axis)
    _finish(drawn, panels, shown, axis, sheet)
    return drawn


def _finish(drawn: Any, panels: Any, shown: list[Experiment], axis: str, sheet: Sheet) -> None:
    titles = "Fitness", "Connections left", "Throughput", "Idle workers"
    fitness = "mean return less the cost of connections" if curves.costly(shown) else "mean return"
    units = fitness, "connections", "1,000 steps/s", "% of the time"
    for panel, title, unit in zip(panels, titles, units, strict=True):
        panel.set_title(title)
        if not panel.get_ylabel():
            panel.set_ylabel(unit)
        panel.margins(x=0.01)
    panels[1].set_ylim(bottom=0)
    panels[2].set_ylim(bottom=0)
    panels[-1].set_xlabel(AXES[axis])
    if axis == "generation":
        panels[-1].xaxis.get_major_locator().set_params(integer=True)
    elif axis == "steps":
        panels[-1].xaxis.set_major_formatter(matplotlib("ticker").EngFormatter(sep=""))  # 500k, 2M
    drawn.align_ylabels(panels)
    if sheet.titled:
        drawn.suptitle(plain(_title(shown)), x=0.01, ha="left", fontsize=12.5)
    if not sheet.narrow:
        panels[0].legend(loc="best", fontsize=8.5, frameon=True, framealpha=0.85, edgecolor="none")
        return
    lines, labels = panels[0].get_legend_handles_labels()
    words = [textwrap.fill(label, 44) for label in labels]
    drawn.legend(lines, words, loc="outside upper left", fontsize=8.5)  # inside it would hide what it explains


def _title(shown: list[Experiment]) -> str:
    first = shown[0]
    tasks = sorted({experiment.config.env.id for experiment in shown})
    seeds = sum(len(experiment.runs) for experiment in shown)
    who = f"{len(shown)} experiments" if len(shown) > 1 else str(first.config.network["name"])
    return f"{', '.join(tasks)}: {who}, {seeds} run{'s' * (seeds > 1)}"


def _fitness(panel: Any, experiment: Experiment, axis: str, look: dict[str, Any], alone: bool) -> None:
    x, run = experiment.x(axis), experiment.runs[0]
    low, middle, high = experiment.over_runs(curves.champions)
    seeds = len(experiment.runs)
    name = "champion" if alone else experiment.label
    if seeds > 1:
        panel.fill_between(x, low, high, color=look["color"], alpha=0.18, lw=0)
        panel.plot(x, middle, **look, label=f"{name}: median and quartiles of {seeds} seeds")
    else:
        panel.plot(x, middle, **look, label=name)
    if not alone:
        return
    if seeds == 1:
        spread = [np.array(curves.percentile(share)(run)) for share in (10, 90)]
        panel.fill_between(x, *spread, color=FAINT, alpha=0.25, lw=0, label="population, 10th to 90th percentile")
    mean = experiment.over_runs(curves.mean_fitness)[1]
    panel.plot(
        x, mean, color=INK, lw=1.1, ls="--", label="population mean" + (" (median of seeds)" if seeds > 1 else "")
    )


def _connections(panel: Any, experiment: Experiment, axis: str, look: dict[str, Any], alone: bool) -> None:
    _line(panel, experiment, axis, look, curves.champion_connections, "champion" if alone else "")
    if alone:
        middle = experiment.over_runs(curves.median_connections)[1]
        panel.plot(experiment.x(axis), middle, color=INK, lw=1.1, ls="--", label="median candidate")
        panel.legend(loc="lower left", fontsize=8.5)


def _line(panel: Any, experiment: Experiment, axis: str, look: dict[str, Any], value: Any, label: str = "") -> None:
    low, middle, high = experiment.over_runs(value)
    if len(experiment.runs) > 1:
        panel.fill_between(experiment.x(axis), low, high, color=look["color"], alpha=0.18, lw=0)
    panel.plot(experiment.x(axis), middle, **look, label=label)


def _idle(drawn: Any, panel: Any, experiment: Experiment, axis: str) -> None:
    """Show every worker of one run: few as lines, many as a map."""
    x, idle = experiment.x(axis), curves.idle_shares(experiment.runs[0])
    first = 0 if len(experiment.runs[0].records[-1].busy_seconds) == 1 else 1
    if idle.shape[1] <= _MOST_LINES:
        for worker, column in enumerate(idle.T):
            panel.plot(x, column, color=COLOURS[worker], lw=1.2, label=f"rank {worker + first}")
        panel.set_ylim(bottom=0)
        panel.legend(loc="best", ncols=_MOST_LINES, fontsize=8.5, frameon=True, framealpha=0.85, edgecolor="none")
        return
    ranks = np.arange(first, first + idle.shape[1] + 1) - 0.5
    shades = panel.pcolormesh(
        _edges(x), ranks, idle.T, cmap="cividis", vmin=0, vmax=max(10.0, float(np.nanmax(idle))), rasterized=True
    )  # as paths the map would be most of an SVG
    panel.set_ylabel("rank")
    panel.grid(False)
    drawn.colorbar(shades, ax=panel, label="% idle", pad=0.01)


def _edges(x: Float64) -> Float64:
    """Return [G + 1]: the borders between the points of an axis."""
    if len(x) == 1:
        return np.array([x[0] - 0.5, x[0] + 0.5])
    middle = (x[1:] + x[:-1]) / 2
    return np.concatenate([[2 * x[0] - middle[0]], middle, [2 * x[-1] - middle[-1]]])
