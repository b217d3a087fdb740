"""Part 2: whole episodes of every exact task and network, the device's against the host's, to the bit."""

import itertools
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import numpy as np
from device_parts.steps import cores

from evolve import environments, networks
from evolve.config import Config, parse
from evolve.errors import InputError, RunError
from evolve.genome import Genomes
from evolve.numerics.cupy_device import CupyDevice, machine_code
from evolve.numerics.device_protocol import Device
from evolve.numerics.hashing import MAX_HASHED_STEPS
from evolve.numerics.streams import Purpose
from evolve.rollouts import (
    EPISODE_QUANTITIES,
    AnyRollout,
    EpisodeBatch,
    EpisodeResults,
    Traces,
    generation_keys,
    join,
)
from evolve.rollouts.inference import device_step
from evolve.shapes import Float32
from evolve.strategies import initial_genomes
from evolve.training.rollouts import rollout_of
from gpu_parts.context import Context, NotMeasuredError, Outcome
from gpu_parts.steps import unequal

Table = dict[str, Any]

NETWORKS: tuple[Table, ...] = (
    {"name": "mlp", "hidden": [32]},
    {"name": "hebbian-dag", "hidden": [8, 8]},
    {"name": "hebbian-lstm", "hidden": [4]},
    {"name": "plastic-mlp", "hidden": [5], "update_every": 2, "max_norm": True},
    {"name": "hebbian-dag", "hidden": [5], "plasticity": 0.5, "neuromodulated": True},
    {"name": "elman", "hidden": [9]},
    {"name": "dag", "hidden": [9]},
    {"name": "binary-mask-mlp", "hidden": [9]},
)
_TINY = (("CartPole-v1", {"name": "hebbian-lstm", "hidden": [3]}), ("Cues-v0", {"name": "elman", "hidden": [3]}))
_GENOMES, _EPISODES, _STEPS, _SLOTS = 64, 66, 200, 1024
_SPARE = 6.0  # seconds


def compare(context: Context) -> Outcome:
    """Compare all pairs of a task and a network; a line for each task."""
    device = context.device()
    pairs = list(_TINY if context.emulated else itertools.product(_tasks(), NETWORKS))
    sizes = (6, 5, 20, 32) if context.emulated else (_GENOMES, _EPISODES, _STEPS, _SLOTS)
    rows: list[dict[str, Any]] = []
    with _compiled(device, context, [unit(env, network) for env, network in pairs]) as codes:
        for env, network in pairs:
            row: dict[str, Any] = {"task": env, "network": network}
            code = codes.get(unit(env, network))
            try:
                if code is not None:
                    row["code_bytes"] = code.result(max(0.0, context.left - _SPARE))
                row |= differing(env, network, *sizes)
            except TimeoutError:
                row["why"] = "no time was left"
            except (InputError, RunError) as error:
                row["failed"] = str(error)
            rows.append(row)
            context.keep(pairs=rows)
            if "failed" in row:
                print(f"{env}, {network['name']}: {row['failed']}", flush=True)
            if row is rows[-1] and (len(rows) == len(pairs) or pairs[len(rows)][0] != env):
                print(_line(env, [each for each in rows if each["task"] == env]), flush=True)
    measured = [row for row in rows if "differing" in row]
    failed = [row for row in rows if "failed" in row]
    wrong = sum(row["differing"] for row in measured)
    if not measured and not failed:
        raise NotMeasuredError("no time was left")
    steps = sum(row["steps"] for row in measured)
    verdict = f"{len(measured)} of {len(pairs)} pairs, {steps:,} steps: {wrong:,} numbers differ"
    verdict += f"; {len(failed)} failed" if failed else ""
    return Outcome(verdict, not wrong and not failed, {"pairs": rows})


def _tasks() -> list[str]:
    """Return the ids of all exact tasks, the quickest to compile first."""
    return sorted(environments.TASKS, key=lambda env: (environments.TASKS[env].has_world, env != "CartPole-v1"))


def _line(env: str, rows: list[dict[str, Any]]) -> str:
    measured = [row for row in rows if "differing" in row]
    steps, wrong = (sum(row[name] for row in measured) for name in ("steps", "differing"))
    return f"{env:26} {len(measured)} of {len(rows)} networks, {steps:10,} steps, {wrong:,} numbers differ"


