"""python -m evolve.bench: how fast the engine is, as a ratio to the bare environment, side by side in one call.

The same episodes are played twice, in turn: by the engine over MPI, one coordinator and some workers; and by as many
bare processes, which only reset and step, with the actions that the networks chose. Rates of one machine drift, so
the ratio of each pair is what counts.
"""

import argparse
import json
import multiprocessing
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np

from evolve import environments, strategies
from evolve.cluster import Task, World, keys_of
from evolve.commands import Parser, coordinator, launch
from evolve.config import Config, EnvOptions, parse, read_assignment, set_key
from evolve.environments import Engine, Recording
from evolve.errors import InputError, RunError
from evolve.evolution import Experiment, prepare
from evolve.genome import Genomes
from evolve.numerics import backend
from evolve.rng import Purpose, environment_seed
from evolve.rollout import Rollout, Unit
from evolve.shapes import Bool, Float32, Float64
from evolve.stopping import StopFlag

_EXAMPLE = """example:
  python -m evolve.bench -e BipedalWalker-v3 -p 138 -r 8 --workers 2
"""
_MEASURE = "--measure"


def _parser() -> Parser:
    parser = Parser(
        prog="evolve.bench",
        description="Measure the engine against bare environments that play the same episodes.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-e", "--env", dest="env.id", metavar="ID", default="CartPole-v1", help="environment")
    add("-p", "--population", type=int, metavar="P", default=138, help="candidates")
    add("-r", "--episodes", type=int, metavar="E", default=8, help="episodes per candidate")
    add("-d", "--hidden", dest="network.hidden", type=int, nargs="+", metavar="H", default=[8, 8], help="hidden layers")
    add("--set", action="append", default=[], dest="assignments", metavar="section.key=value", help="set any key")
    add("--workers", type=int, default=2, metavar="N", help="worker ranks, and bare processes")
    add("--pairs", type=int, default=3, metavar="N", help="how many times each is measured")
    add("--json", action="store_true", help="print the figures as JSON")
    add(_MEASURE, action="store_true", help=argparse.SUPPRESS)
    return parser


def _experiment(arguments: dict[str, Any]) -> Experiment:
    table: dict[str, Any] = {"network": {"name": "hebbian-dag"}, "held_out_episodes": 0}
    for key in ("env.id", "population", "episodes", "network.hidden"):
        set_key(table, key, arguments[key])
    for assignment in arguments["assignments"]:
        set_key(table, *read_assignment(assignment))
    return prepare(parse(Config, table))


def _newborn(experiment: Experiment) -> Genomes:
    config = experiment.config
    strategy = strategies.make(config.strategy, experiment.network, config.population, seed=0)
    return strategy.ask(strategy.start(), 0)


def _measure(experiment: Experiment, world: World, stop: StopFlag) -> int:
    """Inside mpirun: evaluate one generation twice, the first time to warm up; print the second's figures."""
    config, genomes = experiment.config, _newborn(experiment)
    farm = coordinator(world, config, stop)
    for _ in range(2):
        begin, cpu = time.perf_counter(), time.process_time()
        task = Task(0, Purpose.EPISODE, keys_of(0, config.population))
        evaluation = farm.evaluate(task, genomes, config.episodes, experiment.network.traces)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    idle = 1 - evaluation.busy_seconds[1:] / seconds
    figures = {"steps": int(evaluation.lengths.sum()), "seconds": seconds, "coordinator": cpu / seconds,
               "idle": idle.round(4).tolist()}  # fmt: skip
    print(json.dumps(figures), flush=True)
    return 0


