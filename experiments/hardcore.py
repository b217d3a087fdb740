"""Write the table and the figure of hardcore walkers on docs/results.md: python experiments/hardcore.py [DIR | FILE]

DIR has the runs of `STAGES`, as `benchmarks/study.py` writes them. Each stage begins with the champions of the stage
before it. Run files of ten thousand candidates have hundreds of megabytes, so --save writes what is shown of them to a
file, which this script also takes.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sparse import PAGE, ROOT, chains, fill, markdown, no_runs, spread

import evolve
from evolve.analysis.figures.style import COLOURS, FAINT, INK, new_figure, save, styled

FIGURE = ROOT / "docs" / "assets" / "walker-hardcore.svg"
RESULTS = ROOT / "benchmarks" / "results" / "gpu" / "walker-hardcore.json"
STAGES = ("walker-far", "walker-hardcore-gpu-1", "walker-hardcore-gpu-2", "walker-hardcore-gpu",
          "walker-hardcore-gpu-far")  # fmt: skip
GOOD = 200.0
"""A walker that comes to the end of the course, or nearly, has a larger return."""
HEAD = ("seed", "after stages 1 to 3", "held-out mean", "median episode", f"episodes above {GOOD:g}", "below 0",
        "steps over obstacles", "digest")  # fmt: skip
ELSEWHERE = {"PPO": (122, 0.3), "TQC": (235, 0.01)}
"""Agents of rl-baselines3-zoo on BipedalWalkerHardcore-v3: their means, and where the figure has room for the names."""
SMOOTH = 5  # generations


@dataclass(frozen=True)
class Stage:
    """What is shown of a run: by generation its environment steps and the mean fitness of its candidates, [G] each.

    returns: The champion's, of held-out episodes. digest: Of the last generation.
    """

    steps: list[int]
    means: list[float]
    returns: list[float]
    digest: str

    @classmethod
    def of(cls, run: evolve.Run) -> "Stage":
        """Return what is shown of a run."""
        records = [generation.record for generation in run.generations]
        means = [round(float(np.mean(record.fitness)), 2) for record in records]
        returns = np.round(run.held_out.returns, 2).tolist()
        return cls([int(record.steps) for record in records], means, returns, run.digest)


Chain = list[Stage]
"""The stages of a seed, without the first, which has no obstacles."""


def read(path: Path) -> dict[int, Chain]:
    """Return the stages by seed, of all seeds with all stages. path: a folder of runs, or a saved file.

    Ends the process with a message if there is no such seed.
    """
    if not path.is_file():
        whole = [chain for chain in chains(path, STAGES) if len(chain) == len(STAGES)]
        if not whole:
            raise no_runs(path, STAGES)
        return {chain[0].seed: [Stage.of(run) for run in chain[1:]] for chain in whole}
    saved = json.loads(path.read_text())
    return {int(seed): [Stage(**stage) for stage in stages] for seed, stages in saved.items()}


def table(found: dict[int, Chain]) -> str:
    """Return the table: a row for each seed, and one for all."""
    rows = []
    for seed, stages in found.items():
        returns = np.array(stages[-1].returns)
        shares = [f"{np.mean(part):.0%}" for part in (returns > GOOD, returns < 0)]
        means = [f"{np.mean(stage.returns):.0f}" for stage in stages]
        taken = sum(sum(stage.steps) for stage in stages) / 1e9
        figures = [", ".join(means[:-1]), means[-1], f"{np.median(returns):.0f}", *shares, f"{taken:.2f} G"]
        rows.append([str(seed), *figures, f"`{stages[-1].digest[:8]}`"])
    by_stage = zip(*found.values(), strict=True)
    *earlier, last = (spread([float(np.mean(stage.returns)) for stage in seeds]) for seeds in by_stage)
    return markdown(HEAD, [*rows, ["all", ", ".join(earlier), f"**{last}**", "", "", "", "", ""]])


def curve(stage: Stage) -> tuple[Any, Any]:
    """Return the steps of a stage, in billions, and the running means over `SMOOTH` generations of its candidates."""
    taken, window = np.cumsum(stage.steps) / 1e9, np.ones(SMOOTH) / SMOOTH
    return taken[SMOOTH - 1 :], np.convolve(stage.means, window, "valid")


@styled
def draw(found: dict[int, Chain]) -> Any:
    """Return the figure: the candidates' mean return over steps, and the champions' held-out means."""
    figure = new_figure(3.8)
    panel = figure.subplots()
    ends = []
    for number, stages in enumerate(found.values()):
        begin = 0.0
        for stage in stages:
            x, y = curve(stage)
            new = not (number or begin)
            panel.plot(
                begin + x, y, lw=1, alpha=0.8, color=COLOURS[0], label="candidates of a seed, mean" if new else None
            )
            begin += x[-1]
            label = "champion of a stage, held-out mean" if new else None
            panel.plot(begin, np.mean(stage.returns), "o", ms=5, mew=0, color=COLOURS[1], label=label)
        ends.append(begin)
    for name, (mean, left) in ELSEWHERE.items():
        panel.axhline(mean, color=FAINT, lw=1, zorder=0)
        panel.text(left * max(ends), mean + 3, f"{name}, rl-baselines3-zoo", color=INK, va="bottom")
    panel.set(
        xlabel="steps over obstacles, billions", ylabel="mean return", xlim=(0, 1.03 * max(ends)), ylim=(-60, 300)
    )
    panel.legend(loc="lower right")
    return figure


def main() -> None:
    """Write the table and the figure."""
    parser = argparse.ArgumentParser(description="Write the table and the figure of hardcore walkers.")
    parser.add_argument("path", nargs="?", type=Path, default=RESULTS, metavar="DIR | FILE")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write what is shown of the runs to a file, too")
    options = parser.parse_args()
    found = read(options.path)
    if options.save is not None:
        stages = {seed: [asdict(stage) for stage in chain] for seed, chain in found.items()}
        options.save.write_text(json.dumps(stages) + "\n")
    fill(PAGE, "hardcore", table(found))
    save(draw(found), FIGURE)


if __name__ == "__main__":
    main()
