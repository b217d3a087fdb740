"""Which worker has which units of an evaluation, who has to be given up on, and what is then to be tried again."""

from collections.abc import Callable, Iterator

import numpy as np

from evolve.cluster import messages
from evolve.cluster.backlog import Backlog
from evolve.cluster.world import World
from evolve.shapes import Bool, Int64

_DEATHS = 4
"""How many workers may die with a unit in hand, at last alone, before the unit is thought to be what killed them."""


class Farm:
    """The workers during one evaluation. workers: their ranks, a list that lost ones are taken out of."""

    def __init__(
        self, world: World, workers: list[int], backlog: Backlog, sizes: Callable[[int], Iterator[int]]
    ) -> None:
        self._world, self._workers, self._backlog, self._make_sizes = world, workers, backlog, sizes
        self._owner = np.zeros(backlog.all_units, np.int32)
        self._strikes = np.zeros(backlog.all_units, np.int8)
        self._outstanding = dict.fromkeys(workers, 0)
        self._silence = dict.fromkeys(workers, 0.0)
        self.in_hand_at_the_end: Int64 = np.zeros(0, np.int64)
        """The units [n] that the last worker was lost with."""
        self._alone: set[int] = set()  # the workers that try a suspect
        self._begin()

    def _begin(self) -> None:
        self._sizes = self._make_sizes(len(self._backlog))
        self._size = next(self._sizes, 0)
        for worker in (*self._workers, *self._workers):  # a chunk for each, and then one ahead
            self._send(worker)

    @property
    def idle(self) -> int:
        """How many workers have nothing to do."""
        return sum(not units for units in self._outstanding.values())

    def heard(self, worker: int) -> None:
        """Note that a worker is well."""
        if worker in self._silence:
            self._silence[worker] = 0.0

    def returned(self, worker: int, units: int) -> None:
        """Give a worker more to do for the units it has done."""
        if worker in self._outstanding:
            self._outstanding[worker] -= units
            if not self._outstanding[worker]:
                self._alone.discard(worker)
            while self._send(worker):
                pass

    def silent(self, passed: float, patience: Callable[[int], float]) -> list[int]:
        """Return the workers that have units in hand and have been silent for too long, `passed` seconds later."""
        for worker in self._workers:
            self._silence[worker] = self._silence[worker] + passed if self._outstanding[worker] else 0.0
        return [worker for worker in self._workers if self._silence[worker] > patience(worker)]

    def lose(self, worker: int, done: Bool, hung: bool) -> tuple[int, Int64]:
        """Give what a worker was to do to the others: how many units that are, and which of them [n] is to blame.

        done: [P, E]. A unit is to blame when its worker hung with nothing else in hand, or when it was there at the
        death of too many. Units that may be to blame are tried again one by one.
        """
        self._workers.remove(worker)
        del self._outstanding[worker]
        units = np.flatnonzero((self._owner == worker) & ~done.ravel())
        self._owner[units] = 0
        self._strikes[units] += 2 if hung else 1
        blamed = worker in self._alone and len(units) == 1 and (hung or self._strikes[units[0]] >= _DEATHS)
        if blamed:
            return 0, units
        if self._workers:
            self._backlog.put_back(units, alone=bool(self._strikes[units].max(initial=0) >= 2))
            self._begin()
        else:
            self._backlog.put_last(units)
            self.in_hand_at_the_end = units
        return len(units), units[:0]

    def _send(self, worker: int) -> bool:
        """Send one chunk, unless none is left or the worker has more than that in hand; return whether one was sent.

        The last few wait for workers that have nothing to do: one of them queued behind another would end late.
        """
        left, suspect = len(self._backlog), self._backlog.suspects > 0
        ahead = self._size if left > len(self._workers) and not suspect else 0
        if not left or self._outstanding[worker] > ahead or worker in self._alone:
            return False
        units, chunk = self._backlog.take(self._size)
        if suspect:
            self._alone.add(worker)
        else:
            self._size = next(self._sizes, 1)
        self._owner[units] = worker
        self._outstanding[worker] += len(units)
        self._world.post(worker, messages.encode(chunk))
        return True
