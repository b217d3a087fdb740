"""The MPI launcher of this machine: where it is, and how it starts some ranks."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from evolve.config.extras import install
from evolve.errors import InputError

_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")


def mpirun_words(ranks: int) -> list[str]:
    """Return the words that start so many ranks on this machine, however few cores it has.

    Raises InputError where there is no mpirun.
    """
    found = next(_candidates(), None)
    if found is None:
        cure = install("mpi")
        if "SLURM_JOB_ID" in os.environ:
            cure += f" Or start the ranks by SLURM: srun --overcommit -n {ranks} python -m evolve.run …"
        raise InputError("mpirun", "an MPI launcher", "none", cure)
    return [found, *_more_ranks_than_cores(found), "-n", str(ranks)]


def mpirun_environment() -> dict[str, str]:
    """Return the environment for mpirun: whoever is root need not ask for leave twice."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return os.environ | (dict.fromkeys(_ROOT, "1") if is_root else {})


def _candidates() -> Iterator[str]:
    """Yield launchers: that of the library which mpi4py is set to load, the wheel's, the system's."""
    library = os.environ.get("MPI4PY_LIBMPI")
    places = [Path(library).resolve().parent.parent / "bin"] if library else []
    for path in [*places, Path(sys.executable).parent]:
        if os.access(path / "mpirun", os.X_OK):
            yield str(path / "mpirun")
    for name in ("mpirun", "mpiexec"):
        if found := shutil.which(name):
            yield found


def _more_ranks_than_cores(launcher: str) -> list[str]:
    """Return what lets a launcher start more ranks than cores, and leaves it to the system which core runs which."""
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False).stdout
    # Open MPI asks; and it would bind the ranks of two jobs to the same cores. MPICH does neither.
    return ["--oversubscribe", "--bind-to", "none"] if "Open MPI" in version else []
