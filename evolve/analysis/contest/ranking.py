"""The comparison of machines by their contest files: times and costs, as numbers and as a figure.

`rank` reads files and returns compared rows. `draw` makes a figure of them. `benchmark_2020` compares a machine with
times that were published in 2020. `evolve.analysis.contest` defines legs and passes, and `results` the files.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evolve.analysis import contest, statistics
from evolve.analysis.contest import results
from evolve.analysis.figures import style
from evolve.analysis.figures.style import COLOURS, FAINT, INK, PAPER
from evolve.errors import InputError, sanitize

STEPS_OF_2020 = 228_539_753
"""The environment steps of the 200 generations of the benchmark of 2020, counted with the seed of the contest size
"large". The number depends on the seed."""
_PUBLISHED = "3,491 s (24 cores), 6,666 s (64 vCPUs)"

_MARKERS = "os^Dv<"  # of matplotlib: one for each machine
# Heights in inches.
_CURVES_HEIGHT = 3.1  # of the upper panels
_BAR_HEIGHT = 0.42  # of a bar and the space around it
_NAME_LINE_HEIGHT = 0.17  # of one line of a name
_AXES_HEIGHT = 0.9  # of the titles and the x axes of the lower panels
_TITLE_HEIGHT = 0.5  # of the title of the figure
_MOST_LABELS = 10  # along the axis of workers
_NAME_CHARACTERS = 26  # in each line of a name beside a bar; a name in the legend may have twice as many
# The box behind a number hides the lines that would cross the number.
_NUMBER_BOX = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
_AXIS_LENGTH = 1.25  # times the longest bar, to leave space for the numbers beside the bars


@dataclass(frozen=True)
class RankedRow:
    """A measurement of a machine (`ContestRow`), compared with the fastest row of the first machine, the reference.

    A machine has a row for each timed number of workers, and a row for its GPU.

    Attributes:
        machine: The name of the machine. No two machines of a ranking have the same name.
        measured: The measurement.
        verdict: The verdict on the contest file of the machine, by `ContestFile.assess`.
        speedup: The time of one worker on the machine's processor, divided by the time of this row. None if one worker
            was not timed.
        price: The price of an hour of the machine; None if no price was given.
        ratio: The geometric mean of the times of this row's repeats, divided by the same mean of the reference.
        interval: The 95 % interval of the ratio; None for the reference, and for a single repeat.
    """

    machine: str
    measured: results.ContestRow
    verdict: str
    speedup: float | None
    price: results.Price | None
    ratio: float
    interval: statistics.Interval | None


@dataclass(frozen=True)
class ContestRanking:
    """The compared rows of several machines, and the version and the size of their contest."""

    version: int
    size: str
    rows: tuple[RankedRow, ...]

    @property
    def machines(self) -> list[str]:
        """The names of the machines, in the order of their files."""
        return list(dict.fromkeys(row.machine for row in self.rows))

    def rows_of(self, machine: str) -> list[RankedRow]:
        """Return the rows of a machine."""
        return [row for row in self.rows if row.machine == machine]


def rank(paths: Sequence[Path]) -> ContestRanking:
    """Compare the machines of contest files. The rows keep the order of the files.

    Raises InputError if a file cannot be read, or has another version, size or work than the first one.
    """
    files = [results.read(path) for path in paths]
    first = files[0]
    for path, other in zip(paths, files, strict=True):
        # Check the version first, because `leg_difference` needs the same legs in both files.
        if other.contest != first.contest:
            expected = f"a file of contest {first.contest}, as {paths[0]} is"
            raise InputError(str(path), expected, f"one of contest {other.contest}", "Compare files of one version.")
        if other.size != first.size:
            raise InputError(str(path), f"size {first.size}, as {paths[0]} has", other.size, "Compare one size.")
        if difference := results.leg_difference(first.legs, other.legs):
            raise InputError(str(path), f"the work of {paths[0]}", f"different work ({difference})")
    names = _distinct([file.name for file in files])
    rows: list[RankedRow] = []
    for name, file in zip(names, files, strict=True):
        rows += rank_rows(name, file, first.best)
    return ContestRanking(first.contest, first.size, tuple(rows))


def rank_rows(machine: str, file: results.ContestFile, reference: results.ContestRow) -> list[RankedRow]:
    """Return the rows of a machine's file, compared with a reference."""
    # Speed-ups are relative to one worker on the processor, not on a GPU.
    one_worker = next((row for row in file.rows if row.workers == 1 and not row.device), None)
    verdict, _ = file.assess()
    rows = []
    for row in file.rows:
        speedup = None if one_worker is None else one_worker.seconds / row.seconds
        times, reference_times = np.array(row.times), np.array(reference.times)
        ratio = statistics.geometric_ratio(times, reference_times)
        interval = None if row is reference else statistics.ratio_interval(times, reference_times)
        rows.append(RankedRow(machine, row, verdict, speedup, file.price, ratio, interval))
    return rows


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names, with a number after each name that occurs more than once: "a #1" and "a #2"."""
    distinct: list[str] = []
    for name in names:
        if names.count(name) == 1:
            distinct.append(name)
            continue
        number = 1
        while f"{name} #{number}" in (*names, *distinct):
            number += 1
        distinct.append(f"{name} #{number}")
    return distinct


def benchmark_2020(file: results.ContestFile, row: results.ContestRow) -> str:
    """Return a sentence with the published times of the benchmark of 2020, and the time that a row's workers take.

    This time follows from the seconds per environment step. The first generation is not timed, so its steps are assumed
    to take as long as all other steps. The text is empty if the leg "walker" was not timed, or had another population.
    """
    walker = row.legs.get(contest.WALKER)
    large = contest.LEGS[contest.WALKER]  # the settings of the benchmark, in the size "large"
    population, generations = contest.SIZES[file.size].walker
    if walker is None or not walker.timed_steps or population != large["population"]:
        return ""
    seconds_per_step = results.score([repeat.legs[contest.WALKER] for repeat in row.repeats]) / walker.timed_steps
    if generations == large["generations"]:
        took = f"took {seconds_per_step * walker.steps:,.0f} s here"
    else:
        basis = f"an extrapolation from {generations - 1} generations, by steps"
        took = f"would take about {seconds_per_step * STEPS_OF_2020:,.0f} s here ({basis})"
    return f"walker, the benchmark of 2020: {large['generations']} generations {took}; published in 2020: {_PUBLISHED}"


@style.styled
def draw(ranking: ContestRanking) -> Any:
    """Return the figure of a ranking.

    The upper panels have curves of time and speed-up over workers. The lower panels have bars of time ratios and costs,
    one for the fastest row of each machine.
    """
    fastest = [min(ranking.rows_of(machine), key=lambda row: row.measured.seconds) for machine in ranking.machines]
    names = [
        textwrap.fill(f"{sanitize(row.machine)}, {sanitize(row.measured.title)}", _NAME_CHARACTERS) for row in fastest
    ]
    # Costs need an axis of one currency.
    currencies = {row.price.currency for row in fastest if row.price is not None}
    # A bar is as high as the longest name, with a small gap.
    most_lines = 1 + max(name.count("\n") for name in names)
    bar_height = max(_BAR_HEIGHT, _NAME_LINE_HEIGHT * most_lines + 0.08)
    bars_height = _AXES_HEIGHT + bar_height * len(fastest)
    figure = style.new_figure(_CURVES_HEIGHT + bars_height + _TITLE_HEIGHT)
    top, bottom = figure.subfigures(2, 1, height_ratios=(_CURVES_HEIGHT, bars_height))
    _draw_curves(top, ranking)
    panels = bottom.subplots(1, 2 if len(currencies) == 1 else 1, squeeze=False, gridspec_kw={"wspace": 0.08})[0]
    _draw_ratios(panels[0], fastest, names)
    if len(panels) > 1:
        _draw_costs(panels[1], fastest)
    style.set_title(figure, f"Contest of size {ranking.size}: the same work, proved by digests")
    return figure


def _draw_curves(figure: Any, ranking: ContestRanking) -> None:
    """Draw seconds and speed-up over workers."""
    time, speed = figure.subplots(1, 2)
    for n, machine in enumerate(ranking.machines):
        # After each round of the colours the markers shift by one, so machines of one colour have different markers.
        marker = _MARKERS[(n + n // len(COLOURS)) % len(_MARKERS)]
        appearance = {"color": COLOURS[n % len(COLOURS)], "marker": marker, "ms": 5.5}
        machine_rows = sorted(ranking.rows_of(machine), key=lambda row: row.measured.workers)
        for device in sorted({row.measured.device for row in machine_rows}):
            rows = [row for row in machine_rows if row.measured.device == device]
            workers = [row.measured.workers for row in rows]
            seconds = [row.measured.seconds for row in rows]
            if device:  # a GPU has stars, without error bars and without speed-up
                label = f"{_legend_name(machine)}:\n{_legend_name(device)}"
                time.plot(workers, seconds, **appearance | {"marker": "*", "ms": 11, "ls": ":"}, label=label)
                continue
            # The error bars reach from the shortest to the longest repeat. The point is the median.
            shorter = [row.measured.seconds - min(row.measured.times) for row in rows]
            longer = [max(row.measured.times) - row.measured.seconds for row in rows]
            time.errorbar(workers, seconds, [shorter, longer], **appearance, capsize=3, label=_legend_name(machine))
            if rows[0].speedup is not None:
                speed.plot(workers, [row.speedup for row in rows], **appearance)
    # The ideal line needs two ends, even if only one worker was timed.
    ideal = [1, max(2, *(row.measured.workers for row in ranking.rows))]
    speed.plot(ideal, ideal, color=FAINT, ls=":", lw=1.2, zorder=1, label="ideal: speed-up equals workers")
    _set_axes(time, "Time of one pass", "seconds", ranking)
    _set_axes(speed, "Speed-up against one worker", "times as fast", ranking)
    # Both panels share a legend. A machine has a label only in the panel of times.
    lines = [*time.get_legend_handles_labels()[0], *speed.get_legend_handles_labels()[0]]
    figure.legend(lines, [line.get_label() for line in lines], loc="outside lower left", ncols=2, fontsize=8.5)


def _legend_name(name: str) -> str:
    """Return the name of a machine or of a device, cut for the legend."""
    return style.legend_label(sanitize(name, 2 * _NAME_CHARACTERS))


def _set_axes(panel: Any, title: str, unit: str, ranking: ContestRanking) -> None:
    """Set the title of a panel of curves, and the scales, ticks and labels of its axes."""
    ticker = style.matplotlib("ticker")
    panel.set(title=title, xlabel="workers", ylabel=unit, yscale="log")
    panel.set_xscale("log", base=2)
    # Only 1 and the timed numbers of workers have ticks. The logarithmic axis has `_MOST_LABELS` equal parts. A tick
    # that is closer than one part to the last label has no label.
    ticks = sorted({row.measured.workers for row in ranking.rows} | {1})
    least_factor = ticks[-1] ** (1 / _MOST_LABELS)
    labelled = ticks[:1]
    for tick in ticks:
        if tick >= labelled[-1] * least_factor:
            labelled.append(tick)
    panel.set_xticks(ticks, [str(tick) if tick in labelled else "" for tick in ticks])
    panel.xaxis.set_minor_locator(ticker.NullLocator())
    panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(ticker.NullFormatter())
    panel.margins(x=0.08, y=0.12)


def _draw_ratios(panel: Any, fastest: Sequence[RankedRow], names: Sequence[str]) -> None:
    """Draw the ratio of each machine, with its interval as a line across the end of the bar."""
    panel.set(title="Shortest time, relative to the first", xlabel="ratio, with its 95 % interval")
    ends = [max(row.ratio, row.interval[1] if row.interval else 0.0) for row in fastest]
    _draw_bars(panel, [row.ratio for row in fastest], [f"{row.ratio:.3f}" for row in fastest], ends, names)
    for y, row in enumerate(fastest):
        if row.interval is not None:
            panel.plot(row.interval, (y, y), color=INK, lw=1.4, marker="|", ms=7)
    panel.axvline(1, color=FAINT, lw=1, ls=":")


def _draw_costs(panel: Any, fastest: Sequence[RankedRow]) -> None:
    """Draw the cost of one pass on each machine."""
    panel.set(title="Cost of one pass", xlabel="price of an hour × time")
    priced = [(row.price, row.measured.seconds) for row in fastest]
    costs = [0.0 if price is None else price.cost(seconds) for price, seconds in priced]
    texts = ["no price" if price is None else price.cost_in_words(seconds) for price, seconds in priced]
    _draw_bars(panel, costs, texts, costs, [""] * len(fastest))
    panel.set_xticks([])


def _draw_bars(
    panel: Any, values: Sequence[float], texts: Sequence[str], ends: Sequence[float], names: Sequence[str]
) -> None:
    """Draw a bar for each value, with its name to the left and its text to the right.

    ends: The right end of each bar or of its interval, on the axis of the values. The text begins there.
    """
    rows = range(len(values))
    panel.barh(rows, values, 0.55, color=[COLOURS[n % len(COLOURS)] for n in rows], alpha=0.85)
    # All costs may be 0, but the axis needs a length.
    longest = max(ends) or 1.0
    for y, (end, text) in enumerate(zip(ends, texts, strict=True)):
        panel.text(end + 0.03 * longest, y, text, va="center", fontsize=8.5, bbox=_NUMBER_BOX)
    panel.set_yticks(rows, names)
    # The y axis points down, so that the first machine is at the top.
    panel.set_ylim(len(values) - 0.4, -0.6)
    panel.set_xlim(0, _AXIS_LENGTH * longest)
    panel.grid(False, axis="y")
    panel.tick_params(axis="y", length=0)
