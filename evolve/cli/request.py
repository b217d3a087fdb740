"""What a command line of `evolve run` asks for."""

from functools import reduce
from operator import add
from pathlib import Path
from typing import NamedTuple

from evolve import environments
from evolve.cli.workers import Work
from evolve.config import Config
from evolve.training.plan import size_of


class Request(NamedTuple):
    """What is to run, and how.

    Attributes:
        configs: The experiments, at least one.
        file: The run file that is resumed by name, if any.
        resume: Whether runs whose files exist are resumed.
        overwrite: Whether they are replaced.
        dry_run: Whether to say only what would run.
        report: Whether a page is made of the runs when they have ended.
        workers: How many processes are to play episodes, or "auto"; None where the launcher decides.
    """

    configs: list[Config]
    file: Path | None
    resume: bool
    overwrite: bool = False
    dry_run: bool = False
    report: bool = False
    workers: int | str | None = None

    @property
    def work(self) -> Work:
        """How much there is to do at most, run files that are there left aside."""
        at_once = max(config.population * config.episodes for config in self.configs)
        sizes = (size_of(config) for config in self.configs for _ in config.seeds)
        quick = all(environments.is_quick(config.env) for config in self.configs)
        return Work(at_once, reduce(add, sizes).steps if quick else None)
