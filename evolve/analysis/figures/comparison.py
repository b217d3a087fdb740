"""Figures of runs: `draw_comparison`, `draw_returns`, `draw_load`, `draw_front` and `draw_archive`.

They show the scores of groups of runs, the held-out returns of champions, the load of ranks, the fronts of runs of
nsga2, and the archive of a run of map-elites. `curves` has the other figure of runs, over generations.
"""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from evolve import environments
from evolve.analysis import statistics
from evolve.analysis.champion import Front, front_history, missing_error, names_of_measures
from evolve.analysis.comparison import Comparison, Ranking
from evolve.analysis.figures import style
from evolve.analysis.figures.style import COLOURS, FAINT, GRID, INK, PAPER, QUIET, clip_to_axis
from evolve.analysis.run_groups import group_runs, seeds_in_words
from evolve.config import observation_index
from evolve.errors import InputError, sanitize
from evolve.shapes import Float64
from evolve.store import StoredRun
from evolve.strategies import VectorLayout, from_table
from evolve.strategies.map_elites import MapElites
from evolve.strategies.nsga2 import hypervolume
from evolve.training import config_of, reload_policy

_NAME_CHARACTERS = 34  # in one line of a group's name
_TITLE_CHARACTERS = 50  # in one line of the title of a panel
_NOTE_CHARACTERS = 118  # in one line of a note
# The header of each column of numbers beside a panel, and its least width in inches.
_COLUMNS = (("mean", 0.75), ("95 % interval", 1.4), ("against {}", 1.05))  # {}: the reference of the ranking
_CHARACTER_WIDTH = 0.076  # in inches, in a column of numbers
_MOST_NAMED = 8  # bars of ranks that have names and numbers; more bars are thin, without names
_MOST_BINS = 41
MOST_PANELS = 10
"""The largest number of runs that have a panel each. More panels could not be compared, and take minutes to draw."""
# The fronts of a single run after these shares of its generations are drawn, too.
_EARLIER = (0.02, 0.1, 0.3)
_MARKERS = "os^v"  # of fronts, in turn
MOST_EDGED = 40
"""If a heat map has more cells along an axis, its cells have no edges."""
_MOST_VOLUMES = 400  # the hypervolume is computed for at most this number of generations, evenly spaced
# The ratio of an axis of measures: the largest measure, divided by max(1, the smallest positive measure).
_LEAST_LOG_RATIO = 30.0  # an axis of a larger ratio is logarithmic
_MANY_DECADES = 1e4  # from this ratio on, the axis has one tick per decade


@style.styled
def draw_comparison(ranking: Ranking) -> Any:
    """Return the figure of a comparison: a panel for each environment, a row for each group.

    A row shows the scores of the seeds, the mean, and the interval of the mean. Beside it are the numbers.
    """
    # Group the rows by environment, and break names and notes into lines.
    envs = list(dict.fromkeys(row.env for row in ranking.rows))
    rows_of_envs = [[row for row in ranking.rows if row.env == env] for env in envs]
    names = {row.label: textwrap.fill(style.unbroken(sanitize(row.name)), _NAME_CHARACTERS) for row in ranking.rows}
    notes = [textwrap.fill(sanitize(note), _NOTE_CHARACTERS) for note in ranking.notes]
    # Make the panels. Heights are in inches: a row has space for the longest name, and the figure for its title, axis
    # label and notes.
    most_lines = 1 + max(name.count("\n") for name in names.values())
    row_height = max(0.4, 0.08 + 0.17 * most_lines)
    heights = [0.5 + row_height * len(rows) for rows in rows_of_envs]
    num_note_lines = sum(1 + note.count("\n") for note in notes)
    figure = style.new_figure(sum(heights) + 1.0 + 0.16 * num_note_lines)
    panels = figure.subplots(len(envs), 1, squeeze=False, height_ratios=heights)[:, 0]
    # Find the right edges of the columns. The last column is left out if no row is compared with the reference.
    columns = zip(*map(_cells, ranking.rows), strict=True)
    widths = []
    for texts, (_, least_width) in zip(columns, _COLUMNS, strict=True):
        widths.append(max(least_width, 0.2 + _CHARACTER_WIDTH * max(map(len, texts))))
    if not any(row.against_reference for row in ranking.rows):
        widths.pop()
    right_edges = np.cumsum(widths).tolist()
    # Draw the panels, and write the notes below and the title above them.
    for panel, env, rows in zip(panels, envs, rows_of_envs, strict=True):
        _draw_rows(panel, rows, [names[row.label] for row in rows], right_edges, ranking.reference)
        if len(envs) > 1:
            # The title stands above the headers of the columns, because a long title would cover them.
            title = textwrap.fill(sanitize(env), _TITLE_CHARACTERS)
            panel.set_title(title, pad=17)
            figure.set_figheight(figure.get_figheight() + 0.2 + 0.17 * title.count("\n"))
    panels[-1].set_xlabel(ranking.score)
    if notes:
        figure.supxlabel("\n".join(notes), fontsize=8, x=0.01, ha="left", color=INK)
    band = ", the band its 95 % interval" if any(row.interval for row in ranking.rows) else ""
    style.set_title(figure, f"{', '.join(envs)}: each dot is a seed, the diamond their mean{band}")
    return figure


