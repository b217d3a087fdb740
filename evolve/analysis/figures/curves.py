"""Curves of runs over generations, environment steps or time.

Fitness and connections have a panel each. Throughput and idle workers have panels on request. Each environment has its
own panels, a facet.
"""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evolve import strategies
from evolve.analysis import comparison, generations, run_groups
from evolve.analysis.figures import style
from evolve.analysis.figures.style import COLOURS, FAINT, INK, PALE, QUIET, LineLabel, Mark, drawable
from evolve.analysis.run_groups import RunGroup
from evolve.analysis.statistics import mean, number, quantile
from evolve.config import Config
from evolve.errors import InputError, pluralize, sanitize
from evolve.shapes import Float64, ceil_div
from evolve.store import StoredRun

LineStyle = dict[str, Any]
"""Keyword arguments of matplotlib's `plot`: colour and line style."""
Series = Callable[[StoredRun], Sequence[float]]
"""A function that returns the value of a quantity in each generation of a run."""
Quartiles = tuple[Float64, Float64, Float64]
"""Lower quartile, median and upper quartile, [n] each."""

AXES = {"generation": "generation", "steps": "environment steps", "time": "minutes"}
"""The possible x axes of curves, and their labels. `draw_curves` replaces "time" by "seconds" for short runs."""
_SHORT_RUN = 120  # seconds; shorter runs are drawn over seconds instead of minutes
_HEIGHTS = {"fitness": 3.2, "connections": 1.7, "throughput": 1.3, "idle": 1.4}  # inches
# The unit of the fitness is its definition in words. It has at most this number of characters in a line, and at most
# three times this number in all.
_UNIT_CHARACTERS = 32
_TITLE_CHARACTERS = 45  # in one line of an environment's title
_NOTE_CHARACTERS = 118
_TITLE_LINE = 0.17  # inches
_MOST_NAMED = 8  # searches (`strategies.searches`) marked by lines with names; more searches are marked by triangles
_NAME_INCHES = 0.6  # the least distance between two of these names
_PANEL_SHARE = 0.8  # the share of a panel's nominal width for data; the rest is for the labels beside it
_BEST, _MEAN = "best of generation", "population mean"
_UNNAMED: LineStyle = {"color": PALE, "ls": "-", "lw": 0.8, "zorder": 1.5}  # the style of lines without a label
_TRIANGLES = "\N{BLACK UP-POINTING TRIANGLE} a search restarts, or the next begins"
_MOST_DASHED = 1500  # points of a dashed line; the points of a longer line are means, at most `_MOST_MEANS`
_MOST_MEANS = 300


@dataclass(frozen=True)
class Facet:
    """The groups of one environment, the kinds of their panels, the x axis, and the line styles by names of groups."""

    groups: Sequence[RunGroup]
    kinds: Sequence[str]
    axis: str
    styles: Mapping[str, LineStyle]

    @property
    def title(self) -> str:
        """The environment, followed by the name of the group if there is only one group."""
        first = self.groups[0]
        env = first.config.env.id
        # A group without a name of its own has the name of the environment.
        return sanitize(f"{env}: {first.name}" if len(self.groups) == 1 and first.name != env else env)

    def x_of_run(self, run: StoredRun) -> Float64:
        """Return the x coordinate of each generation of a run: its number, or the steps, seconds or minutes so far."""
        if self.axis == "generation":
            return np.arange(run.num_generations, dtype=np.float64)
        divisor = 60 if self.axis == "time" else 1  # "time" is in minutes
        name = "steps" if self.axis == "steps" else "seconds"
        # A damaged run file may hold NaN, and an axis needs an end.
        return np.cumsum(np.nan_to_num([getattr(record, name) for record in run.records])) / divisor

    def x(self, group: RunGroup) -> Float64:
        """Return the x coordinates [n] of the curves of a group: a selection from the coordinates of all its runs.

        They begin when each run has completed its first generation, and end with the shortest run, so that each run has
        a value at each of them. Their number n is at most the number of generations of the longest run.
        """
        every = [self.x_of_run(run) for run in group.runs]
        if len(every) == 1:
            return every[0]
        begin, end = max(x[0] for x in every), min(x[-1] for x in every)
        x = np.unique(np.concatenate(every))
        x = x[(x >= begin) & (x <= end)]
        if not len(x):  # one run has ended before another one has its first generation
            return np.array([end])
        return x[np.linspace(0, len(x) - 1, min(len(x), max(map(len, every)))).astype(np.int64)]

    def quartiles(self, group: RunGroup, series: Series) -> Quartiles:
        """Return the quartiles of a series over the runs of a group, at `x`; NaN if no run has a value.

        Between two generations, a run's value is interpolated.
        """
        x = self.x(group)
        if len(group.runs) == 1:
            rows = drawable(np.array([series(group.runs[0])]))
        else:
            rows = drawable(np.array([np.interp(x, self.x_of_run(run), series(run)) for run in group.runs]))
        low, middle, high = np.full((3, len(x)), np.nan)
        # nanpercentile warns if no run has a value, so such coordinates are skipped.
        known = ~np.isnan(rows).all(axis=0)
        if known.any():
            low[known], middle[known], high[known] = np.nanpercentile(rows[:, known], (25, 50, 75), axis=0)
        return low, middle, high


