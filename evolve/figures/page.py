"""The page of curves: fitness, connections left, throughput, and how idle the workers were."""

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evolve.errors import plain
from evolve.figures import curves
from evolve.figures.curves import Experiment, Summary
from evolve.figures.style import COLOURS, DASHES, FAINT, FILE, INK, Sheet, above, alternating, figure, matplotlib
from evolve.shapes import Float64
from evolve.store import Run

AXES = {"generation": "generation", "steps": "environment steps", "time": "minutes"}
_MOST_LINES = 4  # workers that get a line each; more become a map
Look = dict[str, Any]


def plot(shown: list[Experiment], axis: str = "generation", sheet: Sheet = FILE) -> Any:
    """Return the figure of experiments over `axis` (a key of `AXES`)."""
    alone = len(shown) == 1
    drawn = figure(sheet.width, 9.0 if alone else 8.6 + _room(shown, sheet))
    panels = drawn.subplots(4, 1, sharex=True, height_ratios=(3.2, 1.2, 1.0, 1.2))
    _name(panels, shown)
    if alone:
        _alone(drawn, panels, shown[0], axis, sheet)
    else:
        _compared(drawn, panels, shown, axis, sheet)
    _finish(drawn, panels, axis)
    if sheet.titled:
        drawn.suptitle(plain(_title(shown)), x=0.01, ha="left", fontsize=12.5)
    return drawn


def _name(panels: Any, shown: list[Experiment]) -> None:
    counted = " or ".join(dict.fromkeys(curves.what_masks_count(experiment.config) for experiment in shown))
    fitness = "mean return less the cost of connections" if curves.costly(shown) else "mean return"
    titles = "Fitness", f"{counted.capitalize()} left", "Throughput", "Idle workers"
    units = fitness, counted.replace(" or ", "\nor "), "1,000 steps/s", "% of the time"
    for panel, title, unit in zip(panels, titles, units, strict=True):
        panel.set_title(title)
        panel.set_ylabel(unit)


def _finish(drawn: Any, panels: Any, axis: str) -> None:
    for panel in panels:
        panel.margins(x=0.01)
    panels[1].set_ylim(0, 1.06 * panels[1].dataLim.ymax or 1)  # none is lost is a line below the top
    panels[2].set_ylim(bottom=0)
    panels[-1].set_xlabel(AXES[axis])
    if axis == "generation":
        panels[-1].xaxis.get_major_locator().set_params(integer=True)
    elif axis == "steps":
        panels[-1].xaxis.set_major_formatter(matplotlib("ticker").EngFormatter(sep=""))  # 500k, 2M
    drawn.align_ylabels(panels)


def _title(shown: list[Experiment]) -> str:
    first = shown[0]
    tasks = sorted({experiment.config.env.id for experiment in shown})
    seeds = sum(len(experiment.runs) for experiment in shown)
    who = f"{len(shown)} experiments" if len(shown) > 1 else str(first.config.network["name"])
    return f"{', '.join(tasks)}: {who}, {seeds} run{'s' * (seeds > 1)}"


def _alone(drawn: Any, panels: Any, experiment: Experiment, axis: str, sheet: Sheet) -> None:
    """Draw one experiment, its champions and its population."""
    x, seeds, look = experiment.x(axis), len(experiment.runs), {"color": COLOURS[0]}
    summed = f": median and quartiles of {seeds} seeds" if seeds > 1 else ""
    _band(panels[0], x, experiment.over_runs(curves.champions), look | {"label": f"champion{summed}"}, seeds)
    if seeds == 1:
        spread = [np.array(curves.percentile(share)(experiment.runs[0])) for share in (10, 90)]
        panels[0].fill_between(x, *spread, color=FAINT, alpha=0.25, lw=0, label="population, 10th to 90th percentile")
    middle = {"color": INK, "lw": 1.1, "ls": "--"}
    mean = "population mean" + (" (median of seeds)" if seeds > 1 else "")
    panels[0].plot(x, experiment.over_runs(curves.mean_fitness)[1], **middle, label=mean)
    _band(panels[1], x, experiment.over_runs(curves.champion_connections), look | {"label": "champion"}, seeds)
    panels[1].plot(x, experiment.over_runs(curves.median_connections)[1], **middle, label="median candidate")
    _band(panels[2], x, experiment.over_runs(curves.throughput), look, seeds)
    for panel in panels[:2]:
        above(panel, sheet)
    if seeds > 1:
        _band(panels[3], x, experiment.over_runs(curves.mean_idle), look, seeds)
    else:
        _idle(drawn, panels[3], experiment, axis, sheet)


