"""The cluster: rank 0 coordinates, worker ranks play episodes, and a rank that waits sleeps.

It knows nothing of evolution: a batch of episodes comes in, and their results come out. Only `transport` imports
mpi4py. With one rank no MPI is needed, and the coordinator plays the episodes itself.

Each verb of the coordinator has its counterpart at a worker:

    coordinator  message                  worker
    set_up       Setup                    set_up
    evaluate     Chunk → ChunkResults     evaluate
    update       Update                   SharedState.update
    ask          Question → Answer        SharedState.answer
    dismiss      Dismiss                  leaves serve

The modules in reading order: `transport`, `messages`, `workers`, `jobs` and `coordinator` at rank 0,
`worker` at the others; `watchdog` and `start` at all; `mpirun` and `hosts` for the launcher; `script` for scripts.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evolve.cluster.coordinator import Coordinator, dismiss
    from evolve.cluster.hosts import launched, started_by
    from evolve.cluster.mpirun import check_mpi4py
    from evolve.cluster.start import connect
    from evolve.cluster.transport import Transport
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

_MODULES = {
    "coordinator": "Coordinator dismiss",
    "hosts": "launched started_by",
    "start": "connect",
    "transport": "Transport",
    "mpirun": "check_mpi4py",
    "watchdog": "Watchdog",
    "worker": "KeptRollouts serve",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
"""The module of each name. It is imported with the first name that needs it: a worker does without most modules."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'evolve.cluster' has no attribute {name!r}")
    return getattr(importlib.import_module(f"evolve.cluster.{_HOMES[name]}"), name)
