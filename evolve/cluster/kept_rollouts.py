"""The newest rollouts of a process, kept: generations and their evaluation take turns."""

from collections.abc import Callable

from evolve.rollouts import AnyRollout

_MOST = 2


class KeptRollouts:
    """Makes rollouts, keeps the two that were last asked for, and closes the others: only the newest is at work.

    make_rollout: From an experiment's TOML text.
    """

    def __init__(self, make_rollout: Callable[[str], AnyRollout]) -> None:
        self._make_rollout = make_rollout
        self._kept: dict[str, AnyRollout] = {}

    def __call__(self, text: str) -> AnyRollout:
        """Return the rollout of an experiment."""
        rollout = self._kept.pop(text, None)
        if rollout is None:
            self._close(_MOST - 1)
            rollout = self._make_rollout(text)
        self._kept[text] = rollout
        return rollout

    def close(self) -> None:
        """Release every environment."""
        self._close(0)

    def _close(self, most: int) -> None:
        """Close the oldest, until only so many are left."""
        while len(self._kept) > most:
            self._kept.pop(next(iter(self._kept))).close()
