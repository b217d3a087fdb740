"""The curves of runs over generations: fitness, connections left, throughput, and how idle the workers were."""

import textwrap
from typing import Any

import numpy as np

from evolve.analysis.figures import series
from evolve.analysis.figures.load import draw_idle_workers
from evolve.analysis.figures.series import Quartiles, Series
from evolve.analysis.figures.style import (
    COLOURS,
    DASHES,
    FAINT,
    INK,
    WIDTH,
    alternating_dashes,
    legend_above,
    matplotlib,
    new_figure,
    set_title,
    styled,
)
from evolve.analysis.groups import RunGroup
from evolve.errors import pluralize
from evolve.shapes import Float64

AXES = {"generation": "generation", "steps": "environment steps", "time": "minutes"}
"""What curves can be drawn over, and how that axis is labelled."""
_WIDEST_ENTRY = 105  # characters of a line of the legend
_SERIES: tuple[Series, ...] = (series.best_fitness, series.best_connections, series.throughput, series.mean_idle)
Look = dict[str, Any]


@styled
def draw_curves(groups: list[RunGroup], axis: str = "generation", titled: bool = True) -> Any:
    """Return the figure of the curves of groups over `axis`, a key of `AXES`.

    One group is shown with its population, several are shown by the best of each generation.
    """
    alone = len(groups) == 1
    figure = new_figure(9.0 if alone else 8.6 + _legend_height(groups))
    panels = figure.subplots(4, 1, sharex=True, height_ratios=(3.2, 1.2, 1.0, 1.2))
    _label_panels(panels, groups)
    if alone:
        _draw_one(figure, panels, groups[0], axis)
    else:
        _draw_several(figure, panels, groups, axis)
    _finish(figure, panels, axis)
    if titled:
        set_title(figure, _title(groups))
    return figure


def costs_connections(groups: list[RunGroup]) -> bool:
    """Return whether connections cost some of the fitness in any group: it is no mean return then."""
    return any(group.config.connection_cost > 0 for group in groups)


def _label_panels(panels: Any, groups: list[RunGroup]) -> None:
    counted = " or ".join(dict.fromkeys(group.mask_unit for group in groups))
    fitness = "mean return less the cost of connections" if costs_connections(groups) else "mean return"
    titles = ("Fitness", f"{counted.capitalize()} left", "Throughput", "Idle workers")
    units = (fitness, counted.replace(" or ", "\nor "), "1,000 steps/s", "% of the time")
    if len(groups) > 1:
        whose = ", best of each generation"
        titles = (titles[0] + whose, titles[1] + whose, *titles[2:])
    for panel, title, unit in zip(panels, titles, units, strict=True):
        panel.set_title(title)
        panel.set_ylabel(unit)


def _finish(figure: Any, panels: Any, axis: str) -> None:
    for panel in panels:
        panel.margins(x=0.01)
    panels[1].set_ylim(0, 1.06 * panels[1].dataLim.ymax or 1)  # the line of an unpruned network is not at the edge
    panels[2].set_ylim(bottom=0)
    panels[-1].set_xlabel(AXES[axis])
    if axis == "generation":
        panels[-1].xaxis.get_major_locator().set_params(integer=True)
    elif axis == "steps":
        panels[-1].xaxis.set_major_formatter(matplotlib("ticker").EngFormatter(sep=""))  # 500k, 2M
    figure.align_ylabels(panels)


def _title(groups: list[RunGroup]) -> str:
    envs = sorted({group.config.env.id for group in groups})
    who = pluralize(len(groups), "experiment") if len(groups) > 1 else groups[0].config.network.name
    return f"{', '.join(envs)}: {who}, {pluralize(sum(len(group.runs) for group in groups), 'run')}"


def _draw_one(figure: Any, panels: Any, group: RunGroup, axis: str) -> None:
    """Draw the best of each generation and the population of one group."""
    x = series.axis_values(group, axis)
    seeds = len(group.runs)
    look = {"color": COLOURS[0]}
    best = {**look, "label": f"best of generation{_over_seeds(seeds)}"}
    _band(panels[0], x, series.quartiles(group, series.best_fitness), best, seeds)
    if seeds == 1:
        spread = [np.array(series.fitness_percentile(share)(group.runs[0])) for share in (10, 90)]
        panels[0].fill_between(x, *spread, color=FAINT, alpha=0.25, lw=0, label="population, 10th to 90th percentile")
    middle = {"color": INK, "lw": 1.1, "ls": "--"}
    mean = "population mean" + (" (median of seeds)" if seeds > 1 else "")
    panels[0].plot(x, series.quartiles(group, series.mean_fitness)[1], **middle, label=mean)
    _band(
        panels[1], x, series.quartiles(group, series.best_connections), {**look, "label": "best of generation"}, seeds
    )
    panels[1].plot(x, series.quartiles(group, series.median_connections)[1], **middle, label="median candidate")
    _band(panels[2], x, series.quartiles(group, series.throughput), look, seeds)
    legend_above(panels[0])
    legend_above(panels[1])
    if seeds > 1:
        _band(panels[3], x, series.quartiles(group, series.mean_idle), look, seeds)
    else:
        draw_idle_workers(figure, panels[3], group.runs[0], x)


def _over_seeds(seeds: int) -> str:
    return f": median and quartiles of {seeds} seeds" if seeds > 1 else ""


def _band(panel: Any, x: Float64, quartiles: Quartiles, look: Look, seeds: int) -> None:
    low, middle, high = quartiles
    if seeds > 1:
        panel.fill_between(x, low, high, color=look["color"], alpha=0.18, lw=0)
    panel.plot(x, middle, **look)


def _draw_several(figure: Any, panels: Any, groups: list[RunGroup], axis: str) -> None:
    """Draw groups side by side, with the legend below them, where no data are."""
    looks = [
        {"color": COLOURS[n % len(COLOURS)], "ls": DASHES[n // len(COLOURS) % len(DASHES)]} for n in range(len(groups))
    ]
    for values, panel in zip(_SERIES, panels, strict=True):
        summaries = [series.quartiles(group, values) for group in groups]
        from_zero = values in (series.best_connections, series.throughput)
        dashes = alternating_dashes([middle for _, middle, _ in summaries], from_zero)
        for group, summary, look, dash in zip(groups, summaries, looks, dashes, strict=True):
            x = series.axis_values(group, axis)
            if dash:  # a thin line joins its dashes where it is alone
                panel.plot(x, summary[1], color=look["color"], lw=0.7, zorder=1.9)
            _band(panel, x, summary, look | dash, len(group.runs))
    lines = [matplotlib("lines").Line2D([], [], **look) for look in looks]
    figure.legend(lines, _entries(groups), loc="outside lower left", fontsize=8.5, ncols=_columns(groups))


def _entries(groups: list[RunGroup]) -> list[str]:
    return [textwrap.fill(group.label + _over_seeds(len(group.runs)), _WIDEST_ENTRY) for group in groups]


def _columns(groups: list[RunGroup]) -> int:
    longest = max(len(line) for entry in _entries(groups) for line in entry.splitlines())
    return max(1, min(len(groups), int((WIDTH - 0.2) / (0.6 + 0.075 * longest))))


def _legend_height(groups: list[RunGroup]) -> float:
    """Return how many inches the legend takes, about."""
    lines = sum(len(entry.splitlines()) for entry in _entries(groups))
    return 0.2 * -(-lines // _columns(groups))