def _cells(row: Comparison) -> tuple[str, str, str]:
    """Return the texts of a row in the columns of numbers, `_COLUMNS`."""
    _, mean, interval, against_reference = row.cells
    return mean.replace("-", "−"), interval.replace("-", "−"), against_reference


def _draw_rows(
    panel: Any, rows: Sequence[Comparison], names: Sequence[str], right_edges: Sequence[float], reference: str
) -> None:
    """Draw the rows of one environment. Each row has a name at the left, and numbers at the right.

    right_edges: the right edges of the columns of numbers, in inches from the panel.
    """
    for y, row in enumerate(rows):
        if len(row.scores):
            _draw_row(panel, y, row)
    # Without any score the x axis has no meaning.
    if not any(len(row.scores) for row in rows):
        panel.set_xticks([])
        panel.text(0.5, 0.5, "no score", transform=panel.transAxes, ha="center", va="center", color=QUIET)
    panel.set_yticks(range(len(rows)), names)
    # The y axis points down, so that the best group, the first row, is at the top.
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.margins(x=0.04)
    panel.ticklabel_format(axis="x", useOffset=False)
    panel.xaxis.get_major_locator().set_params(nbins=5)
    panel.grid(False, axis="y")
    panel.tick_params(axis="y", length=0)
    for n, right_edge in enumerate(right_edges):
        _write(panel, _COLUMNS[n][0].format(reference), -0.5, right_edge, "bottom", QUIET)
        for y, row in enumerate(rows):
            _write(panel, _cells(row)[n], y, right_edge, "center", INK)


def _write(panel: Any, text: str, y: float, right_edge: float, va: str, colour: str) -> None:
    """Write a text beside the panel. right_edge: the distance between its right edge and the panel, in inches."""
    panel.text(1.0, y, text, transform=style.beside(panel, right_edge), ha="right", va=va, fontsize=8.5, color=colour)


def _draw_row(panel: Any, y: int, row: Comparison) -> None:
    """Draw the interval as a band, the mean as a diamond, and the scores as dots."""
    if row.interval is not None:
        panel.plot(
            clip_to_axis(np.array(row.interval)), (y, y), color=COLOURS[0], lw=7, alpha=0.25, solid_capstyle="butt"
        )
    panel.plot(clip_to_axis(np.array(row.mean)), y, "D", color=COLOURS[0], ms=8, mew=0)
    scores = clip_to_axis(np.sort(row.scores))
    panel.plot(scores, y + _spread_apart(scores), "o", color=COLOURS[5], ms=5, mec=INK, mew=0.8)
    # A pale edge around the diamond, drawn below the dots.
    panel.plot(clip_to_axis(np.array(row.mean)), y, "D", ms=8, mfc="none", mec=PAPER, mew=0.6, zorder=1.5)


