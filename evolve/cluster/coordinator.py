"""The coordinator: hands out units in shrinking chunks, keeps every worker one chunk ahead, files results by key."""

import itertools
import logging
import time
from collections.abc import Callable, Iterator

import numpy as np

from evolve.cluster import messages
from evolve.cluster.backlog import Backlog, Task, shrinking
from evolve.cluster.messages import Failure, Results, Setup, Stop, StopRequest
from evolve.cluster.worker import MakeRollout, failure_report, units_of
from evolve.cluster.world import World
from evolve.config import ComputeOptions
from evolve.errors import RunError, Stopped
from evolve.evaluation import Evaluation, Ledger
from evolve.genome import Genomes
from evolve.rollout import Outcomes, Rollout
from evolve.shapes import Float64

_LOG = logging.getLogger("evolve")
_LARGEST_CHUNK = 2048  # units, unless there are more slots


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
        self._workers = [rank for rank in range(1, world.size) if rank not in world.gone]
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

        A worker that dies is done without, where MPI survives it; without any this process does the rest.
        Raises Stopped when asked to stop, and RunError with the remote traceback when a worker fails.
        """
        self._serial += 1
        backlog = Backlog(self._serial, task, genomes, episodes)
        ledger = Ledger(len(genomes), episodes, traces)
        busy = np.zeros(self._world.size)
        if self._workers:
            self._farm_out(backlog, ledger, busy)
        if not self._workers:
            self._work_alone(backlog, ledger, busy)
        self._unit_seconds = float(busy.sum()) / (len(genomes) * episodes)
        return ledger.evaluation(genomes.mask, busy)

    def _work_alone(self, backlog: Backlog, ledger: Ledger, busy: Float64) -> None:
        if self._own_rollout is None:
            self._own_rollout = self._make_rollout(self._config)
        begin, rollout = time.perf_counter(), self._own_rollout
        rollout.clear()
        while ledger.waiting:
            self._check_stop()
            try:
                if len(backlog) and rollout.pending <= self._slots:
                    rollout.submit(units_of(backlog.take(self._slots)[1]))
                outcomes = rollout.tick()
            except (Exception, SystemExit) as wrong:  # whatever an environment raises
                raise RunError(failure_report(self._world)) from wrong
            if outcomes is not None:
                _file(outcomes, ledger)
        busy[0] += time.perf_counter() - begin

    def _farm_out(self, backlog: Backlog, ledger: Ledger, busy: Float64) -> None:
        """Evaluate on the workers, until all is done or none of them is left."""
        farm = _Farm(self._world, self._workers, backlog, self._chunk_sizes)
        while ledger.waiting and self._workers:
            self._check_stop()
            received = self._world.poll()
            if received is None:
                for worker in self._world.lost():
                    again = farm.lose(worker, ledger)
                    _LOG.warning(
                        "%s: rank %d on %s was lost; its %d episodes are evaluated by others",
                        time.strftime("%Y-%m-%d %H:%M:%S"), worker, self._world.hosts[worker], again,
                    )  # fmt: skip
                self._world.nap()
                continue
            worker, message = received[0], messages.decode(received[1])
            if isinstance(message, Results) and int(message.serial[0]) == self._serial:
                _file(message, ledger)
                busy[worker] += message.busy_seconds[0]
                farm.returned(worker, len(message.candidates))
            else:
                self._heed(message)

    def _chunk_sizes(self, units: int) -> Iterator[int]:
        if self._compute.chunks == "fixed":
            return itertools.repeat(self._compute.chunk_size)
        least = min(int(self._chunk_seconds / self._unit_seconds), _LARGEST_CHUNK) if self._unit_seconds else 1
        return shrinking(units, len(self._workers), max(self._slots, least), least)

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


class _Farm:
    """Which worker has which units of an evaluation."""

    def __init__(
        self, world: World, workers: list[int], backlog: Backlog, sizes: Callable[[int], Iterator[int]]
    ) -> None:
        self._world, self._workers, self._backlog, self._make_sizes = world, workers, backlog, sizes
        self._owner = np.zeros(len(backlog), np.int32)
        self._outstanding = dict.fromkeys(workers, 0)
        self._begin()

    def _begin(self) -> None:
        self._sizes = self._make_sizes(len(self._backlog))
        self._size = next(self._sizes, 0)
        for worker in (*self._workers, *self._workers):  # a chunk for each, and then one ahead
            self._send(worker)

    def returned(self, worker: int, units: int) -> None:
        """Give a worker more to do for the units it has done."""
        if worker in self._outstanding:
            self._outstanding[worker] -= units
            while self._send(worker):
                pass

    def lose(self, worker: int, ledger: Ledger) -> int:
        """Give what a worker was to do to the others; return how many units that are."""
        self._workers.remove(worker)
        del self._outstanding[worker]
        units = np.flatnonzero((self._owner == worker) & ~ledger.done.ravel())
        self._backlog.put_back(units)
        if self._workers:
            self._begin()
        return len(units)

    def _send(self, worker: int) -> bool:
        """Send one chunk, unless none is left or the worker has more than that in hand; return whether one was sent.

        The last few wait for workers that have nothing to do: one of them queued behind another would end late.
        """
        left = len(self._backlog)
        ahead = self._size if left > len(self._workers) else 0
        if not left or self._outstanding[worker] > ahead:
            return False
        units, chunk = self._backlog.take(self._size)
        self._size = next(self._sizes, 1)
        self._owner[units] = worker
        self._outstanding[worker] += len(units)
        self._world.post(worker, messages.encode(chunk))
        return True


def _file(done: Results | Outcomes, ledger: Ledger) -> None:
    ledger.put(done.candidates, done.episodes, done.returns, done.lengths, done.traces)


def dismiss(world: World) -> bool:
    """Tell every worker to leave; return whether all said so before patience ran out, after some seconds."""
    patience = 5.0 + 0.05 * world.size  # many ranks on few cores take turns
    present, deadline = set(range(1, world.size)) - world.gone, time.monotonic() + patience
    for worker in present:
        world.post(worker, messages.encode(Stop()))
    while present and time.monotonic() < deadline:
        received = world.poll()
        if received is None:
            present -= set(world.lost())
            world.nap()
        elif isinstance(messages.decode(received[1]), Stop):
            present.discard(received[0])
    return not present and world.flush(patience)
