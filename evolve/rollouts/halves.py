"""A rollout in two halves: while a device computes for one, the environments of the other are at work."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from evolve.rollouts.episodes import EpisodeBatch, EpisodeFailure, EpisodeResults
from evolve.rollouts.exact_rollout import ExactRollout
from evolve.rollouts.queue import EpisodeQueue
from evolve.rollouts.rollout import Rollout


class RolloutInHalves:
    """Two rollouts that take turns, and episodes from one queue. It keeps the interface of `Rollout`.

    make_half: Makes a rollout that takes its episodes from a queue.
    """

    def __init__(self, make_half: Callable[[EpisodeQueue], Rollout]) -> None:
        self._queue = EpisodeQueue()
        self._halves = make_half(self._queue), make_half(self._queue)
        self.max_episode_seconds = self._halves[0].max_episode_seconds

    @property
    def environment_seconds(self) -> float:
        """How long environments have been at work."""
        return sum(half.environment_seconds for half in self._halves)

    @environment_seconds.setter
    def environment_seconds(self, seconds: float) -> None:
        self._halves[0].environment_seconds = seconds
        self._halves[1].environment_seconds = 0.0

    @property
    def pending(self) -> int:
        """Episodes that are queued or running."""
        return len(self._queue) + sum(half.running for half in self._halves)

    @property
    def ticking(self) -> int:
        """How many episodes the next tick steps."""
        return self._halves[0].running

    def submit(self, batch: EpisodeBatch) -> None:
        """Queue episodes; they begin where no tick is under way."""
        self._queue.append(batch)
        free = [half for half in self._halves if not half.begun]
        for left, half in zip(range(len(free), 0, -1), free, strict=True):
            half.fill(most=-(-len(self._queue) // left))

    def tick(self) -> EpisodeResults | None:
        """Let one half take a step, while the other is at work; return the results of the episodes that ended."""
        one, other = self._halves
        self._halves = other, one
        for half in (one, other):
            if half.running and not half.begun:
                half.begin()
        results = one.finish() if one.begun else None
        if len(self._queue) or not one.running:  # what was submitted while both were under way
            one.fill(most=max(1, -(-(len(self._queue) + other.running - one.running) // 2)))
        if one.running:
            one.begin()
        return results

    def take_failures(self) -> list[EpisodeFailure]:
        """Return the episodes that have failed since this was last asked."""
        return [failure for half in self._halves for failure in half.take_failures()]

    def clear(self) -> None:
        """Forget every episode."""
        for half in self._halves:
            half.clear()

    def close(self) -> None:
        """Release every environment."""
        for half in self._halves:
            half.close()

    def call_on_fault(self, callback: Callable[[], None]) -> None:
        """Have a function called whenever an environment has failed or was interrupted."""
        for half in self._halves:
            half.call_on_fault(callback)

    def make_genomes_within(self, context: Callable[[], AbstractContextManager[object]]) -> None:
        """Have a context entered while genomes are made: that is no episode's time."""
        self._queue.making = context


AnyRollout = Rollout | RolloutInHalves | ExactRollout
