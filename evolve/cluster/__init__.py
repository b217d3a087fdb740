"""The cluster distributes episodes over MPI ranks: rank 0 is the coordinator, and the other ranks are workers.

It knows nothing of evolution: a batch of episodes comes in, and their results come out. Only `transport` imports
mpi4py. With one rank no MPI is needed, and the coordinator plays the episodes itself.

A function of the coordinator sends a message, and a function of the worker handles it:

    coordinator  message                  worker
    set_up       Setup                    Worker.set_up
    evaluate     Chunk → ChunkResults     Worker.evaluate
    update       Update                   SharedState.update
    ask          Question → Answer        SharedState.answer
    dismiss      Dismiss                  serve (returns)

The modules in reading order: all ranks use `transport` and `messages`. Rank 0 uses `workers`, `jobs` and `coordinator`,
and the other ranks use `worker`. All ranks use `watchdog`, `cores` and `start`. The process that starts ranks uses
`hosts` and `supervision`. Python scripts use `script`.
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