def _spread_apart(scores: Float64) -> Float64:
    """Return the vertical offsets [n] of sorted scores [n] that keep the dots of nearly equal scores apart."""
    span = float(np.ptp(scores)) or 1.0
    # Places are whole numbers, 0 in the middle of the row. Each dot takes the free place nearest to 0. Only the dots of
    # nearly equal scores, the earlier scores from number `first` on, occupy places.
    offsets = np.zeros(len(scores))
    for n, first in enumerate(np.searchsorted(scores, scores - 0.02 * span)):
        taken = set(offsets[first:n])
        offsets[n] = min(set(range(-n, n + 1)) - taken, key=lambda place: (abs(place), -place))
    # Rows are 1 apart. A high stack is squeezed into its row.
    largest = max(float(np.abs(offsets).max()), 1.0)
    return offsets * min(0.16, 0.36 / largest)


@style.styled
def draw_returns(samples: Sequence[tuple[str, Float64]]) -> Any:
    """Return histograms of the finite returns [N] of named champions, with means and their intervals.

    More than `MOST_PANELS` champions have one histogram together, of their mean returns.
    """
    counted, axis = "episodes", "return of an episode"
    if len(samples) > MOST_PANELS:
        counted, axis = "champions", "mean return of a champion"
        samples = [("", np.array([statistics.mean(returns) for _, returns in samples]))]
    samples = [(name, clip_to_axis(returns)) for name, returns in samples]
    figure = style.new_figure(0.6 + 1.25 * len(samples))
    panels = figure.subplots(len(samples), 1, squeeze=False, sharex=True)[:, 0]
    # All histograms have the same bins and the same axis, so that they can be compared.
    edges = _edges_of_bins(np.concatenate([returns for _, returns in samples]))
    for panel, (name, returns) in zip(panels, samples, strict=True):
        panel.hist(returns, edges, color=COLOURS[4], edgecolor=PAPER, linewidth=0.5)
        interval = statistics.interval_of_returns(returns)
        if interval is not None:
            panel.axvspan(*interval, color=COLOURS[0], alpha=0.2, lw=0, label="95 % interval of the mean")
        panel.axvline(statistics.mean(returns), color=PAPER, lw=3.4)  # an edge between the line and the bars
        panel.axvline(statistics.mean(returns), color=INK, lw=1.8, label="mean")
        panel.set_ylabel(counted)
        panel.yaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        panel.grid(False, axis="x")
        if len(samples) > 1:
            panel.set_title(name)
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper right", ncols=2, fontsize=8.5)
    panels[-1].set_xlabel(axis)
    panels[-1].ticklabel_format(axis="x", useOffset=False)
    return figure


def _edges_of_bins(returns: Float64) -> Float64:
    """Return the edges of a histogram of finite returns [N]."""
    bins = max(10, int(2 * len(returns) ** 0.5))
    # `| 1` makes the number of bins odd, so that the bar of equal returns is in the middle of the axis.
    bins = min(_MOST_BINS, bins | 1)
    low, high = float(returns.min()), float(returns.max())
    # If returns differ only by rounding errors, edges could be equal. So a bin is at least four times as wide as the
    # distance between neighbouring float64 numbers.
    least = 4 * bins * float(np.spacing(max(abs(low), abs(high))))
    if high - low < least:
        low, high = low - max(least, 0.5), high + max(least, 0.5)
    return np.linspace(low, high, bins + 1)


