"""The outputs of the runs: the tables of docs/learning.md and of its notebook, between their marks, and the figures."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from pages import fill, markdown

from evolve.analysis.figures.style import save
from lifetime_parts import bounds, tables
from lifetime_parts.figures import draw_lives, draw_seeds, draw_sweep, optima
from lifetime_parts.measures import measure
from lifetime_parts.presets import NETWORKS, ROOT, TASKS
from lifetime_parts.runs import SWEEP_NETWORKS, judged, long_controls, sweep

PAGE = ROOT / "docs" / "learning.md"
NOTEBOOK = ROOT / "docs" / "notebook" / "learning.md"
FIGURES = ROOT / "docs" / "assets" / "learning"
_MARKED = {
    "cues": ("static", "optimum"),
    "reversal": ("static", "optimum"),
    "tmaze": ("static", "optimum"),
    "bandit": ("static", "win-stay, lose-shift", "index"),
}
Say = Callable[[str], None]


def report(
    out: Path, seeds: Sequence[int], say: Say, page: Path = PAGE, notebook: Path = NOTEBOOK, figures: Path = FIGURES
) -> None:
    """Write the tables of the tasks, and of the sweep, whose runs are complete; and what the tasks share if all are."""
    results = {name: _results(name, out, seeds) for name in TASKS}
    for name, found in results.items():
        missing = [network for network in NETWORKS if network not in found]
        if missing:
            say(f"{name}: without {', '.join(missing)}, whose runs are not complete")
    results = {name: found for name, found in results.items() if "hebbian-dag" in found}
    values = {"cues": bounds.cues(), "reversal": bounds.reversal(), "bandit": bounds.bandit(lives=40_000)}
    values["tmaze"] = values["reversal"]
    fill(page, "bounds", _bounds_table(values))
    for name, found in results.items():
        fill(page, name, tables.reached(TASKS[name], found))
        fill(notebook, f"{name} seeds", tables.all_seeds(found))
    figures.mkdir(parents=True, exist_ok=True)
    if len(results) == len(TASKS):
        fill(notebook, "presets", tables.presets(results))
        fill(notebook, "digests", tables.digests(results))
        index = bounds.play_bandit(bounds.index_learner())
        save(draw_lives(results, optima(index)), figures / "lives.svg")
        lines = {name: [(word, values[name][word].mean) for word in _MARKED[name]] for name in results}
        save(draw_seeds(results, lines), figures / "seeds.svg")
    else:
        say("not all tasks are complete, so the tables and figures of all together stay as they are")
    learnt = sweep_results(out)
    if learnt:
        fill(page, "sweep", tables.swept(learnt))
        save(draw_sweep(learnt), figures / "sweep.svg")
    else:
        say("sweep: not all of its runs are complete, so its table stays as it is")
    for network, found in _long_results(out).items():
        say(f"long: the held-out means of {network} are {', '.join(f'{one.long_mean:.4f}' for one in found)}")


def _results(name: str, out: Path, seeds: Sequence[int]) -> dict[str, list[tables.Measured]]:
    """Return the measured runs of a task by network, for networks with all runs complete."""
    found = {}
    for network in NETWORKS:
        try:
            jobs = judged(TASKS[name], network, seeds)
        except KeyError:  # not tuned yet
            continue
        if all(job.load(out) is not None for job in jobs):
            found[network] = [measure(job, out) for job in jobs]
    return found


def _long_results(out: Path) -> dict[str, list[tables.Measured]]:
    jobs = long_controls()
    if any(job.load(out) is None for each in jobs.values() for job in each):
        return {}
    return {network: [measure(job, out) for job in each] for network, each in jobs.items()}


def sweep_results(out: Path) -> dict[str, dict[tuple[int, int], float]]:
    """Return for each network, by cues and presentations, the learnt share; nothing if a run is missing.

    0 is guessing, 1 is the optimum; a mean over seeds.
    """
    found: dict[str, dict[tuple[int, int], list[float]]] = {}
    for network in SWEEP_NETWORKS:
        for job in sweep(network):
            run = job.load(out)
            if run is None or run.held_out is None:
                return {}
            kwargs = job.settings["env"]["kwargs"]
            point = kwargs["cues"], kwargs["presentations"]
            share = (run.held_out.mean - 0.5) / (bounds.cues(point[1])["optimum"].mean - 0.5)
            found.setdefault(network, {}).setdefault(point, []).append(share)
    return {network: {at: float(np.mean(each)) for at, each in cells.items()} for network, cells in found.items()}


def _bounds_table(values: dict[str, dict[str, bounds.Value]]) -> str:
    names = list(dict.fromkeys(name for each in values.values() for name in each))
    rows = [[task, *(str(each[name]) if name in each else "" for name in names)] for task, each in values.items()]
    return markdown(["task", *names], rows)
