"""Registries: the named kinds of networks and strategies, each with the model of its options."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import Field

from evolve.config import Options, Table, nearest, parse
from evolve.errors import InputError


class _Named(Options):
    model_config = Options.model_config | {"extra": "ignore"}
    name: str = Field()


class Registry:
    """The kinds that a table of the experiment may name; `flag` is the name's command-line option."""

    def __init__(self, section: str, flag: str, kinds: Mapping[str, tuple[type[Options], Callable[..., Any]]]) -> None:
        self._section, self._flag, self._kinds = section, flag, kinds

    def __iter__(self) -> Any:
        return iter(self._kinds)

    def _parse(self, table: Table) -> tuple[str, Options]:
        name = parse(_Named, table, self._section).name
        if name not in self._kinds:
            argument, cure = f"{self._section}.name ({self._flag})", nearest(name, self._kinds)
            raise InputError(argument, f"a known {self._section}", name, cure)
        given = {key: value for key, value in table.items() if key != "name"}
        return name, parse(self._kinds[name][0], given, self._section)

    def options(self, table: Table) -> Table:
        """Return the table with every default spelled out. Raises InputError for a bad name or option."""
        name, options = self._parse(table)
        return {"name": name} | options.model_dump(mode="json", exclude_none=True)

    def make(self, table: Table, *arguments: Any) -> Any:
        """Return what the table describes: its kind called with the options and `arguments`."""
        name, options = self._parse(table)
        return self._kinds[name][1](options, *arguments)
