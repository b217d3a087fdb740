"""Write the table and the figure of sparse walkers on docs/results.md: python experiments/sparse.py [DIR]

It reads the runs of `STAGES` in a folder of `benchmarks/study.py`. Each stage begins with the champions of the stage
before it. While a stage prunes, the best candidates of some generations play held-out episodes, too: they show what
pruning costs before the other weights have settled.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import numpy as np
from numpy.typing import NDArray
from pages import fill, markdown

import evolve
from evolve.analysis.figures.style import COLOURS, FAINT, INK, new_figure, save, styled
from evolve.strategies.acting import Paths

ROOT = Path(__file__).parents[1]
PAGE, FIGURE = ROOT / "docs" / "results.md", ROOT / "docs" / "assets" / "walker-sparse-curve.svg"
STAGES = ("walker-farther", "walker-sparse", "walker-sparser", "walker-sparsest")
WHILE_PRUNING = (0.05, 0.1, 0.2, 0.4, 1.0)
"""The generations of a stage with candidates that play, too: shares of the generations in which it prunes."""
EPISODES = 20  # of a candidate on the way
POOR = 200.0
"""A walker that falls has a smaller return."""
HEAD = ("experiment", "seeds", "connections that can act", "held-out mean", f"episodes below {POOR:g}", "steps in all")


@dataclass(frozen=True)
class Walker:
    """What a stage has made of a seed's walker.

    Attributes:
        origin: The experiment, as the table names it.
        connections: The number of connections that can act.
        returns: Its held-out returns [episodes].
        steps: The environment steps of the stage, up to this walker.
        on_the_way: The connections and the mean returns of best candidates while the stage pruned.
    """

    origin: str
    connections: int
    returns: NDArray[np.float64]
    steps: int
    on_the_way: list[tuple[int, float]]


def acting(run: evolve.Run, generation: int | None = None) -> int:
    """Return the number of connections that can act in the final champion, or in the best candidate of a generation."""
    policy = run.champion(generation=generation)
    return int(Paths(policy.experiment.network).count(policy.genome.mask)[0])


def steps(run: evolve.Run, end: int | None = None) -> int:
    """Return the environment steps of a run, or of its first `end` generations."""
    return sum(int(generation.record.steps) for generation in run.generations[:end])


def dense(run: evolve.Run, following: evolve.Config) -> Walker:
    """Return the walker with all connections with which the run of the next stage began. following: its settings."""
    generation, episodes = following.start_from.generation, following.held_out_episodes
    returns = np.array(run.evaluate(episodes=episodes, generation=generation).returns)
    origin = f"`{STAGES[0]}`, generation {generation}"
    return Walker(origin, acting(run, generation), returns, steps(run, generation), [])


def sparse(name: str, run: evolve.Run) -> Walker:
    """Return the champion of a complete run that prunes. name: its experiment."""
    pruned = run.config.strategy.options.pruning_generations
    way = []
    for generation in [round(share * pruned) - 1 for share in WHILE_PRUNING]:
        played = run.evaluate(episodes=EPISODES, generation=generation)
        way.append((acting(run, generation), played.mean))
    return Walker(f"`{name}`", acting(run), np.array(run.held_out.returns), steps(run), way)


def chains(folder: Path) -> list[list[Walker]]:
    """Return the walkers of every seed, stage by stage; a chain ends before the first run that is not complete."""
    found = []
    for path in sorted((folder / STAGES[0]).glob("seed-*.h5"), key=lambda path: int(path.stem.split("-")[1])):
        chain: list[Walker] = []
        for stage in STAGES[1:]:
            file = folder / stage / path.name
            run = evolve.load(file) if file.exists() else None
            if not isinstance(run, evolve.Run) or not run.complete or run.held_out is None:
                break
            if not chain:
                chain.append(dense(evolve.load(path), run.config))
            chain.append(sparse(stage, run))
        found.append(chain)
    return found


def spread(values: list[float]) -> str:
    """Return the median of some values, and the least and the largest, as text."""
    return f"{np.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def table(found: list[list[Walker]]) -> str:
    """Return the table: a row for each stage, over its seeds."""
    rows = []
    for stage in range(len(STAGES)):
        whole = [chain[: stage + 1] for chain in found if len(chain) > stage]
        if not whole:
            continue
        returns = np.array([chain[-1].returns for chain in whole])  # [seeds, episodes]
        rows.append([
            whole[0][-1].origin,
            str(len(whole)),
            spread([chain[-1].connections for chain in whole]),
            f"**{spread(returns.mean(axis=1).tolist())}**",
            f"{np.count_nonzero(returns < POOR)} of {returns.size:,}",
            f"{spread([sum(walker.steps for walker in chain) / 1e6 for chain in whole])} M",
        ])  # fmt: skip
    return markdown(HEAD, rows)


@styled
def draw(found: list[list[Walker]]) -> Any:
    """Return the figure: champions of each stage, with their median, and candidates while the network was pruned."""
    figure = new_figure(3.8)
    panel = figure.subplots()
    for number, chain in enumerate(found):
        points = [
            point for walker in chain for point in (*walker.on_the_way, (walker.connections, walker.returns.mean()))
        ]
        x, y = zip(*points, strict=True)
        panel.plot(x, y, color=FAINT, lw=0.7, alpha=0.7, label=None if number else "a seed, while it is pruned")
    for stage, (name, colour) in enumerate(zip(STAGES, COLOURS, strict=False)):
        walkers = [chain[stage] for chain in found if len(chain) > stage]
        if not walkers:
            continue
        x, y = [walker.connections for walker in walkers], [walker.returns.mean() for walker in walkers]
        middle = float(np.median(y))
        panel.plot(x, y, "o", ms=5, mew=0, alpha=0.75, color=colour, label=f"{name}: {len(walkers)} walkers")
        panel.plot(np.median(x), middle, "_", ms=22, mew=2.2, color=INK)
        panel.annotate(f"median {middle:.0f}", (float(np.median(x)), 355), ha="center", va="bottom")
    panel.set(xscale="log", xlabel="connections that can act", ylabel="held-out mean return", ylim=(-130, 380))
    ticks = [932, 500, 300, 180, 100, 60, 40, 20]
    panel.set_xticks(ticks, [str(tick) for tick in ticks])
    panel.minorticks_off()
    panel.invert_xaxis()
    panel.legend(loc="lower left")
    return figure


def main() -> None:
    """Write the table and the figure."""
    parser = argparse.ArgumentParser(description="Write the table and the figure of sparse walkers.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/study"), metavar="DIR")
    found = [chain for chain in chains(parser.parse_args().folder) if chain]
    fill(PAGE, "sparse", table(found))
    save(draw(found), FIGURE)


if __name__ == "__main__":
    main()
