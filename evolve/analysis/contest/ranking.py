"""The ranking of machines by their contest files: times and costs, as numbers and as a figure.

`benchmark_2020` compares a machine with published times. A leg is a part of the contest: one task with one network and
one strategy.
"""

import itertools
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

STEPS = 228_539_753
"""The environment steps of the benchmark of 2020 (200 generations), with the seed of the contest size "large". Other
seeds take other numbers of steps."""
_PUBLISHED = "3,491 s (24 cores), 6,666 s (64 vCPUs)"

_MARKERS = "os^Dv<"
# Heights in inches of the upper panels, a bar, a line of a name, the axes around the bars, and the figure's title.
_LINES_HEIGHT, _ROW_HEIGHT, _NAME_HEIGHT, _AXES_HEIGHT, _TITLE_HEIGHT = 3.1, 0.42, 0.17, 0.9, 0.5
_MOST_LABELS = 10  # along the axis of workers
_NAME_CHARACTERS = 26  # in each line of a name beside a bar; a name in the legend may have twice as many
# The box behind a number hides the lines that would cross the number.
_BEHIND = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
_AXIS_LENGTH = 1.25  # times the longest bar, to leave space for the numbers beside the bars


@dataclass(frozen=True)
class RankedRow:
    """A row of a contest file, compared with the rows of other files. A row is a measurement (`ContestRow`).

    A machine has a row for each timed number of workers, and a row for its GPU.

    Attributes:
        machine: The unique name of its machine.
        measured: The measurement.
        verdict: The verdict on its file, by `ContestFile.assess`.
        speedup: The time of one worker on the machine's processor, divided by the time of this row. None if one worker
            was not timed there.
        price: The price of an hour of its machine, if it was given.
        ratio: The geometric mean of the times of its repeats, divided by the geometric mean of the reference. The
            reference is the fastest row of the first machine.
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

    def of(self, machine: str) -> list[RankedRow]:
        """Return the rows of a machine."""
        return [row for row in self.rows if row.machine == machine]


def rank(paths: Sequence[Path]) -> ContestRanking:
    """Compare the contests in files. The rows keep the order of the files.

    Raises InputError if `results.read` does, or if a file has another version, size or work than the first one.
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
    rows = [row for name, file in zip(names, files, strict=True) for row in ranked(name, file, first.best)]
    return ContestRanking(first.contest, first.size, tuple(rows))


def ranked(name: str, file: results.ContestFile, reference: results.ContestRow) -> list[RankedRow]:
    """Return the rows of a file, compared with a reference."""
    # Speed-ups are relative to one worker on the processor, not on a GPU.
    one_worker = next((row for row in file.rows if row.workers == 1 and not row.device), None)
    verdict, _ = file.assess()
    rows = []
    for row in file.rows:
        speedup = None if one_worker is None else one_worker.seconds / row.seconds
        times = np.array(row.times), np.array(reference.times)
        ratio = statistics.geometric_ratio(*times)
        interval = None if row is reference else statistics.ratio_interval(*times)
        rows.append(RankedRow(name, row, verdict, speedup, file.price, ratio, interval))
    return rows


def _distinct(names: Sequence[str]) -> list[str]:
    """Return distinct names. A name that occurs more than once gets a number."""
    found: list[str] = []
    for name in names:
        if names.count(name) == 1:
            found.append(name)
        else:
            numbered = (f"{name} #{number}" for number in itertools.count(1))
            found.append(next(each for each in numbered if each not in (*names, *found)))
    return found


def benchmark_2020(file: results.ContestFile, row: results.ContestRow) -> str:
    """Return in words the time that the workers of a row take for the benchmark of 2020, and the published times.

    The time follows from the seconds per environment step. The first generation is not timed, so its steps are assumed
    to take the mean time of all others. The text is empty if the leg of the walker was not timed, or had another
    population.
    """
    leg = row.legs.get(contest.WALKER)
    large = contest.LEGS[contest.WALKER]  # in the size "large"
    population, generations = contest.SIZES[file.size].walker
    if leg is None or not leg.timed_steps or population != large["population"]:
        return ""
    seconds_per_step = results.score([repeat.legs[contest.WALKER] for repeat in row.repeats]) / leg.timed_steps
    if generations == large["generations"]:
        took = f"took {seconds_per_step * leg.steps:,.0f} s here"
    else:
        source = f"an extrapolation from {generations - 1} generations, by steps"
        took = f"would take about {seconds_per_step * STEPS:,.0f} s here ({source})"
    return f"walker, the benchmark of 2020: {large['generations']} generations {took}; published in 2020: {_PUBLISHED}"


@style.styled
def draw(ranking: ContestRanking) -> Any:
    """Return the figure of a ranking: curves of time and speed-up over workers; below them, bars of time ratios and
    of costs."""
    # The bars show only the fastest row of each machine.
    best = [min(ranking.of(machine), key=lambda row: row.measured.seconds) for machine in ranking.machines]
    # Costs in several currencies have no common axis.
    priced = len({row.price.currency for row in best if row.price is not None}) == 1
    # The upper part of the figure has lines. The lower part has a row of bars for each machine.
    names = [
        textwrap.fill(f"{sanitize(row.machine)}, {sanitize(row.measured.title)}", _NAME_CHARACTERS) for row in best
    ]
    lines = 1 + max(name.count("\n") for name in names)
    below = _AXES_HEIGHT + max(_ROW_HEIGHT, 0.08 + _NAME_HEIGHT * lines) * len(best)
    figure = style.new_figure(_LINES_HEIGHT + below + _TITLE_HEIGHT)
    top, bottom = figure.subfigures(2, 1, height_ratios=(_LINES_HEIGHT, below))
    _draw_lines(top, ranking)
    panels = bottom.subplots(1, 2 if priced else 1, squeeze=False, gridspec_kw={"wspace": 0.08})
    _draw_bars(panels[0], best, names)
    style.set_title(figure, f"Contest of size {ranking.size}: the same work, proved by digests")
    return figure


