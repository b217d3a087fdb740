"""Declares the contents of a run file, and the records that are written to it and read from it.

A field of a record, such as `Record.returns`, declares the column in which it is stored. The shape, the unit and the
meaning of a column are attributes of its dataset in the file. docs/run-file.md lists all columns.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evolve.genome import Genomes, GenomeSource, candidate_digests
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, UInt8, UInt64, read_only

SCHEMA = 3
"""The version of the layout of run files."""
MOST_ENTRIES = 1000
"""The largest number of arrays in a checkpoint, and of metrics."""
LARGEST_CHUNK = 64_000_000
"""The largest chunk of an array that a reader accepts, in bytes."""

LETTERS = {
    "G": "generations",
    "P": "candidates",
    "E": "episodes of each candidate",
    "W": "weights of a genome",
    "O": "observation size",
    "R": "ranks",
    "N": "held-out or validation episodes",
    "V": "validations",
    "L": "steps",
    "D": "measures",
    "C": "cells of the archive",
}
"""The meanings of the letters in a shape."""


@dataclass(frozen=True)
class Column:
    """The declaration of a dataset in the file.

    Attributes:
        path: The path of the dataset.
        symbols: The shape, in `LETTERS` and numbers, such as "G P 2".
        dtype: The type.
        meaning: The meaning, in words.
        unit: The unit of the numbers; empty if they have no unit.
        chunk: The approximate number of bytes of a chunk, which HDF5 stores together.
        optional: Whether some runs lack this column.
    """

    path: str
    symbols: str
    dtype: Any
    meaning: str
    unit: str = ""
    chunk: int = 2048
    optional: bool = False

    @property
    def attributes(self) -> dict[str, str]:
        """Return the attributes of the dataset, by name."""
        shape = ", ".join(LETTERS.get(symbol, symbol) for symbol in self.symbols.split())
        return {"shape": shape, "unit": self.unit, "meaning": self.meaning}


def column(path: str, symbols: str, dtype: DTypeLike, meaning: str, unit: str = "", **options: Any) -> Any:
    """Declare a field of a record as a column of the run file. For the arguments see `Column`."""
    declared = Column(path, symbols, np.dtype(dtype), meaning, unit, **options)
    metadata = {"column": declared}
    return field(default=None, metadata=metadata) if declared.optional else field(metadata=metadata)


def columns_of(record_type: type[Any]) -> dict[str, Column]:
    """Return the columns that the fields of a record type declare, by the names of the fields."""
    return {f.name: f.metadata["column"] for f in fields(record_type) if "column" in f.metadata}


NORMALIZER_MEANING = (
    "mean that is subtracted from observations, and factor by which the difference is multiplied; only if they are "
    "normalized"
)
METRIC_TYPES = tuple(np.dtype(kind) for kind in (np.bool_, np.int64, np.float64))
"""The types that a column of a metric may have, from the smallest to the largest."""


def metric_column(group: str, symbols: str, name: str, dtype: DTypeLike) -> Column:
    """Return the column of a metric in the group "generation" or "evaluation"."""
    meaning = f"the metric {name} of each episode; NaN, 0 or false for a failed episode"
    return Column(f"{group}/metrics/{name}", symbols, np.dtype(dtype), meaning)


def path_of(directory: Path, seed: int) -> Path:
    """Return the path of one seed's run file."""
    return directory / f"seed-{seed}.h5"


