"""evolve contest: machine against machine, on equal work; see `evolve.analysis.contest`.

Each number of workers is a job of its own, which this command starts, with mpirun where it has ranks, and supervises.
"""

from evolve.cli.contest.contest_command import main

__all__ = ["main"]
