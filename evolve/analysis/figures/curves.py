"""The curves of runs over generations: fitness and connections left; on request throughput, and idle workers.

Each environment has panels of its own. Lines are labelled at their ends, where a mark is the held-out return.
"""

from collections.abc import Sequence
from typing import Any

from evolve.analysis.figures.curve_panels import Facet, costs_connections, draw_panel, look_of
from evolve.analysis.figures.style import matplotlib, new_figure, set_title, styled
from evolve.analysis.groups import RunGroup, described

AXES = {"generation": "generation", "steps": "environment steps", "time": "minutes"}
"""What curves can be drawn over, and how that axis is labelled."""
_SECONDS = 120  # runs that are no longer have seconds, not minutes
_HEIGHTS = {"fitness": 3.2, "connections": 1.7, "throughput": 1.3, "idle": 1.4}  # inches
_FACET_HEIGHT = 1.9
_FACET_WIDTHS = (2.4, 1)  # of fitness and connections

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
