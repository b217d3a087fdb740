"""The MPI launcher of this machine: where it is, and how it starts some ranks, here or on several hosts."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolve.cli.hosts import SSH_OPTIONS, Host, write_hostfile
from evolve.cli.supervision import COMMAND, EXIT_CODE
from evolve.cluster.limits import CONNECT
from evolve.errors import InputError, how_to_install

_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
_PASSED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "MPI4PY_LIBMPI", "PYTHONUNBUFFERED")
_PASSED_GROUPS = ("EVOLVE_", "OMP_", "OPENBLAS_", "MKL_")
"""Environment variables that ranks on other hosts are to have too."""


@dataclass(frozen=True)
class Launcher:
    """An MPI launcher.

    Attributes:
        path: Where it is.
        is_open_mpi: Whether it is Open MPI's, else MPICH's or one that takes the same options.
        tolerant: Whether it can keep a job going that has lost ranks.
    """

    path: str
    is_open_mpi: bool
    tolerant: bool

    @classmethod
    def find(cls, ranks: int | str = "R") -> "Launcher":
        """Return that of the library which mpi4py loads, the wheel's or the system's. Raises InputError without one."""
        found = next(_candidates(), None)
        if found is None:
            cure = how_to_install("mpi")
            if "SLURM_JOB_ID" in os.environ:
                cure += f" Or start the ranks by SLURM: srun --overcommit -n {ranks} python -m evolve.run …"
            raise InputError("mpirun", "an MPI launcher", "none", cure)
        said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
        return cls(found, "Open MPI" in said, "(Open MPI) 5" in said)

    def words(self, ranks: int, hosts: Sequence[Host] = (), folder: Path | None = None) -> list[str]:
        """Return the words that start so many ranks, however few cores there are, and go on without those that die.

        Args:
            ranks: How many; 0 for as many as are allocated.
            hosts: Where; none for this machine, or the allocation that it belongs to.
            folder: For the list of hosts.
        """
        words = [self.path, *self.more_ranks_than_cores()]
        if self.tolerant:
            words += ["--with-ft", "ulfm"]
        if hosts and folder is not None:
            file = folder / "hostfile"
            write_hostfile(file, hosts, colon=not self.is_open_mpi)
            words += ["--hostfile" if self.is_open_mpi else "-f", str(file)]
        if ranks:
            words += ["-n", str(ranks)]
        if self.is_open_mpi:  # MPICH passes all of them
            for name in sorted(os.environ.keys() | {EXIT_CODE, COMMAND} | ({CONNECT} if ranks else set())):
                if name in _PASSED or name.startswith(_PASSED_GROUPS):
                    words += ["-x", name]
        return words

    def environment(self, ssh: Sequence[str] = ("ssh",), folder: Path | None = None) -> dict[str, str]:
        """Return the environment of the launcher: whoever is root need not ask for leave twice."""
        environment = mpirun_environment()
        if folder is None:
            return environment
        agent = shlex.join([*ssh, *SSH_OPTIONS])
        if self.is_open_mpi:
            return environment | {"PRTE_MCA_plm_ssh_agent": agent}
        script = folder / "ssh"  # Hydra's may have no arguments of its own
        script.write_text(f'#!/bin/sh\nexec {agent} "$@"\n')
        script.chmod(0o700)
        return environment | {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(script)}

    def more_ranks_than_cores(self) -> list[str]:
        """Return what lets it start more ranks than cores, and leaves it to the system which core runs which."""
        # Open MPI asks; and it would bind the ranks of two jobs to the same cores. MPICH does neither.
        return ["--oversubscribe", "--bind-to", "none"] if self.is_open_mpi else []


@dataclass(frozen=True)
class GivenLauncher:
    """A command that the user starts ranks by, as SLURM's srun, where it is known."""

    command: str

    def words(self, ranks: int, _hosts: Sequence[Host] = (), _folder: Path | None = None) -> list[str]:
        """Return its words. ranks: how many; 0 for as many as are allocated."""
        return [*shlex.split(self.command), *(["-n", str(ranks)] if ranks else [])]

    def environment(self, _ssh: Sequence[str] = (), _folder: Path | None = None) -> dict[str, str]:
        """Return the environment of the launcher."""
        return mpirun_environment()


def mpirun_words(ranks: int) -> list[str]:
    """Return the words that start so many ranks on this machine, however few cores it has.

    Raises InputError where there is no mpirun.
    """
    launcher = Launcher.find(ranks)
    return [launcher.path, *launcher.more_ranks_than_cores(), "-n", str(ranks)]


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
