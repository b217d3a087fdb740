"""Lottery tickets: the study of `docs/tickets.md` by one command, python benchmarks/tickets.py

Two exact tasks are learnt repeatedly, each time with 0.8 of the connections, from 100 % to 2 %: chosen by
signal-to-noise ratio or by magnitude, with their weights rewound; and, as the control for lottery tickets, with the
same masks and other initial weights. See `evolve/strategies/pruning_schedules.py`. Complete runs are not run again, so
the command can be interrupted and repeated; `--seeds` and `--tasks` in several shells share the work.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import evolve

sys.path.insert(0, str(Path(__file__).parent))

from pages import fill, markdown
from ppo_parts.records import write

from evolve.analysis.figures.style import COLOURS, LineLabel, alternating_dashes, label_lines, new_figure, save, styled

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tickets.md"
FIGURE = ROOT / "docs" / "assets" / "tickets.svg"
KEEP, LEAST = 0.8, 0.02  # shares of the connections: kept in a round, and left in the end
ROUNDS = math.ceil(math.log(LEAST) / math.log(KEEP)) + 1
GENERATIONS = 40  # of a round
CONTROL = "same mask, other weights"
VARIANTS = {"signal-to-noise": True, "magnitude": False}  # whether they have a control
_COLOUR = dict(zip(("signal-to-noise", CONTROL, "magnitude"), COLOURS, strict=False))


@dataclass(frozen=True, eq=False)
class Task:
    """An exact environment, and the strategy for it.

    aim: the mean return that counts as learnt. axis: the range of returns in the figure.
    """

    env: str
    strategy: Mapping[str, Any]
    aim: float
    axis: tuple[float, float]

    def settings(self, by: str, rounds: int) -> dict[str, Any]:
        """Return the experiment that prunes by a criterion."""
        pruning = {"pruning_every": GENERATIONS, "pruning_keep": KEEP, "pruning_by": by}
        return {
            "env": {"id": self.env, "engine": "exact"},
            "network": {"name": "mlp", "hidden": [16, 16]},
            "strategy": {**self.strategy, **pruning, "pruning_control": VARIANTS[by]},
            "generations": GENERATIONS * rounds, "population": 32, "episodes": 4, "common_random_numbers": True,
            "held_out_episodes": 100, "compute": {"check": False},
        }  # fmt: skip


TASKS = {
    "acrobot": Task("Acrobot-v1", {"name": "pgpe", "max_speed": 0.5, "initial_radius": 7.5}, -100.0, (-150.0, -50.0)),
    "cartpole": Task("CartPole-v1", {"name": "sep-cma-es"}, 475.0, (0.0, 520.0)),
}


@dataclass(frozen=True)
class Point:
    """A search: its number of connections, the held-out mean of its champion, and the digest of its run so far."""

    connections: int
    mean: float
    digest: str


def searches(task: Task, by: str, seed: int, directory: Path, rounds: int = ROUNDS) -> list[Point]:
    """Return the point of each search of a run, in order; a round and its control are two searches. Resumes the run.

    Raises InputError if the run has more generations than its points cover, because their file was removed.
    """
    kept = directory / f"seed-{seed}.json"
    points = [Point(**point) for point in json.loads(kept.read_text())] if kept.exists() else []
    for done in range(len(points), 2 * rounds if VARIANTS[by] else rounds):
        run = evolve.train(task.settings(by, done + 1), seed=seed, output=directory, resume=True)
        assert run.held_out is not None
        connections = int(run.generations[-1].record.connections[0])
        points.append(Point(connections, run.held_out.mean, run.digest))
        write(kept, [asdict(point) for point in points])
    return points


Curves = dict[str, list[list[Point]]]
"""For each variant and the control, and each seed: the points from all connections to the fewest."""


def curves(task: Task, out: Path, seeds: Sequence[int], rounds: int = ROUNDS) -> Curves:
    """Return the points of all runs of a task; missing runs are run."""
    found: Curves = {}
    for by, controlled in VARIANTS.items():
        for seed in seeds:
            began = time.perf_counter()
            points = searches(task, by, seed, out / task.env / by, rounds)
            print(f"{task.env} by {by}, seed {seed}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
            found.setdefault(by, []).append(points[::2] if controlled else points)
            if controlled:
                found.setdefault(CONTROL, []).append(points[1::2])
    return found


def means(runs: Sequence[Sequence[Point]]) -> np.ndarray:
    """Return [seeds, searches]: the held-out means of runs."""
    return np.array([[point.mean for point in run] for run in runs])


def table(found: Curves) -> str:
    """Return the table of a task: for every third round the median over seeds, and the worst and the best."""
    whole = found["signal-to-noise"][0]
    rows = []
    for n in range(0, len(whole), 3):
        cells = [_cell(means(runs)[:, n]) for runs in found.values()]
        rows.append([f"{whole[n].connections / whole[0].connections:.1%}", str(whole[n].connections), *cells])
    return markdown(["left", "connections", *found], rows)


def _cell(values: np.ndarray) -> str:
    return f"**{np.median(values):.0f}** ({values.min():.0f} to {values.max():.0f})"


def fewest(task: Task, found: Curves) -> str:
    """Return the table of the sparsest networks that have learnt a task: for each variant, by seed."""
    rows = []
    for name, runs in found.items():
        least = [min((p.connections for p in run if p.mean >= task.aim), default=math.inf) for run in runs]
        digests = " ".join(f"`{run[-1].digest[:8]}`" for run in runs)
        rows.append([name, f"**{_count(float(np.median(least)))}**", ", ".join(map(_count, least)), digests])
    return markdown(
        ["chosen by", f"fewest connections with {task.aim:g} or more, median", "by seed", "digests at the end"], rows
    )


def _count(connections: float) -> str:
    """Return a number of connections as text; "never" for infinity."""
    return "never" if math.isinf(connections) else f"{connections:.0f}"


@styled
def draw(results: Mapping[Task, Curves]) -> Any:
    """Return the figure: a panel for each task, with the median over seeds and the range, by share of connections."""
    height = 2.4  # of a panel
    figure = new_figure(height * len(results))
    for panel, (task, found) in zip(
        figure.subplots(len(results), 1, squeeze=False)[:, 0], results.items(), strict=True
    ):
        whole = found["signal-to-noise"][0][0].connections
        labels = []
        dashes = alternating_dashes([np.median(means(runs), axis=0) for runs in found.values()])
        for (name, runs), style in zip(found.items(), dashes, strict=True):
            x = np.array([100 * point.connections / whole for point in runs[0]])
            values = means(runs)
            middle = np.median(values, axis=0)
            panel.fill_between(x, values.min(axis=0), values.max(axis=0), color=_COLOUR[name], alpha=0.1, lw=0)
            panel.plot(x, middle, marker="o", ms=2.5, color=_COLOUR[name], **style)
            labels.append(LineLabel(name, x[-1], middle[-1], _COLOUR[name]))
        panel.set_xscale("log")
        panel.set_xlim(100, 100 * LEAST * 0.85)
        panel.set_xticks([100, 50, 20, 10, 5, 2], ["100", "50", "20", "10", "5", "2"])
        panel.minorticks_off()
        panel.set(title=task.env, xlabel="connections left, %", ylabel="held-out mean return", ylim=task.axis)
        label_lines(panel, labels, height)
    return figure


def main() -> None:
    """Run the missing runs; write the tables and the figure once all are complete."""
    parser = argparse.ArgumentParser(description="Lottery tickets: run the study, or what is left of it.")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/tickets"), metavar="DIR")
    parser.add_argument("--report", action="store_true", help="write the tables and the figure of the page")
    options = parser.parse_args()
    results = {name: curves(TASKS[name], options.output, options.seeds) for name in options.tasks}
    for name, found in results.items():
        tables = {name: table(found), f"{name} fewest": fewest(TASKS[name], found)}
        for section, text in tables.items():
            print(f"\n{text}")
            if options.report:
                fill(PAGE, section, text)
    if options.report:
        save(draw({TASKS[name]: found for name, found in results.items()}), FIGURE)


if __name__ == "__main__":
    main()