def _band(panel: Any, x: Float64, summary: Summary, look: Look, seeds: int) -> None:
    low, middle, high = summary
    if seeds > 1:
        panel.fill_between(x, low, high, color=look["color"], alpha=0.18, lw=0)
    panel.plot(x, middle, **look)


def _compared(drawn: Any, panels: Any, shown: list[Experiment], axis: str, sheet: Sheet) -> None:
    """Draw experiments side by side, and what their colours mean below them, where no data is."""
    looks = [
        {"color": COLOURS[n % len(COLOURS)], "ls": DASHES[n // len(COLOURS) % len(DASHES)]} for n in range(len(shown))
    ]
    values: Sequence[Callable[[Run], Sequence[float]]]
    values = curves.champions, curves.champion_connections, curves.throughput, curves.mean_idle
    for place, (panel, value) in enumerate(zip(panels, values, strict=True)):
        summaries = [experiment.over_runs(value) for experiment in shown]
        turns = alternating([middle for _, middle, _ in summaries], from_zero=place in (1, 2))
        for experiment, summary, look, turn in zip(shown, summaries, looks, turns, strict=True):
            if turn:  # a thin line joins its dashes where it is alone
                panel.plot(experiment.x(axis), summary[1], color=look["color"], lw=0.7, zorder=1.9)
            _band(panel, experiment.x(axis), summary, look | turn, len(experiment.runs))
    lines = [matplotlib("lines").Line2D([], [], **look) for look in looks]
    drawn.legend(lines, _entries(shown, sheet), loc="outside lower left", fontsize=8.5, ncols=_columns(shown, sheet))


def _entries(shown: list[Experiment], sheet: Sheet) -> list[str]:
    counts = [len(experiment.runs) for experiment in shown]
    more = [f": median and quartiles of {n} seeds" if n > 1 else "" for n in counts]
    return [textwrap.fill(e.label + words, 44 if sheet.narrow else 105) for e, words in zip(shown, more, strict=True)]


def _columns(shown: list[Experiment], sheet: Sheet) -> int:
    longest = max(len(line) for entry in _entries(shown, sheet) for line in entry.splitlines())
    return max(1, min(len(shown), int((sheet.width - 0.2) / (0.6 + 0.075 * longest))))


def _room(shown: list[Experiment], sheet: Sheet) -> float:
    """Return how many inches the legend takes, about."""
    lines = sum(len(entry.splitlines()) for entry in _entries(shown, sheet))
    return 0.2 * -(-lines // _columns(shown, sheet))


def _idle(drawn: Any, panel: Any, experiment: Experiment, axis: str, sheet: Sheet) -> None:
    """Show every worker of one run: few as lines, many as a map."""
    x, idle = experiment.x(axis), curves.idle_shares(experiment.runs[0])
    first = 0 if len(experiment.runs[0].records[-1].busy_seconds) == 1 else 1
    if idle.shape[1] <= _MOST_LINES:
        for worker, column in enumerate(idle.T):
            panel.plot(x, column, color=COLOURS[worker], lw=1.2, label=f"rank {worker + first}")
        panel.set_ylim(bottom=0)
        above(panel, sheet)
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
