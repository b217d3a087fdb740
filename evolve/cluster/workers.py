"""The workers as rank 0 sees them: which are left, which are ready, and which are lost, dead or hanging."""

import time
from collections.abc import Collection
from dataclasses import dataclass

from evolve.cluster import messages
from evolve.cluster.messages import Kill, Message, Setup
from evolve.cluster.start import SILENCE, silence_seconds
from evolve.cluster.transport import Transport
from evolve.cluster.watchdog import kill
from evolve.cluster.work_queue import Fate
from evolve.errors import HostLost

_LONGEST_SETUP = 600.0  # seconds until a worker has made its environments
_LONGEST_PASSED = 0.5  # seconds counted as silence between two checks; rank 0 itself may have been suspended


@dataclass(frozen=True)
class Loss:
    """A worker that was lost, how, and the same in words."""

    worker: int
    fate: Fate
    description: str


class Workers:
    """The worker ranks of a transport that are not lost; it sends to them and receives from them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._ranks = [rank for rank in range(1, transport.size) if rank not in transport.gone]
        self._ready: set[int] = set()  # workers that sent a message since the setup; the others may still be making it
        self.reset_silence()

    def __len__(self) -> int:
        return len(self._ranks)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that are left, in ascending order."""
        return tuple(self._ranks)

    def send(self, worker: int, message: Message) -> None:
        """Send a message to one worker."""
        self._transport.send(worker, messages.encode(message))

    def send_all(self, message: Message, skip: int = 0) -> None:
        """Send a message to all workers except the rank `skip`; rank 0 is no worker."""
        frame = messages.encode(message)
        for worker in self._ranks:
            if worker != skip:
                self._transport.send(worker, frame)

    def set_up(self, setup: Setup) -> None:
        """Send a setup to all workers. None is ready until it answers: environments may take long to make."""
        self._ready.clear()
        self.send_all(setup)

    def receive(self) -> tuple[int, Message] | None:
        """Return the next message of a worker that is not lost, with its rank; None if there is none yet."""
        received = self._transport.probe()
        while received is not None and received[0] in self._transport.gone:  # its work was given to other workers
            received = self._transport.probe()
        if received is None:
            return None
        worker, frame = received
        self._ready.add(worker)
        self._silence[worker] = 0.0
        return worker, messages.decode(frame)

    def reset_silence(self) -> None:
        """Count the silence of all workers from now on, since a new job begins."""
        self._silence = dict.fromkeys(self._ranks, 0.0)  # seconds
        self._checked = time.monotonic()

    def remove_lost(self, busy: Collection[int], patience: float) -> list[Loss]:
        """Remove the workers that died or hang; return how each was lost.

        A busy worker that is silent for too long hangs. It is abandoned and, if MPI survives its death, killed.

        Args:
            busy: The workers that have work, and whose silence counts.
            patience: Seconds that a busy worker may be silent; more while it makes its environments.

        Raises:
            HostLost: Hosts are silent, and this MPI or this host cannot go on.
        """
        now = time.monotonic()
        passed = min(now - self._checked, _LONGEST_PASSED)
        self._checked = now
        dead = self._transport.lost()
        check_silence(self._transport)
        dead = [worker for worker in dead if worker in self._ranks]
        self._remove(dead)
        for worker in self._ranks:
            self._silence[worker] = self._silence[worker] + passed if worker in busy else 0.0
        silent = [worker for worker in self._ranks if self._silence[worker] > self._longest_silence(worker, patience)]
        self._remove(silent)
        return [self._loss_of_dead(worker) for worker in dead] + [self._abandon(worker) for worker in silent]

    def _longest_silence(self, worker: int, patience: float) -> float:
        return patience if worker in self._ready else max(patience, _LONGEST_SETUP)

    def _remove(self, workers: Collection[int]) -> None:
        self._ranks = [rank for rank in self._ranks if rank not in workers]

    def _loss_of_dead(self, worker: int) -> Loss:
        if self._transport.hosts[worker] in self._transport.silent:
            return Loss(worker, Fate.CUT_OFF, "was lost: its host is silent")
        return Loss(worker, Fate.DEATH, "was lost")

    def _abandon(self, worker: int) -> Loss:
        self._transport.abandon(worker)
        self._kill(worker)
        return Loss(worker, Fate.HANG, "no longer answers, and is given up")

    def _kill(self, worker: int) -> None:
        """Kill a worker that hangs if MPI survives its death, with the help of a worker on the same host."""
        transport = self._transport
        if not transport.tolerant:
            return
        host, pid = transport.hosts[worker], transport.pids[worker]
        beside = [other for other in self._ranks if transport.hosts[other] == host]
        if host == transport.host:
            kill(pid)
        elif beside:
            self.send(beside[0], Kill(pid))


def check_silence(transport: Transport) -> None:
    """Raise HostLost if hosts are silent and MPI cannot go on, or this host may be the one that is cut off."""
    if not transport.silent:
        return
    elsewhere = {host for rank, host in enumerate(transport.hosts) if rank not in transport.gone} - {transport.host}
    if not (transport.tolerant and elsewhere):
        raise HostLost(f"the silence of {', '.join(sorted(transport.silent))}, for {silence_seconds():g} s ({SILENCE})")