@style.styled
def draw_load(runs: Sequence[tuple[str, StoredRun]]) -> Any:
    """Return the figure of the load of named runs: the busy time of each rank in front of the time of all generations.

    More than `MOST_PANELS` runs have one panel together, with the sums of their times.
    """
    # For each run the busy seconds of its ranks. A rank that was absent from a generation has NaN there.
    busy = [np.nan_to_num([record.busy_seconds for record in run.records]).sum(axis=0) for _, run in runs]
    # A damaged run file may hold NaN, or no time at all, but an axis needs a length.
    totals = [float(np.nan_to_num([record.seconds for record in run.records]).sum()) or 1.0 for _, run in runs]
    names = [name for name, _ in runs]
    if len(runs) > MOST_PANELS:
        most_ranks = max(map(len, busy))  # runs may differ in their number of ranks
        busy = [np.sum([np.pad(ranks, (0, most_ranks - len(ranks))) for ranks in busy], axis=0)]
        totals, names = [sum(totals)], [f"sum of {len(runs):,} runs"]
    heights = [0.45 + 0.27 * len(ranks) if len(ranks) <= _MOST_NAMED else 1.7 for ranks in busy]
    figure = style.new_figure(sum(heights) + 0.4)
    panels = figure.subplots(len(busy), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, ranks, total, name in zip(panels, busy, totals, names, strict=True):
        _draw_ranks(panel, ranks, total)
        if len(runs) > 1:
            panel.set_title(name)
    panels[-1].set_xlabel("seconds")
    return figure


def _draw_ranks(panel: Any, busy: Float64, total: float) -> None:
    """Draw the busy seconds [ranks] as bars in front of the total time. Bars of few ranks have names and numbers."""
    ranks = np.arange(len(busy))
    thickness = 0.72 if len(busy) <= _MOST_NAMED else 1.0
    panel.barh(ranks, total, color=GRID, height=thickness)
    panel.barh(ranks, busy, color=COLOURS[0], height=thickness)
    panel.invert_yaxis()
    panel.margins(0.0, 0.02)
    panel.grid(False)
    panel.tick_params(axis="y", length=0)
    panel.spines[["left", "bottom"]].set_visible(False)
    if len(busy) > _MOST_NAMED:
        panel.set_ylabel("rank")
        panel.yaxis.get_major_locator().set_params(integer=True)
        return
    for rank, seconds in enumerate(busy):
        # With several ranks, rank 0 usually plays no episodes.
        words = f"{seconds:,.2f} s, {100 * seconds / total:.0f} %" if rank or seconds else "coordinates"
        # The words begin at the end of the bar. They stay in the panel: inside a long bar, and beside a short one.
        inside_bar = seconds > 0.5 * total
        points, side, colour = (-5, "right", PAPER) if inside_bar else (5, "left", INK)
        place = {"xytext": (points, 0), "textcoords": "offset points", "ha": side, "va": "center"}
        panel.annotate(words, (seconds, rank), **place, fontsize=8.5, color=colour)
    panel.set_yticks(ranks, [f"rank {rank}" for rank in ranks])


@style.styled
def draw_front(runs: Sequence[StoredRun]) -> Any:
    """Return the figure of the fronts of runs of nsga2: fitness over the first measure, and hypervolume by generation.

    The last front of each run is drawn, and of a single run also some earlier fronts. A diamond marks the best fitness.
    The hypervolume is the area that a front dominates, as a share of a rectangle. One corner of the rectangle has the
    worst fitness and measure of all fronts of all runs, the opposite corner the best.

    Raises InputError if a run has no front, or if the environments or the objectives of the runs differ.
    """
    histories = [[_points(front) for front in front_history(run)] for run in runs]  # for each run, of each generation
    for run, fronts in zip(runs, histories, strict=True):
        if not len(fronts[-1]):
            raise InputError(str(run.path), "a front after the last generation", "none, as every candidate failed")
    goals = sorted(set(map(_goals, runs)))
    if len(goals) > 1:
        raise InputError("FILE", "runs of one environment with the same objectives", " and ".join(goals))
    measure, *others = (_in_words(name, runs[0]) for name in names_of_measures(runs[0]))
    # Measures to minimize come before measures to maximize, so the first one is minimized if any is.
    minimizes = bool(config_of(runs[0]).strategy.table().get("minimize"))
    # A front with more than two objectives is not a line in this plane.
    no_line = {"ls": "none"} if others else {}
    figure = style.new_figure(6.2)
    top, bottom = figure.subplots(2, 1, height_ratios=(2.2, 1))
    if len(runs) == 1 and not others:
        _draw_earlier(top, histories[0], minimizes)
    # Draw the last fronts. Equal fronts would hide one another, so their dashes alternate. Of equal diamonds, the later
    # ones are smaller.
    last = [fronts[-1] for fronts in histories]
    dashes = style.alternating_dashes([front[:, 0] for front in last])
    bests = [front[int(np.argmax(front[:, 0]))] for front in last]
    for n, (label, front) in enumerate(zip(_front_labels(runs), last, strict=True)):
        marker = _MARKERS[n % len(_MARKERS)]
        appearance = {**style.line_style(n), **dashes[n], "lw": 1.8, "marker": marker, "ms": 3.5, **no_line}
        _draw_steps(top, front, minimizes, label=style.legend_label(label), **appearance)
        fitness, best_measure = bests[n]
        size = 8 + 4 * min(3, sum(np.array_equal(bests[n], later) for later in bests[n + 1 :]))
        top.plot(best_measure, fitness, "D", ms=size, color=appearance["color"], mec=PAPER, mew=1.0, zorder=5)
    # Label the axes. Only numbers of connections are always whole.
    is_count = "connections" in measure
    top.xaxis.get_major_locator().set_params(integer=is_count)
    _set_scale(top)
    smaller, larger = ("fewer", "more") if is_count else ("lower", "higher")
    top.set_xlabel(f"{measure} ({smaller if minimizes else larger} is better)")
    top.set_ylabel("mean fitness")
    omitted = f" (without {', '.join(others)})" if others else ""
    # Without lines, the marker of a legend could be taken for a genome. So a single front is named in the title.
    if len(runs) == 1 and others:
        top.set_title(f"Front of {_front_labels(runs)[0]}{omitted}; ◆ best fitness")
    else:
        top.set_title(f"Front{omitted}; ◆ best fitness")
        # Fronts can lie anywhere, so no fixed place is free for the legend. Its lines are long enough for two dashes.
        top.legend(loc="best", fontsize=8, handlelength=3.2)
    _draw_volumes(bottom, histories, minimizes)
    bottom.set_title(f"Hypervolume{omitted}")
    _set_title(figure, runs)
    return figure


def _goals(run: StoredRun) -> str:
    """Return the environment and the objectives of a run of nsga2, in words."""
    config = config_of(run)
    options = config.strategy.table()
    goals = [f"{verb} {name}" for verb in ("minimize", "maximize") for name in options[verb]]
    return f"{config.env.id}: {', '.join(goals)}"


def _front_labels(runs: Sequence[StoredRun]) -> list[str]:
    """Return the label of each run's last front: its generation if there is a single run, its seed, or its file."""
    if len(runs) == 1:
        return [f"generation {runs[0].num_generations - 1}"]
    seeds = [f"seed {run.header.seed}" for run in runs]
    # Seeds are labels only if each run has its own seed, and all runs are of one experiment.
    if len(set(seeds)) == len(seeds) and len(group_runs({run: config_of(run) for run in runs})) == 1:
        return seeds
    return statistics.short_names([run.path for run in runs])


def _set_title(figure: Any, runs: Sequence[StoredRun]) -> None:
    """Put the environments, networks, strategies and seeds of runs above a figure."""
    configs = map(config_of, runs)
    names = dict.fromkeys(f"{config.env.id}, {config.network.name}, {config.strategy.name}" for config in configs)
    style.set_title(figure, f"{' and '.join(names)}, {seeds_in_words(runs)}")


def _points(front: Front) -> Float64:
    """Return the fitness and the first measure of the N genomes of a front, [N, 2], from the least measure up."""
    return clip_to_axis(np.column_stack([front.fitness, front.measures[:, 0]]))


def _draw_steps(panel: Any, points: Float64, minimizes: bool, **appearance: Any) -> None:
    """Draw a front as the border of the region that it dominates."""
    # The measure ascends along the points. If the measure is minimized, a point dominates the region on its right.
    panel.plot(points[:, 1], points[:, 0], drawstyle="steps-post" if minimizes else "steps-pre", **appearance)


def _draw_earlier(panel: Any, fronts: Sequence[Float64], minimizes: bool) -> None:
    """Draw some earlier fronts of a run. fronts: the front of each generation."""
    last = len(fronts) - 1
    # In a short run, an earlier front may be the last one, which is drawn already.
    earlier = {int(share * last) for share in _EARLIER} - {last}
    for generation, colour, dashes in zip(sorted(earlier), (FAINT, FAINT, INK), (":", "--", "-"), strict=False):
        appearance = {"color": colour, "ls": dashes, "lw": 1.0}
        if len(fronts[generation]) == 1:
            appearance["marker"] = "."
        _draw_steps(panel, fronts[generation], minimizes, label=f"generation {generation}", **appearance)


def _set_scale(panel: Any) -> None:
    """Make the x axis logarithmic if the measures differ much."""
    measures = np.concatenate([line.get_xdata() for line in panel.lines])
    positive = measures[measures > 0]
    if len(positive) and measures.min() >= 0 and positive.max() > _LEAST_LOG_RATIO * max(1.0, positive.min()):
        linear = max(1.0, float(positive.min()))
        # The part of a "symlog" axis from 0 to `linear` is linear, so that measures of 0 have a place.
        panel.set_xscale("symlog", linthresh=linear, linscale=0.4)
        ticker = style.matplotlib("ticker")
        # An axis of few decades needs more ticks: also at 2 and 5 times a power of ten.
        steps = (1, 2, 5) if positive.max() < _MANY_DECADES * linear else (1,)
        panel.xaxis.set_major_locator(ticker.SymmetricalLogLocator(base=10, linthresh=linear, subs=steps))
        panel.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:,g}"))


