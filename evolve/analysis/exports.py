"""What can be taken along from a run: its champion, and its columns by generation as CSV or for TensorBoard."""

import csv
import shlex
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from evolve.config.extras import import_extra
from evolve.errors import InputError
from evolve.store import StoredChampion, StoredRun, write_champion
from evolve.store.disk import atomic_write, check_writable, naming_output
from evolve.training import final_champion, reload

CHAMPION_SUFFIX = ".champion"
_EVENTS = "events.out.tfevents.evolve"


def export_champion(run: StoredRun, path: Path) -> StoredChampion:
    """Write the final champion of a run with its held-out returns to a file; return what was written.

    Raises InputError where the run has no held-out returns of it yet, or the file cannot be written, or has the name of
    another kind of file, which it would replace.
    """
    check_writable(path, (CHAMPION_SUFFIX,))
    if run.held_out is None:
        cure = f"Evaluate its champion first: python -m evolve.evaluate {shlex.quote(str(run.path))}"
        raise InputError(str(run.path), "a run with held-out returns of its champion", "none yet", cure)
    champion, normalizer = final_champion(reload(run), run)
    kept = run.held_out
    if not (np.array_equal(champion.weights[0], kept.weights) and np.array_equal(champion.mask[0], kept.mask)):
        raise InputError(str(run.path), "held-out returns of its champion", "those of another genome")
    work = run.digest, run.num_generations, run.steps, run.seconds
    stored = StoredChampion(path, run.header, kept, normalizer, *work)
    write_champion(stored)
    return stored


def table(run: StoredRun) -> dict[str, list[Any]]:
    """Return columns by generation; fitness and connections say whose they are."""
    records = run.records
    return {
        "generation": list(range(len(records))),
        "best_fitness": [float(record.champion_fitness) for record in records],
        "mean_fitness": [_mean(record.fitness) for record in records],
        "best_connections": [int(np.count_nonzero(record.champion_mask)) for record in records],
        "median_connections": [float(np.median(record.connections)) for record in records],
        "steps": [int(record.steps) for record in records],
        "seconds": [float(record.seconds) for record in records],
        "digest": [record.digest.decode() for record in records],
    }


def _mean(fitness: Any) -> float:
    """Return the mean fitness of the candidates that have one."""
    known = fitness[np.isfinite(fitness)]
    return float(known.mean()) if len(known) else float("nan")


def write_csv(run: StoredRun, path: Path) -> None:
    """Write the columns of `table`, one line per generation. Raises InputError when the file cannot be written."""
    columns = table(run)
    with naming_output(path), atomic_write(path) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def check_tensorboard() -> None:
    """Raise InputError unless the library that writes event files is there."""
    _summary_writer()


def _summary_writer() -> Any:
    return import_extra("tensorboardX", "tensorboard", "--tensorboard").SummaryWriter


def write_tensorboard(run: StoredRun, directory: Path) -> None:
    """Write the numbers of `table` as an event file for TensorBoard, by generation, in the place of one that is there.

    Raises InputError without the library, or when the directory cannot be written.
    """
    writer_class = _summary_writer()
    columns = table(run)
    seconds = np.cumsum(columns["seconds"])
    with naming_output(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".events-", dir=directory) as partial:
            writer = writer_class(partial)  # which chooses a name by the time
            for name in ("best_fitness", "mean_fitness", "best_connections", "median_connections", "steps"):
                for generation, value in enumerate(columns[name]):
                    writer.add_scalar(name, value, generation, walltime=float(seconds[generation]))
            writer.close()
            (written,) = Path(partial).iterdir()
            written.replace(directory / _EVENTS)
