"""What matters for a walker: an experiment in few steps, with one setting changed at a time.

    python benchmarks/ablation.py -o runs/ablation                 the missing runs; then the table and the figure
    python benchmarks/ablation.py hardcore -o runs/ablation        the same over obstacles, with other networks, too
    mpirun -n 9 python benchmarks/ablation.py -o runs/ablation     over any number of ranks, with the same digests

The walker is experiments/walker-far.toml, and `hardcore` is experiments/walker-hardcore.toml: each of its runs begins
with the champion that the same network and the same seed have in the short experiment of the walker. All runs of a
table end after the same number of environment steps. Each row is a change, and its p is of the rank test (Mann and
Whitney, 1947) against the runs without a change, corrected for the number of changes by Holm's method.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from pages import fill, markdown
from resumable import Job, announcer, run_all

import evolve
from evolve.analysis.figures.style import COLOURS, FAINT, new_figure, save, styled
from evolve.analysis.runs import script_ranks
from evolve.analysis.statistics import holm, rank_test
from evolve.config import read_file

ROOT = Path(__file__).parent.parent
PLAIN = "as they are"
say = announcer("ablation")


def _short(experiment: str, steps: int, strategy: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """Return the settings of an experiment that ends after some steps, with other settings of its strategy."""
    whole = read_file(ROOT / "experiments" / f"{experiment}.toml")
    kept = {"generations": 100_000, "early_stop": {"steps": steps}, "strategy": whole["strategy"] | strategy}
    return whole | kept | settings


@dataclass(frozen=True)
class Ablation:
    """An experiment and its changes.

    Attributes:
        plain: The settings without a change.
        changes: The changes of the settings, by their names in the table.
        fall: An episode with a smaller return counts as a fall.
        page: The page with the table.
        marker: The name of the table there.
        figure: The path of the figure.
    """

    plain: Mapping[str, Any]
    changes: Mapping[str, Mapping[str, Any]]
    fall: float
    page: Path
    marker: str
    figure: Path

    def settings(self, change: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with a change. A setting that the change sets to None is left out."""
        changed = self.plain | dict(change) | {"strategy": self.plain["strategy"] | change.get("strategy", {})}
        return {name: value for name, value in changed.items() if value is not None}


# All decays are as fast as the run is short.
WALKER = Ablation(
    _short(
        "walker-far",
        12_000_000,
        {"starts": 4, "start_generations": 40, "sigma_decay": 0.998, "learning_rate_decay": 0.995},
        early_generations=400,
    ),
    {
        PLAIN: {},
        "one ground for all candidates": {"common_random_numbers": True},
        "two episodes for each candidate": {"episodes": 2},
        "128 candidates": {"population": 128},
        "Adam": {"strategy": {"optimizer": "adam", "learning_rate": 0.03}},
        "one start": {"strategy": {"starts": 1, "start_generations": 100}},
        "whole episodes from the first": {"early_generations": None, "early_max_episode_steps": None},
        "no decay of weights": {"strategy": {"weight_decay": 0.0}},
    },
    fall=230.0,  # a walker that reaches the end of the ground has a larger return
    page=ROOT / "docs" / "remedies.md",
    marker="ablation",
    figure=ROOT / "docs" / "assets" / "ablation.svg",
)
NETWORKS: dict[str, dict[str, Any]] = {
    "elman": {"name": "elman", "hidden": [20]},
    "hebbian-lstm": {"name": "hebbian-lstm", "hidden": [7], "init_sparsity": 0.0},
    "plastic-mlp": {"name": "plastic-mlp", "hidden": [16]},
}
"""Networks with memory, of about the size of the mlp."""
HARDCORE = Ablation(
    _short("walker-hardcore", 12_000_000, {"learning_rate": 0.05}),
    {
        PLAIN: {},
        "4 episodes for each of 64 candidates": {"episodes": 4, "population": 64},
        "16 episodes for each of 16 candidates": {"episodes": 16, "population": 16},
        **{name: {"network": network} for name, network in NETWORKS.items()},
    },
    fall=0.0,
    page=ROOT / "docs" / "notebook" / "results.md",
    marker="hardcore ablation",
    figure=ROOT / "docs" / "assets" / "ablation-hardcore.svg",
)
ABLATIONS = {"walker": WALKER, "hardcore": HARDCORE}


def directory_of(task: str, name: str) -> str:
    """Return the directory of the runs with a change, inside the output directory."""
    return ("hardcore/" if task == "hardcore" else "") + name.replace(" ", "-")


def jobs_of(task: str, seeds: int, out: Path) -> list[Job]:
    """Return the runs of seeds 1, 2, … of a task: all changes with a seed, then the next seed.

    Runs over obstacles come after the runs on plain ground with which they begin.
    """
    jobs = []
    for seed in range(1, seeds + 1):
        for name, change in ABLATIONS[task].changes.items():
            settings = ABLATIONS[task].settings(change)
            if task == "hardcore":
                # A network with memory begins with a walker of its own.
                other = name in NETWORKS
                first = directory_of("walker", name if other else PLAIN)
                jobs.append(Job(WALKER.settings(change if other else {}), seed, first))
                settings["start_from"] = {"file": str(out / first)}
            jobs.append(Job(settings, seed, directory_of(task, name)))
    return list({(job.directory, job.seed): job for job in jobs}.values())


def table(found: Mapping[str, Sequence[evolve.Run]], fall: float) -> str:
    """Return the table: for each change the median over seeds, the worst and the best one, falls, and p."""
    head = ["changed", "median", "worst to best seed", "falls", "p", "digests"]
    plain = scores(found[PLAIN])
    others = [name for name in found if name != PLAIN]
    ps = dict(zip(others, holm([rank_test(scores(found[name]), plain) for name in others]), strict=True))
    rows = []
    for name, runs in found.items():
        means = scores(runs)
        falls = np.concatenate([run.held_out.returns < fall for run in runs if run.held_out is not None])
        p = "" if name == PLAIN else f"{ps[name]:.3f}"
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
    figure = new_figure(1.2 + 0.3 * len(found))
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
    parser.add_argument("task", nargs="?", choices=ABLATIONS, default="walker", help="walker")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds 1 … N (5)")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/ablation"), metavar="DIR")
    options = parser.parse_args()
    ablation = ABLATIONS[options.task]
    by_directory: dict[str, list[evolve.Run]] = {}
    for job, run in run_all(jobs_of(options.task, options.seeds, options.output), options.output, say):
        by_directory.setdefault(job.directory, []).append(run)
    if script_ranks().is_rank_0:
        found = {name: by_directory[directory_of(options.task, name)] for name in ablation.changes}
        fill(ablation.page, ablation.marker, table(found, ablation.fall))
        save(draw(found), ablation.figure)


if __name__ == "__main__":
    main()
