"""The page of the site, made of the records: a table in Markdown and the figure."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pages import clock, fill, markdown

from evolve.analysis.figures.style import COLOURS, FAINT, QUIET, matplotlib, new_figure, save, set_title, styled
from evolve.analysis.statistics import rank_test
from evolve.errors import pluralize
from ppo_parts.records import METHODS, check_alike, places, read
from ppo_parts.tasks import TASKS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "ppo"
PAGE = ROOT / "docs" / "comparison.md"
FIGURE = ROOT / "docs" / "assets" / "ppo.svg"
_NAMES = {"evolution": "evolution", "ppo": "PPO", "tqc": "TQC"}
_LOOK = {"evolution": (COLOURS[0], "-", "o"), "ppo": (COLOURS[1], "--", "s"), "tqc": (COLOURS[2], "-.", "^")}
_AXES = {"steps": "environment steps", "seconds": "seconds of training"}
_NEVER = {"steps": np.inf, "seconds": np.inf}
_GRID = 60  # places on an axis
_FEW = 3  # a row with fewer seeds says why
_HEAD = (
    "task", "method", "seeds", "held-out mean", "steps", "time", "processor time", "aim", "aim reached by",
    "steps to the aim", "time to the aim",
)  # fmt: skip
Records = Sequence[dict[str, Any]]


def show(folder: Path) -> None:
    """Print the table of the records below a folder; draw the figure of them there."""
    found = _some(folder)
    print(table(found))
    figure = draw(found)
    for suffix in (".png", ".svg"):
        save(figure, folder / f"ppo{suffix}")
    print(f"\nFigure: {folder / 'ppo.png'}")


def publish(folder: Path) -> None:
    """Copy the records below a folder into the repository; write the page and its figure from all its records."""
    kept, new = read(RESULTS), _some(folder)
    check_alike({key: [*kept.get(key, ()), *new.get(key, ())] for key in kept | new})
    for path in places(folder):
        place = RESULTS / path.parent.name / path.name
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.resolve() != place.resolve():
            shutil.copyfile(path, place)
    found = read(RESULTS)
    fill(PAGE, "ppo", f"\n{table(found)}\n")
    save(draw(found), FIGURE)


def _some(folder: Path) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the records below a folder. Ends the process with a message if there are none."""
    found = read(folder)
    if not found:
        raise SystemExit(
            f"{folder}: expected JSON files of finished runs, got none. Run python benchmarks/ppo.py first."
        )
    return found


def table(found: dict[tuple[str, str], list[dict[str, Any]]]) -> str:
    """Return the table, with the machine and the versions below it."""
    keys = [(task, method) for task in TASKS for method in METHODS if (task, method) in found]
    return "\n".join([markdown(_HEAD, (row(*key, found[key]) for key in keys)), "", *notes(found)])


def row(task: str, method: str, records: Records) -> list[str]:
    """Return the cells of a task and a method."""
    last = [record["curve"][-1] for record in records]
    aim = TASKS[task].aim
    firsts = [first_at(record, aim) for record in records]
    reached = sum(point is not None for point in firsts)
    some = reached > len(records) / 2  # otherwise the median seed does not reach it
    steps, seconds = (median([point or _NEVER for point in firsts], name) for name in ("steps", "seconds"))
    seeds = ", ".join(str(record["seed"]) for record in records)
    if len(records) < _FEW:
        seeds += f" (few: a run takes {clock(median(last, 'cpu_seconds'))})"
    return [
        task, _NAMES[method], seeds,
        spread([point["mean"] for point in last]), count(median(last, "steps")), clock(median(last, "seconds")),
        clock(median(last, "cpu_seconds")), f"{aim:g}", f"{reached} of {len(records)}",
        count(steps) if some else "–", clock(seconds) if some else "–",
    ]  # fmt: skip


def first_at(record: dict[str, Any], aim: float) -> dict[str, Any] | None:
    """Return the first point at which a champion reached the aim, None if there is none."""
    return next((point for point in record["curve"] if point["mean"] >= aim), None)


def median(points: Records, name: str) -> float:
    """Return the median of a number of points."""
    return float(np.median([point[name] for point in points]))


def spread(means: Sequence[float]) -> str:
    """Return the median, and the quartiles if there are several values."""
    low, middle, high = np.percentile(means, (25, 50, 75))
    digits = 2 if abs(middle) < 10 else 0
    around = f" ({low:.{digits}f} to {high:.{digits}f})" if len(means) > 1 else ""
    return f"**{middle:.{digits}f}**{around}"


def count(steps: float) -> str:
    """Return a number of steps as text."""
    return f"{steps / 1e6:.2f} M" if steps >= 1e6 else f"{steps / 1e3:.0f} k"