@style.styled
def draw_curves(groups: list[RunGroup], axis: str = "generation", load: bool = False) -> Any:
    """Return the figure of the curves of groups.

    If an environment has one group, the panels of fitness and connections show the best candidate and the population.
    If it has several groups, a panel has one line for each group; `_fitness_series` chooses the fitness.

    axis: The x axis, a key of `AXES`.
    load: Whether to draw throughput and idle workers, too.
    """
    if axis == "time" and max(run.seconds for group in groups for run in group.runs) <= _SHORT_RUN:
        axis = "seconds"
    # Groups of one name have one style, in all environments. If there are more names than styles, the best groups have
    # styles and labels.
    names = dict.fromkeys(group.name for group in groups)
    if len(names) > style.MOST_STYLES:
        names = dict.fromkeys(group.name for group in comparison.best_groups(groups, style.MOST_STYLES))
    styles = dict.fromkeys((group.name for group in groups), _UNNAMED)
    styles |= {name: style.line_style(n) for n, name in enumerate(names)}
    # Each environment has a facet. Choose the panels of each facet.
    facets = []
    for in_env in run_groups.by_environment(groups):
        kinds = ["fitness"]
        if run_groups.connections_vary(in_env):  # a constant number has no panel
            kinds.append("connections")
        if load:
            kinds += ["throughput", "idle"]
        facets.append(Facet(in_env, kinds, axis, styles))
    # All panels are below one another.
    scale = 0.8 if len(facets) > 1 else 1.0
    heights = [_heights(facet, scale) for facet in facets]
    all_heights = [height for facet in heights for height in facet]
    figure = style.new_figure(sum(all_heights) + 0.3 * len(all_heights) + 0.6)
    panels = iter(figure.subplots(len(all_heights), 1, squeeze=False, height_ratios=all_heights)[:, 0])
    for facet, facet_heights in zip(facets, heights, strict=True):
        facet_panels = [next(panels) for _ in facet.kinds]
        for kind, height, panel in zip(facet.kinds, facet_heights, facet_panels, strict=True):
            _draw_panel(panel, kind, facet, height)
        if len(facets) > 1:
            title = textwrap.fill(facet.title, _TITLE_CHARACTERS)
            facet_panels[0].set_title(title)
            figure.set_figheight(figure.get_figheight() + _TITLE_LINE * title.count("\n"))
        # A text that is aligned by its bottom edge is the name of a search (`_mark_searches`). These names stand above
        # the panel, so move the title up.
        if any(text.get_va() == "bottom" for text in facet_panels[0].texts):
            facet_panels[0].set_title(facet_panels[0].get_title(loc="left"), pad=16)
        _share_x_axis(facet_panels, axis)
    style.set_title(figure, run_groups.describe_groups(groups) + _connections_in_words(groups))
    if note := _note(facets):
        figure.supxlabel(note, fontsize=8, x=0.01, ha="left", color=INK)
    return figure


def _connections_in_words(groups: list[RunGroup]) -> str:
    """Return the number of connections in words, for the title; empty if the number is not the same everywhere."""
    # A count is None if the candidates of a group differ.
    counts = {(run_groups.constant_connections(group), run_groups.mask_unit(group.config)) for group in groups}
    if len(counts) > 1:
        return ""
    ((count, unit),) = counts
    return "" if count is None else f"; {count:,} {unit} throughout"


