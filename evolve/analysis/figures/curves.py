"""The figure of curves of runs over generations, environment steps or time: `draw_curves`.

Fitness and connections have a panel each. Throughput and idle workers have panels on request. Each environment has its
own panels, a `Facet`. A curve is a median over the runs of a group, which differ only in their seeds.
"""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evolve import strategies
from evolve.analysis import comparison, generations, run_groups
from evolve.analysis.figures import style
from evolve.analysis.figures.style import COLOURS, FAINT, INK, PALE, QUIET, LineLabel, Mark, clip_to_axis
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
"""The possible x axes of curves, and their labels. For short runs, "seconds" replaces "time", and is its own label."""
_SHORT_RUN = 120  # seconds; shorter runs are drawn over seconds instead of minutes
_HEIGHTS = {"fitness": 3.2, "connections": 1.7, "throughput": 1.3, "idle": 1.4}  # inches
# In place of a unit, the axis of fitness has the definition of the fitness in words: at most this number of characters
# in a line, and three times as many in all.
_UNIT_CHARACTERS = 32
_TITLE_CHARACTERS = 45  # in one line of an environment's title
_NOTE_CHARACTERS = 118  # in one line of the note below the panels
_TITLE_LINE = 0.17  # the height of a line of a title, in inches
# A run of a strategy with restarts, starts or rounds of pruning has several searches, see `strategies.searches`.
_MOST_NAMED = 8  # searches marked by lines with names; more searches are marked by triangles
_NAME_INCHES = 0.6  # the least distance between two of these names
_PANEL_SHARE = 0.8  # the share of a panel's nominal width for data; the rest is for the labels beside it
_BEST, _MEAN = "best of generation", "population mean"  # the series of fitness
_UNNAMED: LineStyle = {"color": PALE, "ls": "-", "lw": 0.8, "zorder": 1.5}  # the style of lines without a label
_TRIANGLES_LABEL = "\N{BLACK UP-POINTING TRIANGLE} a search restarts, or the next begins"
# A dashed line of more than `_MOST_DASHED` points is drawn by at most `_MOST_MEANS` means of neighbouring points.
_MOST_DASHED = 1500
_MOST_MEANS = 300


@dataclass(frozen=True)
class Facet:
    """The panels of one environment.

    Attributes:
        groups: The groups of runs in this environment.
        kinds: The kinds of the panels, from above: "fitness", "connections", "throughput" or "idle".
        axis: The x axis: a key of `AXES`, or "seconds".
        styles: The line style of each group, by the group's name.
    """

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
        name = "steps" if self.axis == "steps" else "seconds"
        # A damaged run file may hold NaN, and an axis needs an end.
        so_far = np.cumsum(np.nan_to_num([getattr(record, name) for record in run.records]))
        return so_far / (60 if self.axis == "time" else 1)  # "time" is in minutes

    def x(self, group: RunGroup) -> Float64:
        """Return the x coordinates [n] of the curves of a group: a selection from the coordinates of all its runs.

        They begin when each run has completed its first generation, and end with the shortest run, so that each run has
        a value at each of them. Their number n is at most the number of generations of the longest run.
        """
        x_of_runs = [self.x_of_run(run) for run in group.runs]
        if len(x_of_runs) == 1:
            return x_of_runs[0]
        begin, end = max(x[0] for x in x_of_runs), min(x[-1] for x in x_of_runs)
        x = np.unique(np.concatenate(x_of_runs))
        x = x[(x >= begin) & (x <= end)]
        if not len(x):  # one run has ended before another run has completed its first generation
            return np.array([end])
        # Take at most as many coordinates as the longest run has, evenly spaced among all of them.
        number = min(len(x), max(map(len, x_of_runs)))
        return x[np.linspace(0, len(x) - 1, number).astype(np.int64)]

    def quartiles(self, group: RunGroup, series: Series) -> Quartiles:
        """Return the quartiles of a series over the runs of a group, at `x`; NaN if no run has a value.

        Between two generations, a run's value is interpolated.
        """
        x = self.x(group)
        if len(group.runs) == 1:  # its values are at `x`
            values = np.array([series(group.runs[0])])
        else:
            values = np.array([np.interp(x, self.x_of_run(run), series(run)) for run in group.runs])
        values = clip_to_axis(values)  # [runs, n]
        low, median, high = np.full((3, len(x)), np.nan)
        # nanpercentile warns if no run has a value, so such coordinates are skipped.
        known = ~np.isnan(values).all(axis=0)
        if known.any():
            low[known], median[known], high[known] = np.nanpercentile(values[:, known], (25, 50, 75), axis=0)
        return low, median, high


