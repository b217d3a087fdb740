"""The episodes of a batch that are still to be handed out, and the sizes of the chunks they are handed out in."""

from collections.abc import Iterator

import numpy as np

from evolve.shapes import Int64

_MOST_EPISODES = 2048  # in a chunk, unless there are more slots
_LONG_SECONDS, _SHARES = 0.5, 8
"""A chunk is larger than the slots if it takes no longer, and is no more than such a part of a worker's fair share."""


def shrinking_sizes(episodes: int, workers: int, largest: int, least: int) -> Iterator[int]:
    """Yield the sizes of the chunks that some episodes are handed out in.

    Factoring (Hummel, Schonberg and Flynn, 1992): in each round every worker gets the same share of half of what is
    left.

    Args:
        episodes: How many there are.
        workers: How many take part.
        largest: No chunk is larger.
        least: A smaller chunk is not worth its handling while there is more.
    """
    while episodes:
        fair = -(-episodes // workers)
        size = max(1, min(largest, max(fair // 2, min(least, fair))))
        for _ in range(workers):
            if episodes:
                yield min(size, episodes)
                episodes -= min(size, episodes)


def suitable_sizes(
    episodes: int, workers: int, slots: int, worthwhile_seconds: float, episode_seconds: float, fewest: int = 1
) -> Iterator[int]:
    """Yield the sizes of the chunks of a batch: as large as is no risk, since each costs a message and an answer.

    Args:
        episodes: How many there are.
        workers: How many take part.
        slots: How many episodes a worker plays at a time.
        worthwhile_seconds: Less work is not worth its handling while there is more.
        episode_seconds: How long an episode took in the last batch; 0 where there was none.
        fewest: How many a chunk has at least while there are more, whatever they take.
    """
    if not episode_seconds:
        return shrinking_sizes(episodes, workers, max(slots, fewest), fewest)
    least = max(min(int(worthwhile_seconds / episode_seconds), _MOST_EPISODES), fewest)
    large = min(int(_LONG_SECONDS / episode_seconds), episodes // (_SHARES * workers), _MOST_EPISODES)
    return shrinking_sizes(episodes, workers, max(slots, least, large), least)


class PendingEpisodes:
    """Episodes that wait for a worker, as indices into their batch: N at first, in this order."""

    def __init__(self, episodes: int) -> None:
        self._indices: Int64 = np.arange(episodes)
        self.suspects = 0
        """How many of the first may be what hangs or kills a worker, and are to be handed out alone."""

    def __len__(self) -> int:
        return len(self._indices)

    def take(self, n: int) -> Int64:
        """Return the next episodes [n], at most n."""
        if self.suspects:
            n = 1
            self.suspects -= 1
        indices, self._indices = self._indices[:n], self._indices[n:]
        return indices

    def take_all(self) -> Int64:
        """Return all episodes that are left."""
        indices, self._indices = self._indices, self._indices[:0]
        return indices

    def put_last(self, indices: Int64) -> None:
        """Hand episodes out again, after all others, and none of them alone."""
        self._indices = np.concatenate([self._indices, indices])
        self.suspects = 0

    def put_back(self, indices: Int64, alone: bool) -> None:
        """Hand episodes out again, before any other (but those that are to be alone)."""
        self._indices = np.insert(self._indices, 0 if alone else self.suspects, indices)
        self.suspects += len(indices) if alone else 0
