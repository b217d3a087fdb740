"""Writes and reads champion files `NAME.champion`: the final champion of a run, ready to be played and verified.

A champion file is HDF5, as a run file is. It has the configuration, the manifest, the genome, the normalizer of
observations, the held-out returns, and the digest of the run. The files in the zoo have 10 to 26 kB.
"""

import io
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from evolve.errors import InputError, RunError
from evolve.shapes import Float32
from evolve.store.disk import write_output
from evolve.store.reading import check_held_out, open_file, read
from evolve.store.schema import NORMALIZER_MEANING, Column, Header, HeldOut, StoredRun
from evolve.store.writing import write_columns, write_held_out, write_start

CHAMPION_SCHEMA = 1
_NORMALIZER = {"normalizer": Column("evaluation/normalizer", "2 O", np.float32, NORMALIZER_MEANING, optional=True)}


@dataclass(frozen=True)
class StoredChampion:
    """The final champion of a run, apart from the run.

    Attributes:
        path: The file.
        header: The header of the run file.
        held_out: The champion's genome, and its returns on held-out episodes.
        normalizer: [2, O], the champion's normalizer; None if observations are not normalized.
        digest: The digest of the run's last generation, 64 hexadecimal characters.
        num_generations: The number of generations of the run.
        steps: The environment steps of all generations.
        seconds: The wall time of all generations.
        num_observations: The number of observations from which the normalizer was computed; None in files of earlier
            versions.
    """

    path: Path
    header: Header
    held_out: HeldOut
    normalizer: Float32 | None
    digest: str
    num_generations: int
    steps: int
    seconds: float
    num_observations: int | None = None


Stored = StoredRun | StoredChampion
"""A run file, or the champion file of a run."""


def check_begun(consequence: str, *runs: Stored) -> None:
    """Raise RunError if no run has a complete generation. consequence: such as "there is nothing to draw"."""
    if not any(run.num_generations for run in runs):
        paths = ", ".join(str(run.path) for run in runs)
        raise RunError(f"{paths}: no generation is complete yet, so {consequence}")


def write_champion(champion: StoredChampion) -> None:
    """Write a champion file, or replace it. Raises InputError if it cannot be written."""
    # HDF5 writes to memory, and Python writes the file, because HDF5's messages about a full disk are long.
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        file.attrs.update(champion.header.attributes(), champion_schema=CHAMPION_SCHEMA, digest=champion.digest,
                          num_generations=champion.num_generations, steps=champion.steps,
                          seconds=champion.seconds)  # fmt: skip
        if champion.num_observations is not None:
            file.attrs["num_observations"] = champion.num_observations
        write_start(file, champion.header)
        write_held_out(file, champion.held_out)
        write_columns(file, _NORMALIZER, vars(champion))
    write_output(champion.path, content.getvalue())


def read_champion(path: Path) -> StoredChampion:
    """Read a champion file. Raises InputError if it is missing, damaged, or not a champion file."""
    with open_file(path, "champion file") as reader:
        if not reader.has("champion_schema"):
            raise InputError(str(path), "a champion file", "an HDF5 file of something else")
        schema = reader.integer("champion_schema")
        if schema != CHAMPION_SCHEMA:
            cure = "Read it with another version of evolve."
            raise InputError(str(path), f"a champion file of schema {CHAMPION_SCHEMA}", f"schema {schema}", cure)
        held_out = reader.held_out()
        # The second argument is the size of the only genome in this file, so this refuses only empty arrays.
        check_held_out(held_out, len(held_out.weights))
        digest = reader.text("digest")
        if len(bytes.fromhex(digest)) != 32:
            raise ValueError("digest: not 64 hexadecimal characters")
        normalizer = reader.columns(_NORMALIZER).get("normalizer")
        num_observations = reader.integer("num_observations") if reader.has("num_observations") else None
        return StoredChampion(path, reader.header(), held_out, normalizer, digest,
                              num_generations=reader.integer("num_generations"), steps=reader.integer("steps"),
                              seconds=reader.real("seconds"), num_observations=num_observations)  # fmt: skip


def read_any(path: Path) -> Stored:
    """Read a run file or a champion file. Raises InputError as `read` does."""
    with open_file(path, "run file") as reader:
        is_champion = reader.has("champion_schema")
    return read_champion(path) if is_champion else read(path)