@style.styled
def draw_curves(groups: list[RunGroup], axis: str = "generation", load: bool = False) -> Any:
    """Return the figure of the curves of groups.

    If an environment has one group, the panels of fitness and connections show the best candidate and the population.
    If it has several groups, a panel has one line for each group; `_fitness_series` chooses the fitness.

    axis: The x axis, a key of `AXES`.
    load: Whether to draw throughput and idle workers, too.
    """
    # Choose the unit of time.
    if axis == "time" and max(run.seconds for group in groups for run in group.runs) <= _SHORT_RUN:
        axis = "seconds"
    # Choose the line styles. Groups with the same name have the same style in all environments. If there are more names
    # than styles, only the best groups have styles and labels.
    names = dict.fromkeys(group.name for group in groups)
    if len(names) > style.MOST_STYLES:
        names = dict.fromkeys(group.name for group in comparison.best_groups(groups, style.MOST_STYLES))
    styles = dict.fromkeys((group.name for group in groups), _UNNAMED)
    styles |= {name: style.line_style(n) for n, name in enumerate(names)}
    # Choose the panels of each environment.
    facets = []
    for env_groups in run_groups.by_environment(groups):
        kinds = ["fitness"]
        if run_groups.connections_vary(env_groups):  # a constant number has no panel
            kinds.append("connections")
        if load:
            kinds += ["throughput", "idle"]
        facets.append(Facet(env_groups, kinds, axis, styles))
    # Draw all panels, one below another.
    scale = 0.8 if len(facets) > 1 else 1.0
    heights: list[float] = []
    for facet in facets:
        heights += _heights(facet, scale)
    figure = style.new_figure(sum(heights) + 0.3 * len(heights) + 0.6)
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    free_panels = iter(zip(panels, heights, strict=True))
    for facet in facets:
        facet_panels = []
        for kind in facet.kinds:
            panel, height = next(free_panels)
            _draw_panel(panel, kind, facet, height)
            facet_panels.append(panel)
        _share_x_axis(facet_panels, axis)
        top = facet_panels[0]
        if len(facets) > 1:
            title = textwrap.fill(facet.title, _TITLE_CHARACTERS)
            top.set_title(title)
            figure.set_figheight(figure.get_figheight() + _TITLE_LINE * title.count("\n"))
        # Only names of searches (`_mark_searches`) are aligned by their bottom edge. They stand above the panel, so the
        # title must be higher.
        if any(text.get_va() == "bottom" for text in top.texts):
            top.set_title(top.get_title(loc="left"), pad=16)  # the style puts titles on the left
    # Write the title and the note.
    style.set_title(figure, run_groups.describe_groups(groups) + _connections_in_words(groups))
    notes = [_shared_panels_note(facets), run_groups.failed_candidates(groups)]
    if note := "; ".join(filter(None, notes)):
        figure.supxlabel(textwrap.fill(note, _NOTE_CHARACTERS), fontsize=8, x=0.01, ha="left", color=INK)
    return figure


def _connections_in_words(groups: list[RunGroup]) -> str:
    """Return the number of connections in words, for the title; empty if candidates differ in this number."""
    # A count is None if the candidates of a group differ.
    counts = {(run_groups.constant_connections(group), run_groups.mask_unit(group.config)) for group in groups}
    if len(counts) > 1:
        return ""
    count, unit = counts.pop()
    return "" if count is None else f"; {count:,} {unit} throughout"


def _shared_panels_note(facets: list[Facet]) -> str:
    """Return a note about the lines, bands and marks of groups that share a panel.

    If a group is alone in its panels, labels explain them.
    """
    groups: list[RunGroup] = []
    has_bands, num_unnamed = False, 0
    for facet in facets:
        if len(facet.groups) > 1:
            groups += facet.groups
            has_bands |= not _is_crowded(facet)
            num_unnamed += sum(facet.styles[group.name] is _UNNAMED for group in facet.groups)
    notes = []
    has_seeds = any(len(group.runs) > 1 for group in groups)
    if has_seeds:
        bands = "lines and bands: median and quartiles of the seeds"
        notes.append(bands if has_bands else "lines: median of the seeds")
    if num_unnamed:
        notes.append(f"grey: {pluralize(num_unnamed, 'experiment')} that scored less")
    if any(_held_out(group)[1] for group in groups):
        notes.append(f"marks and bars: held-out mean and its 95 % interval over {'seeds' if has_seeds else 'episodes'}")
    return "; ".join(notes)