def unit(env: str, table: Table) -> str:
    """Return the compilation unit of a task and a network."""
    task = environments.TASKS[env]
    made = environments.exact_task(parse(Config, {"env": {"id": env, "engine": "exact"}}).env)
    step = device_step(networks.make(table, made.observation_size, made.action_size).batch(1, "cupy"))
    assert step is not None, "every network of this package has a step on a device"
    return f"{step.name}, {task.kernel}"


@contextmanager
def _compiled(device: Device, context: Context, units: list[str]) -> Iterator[dict[str, "Future[int]"]]:
    """Compile units in processes on all cores, in this order; give the size of the code of each, in bytes."""
    if context.emulated or not isinstance(device, CupyDevice):
        yield {}
        return
    with ProcessPoolExecutor(cores(), get_context("spawn")) as pool:
        try:
            yield {name: pool.submit(_compile, device.architecture, name) for name in dict.fromkeys(units)}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _compile(architecture: str, name: str) -> int:
    return len(machine_code(architecture, name))


def config_of(
    env: str, network: Table, steps: int, normalize: bool, backend: str, slots: int, threads: int = 0
) -> Config:
    """Return the experiment of episodes with at most `steps` steps. threads: on the host; 0 for all cores."""
    compute = {"backend": backend, "slots": slots} | ({"threads": threads} if threads else {})
    table = {
        "env": {"id": env, "engine": "exact", "max_episode_steps": steps},
        "network": network,
        "normalize_observations": normalize,
        "compute": compute,
    }
    return parse(Config, table)


def batch_of(genomes: Genomes, episodes: int, normalizer: Float32 | None, traces: Traces = "none") -> EpisodeBatch:
    """Return a batch in which each genome plays a number of episodes."""
    keys = generation_keys(0, len(genomes))
    return EpisodeBatch.of(9, Purpose.CHECK, genomes, keys, range(episodes), normalizer, traces=traces)


def play(rollout: AnyRollout, batch: EpisodeBatch) -> EpisodeResults:
    """Play a batch to its end."""
    rollout.submit(batch)
    parts = []
    while rollout.pending:
        results = rollout.tick()
        parts += [] if results is None else [results]
    return join(parts)


def differing(env: str, network: Table, genomes: int, episodes: int, steps: int, slots: int) -> dict[str, Any]:
    """Return the count of different numbers in results of episodes, by quantity, and the count of played steps."""
    normalize = env != "TMaze-v0"  # most of its numbers are constant
    there = environments.exact_task(config_of(env, network, steps, normalize, "native", slots).env)
    made = networks.make(network, there.observation_size, there.action_size)
    population = initial_genomes(made, 3, 0, range(genomes))
    random = np.random.Generator(np.random.Philox(1))
    shape = (genomes, 2, there.observation_size)
    normalizers = random.uniform(0.5, 2, shape).astype(np.float32) if normalize else None
    found = []
    for backend in ("native", "cupy"):
        rollout = rollout_of(config_of(env, network, steps, normalize, backend, slots))
        found.append(_in_order(play(rollout, batch_of(population, episodes, normalizers, "each"))))
        rollout.close()
    host, device = found
    wrong = {name: _unequal(host[name], device[name]) for name in host}
    return {
        "steps": int(host["lengths"].sum()),
        "differing": sum(wrong.values()),
        "quantities": {name: count for name, count in wrong.items() if count},
    }


def _in_order(results: EpisodeResults) -> dict[str, np.ndarray]:
    """Return the quantities of episodes that have bits to compare, in the order of genomes and episodes."""
    order = np.lexsort((results.episodes, results.genomes))
    kept = np.minimum(results.lengths, MAX_HASHED_STEPS)
    hashes = np.split(results.step_hashes, np.cumsum(kept)[:-1])
    found = {name: getattr(results, name)[order] for name in EPISODE_QUANTITIES if name != "episode_seconds"}
    return found | {"step_hashes": np.concatenate([hashes[i] for i in order]), "traces": results.traces[order]}


def _unequal(one: np.ndarray, other: np.ndarray) -> int:
    return unequal(one, other) if one.shape == other.shape else max(one.size, other.size)
