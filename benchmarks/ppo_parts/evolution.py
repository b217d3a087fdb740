"""Evolution's side: an experiment of the repository, run by `evolve run` up to each of the given numbers of steps.

The champion at each of these points is evaluated.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import evolve
from evolve.cli.run import load
from evolve.config import Config
from ppo_parts.records import Outcome, Point, write
from ppo_parts.tasks import Task


def configuration(task: Task) -> Config:
    """Return the experiment of a task."""
    return load([str(task.experiment)])[0][0]


def evolve_task(
    task: Task, seed: int, folder: Path, cores: int, points: Sequence[int], most: int | None, episodes: int
) -> Outcome:
    """Evolve a task to its end, or for `most` steps.

    Args:
        task: The task.
        seed: The seed of the run.
        folder: The folder of its run file; an unfinished run is resumed.
        cores: The number of workers; 1 means a single process with one thread.
        points: The environment steps after which champions are evaluated.
        most: The steps to end with, if the experiment does not end earlier; None for the experiment's end.
        episodes: The number of held-out episodes.
    """
    progress = folder / f"seed-{seed}.curve"
    curve, spent = _begun(progress)
    ends = [steps for steps in (most, configuration(task).early_stop.steps) if steps is not None]
    end = min(ends, default=None)

    def keep() -> None:
        write(progress, {"curve": [asdict(point) for point in curve], "spent": spent})

    for steps in [*(point for point in points if end is None or point < end), end]:
        if curve and steps is not None and steps != end and steps <= curve[-1].steps:
            continue  # in the same generation
        before = _children()
        try:
            run = evolve_until(task, seed, folder, cores, steps, episodes)
        finally:  # an interrupted run has used its processors, too
            spent += _children() - before
            keep()
        table = run.table()
        assert run.held_out is not None
        point = Point(sum(table["steps"]), sum(table["seconds"]), spent, float(run.held_out.mean))
        if not curve or curve[-1].steps < point.steps:
            curve.append(point)
        keep()
        if steps is not None and point.steps < steps:  # the experiment has ended
            break
    asked = {  # neither the directory of the file nor the last point matters
        "output": run.config.output.model_copy(update={"directory": None}),
        "early_stop": run.config.early_stop.model_copy(update={"steps": end}),
    }
    settings = {"experiment": run.config.model_copy(update=asked).to_toml()}
    environment = run.experiment.in_evaluation().config.env.model_dump(mode="json")
    return Outcome(curve, [float(r) for r in run.held_out.returns], environment, settings, run.digest)


def _begun(progress: Path) -> tuple[list[Point], float]:
    """Return the points and CPU seconds of an interrupted run. Ends the process if they are lost."""
    if progress.exists():
        kept = json.loads(progress.read_text())
        return [Point(**point) for point in kept["curve"]], kept["spent"]
    run = progress.with_suffix(".h5")
    if run.exists():
        raise SystemExit(f"{run} was begun, but {progress.name} is missing beside it. Remove it, and run it again.")
    return [], 0.0


def evolve_until(task: Task, seed: int, folder: Path, cores: int, steps: int | None, episodes: int) -> Any:
    """Continue the run until it has `steps` steps, or to its end; return it."""
    words = [sys.executable, "-m", "evolve.run", str(task.experiment), "-s", str(seed), "-o", str(folder), "--resume"]
    words += ["--set", f"held_out_episodes={episodes}"]
    words += [] if steps is None else ["--set", f"early_stop.steps={steps}"]
    words += ["--threads", "1"] if cores == 1 else ["--workers", str(cores)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise SystemExit(f"evolve run ended with exit code {done.returncode}:\n{done.stderr.strip()}")
    return evolve.load(folder / f"seed-{seed}.h5")


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
