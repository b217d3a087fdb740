"""The engine over MPI against as many bare processes, on the same episodes."""

import json
import multiprocessing
import queue
import shutil
import subprocess
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from evolve import environments
from evolve.bench.recording import newborn, record
from evolve.cluster import Task, World, keys_of
from evolve.commands import coordinator
from evolve.errors import InputError, RunError, Stopped
from evolve.evolution import Experiment
from evolve.rng import Purpose
from evolve.stopping import StopFlag

MEASURE = "--measure"
"""The hidden flag with which the bench starts itself under mpirun."""


def measure(experiment: Experiment, world: World, stop: StopFlag) -> int:
    """Inside mpirun: evaluate one generation twice, the first time to warm up; print the second's figures."""
    config, genomes = experiment.config, newborn(experiment)
    farm = coordinator(world, config, stop)
    for _ in range(2):
        begin, cpu, sent = time.perf_counter(), time.process_time(), world.bytes_moved
        task = Task(0, Purpose.EPISODE, keys_of(0, config.population))
        evaluation = farm.evaluate(task, genomes, config.episodes, experiment.network.traces)
        seconds, cpu, sent = time.perf_counter() - begin, time.process_time() - cpu, world.bytes_moved - sent
    busy = evaluation.busy_seconds[1:] if world.size > 1 else evaluation.busy_seconds
    idle = (1 - busy / seconds).round(4).tolist()
    figures = {"ranks": world.size, "steps": int(evaluation.lengths.sum()), "seconds": seconds,
               "coordinator_cpu": cpu / seconds, "bytes": sent, "idle": idle}  # fmt: skip
    print(json.dumps(figures), flush=True)
    return 0


def engine_figures(argv: list[str], workers: int) -> dict[str, Any]:
    """Start the measurement with one coordinator and some workers (none: a world of one); return its figures."""
    words = [*_mpirun(workers + 1), sys.executable, "-m", "evolve.bench", *argv, MEASURE]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"the measurement under mpirun failed: {done.stderr or done.stdout}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures | {"rate": figures["steps"] / figures["seconds"]}


def _mpirun(ranks: int) -> list[str]:
    if ranks == 1:
        return []
    beside = Path(sys.executable).with_name("mpirun")
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise InputError("mpirun", "an MPI launcher", "none", "Install one: pip install -e '.[mpi]'.")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    return [found, *(["--oversubscribe"] if "Open MPI" in version else []), "-n", str(ranks)]


def _bare_process(experiment: Experiment, share: range, orders: Any, ready: Barrier, results: Any) -> None:
    episodes = record(experiment, share)
    results.put(None)
    while orders.get():
        ready.wait()
        results.put(environments.replay(experiment.config.env, episodes))


class Bare:
    """N processes that each play their share of the generation in bare environments, on demand."""

    def __init__(self, experiment: Experiment, processes: int, stop: StopFlag) -> None:
        self._stop = stop
        context = multiprocessing.get_context("spawn")
        self._orders, self._results, ready = context.Queue(), context.Queue(), context.Barrier(processes)
        P = experiment.config.population
        self._processes = [
            context.Process(
                target=_bare_process,
                args=(experiment, range(n, P, processes), self._orders, ready, self._results),
                daemon=True,
            )
            for n in range(processes)
        ]
        for process in self._processes:
            process.start()
        try:
            self._gather()
        except BaseException:
            self.close()
            raise

    def _gather(self) -> list[Any]:
        gathered: list[Any] = []
        while len(gathered) < len(self._processes):
            try:
                gathered.append(self._results.get(timeout=0.5))
            except queue.Empty:
                if any(process.exitcode is not None for process in self._processes):
                    raise RunError("a bare process has ended early; its traceback is above") from None
                if self._stop.reason() is not None:
                    raise Stopped(f"stopped by {self._stop.reason()}") from None
        return gathered

    def rate(self) -> float:
        """Play everything once; return the rate of all processes together in environment steps per second."""
        for _ in self._processes:
            self._orders.put(True)
        return float(sum(steps / seconds for steps, seconds in self._gather()))

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
            process.join()


def compare(experiment: Experiment, argv: list[str], workers: int, pairs: int, stop: StopFlag) -> list[dict[str, Any]]:
    """Measure bare environments and the engine in turn; return a row per pair. Raises RunError and Stopped."""
    bare, rows = Bare(experiment, max(workers, 1), stop), []
    try:
        for _ in range(pairs):
            bare_rate = bare.rate()
            figures = engine_figures(argv, workers)
            rows.append(figures | {"bare_rate": bare_rate, "ratio": figures["rate"] / bare_rate})
    finally:
        bare.close()
    return rows
