"""Costs of whole episodes on a GPU that need none to be measured: registers and spills, instructions, the host's time.

NVRTC reports registers. The emulated device of the tests executes the instructions and counts them. The time of the
host is measured beside a device with work that takes no time, from the submission of a batch to the last results.
"""

import ctypes
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve import environments, networks
from evolve.config import Config, parse
from evolve.numerics import cupy_device, device
from evolve.numerics.device_protocol import WIDTH
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, generation_keys
from evolve.strategies import initial_genomes
from evolve.training.rollouts import rollout_of

_ARCHITECTURE = "sm_90"
_KERNELS = ("layered", "plastic_mlp", "hebbian_dag", "hebbian_lstm"), ("cart_pole", "bipedal_walker")
_SPILLED = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) reg")
_NETWORKS: tuple[dict[str, Any], ...] = ({"name": "mlp", "hidden": [32]}, {"name": "hebbian-dag", "hidden": [8, 8]})
_EPISODES = 4  # of a genome
_SLOTS = 4096
_LENGTHS = {"500 steps": (8192, 500, 0.0), "22 steps": (32768, 8, 14.0)}  # episodes, least length, mean of the rest
RUNS = 7
"""The number of runs, of which the fastest counts."""


def costs(show: Callable[[str], None]) -> dict[str, Any]:
    """Print all tables; return their figures."""
    found: dict[str, Any] = {"registers": {}, "warp instructions": {}, "host ns": {}}
    show(f"{_ARCHITECTURE}: registers, bytes of stack, bytes spilled: stored, loaded")
    for unit in (f"{network}, {task}" for network in _KERNELS[0] for task in _KERNELS[1]):
        found["registers"][unit] = registers(unit)
        show(f"  {unit:28}" + "".join(f"{number:>8,}" for number in found["registers"][unit]))
    show("instructions per step of 32 episodes: all warps of a block, and its longest warp; 512 episodes, 64 slots")
    for env in ("CartPole-v1", "Pendulum-v1"):
        for table in _NETWORKS:
            for few in (False, True):
                length, everything, longest = warp_instructions(env, table, few)
                name = f"{env}, {table['name']}, {'few' if few else 'many'} blocks"
                found["warp instructions"][name] = everything, longest
                show(f"  {name:40}{everything:8,.0f}{longest:8,.0f}   {length:.0f} steps per episode")
    show("host, ns per step: CartPole-v1, 4 episodes of each genome, 4,096 slots")
    for table in _NETWORKS:
        for name, lengths in _LENGTHS.items():
            found["host ns"][f"{table['name']}, {name}"] = took = host_ns(table, *lengths)
            show(f"  {table['name']:14}{name:12}{took:8.2f}")
    return found


def registers(unit: str) -> tuple[int, ...]:
    """Return the registers of a thread, the bytes of its stack, and the bytes of spills that it stores and loads.

    All functions count that the kernel calls.
    """
    options = (*cupy_device.EXACT_OPTIONS, "--ptxas-options=-v")
    log = cupy_device.compile_source(cupy_device.source_files(unit), _ARCHITECTURE, "ProgramLog", options).decode()
    used = _USED.search(log)
    assert used is not None, log
    stacks, stored, loaded = (tuple(map(int, numbers)) for numbers in zip(*_SPILLED.findall(log), strict=True))
    return int(used[1]), max(stacks), sum(stored), sum(loaded)


def warp_instructions(env: str, table: dict[str, Any], few: bool) -> tuple[float, float, float]:
    """Return the mean length of episodes, and the instructions per step of a block: of all its warps, and the longest.

    few: Whether blocks have as many threads as if there were few blocks.
    """
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
    from emulation import EmulatedDevice  # noqa: PLC0415 - only of a checkout

    emulated = EmulatedDevice(_ARCHITECTURE, counted=True)
    emulated.multiprocessors = 132 if few else 1
    with emulated.in_use():
        rollout, batch = _set_up(env, table, 64, 128 * _EPISODES)
        rollout.submit(batch)
        steps = episodes = 0
        emulated.executed_by_warps[:] = 0
        while rollout.pending:
            results = rollout.tick()
            steps += 0 if results is None else int(results.lengths.sum())
            episodes += 0 if results is None else len(results)
    everything, longest = emulated.executed_by_warps / steps * WIDTH
    return steps / episodes, everything, longest