def _note(facets: list[Facet]) -> str:
    """Return a note about the bands and marks of groups that share a panel, and about failed candidates.

    If a group has a panel alone, labels explain its bands and marks.
    """
    shared = [facet for facet in facets if len(facet.groups) > 1]
    groups = [group for facet in shared for group in facet.groups]
    notes = []
    if any(len(group.runs) > 1 for group in groups):
        banded = not all(map(_is_crowded, shared))
        notes.append("lines and bands: median and quartiles of the seeds" if banded else "lines: median of the seeds")
    unnamed = sum(facet.styles[group.name] is _UNNAMED for facet in shared for group in facet.groups)
    if unnamed:
        notes.append(f"grey: {pluralize(unnamed, 'experiment')} that scored less")
    if any(_held_out(group)[1] for group in groups):
        of = "seeds" if any(len(group.runs) > 1 for group in groups) else "episodes"
        notes.append(f"marks and bars: held-out mean and its 95 % interval over {of}")
    if failed := run_groups.failed_candidates([group for facet in facets for group in facet.groups]):
        notes.append(failed)
    return textwrap.fill("; ".join(notes), _NOTE_CHARACTERS)


def _heights(facet: Facet, scale: float) -> list[float]:
    """Return the heights of an environment's panels in inches; many labels need a higher panel of fitness."""
    heights = [scale * _HEIGHTS[kind] for kind in facet.kinds]
    if len(facet.groups) > 1:
        labels = [_label_of(facet, group) for group in facet.groups if facet.styles[group.name] is not _UNNAMED]
        heights[0] = max(heights[0], style.height_for_labels([*labels, _TRIANGLES]))
    return heights


def _share_x_axis(panels: Sequence[Any], axis: str) -> None:
    """Make an environment's panels share the x axis. Its label is below the last panel."""
    for panel in panels[1:]:
        panel.sharex(panels[0])
    for panel in panels[:-1]:
        panel.tick_params(labelbottom=False)
    panels[-1].set_xlabel(AXES.get(axis, axis))
    # Panels that share an axis share its ticks, so set them once.
    if axis == "generation":
        panels[-1].xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        panels[-1].xaxis.set_major_formatter(_plain_tick)
    elif axis == "steps":
        panels[-1].xaxis.set_major_formatter(_steps_formatter())
    panels[0].get_figure().align_ylabels(panels)


def _plain_tick(value: float, _position: int) -> str:
    # Rounding to 15 digits hides the errors of ticks like 0.30000000000000004, and keeps equal steps between ticks.
    return f"{value:,.15g}".replace("-", "\N{MINUS SIGN}")


def _steps_formatter() -> Any:
    """Return the format of ticks that count steps: 500k, 2M."""
    return style.matplotlib("ticker").EngFormatter(sep="")


def _draw_panel(panel: Any, kind: str, facet: Facet, inches: float) -> None:
    """Draw one panel of an environment.

    kind: "fitness", "connections", "throughput" or "idle".
    inches: The approximate height of the panel.
    """
    title, unit = _title_and_unit(kind, facet.groups)
    alone = len(facet.groups) == 1
    if not alone and kind == "connections":
        title = f"{title}, best of each generation"
    elif not alone and kind == "fitness":
        shown = " or\n".join(sorted({_fitness_series(group) for group in facet.groups}))
        unit = f"{unit}\n({shown})"
    panel.set_title(title)
    panel.set_ylabel(unit)
    # The curves. Only curves of fitness, and the connections of a single group, have labels.
    if alone and kind == "fitness":
        labels = _draw_fitness(panel, facet)
    elif alone and kind == "connections":
        labels = _draw_connections(panel, facet)
    else:
        labels = _draw_groups(panel, kind, facet)
    if kind == "fitness" and not any(np.isfinite(label.y) for label in labels):
        panel.set_yticks([])
        text = "no candidate has a fitness"
        panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", va="center", color=QUIET)
    # The ranges and the ticks of the axes. Labels come last, because they depend on the ranges.
    _set_x_range(panel, facet)
    if kind == "connections":
        highest = 1.06 * panel.dataLim.ymax  # keeps the line of an unpruned network off the edge
        panel.set_ylim(0, highest or 1)  # all numbers may be 0
    elif kind != "fitness":
        panel.set_ylim(bottom=0)
    # Ticks have the format of the numbers in labels: −1,250.
    panel.yaxis.set_major_formatter(_plain_tick)
    if kind == "throughput":
        panel.yaxis.set_major_formatter(_steps_formatter())
    style.label_lines(panel, labels, inches)