def _heights(facet: Facet, scale: float) -> list[float]:
    """Return the heights of an environment's panels in inches. Many labels need a higher first panel, of fitness."""
    heights = [scale * _HEIGHTS[kind] for kind in facet.kinds]
    if len(facet.groups) > 1:
        labels = [_label_of(facet, group) for group in facet.groups if facet.styles[group.name] is not _UNNAMED]
        heights[0] = max(heights[0], style.height_for_labels([*labels, _TRIANGLES_LABEL]))
    return heights


def _share_x_axis(panels: Sequence[Any], axis: str) -> None:
    """Make an environment's panels share the x axis. Its label is below the last panel."""
    for panel in panels[1:]:
        panel.sharex(panels[0])
    for panel in panels[:-1]:
        panel.tick_params(labelbottom=False)
    panels[-1].set_xlabel(AXES.get(axis, axis))  # "seconds" is its own label
    # Panels that share an axis share its ticks, so set them once.
    if axis == "generation":
        panels[-1].xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        panels[-1].xaxis.set_major_formatter(_plain_tick)
    elif axis == "steps":
        panels[-1].xaxis.set_major_formatter(_steps_formatter())
    panels[0].get_figure().align_ylabels(panels)


def _plain_tick(value: float, _position: int) -> str:
    """Return the text of a tick, such as "−1,250". The arguments are those that matplotlib passes."""
    # Rounding to 15 digits hides the errors of ticks like 0.30000000000000004, and keeps equal steps between ticks.
    return f"{value:,.15g}".replace("-", "\N{MINUS SIGN}")


def _steps_formatter() -> Any:
    """Return a formatter of matplotlib for ticks that count steps: "500k", "2M"."""
    return style.matplotlib("ticker").EngFormatter(sep="")


def _draw_panel(panel: Any, kind: str, facet: Facet, inches: float) -> None:
    """Draw one panel of an environment.

    kind: "fitness", "connections", "throughput" or "idle".
    inches: The approximate height of the panel.
    """
    # Write the title and the unit.
    title, unit = _title_and_unit(kind, facet.groups)
    is_alone = len(facet.groups) == 1
    if not is_alone and kind == "connections":
        title = f"{title}, best of each generation"
    elif not is_alone and kind == "fitness":
        series = " or\n".join(sorted({_fitness_series(group) for group in facet.groups}))
        unit = f"{unit}\n({series})"
    panel.set_title(title)
    panel.set_ylabel(unit)
    # Draw the curves. Only curves of fitness, and the connections of a single group, have labels.
    if is_alone and kind == "fitness":
        labels = _draw_fitness(panel, facet)
    elif is_alone and kind == "connections":
        labels = _draw_connections(panel, facet)
    else:
        labels = _draw_groups(panel, kind, facet)
    if kind == "fitness" and not any(np.isfinite(label.y) for label in labels):
        panel.set_yticks([])
        text = "no candidate has a fitness"
        panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", va="center", color=QUIET)
    # Set the ranges and the ticks of the axes. Labels come last, because they depend on the ranges.
    _set_x_range(panel, facet)
    if kind == "connections":
        highest = 1.06 * panel.dataLim.ymax  # keeps the line of an unpruned network off the edge
        panel.set_ylim(0, highest or 1)  # all numbers may be 0
    elif kind != "fitness":
        panel.set_ylim(bottom=0)
    panel.yaxis.set_major_formatter(_steps_formatter() if kind == "throughput" else _plain_tick)
    style.label_lines(panel, labels, inches)


def _set_x_range(panel: Any, facet: Facet) -> None:
    """Set the range of the x axis, even for a single generation, or if no generation has a value."""
    panel.margins(x=0.01)
    x = np.concatenate([facet.x(group) for group in facet.groups])
    if x.min() == x.max():  # a single generation: it is in the middle of the axis
        width = 1 if facet.axis == "generation" or x[0] == 0 else x[0]
        panel.set_xlim(x[0] - 0.5 * width, x[0] + 0.5 * width)
    elif not np.isfinite(panel.dataLim.intervaly).all():  # no generation has a value
        panel.set_xlim(x.min(), x.max())


