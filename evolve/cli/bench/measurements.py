"""The measurements of the bench: generations of the training loop, bounds of their speed, and parts of their time.

`compare` plays a generation by the training loop over MPI, and the same episodes in bare processes, which are faster:
they have neither networks nor MPI. `schedule` plays episodes that only sleep, and compares their time with workers that
never wait, and with workers that wait only at the end. The parts are the start of the program (`startup_seconds`), a
step of the network (`network_row`) and a step of bare environments (`engine_rows`).
"""

import heapq
import json
import math
import multiprocessing
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np

from evolve import environments
from evolve.cli.app import App, StopFlag, freeze_objects, stdout_for_json
from evolve.cluster import Coordinator, Transport
from evolve.cluster.hosts import mpirun_environment, mpirun_words, python_words
from evolve.config import Config, EnvOptions
from evolve.environments import ENGINES, Recorder, Recording
from evolve.errors import InputError, RunError, on_error, pluralize
from evolve.genome import concatenate
from evolve.networks import Network
from evolve.numerics import backend, native
from evolve.numerics.streams import Purpose, Stream
from evolve.rollouts import EpisodeBatch, PopulationResults, Rollout, generation_keys
from evolve.store import Header, Record, StoredRun, create, read, reopen
from evolve.training import (
    Experiment,
    iterate,
    make_rollout,
    normalizer_of,
    prepare,
    restore,
    with_recorded_limit,
)

MEASURE = "--measure"
"""The hidden option with which the bench starts itself again for a measurement; its value is a run file."""
_WARM_UP_SEED = 1  # the seed of an untimed first generation, in which workers make their environments
# A program that runs `evolve run` up to the first step of a rollout of any kind, and prints the time of this step.
_RUN_TO_FIRST_STEP = """
import os, sys, time
from typing import get_args
from evolve.rollouts import AnyRollout
def tick(self):
    print(time.time(), file=sys.stderr, flush=True)
    os._exit(0)
for kind in get_args(AnyRollout):
    kind.tick = tick
from evolve.cli.app import launch
sys.exit(launch("run"))
"""
_LEAST_EPISODES = {"exact": 256, "envpool": 64, "gymnasium": 16}
"""The least number of episodes that `engine_rows` plays, if the generation has enough. Faster engines need more."""


class TimedCoordinator(Coordinator):
    """A coordinator that adds up the time spent in `evaluate`."""

    playing = 0.0
    """This time, in seconds."""

    def evaluate(self, *arguments: Any, **options: Any) -> PopulationResults:
        """Play a batch of episodes; return their results."""
        begin = time.perf_counter()
        results = super().evaluate(*arguments, **options)
        self.playing += time.perf_counter() - begin
        return results


def coordinator_of(app: App) -> TimedCoordinator:
    """Return a timed coordinator of the workers."""
    return TimedCoordinator(app.transport, make_rollout, app.stop.reason)


def generation_figures(records: Iterator[Record], app: App, coordinator: TimedCoordinator) -> Iterator[dict[str, Any]]:
    """Yield the figures of each generation of `training.iterate`, run with this coordinator.

    - steps: The environment steps.
    - returns: The returns of all episodes.
    - seconds: The wall time.
    - serial_seconds: The wall time outside episodes, for example in ask, tell, digest and file.
    - cpu_seconds: The processor time of rank 0.
    - bytes: The bytes that rank 0 sent and received.
    - idle: The share of the time in which each worker was idle. Without workers, it describes this process.
    """
    transport = app.transport
    while True:
        coordinator.playing = 0.0
        begin, cpu, moved = time.perf_counter(), time.process_time(), transport.bytes_moved
        record = next(records, None)
        if record is None:
            return
        seconds = time.perf_counter() - begin
        # With workers, rank 0 only coordinates, and is left out.
        first_player = 1 if transport.size > 1 else 0
        idle = 1 - record.busy_seconds[first_player:] / seconds
        yield {"steps": record.steps, "returns": record.returns.ravel().tolist(), "seconds": seconds,
               "serial_seconds": seconds - coordinator.playing, "cpu_seconds": time.process_time() - cpu,
               "bytes": transport.bytes_moved - moved, "idle": idle.round(4).tolist()}  # fmt: skip