def _draw_volumes(panel: Any, histories: Sequence[Sequence[Float64]], minimizes: bool) -> None:
    """Draw the hypervolume over generations, a line for each run. All runs have one reference point."""
    # With these signs, larger is better in both objectives.
    signs = np.array([1.0, -1.0 if minimizes else 1.0])
    points = np.concatenate([np.concatenate(fronts) for fronts in histories]) * signs
    best, reference = points.max(axis=0), points.min(axis=0)
    # The area of the rectangle is 0 if all points are equal in one of the objectives.
    whole = float(np.prod(best - reference)) or 1.0
    for n, fronts in enumerate(histories):
        shown = np.unique(np.linspace(0, len(fronts) - 1, _MOST_VOLUMES).astype(int))
        shares = [hypervolume(fronts[generation] * signs, reference) / whole for generation in shown]
        _draw_over_generations(panel, shown, shares, **style.line_style(n))
    panel.set_ylim(0, 1.02)
    panel.set_ylabel("share")


def _draw_over_generations(panel: Any, generations: Any, values: Any, **appearance: Any) -> None:
    """Draw a line over generations. A single value is a point in the middle of the panel."""
    is_point = len(generations) == 1
    panel.plot(generations, values, **appearance, marker="o" if is_point else "", ms=4, clip_on=not is_point)
    panel.set_xlabel("generation")
    panel.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    if not panel.dataLim.width:
        panel.set_xlim(-0.5, 0.5, auto=True)  # a longer line that is drawn later still extends the axis