def _set_x_range(panel: Any, facet: Facet) -> None:
    """Set the range of the x axis, even for a single generation, or if no generation has a value."""
    panel.margins(x=0.01)
    x = np.concatenate([facet.x(group) for group in facet.groups])
    # A single generation has no width.
    if x.min() == x.max():
        width = 1 if facet.axis == "generation" or x[0] == 0 else x[0]
        panel.set_xlim(x[0] - 0.5 * width, x[0] + 0.5 * width)
    elif not np.isfinite(panel.dataLim.intervaly).all():
        panel.set_xlim(x.min(), x.max())


def _title_and_unit(kind: str, groups: Sequence[RunGroup]) -> tuple[str, str]:
    """Return the title of a panel and the unit of its y axis."""
    counted = " or ".join(dict.fromkeys(run_groups.mask_unit(group.config) for group in groups))
    fitness = textwrap.shorten(run_groups.fitness_in_words(groups), 3 * _UNIT_CHARACTERS, placeholder=" …")
    fitness = textwrap.fill(fitness, _UNIT_CHARACTERS)
    fitness += " less\nthe cost of connections" if run_groups.costs_connections(groups) else ""
    return {
        "fitness": ("Fitness", fitness),
        "connections": (f"{counted.capitalize()} left", counted.replace(" or ", "\nor ")),
        "throughput": ("Throughput", "steps/s"),
        "idle": ("Idle workers", "% of the time"),
    }[kind]


def _fitness_series(group: RunGroup) -> str:
    """Return the series that represents a group in comparisons: `_MEAN` for samples around a centre, else `_BEST`.

    A strategy such as openai-es samples all candidates around one centre, and its champion is the centre, or an average
    of centres. The mean of the samples describes the centre. The best sample owes its fitness to noise, and gains from
    a larger σ.
    """
    try:
        # Only strategies that sample around one centre give all candidates the same mask.
        centred = strategies.shared_mask(group.config.strategy)
    except InputError:  # a strategy of a package that is not installed
        centred = False
    return _MEAN if centred else _BEST


def _draw_fitness(panel: Any, facet: Facet) -> list[LineLabel]:
    """Draw the best fitness and the population of one group; return the labels.

    The main line is the series that `_fitness_series` chooses, best or mean. The other series is dashed.
    """
    (group,) = facet.groups
    line_style = facet.styles[group.name]
    x = facet.x(group)
    seeds = len(group.runs)
    main = _fitness_series(group)
    dashed = _BEST if main == _MEAN else _MEAN
    summary = facet.quartiles(group, _SERIES[main])
    _, other, _ = facet.quartiles(group, _SERIES[dashed])
    labels = []
    # With several seeds the band is the spread of the seeds. A single seed has a band for its population.
    if seeds == 1:
        samples = [record.fitness for record in group.runs[0].records]
        low = drawable(np.array([quantile(sample, 0.1) for sample in samples]))
        high = drawable(np.array([quantile(sample, 0.9) for sample in samples]))
        panel.fill_between(x, low, high, color=FAINT, alpha=0.25, lw=0 if len(x) > 1 else 6)
        labels.append(LineLabel("middle 80 % of the population", *_last_point(x, low), FAINT))
    _band(panel, x, summary, line_style, seeds)
    other_label = _draw_dashed(panel, x, other, dashed + (" (median)" if seeds > 1 else ""))
    # The labels. If the held-out mean has no mark, it stands below the name of the main line.
    of_seeds = f": median and quartiles of {pluralize(seeds, 'seed')}" if seeds > 1 else ""
    text, mark = _held_out(group)
    unmarked = f"\n{text}" if text and mark is None else ""
    labels.append(LineLabel(f"{main}{of_seeds}{unmarked}", *_last_point(x, summary[1]), line_style["color"]))
    labels.append(other_label)
    labels += _mark_searches(panel, facet)
    if mark is not None:
        _, interval = mark
        if interval is not None and interval[0] < interval[1]:
            text += "\n(bar: 95 % interval)"
        labels.append(LineLabel(text, x[-1], mark[0], line_style["color"], mark))
    return labels


