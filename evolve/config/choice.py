"""`Choice`: a section of an experiment that names a kind of network or of strategy, and its options."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import model_validator

from evolve.config.options import Options, Table
from evolve.config.values import writable


class UnknownOptions(Options):
    """Options of a kind that is not installed here: kept as they are, so that its experiment can be looked at."""

    model_config = Options.model_config | {"extra": "allow"}

    @model_validator(mode="before")
    @classmethod
    def _check(cls, table: Any) -> Any:
        return writable(table)


@dataclass(frozen=True)
class Choice:
    """A kind that a section of an experiment names, with all its options.

    Attributes:
        section: "network" or "strategy".
        name: The kind.
        options: An instance of the kind's model; `UnknownOptions` where the kind is not installed here.
    """

    section: str
    name: str
    options: Options

    def table(self) -> Table:
        """Return the section as TOML has it: the name and every option that has a value, defaults included."""
        return {"name": self.name} | self.options.model_dump(mode="json", exclude_none=True)


Section = Choice | Mapping[str, Any]
"""A choice, or the table of a section that has still to be validated."""
