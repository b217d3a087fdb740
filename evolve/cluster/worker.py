"""A worker rank: waits for chunks, steps all its slots together, and sends outcomes home in small parcels."""

import math
import time
import traceback
from collections.abc import Callable

import numpy as np

from evolve.cluster import messages
from evolve.cluster.messages import Alive, Chunk, EpisodeFault, Failure, Kill, Results, Setup, Stop, StopRequest
from evolve.cluster.watchdog import Watchdog, kill
from evolve.cluster.world import World
from evolve.errors import RunError
from evolve.evaluation import Outcomes, join
from evolve.genome import Genomes
from evolve.rng import Purpose, environment_seeds
from evolve.rollout import Fault, Rollout, Units

COORDINATOR = 0
_LOOK_EVERY = 0.01  # seconds between looks for messages while there is work; each costs as much as several steps
_MOST_FAULTS = 100  # described to the coordinator in one evaluation; all are counted, by their NaN
MakeRollout = Callable[[str], Rollout]


def units_of(chunk: Chunk) -> Units:
    """Return the units of a chunk, with their environment seeds."""
    _, seed, purpose = (int(word) for word in chunk.task)
    rows, candidates, episodes = chunk.units.T
    generations, keys = chunk.keys[rows].T
    seeds = environment_seeds(seed, Purpose(purpose), generations, keys, episodes.astype(np.int64))
    return Units(candidates, episodes, seeds, rows, Genomes(chunk.weights, chunk.mask), chunk.normalizers)


def fault_message(serial: int, fault: Fault) -> EpisodeFault:
    """Return what the coordinator is told of a failed episode."""
    numbers = np.array([serial, fault.candidate, fault.episode, fault.seed, fault.step])
    return EpisodeFault(numbers, messages.text(fault.told))


def failure_report(world: World) -> str:
    """Return where and how the exception being handled was raised."""
    return f"an evaluation failed on rank {world.rank} ({world.host}):\n{traceback.format_exc().rstrip()}"


class _Desk:
    """What a worker knows between two messages."""

    def __init__(self, world: World, make_rollout: MakeRollout) -> None:
        self._world, self._make_rollout = world, make_rollout
        self._rollout: Rollout | None = None
        self._serial, self._busy, self._faults = -1, 0.0, 0
        self._finished: list[Outcomes] = []
        self._watchdog: Watchdog | None = None
        self._posted, self._silence = 0.0, math.inf

    @property
    def idle(self) -> bool:
        return self._rollout is None or self._rollout.pending == 0

    def receive(self, message: messages.Message) -> None:
        match message:
            case Setup(config):
                self._serial, self._finished, self._busy, self._faults = -1, [], 0.0, 0
                self._rollout = self._make_rollout(config.tobytes().decode())
                self._rollout.clear()
                self._watchdog = Watchdog(self._rollout.episode_seconds, fatal=False)
                self._silence = self._rollout.episode_seconds / 4
                self._post(Alive())
            case Kill(pid):
                kill(int(pid[0]))
            case Chunk() if self._rollout is not None:
                serial = int(message.task[0])
                if serial != self._serial:  # what is left of an abandoned task would never be waited for
                    self._serial, self._finished, self._faults = serial, [], 0
                    self._rollout.clear()
                begin = time.perf_counter()
                self._rollout.submit(units_of(message))
                self._busy += time.perf_counter() - begin

    def tick(self) -> None:
        assert self._rollout is not None
        begin = time.perf_counter()
        outcomes = self._rollout.tick()
        self._busy += time.perf_counter() - begin
        for fault in self._rollout.take_faults():
            self._faults += 1
            if self._faults <= _MOST_FAULTS:
                self._post(fault_message(self._serial, fault))
        if outcomes is not None:
            self._finished.append(outcomes)
            # Parcels shrink with the work in hand, so that the coordinator learns of the last units at once.
            if sum(map(len, self._finished)) >= self._rollout.pending // 4:
                self._send_results()

    def look_up(self) -> None:
        """Show that this worker does not hang."""
        if self._watchdog is not None:
            self._watchdog.rest() if self.idle else self._watchdog.pat()
        if not self.idle and time.perf_counter() - self._posted > self._silence:
            self._post(Alive())

    def _post(self, message: messages.Message) -> None:
        self._posted = time.perf_counter()
        self._world.post(COORDINATOR, messages.encode(message))

    def _send_results(self) -> None:
        assert self._rollout is not None
        done, self._finished = join(self._finished), []
        seconds, self._busy, self._rollout.environment_seconds = (self._busy, self._rollout.environment_seconds), 0, 0
        self._post(Results(**vars(done), serial=np.array([self._serial]), seconds=np.array(seconds, np.float64)))


def serve(world: World, make_rollout: MakeRollout, signalled: Callable[[], int | None]) -> None:
    """Work until the coordinator says stop.

    make_rollout: from the experiment's TOML text. signalled: the signal this process has had, None for none; it
    is passed on once. A failure is reported with its traceback, and then the worker waits to be stopped.
    """
    desk, failed, passed_on, looked = _Desk(world, make_rollout), False, False, 0.0
    while True:
        message = None
        if failed or desk.idle or time.perf_counter() - looked > _LOOK_EVERY:
            desk.look_up()
            looked, received = time.perf_counter(), world.poll()
            if COORDINATOR in world.lost():
                raise RunError("rank 0 was lost: nobody is left to work for")
            message = None if received is None else messages.decode(received[1])
        if isinstance(message, Stop):
            break
        signal = signalled()
        if signal is not None and not passed_on:
            passed_on = True
            world.post(COORDINATOR, messages.encode(StopRequest(np.array([signal]))))
        failed = failed and not isinstance(message, Setup)  # another coordinator begins anew
        try:
            if message is not None and not failed:
                desk.receive(message)
                desk.look_up()
            if not failed and not desk.idle:
                desk.tick()
            elif message is None:
                world.nap()
        except BaseException:  # whatever an environment raises, SystemExit too, belongs to the coordinator
            failed = True
            world.post(COORDINATOR, messages.encode(Failure(messages.text(failure_report(world)))))
    world.post(COORDINATOR, messages.encode(Stop()))
    world.flush(patience=5.0)
