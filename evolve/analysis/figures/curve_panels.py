"""The panels of curves: the groups of one environment, each line with its label."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evolve.analysis.comparison import held_out_score
from evolve.analysis.figures import series
from evolve.analysis.figures.line_labels import LineLabel, Mark, label_lines
from evolve.analysis.figures.load import draw_idle_workers
from evolve.analysis.figures.series import Quartiles, Series
from evolve.analysis.figures.style import COLOURS, DASHES, FAINT, INK, alternating_dashes
from evolve.analysis.formatting import number
from evolve.analysis.groups import RunGroup
from evolve.errors import pluralize, sanitize
from evolve.shapes import Float64

Look = dict[str, Any]
_SERIES: dict[str, Series] = {
    "fitness": series.best_fitness,
    "connections": series.best_connections,
    "throughput": series.throughput,
    "idle": series.mean_idle,
}


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
