"""What a run file holds, as records of arrays, and where each of them lies."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.fingerprint import LONGEST_TRAIL
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64

SCHEMA = 2


def path_of(directory: Path, seed: int) -> Path:
    """Return the path of one seed's run file."""
    return directory / f"seed-{seed}.h5"


@dataclass(frozen=True)
class Record:
    """One generation, as `COLUMNS` spells it without G.

    fingerprints: of observations and of network outputs; environment_seconds: the part of busy_seconds that was spent
    in environments; champion_trail: [Σ min(length, LONGEST_TRAIL), 2], of its episodes, end to end.
    """

    returns: Float64
    lengths: Int32
    fitness: Float64
    connections: Int32
    digest: bytes  # 64 hexadecimal characters
    seconds: float
    steps: int
    busy_seconds: Float64
    champion_weights: Float32
    champion_mask: Bool
    champion_candidate: int
    champion_fitness: float
    champion_trail: UInt8
    fingerprints: UInt64
    genome_fingerprints: UInt64
    trace_fingerprints: UInt64
    environment_seconds: Float64
    normalizer: Float32 | None = None
    """[2, O], with which this generation was evaluated, where observations are normalized."""


def trail_length(lengths: Int32) -> int:
    """Return how many steps of a champion with episodes of lengths [E] leave a trail."""
    return int(np.minimum(lengths, LONGEST_TRAIL).sum(dtype=np.int64))


@dataclass(frozen=True)
class Place:
    """Where a column lies in the file, its type, and its shape in the project's alphabet."""

    path: str
    dtype: Any
    symbols: str
    chunk: int = 2048
    """Bytes that are stored together, about."""


COLUMNS = {
    "returns": Place("generation/returns", np.float64, "G P E"),
    "lengths": Place("generation/lengths", np.int32, "G P E"),
    "fitness": Place("generation/fitness", np.float64, "G P"),
    "connections": Place("generation/connections", np.int32, "G P"),
    "digest": Place("generation/digest", "S64", "G"),
    "seconds": Place("generation/seconds", np.float64, "G"),
    "steps": Place("generation/steps", np.int64, "G"),
    "busy_seconds": Place("rank/busy_seconds", np.float64, "G R"),
    "champion_weights": Place("champion/weights", np.float32, "G W"),
    "champion_mask": Place("champion/mask", np.bool_, "G W"),
    "champion_candidate": Place("champion/candidate", np.int64, "G"),
    "champion_fitness": Place("champion/fitness", np.float64, "G"),
    "fingerprints": Place("fingerprint/episodes", np.uint64, "G P E 2"),
    "genome_fingerprints": Place("fingerprint/genomes", np.uint64, "G P"),
    "trace_fingerprints": Place("fingerprint/traces", np.uint64, "G P"),
    "environment_seconds": Place("rank/environment_seconds", np.float64, "G R"),
}
"""One for each field of `Record`, with generations along the first axis."""


TRAIL = Place("champion/trail", np.uint8, "N 2", chunk=2**14)
"""The trails of all champions, end to end; the champions' lengths say where each begins."""

NORMALIZER = Place("generation/normalizer", np.float32, "G 2 O")
"""Of runs that normalize observations."""

POPULATION = {
    "weights": Place("population/weights", np.float32, "G P W", chunk=2**16),
    "mask": Place("population/mask", np.bool_, "G P W", chunk=2**16),
}
"""Every genome, where the experiment says that they are kept."""


@dataclass(frozen=True)
class HeldOut:
    """The final champion (weights, mask [W]) on N held-out episodes: returns, environment seeds [N]."""

    returns: Float64
    seeds: Int64
    weights: Float32
    mask: Bool


HELD_OUT = {
    "returns": Place("evaluation/returns", np.float64, "N"),
    "seeds": Place("evaluation/seeds", np.int64, "N"),
    "weights": Place("evaluation/weights", np.float32, "W"),
    "mask": Place("evaluation/mask", np.bool_, "W"),
}


@dataclass(frozen=True)
class Header:
    """What does not change while a run goes on; config is TOML, manifest JSON."""

    config: str
    manifest: Mapping[str, Any]
    seed: int
    env: str


@dataclass(frozen=True)
class Run:
    """A run file as read."""

    path: Path
    header: Header
    complete: bool
    records: tuple[Record, ...]
    checkpoint: dict[str, NDArray[Any]]
    held_out: HeldOut | None
    has_population: bool
    """Whether every genome is kept, for `store.population` to read."""

    @property
    def told(self) -> int:
        """How many generations have been told."""
        return len(self.records)