class _Recorder:
    """An engine of one slot that writes down the network outputs it is stepped with."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.outputs = engine, [np.empty((0, engine.action_size), np.float32)]
        self.refill = engine.refill
        self.id, self.observation_size, self.action_size = engine.id, engine.observation_size, engine.action_size

    def reset(self, first: int, seeds: list[int], observations: Float32) -> None:
        self._engine.reset(first, seeds, observations)

    def step(self, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        self.outputs.append(outputs)
        return self._engine.step(outputs, observations)

    def move(self, source: int, target: int) -> None:
        raise NotImplementedError("there is one slot")

    def close(self) -> None:
        self._engine.close()


def _record(experiment: Experiment, genomes: Genomes, candidates: Iterable[int]) -> list[Recording]:
    """Play all episodes of some candidates once, for their actions."""
    recordings, config = [], experiment.config
    engine = environments.make(config.env, slots=1)
    for candidate in candidates:
        for episode in range(config.episodes):
            recorder = _Recorder(engine)
            rollout = Rollout(recorder, experiment.network, slots=1, backend=backend("auto"))
            seed = environment_seed(0, Purpose.EPISODE, 0, candidate, episode)
            rollout.submit([Unit(candidate, episode, seed, genomes.weights[candidate], genomes.mask[candidate])])
            while rollout.pending:
                rollout.tick()
            recordings.append(Recording(seed, np.concatenate(recorder.outputs)))
    return recordings


def _bare_process(experiment: Experiment, share: range, orders: Any, ready: Barrier, results: Any) -> None:
    episodes = _record(experiment, _newborn(experiment), share)
    results.put(None)
    while orders.get():
        ready.wait()
        results.put(environments.replay(experiment.config.env, episodes))


class _Bare:
    """N processes that each replay their share of the generation on demand."""

    def __init__(self, experiment: Experiment, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._orders, self._results, ready = context.Queue(), context.Queue(), context.Barrier(processes)
        P = experiment.config.population
        shares = [range(n, P, processes) for n in range(processes)]
        self._processes = [
            context.Process(
                target=_bare_process, args=(experiment, share, self._orders, ready, self._results), daemon=True
            )
            for share in shares
        ]
        for process in self._processes:
            process.start()
        self._gather()

    def _gather(self) -> list[Any]:
        return [self._results.get() for _ in self._processes]

    def rate(self) -> tuple[int, float]:
        """Play everything; return the steps, and the rate of all processes together in steps per second."""
        for _ in self._processes:
            self._orders.put(True)
        played = self._gather()
        return sum(steps for steps, _ in played), sum(steps / seconds for steps, seconds in played)

    def close(self) -> None:
        for _ in self._processes:
            self._orders.put(False)
        for process in self._processes:
            process.join()


def _mpirun(workers: int) -> list[str]:
    beside = Path(sys.executable).with_name("mpirun")
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise InputError("mpirun", "an MPI launcher", "none", "Install one: pip install -e '.[mpi]'.")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    return [found, *(["--oversubscribe"] if "Open MPI" in version else []), "-n", str(workers + 1)]


def _engine_figures(argv: list[str], workers: int) -> dict[str, Any]:
    words = [*_mpirun(workers), sys.executable, "-m", "evolve.bench", *argv, _MEASURE]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"the measurement under mpirun failed: {done.stderr or done.stdout}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _compare(experiment: Experiment, argv: list[str], workers: int, pairs: int) -> list[dict[str, Any]]:
    bare, rows = _Bare(experiment, workers), []
    for _ in range(pairs):
        steps, bare_rate = bare.rate()
        figures = _engine_figures(argv, workers)
        if figures["steps"] != steps:
            raise RunError(
                f"the bare environment played {steps} steps, the engine {figures['steps']}: not the same work"
            )
        rate = steps / figures["seconds"]
        rows.append(figures | {"bare_rate": bare_rate, "engine_rate": rate, "ratio": rate / bare_rate})
    bare.close()
    return rows


def _print_table(rows: list[dict[str, Any]], env: EnvOptions, workers: int) -> None:
    print(f"{env.id}, {rows[0]['steps']:,} steps, {workers} workers against {workers} bare processes")
    print(f"{'bare steps/s':>14}{'engine steps/s':>16}{'ratio':>8}{'coordinator CPU':>17}{'idle share of workers':>24}")
    for row in rows:
        idle = " ".join(f"{share:.1%}" for share in row["idle"][:8])
        print(
            f"{row['bare_rate']:>14,.0f}{row['engine_rate']:>16,.0f}{row['ratio']:>8.3f}{row['coordinator']:>17.1%}{idle:>24}"
        )
    print(f"median ratio {statistics.median(row['ratio'] for row in rows):.3f}")


def _body(world: World, stop: StopFlag, argv: list[str]) -> int:
    arguments = vars(_parser().parse_args(argv))
    experiment = _experiment(arguments)
    if arguments["measure"]:
        return _measure(experiment, world, stop)
    if world.size > 1:
        raise InputError("mpirun", "evolve.bench to be started alone: it starts mpirun itself", f"{world.size} ranks")
    rows = _compare(experiment, argv, arguments["workers"], arguments["pairs"])
    if arguments["json"]:
        print(json.dumps(rows))
    else:
        _print_table(rows, experiment.config.env, arguments["workers"])
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("bench", _body, argv)


if __name__ == "__main__":
    sys.exit(main())
