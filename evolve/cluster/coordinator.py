"""The coordinator: hands out units in shrinking chunks, keeps every worker one chunk ahead, files results by key."""

import itertools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from evolve.cluster import messages
from evolve.cluster.backlog import Backlog, Task, shrinking
from evolve.cluster.farm import Farm
from evolve.cluster.messages import EpisodeFault, Failure, Kill, Results, Setup, Stop, StopRequest
from evolve.cluster.watchdog import Watchdog, kill, patience
from evolve.cluster.worker import MakeRollout, failure_report, fault_message, units_of
from evolve.cluster.world import World
from evolve.config import Config, RacingOptions
from evolve.errors import FAILURES, EpisodeError, RunError, Stopped
from evolve.evaluation import Evaluation, Ledger
from evolve.genome import Genomes
from evolve.racing import NO_RACE, rounds
from evolve.rollout import Rollout
from evolve.shapes import Float64, Int64

_LOG = logging.getLogger("evolve")
_LARGEST_CHUNK = 2048  # units, unless there are more slots
_LONGEST_SETUP = 600.0  # seconds until a worker has made its environments
_SERIALS = itertools.count(1)  # of all coordinators of this process: workers may still answer the last one
_TOLD = 3  # failed episodes of an evaluation that are described


class Coordinator:
    """Evaluates populations over the ranks of a world, or in this process when it is the only one.

    stopped: asked often; returns why the run should stop early, or None. Its answer becomes `Stopped`.
    chunk_seconds: how much work a chunk should be, where there is enough, beside what it costs to begin one.
    Making one tells every worker the experiment; they prepare while the coordinator does.
    """

    def __init__(
        self,
        world: World,
        config: Config,
        make_rollout: MakeRollout,
        stopped: Callable[[], str | None] = lambda: None,
        chunk_seconds: float = 0.01,
    ) -> None:
        self._world, self._make_rollout, self._stopped = world, make_rollout, stopped
        self._chunk_seconds = chunk_seconds
        self._workers = [rank for rank in range(1, world.size) if rank not in world.gone]
        self._ready: set[int] = set()
        self._serial, self._unit_seconds, self._faults = 0, 0.0, 0
        self.progress: Callable[[int, int, int], None] = _tell_nobody
        """Called now and then with the units that are done, all units, and how many workers have nothing to do."""
        self._set_up(config)

    def _set_up(self, config: Config) -> None:
        self._config, self._compute, self._env = config, config.compute, config.env
        self._slots, self._text = self._compute.slots or 1, config.to_toml()
        self._own_rollout: Rollout | None = None
        for worker in self._workers:
            self._world.post(worker, messages.encode(Setup(messages.text(self._text))))

    @contextmanager
    def playing(self, config: Config) -> Iterator[None]:
        """Evaluate episodes of another experiment in the `with` block. After an exception nothing more is evaluated."""
        before = self._config
        if config != before:
            self._set_up(config)
        yield
        if config != before:
            self._set_up(before)

    def evaluate(
        self,
        task: Task,
        genomes: Genomes,
        episodes: int,
        traces: int,
        race: tuple[RacingOptions, Float64 | float] = (NO_RACE, 0.0),
    ) -> Evaluation:
        """Evaluate P genomes for E = `episodes` each, or for fewer where they leave the race; `traces` is T.

        race: how it is run, and what each candidate costs [P].

        A worker that dies, where MPI survives it, or no longer answers is done without; when none is left, this process
        does the rest. Raises Stopped when asked to stop, EpisodeError for an episode that failed (unless that is to
        count as the worst: then its return is NaN), and RunError when a worker cannot go on.
        """
        self._faults = 0
        ledger = Ledger(len(genomes), episodes, traces, task.normalized)
        seconds = np.zeros((2, self._world.size))
        for units in rounds(race[0], ledger.returns, race[1]):
            self._serial = next(_SERIALS)
            ledger.expect(len(units))
            backlog = Backlog(self._serial, task, genomes, episodes, units)
            if self._workers:
                self._farm_out(task, backlog, ledger, seconds)
            if not self._workers:
                self._work_alone(task, backlog, ledger, seconds)
            self._unit_seconds = float(seconds[0].sum()) / ledger.units
        if self._faults > _TOLD:
            _LOG.warning("… and %d more", ledger.failed - _TOLD)
        return ledger.evaluation(genomes.mask, seconds)

    def _work_alone(self, task: Task, backlog: Backlog, ledger: Ledger, seconds: Float64) -> None:
        if self._own_rollout is None:
            self._own_rollout = self._make_rollout(self._text)
        begin, rollout = time.perf_counter(), self._own_rollout
        rollout.clear()
        rollout.environment_seconds = 0
        with Watchdog(self._env.max_episode_seconds, fatal=True) as watchdog:
            while ledger.waiting:
                self._check_stop()
                watchdog.pat()
                try:
                    if len(backlog) and rollout.pending <= self._slots:
                        rollout.submit(units_of(backlog.take(self._slots)[1]))
                    outcomes = rollout.tick()
                except FAILURES as wrong:
                    raise RunError(failure_report(self._world)) from wrong
                for fault in rollout.take_faults():
                    self._face(task, fault_message(self._serial, fault), 0)
                if outcomes is not None:
                    ledger.put(outcomes)
                    self.progress(ledger.units - ledger.waiting, ledger.units, 0)
        seconds[:, 0] += time.perf_counter() - begin, rollout.environment_seconds

    def _farm_out(self, task: Task, backlog: Backlog, ledger: Ledger, seconds: Float64) -> None:
        """Evaluate on the workers, until all is done or none of them is left."""
        farm, looked = Farm(self._world, self._workers, backlog, self._chunk_sizes), time.monotonic()
        while ledger.waiting and self._workers:
            self._check_stop()
            received = self._world.poll()
            if received is None:
                passed, looked = min(time.monotonic() - looked, 0.5), time.monotonic()  # at most: we may have slept
                self._do_without(task, farm, ledger, passed)
                self._world.nap()
                continue
            worker, message = received[0], messages.decode(received[1])
            self._ready.add(worker)
            farm.heard(worker)
            if isinstance(message, Results) and int(message.serial[0]) == self._serial:
                ledger.put(message)
                seconds[:, worker] += message.seconds
                farm.returned(worker, len(message.candidates))
                self.progress(ledger.units - ledger.waiting, ledger.units, farm.idle)
            else:
                self._heed(task, message, worker)

    def _do_without(self, task: Task, farm: Farm, ledger: Ledger, passed: float) -> None:
        """Give what dead and silent workers were to do to the others."""
        for worker in self._world.lost():
            if worker in self._workers:
                again, blamed = farm.lose(worker, ledger.done, hung=False)
                self._say_lost(worker, "was lost", again)
                self._blame(task, ledger, blamed, worker, "it was there whenever a worker died")
                if not self._workers:
                    self._say_alone(task, farm.in_hand_at_the_end, ledger.done.shape[1])
        for worker in farm.silent(passed, self._patience):
            self._world.abandon(worker)
            self._kill(worker)
            again, blamed = farm.lose(worker, ledger.done, hung=True)
            self._say_lost(worker, "no longer answers, and is given up", again)
            hangs = f"it hangs in native code, for longer than {self._env.max_episode_seconds:g} s"
            self._blame(task, ledger, blamed, worker, f"{hangs} (env.max_episode_seconds)")
            if ledger.waiting and not self._workers:
                raise RunError(
                    f"no worker is left but hanging ones, and {ledger.waiting} episodes; rank 0 must not hang"
                )

    def _kill(self, worker: int) -> None:
        """End a worker that hangs, where its death ends nobody else."""
        world, pid = self._world, self._world.pids[worker]
        beside = [w for w in self._workers if w != worker and world.hosts[w] == world.hosts[worker]]
        if world.tolerant and world.hosts[worker] == world.host:
            kill(pid)
        elif world.tolerant and beside:
            world.post(beside[0], messages.encode(Kill(np.array([pid]))))

    def _patience(self, worker: int) -> float:
        usual = patience(self._env.max_episode_seconds) + 1.0  # it tells where it hangs before
        return usual if worker in self._ready else max(usual, _LONGEST_SETUP)

    def _say_lost(self, worker: int, how: str, again: int) -> None:
        when, host = time.strftime("%Y-%m-%d %H:%M:%S"), self._world.hosts[worker]
        _LOG.warning("%s: rank %d on %s %s; its %d episodes are evaluated by others", when, worker, host, how, again)

    def _say_alone(self, task: Task, units: Int64, episodes: int) -> None:
        """Say what rank 0 is going to try, should that be what has killed the workers."""
        named = [task.name(*divmod(unit, episodes))[0] for unit in units[:_TOLD].tolist()]
        last = (
            f", at last those that workers died with: {'; '.join(named)}{' …' * (len(units) > _TOLD)}" if named else ""
        )
        _LOG.warning("no worker is left: rank 0 evaluates the rest by itself%s", last)

    def _blame(self, task: Task, ledger: Ledger, units: Int64, worker: int, what: str) -> None:
        """Let units [n] that hang or kill workers count as failed."""
        for unit in units.tolist():
            row, episode = divmod(unit, ledger.done.shape[1])
            numbers = np.array([self._serial, row, episode, -1, -1])
            self._face(task, EpisodeFault(numbers, messages.text(what)), worker)
            ledger.give_up(row, episode)

    def _chunk_sizes(self, units: int) -> Iterator[int]:
        if self._compute.chunks == "fixed":
            return itertools.repeat(self._compute.chunk_size)
        least = min(int(self._chunk_seconds / self._unit_seconds), _LARGEST_CHUNK) if self._unit_seconds else 1
        return shrinking(units, len(self._workers), max(self._slots, least), least)

    def _heed(self, task: Task, message: messages.Message, worker: int) -> None:
        match message:
            case EpisodeFault() if int(message.numbers[0]) == self._serial:
                self._face(task, message, worker)
            case Failure(report):
                raise RunError(report.tobytes().decode())
            case StopRequest(signal):
                raise Stopped(f"signal {int(signal[0])} at a worker")

    def _face(self, task: Task, fault: EpisodeFault, worker: int) -> None:
        """Stop for a failed episode, or say that it counts as the worst."""
        _, row, episode, seed, step = (int(number) for number in fault.numbers)
        which, replay = task.name(row, episode)
        where = f"on rank {worker} ({self._world.hosts[worker]})"
        if seed >= 0:
            where = f"in {f'step {step}' if step else 'reset'}, environment seed {seed}, {where}"
        told = fault.told.tobytes().decode(errors="replace").rstrip()
        if self._env.on_failure == "stop":
            raise EpisodeError(which, f"{where}:\n{told}", replay)
        self._faults += 1
        if self._faults <= _TOLD:
            _LOG.warning("%s failed and counts as the worst, %s: %s", which, where, told.splitlines()[-1])

    def _check_stop(self) -> None:
        why = self._stopped()
        if why is not None:
            raise Stopped(why)


def _tell_nobody(_done: int, _units: int, _idle: int) -> None:
    pass


def dismiss(world: World) -> bool:
    """Tell every worker to leave; return whether all said so before patience ran out, after some seconds."""
    patience = 5.0 + 0.05 * world.size  # many ranks on few cores take turns
    present, deadline = set(range(1, world.size)) - world.gone, time.monotonic() + patience
    for worker in present:
        world.post(worker, messages.encode(Stop()))
    while (present or (world.tolerant and world.abandoned)) and time.monotonic() < deadline:
        received = world.poll()
        if received is None:
            present -= set(world.lost())
            world.nap()
        elif isinstance(messages.decode(received[1]), Stop):
            present.discard(received[0])
    return not present and world.flush(patience)
