"""One cell of `benchmarks/scale.py`: real generations, in a job of its own that prints the measurements of rank 0."""

import gc
import json
import statistics
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from evolve.cli.app import App
from evolve.cli.bench.measurements import coordinator_of, figures_of_job, generation_figures
from evolve.store import Header, create
from evolve.training import iterate
from scale_parts.grid import Cell

SCRIPT = Path(__file__).parent.parent / "scale.py"
MEASURE = "--measure"
"""The hidden option with which the script starts itself under mpirun; its value is a folder."""
_COSTS = ("seconds", "serial_seconds", "cpu_seconds", "bytes")
_ENOUGH, _MOST = 0.5, 20  # seconds of later generations, and how many of them

Row = dict[str, Any]


def measure(cell: Cell, app: App, folder: str) -> int:
    """Inside mpirun: evolve a few generations and print their measurements; the run file goes into a folder.

    The first generation, in which workers set themselves up, is left out. The later ones are averaged; a single one is
    enough if it takes long.
    """
    before, _ = memory()
    experiment = cell.experiment(1 + _MOST)
    gc.freeze()  # as in a run, a collector that looks at all modules each time would cost a tenth of it
    coordinator = coordinator_of(app)
    config = experiment.config
    with (
        closing(create(Path(folder) / "seed-0.h5", Header(config.to_toml(), {}, 0, config.env.id))) as log,
        closing(iterate(experiment, coordinator, log)) as records,
    ):
        generations = generation_figures(records, app, coordinator)
        first, later = next(generations), [next(generations)]
        while sum(one["seconds"] for one in later) < _ENOUGH and len(later) < _MOST:
            later.append(next(generations))
        _, peak = memory()
    figures: Row = {name: statistics.fmean(one[name] for one in later) for name in _COSTS}
    figures["busy"] = 1 - statistics.fmean(statistics.fmean(one["idle"]) for one in later)
    figures |= {"first_seconds": first["seconds"], "steps": cell.candidates}
    figures |= {"weights": experiment.network.num_weights, "candidates": cell.candidates, "ranks": app.transport.size}
    figures |= {"generations": 1 + len(later), "memory": None if before is None or peak is None else peak - before}
    print(json.dumps(figures), flush=True)
    return 0


def memory() -> tuple[int, int] | tuple[None, None]:
    """Return the present and the peak resident bytes of this process; None if the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None, None
    said = dict(line.split(":", 1) for line in lines)
    return 1024 * int(said["VmRSS"].split()[0]), 1024 * int(said["VmHWM"].split()[0])


def measured(cell: Cell) -> Row:
    """Measure a cell on its ranks; return its measurements. Raises RunError."""
    words = ["--weights", str(cell.weights), "--candidates", str(cell.candidates)]
    with tempfile.TemporaryDirectory() as folder:
        return figures_of_job([str(SCRIPT), *words, MEASURE, folder], cell.ranks)
