"""The engine over MPI against as many bare processes, on the same episodes, or against sleep."""

import heapq
import json
import multiprocessing
import queue
import subprocess
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np

from evolve import environments
from evolve.cli.app import App, StopFlag
from evolve.cli.bench.recording import record
from evolve.cli.mpirun import mpirun_environment, mpirun_words
from evolve.errors import RunError, Stopped
from evolve.genome import DIGEST_START, Genomes, chain_digest
from evolve.numerics import backend
from evolve.rollouts import PopulationResults
from evolve.strategies import Results
from evolve.training import Experiment, connection_costs, evaluate_population, mean_return

MEASURE = "--measure"
"""The hidden option with which the bench starts itself under mpirun; its value is a file of genomes."""


def save(genomes: Genomes, path: Path) -> None:
    """Write genomes for `measure` to read."""
    np.savez(path, weights=genomes.weights, mask=genomes.mask)


def _load(path: str) -> Genomes:
    with np.load(path) as arrays:
        return Genomes(arrays["weights"], arrays["mask"])


def measure(experiment: Experiment, app: App, path: str) -> int:
    """Inside mpirun: evaluate one generation twice, the first time to warm up; print the second's figures.

    Then ask, tell and the digest: what a generation costs while the workers wait.
    """
    genomes = _load(path)
    transport = app.transport
    coordinator = app.coordinator()
    for _ in range(2):
        coordinator.take_seconds()
        begin = time.perf_counter()
        cpu = time.process_time()
        sent = transport.bytes_moved
        results = evaluate_population(experiment, coordinator, 0, 0, genomes)
        seconds = time.perf_counter() - begin
        cpu = time.process_time() - cpu
        sent = transport.bytes_moved - sent
    busy, _ = coordinator.take_seconds()
    idle = (1 - (busy[1:] if transport.size > 1 else busy) / seconds).round(4).tolist()
    begin = time.perf_counter()
    _bookkeeping(experiment, genomes, results)
    figures = {"ranks": transport.size, "steps": int(results.lengths.sum()), "seconds": seconds, "cpu_seconds": cpu,
               "serial_seconds": time.perf_counter() - begin, "bytes": sent, "idle": idle,
               "returns": results.returns.ravel().tolist(),
               "backend": backend(experiment.config.compute.backend)}  # fmt: skip
    print(json.dumps(figures), flush=True)
    return 0


def _bookkeeping(experiment: Experiment, genomes: Genomes, results: PopulationResults) -> None:
    """Do what rank 0 does between two generations."""
    described = results.descriptions(genomes)
    costs = connection_costs(experiment.config, described.connections, genomes.num_weights)
    fitness = mean_return(results.returns, results.played, costs)
    strategy = experiment.strategy(seed=0)
    strategy.ask(strategy.tell(strategy.start(), genomes, Results(fitness, results.traces)), 1)
    chain_digest(DIGEST_START, described.digests, results.returns, results.lengths)


def engine_figures(argv: list[str], ranks: int, genomes: Path) -> dict[str, Any]:
    """Start the measurement on some ranks; return its figures."""
    words = [
        *(mpirun_words(ranks) if ranks > 1 else []),
        sys.executable,
        "-m",
        "evolve.bench",
        *argv,
        MEASURE,
        str(genomes),
    ]
    done = subprocess.run(words, env=mpirun_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"the measurement under mpirun failed: {done.stderr or done.stdout}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures | {"rate": figures["steps"] / figures["seconds"]}


def _bare_process(
    experiment: Experiment, genomes: Path, share: range, orders: Any, ready: Barrier, results: Any
) -> None:
    episodes = record(experiment, _load(str(genomes)), share)
    results.put(None)
    while orders.get():
        ready.wait()
        results.put(environments.replay(experiment.config.env, episodes))


class Bare:
    """N processes that each play their share of the generation in bare environments, on demand."""

    def __init__(self, experiment: Experiment, genomes: Path, processes: int, stop: StopFlag) -> None:
        self._stop = stop
        context = multiprocessing.get_context("spawn")
        self._orders, self._results, ready = context.Queue(), context.Queue(), context.Barrier(processes)
        P = experiment.config.population
        self._processes = [
            context.Process(
                target=_bare_process,
                args=(experiment, genomes, range(n, P, processes), self._orders, ready, self._results),
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


def compare(
    experiment: Experiment, argv: list[str], genomes: Path, ranks: int, pairs: int, stop: StopFlag
) -> list[dict[str, Any]]:
    """Measure bare environments, as many as workers, and the engine in turn; return a row per pair.

    Raises RunError and Stopped.
    """
    bare, rows = Bare(experiment, genomes, max(ranks - 1, 1), stop), []
    try:
        for _ in range(pairs):
            bare_rate = bare.rate()
            figures = engine_figures(argv, ranks, genomes)
            del figures["returns"]
            rows.append(figures | {"bare_rate": bare_rate, "ratio": figures["rate"] / bare_rate})
    finally:
        bare.close()
    return rows


def schedule(argv: list[str], genomes: Path, ranks: int, pairs: int) -> list[dict[str, Any]]:
    """Measure the engine on environments that only sleep; the ratio is to workers that never wait.

    They are paid for their sleep, so a return is the work in seconds. Even a scheduler that costs nothing waits for the
    last episodes to end: `list_seconds` is what Graham's list scheduling (1966) of the same episodes would take.
    """
    rows = []
    for _ in range(pairs):
        row, workers = engine_figures(argv, ranks, genomes), max(ranks - 1, 1)
        slept = row.pop("returns")
        ideal = sum(slept) / workers
        rows.append(row | {"ideal_seconds": ideal, "list_seconds": list_schedule(slept, workers),
                           "ratio": ideal / row["seconds"]})  # fmt: skip
    return rows


def list_schedule(durations: list[float], workers: int) -> float:
    """Return when the last of some tasks ends if each goes, in turn and at no cost, to the worker free first."""
    free = [0.0] * workers
    for duration in durations:
        heapq.heapreplace(free, free[0] + duration)
    return max(free)
