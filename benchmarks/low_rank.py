"""What perturbations of low rank gain in whole generations of a wide mlp, from `ask` to the record.

    python benchmarks/low_rank.py
    python benchmarks/low_rank.py --hidden 1024 1024 --threads 1 --steps 200
    python benchmarks/low_rank.py --runs runs/low-rank     the table and the figure of experiments/low-rank.toml

All episodes have the same number of steps, so all runs do the same work. Each repeat trains with every rank in turn, so
that all of them meet the same noise. The first generation is left out. The seconds are the medians of all other
generations of all repeats; the gain is full rank's seconds over them. CPU seconds count all threads.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from pages import fill, markdown

import evolve
from evolve.analysis.figures.style import COLOURS, LineLabel, alternating_dashes, label_lines, new_figure, save, styled

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "strategies.md"
FIGURE = ROOT / "docs" / "assets" / "low-rank.svg"
GOOD = -100.0
"""The mean return of a population that counts as learnt."""
LEARNING = ["rank", f"generations to a mean of {GOOD:g}", "mean of the last 10 generations", "held-out mean", "digests"]
HEADER = ["steps of an episode", "rank", "seconds of a generation", "gain", "CPU seconds", "gain"]


def train(args: argparse.Namespace, steps: int, rank: int) -> np.ndarray:
    """Return [G - 1, 2]: wall and CPU seconds of the generations of a run but the first. rank: 0 for full rank."""
    strategy = {"name": "openai-es", "sigma": 0.05, "learning_rate": 0.01}
    clocks = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in evolve.iterate(
            env={"id": "Pendulum-v1", "engine": "exact", "max_episode_steps": steps},
            network={"name": "mlp", "hidden": args.hidden},
            strategy=strategy | ({"perturbation_rank": rank} if rank else {}),
            population=args.population,
            episodes=1,
            generations=args.generations,
            seed=1,
            compute={"threads": args.threads},
            held_out_episodes=0,
            output=folder,
        ):
            clocks.append((time.perf_counter(), time.process_time()))
    return np.diff(clocks, axis=0)


def curves(folder: Path) -> dict[str, list[evolve.Run]]:
    """Return the complete runs below a folder, by their rank. Ends the process with a message if there are none."""
    found: dict[str, list[evolve.Run]] = {}
    for path in sorted(folder.rglob("seed-*.h5")):
        run = evolve.load(path)
        rank = run.config.strategy.options.perturbation_rank
        if run.complete:
            found.setdefault("full rank" if rank is None else f"rank {rank}", []).append(run)
    if not found:
        raise SystemExit(f"{folder}: expected complete runs of experiments/low-rank.toml, got none.")
    return found


def means(runs: list[evolve.Run]) -> np.ndarray:
    """Return [seeds, G]: the mean return of each generation."""
    return np.array([run.table()["mean_fitness"] for run in runs])


def table(found: dict[str, list[evolve.Run]]) -> str:
    """Return the table of learning: for each rank the median over seeds, and the smallest and the largest number.

    A run that never has the mean needs "inf" generations.
    """
    rows = []
    for name, runs in found.items():
        values = means(runs)
        good = values >= GOOD
        columns = (
            np.where(good.any(axis=1), good.argmax(axis=1) + 1, np.inf),
            values[:, -10:].mean(axis=1),
            [r.held_out.returns.mean() for r in runs],
        )
        cells = [
            f"**{np.median(c):.{n}f}** ({min(c):.{n}f} to {max(c):.{n}f})"
            for c, n in zip(columns, (0, 1, 1), strict=True)
        ]
        rows.append([name, *cells, " ".join(f"`{run.digest[:8]}`" for run in runs)])
    return markdown(LEARNING, rows)


@styled
def draw(found: dict[str, list[evolve.Run]]) -> Any:
    """Return the figure: the median over seeds, and the range; the second panel shows the best returns."""
    height = 2.4  # of a panel
    figure = new_figure(2 * height)
    dashes = alternating_dashes([np.median(means(runs), axis=0) for runs in found.values()])
    for panel, title, limits in zip(
        figure.subplots(2, 1), ("All returns", "The largest returns"), (None, (-140, -75)), strict=True
    ):
        labels = []
        for colour, (name, runs), style in zip(COLOURS, found.items(), dashes, strict=False):
            values = means(runs)
            x, middle = np.arange(1, values.shape[1] + 1), np.median(values, axis=0)
            panel.fill_between(x, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.12, lw=0)
            panel.plot(x, middle, color=colour, **style)
            labels.append(LineLabel(name, x[-1], middle[-1], colour))
        panel.set(title=title, xlabel="generations", ylabel="mean return\nof the population", ylim=limits)
        label_lines(panel, labels, height)
    return figure


def main() -> None:
    """Train; print a table. Or read runs; write the table and the figure of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 512])
    parser.add_argument("--population", type=int, default=256)
    parser.add_argument("--steps", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--generations", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--runs", type=Path, metavar="DIR", help="report these runs instead")
    args = parser.parse_args()
    if args.generations < 2 or args.repeats < 1:
        parser.error("expected at least one repeat, and two generations, as the first is left out")
    if args.runs is not None:
        found = curves(args.runs)
        fill(PAGE, "low rank", table(found))
        save(draw(found), FIGURE)
        return
    rows = []
    for steps in args.steps:
        seconds: dict[int, list[np.ndarray]] = {rank: [] for rank in (0, *args.ranks)}
        for _ in range(args.repeats):
            for rank, found in seconds.items():
                found.append(train(args, steps, rank))
        medians = {rank: np.median(np.concatenate(found), axis=0) for rank, found in seconds.items()}
        for rank, (wall, cpu) in medians.items():
            gain = medians[0] / medians[rank]
            cells = [f"{wall:.2f}", f"{gain[0]:.1f}", f"{cpu:.2f}", f"{gain[1]:.1f}"]
            rows.append([str(steps), str(rank or "full"), *cells])
    print(markdown(HEADER, rows))


if __name__ == "__main__":
    main()
