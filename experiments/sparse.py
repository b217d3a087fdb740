"""Write the table and the figure of sparse walkers on docs/results.md: python experiments/sparse.py [DIR]

It reads the runs of `STAGES` in a folder of `benchmarks/study.py`. Each stage begins with the champions of the stage
before it. While a stage prunes, the best candidates of some generations play held-out episodes, too: they show what
pruning costs before the other weights have settled.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
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
Chain = list[evolve.Run]
"""The runs of one seed, stage by stage."""


@dataclass(frozen=True)
class Walker:
    """What a stage has made of a seed's walker.

    Attributes:
        origin: The experiment, as the table names it.
        connections: The number of connections that can act.
        returns: Its held-out returns [episodes].
        steps: The environment steps of all stages up to this walker.
        on_the_way: The connections and the mean returns of best candidates while the stage pruned.
    """

    origin: str
    connections: int
    returns: NDArray[np.float64]
    steps: int
    on_the_way: list[tuple[int, float]]


def chains(folder: Path, stages: Sequence[str]) -> list[Chain]:
    """Return the runs of every seed. A chain ends before a run that is missing, or incomplete and not the first."""
    found = []
    for path in sorted((folder / stages[0]).glob("seed-*.h5"), key=lambda path: int(path.stem.split("-")[1])):
        chain: Chain = []
        for file in (folder / stage / path.name for stage in stages):
            run = evolve.load(file) if file.exists() else None
            if not isinstance(run, evolve.Run) or (chain and (not run.complete or run.held_out is None)):
                break
            chain.append(run)
        found.append(chain)
    return found


def no_runs(path: Path, stages: Sequence[str]) -> SystemExit:
    """Return the exception for a folder without a seed that has run all stages."""
    names = " ".join(stages)
    return SystemExit(f"{path}: expected runs of {names}, got none. Run python benchmarks/study.py {names} first.")


def acting(run: evolve.Run, generation: int | None = None) -> int:
    """Return the number of connections that can act in the final champion, or in the best candidate of a generation."""
    policy = run.champion(generation=generation)
    return int(Paths(policy.experiment.network).count(policy.genome.mask)[0])


def first_steps(run: evolve.Run, end: int | None = None) -> int:
    """Return the environment steps of the first `end` generations of a run, or of all."""
    return sum(int(generation.record.steps) for generation in run.generations[:end])


def steps(chain: Chain) -> int:
    """Return the environment steps that a seed's last champion took, in all stages."""
    earlier = pairwise(chain)
    return sum(first_steps(run, after.config.start_from.generation) for run, after in earlier) + first_steps(chain[-1])


def walkers(chain: Chain) -> list[Walker]:
    """Return the dense walker with which the first stage that prunes begins, and the champion of each such stage.

    There are none if no stage has pruned yet.
    """
    if len(chain) < 2:
        return []
    first, following = chain[0], chain[1].config
    generation, episodes = following.start_from.generation, following.held_out_episodes
    taken = first_steps(first, generation)
    returns = np.array(first.evaluate(episodes=episodes, generation=generation).returns)
    found = [Walker(f"`{STAGES[0]}`, generation {generation}", acting(first, generation), returns, taken, [])]
    for stage, run in enumerate(chain[1:], start=1):
        way = []
        for share in WHILE_PRUNING:
            number = round(share * run.config.strategy.options.pruning_generations) - 1
            played = run.evaluate(episodes=EPISODES, generation=number)
            way.append((acting(run, number), played.mean))
        returns = np.array(run.held_out.returns)
        found.append(Walker(f"`{STAGES[stage]}`", acting(run), returns, steps(chain[: stage + 1]), way))
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
            f"{spread([chain[-1].steps / 1e6 for chain in whole])} M",
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
        made = [chain[stage] for chain in found if len(chain) > stage]
        if not made:
            continue
        x, y = [walker.connections for walker in made], [walker.returns.mean() for walker in made]
        middle = float(np.median(y))
        panel.plot(x, y, "o", ms=5, mew=0, alpha=0.75, color=colour, label=f"{name}: {len(made)} walkers")
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
    folder = parser.parse_args().folder
    found = [made for chain in chains(folder, STAGES) if (made := walkers(chain))]
    if not found:
        raise no_runs(folder, STAGES[:2])
    fill(PAGE, "sparse", table(found))
    save(draw(found), FIGURE)


if __name__ == "__main__":
    main()
