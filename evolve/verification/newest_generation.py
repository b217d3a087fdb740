"""What takes the place of a run file where a run is made again: it keeps the newest generation only."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from evolve.genome import GenomeSource
from evolve.store import Header, HeldOut, Record


class NewestGeneration:
    """A run log that forgets all but its newest generation.

    Args:
        path: Of the file whose run is made again, for messages.
        header: What was known when that run began.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.header = header
        self.num_generations = 0
        self.steps = 0
        self.last: Record | None = None
        self.checkpoint: Mapping[str, NDArray[Any]] = {}
        self.held_out: HeldOut | None = None
        self.complete = False

    def append(
        self,
        record: Record,
        checkpoint: Mapping[str, NDArray[Any]],
        genomes: GenomeSource | None = None,
        flush: bool = True,
    ) -> None:
        """Take the place of the last generation."""
        self.num_generations += 1
        self.last = record
        self.checkpoint = checkpoint

    def flush_if_due(self) -> None:
        """Keep nothing."""

    def flush(self) -> None:
        """Keep nothing."""
