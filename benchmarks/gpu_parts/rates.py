"""Part 3: nanoseconds per step of whole episodes, short and long, on the device and on the host."""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from device_parts.steps import cores

import evolve
from evolve import environments, networks, store
from evolve.analysis.champion import champion_of
from evolve.config import Config
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.networks.network import SlotArrays
from evolve.numerics import host_backend
from evolve.numerics.device import device
from evolve.numerics.device_protocol import DeviceMemoryError
from evolve.rollouts import AnyRollout, EpisodeBatch, EpisodeQueue
from evolve.rollouts.device_play import DevicePlay, DeviceRollout, in_whole_blocks
from evolve.shapes import Float32
from evolve.strategies import initial_genomes
from evolve.training import load_config
from evolve.training.rollouts import rollout_of
from gpu_parts.context import ROOT, Context, NotMeasuredError, Outcome
from gpu_parts.episodes import Table, batch_of, config_of, play

SLOTS = (65536, 4096, 16384)
_OF_WORLDS = 32 * 12
"""The worlds that a multiprocessor holds at a time, by its registers. More slots than all hold would have to wait."""
_MLP, _HEBBIAN = {"name": "mlp", "hidden": [32]}, {"name": "hebbian-dag", "hidden": [8, 8]}
_HOST_SLOTS = 4096
_DIFFERENT = 1024
"""Genomes of initial networks; further episodes repeat them."""
_SECONDS = 1.0
"""The shortest measurement; at least one batch is played."""
_SPARE = 6.0  # seconds


@dataclass(frozen=True)
class Case:
    """Episodes to be timed.

    Attributes:
        env: The exact task.
        network: The table of the network; of a champion it is in its file.
        steps: The limit of steps of an episode.
        policy: "initial" networks fail after few steps; one that was "trained" here, or a champion of the zoo, lives
            long.
        wanted: The steps per second to reach with the most slots, in the kernel; 0 if there is no aim.
    """

    env: str
    network: Table | None
    steps: int
    policy: str = "initial"
    wanted: float = 0.0

    @property
    def title(self) -> str:
        """The task, the network and the policy."""
        return f"{self.env}, {self.network['name'] if self.network else 'mlp'}, {self.policy}"


CASES = (
    Case("CartPole-v1", _MLP, 500, "trained", wanted=1e9),
    Case("BipedalWalker-v3", None, 500, "walker-es", wanted=20e6),
    Case("CartPole-v1", _HEBBIAN, 500, "trained"),
    Case("CartPole-v1", _MLP, 500),
    Case("CartPole-v1", _HEBBIAN, 500),
    Case("BipedalWalker-v3", _HEBBIAN, 100),
    Case("LunarLander-v3", None, 500, "lander"),
)
_TINY = (Case("CartPole-v1", {"name": "hebbian-lstm", "hidden": [3]}, 20, wanted=1.0),)


def measure(context: Context) -> Outcome:
    """Print a line for each case and number of slots."""
    context.device()
    rows: list[dict[str, Any]] = []
    print(f"ns per step; the host's columns: one core, {cores()} cores; the longest call in ms")
    heading = ("slots", "mean steps", "kernel", "all", "call", "1 core", f"{cores()} cores")
    print(f"{'':42}" + "".join(f"{name:>11}" for name in heading), flush=True)
    for case in _TINY if context.emulated else CASES:
        if context.left < _SPARE:
            rows.append({"case": case.title, "why": "no time was left"})
            continue
        table, genomes, normalizer = policy(case)
        host = _host(context, case, table, genomes, normalizer)
        for slots in (32,) if context.emulated else _slots(case):
            row: dict[str, Any] = {
                "case": case.title,
                "network": table,
                "steps_limit": case.steps,
                "slots": slots,
            } | host
            rows.append(row | on_device(context, case, table, genomes, normalizer, slots))
            print(_line(rows[-1]), flush=True)
            context.keep(rows=rows)
    measured = [row for row in rows if "kernel_ns" in row]
    if not measured:
        raise NotMeasuredError(rows[0]["why"])
    wanted = {case.title: case.wanted for case in (_TINY if context.emulated else CASES) if case.wanted}
    best = {
        title: max((1e9 / row["kernel_ns"] for row in measured if row["case"] == title), default=0.0)
        for title in wanted
    }
    reached = sum(best[title] >= aim for title, aim in wanted.items())
    said = ", ".join(f"{title.partition(',')[0]} {rate / 1e6:,.0f} M steps/s" for title, rate in best.items())
    return Outcome(f"{said}; {reached} of {len(wanted)} aims reached", True, {"rows": rows, "wanted": wanted})


def _slots(case: Case) -> tuple[int, ...]:
    most, *others = SLOTS
    return min(most, _OF_WORLDS * device().multiprocessors) if environments.TASKS[case.env].has_world else most, *others


def _line(row: dict[str, Any]) -> str:
    cells = (f"{row['slots']:,}", _cell(row, "mean_steps"), _cell(row, "kernel_ns", 2), _cell(row, "all_ns", 2),
             _cell(row, "longest_call_ms", 1), _cell(row, "one_core_ns"), _cell(row, "all_cores_ns"))  # fmt: skip
    return f"{row['case']:42}" + "".join(f"{cell:>11}" for cell in cells) + f"  {row.get('why', '')}"


