"""The tables of the study in Markdown: results over seeds, all seeds, and tests of the claims."""

from collections.abc import Mapping, Sequence

import numpy as np
from pages import figure, markdown
from resumable import in_words

from evolve.analysis.statistics import holm, rank_test
from lifetime_parts.measures import Measured
from lifetime_parts.presets import Task, chosen, label

Results = Mapping[str, Sequence[Measured]]
"""The measured runs of a task, by network and in the order of seeds."""
Sweep = Mapping[str, Mapping[tuple[int, int], float]]
"""For each network, by cues and presentations: the learnt share."""


def reached(task: Task, results: Results) -> str:
    """Return the table of a task: a row for each network, with its distribution over the seeds."""
    head = [
        "network", "median", "quartiles", "worst", f"≥ {task.aim:g}", "until then", "learning off", "p against plastic",
    ]  # fmt: skip
    ps = tests(results)
    rows = []
    for network, runs in results.items():
        means = np.array([run.mean for run in runs])
        low, middle, high = np.quantile(means, (0.25, 0.5, 0.75))
        got = sum(run.mean >= task.aim for run in runs)
        off = [run.off for run in runs if run.off is not None]
        rows.append([
            network, f"**{figure(middle)}**", f"{figure(low)} to {figure(high)}", figure(means.min()),
            f"{got} of {len(runs)}", _until(runs), figure(float(np.median(off))) if off else "", ps.get(network, ""),
        ])  # fmt: skip
    return markdown(head, rows)


def _until(runs: Sequence[Measured]) -> str:
    """Return as text the steps and seconds after which the median run first reached the aim."""
    known = [run.reached for run in runs if run.reached is not None]
    if not known:
        return "never"
    steps, seconds = np.median(np.array(known), axis=0)
    which = "" if len(known) == len(runs) else f" ({len(known)} runs)"
    return f"{steps / 1e6:.1f} M steps, {in_words(seconds) if seconds >= 1 else f'{seconds:.1f} s'}{which}"


def tests(results: Results) -> dict[str, str]:
    """Return for each control the p of the rank test against the plastic network, corrected by Holm's method."""
    plastic, *others = results
    long_means = {name: np.array([run.long_mean for run in runs]) for name, runs in results.items()}
    corrected = holm([rank_test(long_means[plastic], long_means[name]) for name in others])
    return {name: _p(p) for name, p in zip(others, corrected, strict=True)}


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def all_seeds(results: Results) -> str:
    """Return the table of every seed's held-out mean."""
    seeds = [str(run.seed) for run in next(iter(results.values()))]
    rows = [[network, *(figure(run.mean) for run in runs)] for network, runs in results.items()]
    return markdown(["network", *(f"seed {seed}" for seed in seeds)], rows)


def presets(results: Mapping[str, Results]) -> str:
    """Return the table of the chosen settings."""
    rows = []
    for task, networks in results.items():
        for name in networks:
            network, strategy = chosen(task, name)
            rows.append([task, f"`{label(network)}`", f"`{label(strategy)}`"])
    return markdown(["task", "network", "strategy"], rows)


def digests(results: Mapping[str, Results]) -> str:
    """Return the table of the abridged digests of all runs, by task and network, in the order of seeds."""
    rows = [
        [task, network, " ".join(f"`{run.digest[:8]}`" for run in runs)]
        for task, networks in results.items()
        for network, runs in networks.items()
    ]
    return markdown(["task", "network", "seeds 1, 2, … by the first letters of their digests"], rows)


def swept(found: Sweep) -> str:
    """Return the table of a sweep: networks and cues down, presentations across."""
    points = list(next(iter(found.values())))
    cues = sorted({c for c, _ in points})
    times = sorted({p for _, p in points})
    head = ["network", "cues", *(f"{p} times" for p in times)]
    rows = [[network, str(c), *(f"{cells[c, p]:.2f}" for p in times)] for network, cells in found.items() for c in cues]
    return markdown(head, rows)
