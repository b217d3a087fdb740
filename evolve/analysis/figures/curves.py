"""Curves of fitness over generations, steps or time, one panel for each kind of value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evolve.analysis.comparison import RunGroup, described, held_out_score
from evolve.analysis.figures import series
from evolve.analysis.figures.load import draw_idle_workers
from evolve.analysis.figures.series import Quartiles, Series
from evolve.analysis.figures.style import (
    COLOURS,
    DASHES,
    FAINT,
    INK,
    LineLabel,
    Mark,
    alternating_dashes,
    label_lines,
    matplotlib,
    new_figure,
    set_title,
    styled,
)
from evolve.analysis.formatting import number
from evolve.errors import pluralize, sanitize
from evolve.shapes import Float64

Look = dict[str, Any]
_SERIES: dict[str, Series] = {
    "fitness": series.best_fitness,
    "connections": series.best_connections,
    "throughput": series.throughput,
    "idle": series.mean_idle,
}


AXES = {"generation": "generation", "steps": "environment steps", "time": "minutes"}
"""What curves can be drawn over, and how that axis is labelled."""
_SECONDS = 120  # runs that are no longer have seconds, not minutes
_HEIGHTS = {"fitness": 3.2, "connections": 1.7, "throughput": 1.3, "idle": 1.4}  # inches
_FACET_HEIGHT = 1.9
_FACET_WIDTHS = (2.4, 1)  # of fitness and connections


@dataclass(frozen=True)
class Facet:
    """The groups of one environment, how the line of each looks, and what they are drawn over."""

    groups: tuple[RunGroup, ...]
    looks: tuple[Look, ...]
    axis: str

    @property
    def title(self) -> str:
        """The environment; with what was evolved, where no label says that."""
        first = self.groups[0]
        env = first.config.env.id
        return sanitize(f"{env}: {first.name}" if len(self.groups) == 1 and first.name != env else env)

    def x(self, group: RunGroup) -> Float64:
        """Return the axis of one of the groups, [G]."""
        return series.axis_values(group, self.axis)


def look_of(n: int) -> Look:
    """Return what the line of the n-th group looks like."""
    return {"color": COLOURS[n % len(COLOURS)], "ls": DASHES[n // len(COLOURS) % len(DASHES)]}


def costs_connections(groups: Sequence[RunGroup]) -> bool:
    """Return whether connections cost some of the fitness in any group: it is no mean return then."""
    return any(group.config.connection_cost > 0 for group in groups)


def draw_panel(figure: Any, panel: Any, kind: str, facet: Facet, inches: float, small: bool = False) -> None:
    """Draw one panel of an environment.

    Args:
        figure: That the panel is in.
        panel: An empty one.
        kind: "fitness", "connections", "throughput" or "idle".
        facet: What is drawn.
        inches: How high the panel is, about.
        small: Whether it stands beside another one, whose labels go for both.
    """
    title, unit = _names(kind, facet.groups)
    alone = len(facet.groups) == 1
    best_of = not alone and not small and kind in ("fitness", "connections")
    panel.set_title(f"{title}, best of each generation" if best_of else unit.capitalize() if small else title)
    panel.set_ylabel("" if small else unit)
    labels: list[LineLabel] = []
    group = facet.groups[0]
    if alone and kind == "idle" and len(group.runs) == 1:
        draw_idle_workers(figure, panel, group.runs[0], facet.x(group))
    elif alone and kind == "fitness":
        labels = _draw_fitness(panel, facet)
    elif alone and kind == "connections":
        labels = _draw_connections(panel, facet)
    else:
        labels = _draw_several(panel, kind, facet)
    panel.margins(x=0.01)
    if kind == "connections":
        panel.set_ylim(0, 1.06 * panel.dataLim.ymax or 1)  # the line of an unpruned network is not at the edge
    elif kind != "fitness":
        panel.set_ylim(bottom=0)
    if kind in ("fitness", "connections"):
        panel.yaxis.set_major_formatter(_grouped)
    label_lines(panel, [] if small else labels, inches)


def _grouped(value: float, _: int) -> str:
    """Return a tick as numbers are written beside it: −1,250."""
    return f"{value:,.10g}".replace("-", "\N{MINUS SIGN}")


def _names(kind: str, groups: Sequence[RunGroup]) -> tuple[str, str]:
    counted = " or ".join(dict.fromkeys(group.mask_unit for group in groups))
    fitness = "mean return less\nthe cost of connections" if costs_connections(groups) else "mean return"
    return {
        "fitness": ("Fitness", fitness),
        "connections": (f"{counted.capitalize()} left", counted.replace(" or ", "\nor ")),
        "throughput": ("Throughput", "1,000 steps/s"),
        "idle": ("Idle workers", "% of the time"),
    }[kind]


def _draw_fitness(panel: Any, facet: Facet) -> list[LineLabel]:
    """Draw the best of each generation and the population of one group; return the labels."""
    (group,), (look,) = facet.groups, facet.looks
    x = facet.x(group)
    seeds = len(group.runs)
    best = series.quartiles(group, series.best_fitness)
    mean = series.quartiles(group, series.mean_fitness)[1]
    labels = []
    if seeds == 1:
        low, high = (np.array(series.fitness_percentile(share)(group.runs[0])) for share in (10, 90))
        panel.fill_between(x, low, high, color=FAINT, alpha=0.25, lw=0)
        labels.append(LineLabel("middle 80 % of the population", x[-1], float(low[-1]), FAINT))
    _band(panel, x, best, look, seeds)
    panel.plot(x, mean, color=INK, lw=1.1, ls="--")
    over = f": median and quartiles of {pluralize(seeds, 'seed')}" if seeds > 1 else ""
    labels.append(LineLabel(f"best of generation{over}", x[-1], float(best[1][-1]), look["color"]))
    labels.append(LineLabel("population mean" + (" (median)" if seeds > 1 else ""), x[-1], float(mean[-1]), INK))
    text, mark = _held_out(group)
    if mark is not None:
        if mark[1] is not None and mark[1][0] < mark[1][1]:
            text += "\n(bar: 95 % interval)"
        labels.append(LineLabel(text, x[-1], mark[0], look["color"], mark))
    return labels


def _held_out(group: RunGroup) -> tuple[str, Mark | None]:
    """Return the held-out mean of a group in words, and as a mark with its interval."""
    found = held_out_score(group)
    if found is None:
        return "", None
    mean, interval = found
    shown = number(mean).replace("-", "−")
    low, high = series.drawable(np.array(interval or (mean, mean))).tolist()
    return f"held-out mean {shown}", (float(series.drawable(np.array(mean))), (low, high) if interval else None)


def _draw_connections(panel: Any, facet: Facet) -> list[LineLabel]:
    (group,), (look,) = facet.groups, facet.looks
    x = facet.x(group)
    best = series.quartiles(group, series.best_connections)
    middle = series.quartiles(group, series.median_connections)[1]
    _band(panel, x, best, look, len(group.runs))
    panel.plot(x, middle, color=INK, lw=1.1, ls="--")
    return [
        LineLabel("best of generation", x[-1], float(best[1][-1]), look["color"]),
        LineLabel("median candidate", x[-1], float(middle[-1]), INK),
    ]


def _band(panel: Any, x: Float64, quartiles: Quartiles, look: Look, seeds: int) -> None:
    low, middle, high = quartiles
    if seeds > 1:
        panel.fill_between(x, low, high, color=look["color"], alpha=0.18, lw=0)
    panel.plot(x, middle, **look)


def _draw_several(panel: Any, kind: str, facet: Facet) -> list[LineLabel]:
    """Draw groups of one environment, each by the best of each generation; return the labels of their fitness."""
    summaries = [series.quartiles(group, _SERIES[kind]) for group in facet.groups]
    dashes = alternating_dashes([middle for _, middle, _ in summaries], kind in ("connections", "throughput"))
    uneven = len({len(group.runs) for group in facet.groups}) > 1
    labels = []
    for group, summary, look, dash in zip(facet.groups, summaries, facet.looks, dashes, strict=True):
        x = facet.x(group)
        if dash:  # a thin line joins its dashes where it is alone
            panel.plot(x, summary[1], color=look["color"], lw=0.7, zorder=1.9)
        _band(panel, x, summary, look | dash, len(group.runs))
        text, mark = _held_out(group)
        label = f"{group.name} ({pluralize(len(group.runs), 'seed')})" if uneven else group.name
        said = f"{label}\n{text}" if text else label
        labels.append(LineLabel(said, float(x[-1]), float(summary[1][-1]), look["color"], mark))
    return labels if kind == "fitness" else []


__all__ = ["AXES", "costs_connections", "draw_curves"]


@styled
def draw_curves(groups: list[RunGroup], axis: str = "generation", titled: bool = True, load: bool = False) -> Any:
    """Return the figure of the curves of groups.

    One group of an environment is shown with its population, several are shown by the best of each generation.

    Args:
        groups: What is drawn.
        axis: What it is drawn over, a key of `AXES`.
        titled: Whether the figure says what was evolved, and with which seeds.
        load: Whether throughput and idle workers are drawn, too.
    """
    if axis == "time" and max(run.seconds for group in groups for run in group.runs) <= _SECONDS:
        axis = "seconds"
    names = list(dict.fromkeys(group.name for group in groups))  # the same in all environments
    envs = dict.fromkeys(group.config.env.id for group in groups)
    facets = []
    for env in envs:
        own = [group for group in groups if group.config.env.id == env]
        facets.append(Facet(tuple(own), tuple(look_of(names.index(group.name)) for group in own), axis))
    kinds = [_kinds(facet, load) for facet in facets]
    stacked = load or len(facets) == 1
    figure, panels, heights = _stacked(kinds) if stacked else _side_by_side(kinds)
    for facet, shown, own_panels, own_heights in zip(facets, kinds, panels, heights, strict=True):
        for kind, panel, inches in zip(shown, own_panels, own_heights, strict=True):
            draw_panel(figure, panel, kind, facet, inches, small=kind != "fitness" and not stacked)
        if len(facets) > 1:
            own_panels[0].set_title(facet.title)
        _finish(own_panels, axis, stacked)
    if titled:
        set_title(figure, described(groups) + _constants(groups))
    return figure


def _kinds(facet: Facet, load: bool) -> list[str]:
    """Return which panels an environment has: none for what is constant."""
    pruned = any(_constant_connections(group) is None for group in facet.groups)
    return ["fitness", *(["connections"] if pruned else []), *(["throughput", "idle"] if load else [])]


def _stacked(kinds: Sequence[Sequence[str]]) -> tuple[Any, list[list[Any]], list[list[float]]]:
    """Return a figure with all panels below one another, and the panels of each facet with their heights."""
    shrunk = 0.8 if len(kinds) > 1 else 1.0
    heights = [[shrunk * _HEIGHTS[kind] for kind in facet] for facet in kinds]
    flat = [height for facet in heights for height in facet]
    figure = new_figure(sum(flat) + 0.3 * len(flat) + 0.6)
    panels = iter(figure.subplots(len(flat), 1, squeeze=False, height_ratios=flat)[:, 0])
    return figure, [[next(panels) for _ in facet] for facet in kinds], heights


def _side_by_side(kinds: Sequence[Sequence[str]]) -> tuple[Any, list[list[Any]], list[list[float]]]:
    """Return a figure with a row for each facet: fitness, and connections where there are such panels."""
    columns = max(map(len, kinds))
    figure = new_figure((_FACET_HEIGHT + 0.55) * len(kinds) + 0.6)
    grid = figure.subplots(len(kinds), columns, squeeze=False, width_ratios=_FACET_WIDTHS[:columns])
    for row, facet in zip(grid, kinds, strict=True):
        for panel in row[len(facet) :]:
            panel.set_axis_off()
    panels = [list(row[: len(facet)]) for row, facet in zip(grid, kinds, strict=True)]
    return figure, panels, [[_FACET_HEIGHT] * len(facet) for facet in kinds]


def _constant_connections(group: RunGroup) -> int | None:
    """Return how many connections all candidates of all generations have; None where that changes."""
    first = int(group.runs[0].records[0].connections[0])
    same = all((record.connections == first).all() for run in group.runs for record in run.records)
    return first if same else None


def _constants(groups: list[RunGroup]) -> str:
    """Return what has no panel since it is constant, in words."""
    counts = {(_constant_connections(group), group.mask_unit) for group in groups}
    if len(counts) > 1:
        return ""
    ((count, unit),) = counts
    return "" if count is None else f"; {count:,} {unit} throughout"


def _finish(panels: Sequence[Any], axis: str, stacked: bool) -> None:
    """Share the x axis of an environment's panels."""
    for panel in panels[1:]:
        panel.sharex(panels[0])
    for panel in panels[:-1] if stacked else ():
        panel.tick_params(labelbottom=False)
    for panel in panels[-1:] if stacked else panels:
        panel.set_xlabel(AXES.get(axis, axis))
    if axis == "generation":
        panels[-1].xaxis.get_major_locator().set_params(integer=True)
    elif axis == "steps":
        panels[-1].xaxis.set_major_formatter(matplotlib("ticker").EngFormatter(sep=""))  # 500k, 2M
    if stacked:
        panels[0].get_figure().align_ylabels(panels)
