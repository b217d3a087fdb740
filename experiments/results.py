"""Compare the run files below a folder with the published results: python experiments/results.py [DIR]

With --publish they become the published results, by which `evolve verify --published` judges: the script writes the
tables of docs/results.md and the table of defaults in docs/strategies.md.

A run belongs to an experiment if it is complete and has its configuration, one of its seeds, and as many generations.
The result of each seed is kept in `evolve/verification/published.json`, so that seeds can be run one at a time. An
experiment without results is named on stderr, and keeps its rows; a table without results stays as it is.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from pages import clock, figure, fill, markdown
from seeds import SeedResult, result_of, update

from evolve import store, verification
from evolve.analysis.statistics import interval, rank_test
from evolve.cli.run import load
from evolve.config import Config, Table, differences
from evolve.errors import InputError
from evolve.shapes import Float64
from evolve.store import StoredRun
from evolve.training import load_config, prepare

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results.md"
STRATEGIES_PAGE = PAGE.with_name("strategies.md")
WALKERS = {"as in training": "leg_2=1.0", "one leg at 75 %": "leg_2=0.75", "one leg at 50 %": "leg_2=0.5",
           "gravity × 0.75": "gravity=-7.5", "gravity × 1.25": "gravity=-12.5"}  # fmt: skip
SINGLE = ("cartpole", "pendulum", "acrobot", "car", "lander", "cheetah", "walker-quick", "walker-es", "walker-far",
          "walker-farther", "walker-sparse", "walker-sparser", "walker-sparsest", "walker-pruned", "walker-plastic",
          "walker-hardcore", "walker-hardcore-far", "walker-hardcore-gpu", "walker-hardcore-gpu-far")  # fmt: skip
LIFETIME = ("cues", "reversal", "reversal-long", "tmaze", "bandit")
_MANY = 5  # seeds; of more the median is shown instead of each seed


@dataclass(frozen=True)
class Aim:
    """The aim set before the runs: the least held-out mean, and the largest number of connections."""

    mean: float
    connections: int | None = None

    def reached(self, result: SeedResult) -> bool:
        """Whether a run's final champion reaches the aim."""
        return result.mean >= self.mean and (self.connections is None or result.connections <= self.connections)

    def __str__(self) -> str:
        """The aim as text for the table."""
        few = "" if self.connections is None else f", with at most {self.connections} connections"
        return f"{self.mean:g}{few}"


AIMS = {
    "cartpole": Aim(495), "pendulum": Aim(1000, 5), "acrobot": Aim(-80), "car": Aim(90), "lander": Aim(250),
    "cheetah": Aim(5000), "walker-quick": Aim(300), "walker-es": Aim(300), "walker-far": Aim(327),
    "walker-farther": Aim(335), "walker-sparse": Aim(320, 180), "walker-sparser": Aim(300, 60),
    "walker-pruned": Aim(288, 186), "walker-plastic": Aim(250), "walker-hardcore": Aim(250),
    "walker-hardcore-far": Aim(250), "walker-hardcore-gpu": Aim(250), "walker-hardcore-gpu-far": Aim(250),
    "cues": Aim(0.93), "reversal": Aim(0.93), "reversal-long": Aim(0.93), "tmaze": Aim(0.93), "bandit": Aim(68.1),
}  # fmt: skip
Runs = Sequence[tuple[StoredRun, Config]]
Found = Mapping[str, Sequence[SeedResult]]
"""The results of the seeds of each experiment."""


def find(folder: Path) -> list[tuple[StoredRun, Config]]:
    """Return the complete runs below a folder, each with its configuration."""
    runs = []
    for path in sorted(folder.rglob("seed-*.h5")):
        try:
            run = store.read(path)
            if run.complete and run.held_out is not None:
                runs.append((run, load_config(run.header.config, str(path))))
        except InputError as wrong:  # also settings of another version
            print(wrong, file=sys.stderr)
    return runs


def of(config: Config, runs: Runs) -> list[StoredRun]:
    """Return the runs of an experiment, by seed; runs with other limits do not belong to it."""
    ours = prepare(config).config
    same = [
        run for run, theirs in runs
        if run.header.seed in ours.seeds and not differences(ours, theirs)
        and (theirs.generations, theirs.early_stop) == (ours.generations, ours.early_stop)
        and theirs.evaluates_like(ours)
        and run.held_out is not None and len(run.held_out.returns) == ours.held_out_episodes
    ]  # fmt: skip
    by_seed: dict[int, StoredRun] = {}
    for run in same:
        known = by_seed.setdefault(run.header.seed, run)
        if known.records[-1].digest != run.records[-1].digest:
            print(f"{known.path} and {run.path} differ: evolve.verify says where", file=sys.stderr)
    return [by_seed[seed] for seed in sorted(by_seed)]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, "" without rows."""
    return markdown(head, rows) if rows else ""


def each(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Return the value of each seed; of many seeds the median and, unless they are equal, the quartiles."""
    if len(values) < _MANY:
        return ", ".join(show(value) for value in values)
    low, middle, high = (show(float(value)) for value in np.quantile(values, (0.25, 0.5, 0.75)))
    return middle if low == high else f"{middle} ({low.strip('*')} to {high.strip('*')})"