def _title_and_unit(kind: str, groups: Sequence[RunGroup]) -> tuple[str, str]:
    """Return the title of a panel and the unit of its y axis."""
    # What a mask prunes: "connections", or "coefficients" of learning rules.
    pruned = " or ".join(dict.fromkeys(run_groups.mask_unit(group.config) for group in groups))
    fitness = textwrap.shorten(run_groups.fitness_in_words(groups), 3 * _UNIT_CHARACTERS, placeholder=" …")
    fitness = textwrap.fill(fitness, _UNIT_CHARACTERS)
    fitness += " less\nthe cost of connections" if run_groups.costs_connections(groups) else ""
    return {
        "fitness": ("Fitness", fitness),
        "connections": (f"{pruned.capitalize()} left", pruned.replace(" or ", "\nor ")),
        "throughput": ("Throughput", "steps/s"),
        "idle": ("Idle workers", "% of the time"),
    }[kind]


def _fitness_series(group: RunGroup) -> str:
    """Return the series that represents a group in comparisons: `_MEAN` for samples around a centre, else `_BEST`.

    A strategy such as openai-es samples all candidates around one centre, and its champion is the centre, or an average
    of centres. So the mean of the samples describes the champion. The best sample owes its fitness to its perturbation,
    and would be better with a larger σ.
    """
    try:
        # Only strategies that sample around one centre give all candidates the same mask.
        has_centre = strategies.shared_mask(group.config.strategy)
    except InputError:  # a strategy of a package that is not installed
        has_centre = False
    return _MEAN if has_centre else _BEST


def _draw_fitness(panel: Any, facet: Facet) -> list[LineLabel]:
    """Draw the best fitness and the population of one group; return the labels.

    The main line is the series that `_fitness_series` chooses, best or mean. The other series is dashed.
    """
    (group,) = facet.groups
    line_style = facet.styles[group.name]
    x = facet.x(group)
    num_seeds = len(group.runs)
    main = _fitness_series(group)
    other = _BEST if main == _MEAN else _MEAN
    quartiles = facet.quartiles(group, _SERIES[main])
    _, other_median, _ = facet.quartiles(group, _SERIES[other])
    labels = []
    # With several seeds the band is the spread of the seeds. A single seed has a band for its population.
    if num_seeds == 1:
        samples = [record.fitness for record in group.runs[0].records]
        low = clip_to_axis(np.array([quantile(sample, 0.1) for sample in samples]))
        high = clip_to_axis(np.array([quantile(sample, 0.9) for sample in samples]))
        # The band of a single generation has no width, so only its edge is seen.
        panel.fill_between(x, low, high, color=FAINT, alpha=0.25, lw=0 if len(x) > 1 else 6)
        labels.append(LineLabel("middle 80 % of the population", *_last_point(x, low), FAINT))
    _draw_median(panel, x, quartiles, line_style, num_seeds)
    other_label = _draw_dashed(panel, x, other_median, other + (" (median)" if num_seeds > 1 else ""))
    # Add the labels. If the held-out mean has no mark, it stands below the name of the main line.
    held_out, mark = _held_out(group)
    name = main
    if num_seeds > 1:
        name += f": median and quartiles of {pluralize(num_seeds, 'seed')}"
    if held_out and mark is None:
        name += f"\n{held_out}"
    labels.append(LineLabel(name, *_last_point(x, quartiles[1]), line_style["color"]))
    labels.append(other_label)
    labels += _mark_searches(panel, facet)
    if mark is not None:
        if mark.interval is not None and mark.interval[0] < mark.interval[1]:
            held_out += "\n(bar: 95 % interval)"
        labels.append(LineLabel(held_out, x[-1], mark.value, line_style["color"], mark))
    return labels


def _draw_connections(panel: Any, facet: Facet) -> list[LineLabel]:
    """Draw the connections of the best and of the median candidate of one group; return the labels."""
    (group,) = facet.groups
    line_style = facet.styles[group.name]
    x = facet.x(group)
    quartiles = facet.quartiles(group, generations.best_connections)
    _, best_median, _ = quartiles
    _, other_median, _ = facet.quartiles(group, generations.median_connections)
    _draw_median(panel, x, quartiles, line_style, len(group.runs))
    label = LineLabel("best of generation", x[-1], float(best_median[-1]), line_style["color"])
    return [label, _draw_dashed(panel, x, other_median, "median candidate")]


