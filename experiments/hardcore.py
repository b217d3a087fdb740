"""Write the table and the figure of the hardcore walkers on docs/results.md: python experiments/hardcore.py [DIR]

It reads the runs of `STAGES` in a folder of `benchmarks/study.py`. The first stage over obstacles begins with the
champion of `walker-far` that has the seed of the run, the second with the champion of the first.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from sparse import PAGE, ROOT, Chain, chains, fill, markdown, spread, steps

from evolve.analysis.figures.style import COLOURS, FAINT, INK, new_figure, save, styled

FIGURE = ROOT / "docs" / "assets" / "walker-hardcore.svg"
STAGES = ("walker-far", "walker-hardcore", "walker-hardcore-far")
GOOD = 200.0
"""A walker that comes to the end of the course, or nearly, has a larger return."""
HEAD = ("seed", "mean after the first stage", "held-out mean", "median episode", f"episodes above {GOOD:g}",
        "steps over obstacles", "in all")  # fmt: skip
ELSEWHERE = {"PPO": 122, "TQC": 235}
"""Agents of rl-baselines3-zoo on BipedalWalkerHardcore-v3."""
SMOOTH = 20  # generations


def table(found: list[Chain]) -> str:
    """Return the table: a row for each seed, and one for all."""
    rows, medians = [], []
    for stage in (-2, -1):
        medians.append(f"**{spread([chain[stage].held_out.mean for chain in found])}**")
    for chain in found:
        returns, taken = chain[-1].held_out.returns, [f"{steps(part) / 1e6:.0f} M" for part in (chain[1:], chain)]
        figures = [f"{returns.mean():.0f}", f"{np.median(returns):.0f}", f"{np.mean(returns > GOOD):.0%}"]
        rows.append([str(chain[0].seed), f"{chain[-2].held_out.mean:.0f}", *figures, *taken])
    return markdown(HEAD, [*rows, ["all", *medians, "", "", "", ""]])


def curve(run: Any) -> tuple[Any, Any]:
    """Return the steps of a run, in millions, and the mean returns of its candidates: [generations] both.

    The means are running means of `SMOOTH` generations.
    """
    records = [generation.record for generation in run.generations]
    taken = np.cumsum([record.steps for record in records]) / 1e6
    means = np.array([np.mean(record.fitness) for record in records])
    window = np.ones(SMOOTH) / SMOOTH
    return taken[SMOOTH - 1 :], np.convolve(means, window, "valid")


@styled
def draw(found: list[Chain]) -> Any:
    """Return the figure: the candidates' mean return over steps, and the champions' held-out means."""
    figure = new_figure(3.8)
    panel = figure.subplots()
    begins, ends = [], []
    for number, chain in enumerate(found):
        begin = 0.0
        for run in chain[1:]:
            x, y = curve(run)
            label = {"color": COLOURS[0], "label": None if number or begin else "candidates of a seed, mean"}
            panel.plot(begin + x, y, lw=1, alpha=0.8, **label)
            begins.append(begin)
            begin += x[-1]
            label = {
                "color": COLOURS[1],
                "label": None if number or run is not chain[-1] else "its champion, held-out mean",
            }
            panel.plot(begin, run.held_out.mean, "o", ms=5, mew=0, **label)
        ends.append(begin)
    for name, mean in ELSEWHERE.items():
        panel.axhline(mean, color=FAINT, lw=1, zorder=0)
        panel.text(3, mean + 3, f"{name}, rl-baselines3-zoo", color=INK, va="bottom")
    second = np.mean([begin for begin in begins if begin]) if any(begins) else 0.0
    panel.text(second, -55, "  second stage:\n  a fall costs 100", color=INK, va="bottom")
    panel.axvline(second, ymax=0.2, color=INK, lw=0.7)
    panel.set(
        xlabel="steps over obstacles, millions", ylabel="mean return", xlim=(0, 1.04 * max(ends)), ylim=(-60, 280)
    )
    panel.legend(loc="lower right")
    return figure


def main() -> None:
    """Write the table and the figure."""
    parser = argparse.ArgumentParser(description="Write the table and the figure of hardcore walkers.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/study"), metavar="DIR")
    found = [chain for chain in chains(parser.parse_args().folder, STAGES) if len(chain) == len(STAGES)]
    fill(PAGE, "hardcore", table(found))
    save(draw(found), FIGURE)


if __name__ == "__main__":
    main()
