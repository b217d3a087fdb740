"""The coordinator: hands out units in shrinking chunks, keeps every worker one chunk ahead, files results by key."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from evolve.cluster import messages
from evolve.cluster.messages import Chunk, Failure, Results, Setup, Stop, StopRequest
from evolve.cluster.worker import MakeRollout, failure_report, units_of
from evolve.cluster.world import World
from evolve.config import ComputeOptions
from evolve.errors import RunError, Stopped
from evolve.evaluation import Evaluation, Ledger
from evolve.genome import Genomes
from evolve.rng import Purpose
from evolve.rollout import Outcomes, Rollout
from evolve.shapes import Float64, Int64

_LARGEST_CHUNK = 2048  # units, unless there are more slots


@dataclass(frozen=True)
class Task:
    """What keys the episodes of an evaluation: `keys` [P, 2] int64 are generation and candidate of each genome.

    Genomes with equal keys meet the same episodes (common random numbers).
    """

    seed: int
    purpose: Purpose
    keys: Int64


def keys_of(generation: int, population: int, common: bool = False) -> Int64:
    """Return the keys [P, 2] of one generation; with `common` all candidates meet candidate 0's episodes."""
    candidates = np.zeros(population, np.int64) if common else np.arange(population, dtype=np.int64)
    return np.stack([np.full(population, generation, np.int64), candidates], axis=1)