def play_earlier_generations(experiment: Experiment, generation: int, path: Path, stop: StopFlag) -> None:
    """Write a run file with the generations before the measured one.

    This process plays all of them, with seed 0. Raises Stopped. Raises InputError if `early_stop` ends the run before
    the measured generation.
    """
    with (
        closing(create(path, _header(experiment, 0))) as log,
        closing(iterate(experiment, Coordinator(Transport(), make_rollout, stop.reason), log)) as records,
    ):
        for number in range(generation):
            if next(records, None) is None:
                raise _ended(number, generation)


def _ended(generations: int, measured: int) -> InputError:
    """Return the error of a run that ends after `generations` generations, before the generation `measured`."""
    return InputError("--generation", f"at most {generations - 1}, as the run ends then", measured)


def _header(experiment: Experiment, seed: int) -> Header:
    config = experiment.config
    return Header(config.to_toml(), manifest={}, seed=seed, env=config.env.id)


def measure(experiment: Experiment, app: App, path: str) -> dict[str, Any]:
    """Continue a run by one generation of the training loop, in a job that `figures_of_job` starts; return the figures.

    A generation of another run comes first, as a warm-up.
    """
    coordinator = coordinator_of(app)
    freeze_objects()  # as a run does
    with tempfile.TemporaryDirectory() as folder:
        with (
            closing(create(Path(folder) / "warm-up.h5", _header(experiment, _WARM_UP_SEED))) as warm_up,
            closing(iterate(experiment, coordinator, warm_up)) as records,
        ):
            next(records)
        # Each measurement continues a copy, so that all measurements play the same generation.
        copy = shutil.copy(path, folder)
        with closing(reopen(Path(copy))) as log, closing(iterate(experiment, coordinator, log)) as records:
            figures = next(generation_figures(records, app, coordinator), None)
            if figures is None:
                raise _ended(log.num_generations, log.num_generations)
    return {"ranks": app.transport.size, "backend": backend(experiment.config.compute.backend)} | figures