def describe(section: Table, others: Sequence[Table]) -> str:
    """Return a text for a network or a strategy: its name, and the fewest options that tell it from the others."""
    alike = [other for other in others if other["name"] == section["name"]]
    words = []
    for key, value in section.items():
        if any(other.get(key) != value for other in alike):
            alike = [other for other in alike if other.get(key) == value]
            words.append(f"{key} {value}")
    return f"{section['name']} ({', '.join(words)})" if words else str(section["name"])


def results(paths: Sequence[Path], found: Found) -> str:
    """Return the table of the results of experiments, over all of their seeds."""
    rows = []
    for path in paths:
        (config,), question = load([str(path)])[0], path.read_text().splitlines()[0].removeprefix("# ")
        seeds = found.get(path.stem)
        if not seeds:
            print(f"{path.name}: no whole run of it was found", file=sys.stderr)
            continue
        aim = AIMS.get(path.stem)
        rows.append([
            f"`{path.stem}`: {question}",
            f"{config.network.name}, {config.strategy.name}",
            each([seed.mean for seed in seeds], lambda mean: f"**{figure(mean)}**"),
            figure(min(seed.mean for seed in seeds)),
            f"{sum(map(aim.reached, seeds))} of {len(seeds)}: {aim}" if aim else f"{len(seeds)} seeds",
            f"{each([seed.connections for seed in seeds], lambda count: f'{count:,g}')} of {seeds[0].possible:,}",
            each([seed.steps / 1e6 for seed in seeds], lambda millions: f"{millions:.1f} M"),
            each([seed.seconds for seed in seeds], clock),
        ])  # fmt: skip
    return table(
        ["question", "network, strategy", "held-out mean", "worst", "aim reached", "connections", "steps", "time"], rows
    )


def swept(path: Path, runs: Runs) -> str:
    """Return a table for each network of a sweep: strategies down, environments across, means in the cells.

    The text is empty if a run is missing.
    """
    points = [prepare(config).config for config in load([str(path)])[0]]
    tasks = list(dict.fromkeys(config.env.id for config in points))
    networks = [config.network.table() for config in points]
    strategies = [config.strategy.table() for config in points]
    cells: dict[str, dict[str, dict[str, list[float]]]] = {}  # by network, strategy and environment
    for config in points:
        network, strategy = describe(config.network.table(), networks), describe(config.strategy.table(), strategies)
        means = [result_of(run).mean for run in of(config, runs)]
        if len(means) < len(config.seeds):
            return ""
        cells.setdefault(network, {}).setdefault(strategy, {})[config.env.id] = means
    tables = []
    for network, by_strategy in cells.items():
        rows = [[name, *(cell(means[task]) for task in tasks)] for name, means in by_strategy.items()]
        tables.append(f"\n**{network}**\n\n{table(['strategy', *tasks], rows)}")
    return "\n".join(tables)


def cell(means: list[float]) -> str:
    """Return a mean over seeds, with the worst and the best seed."""
    return f"{np.mean(means):.0f} ({min(means):.0f} to {max(means):.0f})"


def against_random(path: Path, runs: Runs) -> str:
    """Return the table of a sweep over strategies and environments, with the seeds in which a strategy is not behind
    random search: its held-out mean is at least the held-out mean of random search with the same seed."""
    means: dict[str, dict[str, dict[int, float]]] = {}
    for config in (prepare(config).config for config in load([str(path)])[0]):
        results = map(result_of, of(config, runs))
        means.setdefault(config.strategy.name, {})[config.env.id] = {seed.seed: seed.mean for seed in results}
    control = means["random"]
    seeds = {frozenset(found) for tasks in means.values() for found in tasks.values()}
    if len(seeds) > 1 or not all(seeds):  # some run is missing
        return ""
    rows = []
    for strategy, tasks in means.items():
        cells = []
        for task, found in tasks.items():
            low, middle, high = (figure(float(value)) for value in np.quantile(list(found.values()), (0, 0.5, 1)))
            ahead = sum(mean >= control[task][seed] for seed, mean in found.items())
            count = "" if strategy == "random" else f"; {ahead} of {len(found)}"
            cells.append(f"**{middle}** ({low} to {high}){count}")
        rows.append([f"`{strategy}`", *cells])
    return table(["strategy", *control], rows)


def elsewhere(champion: Path, change: str) -> Float64:
    """Return the returns of a champion file in its environment with a changed argument."""
    words = ["--set", f"env.kwargs.{change}"]
    done = subprocess.run(
        [sys.executable, "-m", "evolve.evaluate", str(champion), *words, "--json"],
        cwd=HERE.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)
    return np.array(json.loads(done.stdout)["returns"], float)