def _draw_groups(panel: Any, kind: str, facet: Facet) -> list[LineLabel]:
    """Draw one line for each group of an environment; return the labels of fitness lines."""
    quartiles = []
    for group in facet.groups:
        series = _SERIES[_fitness_series(group) if kind == "fitness" else kind]
        quartiles.append(facet.quartiles(group, series))
    # Lines that cover one another get dashes in turns, so that each is seen. A crowded panel has other dashes, which
    # distinguish lines of one colour.
    dashes = style.alternating_dashes([median for _, median, _ in quartiles], from_zero=kind != "fitness")
    is_crowded = _is_crowded(facet)
    if is_crowded:
        dashes = [{}] * len(dashes)
    has_seeds = any(len(group.runs) > 1 for group in facet.groups)
    labels = []
    for group, own_quartiles, own_dashes in zip(facet.groups, quartiles, dashes, strict=True):
        _, median, _ = own_quartiles
        line_style = facet.styles[group.name]
        x = facet.x(group)
        if own_dashes:  # join the dashes by a thin line
            panel.plot(x, median, color=line_style["color"], lw=0.7, zorder=1.9)
        # A crowded panel has no bands, as if each group had one seed.
        _draw_median(panel, x, own_quartiles, line_style | own_dashes, 1 if is_crowded else len(group.runs))
        if kind != "fitness" or line_style is _UNNAMED:
            continue
        _, mark = _held_out(group)
        # The interval of a single run is over its episodes, and would look more certain than intervals over seeds.
        if mark is not None and has_seeds and len(group.runs) == 1:
            mark = Mark(mark.value, None)
        end = _last_point(x, median)
        labels.append(LineLabel(_label_of(facet, group), *end, line_style["color"], mark, line_style["ls"]))
    if kind == "fitness":
        labels += _mark_searches(panel, facet)
    return labels


def _is_crowded(facet: Facet) -> bool:
    """Return whether an environment has more groups than colours. Bands of so many groups would cover one another."""
    return len(facet.groups) > len(COLOURS)


def _label_of(facet: Facet, group: RunGroup) -> str:
    """Return the label of one of several groups: its name, and its held-out mean in a second line.

    If groups differ in their number of seeds or in the drawn series, these follow the name.
    """
    details = []
    if len({len(each.runs) for each in facet.groups}) > 1:
        details.append(pluralize(len(group.runs), "seed"))
    if len(set(map(_fitness_series, facet.groups))) > 1:
        details.append("mean" if _fitness_series(group) == _MEAN else "best")
    text = style.unbroken(group.name)
    if details:
        in_one_line = ", ".join(details).replace(" ", "\N{NO-BREAK SPACE}")
        text += f" ({in_one_line})"
    held_out, _ = _held_out(group)
    return f"{text}\n{held_out}" if held_out else text


def _last_point(x: Float64, values: Float64) -> tuple[float, float]:
    """Return the last point of a line that has a value; y is NaN if no point has one."""
    known = np.flatnonzero(np.isfinite(values))
    last = known[-1] if len(known) else -1
    return float(x[last]), float(values[last])


def _mark_searches(panel: Any, facet: Facet) -> list[LineLabel]:
    """Mark the generations in which searches start, restart or begin a round of pruning: curves dip there.

    If the environment has a single group, a vertical line with a name marks each search that all runs of the group
    begin in the same generation. Triangles at the lower edge mark all other searches, and all searches if there is no
    space for the names. The returned label explains triangles.
    """
    across = panel.get_xaxis_transform()  # x in data, y as a share of the panel's height
    has_triangles = False
    for group in facet.groups:
        begun = _begun_searches(facet, group)
        # Take the median over the runs. The curve ends with the shortest run, so leave out searches that begin later.
        end = facet.x(group)[-1]
        places = {search: float(np.median(begun[search])) for search in sorted(begun)}
        places = {search: place for search, place in places.items() if place <= end}
        named: list[tuple[int, str]] = []
        if len(facet.groups) == 1:
            shared = [search for search in places if len(begun[search]) == len(group.runs)]
            if _have_space(panel, facet.x(group), [places[search] for search in shared]):
                named = shared
        for search, place in places.items():
            if search in named:
                _, kind = search
                panel.axvline(place, color=FAINT, lw=0.9, ls=":", zorder=1)
                panel.text(place, 1.01, kind, transform=across, ha="center", va="bottom", fontsize=8, color=INK)
            else:
                colour = facet.styles[group.name]["color"]
                panel.plot(place, 0.025, "^", color=colour, ms=5, mew=0, transform=across, zorder=3)
                has_triangles = True
    if not has_triangles:
        return []
    # The label has no pointer to the lower edge, because a pointer there would look like a longer axis.
    last = max(float(facet.x(group)[-1]) for group in facet.groups)
    return [LineLabel(_TRIANGLES_LABEL, last, panel.get_ylim()[0], FAINT, sample="")]


