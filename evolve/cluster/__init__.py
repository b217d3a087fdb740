"""The cluster: a coordinator rank hands out units, worker ranks evaluate them, and nobody waits spinning.

`world` is the only file that imports mpi4py; a world of one needs no MPI at all and runs the same coordinator.
"""

from evolve.cluster.backlog import Task, keys_of
from evolve.cluster.coordinator import Coordinator, dismiss
from evolve.cluster.watchdog import Watchdog
from evolve.cluster.worker import serve
from evolve.cluster.world import World, connect

__all__ = ["Coordinator", "Task", "Watchdog", "World", "connect", "dismiss", "keys_of", "serve"]