# fmt: off
# The first line of a column has path, shape and type. Meaning and unit follow.
@dataclass(frozen=True, eq=False)
class Record:
    """One generation. A field has the shape of its column without the axis G: `returns` are [P, E].

    The arrays are read-only, because a script gets a record before it is written to the file. A field with the name of
    one of `rollouts.episodes.EPISODE_QUANTITIES` holds this quantity of every episode.
    """

    returns: Float64 = column("generation/returns", "G P E", np.float64,
        "return of each episode; NaN if it failed or was not played (racing, or a growing population)", "reward")
    lengths: Int32 = column("generation/lengths", "G P E", np.int32,
        "environment steps of each episode; 0 if it was not played", "steps")
    episode_seconds: Float32 = column("generation/episode_seconds", "G P E", np.float32,
        "wall time of each episode in its environment; environments stepped together share it equally; if kernels "
        "play whole episodes of exact tasks, it includes the networks, and episodes share it by their steps", "s")
    fitness: Float64 = column("generation/fitness", "G P", np.float64,
        "the value by which selection ranks: what the setting `fitness` makes of the returns (by default their mean), "
        "less the cost of connections; NaN if the candidate failed or did not play", "reward")
    connections: Int32 = column("generation/connections", "G P", np.int32,
        "remaining connections of each candidate", "connections")
    digest: bytes = column("generation/digest", "G", "S64", "sha256 of this generation and of all before it", "hex")
    seconds: float = column("generation/seconds", "G", np.float64, "wall time of the generation", "s")
    steps: int = column("generation/steps", "G", np.int64, "environment steps of the generation", "steps")
    busy_seconds: Float64 = column("rank/busy_seconds", "G R", np.float64, "wall time that each rank was at work", "s")
    environment_seconds: Float64 = column("rank/environment_seconds", "G R", np.float64,
        "the part of busy_seconds that was spent in environments; if kernels play whole episodes of exact tasks, in "
        "environments and networks, as a mean over the threads of the rank", "s")
    champion_weights: Float32 = column("champion/weights", "G W", np.float32,
        "weights of the best candidate of each generation")
    champion_mask: Bool = column("champion/mask", "G W", np.bool_,
        "whether each connection of the best candidate of a generation remains")
    champion_candidate: int = column("champion/candidate", "G", np.int64,
        "number of the best candidate of each generation")
    champion_fitness: float = column("champion/fitness", "G", np.float64,
        "fitness of the best candidate of each generation", "reward")
    champion_step_hashes: UInt8 = column("champion/step_hashes", "L 2", np.uint8,
        "after each step of the best candidates, a byte of the hash of all observations so far, and a byte of the hash "
        "of all outputs so far; at most 4,096 steps of an episode, all episodes end to end, generation after "
        "generation", "hash", chunk=2**14)
    """[Σ min(length, MAX_HASHED_STEPS), 2], over the best candidate's episodes; in the file, also over generations."""
    fingerprints: UInt64 = column("fingerprint/episodes", "G P E 2", np.uint64,
        "fingerprints of all observations, and of all network outputs, of each episode", "hash")
    genome_fingerprints: UInt64 = column("fingerprint/genomes", "G P", np.uint64,
        "fingerprint of weights and mask of each candidate", "hash")
    trace_fingerprints: UInt64 = column("fingerprint/traces", "G P", np.uint64,
        "fingerprint of the traces of each candidate; 0 without traces, or if the traces stayed at a worker", "hash")
    normalizer: Float32 | None = column("generation/normalizer", "G 2 O", np.float32, NORMALIZER_MEANING, optional=True)
    """[2, O], the normalizer of this generation's episodes."""
    measures: Float64 | None = column("selection/measures", "G P D", np.float64,
        "measures of each candidate, in the order of the settings that name them: numbers that count beside fitness",
        optional=True)
    front: Float64 | None = column("selection/front", "G P", np.float64,
        "mean fitness over all evaluations of each candidate on the front after the generation; NaN for others",
        "reward", optional=True)
    archive: Float64 | None = column("selection/archive", "G C", np.float64,
        "fitness of the elite in each cell of the archive after the generation, the last axis of the grid running "
        "fastest; NaN in an empty cell", "reward", optional=True)
    metrics: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """The metrics of the episodes by name, [P, E] each, in columns of their own (`metric_column`)."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                object.__setattr__(self, name, read_only(value))
        object.__setattr__(self, "metrics", {name: read_only(values) for name, values in self.metrics.items()})

    @property
    def champion(self) -> Genomes:
        """The best candidate, P = 1."""
        return Genomes(self.champion_weights[None], self.champion_mask[None])


COLUMNS = columns_of(Record)
STEP_HASHES = COLUMNS.pop("champion_step_hashes")
"""The only column without the axis G. The episode lengths of the champions show where each generation begins."""


POPULATION = {
    "weights": Column("population/weights", "G P W", np.float32,
        'weights of every candidate; only with output.genomes = "all"', chunk=2**16),
    "mask": Column("population/mask", "G P W", np.bool_,
        "whether each connection of every candidate remains; only with their weights", chunk=2**16),
}
"""All genomes, if the experiment keeps them."""


def generation_bytes(sizes: Mapping[str, int], has_population: bool) -> int:
    """Return the bytes of a generation in the file.

    sizes: The size of each letter of `LETTERS`. Columns with other letters do not count, so give O only if observations
        are normalized.
    """
    known = {"G": 1, "2": 2, **sizes}  # "2" is the number in shapes such as "L 2"
    total = 0
    for column in (*COLUMNS.values(), STEP_HASHES, *(POPULATION.values() if has_population else ())):
        shape = [known.get(symbol, 0) for symbol in column.symbols.split()]
        total += math.prod(shape) * np.dtype(column.dtype).itemsize
    return total


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The evaluation of the final champion on N held-out episodes."""

    returns: Float64 = column("evaluation/returns", "N", np.float64,
        "returns of the final champion on held-out episodes; only once it was evaluated; NaN for a failed episode",
        "reward")
    seeds: Int64 = column("evaluation/seeds", "N", np.int64, "seeds of the environments of these episodes")
    weights: Float32 = column("evaluation/weights", "W", np.float32, "weights of the champion that played them")
    mask: Bool = column("evaluation/mask", "W", np.bool_, "whether each of its connections remains")
    metrics: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """The metrics of the episodes by name, [N] each, in columns of their own (`metric_column`)."""
    lengths: Int32 | None = None
    """[N], the steps of the episodes; None if this evaluation was read from a file, which has no such column."""

    @property
    def champion(self) -> Genomes:
        """The champion, P = 1."""
        return Genomes(self.weights[None], self.mask[None])


