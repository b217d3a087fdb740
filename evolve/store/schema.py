"""What a run file holds: the one table of its columns, each declared where the record has its field.

Shape, unit and meaning of a column go into the file as attributes of its dataset, and into docs/run-file.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.numerics.hashing import MAX_HASHED_STEPS
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64
from evolve.store.columns import Column, column, columns_of

SCHEMA = 3


def path_of(directory: Path, seed: int) -> Path:
    """Return the path of one seed's run file."""
    return directory / f"seed-{seed}.h5"


@dataclass(frozen=True)
class Record:
    """One generation; its columns have G, the generations, as their first axis.

    Fields named as a quantity of `rollouts.EpisodeResults` are filled with that quantity, for every episode.
    """

    returns: Float64 = column(
        "generation/returns",
        "G P E",
        np.float64,
        "return of each episode; NaN where it failed, or was not played (racing, or a growing population)",
        "reward",
    )
    lengths: Int32 = column(
        "generation/lengths", "G P E", np.int32, "environment steps of each episode; 0 where it was not played", "steps"
    )
    episode_seconds: Float32 = column(
        "generation/episode_seconds",
        "G P E",
        np.float32,
        "wall time of each episode in its environment; environments stepped together share it equally",
        "s",
    )
    fitness: Float64 = column(
        "generation/fitness",
        "G P",
        np.float64,
        "what selection saw: the mean return, less the cost of connections; NaN of who failed or did not play",
        "reward",
    )
    connections: Int32 = column(
        "generation/connections", "G P", np.int32, "connections left of each candidate", "connections"
    )
    digest: bytes = column(
        "generation/digest", "G", "S64", "sha256 that stands for all generations up to this one", "hex"
    )
    seconds: float = column("generation/seconds", "G", np.float64, "wall time of the generation", "s")
    steps: int = column("generation/steps", "G", np.int64, "environment steps of the generation", "steps")
    busy_seconds: Float64 = column("rank/busy_seconds", "G R", np.float64, "wall time that each rank was at work", "s")
    environment_seconds: Float64 = column(
        "rank/environment_seconds", "G R", np.float64, "the part of busy_seconds that was spent in environments", "s"
    )
    champion_weights: Float32 = column(
        "champion/weights", "G W", np.float32, "weights of the best candidate of each generation"
    )
    champion_mask: Bool = column(
        "champion/mask", "G W", np.bool_, "connections left of the best candidate of each generation"
    )
    champion_candidate: int = column(
        "champion/candidate", "G", np.int64, "number of the best candidate of each generation"
    )
    champion_fitness: float = column(
        "champion/fitness", "G", np.float64, "fitness of the best candidate of each generation", "reward"
    )
    champion_step_hashes: UInt8 = column(
        "champion/step_hashes",
        "L 2",
        np.uint8,
        "a byte for the observations and one for the outputs after each step of the best candidates (4,096 at most "
        "of an episode), all episodes end to end, generation after generation",
        "hash",
        chunk=2**14,
    )
    """[Σ min(length, MAX_HASHED_STEPS), 2]; in the file those of all champions."""
    fingerprints: UInt64 = column(
        "fingerprint/episodes",
        "G P E 2",
        np.uint64,
        "fingerprints of all observations, and of all network outputs, of each episode",
        "hash",
    )
    genome_fingerprints: UInt64 = column(
        "fingerprint/genomes", "G P", np.uint64, "fingerprint of weights and mask of each candidate", "hash"
    )
    trace_fingerprints: UInt64 = column(
        "fingerprint/traces",
        "G P",
        np.uint64,
        "fingerprint of the traces of each candidate; 0 where these stayed where it was played",
        "hash",
    )
    normalizer: Float32 | None = column(
        "generation/normalizer",
        "G 2 O",
        np.float32,
        "what is subtracted from observations, and what the difference is multiplied by; only where observations are "
        "normalized",
        optional=True,
    )
    """[2, O], with which this generation was evaluated."""


COLUMNS = columns_of(Record)
STEP_HASHES = COLUMNS.pop("champion_step_hashes")
"""The one column that is not cut by generations: the champions' lengths say where each begins."""


def num_step_hashes(lengths: Int32) -> int:
    """Return how many steps of a champion with episodes of lengths [E] have hashes."""
    return int(np.minimum(lengths, MAX_HASHED_STEPS).sum(dtype=np.int64))


POPULATION = {
    "weights": Column(
        "population/weights",
        "G P W",
        np.float32,
        'weights of every candidate; only with output.genomes = "all"',
        chunk=2**16,
    ),
    "mask": Column(
        "population/mask",
        "G P W",
        np.bool_,
        "connections left of every candidate; only where their weights are",
        chunk=2**16,
    ),
}
"""Every genome, where the experiment says that they are kept."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The final champion (weights, mask [W]) on N held-out episodes: returns, environment seeds [N]."""

    returns: Float64 = column(
        "evaluation/returns",
        "N",
        np.float64,
        "returns of the final champion on held-out episodes; only once it was evaluated; NaN where one failed",
        "reward",
    )
    seeds: Int64 = column("evaluation/seeds", "N", np.int64, "seeds of the environments of these episodes")
    weights: Float32 = column("evaluation/weights", "W", np.float32, "weights of the champion that played them")
    mask: Bool = column("evaluation/mask", "W", np.bool_, "connections left of the champion that played them")


HELD_OUT = columns_of(HeldOut)

EVERY_COLUMN = (*columns_of(Record).values(), *POPULATION.values(), *HELD_OUT.values())
"""All that a run file may hold, beside its checkpoint."""


@dataclass(frozen=True)
class Header:
    """What does not change while a run goes on; config is TOML, manifest JSON."""

    config: str
    manifest: Mapping[str, Any]
    seed: int
    env: str


@dataclass(frozen=True)
class StoredRun:
    """A run file as read. has_population: whether every genome is kept, for `store.population` to read."""

    path: Path
    header: Header
    complete: bool
    records: tuple[Record, ...]
    checkpoint: dict[str, NDArray[Any]]
    held_out: HeldOut | None
    has_population: bool

    @property
    def num_generations(self) -> int:
        """How many generations are complete."""
        return len(self.records)

    @property
    def steps(self) -> int:
        """The environment steps of all generations."""
        return sum(int(record.steps) for record in self.records)

    @property
    def seconds(self) -> float:
        """The wall time of all generations."""
        return sum(float(record.seconds) for record in self.records)

    @property
    def digest(self) -> str:
        """That of the last generation, 64 hexadecimal characters. There has to be one."""
        return self.records[-1].digest.decode()