def shrinking(units: int, workers: int, most: int, least: int) -> Iterator[int]:
    """Yield the sizes of the chunks that `units` are handed out in.

    Factoring (Hummel, Schonberg and Flynn, 1992): in each round every worker gets the same share of half of what is
    left. No chunk is larger than `most`; one smaller than `least` is not worth its handling while there is more.
    """
    while units:
        fair = -(-units // workers)
        size = max(1, min(most, max(fair // 2, min(least, fair))))
        for _ in range(workers):
            if units:
                yield min(size, units)
                units -= min(size, units)


class _Units:
    """The P·E units of an evaluation in candidate order, and how far they have been handed out."""

    def __init__(self, serial: int, task: Task, genomes: Genomes, episodes: int, sizes: Iterator[int]) -> None:
        self._words = np.array([serial, task.seed, task.purpose], np.int64)
        self._keys, self._genomes, self._E, self._next = task.keys, genomes, episodes, 0
        self._sizes, self.left = sizes, len(genomes) * episodes
        """Units not yet taken."""
        self.size = min(next(sizes), self.left)
        """Units of the next chunk, 0 when none is left."""

    def take(self) -> Chunk:
        """Return the next chunk."""
        flat: Int64 = np.arange(self._next, self._next + self.size, dtype=np.int64)
        self._next, self.left = self._next + len(flat), self.left - len(flat)
        self.size = min(next(self._sizes, 0), self.left)
        candidates, episodes = np.divmod(flat, self._E)
        first, last = int(candidates[0]), int(candidates[-1]) + 1
        units = np.stack([candidates - first, candidates, episodes], axis=1).astype(np.int32)
        rows = slice(first, last)
        return Chunk(self._words, self._keys[rows], self._genomes.weights[rows], self._genomes.mask[rows], units)


class Coordinator:
    """Evaluates populations over the ranks of a world, or in this process when it is the only one.

    stopped: asked often; returns why the run should stop early, or None. Its answer becomes `Stopped`.
    chunk_seconds: how much work a chunk should be, where there is enough, beside what it costs to begin one.
    """

    def __init__(
        self,
        world: World,
        compute: ComputeOptions,
        make_rollout: MakeRollout,
        stopped: Callable[[], str | None] = lambda: None,
        chunk_seconds: float = 0.01,
    ) -> None:
        self._chunk_seconds = chunk_seconds
        self._world, self._compute, self._make_rollout, self._stopped = world, compute, make_rollout, stopped
        self._workers = range(1, world.size)
        self._slots = compute.slots or 1
        self._own_rollout: Rollout | None = None
        self._config, self._serial, self._unit_seconds = "", 0, 0.0

    def setup(self, config: str) -> None:
        """Tell every worker the experiment (TOML text); they prepare while the coordinator does."""
        self._config = config
        for worker in self._workers:
            self._world.post(worker, messages.encode(Setup(messages.text(config))))

    def evaluate(self, task: Task, genomes: Genomes, episodes: int, traces: int) -> Evaluation:
        """Evaluate P genomes for E = `episodes` each; `traces` is T.

        Raises Stopped when asked to stop, and RunError with the remote traceback when a worker fails.
        """
        self._serial += 1
        units = _Units(self._serial, task, genomes, episodes, self._chunk_sizes(len(genomes) * episodes))
        ledger = Ledger(len(genomes), episodes, traces)
        busy = np.zeros(self._world.size)
        if self._workers:
            self._farm_out(units, ledger, busy)
        else:
            self._work_alone(units, ledger, busy)
        self._unit_seconds = float(busy.sum()) / (len(genomes) * episodes)
        return ledger.evaluation(genomes.mask, busy)

    def _chunk_sizes(self, units: int) -> Iterator[int]:
        if not self._workers:
            return itertools.repeat(self._slots)
        if self._compute.chunks == "fixed":
            return itertools.repeat(self._compute.chunk_size)
        least = min(int(self._chunk_seconds / self._unit_seconds), _LARGEST_CHUNK) if self._unit_seconds else 1
        return shrinking(units, len(self._workers), max(self._slots, least), least)

    def _work_alone(self, units: _Units, ledger: Ledger, busy: Float64) -> None:
        if self._own_rollout is None:
            self._own_rollout = self._make_rollout(self._config)
        begin, rollout = time.perf_counter(), self._own_rollout
        rollout.clear()
        while ledger.waiting:
            self._check_stop()
            try:
                if units.size and rollout.pending <= self._slots:
                    rollout.submit(units_of(units.take()))
                outcomes = rollout.tick()
            except (Exception, SystemExit) as wrong:  # whatever an environment raises
                raise RunError(failure_report(self._world)) from wrong
            if outcomes is not None:
                _file(outcomes, ledger)
        busy[0] = time.perf_counter() - begin

    def _farm_out(self, units: _Units, ledger: Ledger, busy: Float64) -> None:
        outstanding = dict.fromkeys(self._workers, 0)
        for worker in (*self._workers, *self._workers):  # a chunk for each, and then one ahead
            self._send_chunk(worker, units, outstanding)
        while ledger.waiting:
            self._check_stop()
            received = self._world.poll()
            if received is None:
                self._world.nap()
                continue
            worker, message = received[0], messages.decode(received[1])
            if isinstance(message, Results) and int(message.serial[0]) == self._serial:
                _file(message, ledger)
                busy[worker] += message.busy_seconds[0]
                outstanding[worker] -= len(message.candidates)
                while self._send_chunk(worker, units, outstanding):
                    pass
            else:
                self._heed(message)

    def _send_chunk(self, worker: int, units: _Units, outstanding: dict[int, int]) -> bool:
        """Send one chunk, unless none is left or the worker has more than that in hand; return whether one was sent.

        The last few wait for workers that have nothing to do: one of them queued behind another would end late.
        """
        ahead = units.size if units.left > len(self._workers) else 0
        if not units.size or outstanding[worker] > ahead:
            return False
        chunk = units.take()
        outstanding[worker] += len(chunk.units)
        self._world.post(worker, messages.encode(chunk))
        return True

    def _heed(self, message: messages.Message) -> None:
        match message:
            case Failure(report):
                raise RunError(report.tobytes().decode())
            case StopRequest(signal):
                raise Stopped(f"signal {int(signal[0])} at a worker")

    def _check_stop(self) -> None:
        why = self._stopped()
        if why is not None:
            raise Stopped(why)


def _file(done: Results | Outcomes, ledger: Ledger) -> None:
    ledger.put(done.candidates, done.episodes, done.returns, done.lengths, done.traces)


def dismiss(world: World) -> bool:
    """Tell every worker to leave; return whether all said so before patience ran out, after some seconds."""
    patience = 5.0 + 0.05 * world.size  # many ranks on few cores take turns
    present, deadline = set(range(1, world.size)), time.monotonic() + patience
    for worker in present:
        world.post(worker, messages.encode(Stop()))
    while present and time.monotonic() < deadline:
        received = world.poll()
        if received is None:
            world.nap()
        elif isinstance(messages.decode(received[1]), Stop):
            present.discard(received[0])
    return not present and world.flush(patience)