HELD_OUT = columns_of(HeldOut)

VALIDATIONS = {
    "generations": Column("validation/generations", "V", np.int64,
        "number of complete generations before each validation of the champion; only with early_stop.mean_return"),
    "returns": Column("validation/returns", "V N", np.float64,
        "returns of the champion on the validation episodes; NaN for a failed episode, and beyond the episodes of this "
        "validation", "reward"),
}
"""The validations of champions, by which a run may end early."""


@dataclass(frozen=True, eq=False)
class Start:
    """The genome with which a run began, and the normalizer with which this genome was evolved."""

    weights: Float32 = column("start/weights", "W", np.float32,
        "weights of the genome with which the run began; only with start_from")
    mask: Bool = column("start/mask", "W", np.bool_, "connections of that genome")
    num_observations: Int64 = column("start/num_observations", "1", np.int64,
        "number of observations from which its normalizer was computed; 0 without one")
    normalizer: Float32 | None = column("start/normalizer", "2 O", np.float32, NORMALIZER_MEANING, optional=True)

    @property
    def genome(self) -> Genomes:
        """The genome, P = 1."""
        return Genomes(self.weights[None], self.mask[None])

    @property
    def digest(self) -> str:
        """64 hexadecimal characters that identify the start."""
        # All numbers are little-endian, as in the digests of generations.
        state = hashlib.sha256(candidate_digests(self.genome)[0])
        if self.normalizer is not None:
            state.update(np.asarray(self.num_observations, "<i8").tobytes())
            state.update(np.asarray(self.normalizer, "<f4").tobytes())
        return state.hexdigest()

    def __repr__(self) -> str:
        normalizer = "" if self.normalizer is None else ", with a normalizer of observations"
        return f"<Start: {np.count_nonzero(self.mask):,} connections{normalizer}, digest {self.digest[:16]}…>"


START = columns_of(Start)

EVERY_COLUMN = (
    *columns_of(Record).values(), *POPULATION.values(), *VALIDATIONS.values(), *HELD_OUT.values(), *START.values(),
)
"""All columns that a run file can have, besides its checkpoint and its metrics."""
# fmt: on