@style.styled
def draw_archive(run: StoredRun) -> Any:
    """Return the figure of the archive of a run of map-elites: a heat map, and the growth of its filled cells.

    The axes of the map are the first two descriptors. The colour is the best fitness over all other descriptors.

    Raises InputError if the run has no archive.
    """
    config = config_of(run)
    # Only the grid and the bounds of the strategy are needed. They follow from the settings and the number of weights.
    # So any seed will do, and no network is made.
    strategy = from_table(config.strategy, VectorLayout(run.records[0].champion_weights.size), config.population, 0)
    # A strategy of another package may have archives, too.
    if run.records[-1].archive is None or not isinstance(strategy, MapElites):
        raise missing_error(run, "archive")
    archives = np.stack([clip_to_axis(record.archive) for record in run.records if record.archive is not None])
    # An archive of one descriptor is a row of cells, which needs little height.
    height = 4.8 if len(strategy.grid) > 1 else 1.0
    figure = style.new_figure(height + 2.6)
    top, bottom = figure.subplots(2, 1, height_ratios=(height, 1.5))
    _draw_cells(top, archives[-1], strategy, [_in_words(name, run) for name in strategy.measured])
    filled = np.count_nonzero(~np.isnan(archives), axis=1)
    _draw_over_generations(bottom, np.arange(len(filled)), filled, color=COLOURS[0])
    bottom.set_ylim(0, max(1.0, bottom.get_ylim()[1]))
    bottom.set_ylabel("filled cells")
    bottom.set_title(f"{filled[-1]:,} of {archives.shape[1]:,} cells filled")
    bottom.yaxis.get_major_locator().set_params(integer=True)
    _set_title(figure, [run])
    return figure


