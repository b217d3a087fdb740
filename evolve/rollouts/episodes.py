"""Batches of episodes, which go to the workers, and the results, which come back.

Both are frozen records of plain arrays, the same in this process and on the wire. Results are keyed by (genome,
episode) and may come in any order. A quantity that every episode has is declared here once, as a field of
`EpisodeResults`. The wire and the collector carry it without further code, and so does the run file if the store has a
column of its name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evolve.genome import GenomeSource, select
from evolve.numerics.streams import Purpose, environment_seeds
from evolve.shapes import Float32, Float64, Int32, Int64, UInt8, UInt64, check_shape

Traces = Literal["each", "mean", "none"]


@dataclass(frozen=True)
class RolloutSpec:
    """How to play a batch: from `experiment` (TOML text) any rank makes the rollout, its network and its environments.

    slots: B, the number of episodes that run side by side. num_traces: T, the traces that an episode leaves.
    max_episode_seconds: the wall time that an episode may take. on_failure: whether an episode that fails ends the
    evaluation ("stop") or has a return of NaN ("worst"). chunk_seconds: the duration of the smallest chunk worth a
    message. least_chunk: the fewest episodes of a chunk regardless of their duration, if fewer would not take less.
    """

    experiment: str
    slots: int
    num_traces: int
    max_episode_seconds: float
    on_failure: Literal["stop", "worst"] = "stop"
    chunk_seconds: float = 0.01
    least_chunk: int = 1


@dataclass(frozen=True)
class EpisodeBatch:
    """N episodes to be played, each by one of C genomes.

    The seed of an episode's environment follows from (seed, purpose, generation, candidate, episode): `keys` [C, 2] has
    generation and candidate of each genome. Genomes with equal keys meet the same episodes (common random numbers).

    genomes: C genomes, in memory or generated when they are played.
    genome_ids: [C], the numbers of the genomes in the results; in a whole batch 0 … C - 1.
    candidates: [C], the numbers of the genomes in messages.
    normalizers: [C, 2, O], with O = 0 if observations are not normalized.
    rows: [N], which of the C genomes plays each episode.
    episodes: [N], the number of each episode among the episodes of its genome.
    traces: whether the traces of "each" genome are returned, their sum (for the "mean"), or "none".
    describe: whether the rank that plays episode 0 of a genome also describes the genome.
    """

    seed: int
    purpose: int
    genomes: GenomeSource
    genome_ids: Int32
    candidates: Int32
    keys: Int64
    normalizers: Float32
    rows: Int32
    episodes: Int32
    traces: str = "each"
    describe: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(
        cls,
        seed: int,
        purpose: Purpose,
        genomes: GenomeSource,
        keys: Int64,
        episodes: range,
        normalizer: Float32 | None = None,
        rows: NDArray[Any] | None = None,
        candidates: NDArray[Any] | None = None,
        traces: Traces = "each",
        describe: bool = False,
    ) -> "EpisodeBatch":
        """Return the batch in which genomes play the same range of episodes, one genome after another.

        Args:
            seed: The seed of the experiment.
            purpose: The purpose of the episodes, a part of their keys.
            genomes: C genomes.
            keys: [C, 2], generation and candidate of each genome.
            episodes: The numbers of the episodes of each genome.
            normalizer: [2, O] for all, or [C, 2, O]; None if observations are not normalized.
            rows: The genomes that play, in this order; by default all.
            candidates: [C], the numbers of the genomes in messages; by default 0 … C - 1.
            traces: Which traces are returned: of "each" genome, their sum (for the "mean"), or "none".
            describe: Whether the ranks that play the genomes describe them.
        """
        C = len(genomes)
        check_shape(keys, "keys", "C 2", np.int64, C=C)
        ids = np.arange(C, dtype=np.int32)
        playing = ids if rows is None else rows
        return cls(
            seed,
            int(purpose),
            genomes,
            ids,
            ids if candidates is None else candidates.astype(np.int32),
            keys,
            _broadcast(normalizer, C),
            np.repeat(playing, len(episodes)).astype(np.int32),
            np.tile(np.array(episodes, np.int32), len(playing)),
            traces,
            describe,
        )

    def take(self, indices: Int64) -> "EpisodeBatch":
        """Return the batch of episodes [k], by index, with the genomes that these need."""
        needed, rows = np.unique(self.rows[indices].astype(np.int64), return_inverse=True)
        return EpisodeBatch(
            self.seed,
            self.purpose,
            select(self.genomes, needed),
            self.genome_ids[needed],
            self.candidates[needed],
            self.keys[needed],
            self.normalizers[needed],
            rows.astype(np.int32),
            self.episodes[indices],
            self.traces,
            self.describe,
        )

    def environment_seeds(self) -> Int64:
        """Return [N]: the seed of each episode's environment."""
        generations, candidates = self.keys[self.rows].T
        episodes = self.episodes.astype(np.int64)
        return environment_seeds(self.seed, Purpose(self.purpose), generations, candidates, episodes)


