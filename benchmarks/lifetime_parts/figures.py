"""The figures of the study, in the style of all figures of evolve."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evolve.analysis.figures.style import (
    COLOURS,
    FAINT,
    QUIET,
    LineLabel,
    alternating_dashes,
    label_lines,
    matplotlib,
    new_figure,
    styled,
)
from evolve.shapes import ceil_div
from lifetime_parts.bounds import Array, cues_by_presentation, reversal_by_trial
from lifetime_parts.presets import TASKS
from lifetime_parts.tables import Results, Sweep

_HEIGHT = 2.9  # inches of a panel
_COLOUR = dict(zip(("hebbian-dag", "dag", "elman", "hebbian-lstm", "plastic-mlp"), COLOURS, strict=False))
_WHAT = {
    "cues": ("Six cues", "nth time that a cue is shown", "right answers"),
    "reversal": ("Reversal", "trial", "reward"),
    "tmaze": ("T-maze", "walk", "reward"),
    "bandit": ("Bandit, five arms", "pull", "hits"),
}
_SMOOTH = {"bandit": 5}  # pulls of which the mean is drawn


@styled
def draw_lives(found: Mapping[str, Results], optima: Mapping[str, Array]) -> Any:
    """Return the figure of lives: a panel for each task, with the reward of each network by trial.

    Lines are means over seeds and held-out lives; bands reach from the worst to the best seed. optima: the mean reward
    of the best known learner in each trial.
    """
    figure = new_figure(_HEIGHT * ceil_div(len(found), 2))
    panels = figure.subplots(ceil_div(len(found), 2), 2, squeeze=False).ravel()
    for panel, (task, results) in zip(panels, found.items(), strict=False):
        _draw_task(panel, task, results, optima.get(task))
    for panel in panels[len(found) :]:
        panel.set_axis_off()
    return figure


def _draw_task(panel: Any, task: str, results: Results, optimum: Array | None) -> None:
    title, trial, reward = _WHAT[task]
    panel.set(title=title, xlabel=trial, ylabel=f"{reward}, mean")
    width = _SMOOTH.get(task, 1)
    labels = []
    if optimum is not None:
        x, y = smooth(optimum, width)
        panel.plot(x, y, color=FAINT, ls=(0, (2, 2)), lw=1.3, zorder=1.5)
        labels.append(LineLabel("best known", x[-1], y[-1], FAINT))
    means = {network: np.mean([run.curve for run in runs], axis=0) for network, runs in results.items()}
    dashes = alternating_dashes([smooth(mean, width)[1] for mean in means.values()])
    for (network, runs), style in zip(results.items(), dashes, strict=True):
        curves = np.array([smooth(np.array(run.curve), width)[1] for run in runs])
        x, mean = smooth(means[network], width)
        panel.fill_between(x, curves.min(axis=0), curves.max(axis=0), color=_COLOUR[network], alpha=0.12, lw=0)
        panel.plot(x, mean, color=_COLOUR[network], **style)
        labels.append(LineLabel(network, x[-1], mean[-1], _COLOUR[network]))
    panel.margins(x=0.01)
    label_lines(panel, labels, _HEIGHT)


def smooth(curve: Array, width: int) -> tuple[Array, Array]:
    """Return the positions of the means of every `width` trials, counted from 1, and those means."""
    whole = len(curve) - len(curve) % width
    y = curve[:whole].reshape(-1, width).mean(axis=1)
    return np.arange(len(y)) * width + (width + 1) / 2, y


def optima(bandit: Array) -> dict[str, Array]:
    """Return the mean reward of the best learner in each trial; bandit: [lives, pulls] of its index learner."""
    return {
        "cues": cues_by_presentation(),
        "reversal": reversal_by_trial(),
        "tmaze": reversal_by_trial(),
        "bandit": bandit.mean(axis=0),
    }


@styled
def draw_sweep(found: Sweep) -> Any:
    """Return the figure of a sweep: a table of cues and presentations for each network, shaded by the learnt share."""
    figure = new_figure(2.6)
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
    shades = matplotlib("colors").LinearSegmentedColormap.from_list("share", ("#ffffff", COLOURS[0]))
    for panel, (network, cells) in zip(panels, found.items(), strict=True):
        cues, times = (sorted({point[axis] for point in cells}) for axis in (0, 1))
        shares = np.array([[cells[c, p] for p in times] for c in cues])
        panel.imshow(shares, cmap=shades, vmin=0, vmax=1, aspect="auto")
        for (row, column), share in np.ndenumerate(shares):
            colour = "#ffffff" if share > 0.8 else "#222222"
            panel.text(column, row, f"{share:.2f}", ha="center", va="center", color=colour, fontsize=9)
        panel.set(title=network, xlabel="times that each cue is shown")
        panel.set_xticks(range(len(times)), [str(p) for p in times])
        panel.set_yticks(range(len(cues)), [str(c) for c in cues])
        panel.grid(False)
        panel.tick_params(length=0)
        for side in ("left", "bottom"):
            panel.spines[side].set_visible(False)
    panels[0].set_ylabel("cues")
    return figure


@styled
def draw_seeds(found: Mapping[str, Results], bounds: Mapping[str, Sequence[tuple[str, float]]]) -> Any:
    """Return the figure of all seeds: a panel for each task with a dot for each run, and the reachable returns."""
    figure = new_figure(2.3 * ceil_div(len(found), 2))
    panels = figure.subplots(ceil_div(len(found), 2), 2, squeeze=False).ravel()
    for panel, (task, results) in zip(panels, found.items(), strict=False):
        for y, (network, runs) in enumerate(results.items()):
            means = np.array([run.long_mean for run in runs])
            spread = 0.28 * np.linspace(-1, 1, len(means)) if len(means) > 1 else np.zeros(1)  # by seed, from above
            panel.plot(means, y + spread, "o", ms=4, color=_COLOUR[network], mew=0)
        panel.set_yticks(range(len(results)), list(results))
        panel.set_ylim(len(results) - 0.5, -0.5)
        panel.tick_params(axis="y", length=0)
        panel.grid(False, axis="y")
        for name, value in bounds[task]:
            panel.axvline(value, color=FAINT, lw=1, ls=(0, (2, 2)), zorder=1)
            panel.text(value, 1.02, name, fontsize=7.5, color=QUIET, ha="center", va="bottom",
                       transform=panel.get_xaxis_transform())  # fmt: skip
        panel.set_title(_WHAT[task][0], pad=18)
        panel.set_xlabel(TASKS[task].unit)
        panel.margins(x=0.06)
    for panel in panels[len(found) :]:
        panel.set_axis_off()
    return figure
