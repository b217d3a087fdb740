"""A champion file `NAME.champion`: the final champion of a run, and all that is needed to play and verify it.

It is HDF5, as a run file is, of 10 to 21 kB in the zoo: configuration and manifest, the genome, the normalizer of its
observations, its held-out returns, and the digest of the run that it came from.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from evolve.errors import InputError
from evolve.shapes import Float32
from evolve.store.columns import Column, write
from evolve.store.disk import atomic_write, naming_output
from evolve.store.reading import check_held_out, open_file, read
from evolve.store.schema import HELD_OUT, Header, HeldOut, StoredRun

CHAMPION_SCHEMA = 1
_NORMALIZER = {
    "normalizer": Column(
        "evaluation/normalizer",
        "2 O",
        np.float32,
        "what is subtracted from observations, and what the difference is multiplied by",
        optional=True,
    )
}


@dataclass(frozen=True)
class StoredChampion:
    """The final champion of a run, apart from the run.

    Attributes:
        path: The file.
        header: That of the run file.
        held_out: Its genome, and its returns on held-out episodes.
        normalizer: [2, O], with which its observations are normalized; None where they are not.
        digest: That of the run's last generation, 64 hexadecimal characters.
        num_generations: How many generations the run had.
        steps: The environment steps of all of them.
        seconds: Their wall time.
    """

    path: Path
    header: Header
    held_out: HeldOut
    normalizer: Float32 | None
    digest: str
    num_generations: int
    steps: int
    seconds: float


Stored = StoredRun | StoredChampion
"""What has a final champion."""


def write_champion(champion: StoredChampion) -> None:
    """Write a champion file, in the place of one that is there. Raises InputError when it cannot be written."""
    with naming_output(champion.path), atomic_write(champion.path) as partial:
        with h5py.File(partial, "w") as file:
            header = champion.header
            file.attrs.update(champion_schema=CHAMPION_SCHEMA, config=header.config, seed=header.seed, env=header.env,
                              manifest=json.dumps(dict(header.manifest)), digest=champion.digest,
                              num_generations=champion.num_generations, steps=champion.steps,
                              seconds=champion.seconds)  # fmt: skip
            for name, column in HELD_OUT.items():
                write(file, column, getattr(champion.held_out, name))
            if champion.normalizer is not None:
                write(file, _NORMALIZER["normalizer"], champion.normalizer)
        with open(partial, "rb") as disk:
            os.fsync(disk.fileno())


def read_champion(path: Path) -> StoredChampion:
    """Read a champion file. Raises InputError when it is missing, damaged, or something else."""
    with open_file(path, "champion file") as reader:
        schema = reader.integer("champion_schema") if reader.has("champion_schema") else None
        if schema is None:
            raise InputError(str(path), "a champion file", "an HDF5 file of something else")
        if schema != CHAMPION_SCHEMA:
            cure = "Read it with another version of evolve."
            raise InputError(str(path), f"a champion file of schema {CHAMPION_SCHEMA}", f"schema {schema}", cure)
        held_out = HeldOut(**reader.columns(HELD_OUT))
        check_held_out(held_out, len(held_out.weights))
        digest = reader.text("digest")
        if len(bytes.fromhex(digest)) != 32:
            raise ValueError("digest: not 64 hexadecimal characters")
        return StoredChampion(
            path,
            reader.header(),
            held_out,
            reader.columns(_NORMALIZER).get("normalizer"),
            digest,
            reader.integer("num_generations"),
            reader.integer("steps"),
            reader.real("seconds"),
        )


def read_any(path: Path) -> StoredRun | StoredChampion:
    """Read a run file or a champion file, whichever it is. Raises InputError as `read` does."""
    with open_file(path, "run file") as reader:
        is_champion = reader.has("champion_schema")
    return read_champion(path) if is_champion else read(path)
