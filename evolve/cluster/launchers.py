"""What has started this process, as launchers tell their processes in environment variables."""

import os

# What launchers tell their processes, as (number of ranks, rank).
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),  # Open MPI
    ("PMI_SIZE", "PMI_RANK"),  # MPICH and Intel MPI
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),  # srun
    ("PALS_SIZE", "PALS_RANKID"),  # HPE Cray
)


def launched() -> tuple[int, int]:
    """Return (size, rank) as the launcher announced them, (1, 0) without a launcher."""
    for size, rank in _LAUNCHERS:
        if os.environ.get(size, "").isdigit():
            return int(os.environ[size]), int(os.environ.get(rank, "0"))
    return 1, 0


def started_by() -> str | None:
    """Return what has started this process as a rank, None for nothing: SLURM's batch script is a step of one task."""
    for size, _ in _LAUNCHERS:
        ranks = os.environ.get(size, "")
        if ranks.isdigit() and not (size.startswith("SLURM") and int(ranks) == 1):
            return f"{'srun' if size.startswith('SLURM') else 'mpirun'} -n {ranks}"
    return None
