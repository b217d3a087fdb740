"""Batches of episodes, which the coordinator sends to workers, and the results that the workers return.

Batches and results are frozen records, and travel in messages between ranks. Each result names its genome and episode,
so results may arrive in any order.

To add a quantity of each episode, declare a field of `EpisodeResults`. Messages and `PopulationResults` then include
it. The run file includes it if the store has a column of the same name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evolve.genome import GenomeSource, select
from evolve.numerics.streams import Purpose, environment_seeds
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64, check_shape

Traces = Literal["each", "mean", "none"]
"""The traces to return, see `EpisodeBatch.traces`."""


@dataclass(frozen=True)
class RolloutSpec:
    """The settings of the rollout that plays a batch.

    experiment: The TOML text of the experiment. Any rank can make the rollout from it.
    slots: B, the number of episodes that run side by side.
    num_traces: T, the number of traces of an episode.
    max_episode_seconds: The limit of an episode's wall time.
    on_failure: "stop" if a failed episode ends the evaluation, "worst" if the evaluation goes on.
    chunk_seconds: The shortest wall time of a chunk, the episodes of one message; shorter chunks are not worth it.
    least_chunk: The smallest number of episodes of a chunk. It is above 1 if a kernel steps several slots in the time
        of one.
    num_metrics: M, the number of metrics of an episode.
    trial: The fingerprints of the steps of an episode on rank 0 (`environments.check_repeatable`), which a worker
        compares with its own; empty if they are unknown.
    """

    experiment: str
    slots: int
    num_traces: int
    max_episode_seconds: float
    on_failure: Literal["stop", "worst"] = "stop"
    chunk_seconds: float = 0.01
    least_chunk: int = 1
    num_metrics: int = 0
    trial: tuple[str, ...] = ()


@dataclass(frozen=True)
class EpisodeBatch:
    """N episodes to be played, each by one of C genomes.

    The seed, the purpose, the generation, the candidate and the episode determine the seed of the environment.

    genomes: C genomes, in memory or generated when they are played.
    genome_ids: [C], the index of each genome in the batch of rank 0. It stays the same in a part of that batch
        (`take`). Results name genomes by it. A worker that receives no genomes generates them from it.
    candidates: [C], the number by which warnings and errors name each genome.
    keys: [C, 2], the generation and the candidate that determine the seeds of each genome. Genomes with equal keys play
        the same episodes (common random numbers).
    normalizers: [C, 2, O], see `Moments.normalizer`. O = 0 if observations are not normalized.
    rows: [N], the index in `genomes` of the genome that plays each episode.
    episodes: [N], the number of each episode among the episodes of its genome.
    traces: The traces to return: "each" (a sum over the episodes of each genome), "mean" (one sum over the episodes of
        all genomes) or "none". `PopulationResults` divide each sum by the number of its episodes.
    describe: Whether the rank that plays episode 0 of a genome also returns the genome's `GenomeDescriptions`.
    best_of: 0 if the results need the step hashes of all genomes. Otherwise the number of episodes of each genome. Then
        only the genome with the best mean return needs step hashes, and a rollout may leave out all other hashes.
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
    best_of: int = 0

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
    ) -> "EpisodeBatch":
        """Return a batch in which genomes play the same range of episodes, genome by genome.

        Args:
            seed: The seed of the experiment.
            purpose: The purpose of the episodes, a part of their seeds.
            genomes: C genomes.
            keys: [C, 2], see `EpisodeBatch`.
            episodes: The numbers of the episodes that each genome plays.
            normalizer: [C, 2, O], or [2, O] for all genomes; None if observations are not normalized.
            rows: The indices of the genomes that play, in this order. By default all play.
            candidates: [C], see `EpisodeBatch`. By default the indices of the genomes.
            traces: See `EpisodeBatch`.
        """
        C = len(genomes)
        check_shape(keys, "keys", "C 2", np.int64, C=C)
        ids = np.arange(C, dtype=np.int32)
        playing = ids if rows is None else rows
        normalizer = np.zeros((2, 0), np.float32) if normalizer is None else normalizer
        return cls(
            seed=seed,
            purpose=int(purpose),
            genomes=genomes,
            genome_ids=ids,
            candidates=ids if candidates is None else candidates.astype(np.int32),
            keys=keys,
            normalizers=np.broadcast_to(normalizer, (C, *normalizer.shape[-2:])),
            rows=np.repeat(playing, len(episodes)).astype(np.int32),
            episodes=np.tile(np.array(episodes, np.int32), len(playing)),
            traces=traces,
        )

    def take(self, indices: Int64) -> "EpisodeBatch":
        """Return the batch of the episodes at indices [k], with only the genomes that play them."""
        taken = _as_slice(indices)
        # `genomes_taken` are the indices of the genomes here, and `rows` the indices in the new batch.
        genomes_taken, rows = _distinct(self.rows[taken].astype(np.int64))
        takes_all = isinstance(taken, slice) and taken == slice(0, len(self))
        if takes_all and len(genomes_taken) == len(self.genomes):
            return self  # without copying the genomes
        of_genomes = _as_slice(genomes_taken)
        return replace(
            self,
            genomes=select(self.genomes, genomes_taken),
            genome_ids=self.genome_ids[of_genomes],
            candidates=self.candidates[of_genomes],
            keys=self.keys[of_genomes],
            normalizers=self.normalizers[of_genomes],
            rows=rows.astype(np.int32),
            episodes=self.episodes[taken],
        )

    def environment_seeds(self) -> Int64:
        """Return [N]: the seed of each episode's environment."""
        generations, candidates = (column[self.rows] for column in self.keys.T)  # faster than self.keys[self.rows].T
        episodes = self.episodes.astype(np.int64)
        return environment_seeds(self.seed, Purpose(self.purpose), generations, candidates, episodes)


