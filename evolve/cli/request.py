"""What a command line of `evolve run` asks for."""

from pathlib import Path
from typing import NamedTuple

from evolve.config import Config


class Request(NamedTuple):
    """What is to run, and how.

    Attributes:
        configs: The experiments, at least one.
        file: The run file that is resumed by name, if any.
        resume: Whether runs whose files exist are resumed.
        overwrite: Whether they are replaced.
        dry_run: Whether to say only what would run.
    """

    configs: list[Config]
    file: Path | None
    resume: bool
    overwrite: bool = False
    dry_run: bool = False
