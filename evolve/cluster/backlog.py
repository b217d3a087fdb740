"""What there is to do: the task, its units still to be handed out, and the sizes they are handed out in."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from evolve.cluster.messages import Chunk
from evolve.genome import Genomes
from evolve.rng import Purpose
from evolve.shapes import Float32, Int64


@dataclass(frozen=True)
class Task:
    """What keys the episodes of an evaluation: `keys` [P, 2] int64 are generation and candidate of each genome.

    Genomes with equal keys meet the same episodes (common random numbers). candidates: [P], what to call them when one
    fails, if not 0 … P - 1. normalizers: [P, 2, O], None where observations are not normalized.
    """

    seed: int
    purpose: Purpose
    keys: Int64
    candidates: Int64 | None = None
    normalizers: Float32 | None = None

    @property
    def normalized(self) -> int:
        """O where observations are normalized, 0 where not."""
        return 0 if self.normalizers is None else self.normalizers.shape[2]

    def name(self, row: int, episode: int) -> tuple[str, str]:
        """Return what to call an episode of the genome in `row`, and the options that evolve.replay finds it by."""
        if self.purpose == Purpose.HELD_OUT:
            return f"held-out episode {episode} of the champion", f"--held-out --episode {episode}"
        if self.purpose == Purpose.VALIDATION:
            return f"validation episode {episode} of the champion", f"--validation --episode {episode}"
        generation, candidate = int(self.keys[row, 0]), row if self.candidates is None else int(self.candidates[row])
        which = f"generation {generation}, candidate {candidate}, episode {episode}"
        return which, f"--generation {generation} --candidate {candidate} --episode {episode}"


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


class Backlog:
    """The units [n] of an evaluation that are to be handed out; unit n is episode n mod E of candidate n div E."""

    def __init__(self, serial: int, task: Task, genomes: Genomes, episodes: int, units: Int64) -> None:
        self._words = np.array([serial, task.seed, task.purpose], np.int64)
        self._keys, self._genomes, self._E = task.keys, genomes, episodes
        none = np.zeros((len(genomes), 2, 0), np.float32)
        self._normalizers = none if task.normalizers is None else task.normalizers
        self._waiting = units
        self.all_units = len(genomes) * episodes
        """P × E, be they to be handed out or not."""
        self.suspects = 0
        """How many of the first units are to be handed out alone."""

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, n: int) -> tuple[Int64, Chunk]:
        """Return the next units, at most n, and the chunk that hands them out."""
        if self.suspects:
            n, self.suspects = 1, self.suspects - 1
        units, self._waiting = self._waiting[:n], self._waiting[n:]
        candidates, episodes = np.divmod(units, self._E)
        needed, rows = np.unique(candidates, return_inverse=True)
        numbers = np.stack([rows, candidates, episodes], axis=1).astype(np.int32)
        genomes = self._genomes.take(needed)
        given = genomes.weights, genomes.mask, self._normalizers[needed]
        return units, Chunk(self._words, self._keys[needed], *given, numbers)

    def put_last(self, units: Int64) -> None:
        """Let units be handed out again, after all others, and none of them alone."""
        self._waiting, self.suspects = np.concatenate([self._waiting, units]), 0

    def put_back(self, units: Int64, alone: bool) -> None:
        """Let units be handed out again, before any other (but those that are to be alone)."""
        at = 0 if alone else self.suspects
        self._waiting = np.insert(self._waiting, at, units)
        self.suspects += len(units) if alone else 0