def _begun_searches(facet: Facet, group: RunGroup) -> dict[tuple[int, str], list[float]]:
    """Return the x coordinates at which the runs of a group begin searches, between two generations.

    A key is a search: its first generation, and its kind. A run that does not have the search has no x coordinate.
    """
    begun: dict[tuple[int, str], list[float]] = {}
    for run in group.runs:
        x = facet.x_of_run(run)
        for first, kind in set(_searches(run, group.config)):
            if first < len(x):
                begun.setdefault((first, kind), []).append(x[first - 1 : first + 1].mean())
    return begun


def _have_space(panel: Any, x: Float64, places: Sequence[float]) -> bool:
    """Return whether names of searches at these places are few and far enough apart. x: [n], of the whole curve."""
    panel_inches = _PANEL_SHARE * panel.get_position().width * style.WIDTH
    # A gap has gap / length · panel_inches inches. The length may be 0, so compare without dividing by it.
    gaps, length = np.diff(places), x[-1] - x[0]
    return len(places) <= _MOST_NAMED and bool((gaps * panel_inches >= _NAME_INCHES * length).all())


def _searches(run: StoredRun, config: Config) -> list[tuple[int, str]]:
    """Return the first generation and the kind of each search of a run, without its first search.

    See `strategies.searches`.

    The list is empty for an unknown strategy.
    """
    try:
        return strategies.searches(config.strategy, run_groups.fitness_of_played(run, config))
    except InputError:
        return []


def _held_out(group: RunGroup) -> tuple[str, Mark | None]:
    """Return the held-out mean of a group in words, and as a mark with an interval; "" and None without evaluation.

    There is no mark if the user has defined the fitness by a function, or if the cost of connections is subtracted from
    the fitness: then returns do not belong on the axis of the fitness.
    """
    held_out = comparison.held_out_score(group)
    if held_out is None:
        return "", None
    score, interval, _ = held_out
    text = number(score).replace("-", "−")
    if not run_groups.selects_by_return(group):
        # The axis shows fitness, and fitness is not the mean return. So the text says that this number is a return.
        return f"held-out mean return {text}", None
    value, low, high = clip_to_axis(np.array([score, *(interval or (score, score))])).tolist()
    return f"held-out mean {text}", Mark(value, (low, high) if interval else None)


def _draw_median(panel: Any, x: Float64, quartiles: Quartiles, line_style: LineStyle, num_seeds: int) -> None:
    """Draw a median, and the band between the quartiles if there are several seeds."""
    low, median, high = quartiles
    if num_seeds > 1:
        panel.fill_between(x, low, high, color=line_style["color"], alpha=0.18, lw=0)
    _draw_line(panel, x, median, **line_style)


def _draw_line(panel: Any, x: Float64, values: Float64, **line_style: Any) -> None:
    """Draw a line; a value without a neighbour is a point."""
    # Pad with NaN, so that the first and the last value have two neighbours, too.
    known = np.isfinite(np.pad(values, 1, constant_values=np.nan))
    # A value is alone if it is known, but neither the value before it nor the value after it.
    alone = np.flatnonzero(known[1:-1] & ~known[:-2] & ~known[2:])
    panel.plot(x, values, marker="o" if len(alone) else "", markevery=alone.tolist(), ms=4, **line_style)


def _draw_dashed(panel: Any, x: Float64, values: Float64, name: str) -> LineLabel:
    """Draw the dashed line of a group; return its label, which begins with its name.

    Dashes between many points would run together and cover all else, so points of a long line are means of neighbours.
    """
    if len(x) > _MOST_DASHED:
        size = ceil_div(len(x), _MOST_MEANS)
        name += f"\n(means of {size:,} points)"
        parts = [slice(first, first + size) for first in range(0, len(x), size)]
        x = np.array([mean(x[part]) for part in parts])
        values = np.array([mean(values[part]) for part in parts])
    _draw_line(panel, x, values, color=INK, lw=1.1, ls="--")
    return LineLabel(name, *_last_point(x, values), INK)


# The series of fitness by their names, and the series of the other panels by the kinds of the panels.
_SERIES: dict[str, Series] = {
    _BEST: lambda run: [record.champion_fitness for record in run.records],
    _MEAN: lambda run: [mean(record.fitness) for record in run.records],
    "connections": generations.best_connections,
    # NaN for a generation without a time.
    "throughput": lambda run: [record.steps / (record.seconds or np.nan) for record in run.records],
    "idle": generations.idle_percentages,
}