def _draw_lines(figure: Any, ranking: ContestRanking) -> None:
    """Draw seconds and speed-up over workers."""
    time, speed = figure.subplots(1, 2)
    most = max(row.measured.workers for row in ranking.rows)
    for n, machine in enumerate(ranking.machines):
        # Machines of one colour have different markers.
        marker = _MARKERS[(n + n // len(COLOURS)) % len(_MARKERS)]
        look = {"color": COLOURS[n % len(COLOURS)], "marker": marker, "ms": 5.5}
        of_machine = sorted(ranking.of(machine), key=lambda row: row.measured.workers)
        for device in sorted({row.measured.device for row in of_machine}):
            rows = [row for row in of_machine if row.measured.device == device]
            workers = [row.measured.workers for row in rows]
            seconds = [row.measured.seconds for row in rows]
            if device:
                label = f"{_shortened(machine)}:\n{_shortened(device)}"
                time.plot(workers, seconds, **look | {"marker": "*", "ms": 11, "ls": ":"}, label=label)
                continue
            # The error bars reach from the shortest to the longest repeat. The point is the median.
            shorter = [row.measured.seconds - min(row.measured.times) for row in rows]
            longer = [max(row.measured.times) - row.measured.seconds for row in rows]
            time.errorbar(workers, seconds, [shorter, longer], **look, capsize=3, label=_shortened(machine))
            if rows[0].speedup is not None:
                speed.plot(workers, [row.speedup for row in rows], **look)
    # If no row has two workers, the line still needs two ends.
    ideal = [1, max(most, 2)]
    speed.plot(ideal, ideal, color=FAINT, ls=":", lw=1.2, zorder=1, label="ideal: speed-up equals workers")
    _label(time, "Time of one pass", "seconds", ranking)
    _label(speed, "Speed-up against one worker", "times as fast", ranking)
    # Both panels share a legend. A machine has a label only in the panel of times.
    lines = [line for panel in (time, speed) for line in panel.get_legend_handles_labels()[0]]
    figure.legend(lines, [line.get_label() for line in lines], loc="outside lower left", ncols=2, fontsize=8.5)


def _shortened(machine: str) -> str:
    return style.legend_label(sanitize(machine, 2 * _NAME_CHARACTERS))


def _label(panel: Any, title: str, unit: str, ranking: ContestRanking) -> None:
    ticker = style.matplotlib("ticker")
    panel.set(title=title, xlabel="workers", ylabel=unit, yscale="log")
    panel.set_xscale("log", base=2)
    # Only the numbers of workers that were timed have ticks. Where ticks are close, some have no label.
    ticks = sorted({row.measured.workers for row in ranking.rows} | {1})
    labelled = ticks[:1]
    for tick in ticks:
        if tick >= labelled[-1] * ticks[-1] ** (1 / _MOST_LABELS):
            labelled.append(tick)
    panel.set_xticks(ticks, [str(tick) if tick in labelled else "" for tick in ticks])
    panel.xaxis.set_minor_locator(ticker.NullLocator())
    panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(ticker.NullFormatter())
    panel.margins(x=0.08, y=0.12)


def _draw_bars(panels: Sequence[Any], best: Sequence[RankedRow], names: Sequence[str]) -> None:
    """Draw the ratio of each machine's fastest row to the first machine's fastest row, and the cost."""
    # The ratio of each machine, with its interval as a line across the end of the bar.
    ratio = panels[0]
    ratio.set(title="Shortest time, relative to the first", xlabel="ratio, with its 95 % interval")
    ends = [max(row.ratio, row.interval[1] if row.interval else 0.0) for row in best]
    _bars(ratio, [row.ratio for row in best], [f"{row.ratio:.3f}" for row in best], ends, names)
    for y, row in enumerate(best):
        if row.interval is not None:
            ratio.plot(row.interval, (y, y), color=INK, lw=1.4, marker="|", ms=7)
    ratio.axvline(1, color=FAINT, lw=1, ls=":")
    if len(panels) > 1:
        # The cost. `draw` makes this panel only if there are prices, all in one currency.
        cost = panels[1]
        cost.set(title="Cost of one pass", xlabel="price of an hour × time")
        priced = [(row.price, row.measured.seconds) for row in best]
        costs = [0.0 if price is None else price.of(seconds) for price, seconds in priced]
        texts = ["no price" if price is None else price.words(seconds) for price, seconds in priced]
        _bars(cost, costs, texts, costs, [""] * len(best))
        cost.set_xticks([])


def _bars(
    panel: Any, values: Sequence[float], texts: Sequence[str], ends: Sequence[float], names: Sequence[str]
) -> None:
    """Draw a bar for each value, with its name to the left and its text to the right.

    ends: The right ends of the bars and their intervals, on the axis of the values.
    """
    places = range(len(values))
    panel.barh(places, values, 0.55, color=[COLOURS[n % len(COLOURS)] for n in places], alpha=0.85)
    # All costs may be 0, but the axis needs a length.
    widest = max(ends) or 1.0
    for y, (end, text) in enumerate(zip(ends, texts, strict=True)):
        panel.text(end + 0.03 * widest, y, text, va="center", fontsize=8.5, bbox=_BEHIND)
    panel.set_yticks(places, names)
    # The y axis points down, so that the first machine is at the top.
    panel.set_ylim(len(values) - 0.4, -0.6)
    panel.set_xlim(0, _AXIS_LENGTH * widest)
    panel.grid(False, axis="y")
    panel.tick_params(axis="y", length=0)