def _draw_connections(panel: Any, facet: Facet) -> list[LineLabel]:
    """Draw the connections of the best and of the median candidate of one group; return the labels."""
    (group,) = facet.groups
    line_style = facet.styles[group.name]
    x = facet.x(group)
    best = facet.quartiles(group, generations.best_connections)
    _, middle, _ = facet.quartiles(group, generations.median_connections)
    _band(panel, x, best, line_style, len(group.runs))
    other_label = _draw_dashed(panel, x, middle, "median candidate")
    return [
        LineLabel("best of generation", x[-1], float(best[1][-1]), line_style["color"]),
        other_label,
    ]


def _draw_groups(panel: Any, kind: str, facet: Facet) -> list[LineLabel]:
    """Draw one line for each group of an environment; return the labels of fitness lines."""
    series = [_fitness_series(group) if kind == "fitness" else kind for group in facet.groups]
    summaries = [facet.quartiles(group, _SERIES[name]) for group, name in zip(facet.groups, series, strict=True)]
    from_zero = kind in ("connections", "throughput")
    # Lines that cover one another alternate in dashes.
    dashes = style.alternating_dashes([middle for _, middle, _ in summaries], from_zero)
    crowded = _is_crowded(facet)
    if crowded:  # dashes already tell lines of one colour apart
        dashes = [{}] * len(dashes)
    labels = []
    for group, summary, dash in zip(facet.groups, summaries, dashes, strict=True):
        line_style = facet.styles[group.name]
        x = facet.x(group)
        if dash:  # join the dashes by a thin line
            panel.plot(x, summary[1], color=line_style["color"], lw=0.7, zorder=1.9)
        # For one seed `_band` draws no band.
        _band(panel, x, summary, line_style | dash, 1 if crowded else len(group.runs))
        if line_style is _UNNAMED:
            continue
        _, mark = _held_out(group)
        # The interval of a single run is over its episodes, and would look more certain than intervals over seeds.
        if mark is not None and len(group.runs) == 1 and any(len(other.runs) > 1 for other in facet.groups):
            mark = mark[0], None
        end = _last_point(x, summary[1])
        labels.append(LineLabel(_label_of(facet, group), *end, line_style["color"], mark, line_style["ls"]))
    if kind != "fitness":
        return []
    return labels + _mark_searches(panel, facet)


def _is_crowded(facet: Facet) -> bool:
    """Return whether groups share colours. Their bands would cover one another."""
    return len(facet.groups) > len(COLOURS)


def _label_of(facet: Facet, group: RunGroup) -> str:
    """Return the label of one of several groups: its name and its score.

    The number of its seeds, and the drawn series, follow the name if groups differ in them.
    """
    about = []
    if len({len(each.runs) for each in facet.groups}) > 1:
        about.append(pluralize(len(group.runs), "seed"))
    if len(set(map(_fitness_series, facet.groups))) > 1:
        about.append("mean" if _fitness_series(group) == _MEAN else "best")
    details = ", ".join(about).replace(" ", "\N{NO-BREAK SPACE}")  # in one line
    name = style.unbroken(group.name) + (f" ({details})" if about else "")
    return f"{name}\n{_held_out(group)[0]}".rstrip()


def _last_point(x: Float64, values: Float64) -> tuple[float, float]:
    """Return the last point of a line that has a value; y is NaN if no point has one."""
    known = np.flatnonzero(np.isfinite(values))
    last = known[-1] if len(known) else -1
    return float(x[last]), float(values[last])