def _in_words(measure: str, run: StoredRun) -> str:
    """Return a measure of a run as a label: "mean_observation_2" of CartPole is "mean pole angle"."""
    index = observation_index(measure)
    if index is None:
        return measure.replace("_", " ")
    experiment = reload_policy(run)
    size = experiment.network.observation_size
    names, _ = environments.labels(run.header.env, size, 1, experiment.spaces)
    return f"mean {names[index]}"


def _draw_cells(panel: Any, archive: Float64, strategy: MapElites, names: Sequence[str]) -> None:
    """Draw the cells of an archive [C] by fitness, with a diamond at the best. names: the labels of the descriptors."""
    sizes = strategy.grid.tolist()
    fitness = archive.reshape(sizes)
    # Take the best over all other descriptors. fmax ignores NaN, and changes nothing without axes to reduce.
    fitness = np.fmax.reduce(fitness, axis=tuple(range(2, len(sizes))))
    # The borders of the cells along both axes. A single descriptor gives one row of cells, from 0 to 1.
    ranges = zip(strategy.bounds.tolist(), sizes, strict=True)
    x, *others = (np.linspace(low, high, size + 1) for (low, high), size in ranges)
    y = others[0] if others else np.array([0.0, 1.0])
    fitness = fitness.reshape(len(x) - 1, len(y) - 1)
    filled = np.ma.masked_invalid(fitness)
    # Edges would cover small cells. Many cells are drawn as pixels, because a path for each would make a large file.
    is_fine = max(fitness.shape) > MOST_EDGED
    appearance = {"rasterized": True} if is_fine else {"edgecolors": PAPER, "linewidth": 0.6}
    # The rows of `pcolormesh` are along y, and the rows of `fitness` are along x.
    mesh = panel.pcolormesh(x, y, filled.T, cmap="viridis", **appearance)
    if filled.count():
        row, column = np.unravel_index(int(np.nanargmax(fitness)), fitness.shape)
        panel.plot(
            x[row : row + 2].mean(), y[column : column + 2].mean(), "D", ms=7, color=COLOURS[1], mec=PAPER, mew=1.0
        )
        panel.get_figure().colorbar(mesh, ax=panel, label="fitness")
    panel.grid(visible=False)
    panel.axvspan(x[0], x[-1], color=GRID, lw=0, zorder=0)  # behind empty cells; `to_svg` drops backgrounds
    panel.set_xlabel(names[0])
    if len(sizes) > 1:
        panel.set_ylabel(names[1])
    else:
        panel.set_yticks([])
    omitted = f" (best over {', '.join(names[2:])})" if len(names) > 2 else ""
    panel.set_title(f"Archive{omitted}; ◆ best fitness, grey: empty")
