"""Bodies that change: networks that learn in a life against networks that do not, in bodies that they do not know.

    python benchmarks/bodies.py -o runs/bodies                 the missing runs; then the tables of docs/learning.md
    mpirun -n 9 python benchmarks/bodies.py -o runs/bodies     over any number of ranks, with the same digests

Each run is experiments/bodies.toml with one of NETWORKS. Their settings were tried on seed 101.
The final champion of each run plays the same held-out episodes with each kind of body, and once more without learning.
The results are kept beside the run file, so that only new runs are played. The rank tests (Mann and Whitney, 1947)
compare each network with the static perceptron; Holm's method corrects them for their number. An interval is Student's,
of the differences between runs with the same seed.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from lifetime_parts.presets import OFF
from pages import fill, markdown
from ppo_parts.records import write
from resumable import Job, announcer, run_all

import evolve
from evolve.analysis.figures.style import COLOURS, new_figure, save, styled
from evolve.analysis.runs import script_ranks
from evolve.analysis.statistics import holm, interval, rank_test
from evolve.config import read_file

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "learning.md"
NOTEBOOK = ROOT / "docs" / "notebook" / "learning.md"
FIGURE = ROOT / "docs" / "assets" / "learning" / "bodies.svg"
EXPERIMENT = read_file(ROOT / "experiments" / "bodies.toml")
EPISODES = 300
STATIC = "mlp"
OFF_NAME = "learning off"
NETWORKS: dict[str, dict[str, Any]] = {
    STATIC: {"network": EXPERIMENT["network"], "rate": 0.2},
    "elman": {"network": {"name": "elman", "hidden": [20]}, "rate": 0.1},
    "hebbian-dag": {
        "network": {
            "name": "hebbian-dag", "hidden": [32], "plasticity": -0.02, "trace_rate": 0.1, "trace_limit": 1.0,
            "init_scale": 0.2, "init_sparsity": 0.0,
        },
        "rate": 0.1,
    },
    "plastic-mlp": {"network": {"name": "plastic-mlp", "hidden": [16]}, "rate": 0.1},
}  # fmt: skip
"""The networks, of about the same size, each with its learning rate."""
BODIES: dict[str, dict[str, Any]] = {
    "as in training": {},
    "the usual body": {"randomize": {}},
    "weaker legs": {"randomize": {name: {"uniform": [0.2, 0.4]} for name in ("leg_1", "leg_2")}},
    "heavier": {"randomize": {"gravity": {"uniform": [-16.0, -12.5]}}},
    "slippery ground": {"randomize": {"friction": {"uniform": [0.2, 1.0]}}},
    "a leg weakens": {
        "kwargs": {"leg_1": 1.0, "leg_2": 1.0},
        "randomize": {"changes_at": {"integers": [100, 300]}, "leg_2_later": {"uniform": [0.3, 0.6]}},
    },
}
"""The kinds of bodies, as changes of the settings of the environment."""
Results = Mapping[str, Mapping[str, Sequence[float]]]
"""For each network and each kind of body the mean return of each seed."""
say = announcer("bodies")


def judge(run: evolve.Run) -> dict[str, float]:
    """Return the mean return of a run's champion with each kind of body, and in training's bodies without learning."""
    kept = run.path.with_suffix(".json")
    known = json.loads(kept.read_text()) if kept.exists() else {}
    found = dict(known) if known.get("digest") == run.digest else {"digest": run.digest}
    off = OFF.get(run.config.network.name)
    for name, env in BODIES.items():
        if name not in found:
            found[name] = float(run.evaluate(EPISODES, env=env or None).mean)
    if off is not None and OFF_NAME not in found:
        found[OFF_NAME] = float(run.evaluate(EPISODES, network=off).mean)
    # Other ranks may be reading a file that is complete already.
    if found != known and script_ranks().is_rank_0:
        write(kept, found)
    return {name: value for name, value in found.items() if name != "digest"}


def jobs_of(seeds: int) -> list[Job]:
    """Return the runs of seeds 1, 2, …: all networks of a seed, then the next seed."""
    return [
        Job(EXPERIMENT | {"network": network, "strategy": EXPERIMENT["strategy"] | {"learning_rate": rate}}, seed, name)
        for seed in EXPERIMENT["seeds"][:seeds]
        for name, (network, rate) in ((name, each.values()) for name, each in NETWORKS.items())
    ]


def reached(runs: Mapping[str, Sequence[evolve.Run]], found: Results) -> str:
    """Return the table of medians over seeds (worst, best): a row for each network, a column for each kind of body."""
    head = ["network", "weights", "seeds", *BODIES, OFF_NAME]
    rows = []
    for network, bodies in found.items():
        cells = [
            f"**{np.median(values):.0f}** ({min(values):.0f} to {max(values):.0f})" if values else ""
            for values in (bodies.get(body) for body in (*BODIES, OFF_NAME))
        ]
        weights = sum(array.size for array in runs[network][0].champion().weights.values())
        rows.append([network, str(weights), str(len(runs[network])), *cells])
    return markdown(head, rows)


def differences(found: Results) -> str:
    """Return the table of differences to the static network: mean, 95 % interval, and p of the rank test."""
    others = [network for network in found if network != STATIC]
    rows = []
    for body in BODIES:
        static = np.array(found[STATIC][body])
        samples = [np.array(found[network][body]) for network in others]
        ps = holm([rank_test(sample, static) for sample in samples])
        cells = []
        for sample, p in zip(samples, ps, strict=True):
            low, high = interval(sample - static[: len(sample)]) or (np.nan, np.nan)
            chance = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
            cells.append(f"{(sample - static[: len(sample)]).mean():+.0f} ({low:+.0f} to {high:+.0f}), {chance}")
        rows.append([body, *cells])
    return markdown(["body", *others], rows)


def digests(runs: Mapping[str, Sequence[evolve.Run]]) -> str:
    """Return the table of the abridged digests of all runs."""
    rows = [[network, " ".join(f"`{run.digest[:8]}`" for run in each)] for network, each in runs.items()]
    return markdown(["network", "digests of seeds 1, 2, …"], rows)


@styled
def draw(found: Results) -> Any:
    """Return the figure: a dot for each seed, a bar for the median; a panel for each kind of body."""
    figure = new_figure(4.6)
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    for panel, body in zip(panels.ravel(), BODIES, strict=True):
        panel.set(title=body[0].upper() + body[1:])
        for row, (colour, network) in enumerate(zip(COLOURS, found, strict=False)):
            values = np.array(found[network][body])
            heights = row + np.linspace(-0.28, 0.28, len(values))
            panel.plot(values, heights, "o", color=colour, ms=4, alpha=0.7, mew=0)
            panel.plot([np.median(values)] * 2, [row - 0.38, row + 0.38], color=colour, lw=2)
        panel.set_yticks(range(len(found)), list(found))
        panel.set_ylim(len(found) - 0.5, -0.5)
    for panel in panels[1]:
        panel.set(xlabel="held-out mean return")
    return figure


def main() -> None:
    """Evolve the missing runs; write the tables and the figure of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=len(EXPERIMENT["seeds"]), metavar="N", help="seeds 1 … N (all)")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/bodies"), metavar="DIR")
    options = parser.parse_args()
    runs: dict[str, list[evolve.Run]] = {name: [] for name in NETWORKS}
    found: dict[str, dict[str, list[float]]] = {name: {} for name in NETWORKS}
    for job, run in run_all(jobs_of(options.seeds), options.output, say):
        runs[job.directory].append(run)
        for body, mean in judge(run).items():
            found[job.directory].setdefault(body, []).append(mean)
    if script_ranks().is_rank_0:
        fill(PAGE, "bodies", reached(runs, found))
        fill(PAGE, "differences", differences(found))
        fill(NOTEBOOK, "digests of bodies", digests(runs))
        save(draw(found), FIGURE)


if __name__ == "__main__":
    main()
