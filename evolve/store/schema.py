"""What a run file holds: the one table of its columns, each declared where the record has its field."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evolve.numerics.hashing import MAX_HASHED_STEPS
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64

SCHEMA = 3


def path_of(directory: Path, seed: int) -> Path:
    """Return the path of one seed's run file."""
    return directory / f"seed-{seed}.h5"


@dataclass(frozen=True)
class Column:
    """Where an array lies in the file, its type, and its shape in the project's alphabet.

    chunk: how many bytes are stored together, about. optional: whether some runs have none.
    """

    path: str
    symbols: str
    dtype: Any
    chunk: int = 2048
    optional: bool = False


def column(path: str, symbols: str, dtype: DTypeLike, chunk: int = 2048, optional: bool = False) -> Any:
    """Declare a field that is a column of the run file."""
    declared = Column(path, symbols, np.dtype(dtype), chunk, optional)
    return field(default=None, metadata={"column": declared}) if optional else field(metadata={"column": declared})


def columns_of(record: type[Any]) -> dict[str, Column]:
    """Return the columns that the fields of a record declare, by name."""
    return {f.name: f.metadata["column"] for f in fields(record)}


@dataclass(frozen=True)
class Record:
    """One generation; its columns have G, the generations, as their first axis.

    Fields named as a quantity of `rollouts.EpisodeResults` are filled with that quantity, for every episode.
    """

    returns: Float64 = column("generation/returns", "G P E", np.float64)
    lengths: Int32 = column("generation/lengths", "G P E", np.int32)
    episode_seconds: Float32 = column("generation/episode_seconds", "G P E", np.float32)
    """The wall time that each episode took in its environment."""
    fitness: Float64 = column("generation/fitness", "G P", np.float64)
    connections: Int32 = column("generation/connections", "G P", np.int32)
    digest: bytes = column("generation/digest", "G", "S64")
    """64 hexadecimal characters."""
    seconds: float = column("generation/seconds", "G", np.float64)
    steps: int = column("generation/steps", "G", np.int64)
    busy_seconds: Float64 = column("rank/busy_seconds", "G R", np.float64)
    environment_seconds: Float64 = column("rank/environment_seconds", "G R", np.float64)
    """The part of busy_seconds that was spent in environments."""
    champion_weights: Float32 = column("champion/weights", "G W", np.float32)
    champion_mask: Bool = column("champion/mask", "G W", np.bool_)
    champion_candidate: int = column("champion/candidate", "G", np.int64)
    champion_fitness: float = column("champion/fitness", "G", np.float64)
    champion_step_hashes: UInt8 = column("champion/step_hashes", "L 2", np.uint8, chunk=2**14)
    """[Σ min(length, MAX_HASHED_STEPS), 2], its episodes end to end; in the file those of all champions."""
    fingerprints: UInt64 = column("fingerprint/episodes", "G P E 2", np.uint64)
    """Of observations and of network outputs."""
    genome_fingerprints: UInt64 = column("fingerprint/genomes", "G P", np.uint64)
    trace_fingerprints: UInt64 = column("fingerprint/traces", "G P", np.uint64)
    normalizer: Float32 | None = column("generation/normalizer", "G 2 O", np.float32, optional=True)
    """[2, O], with which this generation was evaluated, where observations are normalized."""


COLUMNS = columns_of(Record)
STEP_HASHES = COLUMNS.pop("champion_step_hashes")
"""The one column that is not cut by generations: the champions' lengths say where each begins."""


def num_step_hashes(lengths: Int32) -> int:
    """Return how many steps of a champion with episodes of lengths [E] have hashes."""
    return int(np.minimum(lengths, MAX_HASHED_STEPS).sum(dtype=np.int64))


POPULATION = {
    "weights": Column("population/weights", "G P W", np.float32, chunk=2**16),
    "mask": Column("population/mask", "G P W", np.bool_, chunk=2**16),
}
"""Every genome, where the experiment says that they are kept."""


@dataclass(frozen=True)
class HeldOut:
    """The final champion (weights, mask [W]) on N held-out episodes: returns, environment seeds [N]."""

    returns: Float64 = column("evaluation/returns", "N", np.float64)
    seeds: Int64 = column("evaluation/seeds", "N", np.int64)
    weights: Float32 = column("evaluation/weights", "W", np.float32)
    mask: Bool = column("evaluation/mask", "W", np.bool_)


HELD_OUT = columns_of(HeldOut)


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