@dataclass(frozen=True)
class Header:
    """The parts of a run that do not change from generation to generation.

    Attributes:
        config: The configuration as TOML.
        manifest: The versions and machines that produced the run, see `training.manifest`.
        seed: The seed.
        env: The id of the environment.
        start: The genome with which the run began; None if it began with random genomes.
        spaces: The spaces of observations and actions (`environments.Spaces.to_json`). With them a policy needs no
            environment. None in files of earlier versions.
    """

    config: str
    manifest: Mapping[str, Any]
    seed: int
    env: str
    start: Start | None = None
    spaces: Mapping[str, Any] | None = None

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of a file, by name."""
        spaces = {} if self.spaces is None else {"spaces": json.dumps(self.spaces)}
        texts = {"config": self.config, "manifest": json.dumps(dict(self.manifest))}
        return texts | spaces | {"seed": self.seed, "env": self.env}


@dataclass(frozen=True, eq=False)
class StoredRun:
    """The contents of a run file. An object equals only itself, and can be a key of a dictionary.

    Attributes:
        path: The file.
        header: The parts that do not change from generation to generation.
        complete: Whether the run has ended.
        records: The complete generations.
        checkpoint: The state of the strategy after the last generation, see `Checkpoint`.
        held_out: The evaluation of the final champion; None if there was none.
        has_population: Whether the file has all genomes, see `store.population`.
        validations: The champion's returns [N] on validation episodes, by the number of complete generations.
    """

    path: Path
    header: Header
    complete: bool
    records: tuple[Record, ...]
    checkpoint: dict[str, NDArray[Any]]
    held_out: HeldOut | None
    has_population: bool
    validations: Mapping[int, Float64] = field(default_factory=dict)

    @property
    def num_generations(self) -> int:
        """The number of complete generations."""
        return len(self.records)

    @property
    def last(self) -> Record | None:
        """The record of the last generation; None if there is no generation."""
        return self.records[-1] if self.records else None

    @property
    def steps(self) -> int:
        """The environment steps of all generations."""
        return sum(int(record.steps) for record in self.records)

    @property
    def seconds(self) -> float:
        """The wall time of all generations."""
        return sum(float(record.seconds) for record in self.records)

    @property
    def best_fitness(self) -> float:
        """The best fitness of all generations; NaN if no fitness is a number. The run must have a generation."""
        return float(np.fmax.reduce([record.champion_fitness for record in self.records]))

    @property
    def digest(self) -> str:
        """The digest of the last generation, 64 hexadecimal characters. The run must have a generation."""
        return self.records[-1].digest.decode()


Checkpoint = Mapping[str, NDArray[Any]]
"""The state of a strategy, and what else a resumed run needs: arrays by name."""


@dataclass(eq=False)
class RunLog:
    """The newest generation of a run in progress, and the state after it. A `RunFile` also writes them to a file.

    path: The path of the run, for errors.
    """

    path: Path
    header: Header
    num_generations: int = 0
    """The number of appended generations."""
    steps: int = 0
    """The environment steps of all appended generations."""
    checkpoint: Checkpoint = field(default_factory=dict)
    last: Record | None = None
    """The record that was appended last."""
    held_out: HeldOut | None = None
    validations: dict[int, Float64] = field(default_factory=dict)
    """The champion's returns [N] on validation episodes, by the number of complete generations."""
    complete: bool = False

    def append(
        self, record: Record, checkpoint: Checkpoint, genomes: GenomeSource | None = None, flush: bool = True
    ) -> None:
        """Add a generation and the state of the strategy after `tell`. Drop the evaluation of the earlier champion.

        Args:
            record: The generation.
            checkpoint: The state.
            genomes: The P candidates, if the run stores all genomes.
            flush: Whether to write now if a flush is due.
        """
        self.num_generations += 1
        self.steps += int(record.steps)  # a record from a file has a NumPy integer, which JSON refuses
        self.checkpoint, self.last, self.held_out = checkpoint, record, None

    def flush(self) -> None:
        """Write everything to the file, if there is one."""

    def flush_if_due(self) -> None:
        """Write everything to the file, if there is one and its last flush is long enough ago."""