def with_interval(sample: Float64) -> str:
    """Return the mean of a sample with its 95 % interval."""
    found = interval(sample)
    spread = "" if found is None else f" ({found[0]:.0f} to {found[1]:.0f})"
    return f"{sample.mean():.0f}{spread}"


def robustness(names: Sequence[str]) -> str:
    """Return the table of the zoo's walkers on bodies that they were not trained on."""
    rows = []
    for name in names:
        champion = store.read_champion(HERE.parent / "zoo" / f"{name}.champion")
        samples = [elsewhere(champion.path, env) for env in WALKERS.values()]
        rows.append([name, f"{champion.header.seed}", *map(with_interval, samples)])
    return table(["champion of", "seed", *WALKERS], rows)


def compared(paths: Sequence[Path], runs: Runs) -> str:
    """Return the table of experiments compared with the first of them, "" if a run is missing."""
    rows, first = [], None
    for path in paths:
        (config,) = load([str(path)])[0]
        found = of(config, runs)
        if len(found) < len(config.seeds):
            return ""
        of_seeds = [result_of(run) for run in found]
        means, steps = np.array([seed.mean for seed in of_seeds]), float(np.mean([seed.steps for seed in of_seeds]))
        first = first or (means, steps)
        p = f"{rank_test(means, first[0]):.2f}" if means is not first[0] else ""
        each = ", ".join(f"{mean:.0f}" for mean in means)
        words = f"{means.mean():.0f} ({each})", f"{steps / 1e6:.1f} M", f"{steps / first[1]:.2f}", p
        rows.append([f"`{path.stem}`", *words])
    return table(["experiment", "held-out mean (of each seed)", "steps", "share of the steps", "p"], rows)


def merged(text: str, names: Sequence[str], before: str) -> str:
    """Return a table of experiments in the order of `names`, completed with rows of the earlier table.

    Args:
        text: The table, whose rows begin with the name of an experiment.
        names: The names of all experiments.
        before: The earlier table, or a page that has it.
    """
    head = text.splitlines()[:2]

    def rows(name: str, table: str) -> list[str]:
        return re.findall(rf"^\| `?{re.escape(name)}[`:]* .*\|$", table, re.M)

    return "\n".join([*head, *(row for name in names for row in rows(name, text) or rows(name, before))])


def write(section: str, text: str, names: Sequence[str] = (), page: Path | None = None) -> None:
    """Put a table between its two markers on the page; an empty table leaves the page as it is.

    Args:
        section: The name of the markers.
        text: The table.
        names: The experiments whose earlier rows stay if the table has none for them.
        page: The page, by default the page of results.
    """
    if not text:
        print(f"{section}: not all of its runs were found, so its table stays as it is", file=sys.stderr)
        return
    fill(page or PAGE, section, lambda earlier: merged(text, names, earlier) if names else text)


def compare(runs: Runs) -> int:
    """Print whether each run has its published result; return the exit code, 1 if one differs."""
    published, verdicts = verification.read_published(), []
    for run, _ in runs:
        try:
            verdicts.append(verification.compare_with_published(run, published))
        except InputError:
            print(f"{run.path}: not published")
            continue
        print(f"{run.path}: {'equal' if verdicts[-1].equal else 'different'}: {verdicts[-1].summary}")
    return int(not all(verdicts))


def main() -> None:
    """Compare the runs, or write all tables."""
    parser = argparse.ArgumentParser(description="Compare run files with the published results, or publish them.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/study"), metavar="DIR")
    parser.add_argument("--publish", action="store_true", help="replace published results, and write all tables")
    parser.add_argument(
        "--robustness", action="store_true", help="also evaluate three walkers of the zoo on changed bodies: a minute"
    )
    options = parser.parse_args()
    runs = find(options.folder)
    if not options.publish:
        sys.exit(compare(runs))
    single = [HERE / f"{name}.toml" for name in SINGLE]
    lifetime = [HERE / f"{name}.toml" for name in LIFETIME]
    every = [*single, *lifetime]
    # An experiment may not be usable here, for example without EnvPool. Find out before anything is written.
    ours = {path: of(load([str(path)])[0][0], runs) for path in every}
    found = {path.stem: update(path, some) for path, some in ours.items()}
    write("results", results(every, found), [*SINGLE, *LIFETIME])
    write("strategies", swept(HERE / "strategies.toml", runs))
    write("defaults", against_random(HERE / "defaults.toml", runs), page=STRATEGIES_PAGE)
    write("pruning", swept(HERE / "pruning.toml", runs))
    write("racing", compared([HERE / "walker-all.toml", HERE / "walker-racing.toml"], runs))
    if options.robustness:
        walkers = ("walker-es", "walker-pruned", "walker-plastic")
        write("robustness", robustness(walkers), walkers)


if __name__ == "__main__":
    main()
