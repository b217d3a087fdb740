"""Figures of the genomes that strategies keep beside a champion: the front of nsga2, the archive of map-elites."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evolve.analysis.champion import names_of_measures, numbers_of_front
from evolve.analysis.figures import style
from evolve.analysis.figures.style import COLOURS, FAINT, GRID, INK, PAPER, drawable
from evolve.errors import InputError
from evolve.shapes import Float64
from evolve.store import StoredRun
from evolve.strategies import VectorLayout, from_table
from evolve.strategies.map_elites import MapElites
from evolve.strategies.nsga2 import hypervolume
from evolve.training import load_config

_EARLIER = (0.02, 0.1, 0.3)  # shares of the run at which a single run shows its earlier fronts, too
_MOST_VOLUMES = 400  # generations, evenly spaced, of which the hypervolume is computed
_WIDE = 30.0  # a measure with a larger ratio of its ends is drawn on a logarithmic axis


@style.styled
def draw_front(runs: Sequence[StoredRun]) -> Any:
    """Return the figure of the fronts of runs of nsga2: fitness over the first measure, and hypervolume by generation.

    The last front of each run is drawn, and of a single run some earlier ones. A large point marks the best fitness.
    The hypervolume is the area that a front dominates, from the lowest fitness and the worst measure of all fronts of
    its run, as a share of the rectangle that ends at the best fitness and the best measure of all runs.

    Raises InputError if a run has no front, or the runs have other measures.
    """
    names = {names_of_measures(run) for run in runs}
    if len(names) > 1:
        raise InputError("FILE", "runs of nsga2 with the same objectives", " and ".join(map(str, sorted(names))))
    fronts = [[_points(run, generation) for generation in range(run.num_generations)] for run in runs]
    measure, is_small = names.pop()[0], _is_minimized(runs[0])
    figure = style.new_figure(6.2)
    top, bottom = figure.subplots(2, 1, height_ratios=(2.2, 1))
    if len(runs) == 1:
        _draw_earlier(top, fronts[0], is_small)
    for number, (run, found) in enumerate(zip(runs, fronts, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        label = f"seed {run.header.seed}" if len(runs) > 1 else f"generation {len(found) - 1}"
        _draw_steps(top, found[-1], is_small, color=colour, lw=1.8, marker="o", ms=3.5, label=label)
        best = found[-1][int(np.argmax(found[-1][:, 0]))]
        top.plot(best[1], best[0], "D", ms=8, color=colour, mec=PAPER, mew=1.0, zorder=5)
    every = np.concatenate([points for found in fronts for points in found])
    _set_scale(top, every[:, 1])
    words = measure.replace("_", " ")
    top.set_xlabel(f"{words} ({'fewer' if is_small else 'more'} is better)")
    top.set_ylabel("mean fitness")
    top.set_title("Front; ◆ best fitness")
    top.legend(loc="upper left" if is_small else "upper right", fontsize=8)
    _draw_volumes(bottom, fronts, every, is_small)
    config = load_config(runs[0].header.config, str(runs[0].path))
    seeds = ", ".join(str(run.header.seed) for run in runs)
    style.set_title(figure, f"{config.env.id}, {config.network.name}, {config.strategy.name}, seed {seeds}")
    return figure


def _points(run: StoredRun, generation: int) -> Float64:
    """Return [N, 2]: fitness and first measure of a front, from the least measure up."""
    _, fitness, measures = numbers_of_front(run, generation)
    return drawable(np.column_stack([fitness, measures[:, 0]]))


def _is_minimized(run: StoredRun) -> bool:
    """Return whether the first measure of a run is to be small."""
    return bool(load_config(run.header.config, str(run.path)).strategy.table().get("minimize"))


def _draw_steps(panel: Any, points: Float64, is_small: bool, **how: Any) -> None:
    """Draw a front as the border of what it dominates."""
    panel.plot(points[:, 1], points[:, 0], drawstyle="steps-post" if is_small else "steps-pre", **how)


def _draw_earlier(panel: Any, fronts: Sequence[Float64], is_small: bool) -> None:
    last = len(fronts) - 1
    for number, generation in enumerate(sorted({int(share * last) for share in _EARLIER} - {last})):
        how = {"color": (FAINT, FAINT, INK)[number % 3], "ls": (":", "--", "-")[number % 3]}
        _draw_steps(panel, fronts[generation], is_small, lw=1.0, label=f"generation {generation}", **how)


def _set_scale(panel: Any, measures: Float64) -> None:
    positive = measures[measures > 0]
    if len(positive) and measures.min() >= 0 and positive.max() > _WIDE * max(1.0, positive.min()):
        panel.set_xscale("symlog", linthresh=max(1.0, float(positive.min())), linscale=0.4)
        panel.xaxis.set_major_formatter(style.matplotlib("ticker").FuncFormatter(lambda x, _: f"{x:g}"))


def _draw_volumes(panel: Any, fronts: Sequence[Sequence[Float64]], every: Float64, is_small: bool) -> None:
    sign = np.array([1.0, -1.0 if is_small else 1.0])
    best = (every * sign).max(axis=0)
    for number, found in enumerate(fronts):
        reference = np.concatenate([points * sign for points in found]).min(axis=0)
        whole = float(np.prod(best - reference)) or 1.0
        shown = np.unique(np.linspace(0, len(found) - 1, _MOST_VOLUMES).astype(int))
        shares = [hypervolume(found[generation] * sign, reference) / whole for generation in shown]
        panel.plot(shown, shares, color=COLOURS[number % len(COLOURS)])
    panel.set_ylim(0, 1.02)
    panel.set_ylabel("share")
    panel.set_xlabel("generation")
    panel.set_title("Hypervolume")
    panel.xaxis.get_major_locator().set_params(integer=True)


@style.styled
def draw_archive(run: StoredRun) -> Any:
    """Return the figure of the archive of a run of map-elites: a heat map, and its growth by generation.

    The map has the first two descriptors. The best elite over all other descriptors gives the colour.

    Raises InputError if the run has no archive.
    """
    if run.records[-1].archive is None:
        raise InputError(str(run.path), "a run with an archive (strategy map-elites)", "another one")
    config = load_config(run.header.config, str(run.path))
    strategy = from_table(config.strategy, VectorLayout(run.records[0].champion_weights.size), 2, 0)
    assert isinstance(strategy, MapElites)
    archives = np.stack([drawable(record.archive) for record in run.records if record.archive is not None])
    figure = style.new_figure(7.4)
    top, bottom = figure.subplots(2, 1, height_ratios=(3.2, 1))
    _draw_cells(figure, top, archives[-1], strategy)
    filled = np.count_nonzero(~np.isnan(archives), axis=1)
    bottom.plot(filled, color=COLOURS[0])
    bottom.set_ylim(0, None)
    bottom.set_ylabel("filled cells")
    bottom.set_xlabel("generation")
    bottom.set_title(f"{filled[-1]:,} of {archives.shape[1]:,} cells filled")
    for axis in (bottom.xaxis, bottom.yaxis):
        axis.get_major_locator().set_params(integer=True)
    title = f"{config.env.id}, {config.network.name}, {config.strategy.name}, seed {run.header.seed}"
    style.set_title(figure, title)
    return figure


def _draw_cells(figure: Any, panel: Any, archive: Float64, strategy: MapElites) -> None:
    """Draw the cells of an archive [C] by their fitness, with a diamond at the best one."""
    sizes, names = strategy.cells.tolist(), strategy.measured
    grid = archive.reshape(sizes)
    # The best over all other descriptors; fmax ignores NaN.
    grid = np.fmax.reduce(grid, axis=tuple(range(2, len(sizes)))) if len(sizes) > 2 else grid
    grid = grid[:, None] if len(sizes) == 1 else grid
    ranges = zip(strategy.bounds.tolist(), sizes, strict=True)
    edges = [np.linspace(low, high, size + 1) for (low, high), size in ranges][:2]
    x, y = edges if len(edges) == 2 else (edges[0], np.array([0.0, 1.0]))
    known = np.ma.masked_invalid(grid)
    mesh = panel.pcolormesh(x, y, known.T, cmap="viridis", edgecolors=PAPER, linewidth=0.6)
    if known.count():
        best = np.unravel_index(int(np.nanargmax(grid)), grid.shape)
        middle = ((x[best[0]] + x[best[0] + 1]) / 2, (y[best[1]] + y[best[1] + 1]) / 2)
        panel.plot(*middle, "D", ms=7, color=COLOURS[1], mec=PAPER, mew=1.0)
    figure.colorbar(mesh, ax=panel, label="fitness")
    panel.grid(visible=False)
    panel.set_facecolor(GRID)
    panel.set_xlabel(names[0].replace("_", " "))
    if len(sizes) > 1:
        panel.set_ylabel(names[1].replace("_", " "))
    else:
        panel.set_yticks([])
    panel.set_title("Archive; ◆ best fitness, grey: empty")