def _as_slice(indices: Int64) -> Int64 | slice:
    """Return consecutive indices [k] as a slice, because slices give fast views; return other indices unchanged."""
    k = len(indices)
    if k and indices[-1] - indices[0] == k - 1 and (k == 1 or (np.diff(indices) == 1).all()):
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices


def _distinct(numbers: Int64) -> tuple[Int64, Int64]:
    """Return the distinct values of numbers [n], ascending, and for each number the index [n] of its value."""
    if (numbers[1:] < numbers[:-1]).any():
        return np.unique(numbers, return_inverse=True)
    # Most chunks are in ascending order. Then equal numbers are adjacent, and no sort is needed.
    first = np.ones(len(numbers), np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
    return numbers[first], np.cumsum(first) - 1


def generation_keys(generation: int, population: int, common: bool | Literal["pairs"] = False) -> Int64:
    """Return the keys [P, 2] of the candidates of a generation, see `EpisodeBatch`. No key depends on the population P.

    common: False: each candidate plays its own episodes. True: all play the episodes of candidate 0. "pairs":
        candidates 2i and 2i + 1 play the episodes of candidate 2i.
    """
    candidates = np.arange(population, dtype=np.int64)
    if common == "pairs":
        candidates -= candidates % 2
    elif common:
        candidates[:] = 0
    return np.stack([np.full(population, generation, np.int64), candidates], axis=1)


def quantity(symbols: str, dtype: DTypeLike) -> Any:
    """Declare a field of `EpisodeResults` by its shape, in letters such as "N 2 O", and by its type."""
    return field(metadata={"symbols": symbols, "dtype": np.dtype(dtype)})


@dataclass(frozen=True)
class EpisodeResults:
    """The results of N episodes, in any order.

    genomes, episodes: The genome id and the episode number. They identify an episode of a batch.
    returns: The sum of the rewards; NaN if the episode failed.
    lengths: The number of environment steps.
    fingerprints: 64 bits each for the observations and the network outputs of an episode.
    moments: Sums and sums of squares of the O numbers of an observation, over the steps. O = 0 if observations are not
        normalized.
    episode_seconds: Wall time in the environment. Episodes that take a step together share the time of this step
        equally. If kernels play whole episodes, the time includes the network, and episodes share the time in
        proportion to their steps.
    encoded_metrics: The types (row 0) and the bits (row 1) of the M metrics, see `environments.decode_metrics`.
    hashed: Whether an episode has step hashes.
    step_hashes: One byte of each fingerprint after each step, concatenated over the episodes that have hashes. L is the
        sum of min(length, MAX_HASHED_STEPS) over these episodes.
    traced, traces: Row i of the traces, in units of 2⁻²⁰, belongs to the genome traced[i]. The rows of a genome are
        added. They are integers, so the order does not matter.
    described: The ids of D described genomes. A genome may occur more than once.
    digests, connections, genome_fingerprints: The descriptions of these D genomes, see `GenomeDescriptions`.
    """

    genomes: Int32 = quantity("N", np.int32)
    episodes: Int32 = quantity("N", np.int32)
    returns: Float64 = quantity("N", np.float64)
    lengths: Int32 = quantity("N", np.int32)
    fingerprints: UInt64 = quantity("N 2", np.uint64)
    moments: Float64 = quantity("N 2 O", np.float64)
    episode_seconds: Float32 = quantity("N", np.float32)
    encoded_metrics: Int64 = quantity("N 2 M", np.int64)
    hashed: Bool = quantity("N", np.bool_)
    step_hashes: UInt8 = quantity("L 2", np.uint8)
    traced: Int32 = quantity("K", np.int32)
    traces: Int64 = quantity("K T", np.int64)
    described: Int32 = quantity("D", np.int32)
    digests: UInt8 = quantity("D 32", np.uint8)
    connections: Int32 = quantity("D", np.int32)
    genome_fingerprints: UInt64 = quantity("D", np.uint64)

    def __len__(self) -> int:
        return len(self.genomes)


QUANTITIES = {f.name: (f.metadata["symbols"], f.metadata["dtype"]) for f in fields(EpisodeResults)}
"""The shape and the type of each field of `EpisodeResults`."""

_NOT_MEASURED = ("genomes", "episodes", "hashed")
EPISODE_QUANTITIES = tuple(
    name for name, (symbols, _) in QUANTITIES.items() if symbols[0] == "N" and name not in _NOT_MEASURED
)
"""The measured quantities that every episode has. Step hashes are left out, because an episode may lack hashes."""


def shape_of(symbols: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape for symbols such as "N 2 O", with the size of each letter."""
    return tuple(int(symbol) if symbol.isdigit() else sizes[symbol] for symbol in symbols.split())


def join(parts: Sequence[EpisodeResults]) -> EpisodeResults:
    """Return the results of all parts, concatenated."""
    if len(parts) == 1:
        return parts[0]
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in QUANTITIES}
    return EpisodeResults(**joined)


@dataclass(frozen=True)
class EpisodeFailure:
    """An episode that failed: genome id, number, environment seed, step, and error message.

    In `EpisodeResults` its return is NaN, and its length is `step`. Step 0 is the reset of the environment. If all
    ranks that played the episode were lost, seed and step are unknown: both are -1, and the length is 0.
    """

    genome: int
    episode: int
    seed: int
    step: int
    message: str