def notes(found: dict[tuple[str, str], list[dict[str, Any]]]) -> list[str]:
    """Return lines about the machine, versions and settings of the runs, with the first digits of the digests."""
    everything = [record for records in found.values() for record in records]
    dates = sorted({record["date"][:10] for record in everything})
    machines = sorted(
        {f"{r['machine']['cpu']}, {pluralize(r['machine']['cores used'], 'core')} each" for r in everything}
    )
    loads = [load for r in everything for load in (r["machine"]["load"], r["load after"])]
    used = sorted({f"{name} {number}" for r in everything for name, number in r["versions"].items()})
    lines = [
        f"Runs of {', '.join(dates)}, on {'; '.join(machines)}; load {min(loads)} to {max(loads)}.",
        f"Versions: {', '.join(used)}.",
    ]
    pairs = [(task, method) for task, method in found if method != "evolution" and (task, "evolution") in found]
    tests = (f"{task} {_p(found[task, 'evolution'], found[task, method]):.3f}" for task, method in sorted(pairs))
    lines.append(
        f"p of the rank test of the last held-out means, not corrected for the number of tasks: {', '.join(tests)}."
    )
    lines += [
        f"{_NAMES[method]}'s settings for {task}: {records[0]['settings']['source']}."
        for (task, method), records in sorted(found.items()) if method != "evolution"
    ]  # fmt: skip
    lines += [
        f"Digests of {task}, evolution: {', '.join(_digest(record) for record in records)}."
        for (task, method), records in sorted(found.items()) if method == "evolution"
    ]  # fmt: skip
    return [f"- {line}" for line in lines]


def _p(one: Records, other: Records) -> float:
    last = [np.array([record["curve"][-1]["mean"] for record in records]) for records in (one, other)]
    return rank_test(*last)


def _digest(record: dict[str, Any]) -> str:
    return f"seed {record['seed']} `{record['digest'][:12]}…`"


@styled
def draw(found: dict[tuple[str, str], list[dict[str, Any]]]) -> Any:
    """Return the figure: a row for each task, returns by steps on the left and by seconds on the right."""
    tasks = [task for task in TASKS if any(task == known for known, _ in found)]
    figure = new_figure(0.8 + 2.3 * len(tasks))
    panels = figure.subplots(len(tasks), len(_AXES), squeeze=False, sharey="row")
    ticker = matplotlib("ticker")
    formats = {"steps": ticker.EngFormatter(sep=""), "seconds": ticker.FuncFormatter(lambda x, _: f"{x:,g}")}
    for task, line in zip(tasks, panels, strict=True):
        for panel, (name, label) in zip(line, _AXES.items(), strict=True):
            for method in METHODS:
                draw_curve(panel, method, name, found.get((task, method), []))
            panel.axhline(TASKS[task].aim, color=FAINT, linewidth=0.9, linestyle=":")
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter(formats[name])
            panel.xaxis.set_minor_formatter(ticker.NullFormatter())
            panel.set_xlabel(label if task == tasks[-1] else "")
        line[0].set_ylabel("held-out mean return")
        line[0].set_title(task)
        line[0].annotate("aim", (0, TASKS[task].aim), xycoords=("axes fraction", "data"), xytext=(3, 2),
                         textcoords="offset points", color=QUIET, fontsize=8)  # fmt: skip
    named = {
        label: handle for panel in panels.flat for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    labels = [_NAMES[method] for method in METHODS if _NAMES[method] in named]
    figure.legend(
        [named[label] for label in labels], labels, loc="outside lower center", ncols=len(labels), frameon=False
    )
    others = " and ".join(label for label in labels if label != _NAMES["evolution"])
    against = f" against {others}" if others else ""
    set_title(figure, f"Evolution{against}: median over seeds, quartiles shaded")
    return figure


def draw_curve(panel: Any, method: str, name: str, records: Records) -> None:
    """Draw the median and the quartiles over the runs of a method, and the end of each run."""
    if not records:
        return
    colour, dash, marker = _LOOK[method]
    xs = [[max(point[name], 1e-3) for point in record["curve"]] for record in records]
    ys = [[point["mean"] for point in record["curve"]] for record in records]
    grid = np.geomspace(max(x[0] for x in xs), max(x[-1] for x in xs), _GRID)
    at = np.array(
        [np.interp(np.log(grid), np.log(x), y) for x, y in zip(xs, ys, strict=True)]
    )  # the last champion stays
    low, middle, high = np.percentile(at, (25, 50, 75), axis=0)
    panel.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0)
    panel.plot(grid, middle, color=colour, linestyle=dash, label=_NAMES[method])
    panel.plot([x[-1] for x in xs], [y[-1] for y in ys], marker, color=colour, markersize=4, linestyle="none")