def _mark_searches(panel: Any, facet: Facet) -> list[LineLabel]:
    """Mark the generations in which searches of the strategies start, restart or begin a round: curves dip there.

    If the environment has a single group, a vertical line with a name marks each search that all runs of the group
    begin in the same generation. Triangles at the lower edge mark all other searches, and all searches if the names
    have no room. The returned label explains triangles.
    """
    across = panel.get_xaxis_transform()  # x in data, y as a share of the panel's height
    has_triangles = False
    for group in facet.groups:
        x = facet.x(group)
        # The places at which the runs begin each search, between two generations.
        begun: dict[tuple[int, str], list[float]] = {}
        for run in group.runs:
            own = facet.x_of_run(run)
            for first, kind in set(_searches(run, group.config)):
                if first < len(own):
                    begun.setdefault((first, kind), []).append(own[first - 1 : first + 1].mean())
        # On an axis of steps or time, the places differ between the runs, so take the median of the runs. The curve
        # ends with the shortest run, and a longer run may begin searches after that.
        places = {search: float(np.median(begun[search])) for search in sorted(begun)}
        places = {search: place for search, place in places.items() if place <= x[-1]}
        named = []
        if len(facet.groups) == 1:
            named = [search for search in places if len(begun[search]) == len(group.runs)]
        # Names have room if neighbours are at least `_NAME_INCHES` apart. The whole x axis takes `panel_inches`.
        gaps = np.diff([places[search] for search in named])
        panel_inches = _PANEL_SHARE * panel.get_position().width * style.WIDTH
        have_room = (gaps * panel_inches >= _NAME_INCHES * (x[-1] - x[0])).all()
        if len(named) > _MOST_NAMED or not have_room:
            named = []
        for search, place in places.items():
            if search in named:
                _, kind = search
                panel.axvline(place, color=FAINT, lw=0.9, ls=":", zorder=1)
                panel.text(place, 1.01, kind, transform=across, ha="center", va="bottom", fontsize=8, color=INK)
            else:
                how = {"color": facet.styles[group.name]["color"], "ms": 5, "mew": 0, "transform": across, "zorder": 3}
                panel.plot(place, 0.025, "^", **how)
                has_triangles = True
    if not has_triangles:
        return []
    end = max(float(facet.x(group)[-1]) for group in facet.groups)
    # key="" draws no pointer, which is a line from the label to the curve. At the lower edge, it would look like a
    # longer axis.
    return [LineLabel(_TRIANGLES, end, panel.get_ylim()[0], FAINT, key="")]


def _searches(run: StoredRun, config: Config) -> list[tuple[int, str]]:
    """Return the searches of a run after its first, see `strategies.searches`; empty for an unknown strategy."""
    try:
        return strategies.searches(config.strategy, run_groups.fitness_of_played(run, config))
    except InputError:
        return []


def _held_out(group: RunGroup) -> tuple[str, Mark | None]:
    """Return the held-out mean of a group in words, and as a mark with an interval; "" and None without evaluation.

    There is no mark if the user has defined the fitness by a function, or if the cost of connections is subtracted from
    the fitness: then returns do not belong on the axis of the fitness.
    """
    found = comparison.held_out_score(group)
    if found is None:
        return "", None
    score, interval, _ = found
    # The axis shows fitness. If fitness is not the mean return, the text says that this number is a return.
    is_other = not run_groups.selects_by_return(group)
    text = f"held-out mean{' return' if is_other else ''} {number(score).replace('-', '−')}"
    if is_other:
        return text, None
    value, low, high = drawable(np.array([score, *(interval or (score, score))])).tolist()
    return text, (value, (low, high) if interval else None)


def _band(panel: Any, x: Float64, quartiles: Quartiles, line_style: LineStyle, seeds: int) -> None:
    """Draw a median, and the band between the quartiles if there are several seeds."""
    low, middle, high = quartiles
    if seeds > 1:
        panel.fill_between(x, low, high, color=line_style["color"], alpha=0.18, lw=0)
    _line(panel, x, middle, **line_style)


def _line(panel: Any, x: Float64, values: Float64, **line_style: Any) -> None:
    """Draw a line; a value without a neighbour is a point."""
    # Pad with NaN, so that the first and the last value have two neighbours, too.
    known = np.isfinite(np.pad(values, 1, constant_values=np.nan))
    alone = np.flatnonzero(known[1:-1] & ~known[:-2] & ~known[2:])
    panel.plot(x, values, marker="o" if len(alone) else "", markevery=alone.tolist(), ms=4, **line_style)


def _draw_dashed(panel: Any, x: Float64, values: Float64, name: str) -> LineLabel:
    """Draw the dashed line of a group; return its label, which begins with its name.

    Dashes between many points would run together and cover all else, so points of a long line are means of neighbours.
    """
    if len(x) > _MOST_DASHED:
        size = ceil_div(len(x), _MOST_MEANS)
        name += f"\n(means of {size:,} points)"
        parts = range(0, len(x), size)
        x, values = (np.array([mean(line[first : first + size]) for first in parts]) for line in (x, values))
    _line(panel, x, values, color=INK, lw=1.1, ls="--")
    return LineLabel(name, *_last_point(x, values), INK)


_SERIES: dict[str, Series] = {
    _BEST: lambda run: [record.champion_fitness for record in run.records],
    _MEAN: lambda run: [mean(record.fitness) for record in run.records],
    "connections": generations.best_connections,
    "throughput": lambda run: [record.steps / (record.seconds or np.nan) for record in run.records],
    "idle": generations.idle_share,
}