def _cell(row: dict[str, Any], name: str, digits: int = 0) -> str:
    return f"{row[name]:,.{digits}f}" if name in row else "-"


def policy(case: Case) -> tuple[Table, Genomes, Float32 | None]:
    """Return the table of a case's network, some genomes, and the normalizer of observations, if there is one."""
    if case.policy not in ("initial", "trained"):
        return _champion(ROOT / "zoo" / f"{case.policy}.champion")
    assert case.network is not None, "only a champion brings its network"
    if case.policy == "trained":
        with tempfile.TemporaryDirectory() as folder:
            env = {"id": case.env, "engine": "exact"}
            settings: dict[str, Any] = {"strategy": "ga", "population": 64, "episodes": 4, "generations": 20}
            compute = {"backend": host_backend("auto")}
            evolve.train(env=env, network=case.network, seed=1, output=folder, compute=compute, **settings)
            return case.network, _champion(store.one_run_file(Path(folder)))[1], None
    task = environments.exact_task(config_of(case.env, case.network, case.steps, False, "numpy", 1).env)
    made = networks.make(case.network, task.observation_size, task.action_size)
    return case.network, initial_genomes(made, 3, 0, range(_DIFFERENT)), None


def _champion(path: Path) -> tuple[Table, Genomes, Float32 | None]:
    stored = store.read_any(path)
    found = champion_of(stored)
    config = load_config(stored.header.config, str(path))
    table = {"name": config.network.name} | config.network.options.model_dump()
    normalizer = stored.normalizer if config.normalize_observations else None
    return table, found.genome, normalizer


def _host(context: Context, case: Case, table: Table, genomes: Genomes, normalizer: Float32 | None) -> dict[str, Any]:
    """Return nanoseconds per step on one core of the host, and on all."""
    found: dict[str, Any] = {}
    for name, threads in (("one_core_ns", 1), ("all_cores_ns", cores())):
        config = config_of(
            case.env, table, case.steps, normalizer is not None, host_backend("auto"), _HOST_SLOTS, threads
        )
        made = rollout_of(config)
        batch = _batch(genomes, (8 if context.emulated else 256) * threads, 4, normalizer)
        found[name] = _timed(made, batch, 0.0 if context.emulated else _SECONDS / 2)["all_ns"]
        made.close()
    return found


def on_device(
    context: Context, case: Case, table: Table, genomes: Genomes, normalizer: Float32 | None, slots: int
) -> dict[str, Any]:
    """Return nanoseconds per step on the device, in the kernel and in all, or the reason why there are none."""
    if context.left < _SPARE:
        return {"why": "no time was left"}
    # Worlds are costly to step, so one episode for each slot suffices.
    batch = _batch(genomes, slots, 1 if environments.TASKS[case.env].has_world else 4, normalizer)
    config = config_of(case.env, table, case.steps, normalizer is not None, "cupy", slots)
    seconds = 0.0 if context.emulated else _SECONDS / 2
    before = device().allocated
    try:
        alone = _alone(config, slots, len(batch))
        found = {"device_bytes": device().allocated - before}
        play(alone, batch.take(np.arange(min(len(batch), 64))))  # compiles
        alone.longest_call = 0.0
        timed = _timed(alone, batch, seconds)
        found |= {"kernel_ns": timed["environment_ns"], "longest_call_ms": 1e3 * alone.longest_call}
        del alone
        return found | _timed(rollout_of(config), batch, seconds)
    except (InputError, DeviceMemoryError) as error:
        return {"why": str(error)}


def _alone(config: Config, slots: int, episodes: int) -> DeviceRollout:
    """Return a rollout that does nothing else while the device plays, in all slots together; others play in halves."""
    task = environments.exact_task(config.env)
    network = networks.make(config.network, task.observation_size, task.action_size)
    batch = network.batch(in_whole_blocks(task, slots), "cupy")
    assert isinstance(batch, SlotArrays), "every network of this package keeps its state in arrays of slots"
    played = DevicePlay(task, batch, network.num_weights, episodes, config.normalize_observations)
    queue = EpisodeQueue()
    queue.fill_feeds(episodes)
    return DeviceRollout(played, config.env.max_episode_seconds, queue)


def _batch(genomes: Genomes, candidates: int, episodes: int, normalizer: Float32 | None) -> EpisodeBatch:
    # As in a run, only the step hashes of the best genome are wanted.
    batch = batch_of(genomes.take(np.arange(candidates) % len(genomes)), episodes, normalizer)
    return replace(batch, best_of=episodes)


def _timed(rollout: AnyRollout, batch: EpisodeBatch, seconds: float) -> dict[str, Any]:
    """Play a batch again and again; return nanoseconds per step, in all and in environments, and the mean length."""
    rollout.environment_seconds = 0.0
    steps = episodes = 0
    begin = time.perf_counter()
    while not steps or time.perf_counter() - begin < seconds:
        rollout.submit(batch)
        while rollout.pending:
            if (results := rollout.tick()) is not None:
                steps += int(results.lengths.sum())
                episodes += len(results)
    took = time.perf_counter() - begin
    found = {"all_ns": 1e9 * took / steps, "environment_ns": 1e9 * rollout.environment_seconds / steps}
    return found | {"mean_steps": steps / episodes, "steps": steps, "seconds": took}
