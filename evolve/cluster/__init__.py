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

The modules in reading order: `transport` and `messages` at all ranks; `workers`, `jobs` and `coordinator` at rank 0,
`worker` at the others; `watchdog`, `cores` and `start` at all; `hosts` and `supervision` for the process that starts
ranks; `script` for scripts.
"""

from typing import TYPE_CHECKING

from evolve.errors import import_on_demand

if TYPE_CHECKING:
    from evolve.cluster.coordinator import Coordinator, dismiss
    from evolve.cluster.hosts import check_start
    from evolve.cluster.start import check_arguments, connect
    from evolve.cluster.supervision import launched, started_by
    from evolve.cluster.transport import Transport, finalize
    from evolve.cluster.watchdog import Watchdog
    from evolve.cluster.worker import KeptRollouts, own_modules_used_by, packages_used_by, serve, source_files


__getattr__ = import_on_demand(
    __name__,
    {
        "coordinator": "Coordinator dismiss",
        "start": "check_arguments connect",
        "transport": "Transport finalize",
        "hosts": "check_start",
        "supervision": "launched started_by",
        "watchdog": "Watchdog",
        "worker": "KeptRollouts own_modules_used_by packages_used_by serve source_files",
    },
)