def host_ns(table: dict[str, Any], episodes: int, least: int, rest: float) -> float:
    """Return the time of the host per step, the least of some runs."""
    random = np.random.Generator(np.random.Philox(1))
    lengths = (least + random.exponential(1.0, episodes) * rest).astype(np.int32)
    idle = _IdleDevice(lengths)
    before = device.use(idle)
    try:
        rollout, batch = _set_up("CartPole-v1", table, _SLOTS, episodes)
        took = min(_played(idle, rollout, batch) for _ in range(RUNS))
    finally:
        device.use(before)
    return 1e9 * took / float(lengths.sum())


def _played(idle: "_IdleDevice", rollout: Any, batch: EpisodeBatch) -> float:
    """Return the CPU seconds of the host for a batch, without the work of the device; other programs count little."""
    idle.seconds, idle.begun = 0.0, 0
    begin = time.process_time()
    rollout.submit(batch)
    while rollout.pending:
        rollout.tick()
    return time.process_time() - begin - idle.seconds


def _set_up(env: str, table: dict[str, Any], slots: int, episodes: int) -> tuple[Any, EpisodeBatch]:
    compute = {"backend": "cupy", "slots": slots}
    config = parse(Config, {"env": {"id": env, "engine": "exact"}, "network": table, "compute": compute})
    task = environments.exact_task(config.env)
    made = networks.make(config.network, task.observation_size, task.action_size)
    genomes = initial_genomes(made, 0, 0, range(64)).take(np.arange(episodes // _EPISODES) % 64)
    keys = generation_keys(0, len(genomes))
    batch = EpisodeBatch.of(0, Purpose.CHECK, genomes, keys, range(_EPISODES), traces="none")
    return rollout_of(config), batch


class _Memory:
    def __init__(self, nbytes: int) -> None:
        self._array = np.zeros(nbytes + WIDTH, np.uint8)
        self.address, self.nbytes = int(self._array.ctypes.data), nbytes


class _IdleDevice:
    """A device with episodes of given lengths; it counts the time of its work in `seconds`."""

    name, allocated, multiprocessors = "an idle device", 0, 132

    def __init__(self, lengths: NDArray[np.int32]) -> None:
        self.lengths = lengths
        self.seconds, self.begun = 0.0, 0

    def allocate(self, nbytes: int) -> _Memory:
        return _Memory(nbytes)

    def host_array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        return np.zeros(shape, dtype)

    def queue(self) -> "_IdleQueue":
        return _IdleQueue(self)

    def free_memory(self) -> int:
        return 2**40


class _IdleQueue:
    """Work of such a device, which is done at once."""

    def __init__(self, owner: _IdleDevice) -> None:
        self._owner = owner

    def upload(self, target: int, source: NDArray[Any]) -> None:
        self._timed(ctypes.memmove, target, source.ctypes.data, source.nbytes)

    def download(self, source: int, target: NDArray[Any]) -> None:
        self._timed(ctypes.memmove, target.ctypes.data, source, target.nbytes)

    def launch(self, kernel: str, _blocks: int, _parts: int, *arguments: Any, tiles: int = 1) -> None:
        if kernel.startswith("play"):
            self._timed(self._play, arguments[2])

    def wait(self) -> None:
        pass

    def _play(self, feed: Any) -> None:
        lengths = self._owner.lengths[self._owner.begun : self._owner.begun + feed.fed]
        self._owner.begun += len(lengths)
        ctypes.memmove(feed.result_lengths, lengths.ctypes.data, lengths.nbytes)
        counts = np.array([feed.fed, feed.fed, lengths.sum()])
        ctypes.memmove(feed.begun, counts.ctypes.data, counts.nbytes)

    def _timed(self, work: Callable[..., object], *arguments: Any) -> None:
        begin = time.process_time()
        work(*arguments)
        self._owner.seconds += time.process_time() - begin
