"""What matters for a walker: experiments/walker-far.toml in few steps, with one setting changed at a time.

    python benchmarks/ablation.py -o runs/ablation                 the missing runs; then the table and the figure
    mpirun -n 9 python benchmarks/ablation.py -o runs/ablation     over any number of ranks, with the same digests

All runs end after the same number of environment steps. Each row of the table is a change, and its p is of the rank
test (Mann and Whitney, 1947) against the runs without a change. It is not corrected for the number of rows, so read it
as a hint.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from pages import fill, markdown
from resumable import Job, announcer, run_all

import evolve
from evolve.analysis.figures.style import COLOURS, FAINT, new_figure, save, styled
from evolve.analysis.runs import script_ranks
from evolve.analysis.statistics import rank_test
from evolve.config import read_file

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "remedies.md"
FIGURE = ROOT / "docs" / "assets" / "ablation.svg"
STEPS = 12_000_000
FALL = 230.0
"""A walker that reaches the end of the ground has a larger return; one that falls has a smaller one."""
PLAIN = "as they are"
CHANGES: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "one ground for all candidates": {"common_random_numbers": True},
    "two episodes for each candidate": {"episodes": 2},
    "128 candidates": {"population": 128},
    "Adam": {"strategy": {"optimizer": "adam", "learning_rate": 0.03}},
    "one start": {"strategy": {"starts": 1, "start_generations": 100}},
    "whole episodes from the first": {"early_generations": None, "early_max_episode_steps": None},
    "no decay of weights": {"strategy": {"weight_decay": 0.0}},
}
"""The changes of the settings, by their names in the table."""
say = announcer("ablation")


def settings_of(change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the experiment with a change, shortened: all decays are as fast as the run is short."""
    far = read_file(ROOT / "experiments" / "walker-far.toml")
    short = {"starts": 4, "start_generations": 40, "sigma_decay": 0.998, "learning_rate_decay": 0.995}
    plain = far | {
        "generations": 100_000, "early_generations": 400, "early_stop": {"steps": STEPS},
        "strategy": far["strategy"] | short,
    }  # fmt: skip
    changed = plain | dict(change) | {"strategy": plain["strategy"] | change.get("strategy", {})}
    return {name: value for name, value in changed.items() if value is not None}


def jobs_of(seeds: int) -> list[Job]:
    """Return the runs of seeds 1, 2, …: all changes with a seed, then the next seed."""
    return [
        Job(settings_of(change), seed, name.replace(" ", "-"))
        for seed in range(1, seeds + 1)
        for name, change in CHANGES.items()
    ]


def table(found: Mapping[str, Sequence[evolve.Run]]) -> str:
    """Return the table: for each change the median over seeds, the worst and the best one, falls, and p."""
    head = ["changed", "median", "worst to best seed", "falls", "p", "digests"]
    plain = scores(found[PLAIN])
    rows = []
    for name, runs in found.items():
        means = scores(runs)
        falls = np.concatenate([run.held_out.returns < FALL for run in runs if run.held_out is not None])
        p = "" if name == PLAIN else f"{rank_test(means, plain):.3f}"
        digests = " ".join(f"`{run.digest[:8]}`" for run in runs)
        middle, low, high = (f"{value:.0f}" for value in (np.median(means), means.min(), means.max()))
        rows.append([name, f"**{middle}**", f"{low} to {high}", f"{falls.mean():.0%}", p, digests])
    return markdown(head, rows)


def scores(runs: Sequence[evolve.Run]) -> np.ndarray:
    """Return [seeds]: the held-out mean of each run."""
    return np.array([run.held_out.mean for run in runs if run.held_out is not None])


@styled
def draw(found: Mapping[str, Sequence[evolve.Run]]) -> Any:
    """Return the figure: a row of dots for each change, one for each seed, and a bar for the median."""
    figure = new_figure(3.6)
    panel = figure.subplots()
    for row, (name, runs) in enumerate(found.items()):
        means = scores(runs)
        colour = COLOURS[1] if name == PLAIN else COLOURS[0]
        panel.plot(means, np.full(len(means), row), "o", color=colour, ms=5, alpha=0.7, mew=0)
        panel.plot([np.median(means)] * 2, [row - 0.3, row + 0.3], color=colour, lw=2)
    panel.axvline(np.median(scores(found[PLAIN])), color=FAINT, lw=1, zorder=0)
    panel.set(yticks=range(len(found)), yticklabels=list(found), ylim=(len(found) - 0.5, -0.5))
    panel.set(xlabel="held-out mean return")
    return figure


def main() -> None:
    """Evolve the missing runs; write the table and the figure of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds 1 … N (5)")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/ablation"), metavar="DIR")
    options = parser.parse_args()
    found: dict[str, list[evolve.Run]] = {name: [] for name in CHANGES}
    names = {name.replace(" ", "-"): name for name in CHANGES}
    for job, run in run_all(jobs_of(options.seeds), options.output, say):
        found[names[job.directory]].append(run)
    if script_ranks().leads:
        fill(PAGE, "ablation", table(found))
        save(draw(found), FIGURE)


if __name__ == "__main__":
    main()
