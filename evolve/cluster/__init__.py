"""The cluster: a coordinator rank hands out episodes, worker ranks play them, and nobody waits spinning.

It knows nothing of evolution: a batch of episodes comes in, and their results come out. `transport` is the door to
mpi4py; where there is one rank, no MPI is needed and the same coordinator plays the episodes itself.
"""

from evolve.cluster.coordinator import Coordinator, dismiss
from evolve.cluster.introduction import connect
from evolve.cluster.start import launched, started_by
from evolve.cluster.transport import Transport, check_mpi4py
from evolve.cluster.watchdog import Watchdog
from evolve.cluster.worker import KeptRollouts, serve

__all__ = [
    "Coordinator",
    "KeptRollouts",
    "Transport",
    "Watchdog",
    "check_mpi4py",
    "connect",
    "dismiss",
    "launched",
    "serve",
    "started_by",
]