def figures_of_job(words: Sequence[str], ranks: int) -> dict[str, Any]:
    """Start a measurement on some ranks; return the figures that it prints, and the rate in steps per second.

    words: The arguments of Python. Raises RunError if the measurement fails.
    """
    command = [*(mpirun_words(ranks) if ranks > 1 else []), *python_words(), *words]
    done = subprocess.run(command, env=mpirun_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"the measurement on {pluralize(ranks, 'rank')} failed: {done.stderr or done.stdout}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures | {"rate": figures["steps"] / figures["seconds"]}


def record_episodes(experiment: Experiment, run: StoredRun, candidates: range) -> tuple[EnvOptions, list[Recording]]:
    """Play all episodes of some candidates of the next generation of a run.

    Return the environment options, and the seeds and network outputs of the episodes, as `environments.replay` takes
    them. Raises RunError if an episode fails, because a bare environment would fail, too.
    """
    generation = run.num_generations
    # The step limit of this generation, so that the episodes are no longer than in the training.
    experiment = with_recorded_limit(experiment, run.records, generation)
    config = experiment.config
    # Make the candidates of the next generation, with the normalizer that they have in the training.
    strategy, state = restore(experiment, run)
    genomes, normalizer = strategy.ask(state, generation), normalizer_of(experiment, run, generation)
    slots = config.compute.slots or 1
    # Play them in an engine that records each episode.
    recorder = Recorder(environments.make(config.env, slots), slots, observations=False)
    normalize = config.normalize_observations
    rollout = Rollout(recorder.engine, experiment.network, slots, backend("auto"), normalize=normalize)
    keys, episodes = generation_keys(generation, len(genomes), config.common_random_numbers), range(config.episodes)
    rows = np.array(candidates)
    rollout.submit(EpisodeBatch.of(run.header.seed, Purpose.EPISODE, genomes, keys, episodes, normalizer, rows))
    while rollout.pending:
        rollout.tick()
        for failure in rollout.take_failures():
            place = f"{f'step {failure.step}' if failure.step else 'reset'}, environment seed {failure.seed}"
            raise RunError(f"an episode failed in {place}:\n{failure.message.rstrip()}")
    recorder.close()
    return config.env, recorder.finished


_START: list[Barrier] = []
"""The barrier at which a bare process waits for the other bare processes. Empty in other processes."""


def _begin_bare(start: Barrier) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the bench handles Ctrl-C, and ends this process
    _START.append(start)


def _record_share(experiment: Experiment, run: Path, candidates: range) -> tuple[EnvOptions, list[Recording]]:
    with stdout_for_json(True):
        return record_episodes(experiment, read(run), candidates)


def _replay_share(share: tuple[EnvOptions, list[Recording]]) -> tuple[int, float]:
    # All processes begin together. As each process waits here for the others, each of them takes exactly one share.
    _START[0].wait()
    with stdout_for_json(True):
        return environments.replay(*share)


class BareProcesses:
    """N processes. Each records a share of the measured generation; `rate` replays all shares in bare environments."""

    def __init__(self, experiment: Experiment, run: Path, processes: int, stop: StopFlag) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(processes, context, _begin_bare, (context.Barrier(processes),))
        self._stop = stop
        shares = [range(n, experiment.config.population, processes) for n in range(processes)]
        with on_error(self.close):
            self._shares = self._all_results(partial(_record_share, experiment, run), shares)

    def _all_results(self, function: Callable[[Any], Any], shares: Sequence[Any]) -> list[Any]:
        """Return the results of a function for all shares, from the processes. Raises their errors and Stopped."""
        futures = [self._pool.submit(function, share) for share in shares]
        try:
            pending = set(futures)
            while pending:
                # The waits are short, because the stop flag is checked between them.
                done, pending = wait(futures, 0.5, FIRST_EXCEPTION)
                for future in done:
                    future.result()  # raises the error of its process
                self._stop.check()
            return [future.result() for future in futures]
        except BrokenProcessPool:
            raise RunError("a bare process has ended early, perhaps by a crash of its environment") from None

    def rate(self) -> float:
        """Replay all shares once; return the rate of all processes together in environment steps per second."""
        return float(sum(steps / seconds for steps, seconds in self._all_results(_replay_share, self._shares)))

    def close(self) -> None:
        """End the processes."""
        # The processes may be in an episode, or at the barrier, and `shutdown` would wait for them.
        for process in multiprocessing.active_children():
            process.terminate()
        self._pool.shutdown()


def compare(
    experiment: Experiment, words: Sequence[str], run: Path, ranks: int, pairs: int, stop: StopFlag
) -> list[dict[str, Any]]:
    """Measure bare environments and the training loop in turn; return a row for each pair of measurements.

    There are as many bare processes as workers. Raises RunError and Stopped. For `words` see `figures_of_job`.
    """
    rows = []
    with closing(BareProcesses(experiment, run, max(ranks - 1, 1), stop)) as bare:
        for _ in range(pairs):
            stop.check()
            bare_rate = bare.rate()
            figures = figures_of_job(words, ranks)
            # Only `schedule` needs the returns.
            del figures["returns"]
            rows.append(figures | {"bare_rate": bare_rate, "ratio": figures["rate"] / bare_rate})
    return rows


def schedule(words: Sequence[str], ranks: int, pairs: int, stop: StopFlag) -> list[dict[str, Any]]:
    """Measure the training loop `pairs` times with environments that only sleep; return a row for each measurement.

    The return of an episode is the time that it slept. `ideal_seconds` is the time of workers that never wait.
    `list_seconds` is the time of Graham's list scheduling (1966): the scheduling costs no time, but at the end, some
    workers wait for the last episodes. `ratio` is `ideal_seconds` divided by the measured time. Raises RunError and
    Stopped.
    """
    rows = []
    for _ in range(pairs):
        stop.check()
        row, workers = figures_of_job(words, ranks), max(ranks - 1, 1)
        durations = row.pop("returns")
        ideal = sum(durations) / workers
        rows.append(row | {"ideal_seconds": ideal, "list_seconds": list_schedule(durations, workers),
                           "ratio": ideal / row["seconds"]})  # fmt: skip
    return rows


def list_schedule(durations: list[float], workers: int) -> float:
    """Return the time at which the last of several tasks ends, if the first free worker always gets the next task."""
    free_at = [0.0] * workers  # a heap: the first item is the smallest, the time at which the first worker is free
    for duration in durations:
        heapq.heapreplace(free_at, free_at[0] + duration)
    return max(free_at)


def _run_python(words: Sequence[str]) -> tuple[float, float, str]:
    """Run Python with command-line arguments. Return its duration in seconds, the time of its start, and its stderr."""
    # The start also by `time.time`, because `_RUN_TO_FIRST_STEP` prints a time of this clock.
    begin, start = time.perf_counter(), time.time()
    done = subprocess.run([*python_words(), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"the start-up measurement failed: {done.stderr or done.stdout}")
    return time.perf_counter() - begin, start, done.stderr


def shortest_run(config: Config) -> Config:
    """Return the shortest run that takes a step: one generation of two candidates with one episode each."""
    same = {"env": config.env, "network": config.network, "compute": config.compute}
    same["normalize_observations"] = config.normalize_observations  # mean_observation_N in `env.metrics` needs it
    return Config(generations=1, population=2, episodes=1, held_out_episodes=0).model_copy(update=same)


def startup_seconds(config: Config, directory: str, rounds: int = 3) -> dict[str, Any]:
    """Return the duration of bare Python, of an import, and of a run up to its first step.

    config: The configuration that has the environment, the network and the section `compute` of the run.
    directory: The directory for the experiment and its run files.
    rounds: The number of measurements. The smallest time of each process counts.
    """
    experiment = Path(directory) / "start.toml"
    experiment.write_text(shortest_run(config).to_toml(), encoding="utf-8")
    python, imports, first_steps = [], [], []
    for number in range(rounds):
        python.append(_run_python(["-c", "pass"])[0])
        imports.append(_run_python(["-c", "import evolve.cli.run"])[0])
        _, start, output = _run_python(["-c", _RUN_TO_FIRST_STEP, str(experiment), "-o", f"{directory}/{number}"])
        first_steps.append(float(output.split()[-1]) - start)
    return {"python": min(python), "import": min(imports), "first_step": min(first_steps)}


def _steppers(network: Network, slots: int) -> dict[str, Callable[[], object]]:
    """Return functions that step a batch of `slots` initial networks once, with NumPy and with the native kernel."""
    genomes = concatenate(*(network.init(Stream(0, Purpose.INIT, 0, slot)) for slot in range(slots)))
    uniform = Stream(0, Purpose.EPISODE).uniform(slots, network.observation_size)
    observations = (2 * uniform - 1).astype(np.float32)
    steppers: dict[str, Callable[[], object]] = {}
    names: list[native.Backend] = ["numpy", "native"] if native.available() else ["numpy"]
    for name in names:
        batch = network.batch(slots, name)
        seeds = np.arange(slots)
        batch.load(np.arange(slots), genomes.weights, genomes.mask, seeds)
        steppers[name] = partial(batch.step, observations)
    return steppers


def network_row(network: Network, slots: int, rounds: int = 5, seconds: float = 0.05) -> dict[str, Any]:
    """Return the nanoseconds of one step of one of `slots` networks, with each back end of `_steppers`.

    The back ends take turns, and the smallest time of all rounds counts. In each round a back end makes as many steps
    as fit into about `seconds`.
    """
    steppers = _steppers(network, slots)
    step_seconds = dict.fromkeys(steppers, float("inf"))  # the smallest time of a step, by back end
    num_steps = dict.fromkeys(steppers, 1)
    for _ in range(rounds + 1):  # the first round makes one step, to estimate the number of steps in later rounds
        for name, step in steppers.items():
            begin = time.perf_counter()
            for _ in range(num_steps[name]):
                step()
            step_seconds[name] = min(step_seconds[name], (time.perf_counter() - begin) / num_steps[name])
            num_steps[name] = max(1, int(seconds / step_seconds[name]))
    return {"slots": slots} | {name: least / slots * 1e9 for name, least in step_seconds.items()}


def engine_rows(experiment: Experiment, path: Path) -> list[dict[str, Any]]:
    """Return a row for each engine, the fastest first: its name, its steps, and microseconds of CPU time per step.

    Networks first play episodes of the next generation of a run in the engine, and their outputs are recorded. Then the
    engine replays these outputs, so the time of networks is not measured. An engine that lacks the environment has no
    row, and neither has the exact engine without native kernels.
    """
    run = read(path)
    rows = []
    config = experiment.config
    for engine in ENGINES:
        # Without kernels, array operations play exact tasks. They define the results, and are slow.
        if engine == "exact" and not native.available():
            continue
        try:
            in_engine = prepare(config.with_section("env", engine=engine))
        except InputError:  # this engine lacks the environment
            continue
        candidates = range(min(config.population, math.ceil(_LEAST_EPISODES[engine] / config.episodes)))
        steps, seconds = environments.replay(*record_episodes(in_engine, run, candidates), time.process_time)
        rows.append({"engine": engine, "steps": steps, "microseconds": seconds / steps * 1e6})
    return sorted(rows, key=lambda row: row["microseconds"])