def _broadcast(normalizer: Float32 | None, genomes: int) -> Float32:
    """Return [C, 2, O], with O = 0 for no normalizer."""
    if normalizer is None:
        return np.zeros((genomes, 2, 0), np.float32)
    return np.broadcast_to(normalizer, (genomes, *normalizer.shape[-2:]))


def generation_keys(generation: int, population: int, common: bool = False) -> Int64:
    """Return the keys [P, 2] of one generation; with `common` all candidates meet candidate 0's episodes."""
    candidates = np.zeros(population, np.int64) if common else np.arange(population, dtype=np.int64)
    return np.stack([np.full(population, generation, np.int64), candidates], axis=1)


def quantity(symbols: str, dtype: DTypeLike) -> Any:
    """Declare a field of `EpisodeResults`: its shape in the project's alphabet, and its type."""
    return field(metadata={"symbols": symbols, "dtype": np.dtype(dtype)})


@dataclass(frozen=True)
class EpisodeResults:
    """The results of N episodes, in any order.

    genomes, episodes: the key of each episode. lengths: environment steps. fingerprints: 64 bits each for the
    observations and the network outputs of an episode. moments: sums and sums of squares of observations, O = 0 if
    observations are not normalized. step_hashes: a byte of both fingerprints after each step, the episodes end to end,
    L = Σ min(length, MAX_HASHED_STEPS). episode_seconds: wall time in the environment; the time of a tick is shared
    equally by all episodes that it steps. traces: whole multiples of 2⁻²⁰ [K, T], of the genomes `traced` [K]. Several
    rows of one genome are to be added up; integers have the same sum in any order. described: D genomes with digests,
    connections and fingerprints (`GenomeDescriptions`); a genome may come more than once.
    """

    genomes: Int32 = quantity("N", np.int32)
    episodes: Int32 = quantity("N", np.int32)
    returns: Float64 = quantity("N", np.float64)
    lengths: Int32 = quantity("N", np.int32)
    fingerprints: UInt64 = quantity("N 2", np.uint64)
    moments: Float64 = quantity("N 2 O", np.float64)
    episode_seconds: Float32 = quantity("N", np.float32)
    step_hashes: UInt8 = quantity("L 2", np.uint8)
    traced: Int32 = quantity("K", np.int32)
    traces: Int64 = quantity("K T", np.int64)
    described: Int32 = quantity("D", np.int32)
    digests: UInt8 = quantity("D 32", np.uint8)
    connections: Int32 = quantity("D", np.int32)
    genome_fingerprints: UInt64 = quantity("D", np.uint64)

    def __len__(self) -> int:
        return len(self.genomes)

    def check(self) -> "EpisodeResults":
        """Return itself. Raises ValueError unless every field has the declared type and the sizes agree."""
        sizes: dict[str, int] = {}
        for name, (symbols, dtype) in QUANTITIES.items():
            array = getattr(self, name)
            check_shape(array, name, symbols, dtype, **sizes)
            sizes |= dict(zip(symbols.split(), array.shape, strict=True))
        return self


QUANTITIES = {f.name: (f.metadata["symbols"], f.metadata["dtype"]) for f in fields(EpisodeResults)}
"""The shape and the type of each field of `EpisodeResults`."""

EPISODE_QUANTITIES = tuple(
    n for n, (symbols, _) in QUANTITIES.items() if symbols[0] == "N" and n not in ("genomes", "episodes")
)
"""The quantities that every episode has."""


def shape_of(symbols: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape that symbols ("N 2 O") stand for."""
    return tuple(int(symbol) if symbol.isdigit() else sizes[symbol] for symbol in symbols.split())


def join(parts: Sequence[EpisodeResults]) -> EpisodeResults:
    """Return the results of all parts, end to end."""
    if len(parts) == 1:
        return parts[0]
    return EpisodeResults(*(np.concatenate([getattr(part, name) for part in parts]) for name in QUANTITIES))


@dataclass(frozen=True)
class EpisodeFailure:
    """An episode that could not be played to its end: its key, its environment's seed, the step, and the error.

    Its results have a return of NaN, and `step` as length; step 0 is reset. A seed of -1 means that neither seed nor
    step is known, because the rank that played the episode was lost.
    """

    genome: int
    episode: int
    seed: int
    step: int
    message: str
