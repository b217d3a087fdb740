"""One row of the contest as a job of its own: started with mpirun where it has ranks, and supervised."""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from evolve.analysis.contest import ContestRow, ContestSize
from evolve.cli.contest.contest_options import JOB
from evolve.cli.mpirun import mpirun_environment, mpirun_words
from evolve.cli.supervision import Supervisor
from evolve.cluster import check_mpi4py
from evolve.numerics import backend
from evolve.numerics.device import in_sight


def layouts(workers: Sequence[int] | None, chosen: str | None, cores: int) -> list[tuple[int, str]]:
    """Return how many workers play by which back end, in their order.

    Args:
        workers: What was asked for; None for 1, 2, 4, … and all cores.
        chosen: The back end that was asked for; None for all that can be used.
        cores: How many may be used.

    Raises:
        InputError: A back end, mpirun or mpi4py is missing.
    """
    powers = {2**n for n in range(cores.bit_length()) if 2**n <= cores} | {cores}
    counts = sorted({*(workers or ([1] if chosen == "cupy" else powers))})
    if counts[-1] > 1:
        check_mpi4py("--workers")
        mpirun_words(counts[-1])  # raises where there is none
    found: list[tuple[int, str]] = [(count, backend(chosen or "auto")) for count in counts]
    if chosen is None and workers is None and in_sight():
        found.append((1, "cupy"))
    return found


def run_job(supervisor: Supervisor, size: ContestSize, workers: int, chosen: str, unverified: bool) -> ContestRow | int:
    """Measure a row in ranks of its own, which say how it goes; return it, or the exit code of a job that failed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "row.json"
        words = [sys.executable, "-m", "evolve", "contest", JOB, str(file), "--size", size.name, "--backend", chosen]
        words = [*(mpirun_words(workers + 1) if workers > 1 else []), *words, *(["--unverified"] if unverified else [])]
        outcome = supervisor.run(words, mpirun_environment())
        if outcome.code:
            return outcome.code
        return ContestRow.model_validate_json(file.read_bytes())
