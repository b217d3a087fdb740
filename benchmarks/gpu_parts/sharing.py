"""Part 9: several processes that share the device, each with some of the slots, against one process with all."""

import multiprocessing
import os
import queue
import time
from pathlib import Path
from typing import Any

from gpu_parts.context import Context, Outcome

_PROCESSES = (1, 2, 4, 7, 16)
_SLOTS = 16384
_PATIENCE = 60.0  # seconds
_NETWORKS = {"24-8-8-5": (8, False), "105-64-64-9": (64, False)}


def measure(context: Context) -> Outcome:
    """Print the steps per second of all processes together, a line for each number of processes."""
    context.device()
    mps = mps_runs()
    print(f"an MPS daemon {'runs' if mps else 'does not run'}; copies included")
    print(f"{'processes':>9}{'slots each':>12}" + "".join(f"{name + ', steps/s':>24}{'':>8}" for name in _NETWORKS))
    rows: list[dict[str, Any]] = []
    for processes in (1,) if context.emulated else _PROCESSES:
        slots = (64 if context.emulated else _SLOTS) // processes
        rates = _rates(context, processes, slots)
        rows.append({"processes": processes, "slots": slots} | rates)
        shares = {name: rate / rows[0][name] for name, rate in rates.items() if rows[0].get(name)}
        cells = "".join(f"{rates.get(name, 0):24,.0f}{shares.get(name, 0):8.2f}" for name in _NETWORKS)
        print(f"{processes:9}{slots:12,}{cells}" + f"  {rates.get('failed', '')}", flush=True)
    best = {name: max(rows, key=lambda row: row.get(name, 0))["processes"] for name in _NETWORKS}
    verdict = "fastest with " + ", ".join(f"{n} processes ({name})" for name, n in best.items())
    failed = [row for row in rows if "failed" in row]
    verdict += f"; {len(failed)} failed" if failed else ""
    return Outcome(verdict, not failed, {"mps": mps, "rows": rows})


def mps_runs() -> bool:
    """Return whether a daemon of NVIDIA's Multi-Process Service runs here."""
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().startswith("nvidia-cuda-mps"):
                return True
        except OSError:  # it has ended
            continue
    return False


def _rates(context: Context, processes: int, slots: int) -> dict[str, Any]:
    """Return steps per second by network, of all processes together; "failed" has the error."""
    start = multiprocessing.get_context("spawn")
    barrier, results = start.Barrier(processes), start.Queue()
    seconds = 0.1 if context.emulated else 1.0
    workers = [
        start.Process(target=_work, args=(n, processes, slots, seconds, context, barrier, results), daemon=True)
        for n in range(processes)
    ]
    for worker in workers:
        worker.start()
    try:
        found = [results.get(timeout=min(_PATIENCE, max(1.0, context.left))) for _ in workers]
    except queue.Empty:
        return {"failed": "not done in time"}
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()
    failed = next((one for one in found if isinstance(one, str)), None)
    return {"failed": failed} if failed else {name: sum(one[name] for one in found) for name in found[0]}


def _work(number: int, processes: int, slots: int, seconds: float, context: Context, barrier, results) -> None:
    """Step each network for some seconds, all processes at once; report steps per second, or the error."""
    os.environ |= {"OMPI_COMM_WORLD_LOCAL_RANK": str(number), "OMPI_COMM_WORLD_LOCAL_SIZE": str(processes)}
    try:
        from device_parts.steps import network_of  # noqa: PLC0415 - what a worker imports, it imports alone
        from device_parts.timing import device_ticks, some_genomes  # noqa: PLC0415

        context.device()
        found = {}
        for name, sizes in list(_NETWORKS.items())[: 1 if context.emulated else None]:
            network = network_of(*sizes)
            tick = device_ticks(network, some_genomes(network, slots), slots)
            tick(16)
            barrier.wait(_PATIENCE)
            begin, ticks = time.perf_counter(), 0
            while time.perf_counter() - begin < seconds:
                tick(8)
                ticks += 8
            found[name] = ticks * slots / (time.perf_counter() - begin)
        results.put(found)
    except BaseException as error:
        barrier.abort()
        results.put(f"{type(error).__name__}: {error}")
